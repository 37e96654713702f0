//! The public API: spans, steps and counters, and the interfaces for tracers of other languages.

pub mod calls;
pub mod manual_span;
pub mod span;
pub mod virtual_track;
