//! Sets of time intervals: unions, differences, and the part of a set that lies in a range.
//!
//! A set is a sorted list of intervals that neither overlap nor touch. Every operation is one pass, except that
//! building a set of unsorted intervals sorts them; input made of sorted runs costs little more than a pass.

use std::ops::Range;

use stepscope_model::{Dur, Time};
use stepscope_store::galloping_search;

/// A set of timestamps, stored as disjoint intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// Start and end of each interval, in order.
    parts: Vec<(Time, Time)>,
    /// Picoseconds in all intervals before each.
    before: Vec<i64>,
}

impl IntervalSet {
    /// Builds the union of these intervals; empty ones are ignored.
    pub fn from_intervals(mut intervals: Vec<(Time, Time)>) -> Self {
        // Stable sort: it detects runs that are already sorted.
        intervals.sort_by_key(|interval| interval.0);
        let mut parts = Vec::new();
        for interval in intervals {
            extend(&mut parts, interval);
        }
        Self::sealed(parts)
    }

    fn sealed(parts: Vec<(Time, Time)>) -> Self {
        let mut sum = 0_i64;
        let before = parts
            .iter()
            .map(|(start, end)| {
                let so_far = sum;
                sum = sum.saturating_add(end.since(*start).ps());
                so_far
            })
            .collect();
        Self { parts, before }
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the union of the two sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        let mut parts = Vec::with_capacity(self.parts.len().max(other.parts.len()));
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(left), Some(right)) if left.0 <= right.0 => a.next(),
                (_, Some(_)) => b.next(),
                (Some(_), None) => a.next(),
                (None, None) => break,
            };
            if let Some(interval) = next {
                extend(&mut parts, *interval);
            }
        }
        Self::sealed(parts)
    }

    /// Returns the difference: this set without the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut parts = Vec::new();
        // If this set is short and the other long, skip the intervals before it.
        let mut at = self.parts.first().map_or(0, |first| {
            other.parts.partition_point(|cut| cut.1 <= first.0)
        });
        for (start, end) in &self.parts {
            let mut from = *start;
            while other.parts.get(at).is_some_and(|cut| cut.1 <= from) {
                at += 1;
            }
            let mut next = at;
            while let Some(cut) = other.parts.get(next).filter(|cut| cut.0 < *end) {
                if cut.0 > from {
                    parts.push((from, cut.0));
                }
                from = from.max(cut.1);
                next += 1;
            }
            if from < *end {
                parts.push((from, *end));
            }
        }
        Self::sealed(parts)
    }

    /// Returns the part of the set that lies in the range.
    #[must_use]
    pub fn clipped(&self, range: &Range<Time>) -> Self {
        let first = self.parts.partition_point(|part| part.1 <= range.start);
        let last = self.parts.partition_point(|part| part.0 < range.end);
        let parts = self.parts.get(first..last.max(first)).unwrap_or(&[]);
        let parts = parts.iter();
        Self::sealed(
            parts
                .map(|(start, end)| ((*start).max(range.start), (*end).min(range.end)))
                .collect(),
        )
    }

    /// Returns how much of the range is in the set.
    pub fn within(&self, range: &Range<Time>) -> Dur {
        if range.start >= range.end {
            return Dur::ZERO;
        }
        Dur::from_ps(
            self.until(range.end)
                .saturating_sub(self.until(range.start)),
        )
    }

    /// Returns how much of the range is in the set. `near` (initially 0) stores where the search ended, which
    /// shortens the next one.
    pub fn within_near(&self, range: &Range<Time>, near: &mut usize) -> Dur {
        if range.start >= range.end || self.parts.is_empty() {
            return Dur::ZERO;
        }
        let mut until = |time: Time| {
            let is_before = |at: usize| self.parts[at].0 < time;
            *near = galloping_search(self.parts.len(), *near, is_before);
            self.in_first(*near, time)
        };
        let before = until(range.start);
        Dur::from_ps(until(range.end).saturating_sub(before))
    }

    /// Returns whether a timestamp is in the set.
    pub fn contains(&self, time: Time) -> bool {
        let begun = self.parts.partition_point(|part| part.0 <= time);
        begun > 0 && time < self.parts[begun - 1].1
    }

    /// Returns the picoseconds of the set before a timestamp.
    fn until(&self, time: Time) -> i64 {
        self.in_first(self.parts.partition_point(|part| part.0 < time), time)
    }

    /// Returns the picoseconds before a timestamp, given the number of intervals that begin before it.
    fn in_first(&self, begun: usize, time: Time) -> i64 {
        let Some(last) = begun.checked_sub(1) else {
            return 0;
        };
        let (start, end) = self.parts[last];
        self.before[last].saturating_add(end.min(time).since(start).ps())
    }
}

/// Appends an interval that does not start before the last one.
pub fn extend(parts: &mut Vec<(Time, Time)>, interval: (Time, Time)) {
    if interval.1 <= interval.0 {
        return;
    }
    match parts.last_mut() {
        Some(last) if last.1 >= interval.0 => last.1 = last.1.max(interval.1),
        _ => parts.push(interval),
    }
}

/// Returns the part of a slice that lies in the window; `None` if they do not overlap.
#[inline]
pub fn clip(start: Time, dur: Dur, window: &Range<Time>) -> Option<Dur> {
    let end = start.saturating_add(dur);
    let touches =
        start < window.end && (end > window.start || (end == start && start == window.start));
    touches.then(|| end.min(window.end).since(start.max(window.start)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(intervals: &[(i64, i64)]) -> IntervalSet {
        let times = intervals
            .iter()
            .map(|(start, end)| (Time::from_ps(*start), Time::from_ps(*end)));
        IntervalSet::from_intervals(times.collect())
    }

    proptest! {
        /// Compares sets with drawings that have one character per time unit.
        #[test]
        fn set_operations_equal_a_drawing(
            a in prop::collection::vec((0..40_i64, 0..9_i64), 0..12),
            b in prop::collection::vec((0..40_i64, 0..9_i64), 0..12),
            range in (0..50_i64, 0..50_i64),
        ) {
            let picture = |intervals: &[(i64, i64)]| -> Vec<bool> {
                (0..60)
                    .map(|at| intervals.iter().any(|(start, end)| (*start..*end).contains(&at)))
                    .collect()
            };
            let ends = |pairs: &[(i64, i64)]| -> Vec<(i64, i64)> {
                pairs.iter().map(|(start, length)| (*start, start + length)).collect()
            };
            let (a, b) = (ends(&a), ends(&b));
            let (in_a, in_b) = (picture(&a), picture(&b));
            let (a, b) = (set(&a), set(&b));
            let count = |is_drawn: &dyn Fn(usize) -> bool| {
                (range.0..range.1).filter(|at| is_drawn(usize::try_from(*at).unwrap())).count() as i64
            };
            let range = Time::from_ps(range.0)..Time::from_ps(range.1);
            prop_assert_eq!(a.within(&range).ps(), count(&|at| in_a[at]));
            prop_assert_eq!(a.union(&b).within(&range).ps(), count(&|at| in_a[at] || in_b[at]));
            prop_assert_eq!(a.without(&b).within(&range).ps(), count(&|at| in_a[at] && !in_b[at]));
        }
    }
}
