//! One stored level of detail of a track; `lod` builds it and queries it.

use stepscope_model::{Dur, Time};

use crate::columns::column::Column;

/// Cells of a track for one bin width, row after row, in start order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    pub(crate) width: Dur,
    /// Start of each row, and the number of cells at the end.
    pub(crate) first: Column<u32>,
    pub(crate) t0: Column<Time>,
    pub(crate) t1: Column<Time>,
    pub(crate) covered: Column<Dur>,
    pub(crate) longest: Column<Dur>,
    pub(crate) index: Column<u32>,
    pub(crate) count: Column<u32>,
}

impl Level {
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
