//! The critical path as ranges on tracks, without the graph behind it: for drawing and for export.
//!
//! ```text
//! range  = a range of the path, on the track of its segment; the ranges partition the window
//! merged = consecutive ranges of a track that are shorter than a bin, at most one bin long each
//! hop    = a change of the track between two ranges; the lag after it lies between its ends
//! ```

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::critical_path::graph::EdgeConfidence;
use crate::critical_path::path::PathKind;
use crate::critical_path::{PathScope, critical_path};
use crate::parallel::Cancel;

/// The critical path of a window as ranges on tracks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRanges {
    /// Start and end on the clock of the path: that of the first file.
    pub window: Range<Time>,
    /// The path in order of time; it covers the window.
    pub ranges: Vec<PathRange>,
    /// The path's clock minus that of the track's file; tracks that are not here have the path's clock.
    shifts: FxHashMap<TrackId, Dur>,
    /// Largest of them.
    max_shift: Dur,
}

/// One range of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRange {
    /// The track of the segment whose time it is, or that the lag belongs to.
    pub track: TrackId,
    /// Index of its thread or device queue in [`Segments::queues`](crate::critical_path::segments::Segments::queues):
    /// a thread may have several tracks.
    pub queue: u32,
    /// What it is charged to.
    pub kind: PathKind,
    /// Confidence of the edge.
    pub edge: EdgeConfidence,
    /// The slice; `None` where nothing is recorded.
    pub event: Option<EventId>,
    /// Start on the path's clock.
    pub start: Time,
    /// End on the path's clock.
    pub end: Time,
}

impl PathRanges {
    /// Estimates the memory of the ranges, bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.ranges.len() * size_of::<PathRange>()
    }
}

impl PathRange {
    const fn length(&self) -> i64 {
        self.end.ps().saturating_sub(self.start.ps())
    }
}

/// One range, or several short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedRange {
    /// Track, kind, edge and slice of the longest one.
    pub longest: PathRange,
    /// Start of the first one.
    pub start: Time,
    /// End of the last one.
    pub end: Time,
    /// Sum of their lengths.
    pub total: Dur,
    /// Number of ranges.
    pub count: u64,
}

impl MergedRange {
    fn new(range: &PathRange, time: Range<Time>) -> Self {
        Self {
            longest: *range,
            start: time.start,
            end: time.end,
            total: Dur::from_ps(range.length()),
            count: 1,
        }
    }

    fn add(&mut self, range: &PathRange, end: Time) {
        if range.length() > self.longest.length() {
            self.longest = *range;
        }
        self.end = end;
        self.total = Dur::from_ps(self.total.ps().saturating_add(range.length()));
        self.count += 1;
    }
}

/// A change of the thread or device queue on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathHop {
    /// The track that the path leaves, and when, on the clock of its file.
    pub from: (TrackId, Time),
    /// The track that it enters, and when: at the end of the lag, if there is one.
    pub to: (TrackId, Time),
    /// The slice that it leaves, and the slice that it enters.
    pub events: (Option<EventId>, Option<EventId>),
    /// The lag between both; `None` without one.
    pub lag: Option<PathKind>,
    /// Confidence of the edge.
    pub edge: EdgeConfidence,
}

/// Computes the critical path of the steps in the scope as ranges. `None` if the run has neither threads nor device
/// work.
///
/// # Errors
///
/// [`Cancelled`].
pub fn path_ranges(
    trace: &Trace,
    scope: &PathScope,
    cancel: &Cancel,
) -> Result<Option<PathRanges>, Cancelled> {
    let Some(path) = critical_path(trace, scope, cancel)? else {
        return Ok(None);
    };
    let graph = path.graph();
    let mut ranges = Vec::new();
    path.visit_rows(|row| {
        let segment = row.segment as usize;
        let queue = graph.queue[segment];
        let first_row = || path.segments.queues[queue as usize].track();
        let slice = path.segments.slice_of(segment);
        ranges.push(PathRange {
            track: slice.map_or_else(first_row, |(track, _)| track),
            queue,
            kind: row.kind,
            edge: row.edge,
            event: path.event(segment),
            start: Time::from_ps(row.begin),
            end: Time::from_ps(row.end),
        });
    });
    let queues = path.segments.queues.iter();
    let shifts = queues.filter(|queue| queue.shift != 0).flat_map(|queue| {
        let rows = queue.rows.iter();
        rows.map(|row| (row.track, Dur::from_ps(queue.shift)))
    });
    let window = Time::from_ps(path.window.start)..Time::from_ps(path.window.end);
    Ok(Some(PathRanges::new(window, ranges, shifts.collect())))
}

