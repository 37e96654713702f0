//! Levels of detail: any window of a track at any zoom, with no event omitted.
//!
//! See `docs/reference/levels-of-detail.md` for the rules as users of the HTTP interface see them.
//!
//! A bin is a time range about as wide as two pixels that begins at a multiple of its width, so
//! that panning does not move bins relative to events. Events shorter than a bin are merged per row
//! by the bin in which they begin; a single one is returned exactly, several become one item.
//! Events at least as long as a bin are always returned exactly.
//!
//! Cost: one pass over the slices that begin in the window, about 6 ns each, or over the cells of a
//! stored level (`levels`) if there are many slices; plus a search for the slices that began before
//! the window and are still open.

pub(crate) mod levels;
pub(crate) mod merge_bins;

use std::ops::Range;

use stepscope_model::{Dur, NameId, SliceKind, Time, TrackId};

use crate::columns::table::{SliceTable, TOLERANCE};
use crate::lod::merge_bins::{BinMerger, Cell, bin_begin, bin_end, share};
use crate::read::event::EventId;
use crate::read::kinds;
use crate::read::trace::{Categories, Trace};

/// Result of [`Trace::items`]: columns of equal length, sorted by (row, start).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Items {
    /// Start of the event, or of the first merged event.
    pub t0: Vec<Time>,
    /// End of the event, or the last end of the merged events.
    pub t1: Vec<Time>,
    /// The event itself (count 1), or the longest merged event (the first of equals).
    pub id: Vec<EventId>,
    /// Name of the event in `id`.
    pub name: Vec<NameId>,
    /// Number of events that the item stands for.
    pub count: Vec<u32>,
    /// Display row on the track.
    pub row: Vec<u16>,
    /// Kind of the event in `id`.
    pub kind: Vec<SliceKind>,
    /// Covered share of `t0..t1` x 255, at least 1 if anything is covered.
    pub busy: Vec<u8>,
}

impl Items {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.t0.len()
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.t0.is_empty()
    }

    fn with_capacity(items: usize) -> Self {
        Self {
            t0: Vec::with_capacity(items),
            t1: Vec::with_capacity(items),
            id: Vec::with_capacity(items),
            name: Vec::with_capacity(items),
            count: Vec::with_capacity(items),
            row: Vec::with_capacity(items),
            kind: Vec::with_capacity(items),
            busy: Vec::with_capacity(items),
        }
    }
}

/// Result of [`Trace::counter_bins`]: columns of equal length, one entry per bin that holds
/// samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterBins {
    /// Time of the bin's first sample.
    pub t: Vec<Time>,
    /// Smallest value of the bin.
    pub min: Vec<f64>,
    /// Largest value of the bin.
    pub max: Vec<f64>,
    /// The bin's last value.
    pub last: Vec<f64>,
}

/// Returns the bin width for about `bins` bins in the window, at least 1 ps.
fn bin_width(window: &Range<Time>, bins: u32) -> Dur {
    let length = window.end.since(window.start).ps().max(0);
    let bins = i64::from(bins.max(1));
    let width = length / bins + i64::from(length % bins != 0);
    Dur::from_ps(width.max(1))
}

impl Trace {
    /// Returns the track's slices in the window: at most about `bins` merged items per row, plus
    /// one for every slice that lasts a bin or longer (at most `bins` per row).
    ///
    /// A bin is the window's length divided by `bins`. On large tracks it is rounded, by an eighth
    /// at most, to a multiple of a stored level's bins. Slices that began before the window and
    /// reach into it are included with their exact times. The sum of `count` over a row is the
    /// number of its slices that intersect the window (zero-length slices: that lie in it).
    pub fn items(&self, track: TrackId, window: Range<Time>, bins: u32) -> Items {
        let Some(table) = self.table(track).map(|table| &table.slices) else {
            return Items::default();
        };
        if table.start.is_empty() || window.end <= window.start {
            return Items::default();
        }
        let row_count = self.tracks.get(track.index()).map_or(0, |track| track.rows);
        let rows = merge_into_bins(table, &window, bin_width(&window, bins), row_count);
        let slices = self.slices(track);
        self.resolve(track, rows, slices.first_id, slices.name, slices.category)
    }

