//! Compiled programs (HLO modules): what they cost and how they use memory.
//!
//! Everything here is computed from a [`Module`](stepscope_formats::hlo::Module), without a timeline:
//! [`cost`] is XLA's cost analysis, [`memory`] the compiler's memory plan, [`graph`] a drawing of the data
//! flow. Figures are the compiler's expectation, not a measurement.

pub mod cost;
pub mod graph;
pub mod memory;
mod order;
