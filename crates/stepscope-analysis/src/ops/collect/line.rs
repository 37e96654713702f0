//! Tracks whose slices are summed up.

use std::ops::Range;
use std::sync::OnceLock;

use stepscope_model::{Dur, NameId, Time};
use stepscope_store::{Slices, Trace, Track};

use super::NONE;
use crate::device::is_clocked;
use crate::ops::class;

/// A track that can contain the class.
pub(super) struct Line<'a> {
    pub(super) track: &'a Track,
    pub(super) slices: Slices<'a>,
    /// Slices that may lie in the window.
    pub(super) whole: Range<usize>,
    /// Whether its slices have durations by the device's own clock.
    pub(super) clocked: bool,
    /// See [`Line::first`].
    firsts: OnceLock<Vec<u32>>,
}

impl<'a> Line<'a> {
    /// Looks up the slices of a track that may lie in the window.
    pub(super) fn new(trace: &'a Trace, track: &'a Track, window: Range<Time>) -> Self {
        Self {
            track,
            slices: trace.slices(track.id),
            whole: trace.candidates(track.id, window),
            clocked: class::is_xla_ops(track) && is_clocked(trace, track.id),
            firsts: OnceLock::new(),
        }
    }

    /// Returns whether slices of it overlap without nesting: the parent is then searched only among the
    /// operations, see [`Nest::open`](super::nest::Nest::open).
    pub(super) fn overlaps(&self) -> bool {
        self.track.overflow_rows > 0
    }

    /// Lists the slices that started before the slice `from` and are still open when that starts.
    pub(super) fn open_at(&self, trace: &Trace, from: usize) -> Vec<usize> {
        let Some(start) = self.slices.start.get(from).copied() else {
            return Vec::new();
        };
        let start_range = start..start.saturating_add(Dur::from_ps(1));
        let first = trace.candidates(self.track.id, start_range).start;
        (first.max(self.whole.start)..from)
            .filter(|index| self.slices.end(*index) > start)
            .collect()
    }

    /// Returns the first slice of a name without a category.
    pub(super) fn first(&self, names: usize, name: NameId) -> Option<usize> {
        let firsts = self.firsts.get_or_init(|| {
            let mut firsts = vec![NONE; names];
            for index in self.whole.clone().rev() {
                if self.slices.category.get(index) == NameId::EMPTY
                    && let Some(first) = firsts.get_mut(self.slices.name[index].index())
                {
                    *first = u32::try_from(index).unwrap_or(NONE);
                }
            }
            firsts
        });
        let first = *firsts.get(name.index())?;
        (first != NONE).then_some(first as usize)
    }
}
