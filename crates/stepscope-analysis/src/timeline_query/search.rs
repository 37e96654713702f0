//! Search for slices and instants by name, over the whole trace, one page at a time.
//!
//! Hits are ordered by (start, id). Any page of millions of hits must be available immediately, so hits are never
//! all collected: one pass counts them (by track, by bin, and in buckets of time), the buckets that can contain
//! the page are counted again in finer ones until few hits remain, and only those are collected and sorted.
//!
//! Cost: one pass over the names of the tracks, on all cores, and a part of one for the page.

use std::ops::Range;

use stepscope_model::{Cancelled, Dur, NameId, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::intervals::clip;
use crate::names::NameSet;
use crate::parallel::{self, Cancel, TrackChunk};

pub mod listing;

/// Number of time buckets in which hits are counted to find a page.
const BUCKETS: usize = 1 << 10;
/// Maximum number of hits that are collected and sorted at once.
const COLLECT: u64 = 1 << 15;

/// Search condition and scope.
#[derive(Clone, Debug)]
pub struct SearchQuery<'a> {
    /// The names.
    pub names: &'a NameSet,
    /// The tracks, each once.
    pub tracks: &'a [TrackId],
    /// Only events that overlap this range; `None` for all.
    pub window: Option<Range<Time>>,
    /// Minimum duration, inclusive.
    pub min: Dur,
    /// Maximum duration, exclusive (`None`: unlimited).
    pub below: Option<Dur>,
    /// Number of equal bins of `bin_range` in which matches are counted; matches outside count in the first or
    /// last.
    pub bins: u32,
    /// The range that is split into bins.
    pub bin_range: Range<Time>,
}

/// Start of a page of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// At this hit, counted from 0.
    Offset(u64),
    /// At the first hit after this one.
    After(Time, EventId),
    /// At the first hit that starts at this time or later; at hit 0 if there is none.
    Near(Time),
}

/// One match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// Start of the event.
    pub start: Time,
    /// The event.
    pub id: EventId,
}

/// Result of [`search`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of all matches.
    pub total: u64,
    /// Matches by track, most first; only tracks that have any.
    pub by_track: Vec<(TrackId, u64)>,
    /// Number of matches that start in each bin.
    pub bins: Vec<u64>,
    /// Index of the first hit of this page.
    pub first: u64,
    /// The page, in order.
    pub hits: Vec<Hit>,
}

/// Counts all matches and returns one page of them.
pub fn search(
    trace: &Trace,
    query: &SearchQuery<'_>,
    page: Page,
    limit: usize,
    cancel: &Cancel,
) -> Result<Found, Cancelled> {
    let mut found = Found {
        bins: vec![0; query.bins as usize],
        ..Found::default()
    };
    if query.names.is_empty() {
        return Ok(found);
    }
    let span = trace.span();
    let whole = span.start..span.end.saturating_add(Dur::from_ps(1));
    let counted = count(trace, query, &whole, Some(page), cancel)?;
    found.total = counted.by_track.iter().map(|&(_, count)| count).sum();
    found.by_track = counted.by_track;
    found.bins = counted.bins;
    found.first = match page {
        Page::Offset(offset) => offset.min(found.total),
        Page::Near(_) if counted.before == found.total => 0,
        Page::After(..) | Page::Near(_) => counted.before,
    };
    let requested = found.first..found.total.min(found.first.saturating_add(limit as u64));
    found.hits = collect(trace, query, &whole, &counted.buckets, requested, cancel)?;
    Ok(found)
}

/// Counts of one worker thread, and their sum.
struct Counts {
    by_track: Vec<(TrackId, u64)>,
    bins: Vec<u64>,
    buckets: Vec<u64>,
    /// Number of hits before the page's key.
    before: u64,
}

