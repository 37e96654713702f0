//! From emitted events to a finished trace.
//!
//! Reading order: `sink` (one file) with `names` and `buffer`, then `builder` and its phases:
//! `order` (tracks), `finish_track` with `nest` and `split_points` (sorted columns, depth, parent,
//! rows), `flows`, `core_span`, `suspicious`, `file_counts`.

pub(crate) mod buffer;
pub(crate) mod builder;
pub(crate) mod core_span;
pub(crate) mod file_counts;
pub(crate) mod finish_track;
pub(crate) mod flows;
pub(crate) mod names;
pub(crate) mod nest;
pub(crate) mod order;
pub(crate) mod sink;
pub(crate) mod split_points;
pub(crate) mod suspicious;
