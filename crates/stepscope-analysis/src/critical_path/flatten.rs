//! Flattens the slices of threads and device queues to segments.

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

use super::graph::{NONE, QueueSegments, SegmentKind, index};
use super::queues::{PathQueue, QueueSlice};
use super::segments::Segments;
use crate::device::{Devices, Work};
use crate::parallel::{self, Cancel};

/// Sizes of jobs.
#[derive(Clone, Copy)]
struct JobLimits {
    /// Number of slices in a job: a millisecond or two.
    slices: usize,
    /// Maximum number of slices around the first one: bounds their memory where slices have no end.
    around: usize,
}

const JOB_LIMITS: JobLimits = JobLimits {
    slices: 1 << 16,
    around: 1 << 12,
};

/// Slices of a queue that one thread flattens.
struct Job {
    queue: usize,
    /// The slices of each row.
    slices: Vec<Range<usize>>,
    /// The slices of earlier jobs around the first one, by their numbers in the queue, outermost first.
    around: Vec<u32>,
    /// Whether slices may be open where the next job begins; else all slices of the job end in it.
    is_continued: bool,
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
    flatten_in_jobs(
        trace,
        devices,
        queues,
        window,
        step_markers,
        JOB_LIMITS,
        cancel,
    )
}

fn flatten_in_jobs(
    trace: &Trace,
    devices: &Devices<'_>,
    queues: Vec<PathQueue>,
    window: &Range<i64>,
    step_markers: &FxHashSet<EventId>,
    limits: JobLimits,
    cancel: &Cancel,
) -> Result<Segments, Cancelled> {
    let flattening = |job: &Job| Flattening {
        trace,
        devices,
        queue: &queues[job.queue],
        window,
        step_markers,
    };
    let mut crossing: FxHashSet<usize> = FxHashSet::default();
    let (jobs, extents) = loop {
        let jobs = jobs(trace, &queues, window, limits, &crossing);
        let counted = parallel::scan_items(&jobs, size(&jobs), cancel, Vec::new, |out, job| {
            let mut extent = Extent::default();
            let open = flattening(job).run(job, &mut extent);
            out.push((job.queue, job.slices[0].start, extent, open));
        })?;
        let mut counted: Vec<_> = counted.into_iter().flatten().collect();
        counted.sort_unstable_by_key(|(queue, start, ..)| (*queue, *start));
        let known = crossing.len();
        // A queue whose jobs do not end with the open slices that the store has around the next ones has slices that
        // cross: it is split again, at gaps only.
        for ((queue, _, _, open), next) in counted.iter().zip(jobs.iter().skip(1)) {
            if *open != next.around {
                crossing.insert(*queue);
            }
        }
        if crossing.len() == known {
            let extents = counted.into_iter().map(|(_, _, extent, _)| extent);
            break (jobs, extents.collect::<Vec<Extent>>());
        }
    };

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
    let columns = ranges.iter().map(|range| {
        let columns = rest.split_off(range.count, range.queue);
        (&range.content, Mutex::new(columns))
    });
    let work: Vec<_> = columns.collect();
    // The first write to a page makes the system clear it: that is work for all threads, too.
    parallel::scan_items(
        &work,
        size(&jobs),
        cancel,
        || (),
        |(), (content, columns)| {
            let mut columns = columns.lock().unwrap_or_else(PoisonError::into_inner);
            match content {
                Content::Nothing(time) => {
                    columns.push(time.start, time.end, NONE, SegmentKind::Host);
                }
                Content::Job(job) => {
                    let job = &jobs[*job];
                    flattening(job).run(job, &mut *columns);
                }
            }
        },
    )?;
    drop(work);
    found.queues = queues;
    Ok(found)
}

