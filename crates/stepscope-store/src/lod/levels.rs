//! Stored levels of detail, which make queries of a wide window of a large track cheap.
//!
//! A level holds the cells of a whole track for one bin width, a power of two in nanoseconds. The
//! finest level is wide enough to hold an eighth as many cells as there are slices; each further
//! one is four times as wide. If the bins of a query are multiples of a level's bins, the result is
//! the same from slices and from cells, so levels only change the time that the query takes. For
//! this, the requested width is rounded to such a multiple, by an eighth at most.
//!
//! Memory: 40 bytes a cell, so at most about 7 bytes a slice, for tracks of [`FEWEST`] slices or
//! more. Levels are built when a track is finished and saved in the cache image, so that a reopened
//! trace draws its first picture without reading its slices.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use stepscope_model::{Dur, Time};

use crate::columns::level::Level;
use crate::columns::pages;
use crate::columns::table::SliceTable;
use crate::lod::merge_bins::{BinMerger, Cell, bin_end};

/// Smaller tracks are always binned from slices.
const FEWEST: usize = 1 << 13;
/// A level with at most this many cells needs no coarser one.
const SMALLEST: usize = 1 << 10;
/// Slices per cell of the finest level.
const SHRINK: usize = 8;
/// Minimum ratio of a query's bin width to that of the level.
const FINER: i64 = 4;
/// 2^50 ns are 13 days.
const WIDEST: u32 = 50;

impl Level {
    /// Concatenates the cells of each part of the track, row by row; frees the parts.
    fn new(width: Dur, parts: Vec<Vec<Vec<Cell>>>) -> Self {
        let rows = parts.iter().map(Vec::len).max().unwrap_or(0);
        let mut first = Vec::with_capacity(rows + 1);
        let mut next = 0_usize;
        for row in 0..rows {
            first.push(position(next));
            next += parts
                .iter()
                .filter_map(|part| part.get(row))
                .map(Vec::len)
                .sum::<usize>();
        }
        first.push(position(next));
        let mut level = Self {
            width,
            first: first.into(),
            ..Self::default()
        };
        let mut t0 = Vec::new();
        let mut t1 = Vec::new();
        let mut covered = Vec::new();
        let mut longest = Vec::new();
        let mut index = Vec::new();
        let mut count = Vec::new();
        pages::reserve(&mut t0, next);
        pages::reserve(&mut t1, next);
        pages::reserve(&mut covered, next);
        pages::reserve(&mut longest, next);
        pages::reserve(&mut index, next);
        pages::reserve(&mut count, next);
        let mut parts = parts;
        for row in 0..rows {
            for part in &mut parts {
                for cell in part.get_mut(row).map(std::mem::take).unwrap_or_default() {
                    t0.push(cell.t0);
                    t1.push(cell.t1);
                    covered.push(cell.covered);
                    longest.push(cell.longest);
                    index.push(cell.index);
                    count.push(cell.count);
                }
            }
        }
        level.t0 = t0.into();
        level.t1 = t1.into();
        level.covered = covered.into();
        level.longest = longest.into();
        level.index = index.into();
        level.count = count.into();
        level
    }

    fn len(&self) -> usize {
        self.t0.len()
    }

