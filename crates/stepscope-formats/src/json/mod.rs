//! JSON text: scanned without building anything from it, repaired and written. Nothing here knows a
//! trace format.
//!
//! Reading order: `scan` (values and where they are) with `simd`, `members` (walks over objects and
//! lists), `value`, `text` and `number` (what the bytes mean); then `write` and `repair`.

pub(crate) mod members;
pub(crate) mod number;
pub(crate) mod repair;
pub(crate) mod scan;
mod simd;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod write;
