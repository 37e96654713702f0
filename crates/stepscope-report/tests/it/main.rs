//! Reports of small traces with known figures, and of real traces with the figures of peers.

#![allow(
    clippy::unwrap_used,
    clippy::similar_names,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail loudly, and print what they compared; they read figures of peers"
)]

mod collectives;
mod compare_noise;
mod critical_path;
mod every_report;
mod hlo;
mod known_causes;
mod memory;
mod memory_live;
mod memory_snapshot;
mod mfu;
mod ops;
mod peers_compare;
mod predictions;
mod ranges;
mod sentences;
mod simulated;
mod torch_roofline;
mod xprof;