/// Counts the matches that start in `range`.
fn count(
    trace: &Trace,
    query: &SearchQuery<'_>,
    range: &Range<Time>,
    page: Option<Page>,
    cancel: &Cancel,
) -> Result<Counts, Cancelled> {
    let bins = if page.is_some() {
        query.bins as usize
    } else {
        0
    };
    let parts = parallel::scan(
        &work(trace, query, range),
        cancel,
        || Counts {
            by_track: Vec::new(),
            bins: vec![0; bins],
            buckets: vec![0; BUCKETS],
            before: 0,
        },
        |counts, chunk| {
            let mut of_piece = 0;
            // Events of a chunk come in time order: the bin is looked up once, not once per event.
            let mut bucket = Walk::new(range, BUCKETS);
            let mut bin = Walk::new(&query.bin_range, bins);
            visit(trace, query, range, chunk, |hit, _, _| {
                of_piece += 1;
                if let Some(bucket) = counts.buckets.get_mut(bucket.part(hit.start)) {
                    *bucket += 1;
                }
                if let Some(bin) = counts.bins.get_mut(bin.part(hit.start)) {
                    *bin += 1;
                }
                let in_front = match page {
                    Some(Page::After(start, id)) => hit <= Hit { start, id },
                    Some(Page::Near(start)) => hit.start < start,
                    Some(Page::Offset(_)) | None => false,
                };
                counts.before += u64::from(in_front);
            });
            if of_piece > 0 {
                counts.by_track.push((chunk.track, of_piece));
            }
        },
    )?;
    let mut sum = Counts {
        by_track: Vec::new(),
        bins: vec![0; bins],
        buckets: vec![0; BUCKETS],
        before: 0,
    };
    for part in parts {
        sum.by_track.extend(part.by_track);
        sum.before += part.before;
        for (into, from) in sum.bins.iter_mut().zip(part.bins) {
            *into += from;
        }
        for (into, from) in sum.buckets.iter_mut().zip(part.buckets) {
            *into += from;
        }
    }
    sum.by_track.sort_unstable_by_key(|&(track, _)| track);
    sum.by_track.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 += later.1;
        }
        same
    });
    sum.by_track
        .sort_unstable_by_key(|&(track, count)| (std::cmp::Reverse(count), track));
    Ok(sum)
}

/// Collects the hits with the indexes `requested` among those that start in `range`, whose bucket counts are known.
fn collect(
    trace: &Trace,
    query: &SearchQuery<'_>,
    range: &Range<Time>,
    buckets: &[u64],
    requested: Range<u64>,
    cancel: &Cancel,
) -> Result<Vec<Hit>, Cancelled> {
    if requested.is_empty() {
        return Ok(Vec::new());
    }
    // The buckets from the one with the first requested hit to the one with the last.
    let mut before = 0;
    let mut seen = 0;
    let (mut low, mut high) = (None, 0);
    for (index, &count) in buckets.iter().enumerate() {
        if low.is_none() && seen + count > requested.start {
            low = Some(index);
            before = seen;
        }
        seen += count;
        high = index + 1;
        if seen >= requested.end {
            break;
        }
    }
    let low = low.unwrap_or(0);
    let inner = part_start(low, range, BUCKETS)..part_start(high, range, BUCKETS);
    let requested = requested.start - before..requested.end - before;
    if seen - before > COLLECT && inner.end.since(inner.start).ps() > 1 {
        let narrower = inner.end.since(inner.start) < range.end.since(range.start);
        if narrower {
            let counted = count(trace, query, &inner, None, cancel)?;
            return collect(trace, query, &inner, &counted.buckets, requested, cancel);
        }
    }
    let parts = parallel::scan(
        &work(trace, query, &inner),
        cancel,
        Vec::new,
        |hits: &mut Vec<Hit>, chunk| {
            visit(trace, query, &inner, chunk, |hit, _, _| hits.push(hit));
        },
    )?;
    let mut hits = parts.concat();
    cancel.check()?;
    hits.sort_unstable();
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(hits.len());
    let page = index(requested.start)..index(requested.end);
    Ok(hits[page].to_vec())
}

/// Returns the index of the bin of time `at`, for `parts` equal bins of the range; the first or last when
/// outside.
fn part(at: Time, range: &Range<Time>, parts: usize) -> usize {
    let length = i128::from(range.end.ps()) - i128::from(range.start.ps());
    let offset = i128::from(at.ps()) - i128::from(range.start.ps());
    if length <= 0 || offset <= 0 {
        return 0;
    }
    usize::try_from(offset * parts as i128 / length)
        .unwrap_or(usize::MAX)
        .min(parts.saturating_sub(1))
}

/// Returns the first time that [`part`] puts into this bin; the range's end after the last one.
fn part_start(part: usize, range: &Range<Time>, parts: usize) -> Time {
    let length = i128::from(range.end.ps()) - i128::from(range.start.ps());
    let parts = parts.max(1) as i128;
    let offset = (part as i128 * length + parts - 1).div_euclid(parts);
    let at = i128::from(range.start.ps()) + offset;
    Time::from_ps(i64::try_from(at).unwrap_or(i64::MAX))
}

