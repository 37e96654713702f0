//! Segments of threads and device queues: the pieces of time of the innermost open slice.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashSet;
use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{Cancelled, Time, TrackId};
use stepscope_store::{EventId, Trace, pages};

use super::graph::{Graph, NONE, QueueSegments, SegmentKind, index};
use super::queues::{PathQueue, QueueSlice};
use crate::device::{Devices, Work};
use crate::parallel::{self, Cancel};

/// Segments of a trace with the queues that they lie on.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// The graph, without edges.
    pub graph: Graph,
    /// Queues in the order of the graph's.
    pub queues: Vec<PathQueue>,
    /// Number of the slice of each segment in its queue; `NONE` where nothing is recorded.
    pub slice: Vec<u32>,
    /// Queue of each track, or `NONE`.
    by_track: Vec<u32>,
}

/// Number of slices in one job: a millisecond or two.
const JOB_SLICES: usize = 1 << 16;

/// Slices of a queue that one thread flattens: whole slices of the outermost level with all slices inside.
struct Job {
    queue: usize,
    /// The slices of each row.
    slices: Vec<Range<usize>>,
}

/// Number and times of the segments of a job.
#[derive(Clone, Copy, Default)]
struct Extent {
    /// Number of segments.
    count: usize,
    /// Start of the first segment, and end of the last one.
    begin: i64,
    end: i64,
}

/// Takes the segments of a queue in order of time.
trait SegmentSink {
    fn push(&mut self, begin: i64, end: i64, slice: u32, kind: SegmentKind);
}

impl SegmentSink for Extent {
    fn push(&mut self, begin: i64, end: i64, _: u32, _: SegmentKind) {
        if self.count == 0 {
            self.begin = begin;
        }
        self.count += 1;
        self.end = end;
    }
}

/// The columns of a range of segments, filled from the start.
struct Columns<'a> {
    begin: &'a mut [i64],
    end: &'a mut [i64],
    slice: &'a mut [u32],
    kind: &'a mut [SegmentKind],
    queue: &'a mut [u32],
    /// Queue of all segments.
    number: u32,
    filled: usize,
}

impl SegmentSink for Columns<'_> {
    fn push(&mut self, begin: i64, end: i64, slice: u32, kind: SegmentKind) {
        let at = self.filled;
        if let (Some(to_begin), Some(to_end), Some(to_slice), Some(to_kind), Some(to_queue)) = (
            self.begin.get_mut(at),
            self.end.get_mut(at),
            self.slice.get_mut(at),
            self.kind.get_mut(at),
            self.queue.get_mut(at),
        ) {
            *to_begin = begin;
            *to_end = end;
            *to_slice = slice;
            *to_kind = kind;
            *to_queue = self.number;
            self.filled += 1;
        }
    }
}

impl Columns<'_> {
    /// Takes the first `count` segments, those of a queue, out of the columns.
    fn split_off(&mut self, count: usize, queue: usize) -> Self {
        Self {
            begin: self.begin.split_off_mut(..count).unwrap_or_default(),
            end: self.end.split_off_mut(..count).unwrap_or_default(),
            slice: self.slice.split_off_mut(..count).unwrap_or_default(),
            kind: self.kind.split_off_mut(..count).unwrap_or_default(),
            queue: self.queue.split_off_mut(..count).unwrap_or_default(),
            number: index(queue),
            filled: 0,
        }
    }
}