    /// Returns the track's instants in the window, as items of row 0. `t0 == t1` unless several
    /// instants were merged.
    pub fn instant_items(&self, track: TrackId, window: Range<Time>, bins: u32) -> Items {
        let instants = self.instants(track);
        let width = bin_width(&window, bins);
        let begin = instants.at.partition_point(|at| *at < window.start);
        let end = instants
            .at
            .partition_point(|at| *at < window.end)
            .max(begin);
        let mut row = BinMerger::new(width, 1);
        for (index, at) in (begin..end).zip(&instants.at[begin..end]) {
            row.slice(0, index, *at, Dur::ZERO);
        }
        self.resolve(
            track,
            row.finish(),
            instants.first_id,
            instants.name,
            instants.category,
        )
    }

    fn resolve(
        &self,
        track: TrackId,
        rows: Vec<Vec<Cell>>,
        first_id: EventId,
        names: &[NameId],
        categories: Categories<'_>,
    ) -> Items {
        let mut items = Items::with_capacity(rows.iter().map(Vec::len).sum());
        let kind_of_track = self.tracks.get(track.index()).map(|track| track.kind);
        let mut page = (NameId(u32::MAX), &[][..]);
        for (row, gathered) in (0..).zip(rows) {
            for cell in gathered {
                let index = cell.index as usize;
                let name = names.get(index).copied().unwrap_or_default();
                let category = categories.get(index);
                if page.0 != category {
                    let found =
                        kind_of_track.map_or(&[][..], |kind| self.kinds.page(category, kind));
                    page = (category, found);
                }
                items.t0.push(cell.t0);
                items.t1.push(cell.t1);
                items
                    .id
                    .push(EventId(first_id.0.saturating_add(cell.index)));
                items.name.push(name);
                items.count.push(cell.count);
                items.row.push(row);
                items.kind.push(kinds::look_up(page.1, name, || {
                    self.kind(track, name, category)
                }));
                items.busy.push(cell.busy());
            }
        }
        items
    }

    /// Computes the collapsed row: the share of each bin, x 255, that the union of these tracks'
    /// slices covers. Bins divide the window evenly, beginning at its start; the result has `bins`
    /// entries. A bin that holds any event is at least 1.
    pub fn busy_strip(&self, tracks: &[TrackId], window: Range<Time>, bins: u32) -> Vec<u8> {
        let count = bins as usize;
        let length = window.end.since(window.start).ps();
        if count == 0 || length <= 0 {
            return vec![0; count];
        }
        let mut strip = Strip::new(&window, count);
        let mut single: Vec<(Time, Time)> = Vec::new();
        let mut several = Vec::new();
        for (place, track) in tracks.iter().enumerate() {
            let Some(table) = self.table(*track).map(|table| &table.slices) else {
                continue;
            };
            union(table, &window, &mut |begin, end| single.push((begin, end)));
            if place + 1 < tracks.len() || !several.is_empty() {
                several.append(&mut single);
            }
        }
        let all = if several.is_empty() { single } else { several };
        add_union(all, &mut strip);
        strip.shares()
    }

    /// Returns the counter's samples in the window, binned as in [`Trace::items`]. The last sample
    /// before the window is the first entry, since its value still applies when the window begins.
    pub fn counter_bins(&self, track: TrackId, window: Range<Time>, bins: u32) -> CounterBins {
        let samples = self.samples(track);
        let width = bin_width(&window, bins);
        let begin = samples.at.partition_point(|at| *at < window.start);
        let end = samples.at.partition_point(|at| *at < window.end).max(begin);
        let mut answer = CounterBins::default();
        let mut ends = Time::MIN;
        let mut push = |at: Time, value: f64, answer: &mut CounterBins| {
            if at < ends
                && let (Some(min), Some(max), Some(last)) = (
                    answer.min.last_mut(),
                    answer.max.last_mut(),
                    answer.last.last_mut(),
                )
            {
                *min = min.min(value);
                *max = max.max(value);
                *last = value;
                return;
            }
            ends = if at < window.start {
                window.start
            } else {
                bin_end(at, width)
            };
            answer.t.push(at);
            answer.min.push(value);
            answer.max.push(value);
            answer.last.push(value);
        };
        let first = begin.saturating_sub(1);
        for (at, value) in samples.at.iter().zip(samples.value).take(end).skip(first) {
            push(*at, *value, &mut answer);
        }
        answer
    }