    /// Merges the cells that begin in the window, row by row.
    pub(crate) fn merge_into_bins(&self, window: &Range<Time>, into: &mut BinMerger) {
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
}

fn position(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Number of slices that a thread merges at a time.
const PART: usize = 1 << 17;

/// Builds the levels of a sorted and nested track of `rows` rows.
pub(crate) fn build(table: &SliceTable, rows: u16) -> Vec<Level> {
    build_in_parts(&table.start, &table.dur, table.rows(), rows, PART)
}

fn build_in_parts(
    start: &[Time],
    dur: &[Dur],
    row_of: &[u16],
    rows: u16,
    part: usize,
) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    let Some(mut width) = first_width(start, row_of, rows) else {
        return levels;
    };
    let mut begins = vec![0];
    begins.extend(
        (1..start.len() / part)
            .filter_map(|number| first_of_bin(start, width, number * part, (number + 1) * part)),
    );
    let ends: Vec<usize> = begins
        .iter()
        .skip(1)
        .copied()
        .chain([start.len()])
        .collect();
    let cells = begins
        .into_par_iter()
        .zip(ends)
        .map(|(begin, end)| {
            let mut bins = BinMerger::new(width, usize::from(rows));
            let range = begin..end;
            if let (Some(start), Some(dur), Some(row_of)) = (
                start.get(range.clone()),
                dur.get(range.clone()),
                row_of.get(range),
            ) {
                let slices = start.iter().zip(dur).zip(row_of);
                for (index, ((start, dur), row)) in (begin..).zip(slices) {
                    bins.slice(*row, index, *start, *dur);
                }
            }
            bins.finish()
        })
        .collect();
    let mut level = Level::new(width, cells);
    loop {
        let wider = width.ps().checked_mul(4).map(Dur::from_ps);
        let Some(wider) = wider.filter(|_| level.len() > SMALLEST) else {
            levels.push(level);
            return levels;
        };
        width = wider;
        let mut bins = BinMerger::new(width, usize::from(rows));
        level.merge_into_bins(&(Time::MIN..Time::MAX), &mut bins);
        levels.push(level);
        if levels.len() > WIDEST as usize / 2 {
            return levels;
        }
        level = Level::new(width, vec![bins.finish()]);
    }
}

/// Finds the first slice in `from..until` that begins a bin. Cells before and after it are
/// independent.
fn first_of_bin(start: &[Time], width: Dur, from: usize, until: usize) -> Option<usize> {
    let before = *start.get(from.checked_sub(1)?)?;
    let bin_end = bin_end(before, width);
    let next = start.get(from..until.min(start.len()))?;
    let at = from + next.partition_point(|start| *start < bin_end);
    (at < until.min(start.len())).then_some(at)
}

/// Returns the bin width at which there is one cell per eight slices if they spread evenly over
/// time.
fn first_width(start: &[Time], row_of: &[u16], rows: u16) -> Option<Dur> {
    let count = start.len();
    if count < FEWEST {
        return None;
    }
    let span = start.last()?.since(*start.first()?).ps();
    let rows = usize::from(rows).max(1);
    let in_row = row_of
        .par_chunks(PART)
        .map(|part| {
            let mut in_row = vec![0_usize; rows];
            for row in part {
                if let Some(in_row) = in_row.get_mut(usize::from(*row)) {
                    *in_row += 1;
                }
            }
            in_row
        })
        .reduce(
            || vec![0; rows],
            |mut sum, more| {
                for (sum, more) in sum.iter_mut().zip(more) {
                    *sum += more;
                }
                sum
            },
        );
    (0..WIDEST)
        .map(|power| Dur::from_ps(1_000 << power))
        .find(|width| {
            let bins = usize::try_from(span / width.ps()).unwrap_or(usize::MAX);
            let cells: usize = in_row.iter().map(|slices| (*slices).min(bins)).sum();
            cells <= count / SHRINK
        })
}

/// Chooses the level for bins of about this width, and the rounded width to use.
pub(crate) fn choose(levels: &[Level], width: Dur) -> Option<(&Level, Dur)> {
    let level = levels
        .iter()
        .rev()
        .find(|level| level.width.ps() > 0 && level.width.ps() <= width.ps() / FINER)?;
    let fine = level.width.ps();
    let times = width.ps() / fine + i64::from(width.ps() % fine >= fine - fine / 2);
    Some((level, Dur::from_ps(fine.saturating_mul(times))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_cells_of_the_whole() {
        let mut state = 5_u64;
        let mut random = move |below: i64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % below
        };
        for gap in [1, 30, 9_000] {
            let mut now = -2_000_000;
            let mut start = Vec::new();
            let mut dur = Vec::new();
            let mut row = Vec::new();
            for _ in 0..3 * FEWEST {
                now += random(gap * 2_000) * random(2);
                let long = random(300) == 0;
                start.push(Time::from_ps(now));
                dur.push(Dur::from_ps(random(if long {
                    gap * 90_000
                } else {
                    gap * 900
                })));
                row.push(u16::try_from(random(5)).unwrap());
            }
            let whole = build_in_parts(&start, &dur, &row, 5, usize::MAX);
            assert!(whole.len() > 1);
            for part in [1, 100, 4_000] {
                let parts = build_in_parts(&start, &dur, &row, 5, part);
                assert_eq!(format!("{parts:?}"), format!("{whole:?}"));
            }
        }
    }
}
