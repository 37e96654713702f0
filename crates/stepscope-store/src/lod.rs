//! Levels of detail: any window of a track at any zoom, with nothing missed.
//!
//! See `docs/reference/levels-of-detail.md` for the rules as users of the HTTP interface see them.
//!
//! A bin is a stretch of time about as wide as two pixels, beginning at a multiple of its width,
//! so that panning does not move bins under the events. Per row, events shorter than a bin are
//! gathered by the bin they begin in; a lone one is given exactly, several become one item.
//! Events at least as long as a bin are given exactly, always.
//!
//! Cost: one pass over the slices that begin in the window, 2 to 3 ns each, plus a search for
//! those that began before it and are still open. No index is built and nothing is kept.

use std::ops::Range;

use stepscope_model::{Dur, NameId, SliceKind, Time, TrackId};

use crate::kinds;
use crate::query::{begun_before, tolerance};
use crate::table::SliceTable;
use crate::trace::{Categories, EventId, Trace};

/// Answer of [`Trace::items`]: columns of equal length, sorted by (row, start).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Items {
    /// Begin of the event, or of the first one merged.
    pub t0: Vec<Time>,
    /// End of the event, or of the last of those merged.
    pub t1: Vec<Time>,
    /// The event itself (count 1), or the longest of those merged (the first of equals).
    pub id: Vec<EventId>,
    /// Name of the event in `id`.
    pub name: Vec<NameId>,
    /// How many events the item stands for.
    pub count: Vec<u32>,
    /// Display row on the track.
    pub row: Vec<u16>,
    /// Kind of the event in `id`.
    pub kind: Vec<SliceKind>,
    /// Covered share of `t0..t1` x 255, at least 1 if anything is covered.
    pub busy: Vec<u8>,
}

impl Items {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.t0.len()
    }

    /// Whether there are none.
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

/// Answer of [`Trace::counter_bins`]: columns of equal length, one entry per bin that holds
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

/// Bins of one window: each begins at a multiple of the width.
#[derive(Clone, Copy)]
struct Bins {
    width: i64,
}

impl Bins {
    /// About `bins` bins in the window, at least 1 ps wide.
    fn new(window: &Range<Time>, bins: u32) -> Self {
        let length = window.end.since(window.start).ps().max(0);
        let bins = i64::from(bins.max(1));
        let width = length / bins + i64::from(length % bins != 0);
        Self {
            width: width.max(1),
        }
    }

    /// End of the bin that holds `at`.
    fn end(self, at: Time) -> Time {
        let begin = at.ps()
            - at.ps()
                .rem_euclid(self.width)
                .min(at.ps().saturating_sub(i64::MIN));
        Time::from_ps(begin.saturating_add(self.width))
    }
}

/// What a row has gathered in its current bin.
#[derive(Clone, Copy)]
struct Gathered {
    bin_end: Time,
    first: Time,
    last_end: Time,
    covered: i64,
    longest: Dur,
    index: u32,
    count: u32,
}

const NOTHING: Gathered = Gathered {
    bin_end: Time::MIN,
    first: Time::ZERO,
    last_end: Time::ZERO,
    covered: 0,
    longest: Dur::ZERO,
    index: 0,
    count: 0,
};

/// One item of one row.
#[derive(Clone, Copy)]
struct Item {
    t0: Time,
    t1: Time,
    index: u32,
    count: u32,
    busy: u8,
}

impl Gathered {
    fn item(&self) -> Item {
        Item {
            t0: self.first,
            t1: self.last_end,
            index: self.index,
            count: self.count,
            busy: if self.count == 1 {
                255
            } else {
                share(self.covered, self.last_end.since(self.first).ps())
            },
        }
    }
}

/// `covered / whole` x 255, rounded, at least 1 if anything is covered.
fn share(covered: i64, whole: i64) -> u8 {
    if whole <= 0 {
        return 255;
    }
    let scaled = i128::from(covered.max(0)) * 255 + i128::from(whole) / 2;
    let share = u8::try_from(scaled / i128::from(whole)).unwrap_or(255);
    share.max(u8::from(covered > 0))
}

