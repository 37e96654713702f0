//! Both halves of the capture protocol, over real sockets.
#![allow(
    missing_docs,
    unsafe_code,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test binary: it may panic, open files and signal its children"
)]

mod client;
mod server;
