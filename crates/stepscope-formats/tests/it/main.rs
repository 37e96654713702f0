//! One binary for the crate's tests on whole files.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "tests fail loudly, and say when they were not run"
)]

#[cfg(all(feature = "chrome", feature = "perfetto", feature = "xplane"))]
mod chakra;
#[cfg(feature = "chrome")]
mod chrome_json;
mod conversion;
mod detect;
mod execution_trace;
#[cfg(feature = "samples")]
mod firefox;
#[cfg(feature = "rustc")]
mod measureme;
#[cfg(feature = "snapshots")]
mod nccl_flight;
#[cfg(feature = "nsight")]
mod nsight;
#[cfg(feature = "perfetto")]
mod perfetto;
#[cfg(feature = "profiles")]
mod pprof;
#[cfg(feature = "profiles")]
mod profiles;
#[cfg(feature = "rocprof")]
mod rocprof;
#[cfg(feature = "samples")]
mod sampled;
#[cfg(feature = "snapshots")]
mod torch_compile_log;
#[cfg(feature = "snapshots")]
mod torch_snapshot;
#[cfg(feature = "perfetto")]
mod wire;
#[cfg(feature = "xplane")]
mod xspace;
