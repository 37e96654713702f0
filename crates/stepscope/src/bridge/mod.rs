//! Into other tools' files, and from the `tracing` crate.

mod itt;
pub(crate) mod mirror;
mod nvtx;
#[cfg(feature = "tracing")]
pub mod tracing;
