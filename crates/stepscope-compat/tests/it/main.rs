//! Figures and tables as HTA and torch compute them, on real traces.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail loudly, and print what they compared; they read figures of peers"
)]

mod hta;
mod torch_tables;
