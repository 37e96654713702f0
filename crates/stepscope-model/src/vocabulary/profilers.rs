//! Slices with which `stepscope run` shows when the profilers of frameworks recorded.

/// Name of the slices in which they start.
pub const START: &str = "start the profilers of frameworks";

/// Name of the slices in which they stop, and hand over what they recorded.
pub const STOP: &str = "stop the profilers of frameworks";
