//! Bridges to other tools (NVTX, ITT) and from the `tracing` crate.

mod itt;
pub(crate) mod mirror;
mod nvtx;
#[cfg(feature = "tracing")]
pub mod tracing;
