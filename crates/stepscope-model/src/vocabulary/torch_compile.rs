//! Names in logs of `torch.compile`, for readers and analyses.

/// Category of the slices of compilations.
pub const CATEGORY: &str = "torch.compile";
/// Category of the phases of the compiler; torch writes it.
pub const PHASE_CATEGORY: &str = "dynamo_timed";
/// Code of the logs' format.
pub const FORMAT: &str = "torch-compile-log";
