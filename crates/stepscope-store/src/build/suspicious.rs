//! Detection of impossible durations.
//!
//! A damaged record of a device's clock makes a slice far too long, and a few such slices can make
//! up most of a trace's device time. On a host thread a long slice proves nothing. A device queue,
//! however, runs one operation after another, so a slice there is *impossible* if all of these
//! hold:
//!
//! * the queue is serial: at most one slice in a hundred overlaps the next one;
//! * the slice lasts more than ten times as long as the queue's 99th percentile;
//! * it extends over the beginning of the next slice of its queue, and ends in the middle of
//!   another slice, or later than the end of all others on the queue by more than that limit;
//! * its category is not an annotation: annotations span kernels and may overlap some of them.
//!
//! Slices that nest properly (a `while` and its body on an XLA line, an annotation around kernels)
//! are therefore never flagged. The flag is a diagnostic and changes no number. Queues of fewer
//! than 100 slices are not checked.

use stepscope_model::{Dur, NameId, TrackKind};

use crate::columns::table::SliceTable;

const FEWEST: usize = 100;
const TIMES_P99: i64 = 10;

/// Counts the impossible slices of one finished track. `labels` are the ids of kineto's annotation
/// categories.
pub(crate) fn count(slices: &SliceTable, kind: TrackKind, labels: &[NameId]) -> u64 {
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
        .filter(|index| slices.dur[*index].ps() > limit)
        .filter(|index| !labels.contains(&slices.category.get(*index)))
        .filter(|index| breaks_order(slices, *index, limit))
        .count() as u64
}

/// Returns whether the slice partly overlaps others, or ends far after all others.
fn breaks_order(slices: &SliceTable, index: usize, limit: i64) -> bool {
    let end = slices.end(index);
    let after = slices.start.partition_point(|start| *start < end);
    if after <= index + 1 {
        return false;
    }
    if slices.end(after - 1) > end {
        return true;
    }
    // The slice ends last: compare with the latest end of the others.
    let others = slices
        .open()
        .last_open_at(end.saturating_sub(Dur::from_ps(limit)), slices.start.len());
    after == slices.start.len() && others.is_none_or(|other| other <= index)
}

#[cfg(test)]
mod tests {
    use stepscope_model::{SliceIn, Time};

    use super::*;
    use crate::build::buffer::EventBuf;
    use crate::build::finish_track;

    /// 200 kernels of 2 us, 1 us apart, and one more slice.
    fn with(start_us: i64, dur_us: i64) -> u64 {
        counted(start_us, dur_us, NameId(3))
    }

    fn counted(start_us: i64, dur_us: i64, category: NameId) -> u64 {
        let mut events = EventBuf::default();
        let kernels = (0..200).map(|index| (index * 3, 2, NameId(3)));
        for (start, dur, category) in kernels.chain([(start_us, dur_us, category)]) {
            events.slice(&SliceIn {
                start: Time::from_ps(start * 1_000_000),
                dur: Dur::from_ps(dur * 1_000_000),
                category,
                ..SliceIn::default()
            });
        }
        count(
            &finish_track::finish(events).table.slices,
            TrackKind::DeviceQueue,
            &[NameId(9)],
        )
    }

    #[test]
    fn only_what_breaks_the_order_is_impossible() {
        assert_eq!(with(0, 600), 0, "an annotation around all");
        assert_eq!(with(30, 30), 0, "one that ends in a pause");
        assert_eq!(with(30, 31), 1, "one that ends within a kernel");
        assert_eq!(counted(30, 31, NameId(9)), 0, "a label");
        assert_eq!(with(30, 9_000), 1, "one that ends long after all");
        assert_eq!(with(700, 9_000), 0, "a long one alone");
        assert_eq!(with(30, 19), 0, "not ten times as long");
    }
}
