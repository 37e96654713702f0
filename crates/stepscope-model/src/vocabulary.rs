//! Facts about the names that frameworks write: one table each.
//!
//! Readers, analyses and reports use these tables, so that a new category, backend or line of a
//! device needs one line of code.

pub mod collective;
pub mod cupti;
pub mod kineto;
pub mod lightning;
pub mod producer;
pub mod profilers;
pub mod sample;
pub mod step;
pub mod torch_compile;
pub mod xla;
