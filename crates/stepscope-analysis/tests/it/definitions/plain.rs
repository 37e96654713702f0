//! Sets of intervals by brute force: sorts every start and end, and counts the open intervals between two.

use std::ops::Range;

use stepscope_model::Time;
use stepscope_store::Slices;

/// Start and end, picoseconds.
pub(super) type Span = (i64, i64);

/// Splits a range wherever one of the sets starts or ends: the segments, with a bit for each set that is open.
pub(super) fn segments(range: &Range<i64>, sets: &[&[Span]]) -> Vec<(i64, i64, u32)> {
    let mut ends: Vec<(i64, usize, i32)> = Vec::new();
    for (set, spans) in sets.iter().enumerate() {
        for (start, end) in *spans {
            let (start, end) = ((*start).max(range.start), (*end).min(range.end));
            if start < end {
                ends.push((start, set, 1));
                ends.push((end, set, -1));
            }
        }
    }
    ends.sort_unstable();
    let mut open = vec![0; sets.len()];
    let mut found = Vec::new();
    let mut now = range.start;
    let last = (range.end, 0, 0);
    for (at, set, change) in ends.into_iter().chain(std::iter::once(last)) {
        if at > now {
            let bits = open.iter().enumerate();
            let bits = bits.filter(|(_, count)| **count > 0);
            found.push((now, at, bits.fold(0, |bits, (set, _)| bits | 1 << set)));
            now = at;
        }
        if let Some(count) = open.get_mut(set) {
            *count += change;
        }
    }
    found
}

/// Returns the time in a range in which `such` holds for the open sets.
pub(super) fn time(analysis_windows: &[(i64, i64, u32)], such: impl Fn(u32) -> bool) -> i64 {
    let requested = analysis_windows.iter().filter(|(_, _, bits)| such(*bits));
    requested.map(|(start, end, _)| end - start).sum()
}

/// Returns the intervals in a range in which `such` holds for the open sets.
pub(super) fn when(range: &Range<i64>, sets: &[&[Span]], such: impl Fn(u32) -> bool) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    for (start, end, bits) in segments(range, sets) {
        if !such(bits) {
            continue;
        }
        match found.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => found.push((start, end)),
        }
    }
    found
}

/// Returns the length of a union.
pub(super) fn union(spans: &[Span]) -> i64 {
    time(&segments(&all(spans), &[spans]), |bits| bits != 0)
}

/// Returns the range from the first start to the last end.
pub(super) fn all(spans: &[Span]) -> Range<i64> {
    let start = spans.iter().map(|span| span.0).min().unwrap_or(0);
    start..spans.iter().map(|span| span.1).max().unwrap_or(start)
}

pub(super) fn span(slices: &Slices<'_>, index: usize) -> Span {
    (slices.start[index].ps(), slices.end(index).ps())
}

pub(super) fn range(range: &Range<Time>) -> Range<i64> {
    range.start.ps()..range.end.ps()
}

/// Returns whether spans in the order of their starts, the longest first, are disjoint or nested.
pub(super) fn nests(spans: impl Iterator<Item = Span>) -> bool {
    let mut open: Vec<i64> = Vec::new();
    for (start, end) in spans {
        while open.last().is_some_and(|last| *last <= start) {
            open.pop();
        }
        if open.last().is_some_and(|last| end > *last) {
            return false;
        }
        open.push(end);
    }
    true
}

/// Computes a percentile as `NumPy`'s `percentile` does; values must be sorted.
pub(super) fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = p * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

pub(super) fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
