//! JSON text: scanning without building a tree, repairing and writing. This module is independent
//! of any trace format.
//!
//! Reading order: `scan` (values and their byte ranges) with `simd`, `members` (iteration over
//! objects and lists), `walk` (traversal that also sees what a truncated file holds), `value`,
//! `text` and `number` (conversion of bytes to values); then `write` and `repair`.

pub(crate) mod members;
pub(crate) mod number;
pub(crate) mod repair;
pub(crate) mod scan;
mod simd;
pub(crate) mod text;
pub(crate) mod value;
#[cfg_attr(
    not(all(feature = "rocprof", feature = "samples")),
    allow(dead_code, reason = "for readers that this build leaves out")
)]
pub(crate) mod walk;
pub(crate) mod write;
