//! Analyses of real traces, against independent computations and against the figures of peers.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail loudly, and print what they compared; they read figures of peers"
)]

mod definitions;
mod device;