impl PathRanges {
    fn new(window: Range<Time>, ranges: Vec<PathRange>, shifts: FxHashMap<TrackId, Dur>) -> Self {
        let largest = shifts.values().map(|shift| shift.ps().saturating_abs());
        Self {
            window,
            ranges,
            max_shift: Dur::from_ps(largest.max().unwrap_or(0)),
            shifts,
        }
    }

    /// Returns a range on the clock of its track's file.
    fn on_file(&self, range: &PathRange) -> Range<Time> {
        let shift = self.shifts.get(&range.track).copied().unwrap_or(Dur::ZERO);
        range.start.saturating_sub(shift)..range.end.saturating_sub(shift)
    }

    /// Returns the positions of the ranges that may lie in a window of any file's clock.
    fn near(&self, window: &Range<Time>) -> Range<usize> {
        let first = self
            .ranges
            .partition_point(|range| range.end.saturating_add(self.max_shift) <= window.start);
        let end = self
            .ranges
            .partition_point(|range| range.start.saturating_sub(self.max_shift) < window.end);
        first..end.max(first)
    }

    /// Merges the ranges of each track in a window of the files' clocks, by start. At most `bins` merged ranges for
    /// each track, edge, and time of segments or lags, and twice as many that are longer than a bin.
    pub fn by_track(&self, window: &Range<Time>, bins: u32) -> Vec<MergedRange> {
        let bin = bin_length(window, bins);
        let mut open: FxHashMap<(TrackId, EdgeConfidence, bool), MergedRange> =
            FxHashMap::default();
        let mut found = Vec::new();
        for range in &self.ranges[self.near(window)] {
            let time = self.on_file(range);
            if time.end <= window.start || time.start >= window.end {
                continue;
            }
            let key = (range.track, range.edge, range.kind.is_segment());
            if range.length() >= bin {
                found.extend(open.remove(&key));
                found.push(MergedRange::new(range, time));
                continue;
            }
            match open.get_mut(&key) {
                Some(merged) if time.start.since(merged.start).ps() < bin => {
                    merged.add(range, time.end);
                }
                _ => found.extend(open.insert(key, MergedRange::new(range, time))),
            }
        }
        found.extend(open.into_values());
        found.sort_by_key(|merged| (merged.start, merged.longest.track, merged.end));
        found
    }

    /// Merges consecutive ranges in a window of the path's clock; the result covers the path in the window.
    pub fn by_time(&self, window: &Range<Time>, bins: u32) -> Vec<MergedRange> {
        let bin = bin_length(window, bins);
        let mut found: Vec<MergedRange> = Vec::new();
        let mut is_open = false;
        for range in &self.ranges {
            if range.end <= window.start || range.start >= window.end {
                continue;
            }
            let is_short = range.length() < bin;
            match found.last_mut() {
                Some(merged)
                    if is_open && is_short && range.start.since(merged.start).ps() < bin =>
                {
                    merged.add(range, range.end);
                }
                _ => found.push(MergedRange::new(range, range.start..range.end)),
            }
            is_open = is_short;
        }
        found
    }

    /// Lists the changes of the thread or queue in a window of the files' clocks; of those between the same tracks in
    /// one bin the first.
    pub fn hops(&self, window: &Range<Time>, bins: u32) -> Vec<PathHop> {
        let bin = bin_length(window, bins);
        let near = self.near(window);
        let mut last: FxHashMap<(TrackId, TrackId), Time> = FxHashMap::default();
        let mut found = Vec::new();
        for at in near.start.saturating_sub(1)..(near.end + 1).min(self.ranges.len()) {
            let Some(hop) = self.hop_to(at) else {
                continue;
            };
            let (start, end) = (hop.from.1, hop.to.1);
            if end < window.start || start >= window.end {
                continue;
            }
            let key = (hop.from.0, hop.to.0);
            let is_new = last
                .get(&key)
                .is_none_or(|before| start.since(*before).ps() >= bin);
            if is_new {
                last.insert(key, start);
                found.push(hop);
            }
        }
        found
    }

    /// Returns the change of the thread or queue before a range, if there is one.
    pub fn hop_to(&self, at: usize) -> Option<PathHop> {
        let to = self.ranges.get(at)?;
        let from = self.ranges.get(at.checked_sub(1)?)?;
        if from.queue == to.queue {
            return None;
        }
        let is_lag = !to.kind.is_segment();
        let time = self.on_file(to);
        Some(PathHop {
            from: (from.track, self.on_file(from).end),
            to: (to.track, if is_lag { time.end } else { time.start }),
            events: (from.event, to.event),
            lag: is_lag.then_some(to.kind),
            edge: to.edge,
        })
    }
}

