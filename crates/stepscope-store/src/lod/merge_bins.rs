//! Merges slices into bins, row by row.
//!
//! The same step builds levels of detail from slices, coarser levels from finer ones, and query
//! results from either. Its input is cells in start order, its output fewer cells in start order. A
//! cell for one slice at least as long as a bin passes unchanged; shorter ones are merged by the
//! bin in which they begin.

use stepscope_model::{Dur, Time};

/// One slice, or several short slices of one row that begin in one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Start of the first slice.
    pub(crate) t0: Time,
    /// Latest end.
    pub(crate) t1: Time,
    /// Sum of their lengths.
    pub(crate) covered: Dur,
    /// Length of the longest slice.
    pub(crate) longest: Dur,
    /// Position of the longest slice (the first of equals) among the track's slices.
    pub(crate) index: u32,
    /// Number of slices.
    pub(crate) count: u32,
}

impl Cell {
    pub(crate) fn one(index: usize, start: Time, dur: Dur) -> Self {
        Self {
            t0: start,
            t1: start.saturating_add(dur),
            covered: dur,
            longest: dur,
            index: u32::try_from(index).unwrap_or(u32::MAX),
            count: 1,
        }
    }

    /// Returns the covered share of `t0..t1` x 255.
    pub(crate) fn busy(&self) -> u8 {
        if self.count == 1 {
            255
        } else {
            share(self.covered.ps(), self.t1.since(self.t0).ps())
        }
    }
}

/// Returns `covered / whole` x 255, rounded, at least 1 if anything is covered.
pub(crate) fn share(covered: i64, whole: i64) -> u8 {
    if whole <= 0 {
        return 255;
    }
    let scaled = i128::from(covered.max(0)) * 255 + i128::from(whole) / 2;
    let share = u8::try_from(scaled / i128::from(whole)).unwrap_or(255);
    share.max(u8::from(covered > 0))
}

/// Returns the end of the bin of this width that holds `at`. Bins begin at multiples of their
/// width.
pub(crate) fn bin_end(at: Time, width: Dur) -> Time {
    let width = width.ps().max(1);
    let within = at.ps().rem_euclid(width);
    Time::from_ps(at.ps().saturating_add(width - within))
}

/// Returns the start of the bin of this width that holds `at`.
pub(crate) fn bin_begin(at: Time, width: Dur) -> Time {
    at.saturating_sub(Dur::from_ps(at.ps().rem_euclid(width.ps().max(1))))
}

/// A row and its unfinished cell.
struct Row {
    bin_end: Time,
    open: Cell,
    done: Vec<Cell>,
}

const NO_CELL: Cell = Cell {
    t0: Time::ZERO,
    t1: Time::ZERO,
    covered: Dur::ZERO,
    longest: Dur::ZERO,
    index: 0,
    count: 0,
};

/// Merges cells into bins; see the module documentation.
pub(crate) struct BinMerger {
    width: Dur,
    rows: Vec<Row>,
}

impl BinMerger {
    pub(crate) fn new(width: Dur, rows: usize) -> Self {
        let row = || Row {
            bin_end: Time::MIN,
            open: NO_CELL,
            done: Vec::new(),
        };
        Self {
            width,
            rows: (0..rows.max(1)).map(|_| row()).collect(),
        }
    }

    /// Adds the next slice of its row.
    #[allow(
        clippy::inline_always,
        reason = "a call for each slice takes a third longer, and a build for size makes one"
    )]
    #[inline(always)]
    pub(crate) fn slice(&mut self, row: u16, index: usize, start: Time, dur: Dur) {
        let Some(row) = self.rows.get_mut(usize::from(row)) else {
            return;
        };
        if start < row.bin_end && dur < self.width {
            let open = &mut row.open;
            open.count += 1;
            open.covered = open.covered.saturating_add(dur);
            open.t1 = open.t1.max(start.saturating_add(dur));
            if dur > open.longest {
                open.longest = dur;
                open.index = u32::try_from(index).unwrap_or(u32::MAX);
            }
        } else {
            row.begin(Cell::one(index, start, dur), self.width);
        }
    }

    /// Adds the next cell of its row, which stands for one slice or several.
    #[allow(clippy::inline_always, reason = "as for `slice`")]
    #[inline(always)]
    pub(crate) fn cell(&mut self, row: usize, cell: Cell) {
        let Some(row) = self.rows.get_mut(row) else {
            return;
        };
        let joins = cell.count > 1 || cell.longest < self.width;
        if cell.t0 < row.bin_end && joins {
            let open = &mut row.open;
            open.count = open.count.saturating_add(cell.count);
            open.covered = open.covered.saturating_add(cell.covered);
            open.t1 = open.t1.max(cell.t1);
            if cell.longest > open.longest {
                open.longest = cell.longest;
                open.index = cell.index;
            }
        } else {
            row.begin(cell, self.width);
        }
    }

    pub(crate) fn finish(self) -> Vec<Vec<Cell>> {
        self.rows
            .into_iter()
            .map(|mut row| {
                row.close();
                row.done
            })
            .collect()
    }
}

impl Row {
    /// Starts a new cell. A cell at least as long as a bin is not merged.
    fn begin(&mut self, cell: Cell, width: Dur) {
        self.close();
        if cell.count == 1 && cell.longest >= width {
            self.done.push(cell);
            self.bin_end = Time::MIN;
        } else {
            self.bin_end = bin_end(cell.t0, width);
            self.open = cell;
        }
    }

    fn close(&mut self) {
        if self.open.count > 0 {
            self.done.push(self.open);
            self.open.count = 0;
        }
    }
}
