//! Segments of threads and device queues: the pieces of time of the innermost open slice.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use stepscope_model::{Cancelled, Time, TrackId, TrackKind};
use stepscope_store::Trace;

use super::graph::{Graph, NONE, QueueSegments, SegmentKind, index};
use crate::device::{Devices, Work};
use crate::parallel::{self, Cancel};
use crate::run_profile::is_of_program;

/// A thread or a device queue of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathQueue {
    /// Its track.
    pub track: TrackId,
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Index into [`Devices::list`]; `None` for a thread.
    pub device: Option<usize>,
    /// Added to the times of the file, picoseconds.
    pub shift: i64,
    /// Whether its work is in flight beside that of another queue of the device: it overlaps.
    pub in_flight: bool,
    /// Whether the time without a slice is host time, because the thread marks the steps.
    pub marks_steps: bool,
}

/// Segments of a trace with the queues that they lie on.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// The graph, without edges.
    pub graph: Graph,
    /// Queues in the order of the graph's.
    pub queues: Vec<PathQueue>,
    /// Index of the slice of each segment on its track; `NONE` where nothing is recorded.
    pub slice: Vec<u32>,
    /// Queue of each track, or `NONE`.
    by_track: Vec<u32>,
}

/// Segments of one queue.
#[derive(Default)]
struct QueueColumns {
    begin: Vec<i64>,
    end: Vec<i64>,
    slice: Vec<u32>,
    kind: Vec<SegmentKind>,
}

impl QueueColumns {
    fn push(&mut self, begin: i64, end: i64, slice: u32, kind: SegmentKind) {
        if begin < end {
            self.begin.push(begin);
            self.end.push(end);
            self.slice.push(slice);
            self.kind.push(kind);
        }
    }
}

/// Lists the threads of the program and the device queues with work in these files.
pub(super) fn queues(
    trace: &Trace,
    devices: &Devices<'_>,
    has_file: impl Fn(usize) -> bool,
    shift: impl Fn(usize) -> i64,
    marks_steps: impl Fn(TrackId) -> bool,
) -> Vec<PathQueue> {
    let by_track = devices.by_track();
    let mut found = Vec::new();
    for track in trace.tracks() {
        if track.derived || track.slices == 0 || !has_file(track.file) {
            continue;
        }
        let device = by_track.get(&track.id).copied();
        let is_thread = track.kind == TrackKind::Thread && is_of_program(trace, track);
        if !is_thread && device.is_none() {
            continue;
        }
        found.push(PathQueue {
            track: track.id,
            file: track.file,
            device,
            shift: shift(track.file),
            in_flight: devices.is_in_flight(track.id),
            marks_steps: is_thread && marks_steps(track.id),
        });
    }
    found
}

/// Flattens the slices of the queues that lie in the window, picoseconds on the shifted clock.
pub(super) fn flatten(
    trace: &Trace,
    devices: &Devices<'_>,
    queues: Vec<PathQueue>,
    window: &Range<i64>,
    cancel: &Cancel,
) -> Result<Segments, Cancelled> {
    let size = queues
        .iter()
        .map(|queue| trace.slices(queue.track).len())
        .sum();
    let jobs: Vec<usize> = (0..queues.len()).collect();
    let parts = parallel::scan_items(&jobs, size, cancel, Vec::new, |out, job| {
        out.push((*job, columns(trace, devices, &queues[*job], window)));
    })?;
    let mut parts: Vec<(usize, QueueColumns)> = parts.into_iter().flatten().collect();
    parts.sort_unstable_by_key(|(queue, _)| *queue);
    let mut found = Segments {
        by_track: vec![NONE; trace.tracks().len()],
        ..Segments::default()
    };
    let graph = &mut found.graph;
    for (queue, columns) in parts {
        let first = index(graph.begin.len());
        graph.begin.extend_from_slice(&columns.begin);
        graph.end.extend_from_slice(&columns.end);
        graph.kind.extend_from_slice(&columns.kind);
        graph.queue.resize(graph.begin.len(), index(queue));
        found.slice.extend_from_slice(&columns.slice);
        graph.queues.push(QueueSegments {
            first,
            end: index(graph.begin.len()),
            device: queues[queue].device.map_or(NONE, index),
            is_ordered: !queues[queue].in_flight,
        });
        if let Some(slot) = found.by_track.get_mut(queues[queue].track.index()) {
            *slot = index(queue);
        }
    }
    found.queues = queues;
    Ok(found)
}