    /// Returns the length of the union of the track's slices within the window.
    pub fn busy(&self, track: TrackId, window: Range<Time>) -> Dur {
        let Some(table) = self.table(track).map(|table| &table.slices) else {
            return Dur::ZERO;
        };
        let mut busy = 0_i64;
        union(table, &window, &mut |begin, end| {
            busy = busy.saturating_add(end.since(begin).ps());
        });
        Dur::from_ps(busy)
    }
}

/// Merges the slices of the window by row.
fn merge_into_bins(
    table: &SliceTable,
    window: &Range<Time>,
    width: Dur,
    rows: u16,
) -> Vec<Vec<Cell>> {
    let level = levels::choose(&table.levels, width);
    let mut bins = BinMerger::new(level.map_or(width, |(_, width)| width), usize::from(rows));
    let slices = RowedSlices::new(table);
    table
        .open()
        .open_at(window.start, slices.begun(window.start), &mut |index| {
            slices.merge_into_bins(index..index + 1, &mut bins);
        });
    // Whole bins of the level within the window; the edges are merged from slices.
    let inner = level.and_then(|(level, _)| {
        let begin = bin_end(window.start.saturating_sub(Dur::from_ps(1)), level.width);
        let end = bin_begin(window.end, level.width);
        (begin < end).then_some((level, begin..end))
    });
    if let Some((level, inner)) = inner {
        let before = slices.begun(window.start)..slices.begun(inner.start);
        slices.merge_into_bins(before, &mut bins);
        level.merge_into_bins(&inner, &mut bins);
        let after = slices.begun(inner.end)..slices.begun(window.end);
        slices.merge_into_bins(after, &mut bins);
    } else {
        let all = slices.begun(window.start)..slices.begun(window.end);
        slices.merge_into_bins(all, &mut bins);
    }
    bins.finish()
}

/// Columns that binning reads.
struct RowedSlices<'t> {
    start: &'t [Time],
    dur: &'t [Dur],
    row: &'t [u16],
}

impl<'t> RowedSlices<'t> {
    fn new(table: &'t SliceTable) -> Self {
        Self {
            start: &table.start,
            dur: &table.dur,
            row: table.rows(),
        }
    }

    /// Returns the number of slices that begin before `at`.
    fn begun(&self, at: Time) -> usize {
        self.start.partition_point(|start| *start < at)
    }

    fn merge_into_bins(&self, range: Range<usize>, bins: &mut BinMerger) {
        let (Some(start), Some(dur), Some(row)) = (
            self.start.get(range.clone()),
            self.dur.get(range.clone()),
            self.row.get(range.clone()),
        ) else {
            return;
        };
        for (index, ((start, dur), row)) in (range.start..).zip(start.iter().zip(dur).zip(row)) {
            bins.slice(*row, index, *start, *dur);
        }
    }
}

/// Calls `visit` with the ranges of the window that the slices cover.
fn union(table: &SliceTable, window: &Range<Time>, visit: &mut dyn FnMut(Time, Time)) {
    if window.end <= window.start {
        return;
    }
    let begin = table.start.partition_point(|start| *start < window.start);
    let end = table.begun_before(window.end).max(begin);
    let mut current = (window.start, window.start);
    table.open().open_at(
        window.start.saturating_sub(TOLERANCE),
        begin,
        &mut |index| {
            current.1 = current.1.max(table.end(index));
        },
    );
    let starts = table.start.get(begin..end).unwrap_or(&[]);
    let durs = table.dur.get(begin..end).unwrap_or(&[]);
    for (start, dur) in starts.iter().zip(durs) {
        let slice_end = start.saturating_add(*dur);
        if *start > current.1 {
            if current.1 > current.0 {
                visit(current.0, current.1);
            }
            current = (*start, slice_end);
        } else if slice_end > current.1 {
            current.1 = slice_end;
        }
    }
    let last = current.1.min(window.end);
    if last > current.0 {
        visit(current.0, last);
    }
}

/// Merges covered ranges of several tracks and adds them to the strip.
fn add_union(mut stretches: Vec<(Time, Time)>, strip: &mut Strip) {
    // The ranges are concatenated sorted runs, one per track, which a stable sort merges.
    stretches.sort();
    let mut current: Option<(Time, Time)> = None;
    for (begin, end) in stretches {
        match &mut current {
            Some(open) if begin <= open.1 => open.1 = open.1.max(end),
            _ => {
                if let Some((begin, end)) = current.replace((begin, end)) {
                    strip.add(begin, end);
                }
            }
        }
    }
    if let Some((begin, end)) = current {
        strip.add(begin, end);
    }
}

