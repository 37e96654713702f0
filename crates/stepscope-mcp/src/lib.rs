//! Tools that let AI assistants ask about runs, by the Model Context Protocol (MCP).
//!
//! ```text
//! client -> stdio, http -> protocol (McpServer) -> tools, resources, prompts -> Engine, analyses -> Report
//!        <-             <- bounded text and JSON <- answer                                       <-
//! ```
//!
//! Reading order: `protocol` ([`McpServer`]: messages of both lifecycles), `stdio` and `http` (transports), `tools` (the
//! registry and one file per subject), `args` (checked arguments), `answer` (a
//! [`Report`](stepscope_report::report::Report) as bounded text and JSON), `canvas` (pictures), `resources`, `prompts`,
//! `documents` and `instructions` (texts for models), `stop` (cancellation); `skill` (the same for assistants that
//! run commands).
//! `docs/guide/assistants.md` is the guide for users, `docs/reference/mcp.md` lists tools and limits.
//!
//! **Invariant:** every answer is bounded, and says how to get what it leaves out.
//! **Invariant:** no tool opens a socket, and none reads or writes a file outside of the engine's paths, the engine's
//! caches and the user's data directory. Two exceptions: the engine fetches the files of paths that are URLs, and `capture`
//! connects to the addresses that the user allowed and writes below the engine's paths.
//! **Invariant:** text from traces reaches a client with its control characters visible and its markup escaped.

#![allow(
    clippy::similar_names,
    reason = "`trace` and `track` are words of the house"
)]

mod answer;
mod args;
mod canvas;
mod documents;
mod error;
mod http;
mod instructions;
mod prompts;
mod protocol;
mod resources;
mod skill;
mod stdio;
mod stop;
mod tools;

pub use http::{HttpAnswer, HttpHeaders};
pub use protocol::McpServer;
pub use skill::{SkillFile, is_as_written, skill_files};
pub use stdio::serve_stdio;
pub use stop::{Stop, StopCallOnDrop};