/// Splits the slices of the queues that may lie in the window into jobs, in the order of the queues and of time. A
/// thread of several rows is one job. A thread is split anywhere; a thread whose slices cross, nest very deeply or have no
/// length, and the queue of a device, where no slice is open; transfers in flight anywhere, as each is a segment.
fn jobs(
    trace: &Trace,
    queues: &[PathQueue],
    window: &Range<i64>,
    limits: JobLimits,
    crossing: &FxHashSet<usize>,
) -> Vec<Job> {
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
                around: Vec::new(),
                is_continued: false,
            });
            continue;
        }
        let mut nests = queue.device.is_none() && !crossing.contains(&number);
        let mut start = all.start;
        let mut around = Vec::new();
        while start < all.end {
            let mut end = start.saturating_add(limits.slices).min(all.end);
            let mut next = None;
            // Slices in flight may end in other jobs.
            if end < all.end && !queue.in_flight {
                if nests {
                    let after = on_file(window.start);
                    next = cut_after(trace, queue.track(), end..all.end, after, limits);
                    nests = next.is_some();
                }
                end = match &next {
                    Some((cut, _)) => *cut,
                    None => gap_after(trace, queue.track(), end, all.end),
                };
            }
            found.push(Job {
                queue: number,
                slices: std::iter::once(start..end).collect(),
                around: std::mem::take(&mut around),
                is_continued: next.is_some(),
            });
            around = next.map(|(_, around)| around).unwrap_or_default();
            start = end;
        }
    }
    found
}

/// Returns the next slice in a range that has a length and begins after a time, and the slices with a length around it,
/// outermost first; `None` if none is near, or those are too many.
fn cut_after(
    trace: &Trace,
    track: TrackId,
    range: Range<usize>,
    after: Time,
    limits: JobLimits,
) -> Option<(usize, Vec<u32>)> {
    let slices = trace.slices(track);
    let has_length = |slice: &usize| slices.end(*slice) > slices.start[*slice];
    let later = slices.start.partition_point(|start| *start <= after);
    let mut near = (range.start.max(later)..range.end).take(limits.slices);
    let cut = near.find(has_length)?;
    let parent = |slice: &usize| {
        let parent = slices.parent[*slice] as usize;
        (parent < *slice).then_some(parent)
    };
    let around = std::iter::successors(parent(&cut), parent);
    let mut around: Vec<usize> = around.take(limits.around + 1).collect();
    if around.len() > limits.around {
        return None;
    }
    around.reverse();
    around.retain(has_length);
    Some((cut, around.into_iter().map(index).collect()))
}

/// Returns the number of slices in all jobs.
fn size(jobs: &[Job]) -> usize {
    let slices = jobs.iter().flat_map(|job| &job.slices);
    slices.map(Range::len).sum()
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

/// A pass over the slices of a queue.
struct Sweep<'a, S> {
    queue: &'a PathQueue,
    window: &'a Range<i64>,
    sink: &'a mut S,
    /// The open slices, with their ends, outermost first.
    open: Vec<(u32, i64, SegmentKind)>,
    /// Time up to which the segments are known; `None` before the first one.
    time: Option<i64>,
}

impl<S: SegmentSink> Sweep<'_, S> {
    fn push(&mut self, begin: i64, end: i64, slice: u32, kind: SegmentKind) {
        // The thread of the steps ends with the window.
        let end = if self.queue.marks_steps {
            end.min(self.window.end)
        } else {
            end
        };
        if begin < end {
            self.sink.push(begin, end, slice, kind);
        }
    }

    /// Closes what ends before a slice starts.
    fn close_until(&mut self, start: i64) {
        let mut now = self.time.unwrap_or_else(|| start.max(self.window.start));
        while let Some((inner, until, kind)) = self.open.pop_if(|(_, until, _)| *until <= start) {
            if until > now {
                self.push(now, until, inner, kind);
                now = until;
            }
        }
        self.time = Some(now);
    }

    /// Adds the time until a slice starts to the innermost open one.
    fn cover_until(&mut self, start: i64) {
        let now = self.time.unwrap_or(start);
        let start = start.max(now);
        match self.open.last().copied() {
            Some((inner, _, kind)) => self.push(now, start, inner, kind),
            None if self.queue.marks_steps => self.push(now, start, NONE, SegmentKind::Host),
            None => {}
        }
        self.time = Some(start);
    }
}