/// Covered time per bin of a window that is divided evenly.
struct Strip {
    start: Time,
    length: i64,
    covered: Vec<i64>,
}

impl Strip {
    fn new(window: &Range<Time>, bins: usize) -> Self {
        Self {
            start: window.start,
            length: window.end.since(window.start).ps(),
            covered: vec![0; bins],
        }
    }

    /// Returns the start of a bin, relative to the window's start.
    fn edge(&self, bin: usize) -> i64 {
        let edge = i128::from(self.length) * bin as i128 / self.covered.len().max(1) as i128;
        i64::try_from(edge).unwrap_or(self.length)
    }

    fn bin(&self, offset: i64) -> usize {
        let bin = i128::from(offset) * self.covered.len() as i128 / i128::from(self.length.max(1));
        usize::try_from(bin)
            .unwrap_or(0)
            .min(self.covered.len().saturating_sub(1))
    }

    fn add(&mut self, begin: Time, end: Time) {
        let begin = begin.since(self.start).ps().clamp(0, self.length);
        let end = end.since(self.start).ps().clamp(0, self.length);
        if end <= begin {
            return;
        }
        for bin in self.bin(begin)..=self.bin(end - 1) {
            let from = self.edge(bin).max(begin);
            let to = self.edge(bin + 1).min(end);
            self.covered[bin] += (to - from).max(0);
        }
    }

    fn shares(&self) -> Vec<u8> {
        (0..self.covered.len())
            .map(|bin| {
                let whole = self.edge(bin + 1) - self.edge(bin);
                match self.covered[bin] {
                    0 => 0,
                    covered => share(covered, whole),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::buffer::EventBuf;
    use crate::build::finish_track;

    /// Bursts and pauses, three levels of nesting, some overlaps.
    fn large() -> SliceTable {
        let mut events = EventBuf::default();
        let mut push = |start: i64, dur: i64| {
            events.slice(&stepscope_model::SliceIn {
                start: Time::from_ps(start * 1_000),
                dur: Dur::from_ps(dur * 1_000),
                ..stepscope_model::SliceIn::default()
            });
        };
        let mut now = -5_000_000;
        for index in 0..6_000_i64 {
            let length = 1_000 + (index * 7_919) % 90_000;
            push(now, length);
            push(now + length / 4, length / 8);
            push(now + length / 2, length / 4);
            if index % 50 == 0 {
                push(now + length / 2, length);
            }
            now += length + (index % 7) * 300 + i64::from(index % 1_000 == 0) * 9_000_000;
        }
        let finished = finish_track::finish(events);
        let mut table = finished.table.slices;
        table.levels = levels::build(&table, finished.rows);
        table
    }

    #[test]
    fn levels_change_no_answer() {
        let table = large();
        assert!(table.levels.len() > 1, "{}", table.levels.len());
        let rows = 1 + table.rows().iter().max().copied().unwrap_or(0);
        let mut plain = table.clone();
        plain.levels.clear();
        let mut served = 0;
        for (begin, length) in [
            (-6_000_000, 400_000_000),
            (-5_000_000, 333_333_333),
            (1_234_567, 200_000_000),
            (90_000_001, 70_000_000),
            (90_000_001, 999_999),
        ] {
            let window = Time::from_ps(begin * 1_000)..Time::from_ps((begin + length) * 1_000);
            for bins in [1, 3, 10, 33, 100, 800] {
                let width = bin_width(&window, bins);
                let chosen = levels::choose(&table.levels, width);
                served += usize::from(chosen.is_some());
                let rounded = chosen.map_or(width, |(_, width)| width);
                let off = (rounded.ps() - width.ps()).abs();
                assert!(off * 8 <= width.ps(), "{rounded:?} for {width:?}");
                assert_eq!(
                    merge_into_bins(&table, &window, width, rows),
                    merge_into_bins(&plain, &window, rounded, rows),
                    "{window:?} in {bins}"
                );
            }
        }
        assert!(served > 10, "{served}");
    }
}
