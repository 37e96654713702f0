//! Matches in order of their duration, and matches counted by name.
//!
//! Like [`search`](super::search), neither collects all matches: a page by duration first counts them in buckets
//! of duration, and collects only the buckets that contain the page.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, Time};
use stepscope_store::Trace;

use super::{Hit, SearchQuery, visit, work};
use crate::parallel::{self, Cancel};

/// Bits of precision: durations in one bucket differ by at most a 32nd.
const MANTISSA_BITS: u32 = 5;
/// Number of buckets, which cover all durations.
const BUCKETS: usize = 2_048;

/// A page of matches by duration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByLength {
    /// Number of all matches.
    pub total: u64,
    /// Hits of the page. Equal durations are in order of (start, id).
    pub hits: Vec<Hit>,
}

/// Matches of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameCount {
    /// The name.
    pub name: NameId,
    /// Number of slices and instants.
    pub count: u64,
    /// The first match, by (start, id).
    pub first: Hit,
}

/// Returns the matches `offset..offset + limit` in order of duration, the longest first or last.
pub fn by_length(
    trace: &Trace,
    query: &SearchQuery<'_>,
    longest_first: bool,
    offset: u64,
    limit: usize,
    cancel: &Cancel,
) -> Result<ByLength, Cancelled> {
    let whole = everything(trace);
    let chunks = work(trace, query, &whole);
    let parts = parallel::scan(
        &chunks,
        cancel,
        || vec![0_u64; BUCKETS],
        |counts: &mut Vec<u64>, chunk| {
            visit(trace, query, &whole, chunk, |_, dur, _| {
                if let Some(count) = counts.get_mut(bucket(dur, longest_first)) {
                    *count += 1;
                }
            });
        },
    )?;
    let mut counts = vec![0_u64; BUCKETS];
    for part in parts {
        for (sum, count) in counts.iter_mut().zip(part) {
            *sum += count;
        }
    }
    let total: u64 = counts.iter().sum();
    let requested = offset.min(total)..total.min(offset.saturating_add(limit as u64));
    if requested.is_empty() {
        return Ok(ByLength {
            total,
            hits: Vec::new(),
        });
    }
    let (buckets, before) = find_buckets(&counts, &requested);
    let parts = parallel::scan(&chunks, cancel, Vec::new, |found: &mut Vec<_>, chunk| {
        visit(trace, query, &whole, chunk, |hit, dur, _| {
            if buckets.contains(&bucket(dur, longest_first)) {
                found.push((dur, hit));
            }
        });
    })?;
    let mut found = parts.concat();
    cancel.check()?;
    if longest_first {
        found.sort_unstable_by_key(|&(dur, hit)| (Reverse(dur), hit));
    } else {
        found.sort_unstable();
    }
    let index = |at: u64| {
        usize::try_from(at - before)
            .unwrap_or(usize::MAX)
            .min(found.len())
    };
    let hits = found[index(requested.start)..index(requested.end)]
        .iter()
        .map(|&(_, hit)| hit)
        .collect();
    Ok(ByLength { total, hits })
}

/// Returns the buckets that contain these matches, and the number of matches before them.
fn find_buckets(counts: &[u64], requested: &Range<u64>) -> (Range<usize>, u64) {
    let mut seen = 0;
    let mut first = None;
    for (index, &count) in counts.iter().enumerate() {
        if first.is_none() && seen + count > requested.start {
            first = Some((index, seen));
        }
        seen += count;
        if seen >= requested.end {
            let (low, before) = first.unwrap_or((index, 0));
            return (low..index + 1, before);
        }
    }
    (0..counts.len(), 0)
}

/// Returns the bucket of a duration: ascending, or descending if the longest come first.
fn bucket(dur: Dur, longest_first: bool) -> usize {
    let ps = u64::try_from(dur.ps()).unwrap_or(0);
    let shift = (u64::BITS - ps.leading_zeros()).saturating_sub(MANTISSA_BITS + 1);
    let rising = (u64::from(shift) << MANTISSA_BITS) + (ps >> shift);
    let rising = usize::try_from(rising).map_or(BUCKETS - 1, |rising| rising.min(BUCKETS - 1));
    if longest_first {
        BUCKETS - 1 - rising
    } else {
        rising
    }
}

