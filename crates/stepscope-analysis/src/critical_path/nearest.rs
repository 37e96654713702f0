//! The innermost slice of some kind around each slice of the host threads, and around the launch of device work.

use stepscope_model::TrackId;

use super::CriticalPath;
use super::graph::{NONE, index};

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
            let slices = path.trace.slices(queue.track);
            let mut nearest: Vec<u32> = Vec::with_capacity(slices.len());
            for (slice, parent) in slices.parent.iter().enumerate() {
                // Parents come before their children.
                let around = nearest.get(*parent as usize).copied().unwrap_or(NONE);
                nearest.push(if is_kind(queue.track, slice) {
                    index(slice)
                } else {
                    around
                });
            }
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
        let (track, slice) = path.segments.slice_of(segment)?;
        let (track, slice) = if path.graph().on_device(segment) {
            path.trace
                .place_of_slice(path.launches.get(track, slice)?)?
        } else {
            (track, slice)
        };
        let queue = path.segments.queue_of(track)?;
        let found = *self.queues.get(queue)?.get(slice)?;
        (found != NONE).then_some((track, found as usize))
    }

    /// Returns whether a slice is around a segment.
    #[inline]
    pub(super) fn has(&self, path: &CriticalPath<'_>, segment: usize) -> bool {
        !self.is_empty && self.get(path, segment).is_some()
    }
}
