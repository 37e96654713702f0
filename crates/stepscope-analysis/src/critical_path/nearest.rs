//! The innermost slice of some kind around each slice of the host threads, and around the launch of device work.

use std::ops::Range;

use stepscope_model::TrackId;
use stepscope_store::Trace;

use super::CriticalPath;
use super::graph::{NONE, index};
use super::queues::PathQueue;

/// For each slice of the host threads of a graph, the innermost slice of some kind that is or encloses it.
pub(super) struct Nearest {
    /// By queue; empty for devices, and for threads without such slices.
    queues: Vec<Vec<u32>>,
    is_empty: bool,
}

impl Nearest {
    /// Finds the slices for which `is_kind` holds, and assigns them to those inside. One pass over the threads.
    pub(super) fn new(
        path: &CriticalPath<'_>,
        mut is_kind: impl FnMut(TrackId, usize) -> bool,
    ) -> Self {
        let queues = path.segments.queues.iter().map(|queue| {
            if queue.device.is_some() {
                return Vec::new();
            }
            let mut nearest = match queue.rows.as_slice() {
                [row] => on_row(path.trace, row.track, &mut is_kind),
                _ => on_rows(path.trace, queue, &mut is_kind),
            };
            if nearest.iter().all(|slice| *slice == NONE) {
                nearest.clear();
            }
            nearest
        });
        let queues: Vec<Vec<u32>> = queues.collect();
        Self {
            is_empty: queues.iter().all(Vec::is_empty),
            queues,
        }
    }

    /// Returns that no slice is of the kind.
    pub(super) const fn none() -> Self {
        Self {
            queues: Vec::new(),
            is_empty: true,
        }
    }

    /// Returns the slice around a segment: of a host thread itself, of device work around its launch.
    pub(super) fn get(&self, path: &CriticalPath<'_>, segment: usize) -> Option<(TrackId, usize)> {
        let (queue, found) = self.number(path, segment)?;
        Some(path.segments.queues[queue].slice_on_track(found))
    }

    /// Returns the slice around a segment: its queue, and its number there.
    #[inline]
    fn number(&self, path: &CriticalPath<'_>, segment: usize) -> Option<(usize, u32)> {
        let segments = &path.segments;
        let (queue, slice) = if path.graph().on_device(segment) {
            let (track, slice) = segments.slice_of(segment)?;
            let launch = path.launches.get(track, slice)?;
            let (track, slice) = path.trace.place_of_slice(launch)?;
            segments.number_of(track, slice)?
        } else {
            let queue = *path.graph().queue.get(segment)? as usize;
            (queue, *segments.slice.get(segment)?)
        };
        // `NONE` is past the end of every queue.
        let found = *self.queues.get(queue)?.get(slice as usize)?;
        (found != NONE).then_some((queue, found))
    }

    /// Returns whether a slice is around a segment.
    #[inline]
    pub(super) fn has(&self, path: &CriticalPath<'_>, segment: usize) -> bool {
        !self.is_empty && self.number(path, segment).is_some()
    }
}

/// Finds the slice of some kind around each slice of a row.
fn on_row(
    trace: &Trace,
    track: TrackId,
    is_kind: &mut impl FnMut(TrackId, usize) -> bool,
) -> Vec<u32> {
    let slices = trace.slices(track);
    let mut nearest: Vec<u32> = Vec::with_capacity(slices.len());
    for (slice, parent) in slices.parent.iter().enumerate() {
        // Parents come before their children.
        let around = nearest.get(*parent as usize).copied().unwrap_or(NONE);
        nearest.push(if is_kind(track, slice) {
            index(slice)
        } else {
            around
        });
    }
    nearest
}

/// Finds the slice of some kind around each slice of a thread of several rows.
fn on_rows(
    trace: &Trace,
    queue: &PathQueue,
    is_kind: &mut impl FnMut(TrackId, usize) -> bool,
) -> Vec<u32> {
    let tracks = queue.rows.iter().map(|row| row.track);
    let all: Vec<_> = tracks.map(|track| 0..trace.slices(track).len()).collect();
    let mut nearest = vec![NONE; all.iter().map(Range::len).sum()];
    // Slices of the kind. Those of several rows need not nest: one that has ended may lie below an open one.
    let mut open = Vec::new();
    queue.visit(trace, &all, |slice| {
        while open.pop_if(|(until, _)| *until <= slice.start).is_some() {}
        if is_kind(slice.track, slice.index) {
            open.push((slice.end, slice.number));
        }
        nearest[slice.number as usize] = open.last().map_or(NONE, |(_, number)| *number);
    });
    nearest
}