/// Flattens the slices of the queues that lie in the window, picoseconds on the shifted clock: one pass that counts
/// the segments, and one that writes them to their columns.
pub(super) fn flatten(
    trace: &Trace,
    devices: &Devices<'_>,
    queues: Vec<PathQueue>,
    window: &Range<i64>,
    step_markers: &FxHashSet<EventId>,
    cancel: &Cancel,
) -> Result<Segments, Cancelled> {
    let jobs = jobs(trace, &queues, window);
    let size = jobs
        .iter()
        .flat_map(|job| &job.slices)
        .map(Range::len)
        .sum();
    let flattening = |job: &Job| Flattening {
        trace,
        devices,
        queue: &queues[job.queue],
        window,
        step_markers,
    };
    let counted = parallel::scan_items(&jobs, size, cancel, Vec::new, |out, job| {
        let mut extent = Extent::default();
        flattening(job).run(&job.slices, &mut extent);
        out.push((job.queue, job.slices[0].start, extent));
    })?;
    let mut counted: Vec<_> = counted.into_iter().flatten().collect();
    counted.sort_unstable_by_key(|(queue, start, _)| (*queue, *start));
    let extents: Vec<Extent> = counted.into_iter().map(|(_, _, extent)| extent).collect();

    let mut found = Segments {
        by_track: vec![NONE; trace.tracks().len()],
        ..Segments::default()
    };
    let ranges = place(&queues, &jobs, &extents, window);
    let mut counts = vec![0; queues.len()];
    for range in &ranges {
        counts[range.queue] += range.count;
    }
    let mut first = 0;
    for ((number, queue), count) in queues.iter().enumerate().zip(counts) {
        found.graph.queues.push(QueueSegments {
            first: index(first),
            end: index(first + count),
            device: queue.device.map_or(NONE, index),
            is_ordered: !queue.in_flight,
        });
        first += count;
        for track in queue.tracks() {
            if let Some(slot) = found.by_track.get_mut(track.index()) {
                *slot = index(number);
            }
        }
    }
    let graph = &mut found.graph;
    graph.begin = pages::zeroed(first);
    graph.end = pages::zeroed(first);
    graph.kind = pages::filled(SegmentKind::Host, first);
    graph.queue = pages::zeroed(first);
    found.slice = pages::zeroed(first);
    let mut rest = Columns {
        begin: &mut graph.begin,
        end: &mut graph.end,
        slice: &mut found.slice,
        kind: &mut graph.kind,
        queue: &mut graph.queue,
        number: NONE,
        filled: 0,
    };
    let mut work = Vec::with_capacity(jobs.len());
    for range in &ranges {
        let mut columns = rest.split_off(range.count, range.queue);
        match &range.content {
            Content::Nothing(time) => columns.push(time.start, time.end, NONE, SegmentKind::Host),
            Content::Job(job) => work.push((&jobs[*job], Mutex::new(columns))),
        }
    }
    parallel::scan_items(
        &work,
        size,
        cancel,
        || (),
        |(), (job, columns)| {
            let mut columns = columns.lock().unwrap_or_else(PoisonError::into_inner);
            flattening(job).run(&job.slices, &mut *columns);
        },
    )?;
    drop(work);
    found.queues = queues;
    Ok(found)
}

/// Splits the slices of the queues that may lie in the window into jobs, in the order of the queues and of time. A
/// thread of several rows is one job.
fn jobs(trace: &Trace, queues: &[PathQueue], window: &Range<i64>) -> Vec<Job> {
    let mut found = Vec::new();
    for (number, queue) in queues.iter().enumerate() {
        let on_file = |ps: i64| Time::from_ps(ps.saturating_sub(queue.shift));
        let mut rows = queue
            .tracks()
            .map(|track| trace.candidates(track, on_file(window.start)..on_file(window.end)));
        let all = rows.next().unwrap_or_default();
        let others: Vec<Range<usize>> = rows.collect();
        if !others.is_empty() {
            found.push(Job {
                queue: number,
                slices: std::iter::once(all).chain(others).collect(),
            });
            continue;
        }
        let mut start = all.start;
        while start < all.end {
            let mut end = (start + JOB_SLICES).min(all.end);
            // Slices in flight may end in other jobs.
            if end < all.end && !queue.in_flight {
                end = gap_after(trace, queue.track(), end, all.end);
            }
            found.push(Job {
                queue: number,
                slices: std::iter::once(start..end).collect(),
            });
            start = end;
        }
    }
    found
}

/// Maximum number of steps of a search for a gap.
const MAX_SEARCH: usize = 1 << 12;

