//! What programs call: spans, steps and counters, and what tracers of other languages need.

pub mod calls;
pub mod manual_span;
pub(crate) mod names;
pub mod span;
pub(crate) mod steps;
pub mod virtual_track;