impl Flattening<'_> {
    /// Passes the segments of a job to a sink. Returns the slices that are open where the next job continues.
    fn run<S: SegmentSink>(&self, job: &Job, sink: &mut S) -> Vec<u32> {
        let (queue, window) = (self.queue, self.window);
        let has_samples = queue.rows.iter().any(|row| row.is_sampled);
        let slices = self.trace.slices(queue.track());
        let shifted = |time: Time| time.ps().saturating_add(queue.shift);
        let around = job.around.iter();
        let mut sweep = Sweep {
            queue,
            window,
            sink,
            open: around
                .map(|slice| {
                    (
                        *slice,
                        shifted(slices.end(*slice as usize)),
                        SegmentKind::Host,
                    )
                })
                .collect(),
            time: None,
        };
        queue.visit(self.trace, &job.slices, |slice| {
            let (start, end) = (shifted(slice.start), shifted(slice.end));
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
                sweep.push(start.max(window.start), end, slice.number, kind);
                return;
            }
            sweep.close_until(start);
            let inside = if has_samples {
                self.begun_inside(&slice, &sweep.open)
            } else {
                0
            };
            if inside > 0 {
                let at = sweep.open.len() - inside;
                sweep.open.insert(at, (slice.number, end, kind));
                return;
            }
            sweep.cover_until(start);
            sweep.open.push((slice.number, end, kind));
        });
        if job.is_continued {
            let start = shifted(slices.start[job.slices[0].end]);
            sweep.close_until(start);
            sweep.cover_until(start);
            return sweep.open.into_iter().map(|(slice, ..)| slice).collect();
        }
        sweep.close_until(i64::MAX);
        Vec::new()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_model::{Dur, EventSink as _, SliceIn, TrackKind, TrackPatch};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;
    use crate::critical_path::queues::queues;

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

    /// Added to the times of the file.
    const SHIFT: i64 = 7;

    /// Returns begin, end and slice of each segment of a thread.
    fn segments(
        trace: &Trace,
        window: &Range<i64>,
        marks_steps: bool,
        limits: JobLimits,
    ) -> Vec<(i64, i64, u32)> {
        let (cancel, markers) = (Cancel::default(), FxHashSet::default());
        let devices = Devices::from_trace(trace, &cancel).unwrap();
        let queues = queues(trace, &devices, |_| true, |_| SHIFT, |_| marks_steps);
        let found =
            flatten_in_jobs(trace, &devices, queues, window, &markers, limits, &cancel).unwrap();
        let graph = &found.graph;
        let times = graph.begin.iter().zip(&graph.end).zip(&found.slice);
        times
            .map(|((begin, end), slice)| (*begin, *end, *slice))
            .collect()
    }

    /// Slices that nest: each begins some time after the one before it, inside those that are open then.
    fn nested(random: &[(i64, i64, u8)]) -> Vec<(i64, i64)> {
        let mut open: Vec<i64> = Vec::new();
        let mut time = 0;
        let mut found = Vec::new();
        for (later, length, closed) in random {
            time += later;
            for _ in 0..*closed {
                if let Some(end) = open.pop() {
                    time = time.max(end);
                }
            }
            while open.pop_if(|end| *end <= time).is_some() {}
            let end = open.last().map_or(i64::MAX, |end| *end).min(time + length);
            open.push(end);
            found.push((time, end - time));
        }
        found
    }

    proptest! {
        #[test]
        fn parts_of_a_thread_have_the_segments_of_the_whole(
            random in prop::collection::vec((0..6_i64, 0..2_000_i64, 0..3_u8), 1..80),
            crossing in prop::collection::vec((0..400_i64, 0..90_i64), 0..3),
            (begin, end) in (-10..200_i64, 0..2_000_i64),
            (marks_steps, slices_of_job, around) in (any::<bool>(), 1..9_usize, 0..9_usize),
        ) {
            let mut slices = nested(&random);
            slices.extend(crossing);
            // Slices that cross by a nanosecond or less nest.
            let scaled = slices.iter().map(|(start, length)| (start * 10_000, length * 10_000));
            let trace = thread_of(&scaled.collect::<Vec<_>>());
            let window = begin * 10_000..(begin + end) * 10_000;
            let whole = JobLimits { slices: usize::MAX, around };
            let parts = JobLimits { slices: slices_of_job, around };
            let whole = segments(&trace, &window, marks_steps, whole);
            prop_assert_eq!(segments(&trace, &window, marks_steps, parts), whole);
        }

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
