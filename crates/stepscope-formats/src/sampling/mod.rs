//! Code that readers of sampled stacks share: a table of samples by stack, and a timeline of stacks.
//!
//! [`SampleTable`] builds a [`Profile`](stepscope_model::Profile) of kind `samples`.
//! [`SampledTrack`] turns a thread's samples, in order of time, into slices.

mod table;
mod timeline;

use stepscope_model::{Diagnostic, EventSink};

use crate::losses;

pub(crate) use table::SampleTable;
pub(crate) use timeline::{SampledTrack, SliceBudget, sample_end};

/// Reports what the limits on slices and on stacks left out.
pub(crate) fn diagnose_limits<S: EventSink>(
    sink: &mut S,
    budget: &SliceBudget,
    stacks_left_out: u64,
) {
    let limits = [
        (
            Diagnostic::LimitReached,
            budget.left_out(),
            "slices and instants beyond one per byte of the file",
        ),
        (
            Diagnostic::LimitReached,
            stacks_left_out,
            "stacks beyond four frames per byte of the file",
        ),
    ];
    losses::diagnose(sink, &limits);
}
