//! The bridge from the `tracing` crate.

#[cfg(feature = "tracing")]
pub mod tracing;
