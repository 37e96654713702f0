//! Finished columns of one track: slices, instants and samples.

use stepscope_model::{Dur, NameId, Time};

use crate::columns::column::{ArgColumn, Column, Uniform};
use crate::columns::level::Level;
use crate::columns::max_end_index::MaxEndIndex;

/// Maximum time by which a child may exceed its parent and still be drawn within it.
pub(crate) const TOLERANCE: Dur = Dur::from_ps(1_000);

/// Parent of a slice that no other slice encloses.
pub(crate) const TOP: u32 = u32::MAX;

/// Slices of one track, sorted by (start, longest first).
#[derive(Clone, Debug)]
pub(crate) struct SliceTable {
    pub(crate) start: Column<Time>,
    pub(crate) dur: Column<Dur>,
    pub(crate) name: Column<NameId>,
    pub(crate) category: Uniform<NameId>,
    pub(crate) depth: Column<u16>,
    pub(crate) parent: Column<u32>,
    /// Empty when every row equals its depth.
    pub(crate) row: Column<u16>,
    pub(crate) args: ArgColumn,
    pub(crate) flags: Uniform<u8>,
    /// Positions of step markers, ascending.
    pub(crate) step_at: Column<u32>,
    pub(crate) step_number: Column<i64>,
    /// See [`max_end_index`](crate::columns::max_end_index).
    pub(crate) max_end: Column<Time>,
    /// Levels of detail, finest first.
    pub(crate) levels: Vec<Level>,
}

impl SliceTable {
    pub(crate) fn open(&self) -> MaxEndIndex<'_> {
        MaxEndIndex {
            tree: &self.max_end,
            start: &self.start,
            dur: &self.dur,
        }
    }

    pub(crate) fn end(&self, index: usize) -> Time {
        match (self.start.get(index), self.dur.get(index)) {
            (Some(start), Some(dur)) => start.saturating_add(*dur),
            _ => Time::MIN,
        }
    }

    /// Returns the number of slices that begin before `end`.
    pub(crate) fn begun_before(&self, end: Time) -> usize {
        self.start.partition_point(|start| *start < end)
    }

    /// Returns the display row of each slice.
    pub(crate) fn rows(&self) -> &[u16] {
        if self.row.is_empty() {
            &self.depth
        } else {
            &self.row
        }
    }

    pub(crate) fn row(&self, index: usize) -> u16 {
        self.rows().get(index).copied().unwrap_or(0)
    }

    /// Returns the enclosing slice. In a damaged image the index may be arbitrary; callers use
    /// `get`.
    pub(crate) fn parent(&self, index: usize) -> Option<usize> {
        self.parent
            .get(index)
            .filter(|parent| **parent != TOP)
            .map(|parent| *parent as usize)
    }

    pub(crate) fn step(&self, index: usize) -> Option<i64> {
        let index = u32::try_from(index).ok()?;
        let found = self.step_at.binary_search(&index).ok()?;
        self.step_number.get(found).copied()
    }

    fn heap_bytes(&self) -> usize {
        self.start.heap_bytes()
            + self.dur.heap_bytes()
            + self.name.heap_bytes()
            + self.category.heap_bytes()
            + self.depth.heap_bytes()
            + self.parent.heap_bytes()
            + self.row.heap_bytes()
            + self.args.heap_bytes()
            + self.flags.heap_bytes()
            + self.step_at.heap_bytes()
            + self.step_number.heap_bytes()
            + self.max_end.heap_bytes()
            + self.levels.iter().map(Level::heap_bytes).sum::<usize>()
    }
}

impl Default for SliceTable {
    fn default() -> Self {
        Self {
            start: Column::default(),
            dur: Column::default(),
            name: Column::default(),
            category: Uniform::One(NameId::EMPTY),
            depth: Column::default(),
            parent: Column::default(),
            row: Column::default(),
            args: ArgColumn::None,
            flags: Uniform::One(0),
            step_at: Column::default(),
            step_number: Column::default(),
            max_end: Column::default(),
            levels: Vec::new(),
        }
    }
}

/// Instants of one track, sorted by time.
#[derive(Clone, Debug)]
pub(crate) struct InstantTable {
    pub(crate) at: Column<Time>,
    pub(crate) name: Column<NameId>,
    pub(crate) category: Uniform<NameId>,
    pub(crate) args: ArgColumn,
}

/// Samples of one counter, sorted by time.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleTable {
    pub(crate) at: Column<Time>,
    pub(crate) value: Column<f64>,
}

/// Events of one track.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrackTable {
    pub(crate) slices: SliceTable,
    pub(crate) instants: Option<Box<InstantTable>>,
    pub(crate) samples: Option<Box<SampleTable>>,
}

impl TrackTable {
    pub(crate) fn heap_bytes(&self) -> usize {
        let instants = self.instants.as_ref().map_or(0, |table| {
            table.at.heap_bytes()
                + table.name.heap_bytes()
                + table.category.heap_bytes()
                + table.args.heap_bytes()
        });
        let samples = self
            .samples
            .as_ref()
            .map_or(0, |table| table.at.heap_bytes() + table.value.heap_bytes());
        self.slices.heap_bytes() + instants + samples
    }
}
