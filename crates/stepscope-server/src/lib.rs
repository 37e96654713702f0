//! The HTTP interface and the embedded viewer.
//!
//! ```text
//! request -> guard (host, origin, tokens) -> routes -> reply (open, ask, encode, cache, cancel)
//!         -> engine, store, analysis -> wire (JSON, columns) -> bytes
//! ```
//!
//! Reading order: [`ViewerOptions`] and [`Server`], then `guard` (access checks), `routes` (handlers),
//! `reply` (one request about a run), `opening` (imports that requests share), `view`, `params`, [`ns`]
//! (exact times), [`wire`] (serialized types), `capture` (captures of running programs), `live` (events for
//! all listeners), `state` (shared by all requests), [`Viewer`], `problem`, `op_times`
//! (measured times of compiled operations), `sql_engines` (the programs that answer SQL), `perfetto_link`.
//! `docs/reference/http.md` documents the interface by request and response; a test compares the two.
//!
//! Modules depend in one direction: data (`ns`, `view`, `capture`, `wire`, `live`), then `state`, then `reply`
//! and `guard`, then `routes` and `server`.
//!
//! **Invariant:** the server is stateless about clients; each request is complete.
//! **Invariant:** only [`wire`] serializes; nothing below this crate depends on the wire format.
//! **Invariant:** no request reaches a file outside the watched directories, the cache and the
//! user's data directory.

#![allow(
    clippy::similar_names,
    reason = "`trace` and `track` are words of the house"
)]

mod body;
mod capture;
mod clients;
mod guard;
mod headers;
mod live;
pub mod ns;
mod op_times;
mod opening;
mod options;
mod params;
mod path_cache;
mod perfetto_link;
mod problem;
mod reply;
mod routes;
mod run_cache;
mod server;
mod side_cache;
mod snapshots;
mod sql_engines;
mod state;
mod view;
mod viewer;
pub mod wire;

pub use guard::CONTENT_SECURITY_POLICY;
pub use options::{DEFAULT_PORT, ViewerError, ViewerOptions};
pub use perfetto_link::{
    LinkOutcome, LinkStopper, PerfettoLink, PerfettoLinkError, PerfettoLinkOptions,
};
pub use routes::{Endpoint, endpoints};
pub use server::{Server, app, serve_blocking};
pub use viewer::Viewer;
