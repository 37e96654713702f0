//! Names of steps.

/// Name of the numbered steps that the Python package derives from calls of a torch optimizer's `step()`, in
/// programs that `stepscope run` records. Marked steps take precedence.
pub const OPTIMIZER_STEP: &str = "step (derived)";