/// Returns the first slice from `slice` on, and below `end`, at whose start no earlier slice is open; `end` if the
/// search finds none.
fn gap_after(trace: &Trace, track: TrackId, mut slice: usize, end: usize) -> usize {
    let slices = trace.slices(track);
    for _ in 0..MAX_SEARCH {
        let Some(start) = slices.start[..end].get(slice).copied() else {
            return end;
        };
        let open = trace.candidates(track, start..start).start;
        if open >= slice {
            return slice;
        }
        // No gap begins before the open slice ends.
        let until = slices.end(open);
        let passed = slices.start[slice..end].partition_point(|start| *start < until);
        slice += passed.max(1);
    }
    end
}

/// Consecutive segments: those of a job, or time without a slice.
struct SegmentRange {
    queue: usize,
    count: usize,
    content: Content,
}

enum Content {
    /// Index of a job.
    Job(usize),
    /// The time.
    Nothing(Range<i64>),
}

/// Lists the segments of all queues in their order, given the extents of the jobs.
fn place(
    queues: &[PathQueue],
    jobs: &[Job],
    extents: &[Extent],
    window: &Range<i64>,
) -> Vec<SegmentRange> {
    let mut found = Vec::with_capacity(jobs.len());
    let mut of_jobs = jobs.iter().zip(extents).enumerate().peekable();
    for (number, queue) in queues.iter().enumerate() {
        let mut time = window.start;
        let mut idle_until = |found: &mut Vec<SegmentRange>, begin: i64, end: i64| {
            if queue.marks_steps && time < begin {
                found.push(SegmentRange {
                    queue: number,
                    count: 1,
                    content: Content::Nothing(time..begin),
                });
            }
            time = end;
        };
        while let Some((job, (_, extent))) = of_jobs.next_if(|(_, (job, _))| job.queue == number) {
            if extent.count > 0 {
                idle_until(&mut found, extent.begin, extent.end);
                found.push(SegmentRange {
                    queue: number,
                    count: extent.count,
                    content: Content::Job(job),
                });
            }
        }
        idle_until(&mut found, window.end, window.end);
    }
    found
}

fn kind_of(work: Work) -> SegmentKind {
    match work {
        Work::Compute => SegmentKind::Compute,
        Work::Communication => SegmentKind::Communication,
        Work::Memcpy | Work::Memset => SegmentKind::Copy,
    }
}

/// Flattens slices of one queue.
struct Flattening<'a> {
    trace: &'a Trace,
    devices: &'a Devices<'a>,
    queue: &'a PathQueue,
    window: &'a Range<i64>,
    /// The slices that mark steps.
    step_markers: &'a FxHashSet<EventId>,
}

impl Flattening<'_> {
    fn run<S: SegmentSink>(&self, ranges: &[Range<usize>], sink: &mut S) {
        let (queue, window) = (self.queue, self.window);
        let has_samples = queue.rows.iter().any(|row| row.is_sampled);
        let mut push = |begin: i64, end: i64, slice: u32, kind: SegmentKind| {
            // The thread of the steps ends with the window.
            let end = if queue.marks_steps {
                end.min(window.end)
            } else {
                end
            };
            if begin < end {
                sink.push(begin, end, slice, kind);
            }
        };
        let mut open: Vec<(u32, i64, SegmentKind)> = Vec::new();
        let mut time = None;
        queue.visit(self.trace, ranges, |slice| {
            let start = slice.start.ps().saturating_add(queue.shift);
            let end = slice.end.ps().saturating_add(queue.shift);
            if end <= window.start || end <= start {
                return;
            }
            let kind = if queue.device.is_some() {
                match self.devices.work(slice.track, slice.index) {
                    Some(work) => kind_of(work),
                    None => return,
                }
            } else {
                SegmentKind::Host
            };
            if queue.in_flight {
                push(start.max(window.start), end, slice.number, kind);
                return;
            }
            let mut now = time.unwrap_or_else(|| start.max(window.start));
            // Close what ends before this slice starts.
            while let Some((inner, until, inner_kind)) = open.last().copied() {
                if until > start {
                    break;
                }
                if until > now {
                    push(now, until, inner, inner_kind);
                    now = until;
                }
                open.pop();
            }
            let inside = if has_samples {
                self.begun_inside(&slice, &open)
            } else {
                0
            };
            if inside > 0 {
                open.insert(open.len() - inside, (slice.number, end, kind));
                time = Some(now);
                return;
            }
            let start = start.max(now);
            match open.last() {
                Some((inner, _, inner_kind)) => push(now, start, *inner, *inner_kind),
                None if queue.marks_steps => push(now, start, NONE, SegmentKind::Host),
                None => {}
            }
            time = Some(start);
            open.push((slice.number, end, kind));
        });
        let Some(mut now) = time else {
            return;
        };
        while let Some((inner, until, kind)) = open.pop() {
            if until > now {
                push(now, until, inner, kind);
                now = until;
            }
        }
    }
}

