//! Kept levels of detail: what makes a wide window of a large track cheap.
//!
//! A level holds the cells of a whole track for one bin width, a power of two in nanoseconds. The
//! finest one is as wide as it takes to hold an eighth as many cells as there are slices; each
//! further one is four times as wide. An answer whose bins are multiples of a level's is the very
//! same whether it is gathered from slices or from cells, so levels change the time that it takes
//! and nothing else: the wanted width is rounded to such a multiple, by an eighth at most.
//!
//! Memory: 40 bytes a cell, so at most about 7 bytes a slice, for tracks of [`FEWEST`] slices or
//! more. Built when a track is finished; saved in the cache image, so that a reopened trace draws
//! its first picture without reading its slices.

use std::ops::Range;

use stepscope_model::{Dur, Time};

use crate::column::Column;
use crate::gather::{Cell, Gatherer};

/// Smaller tracks are gathered from slices always.
const FEWEST: usize = 1 << 13;
/// A level this small needs none above it.
const SMALLEST: usize = 1 << 10;
/// Slices per cell of the finest level.
const SHRINK: usize = 8;
/// Bins of an answer are at least this many times as wide as those of the level.
const FINER: i64 = 4;
/// 2^50 ns are 13 days.
const WIDEST: u32 = 50;

/// Cells of a track for one bin width, row after row, in start order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    pub(crate) width: Dur,
    /// Where each row begins, and the number of cells at the end.
    pub(crate) first: Column<u32>,
    pub(crate) t0: Column<Time>,
    pub(crate) t1: Column<Time>,
    pub(crate) covered: Column<Dur>,
    pub(crate) longest: Column<Dur>,
    pub(crate) index: Column<u32>,
    pub(crate) count: Column<u32>,
}

impl Level {
    fn new(width: Dur, rows: &[Vec<Cell>]) -> Self {
        let mut first = Vec::with_capacity(rows.len() + 1);
        let mut next = 0_u32;
        for row in rows {
            first.push(next);
            next = next.saturating_add(u32::try_from(row.len()).unwrap_or(u32::MAX));
        }
        first.push(next);
        let cells = || rows.iter().flatten();
        Self {
            width,
            first: first.into(),
            t0: collect(next, cells().map(|cell| cell.t0)),
            t1: collect(next, cells().map(|cell| cell.t1)),
            covered: collect(next, cells().map(|cell| cell.covered)),
            longest: collect(next, cells().map(|cell| cell.longest)),
            index: collect(next, cells().map(|cell| cell.index)),
            count: collect(next, cells().map(|cell| cell.count)),
        }
    }

    fn len(&self) -> usize {
        self.t0.len()
    }

    /// Passes the cells that begin in the window on, row by row.
    pub(crate) fn gather(&self, window: &Range<Time>, into: &mut Gatherer) {
        let (t0, t1) = (&*self.t0, &*self.t1);
        let (covered, longest) = (&*self.covered, &*self.longest);
        let (index, count) = (&*self.index, &*self.count);
        for (row, pair) in self.first.windows(2).enumerate() {
            let all = pair[0] as usize..pair[1] as usize;
            let Some(begins) = t0.get(all.clone()) else {
                continue;
            };
            let from = all.start + begins.partition_point(|t0| *t0 < window.start);
            let to = all.start + begins.partition_point(|t0| *t0 < window.end);
            for at in from..to.max(from) {
                let (Some(t0), Some(t1), Some(covered), Some(longest), Some(index), Some(count)) = (
                    t0.get(at),
                    t1.get(at),
                    covered.get(at),
                    longest.get(at),
                    index.get(at),
                    count.get(at),
                ) else {
                    break;
                };
                let cell = Cell {
                    t0: *t0,
                    t1: *t1,
                    covered: *covered,
                    longest: *longest,
                    index: *index,
                    count: *count,
                };
                into.cell(row, cell);
            }
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.first.heap_bytes()
            + self.t0.heap_bytes()
            + self.t1.heap_bytes()
            + self.covered.heap_bytes()
            + self.longest.heap_bytes()
            + self.index.heap_bytes()
            + self.count.heap_bytes()
    }
}

fn collect<T>(count: u32, values: impl Iterator<Item = T>) -> Column<T> {
    let mut all = Vec::with_capacity(count as usize);
    all.extend(values);
    Column::Owned(all)
}

/// Makes the levels of a sorted and nested track of `rows` rows.
pub(crate) fn build(start: &[Time], dur: &[Dur], row_of: &[u16], rows: u16) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let Some(mut width) = first_width(start, row_of, rows) else {
        return levels;
    };
    let mut gatherer = Gatherer::new(width, usize::from(rows));
    for (index, ((start, dur), row)) in start.iter().zip(dur).zip(row_of).enumerate() {
        gatherer.slice(*row, index, *start, *dur);
    }
    loop {
        let level = Level::new(width, &gatherer.finish());
        let wider = width.ps().checked_mul(4).map(Dur::from_ps);
        let next = wider.filter(|_| level.len() > SMALLEST);
        if let Some(wider) = next {
            width = wider;
            gatherer = Gatherer::new(width, usize::from(rows));
            level.gather(&(Time::MIN..Time::MAX), &mut gatherer);
            levels.push(level);
        } else {
            levels.push(level);
            return levels;
        }
        if levels.len() > WIDEST as usize / 2 {
            return levels;
        }
    }
}

/// The bin width at which cells are an eighth of slices, if they spread evenly over time.
fn first_width(start: &[Time], row_of: &[u16], rows: u16) -> Option<Dur> {
    let count = start.len();
    if count < FEWEST {
        return None;
    }
    let span = start.last()?.since(*start.first()?).ps();
    let mut in_row = vec![0_usize; usize::from(rows).max(1)];
    for row in row_of {
        if let Some(in_row) = in_row.get_mut(usize::from(*row)) {
            *in_row += 1;
        }
    }
    (0..WIDEST)
        .map(|power| Dur::from_ps(1_000 << power))
        .find(|width| {
            let bins = usize::try_from(span / width.ps()).unwrap_or(usize::MAX);
            let cells: usize = in_row.iter().map(|slices| (*slices).min(bins)).sum();
            cells <= count / SHRINK
        })
}

/// The level for bins of about this width, and the width to use instead.
pub(crate) fn choose(levels: &[Level], width: Dur) -> Option<(&Level, Dur)> {
    let level = levels
        .iter()
        .rev()
        .find(|level| level.width.ps() > 0 && level.width.ps() <= width.ps() / FINER)?;
    let fine = level.width.ps();
    let times = width.ps() / fine + i64::from(width.ps() % fine >= fine - fine / 2);
    Some((level, Dur::from_ps(fine.saturating_mul(times))))
}