/// Cursor for [`part`] of mostly ascending times.
struct Walk<'a> {
    range: &'a Range<Time>,
    parts: usize,
    part: usize,
    /// Times that lie in the bin `part`.
    of_part: Range<Time>,
}

impl<'a> Walk<'a> {
    fn new(range: &'a Range<Time>, parts: usize) -> Self {
        Self {
            range,
            parts,
            part: 0,
            of_part: Time::ZERO..Time::ZERO,
        }
    }

    #[inline]
    fn part(&mut self, at: Time) -> usize {
        if !self.of_part.contains(&at) {
            self.part = part(at, self.range, self.parts);
            let first = match self.part {
                0 => Time::MIN,
                part => part_start(part, self.range, self.parts),
            };
            let end = if self.part + 1 >= self.parts {
                Time::MAX
            } else {
                part_start(self.part + 1, self.range, self.parts)
            };
            self.of_part = first..end;
        }
        self.part
    }
}

/// Lists the chunks whose events can start in `range`: slices of a track first, then its instants.
pub(crate) fn work(trace: &Trace, query: &SearchQuery<'_>, range: &Range<Time>) -> Vec<TrackChunk> {
    parallel::track_chunks(query.tracks.iter().flat_map(|&track| {
        let start = trace.slices(track).start;
        let at = trace.instants(track).at;
        let between = |times: &[Time]| {
            times.partition_point(|&at| at < range.start)
                ..times.partition_point(|&at| at < range.end)
        };
        let (mut slices, instants) = (between(start), between(at));
        if let Some(window) = &query.window {
            // Skip slices that cannot overlap the window.
            let touching = trace.candidates(track, window.clone());
            slices = slices.start.max(touching.start)..slices.end.min(touching.end);
            slices.end = slices.end.max(slices.start);
        }
        [
            (track, slices),
            (
                track,
                start.len() + instants.start..start.len() + instants.end,
            ),
        ]
    }))
}

/// Calls `hit` for each match of the chunk that starts in `range`, with its duration and its name.
#[inline]
pub(crate) fn visit(
    trace: &Trace,
    query: &SearchQuery<'_>,
    range: &Range<Time>,
    chunk: &TrackChunk,
    mut hit: impl FnMut(Hit, Dur, NameId),
) {
    let slices = trace.slices(chunk.track);
    let count = slices.start.len();
    let mut test = |start: Time, dur: Dur, name: NameId, id: EventId| {
        if query.names.contains(name)
            && dur >= query.min
            && query.below.is_none_or(|below| dur < below)
            && range.contains(&start)
            && query
                .window
                .as_ref()
                .is_none_or(|window| clip(start, dur, window).is_some())
        {
            hit(Hit { start, id }, dur, name);
        }
    };
    let id = |first: EventId, index: usize| {
        EventId(
            first
                .0
                .wrapping_add(u32::try_from(index).unwrap_or(u32::MAX)),
        )
    };
    if chunk.indexes.start < count {
        for index in chunk.indexes.clone() {
            test(
                slices.start[index],
                slices.dur[index],
                slices.name[index],
                id(slices.first_id, index),
            );
        }
    } else {
        let instants = trace.instants(chunk.track);
        for index in chunk.indexes.clone() {
            let index = index - count;
            test(
                instants.at[index],
                Dur::ZERO,
                instants.name[index],
                id(instants.first_id, index),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_start_is_the_first_time_of_the_part() {
        for (start, end) in [(0, 10), (-5, 1_000_003), (0, 1 << 60), (i64::MIN, i64::MAX)] {
            let range = Time::from_ps(start)..Time::from_ps(end);
            for at in [1, 2, 511, BUCKETS - 1] {
                let first = part_start(at, &range, BUCKETS);
                assert!(part(first, &range, BUCKETS) >= at, "{start} {end} {at}");
                let last = Time::from_ps(first.ps() - 1);
                assert!(part(last, &range, BUCKETS) < at, "{start} {end} {at}");
            }
            assert_eq!(part_start(BUCKETS, &range, BUCKETS), range.end);
        }
    }

    #[test]
    fn cursor_finds_the_same_parts() {
        let range = Time::from_ps(-7)..Time::from_ps(95);
        for parts in [1, 3, 10, 1_000] {
            let mut walk = Walk::new(&range, parts);
            for ps in (-20..120).chain([5, -3, i64::MAX, i64::MIN, 40]) {
                let at = Time::from_ps(ps);
                assert_eq!(walk.part(at), part(at, &range, parts), "{ps} of {parts}");
            }
        }
    }
}
