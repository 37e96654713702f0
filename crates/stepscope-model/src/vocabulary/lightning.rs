//! Labels of PyTorch Lightning's profilers, as `PyTorchProfiler` and our own timeline name them.

/// Prefix of every label.
pub const LABEL: &str = "[pl]";

/// Prefix of the label of a trainer's action: `[pl][profile]run_training_batch`.
pub const ACTION: &str = "[pl][profile]";

/// Prefix of the label of a module's call: `[pl][module]torch.nn.modules.linear.Linear: net.0`.
pub const MODULE: &str = "[pl][module]";
