//! Durations that cannot be true.
//!
//! A damaged record of a device's clock makes a slice that is far too long, and a few of them can
//! be most of a trace's device time. On a host thread a long slice proves nothing. A device queue,
//! though, runs one thing after another, so there a slice is *impossible* when all of this holds:
//!
//! * the queue is serial: at most one slice in a hundred overlaps what follows it;
//! * the slice lasts more than ten times as long as the queue's 99th percentile;
//! * it runs over the beginning of the next slice of its queue, and ends in the middle of another
//!   slice, or after everything else on the queue.
//!
//! Whatever nests properly (a `while` and its body on an XLA line) is therefore never flagged. The
//! flag is a diagnostic; no number changes. Queues of fewer than 100 slices are not judged.

use stepscope_model::TrackKind;

use crate::table::SliceTable;

const FEWEST: usize = 100;
const TIMES_P99: i64 = 10;

/// Impossible slices of one finished track.
pub(crate) fn count(slices: &SliceTable, kind: TrackKind) -> u64 {
    let count = slices.start.len();
    if kind != TrackKind::DeviceQueue || count < FEWEST {
        return 0;
    }
    let overlapping = (1..count)
        .filter(|next| slices.start[*next] < slices.end(next - 1))
        .count();
    if overlapping == 0 || overlapping > count / 100 {
        return 0;
    }
    let mut lengths: Vec<i64> = slices.dur.iter().map(|dur| dur.ps()).collect();
    let (_, p99, _) = lengths.select_nth_unstable(count - 1 - count / 100);
    let limit = (*p99).max(1).saturating_mul(TIMES_P99);
    (0..count)
        .filter(|index| slices.dur[*index].ps() > limit && breaks_order(slices, *index))
        .count() as u64
}

/// Whether the slice begins before its successor does and ends within a later one, or past all.
fn breaks_order(slices: &SliceTable, index: usize) -> bool {
    let end = slices.end(index);
    let after = slices.start.partition_point(|start| *start < end);
    if after <= index + 1 {
        return false;
    }
    after == slices.start.len() || slices.end(after - 1) > end
}