fn kind_of(work: Work) -> SegmentKind {
    match work {
        Work::Compute => SegmentKind::Compute,
        Work::Communication => SegmentKind::Communication,
        Work::Memcpy | Work::Memset => SegmentKind::Copy,
    }
}

fn columns(
    trace: &Trace,
    devices: &Devices<'_>,
    queue: &PathQueue,
    window: &Range<i64>,
) -> QueueColumns {
    let slices = trace.slices(queue.track);
    let on_file = |ps: i64| Time::from_ps(ps.saturating_sub(queue.shift));
    let range = on_file(window.start)..on_file(window.end);
    let mut found = QueueColumns::default();
    let mut open: Vec<(u32, i64, SegmentKind)> = Vec::new();
    let mut time = window.start;
    let idle_from = |found: &mut QueueColumns, from: i64, to: i64| {
        if queue.marks_steps {
            found.push(from, to, NONE, SegmentKind::Host);
        }
    };
    for slice in trace.candidates(queue.track, range) {
        let start = slices.start[slice].ps().saturating_add(queue.shift);
        let end = slices.end(slice).ps().saturating_add(queue.shift);
        if end <= window.start || end <= start {
            continue;
        }
        let kind = if queue.device.is_some() {
            match devices.work(queue.track, slice) {
                Some(work) => kind_of(work),
                None => continue,
            }
        } else {
            SegmentKind::Host
        };
        if queue.in_flight {
            found.push(start.max(window.start), end, index(slice), kind);
            continue;
        }
        // Close what ends before this slice starts.
        while let Some((inner, until, inner_kind)) = open.last().copied() {
            if until > start {
                break;
            }
            if until > time {
                found.push(time, until, inner, inner_kind);
                time = until;
            }
            open.pop();
        }
        let start = start.max(time);
        match open.last() {
            Some((inner, _, inner_kind)) => found.push(time, start, *inner, *inner_kind),
            None => idle_from(&mut found, time, start),
        }
        time = start;
        open.push((index(slice), end, kind));
    }
    while let Some((inner, until, kind)) = open.pop() {
        if until > time {
            found.push(time, until, inner, kind);
            time = until;
        }
    }
    if queue.marks_steps {
        idle_from(&mut found, time, window.end);
        while found.begin.last().is_some_and(|begin| *begin >= window.end) {
            found.begin.pop();
            found.end.pop();
            found.slice.pop();
            found.kind.pop();
        }
        if let Some(end) = found.end.last_mut() {
            *end = (*end).min(window.end);
        }
    }
    found
}

impl Segments {
    /// Returns the queue of a track.
    pub fn queue_of(&self, track: TrackId) -> Option<usize> {
        let queue = *self.by_track.get(track.index())?;
        (queue != NONE).then_some(queue as usize)
    }

    /// Returns the segment that begins with a slice that starts at this time on its file's clock.
    pub(super) fn starting_at(&self, queue: usize, start: Time) -> Option<u32> {
        let shift = self.queues.get(queue)?.shift;
        let start = start.ps().saturating_add(shift);
        let range = self.graph.queues.get(queue)?;
        let begin = self
            .graph
            .begin
            .get(range.first as usize..range.end as usize)?;
        let position = begin.partition_point(|begin| *begin < start);
        (begin.get(position) == Some(&start)).then(|| range.first + index(position))
    }

    /// Returns the segment that ends with a slice that ends at this time on its file's clock.
    pub(super) fn ending_at(&self, queue: usize, end: Time) -> Option<u32> {
        let shift = self.queues.get(queue)?.shift;
        let end = end.ps().saturating_add(shift);
        let (segment, anchor) = self.graph.locate(queue, end)?;
        (anchor == end && self.graph.end[segment as usize] == end).then_some(segment)
    }

    /// Returns the track of a segment, and the index of its slice there.
    pub fn slice_of(&self, segment: usize) -> Option<(TrackId, usize)> {
        let slice = *self.slice.get(segment)?;
        let queue = self.queues.get(*self.graph.queue.get(segment)? as usize)?;
        (slice != NONE).then_some((queue.track, slice as usize))
    }
}
