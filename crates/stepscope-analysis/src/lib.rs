//! Where the time went: pure functions from a trace to plain data.
//!
//! Reading order: [`steps`].
//!
//! **Invariant:** nothing here does I/O or knows a file format; units stand in field names or
//! types, formatting is the caller's.

pub mod steps;