/// Maximum number of open slices that another one is put around: bounds its cost where slices have no end.
const MAX_INSIDE: usize = 256;

impl Flattening<'_> {
    /// Counts the innermost open slices that lie inside a slice although they began before it. The times of sampled
    /// frames are those of the samples: calls and operators lie inside a frame, and frames inside a step. Without
    /// sampled rows there are none.
    fn begun_inside(&self, slice: &QueueSlice, open: &[(u32, i64, SegmentKind)]) -> usize {
        let is_marker = || {
            let id = self.trace.slices(slice.track).id(slice.index);
            self.step_markers.contains(&id)
        };
        let holds_frames = !slice.is_sampled;
        if holds_frames && !is_marker() {
            return 0;
        }
        let innermost = open.iter().rev().take(MAX_INSIDE);
        let inside = innermost.take_while(|(number, ..)| {
            let (row, at) = self.queue.locate(*number);
            let row = &self.queue.rows[row];
            if row.is_sampled {
                holds_frames
            } else {
                is_call(self.trace, row.track, at)
            }
        });
        inside.count()
    }
}

/// Returns whether a slice is an operator or call of a framework.
fn is_call(trace: &Trace, track: TrackId, slice: usize) -> bool {
    let category = trace.slices(track).category.get(slice);
    matches!(
        Category::from_name(trace.name(category)),
        Some(
            Category::Operator | Category::RuntimeCall | Category::Overhead | Category::DeviceSync
        )
    )
}

impl Segments {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_model::{Dur, EventSink as _, SliceIn, Time, TrackKind, TrackPatch};
    use stepscope_store::{FileSpec, Trace, TraceBuilder};

    use super::gap_after;

    /// Builds a thread of slices that may overlap; start and length of each.
    fn thread_of(slices: &[(i64, i64)]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        let track = sink.track("thread");
        let patch = TrackPatch {
            kind: Some(TrackKind::Thread),
            ..TrackPatch::default()
        };
        sink.describe(track, patch);
        let name = sink.name("work");
        for (start, length) in slices {
            let slice = SliceIn {
                start: Time::from_ps(*start),
                dur: Dur::from_ps(*length),
                name,
                ..SliceIn::default()
            };
            sink.slice(track, slice);
        }
        builder.add(sink);
        builder.finish()
    }

    proptest! {
        #[test]
        fn no_slice_is_open_where_a_job_ends(slices in prop::collection::vec((0..400_i64, 1..30_i64), 1..60)) {
            let trace = thread_of(&slices);
            let track = trace.tracks()[0].id;
            let slices = trace.slices(track);
            let is_gap = |slice: usize| {
                let mut earlier = 0..slice;
                earlier.all(|earlier| slices.end(earlier) <= slices.start[slice])
            };
            for first in 0..slices.len() {
                let expected = (first..slices.len()).find(|slice| is_gap(*slice));
                let found = gap_after(&trace, track, first, slices.len());
                prop_assert_eq!(found, expected.unwrap_or(slices.len()));
            }
        }
    }
}