/// Lists the names among the matches, most frequent first, then by name.
pub fn by_name(
    trace: &Trace,
    query: &SearchQuery<'_>,
    cancel: &Cancel,
) -> Result<Vec<NameCount>, Cancelled> {
    let whole = everything(trace);
    let parts = parallel::scan(
        &work(trace, query, &whole),
        cancel,
        FxHashMap::default,
        |counts: &mut FxHashMap<NameId, (u64, Hit)>, chunk| {
            visit(trace, query, &whole, chunk, |hit, _, name| {
                let (count, first) = counts.entry(name).or_insert((0, hit));
                *count += 1;
                *first = (*first).min(hit);
            });
        },
    )?;
    let mut merged: FxHashMap<NameId, (u64, Hit)> = FxHashMap::default();
    for (name, (count, hit)) in parts.into_iter().flatten() {
        let (sum, first) = merged.entry(name).or_insert((0, hit));
        *sum += count;
        *first = (*first).min(hit);
    }
    let mut found: Vec<NameCount> = merged
        .into_iter()
        .map(|(name, (count, first))| NameCount { name, count, first })
        .collect();
    found.sort_unstable_by(|a, b| {
        let by_count = b.count.cmp(&a.count);
        by_count.then_with(|| (trace.name(a.name), a.name).cmp(&(trace.name(b.name), b.name)))
    });
    Ok(found)
}

/// Returns the range of the whole trace, including its last timestamp.
fn everything(trace: &Trace) -> Range<Time> {
    let span = trace.span();
    span.start..span.end.saturating_add(Dur::from_ps(1))
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgRef, EventSink, SliceFlags, SliceIn, TrackId};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;
    use crate::names::NameSet;

    #[test]
    fn buckets_rise_with_the_length() {
        let lengths = (0..200).chain((8..63).flat_map(|bits| {
            let power = 1_i64 << bits;
            [power - 1, power, power + 1, power + power / 3]
        }));
        let mut last = 0;
        for ps in lengths.chain([i64::MAX]) {
            let now = bucket(Dur::from_ps(ps), false);
            assert!(now >= last && now < BUCKETS, "{ps}: {now} after {last}");
            assert_eq!(now + bucket(Dur::from_ps(ps), true), BUCKETS - 1);
            last = now;
        }
    }

    /// Builds 500 slices of durations from 1 to 77 nanoseconds.
    fn trace() -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        for thread in ["a", "b"] {
            let track = sink.track(thread);
            for index in 0..250_i64 {
                let name = sink.name(["even", "odd"][(index % 2) as usize]);
                let category = sink.name("");
                sink.slice(
                    track,
                    SliceIn {
                        start: Time::from_ps(index * 100_000),
                        dur: Dur::from_ps((index * 31 % 77 + 1) * 1_000),
                        name,
                        category,
                        args: ArgRef::NONE,
                        step: None,
                        flags: SliceFlags::default(),
                        flows: &[],
                    },
                );
            }
        }
        builder.add(sink);
        builder.finish()
    }

    fn query<'a>(names: &'a NameSet, tracks: &'a [TrackId]) -> SearchQuery<'a> {
        SearchQuery {
            names,
            tracks,
            window: None,
            min: Dur::ZERO,
            below: None,
            bins: 0,
            bin_range: Time::ZERO..Time::ZERO,
        }
    }

    #[test]
    fn pages_by_length_join_to_all_events_in_order() {
        let trace = trace();
        let names = NameSet::all(&trace);
        let tracks: Vec<TrackId> = trace.tracks().iter().map(|track| track.id).collect();
        let query = query(&names, &tracks);
        for longest_first in [true, false] {
            let mut all: Vec<Hit> = Vec::new();
            loop {
                let offset = all.len() as u64;
                let page = by_length(
                    &trace,
                    &query,
                    longest_first,
                    offset,
                    37,
                    &Cancel::default(),
                )
                .unwrap();
                assert_eq!(page.total, 500);
                if page.hits.is_empty() {
                    break;
                }
                all.extend(page.hits);
            }
            let lengths: Vec<i64> = all
                .iter()
                .map(|hit| trace.event(hit.id).unwrap().dur.ps())
                .collect();
            assert_eq!(lengths.len(), 500);
            let in_order = |pair: &[i64]| {
                if longest_first {
                    pair[0] >= pair[1]
                } else {
                    pair[0] <= pair[1]
                }
            };
            assert!(lengths.windows(2).all(in_order));
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 500, "each event once");
        }
    }

    #[test]
    fn names_are_counted_within_the_window() {
        let trace = trace();
        let names = NameSet::all(&trace);
        let tracks: Vec<TrackId> = trace.tracks().iter().map(|track| track.id).collect();
        let mut query = query(&names, &tracks);
        query.window = Some(Time::ZERO..Time::from_ps(250_000));
        let found = by_name(&trace, &query, &Cancel::default()).unwrap();
        let counts: Vec<(&str, u64)> = found
            .iter()
            .map(|one| (trace.name(one.name), one.count))
            .collect();
        assert_eq!(counts, [("even", 4), ("odd", 2)]);
        assert_eq!(found[1].first.start, Time::from_ps(100_000));
    }
}