/// Returns the length of a bin, picoseconds; at least 1.
fn bin_length(window: &Range<Time>, bins: u32) -> i64 {
    (window.end.since(window.start).ps() / i64::from(bins.max(1))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(
        (track, event): (u32, u32),
        kind: PathKind,
        edge: EdgeConfidence,
        (start, end): (i64, i64),
    ) -> PathRange {
        PathRange {
            track: TrackId(track),
            queue: track,
            kind,
            edge,
            event: Some(EventId(event)),
            start: Time::from_ps(start),
            end: Time::from_ps(end),
        }
    }

    fn time(start: i64, end: i64) -> Range<Time> {
        Time::from_ps(start)..Time::from_ps(end)
    }

    /// A thread that launches a kernel after many short calls, and waits for it.
    fn example() -> PathRanges {
        let mut ranges: Vec<PathRange> = (0..10)
            .map(|at| {
                let event = u32::try_from(at).unwrap();
                range(
                    (0, event),
                    PathKind::Host,
                    EdgeConfidence::Ordered,
                    (at * 10, at * 10 + 10),
                )
            })
            .collect();
        ranges.push(range(
            (1, 20),
            PathKind::LaunchLatency,
            EdgeConfidence::Recorded,
            (100, 150),
        ));
        ranges.push(range(
            (1, 20),
            PathKind::Device,
            EdgeConfidence::Recorded,
            (150, 900),
        ));
        ranges.push(range(
            (0, 30),
            PathKind::SyncReturn,
            EdgeConfidence::Inferred,
            (900, 940),
        ));
        ranges.push(range(
            (0, 31),
            PathKind::Host,
            EdgeConfidence::Ordered,
            (940, 1000),
        ));
        PathRanges::new(time(0, 1000), ranges, FxHashMap::default())
    }

    fn shape(found: &[MergedRange]) -> Vec<(u32, i64, i64, u64)> {
        let shape = |merged: &MergedRange| {
            (
                merged.longest.track.0,
                merged.start.ps(),
                merged.end.ps(),
                merged.count,
            )
        };
        found.iter().map(shape).collect()
    }

    #[test]
    fn short_ranges_of_a_track_are_merged() {
        let path = example();
        let found = path.by_track(&time(0, 1000), 20);
        let expected = [
            (0, 0, 50, 5),
            (0, 50, 100, 5),
            (1, 100, 150, 1),
            (1, 150, 900, 1),
            (0, 900, 940, 1),
            (0, 940, 1000, 1),
        ];
        assert_eq!(shape(&found), expected);
        let sum: i64 = found.iter().map(|merged| merged.total.ps()).sum();
        assert_eq!(sum, 1000);
        let one_by_one = path.by_track(&time(0, 1000), 1000);
        assert_eq!(one_by_one.len(), path.ranges.len());
        let part = path.by_track(&time(145, 160), 10);
        assert_eq!(shape(&part), [(1, 100, 150, 1), (1, 150, 900, 1)]);
    }

    #[test]
    fn merged_ranges_cover_the_path() {
        let path = example();
        for bins in [1, 3, 10, 1000] {
            let found = path.by_time(&time(0, 1000), bins);
            let mut end = 0;
            for merged in &found {
                assert_eq!(merged.start.ps(), end, "{bins}");
                end = merged.end.ps();
            }
            assert_eq!(end, 1000);
            assert!(found.len() <= 2 * bins as usize + 1, "{bins}");
        }
    }

    #[test]
    fn hops_begin_where_the_path_leaves_a_track() {
        let path = example();
        let hops = path.hops(&time(0, 1000), 100);
        let found: Vec<_> = hops
            .iter()
            .map(|hop| (hop.from.1.ps(), hop.to.1.ps(), hop.lag, hop.edge))
            .collect();
        let expected = [
            (
                100,
                150,
                Some(PathKind::LaunchLatency),
                EdgeConfidence::Recorded,
            ),
            (
                900,
                940,
                Some(PathKind::SyncReturn),
                EdgeConfidence::Inferred,
            ),
        ];
        assert_eq!(found, expected);
        assert_eq!(path.hops(&time(200, 800), 100), []);
    }

    #[test]
    fn tracks_of_one_thread_have_no_hops() {
        let mut path = example();
        path.ranges.iter_mut().for_each(|range| range.queue = 0);
        assert_eq!(path.hops(&time(0, 1000), 100), []);
    }

    #[test]
    fn tracks_of_other_clocks_are_found_at_their_own_times() {
        let shifts = [(TrackId(1), Dur::from_ps(5_000))];
        let path = PathRanges::new(
            time(0, 1000),
            example().ranges,
            shifts.into_iter().collect(),
        );
        let found = path.by_track(&time(-5_000, -4_000), 10);
        assert_eq!(shape(&found), [(1, -4900, -4850, 1), (1, -4850, -4100, 1)]);
    }
}