impl Trace {
    /// The track's slices in the window: at most about `bins` merged items per row, plus one for
    /// every slice that lasts a bin or longer (of which there are at most `bins` per row).
    ///
    /// A bin is the window's length divided by `bins`. Slices that began before the window and
    /// reach into it are given, with their true times. The sum of `count` over a row is the
    /// number of its slices that intersect the window (for a slice without length: that lie in
    /// it).
    pub fn items(&self, track: TrackId, window: Range<Time>, bins: u32) -> Items {
        let Some(table) = self.table(track).map(|table| &table.slices) else {
            return Items::default();
        };
        if table.start.is_empty() || window.end <= window.start {
            return Items::default();
        }
        let row_count = self.tracks.get(track.index()).map_or(0, |track| track.rows);
        let rows = gather(
            table,
            &window,
            Bins::new(&window, bins),
            usize::from(row_count),
        );
        let slices = self.slices(track);
        self.resolve(track, rows, slices.first_id, slices.name, slices.category)
    }

    /// The track's instants in the window, as items of row 0 in which `t0 == t1` unless several
    /// were merged.
    pub fn instant_items(&self, track: TrackId, window: Range<Time>, bins: u32) -> Items {
        let instants = self.instants(track);
        let bins = Bins::new(&window, bins);
        let begin = instants.at.partition_point(|at| *at < window.start);
        let end = instants
            .at
            .partition_point(|at| *at < window.end)
            .max(begin);
        let mut row: Vec<Item> = Vec::new();
        let mut bin_end = Time::MIN;
        for (index, at) in (begin..end).zip(&instants.at[begin..end]) {
            match row.last_mut() {
                Some(item) if *at < bin_end => {
                    item.t1 = *at;
                    item.count += 1;
                }
                _ => {
                    bin_end = bins.end(*at);
                    row.push(Item {
                        t0: *at,
                        t1: *at,
                        index: u32::try_from(index).unwrap_or(u32::MAX),
                        count: 1,
                        busy: 255,
                    });
                }
            }
        }
        self.resolve(
            track,
            vec![row],
            instants.first_id,
            instants.name,
            instants.category,
        )
    }

    fn resolve(
        &self,
        track: TrackId,
        rows: Vec<Vec<Item>>,
        first_id: EventId,
        names: &[NameId],
        categories: Categories<'_>,
    ) -> Items {
        let mut items = Items::with_capacity(rows.iter().map(Vec::len).sum());
        let kind_of_track = self.tracks.get(track.index()).map(|track| track.kind);
        let mut page = (NameId(u32::MAX), &[][..]);
        for (row, gathered) in (0..).zip(rows) {
            for item in gathered {
                let index = item.index as usize;
                let name = names.get(index).copied().unwrap_or_default();
                let category = categories.get(index);
                if page.0 != category {
                    let found =
                        kind_of_track.map_or(&[][..], |kind| self.kinds.page(category, kind));
                    page = (category, found);
                }
                items.t0.push(item.t0);
                items.t1.push(item.t1);
                items
                    .id
                    .push(EventId(first_id.0.saturating_add(item.index)));
                items.name.push(name);
                items.count.push(item.count);
                items.row.push(row);
                items.kind.push(kinds::look_up(page.1, name, || {
                    self.kind(track, name, category)
                }));
                items.busy.push(item.busy);
            }
        }
        items
    }

    /// The collapsed row: share of each bin, x 255, that the union of these tracks' slices covers.
    /// Bins divide the window evenly, beginning at its start; the answer has `bins` entries. A bin
    /// in which anything lies is at least 1.
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

