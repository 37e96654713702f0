//! The public API: spans, steps and counters, and the interfaces for tracers of other languages.

pub mod calls;
pub mod manual_span;
pub(crate) mod names;
pub mod span;
pub(crate) mod steps;
pub mod virtual_track;
