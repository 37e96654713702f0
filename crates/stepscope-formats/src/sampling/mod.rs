//! Code that readers of sampled stacks share: a table of samples by stack, and a timeline of stacks.
//!
//! [`SampleTable`] builds a [`Profile`](stepscope_model::Profile) of kind `samples`.
//! [`SampledTrack`] turns a thread's samples, in order of time, into slices.

mod table;
mod timeline;

pub(crate) use table::SampleTable;
pub(crate) use timeline::{SampledTrack, SliceBudget, sample_end};
