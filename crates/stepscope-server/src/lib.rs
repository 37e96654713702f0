//! The HTTP interface and the embedded viewer.
//!
//! ```text
//! request -> guard (host, origin, tokens) -> routes -> reply (open, ask, encode, cache, cancel)
//!         -> engine, store, analysis -> wire (JSON, columns) -> bytes
//! ```
//!
//! Reading order: [`ServerOptions`] and [`Server`], then the rooms behind them: `guard` (who may
//! ask), `routes` (what can be asked), `reply`, `opening` (imports that requests share), `view`,
//! `params`, [`wire`] (what travels), `capture` (programs that are recorded on request), `live` (server-sent events), [`Viewer`], `tools`, `problem`.
//! `docs/reference/http.md` tells the interface by request and response; a test compares the two.
//!
//! **Invariant:** the server keeps nothing about what a client looks at; each request is complete.
//! **Invariant:** only [`wire`] knows how things travel: nothing below this crate is serializable.
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
mod opening;
mod options;
mod params;
mod perfetto_link;
mod problem;
mod reply;
mod routes;
mod server;
mod state;
mod tools;
mod view;
mod viewer;
pub mod wire;

pub use guard::CONTENT_SECURITY_POLICY;
pub use options::{ServerError, ServerOptions};
pub use perfetto_link::{
    LinkOutcome, LinkStopper, PerfettoLink, PerfettoLinkError, PerfettoLinkOptions,
};
pub use server::{Server, app, serve_blocking};
pub use viewer::Viewer;
