//! Segments of threads and device queues: the pieces of time of the innermost open slice.

use std::ops::Range;

use stepscope_model::{Time, TrackId};
use stepscope_store::{EventId, Trace};

use super::graph::{DependencyGraph, NONE, index};
use super::queues::PathQueue;
use crate::parallel;

/// Segments of a trace with the queues that they lie on.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// The graph, without edges.
    pub graph: DependencyGraph,
    /// Queues in the order of the graph's.
    pub queues: Vec<PathQueue>,
    /// Number of the slice of each segment in its queue; `NONE` where nothing is recorded.
    pub slice: Vec<u32>,
    /// Queue of each track, or `NONE`.
    pub(super) by_track: Vec<u32>,
}

impl Segments {
    /// Splits the segments of some queues into chunks, in their order; returns also the number of segments.
    pub(super) fn chunks(
        &self,
        is_wanted: impl Fn(&PathQueue) -> bool,
    ) -> (Vec<Range<u32>>, usize) {
        let queues = self.queues.iter().zip(&self.graph.queues);
        let wanted = queues.filter(|(queue, _)| is_wanted(queue));
        let chunk = index(parallel::CHUNK_LEN);
        let chunks = wanted.flat_map(|(_, range)| {
            let starts = (range.first..range.end).step_by(parallel::CHUNK_LEN);
            starts.map(move |first| first..range.end.min(first.saturating_add(chunk)))
        });
        let chunks: Vec<Range<u32>> = chunks.collect();
        let size = chunks.iter().map(Range::len).sum();
        (chunks, size)
    }

    /// Returns the queue of a track.
    pub fn queue_of(&self, track: TrackId) -> Option<usize> {
        let queue = *self.by_track.get(track.index())?;
        (queue != NONE).then_some(queue as usize)
    }

    /// Returns the segment that begins with a slice that starts at this time on its file's clock. `near` stores where
    /// the last search ended, which shortens the next one.
    pub(super) fn starting_at(&self, queue: usize, start: Time, near: &mut usize) -> Option<u32> {
        let shift = self.queues.get(queue)?.shift;
        let start = start.ps().saturating_add(shift);
        let (before, begin) = self.graph.begun_before(queue, start, near)?;
        let range = self.graph.queues.get(queue)?;
        (begin.get(before) == Some(&start)).then(|| range.first + index(before))
    }

    /// Returns the segment that ends with a slice that ends at this time on its file's clock.
    pub(super) fn ending_at(&self, queue: usize, end: Time) -> Option<u32> {
        let shift = self.queues.get(queue)?.shift;
        let end = end.ps().saturating_add(shift);
        let (segment, anchor) = self.graph.locate(queue, end)?;
        (anchor == end && self.graph.end[segment as usize] == end).then_some(segment)
    }

    /// Returns the segments of a slice, and of the slices inside, given its times on its file's clock. `None` if other
    /// slices cover its start or end.
    pub(super) fn of_slice(
        &self,
        trace: &Trace,
        slice: EventId,
        times: Range<Time>,
    ) -> Option<Range<u32>> {
        let queue = self.queue_of(trace.track_of(slice)?)?;
        let first = self.starting_at(queue, times.start, &mut 0)?;
        let last = self.ending_at(queue, times.end)?;
        Some(first..last + 1)
    }

    /// Returns the slice of a segment.
    pub fn event(&self, trace: &Trace, segment: usize) -> Option<EventId> {
        let (track, slice) = self.slice_of(segment)?;
        Some(trace.slices(track).id(slice))
    }

    /// Returns the track of a segment, and the index of its slice there.
    pub fn slice_of(&self, segment: usize) -> Option<(TrackId, usize)> {
        let slice = *self.slice.get(segment)?;
        let queue = self.queues.get(*self.graph.queue.get(segment)? as usize)?;
        (slice != NONE).then(|| queue.slice_on_track(slice))
    }

    /// Returns the queue of a slice of a track, and the number of the slice there.
    pub(super) fn number_of(&self, track: TrackId, slice: usize) -> Option<(usize, u32)> {
        let queue = self.queue_of(track)?;
        let number = self.queues[queue].number(track, slice)?;
        Some((queue, number))
    }
}
