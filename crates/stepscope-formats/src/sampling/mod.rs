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

/// Maximum depth of the stack of an operator of an execution trace. Operators nest far less deeply; damaged files have
/// circles.
pub(crate) const MAX_STACK: usize = 512;
/// Maximum length of a description of inputs.
const MAX_SHAPES_BYTES: usize = 512;

/// Returns a list without the blanks between its elements, truncated; empty for an empty one.
pub(crate) fn compact(list: &[u8]) -> String {
    let list = list.get(..MAX_SHAPES_BYTES).unwrap_or(list);
    let mut out = String::from_utf8_lossy(list).into_owned();
    out.retain(|letter| !letter.is_whitespace());
    if out == "[]" {
        out.clear();
    }
    out
}

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
