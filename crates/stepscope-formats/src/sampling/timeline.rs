//! Stacks of one thread over time, as slices.

use stepscope_model::{Dur, EventSink, NameId, SliceIn, Time, TrackId};

/// Maximum number of frames of a stack that become slices: the outermost ones.
const MAX_DEPTH: usize = 512;
/// Number of slices that any file may have.
const FREE_SLICES: usize = 512;

/// The number of slices that the samples of a file may still become: in proportion to its size,
/// because a file can refer to one deep stack any number of times.
pub(crate) struct SliceBudget {
    left: usize,
    left_out: u64,
}

impl SliceBudget {
    /// Creates the budget of a file of this size.
    pub(crate) fn new(file_bytes: usize) -> Self {
        Self {
            left: file_bytes.saturating_add(FREE_SLICES),
            left_out: 0,
        }
    }

    /// Takes one slice from the budget. Returns `false`, and counts it, if none is left.
    pub(crate) fn take(&mut self) -> bool {
        let has_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.left_out += u64::from(!has_one);
        has_one
    }

    /// Returns the number of slices that were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// A frame that the last sample has.
struct OpenFrame {
    name: NameId,
    category: NameId,
    start: Time,
}

/// Turns the samples of one thread into slices: a function is one slice as long as consecutive
/// samples have it at the same place of their stacks.
pub(crate) struct SampledTrack {
    track: TrackId,
    open: Vec<OpenFrame>,
    /// End of the last sample.
    end: Time,
}

impl SampledTrack {
    /// Starts a track without samples.
    pub(crate) fn new(track: TrackId) -> Self {
        Self {
            track,
            open: Vec::new(),
            end: Time::MIN,
        }
    }

    /// Adds the next sample: names and categories of its frames, outermost first, and the range of
    /// time for which they count. A sample that begins before the last one ended begins at its end.
    pub(crate) fn add<S: EventSink>(
        &mut self,
        frames: impl Iterator<Item = (NameId, NameId)>,
        start: Time,
        end: Time,
        budget: &mut SliceBudget,
        sink: &mut S,
    ) {
        let start = start.max(self.end);
        if end <= start {
            return;
        }
        if start > self.end {
            self.close(0, budget, sink);
        }
        let mut depth = 0;
        for (name, category) in frames.take(MAX_DEPTH) {
            let is_same = self.open.get(depth).is_some_and(|open| open.name == name);
            if !is_same {
                self.close(depth, budget, sink);
                self.open.push(OpenFrame {
                    name,
                    category,
                    start,
                });
            }
            depth += 1;
        }
        self.close(depth, budget, sink);
        self.end = end;
    }

    /// Ends the slices of the last sample.
    pub(crate) fn finish<S: EventSink>(mut self, budget: &mut SliceBudget, sink: &mut S) {
        self.close(0, budget, sink);
    }

    /// Ends the open slices from this depth on, at the end of the last sample.
    fn close<S: EventSink>(&mut self, depth: usize, budget: &mut SliceBudget, sink: &mut S) {
        for frame in self.open.drain(depth.min(self.open.len())..) {
            if budget.take() {
                let slice = SliceIn {
                    start: frame.start,
                    dur: self.end.since(frame.start),
                    name: frame.name,
                    category: frame.category,
                    ..SliceIn::default()
                };
                sink.slice(self.track, slice);
            }
        }
    }
}

/// Returns until when a sample counts: until the next one of its thread, if that comes within two
/// intervals, or for one interval.
pub(crate) fn sample_end(at: Time, next: Option<Time>, interval: Dur) -> Time {
    let one = at.saturating_add(interval);
    let two = one.saturating_add(interval);
    next.filter(|next| *next <= two).unwrap_or(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Probe;

    /// Emits samples: functions outermost first, start and end.
    fn emitted(samples: &[(&str, i64, i64)], budget: &mut SliceBudget) -> Vec<(String, i64, i64)> {
        let mut probe = Probe::new();
        let track = probe.track("a");
        let mut stacks = SampledTrack::new(track);
        for (stack, start, end) in samples {
            let names: Vec<NameId> = stack.split_terminator(' ').map(|n| probe.name(n)).collect();
            let frames = names.into_iter().map(|name| (name, NameId::EMPTY));
            let (start, end) = (Time::from_ps(*start), Time::from_ps(*end));
            stacks.add(frames, start, end, budget, &mut probe);
        }
        stacks.finish(budget, &mut probe);
        let slices = probe.slices.iter();
        slices
            .map(|one| (one.name.clone(), one.start_ps, one.dur_ps))
            .collect()
    }

    #[test]
    fn a_function_is_one_slice_while_samples_follow_each_other() {
        let samples = [
            ("a b", 0, 10),
            ("a b c", 10, 20),
            ("a d c", 20, 30),
            ("", 30, 40),
            ("a", 40, 50),
            // A gap, an overlap, and a sample without length.
            ("a", 60, 70),
            ("a", 65, 80),
            ("b", 80, 80),
        ];
        let found = emitted(&samples, &mut SliceBudget::new(0));
        let expected = [
            ("c", 10, 10),
            ("b", 0, 20),
            ("a", 0, 30),
            ("c", 20, 10),
            ("d", 20, 10),
            ("a", 40, 10),
            ("a", 60, 20),
        ];
        let mut expected = expected.map(|(name, start, dur)| (name.to_owned(), start, dur));
        let mut found = found;
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_sample_counts_until_a_near_next_one() {
        let end = |next: Option<i64>| {
            let next = next.map(Time::from_ps);
            sample_end(Time::from_ps(100), next, Dur::from_ps(10)).ps()
        };
        assert_eq!(end(Some(107)), 107);
        assert_eq!(end(Some(120)), 120);
        assert_eq!(end(Some(121)), 110);
        assert_eq!(end(None), 110);
    }

    #[test]
    fn slices_beyond_the_budget_are_counted() {
        let mut budget = SliceBudget {
            left: 2,
            left_out: 0,
        };
        let found = emitted(&[("a b", 0, 1), ("c d", 1, 2)], &mut budget);
        assert_eq!((found.len(), budget.left_out()), (2, 2));
        let deep = "f ".repeat(2 * MAX_DEPTH);
        let found = emitted(&[(deep.as_str(), 0, 1)], &mut SliceBudget::new(1));
        assert_eq!(found.len(), MAX_DEPTH);
    }
}
