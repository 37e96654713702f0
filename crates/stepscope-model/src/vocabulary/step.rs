//! Names of steps.

/// Name of the numbered steps that the Python package derives from what a program repeats (steps of an optimizer or
/// a `Trainer`, batches, calls of a jitted function), in programs that `stepscope run` records. Marked steps take
/// precedence.
pub const OPTIMIZER_STEP: &str = "step (derived)";