    /// The counter's samples in the window, binned as [`Trace::items`] bins. The last sample before
    /// the window comes first, as an entry of its own, since its value still holds when the window
    /// begins.
    pub fn counter_bins(&self, track: TrackId, window: Range<Time>, bins: u32) -> CounterBins {
        let samples = self.samples(track);
        let bins = Bins::new(&window, bins);
        let begin = samples.at.partition_point(|at| *at < window.start);
        let end = samples.at.partition_point(|at| *at < window.end).max(begin);
        let mut answer = CounterBins::default();
        let mut bin_end = Time::MIN;
        let mut push = |at: Time, value: f64, answer: &mut CounterBins| {
            if at < bin_end
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
            bin_end = if at < window.start {
                window.start
            } else {
                bins.end(at)
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

    /// Union of the track's slices within the window.
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

    /// Calls `visit` with each stretch of the window that the track's slices cover, in order;
    /// stretches neither touch nor overlap.
    pub fn busy_stretches(
        &self,
        track: TrackId,
        window: Range<Time>,
        visit: &mut dyn FnMut(Time, Time),
    ) {
        if let Some(table) = self.table(track) {
            union(&table.slices, &window, visit);
        }
    }
}

/// Gathers the slices of the window by row.
fn gather(
    table: &SliceTable,
    window: &Range<Time>,
    bins: Bins,
    row_count: usize,
) -> Vec<Vec<Item>> {
    let row_count = row_count.max(1);
    let mut rows: Vec<Vec<Item>> = vec![Vec::new(); row_count];
    let mut gathered = vec![NOTHING; row_count];
    let row_of: &[u16] = if table.row.is_empty() {
        &table.depth
    } else {
        &table.row
    };
    let begin = table.start.partition_point(|start| *start < window.start);
    let end = begun_before(table, window.end).max(begin);
    let width = Dur::from_ps(bins.width);

    let mut take = |index: usize, start: Time, dur: Dur, row: u16| {
        let (Some(bin), Some(items)) = (
            gathered.get_mut(usize::from(row)),
            rows.get_mut(usize::from(row)),
        ) else {
            return;
        };
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let slice_end = start.saturating_add(dur);
        if dur >= width {
            // Events that follow in the same bin begin an item of their own.
            if bin.count > 0 {
                items.push(bin.item());
            }
            *bin = NOTHING;
            items.push(Item {
                t0: start,
                t1: slice_end,
                index,
                count: 1,
                busy: 255,
            });
            return;
        }
        if start >= bin.bin_end || bin.count == 0 {
            if bin.count > 0 {
                items.push(bin.item());
            }
            *bin = Gathered {
                bin_end: bins.end(start),
                first: start,
                last_end: slice_end,
                covered: dur.ps(),
                longest: dur,
                index,
                count: 1,
            };
            return;
        }
        bin.count += 1;
        bin.covered = bin.covered.saturating_add(dur.ps());
        bin.last_end = bin.last_end.max(slice_end);
        if dur > bin.longest {
            bin.longest = dur;
            bin.index = index;
        }
    };

    let columns = |index: usize| {
        Some((
            *table.start.get(index)?,
            *table.dur.get(index)?,
            *row_of.get(index)?,
        ))
    };
    table.open().open_at(window.start, begin, &mut |index| {
        if let Some((start, dur, row)) = columns(index) {
            take(index, start, dur, row);
        }
    });
    let starts = table.start.get(begin..end).unwrap_or(&[]);
    let durs = table.dur.get(begin..end).unwrap_or(&[]);
    let in_rows = row_of.get(begin..end).unwrap_or(&[]);
    for (((index, start), dur), row) in (begin..).zip(starts).zip(durs).zip(in_rows) {
        take(index, *start, *dur, *row);
    }
    for (bin, items) in gathered.iter().zip(&mut rows) {
        if bin.count > 0 {
            items.push(bin.item());
        }
    }
    rows
}

/// Calls `visit` with the stretches of the window that the slices cover.
fn union(table: &SliceTable, window: &Range<Time>, visit: &mut dyn FnMut(Time, Time)) {
    if window.end <= window.start {
        return;
    }
    let begin = table.start.partition_point(|start| *start < window.start);
    let end = begun_before(table, window.end).max(begin);
    let mut current = (window.start, window.start);
    let reach = tolerance();
    table
        .open()
        .open_at(window.start.saturating_sub(reach), begin, &mut |index| {
            current.1 = current.1.max(table.end(index));
        });
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

/// Unites stretches of several tracks and adds them to the strip.
fn add_union(mut stretches: Vec<(Time, Time)>, strip: &mut Strip) {
    // Runs of sorted stretches, one per track: a merge sort takes them as they are.
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

    /// Begin of a bin, from the window's start.
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
