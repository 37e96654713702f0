//! Threads and device queues of a path, and their slices in order of time.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashSet;
use stepscope_model::vocabulary::sample::is_sampled_track;
use stepscope_model::{NameId, Time, TrackId, TrackKind};
use stepscope_store::{Slices, Trace};

use super::graph::{NONE, index};
use crate::device::Devices;
use crate::run_profile::is_of_program;
use crate::steps::ThreadRows;

/// A thread or a device queue of the graph.
///
/// A thread of which several profilers made a row each has all these rows: it does one thing at a time, and an
/// operator on one row is inside the step that another row marks. The slices of a queue are numbered: by their index
/// on the first row, and from there on through the other rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathQueue {
    /// Its rows, at least one; devices have one.
    pub rows: Vec<QueueRow>,
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

/// A row of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// Its track.
    pub track: TrackId,
    /// Number of its first slice in the queue.
    pub first: u32,
    /// Whether its slices are samples of a stack.
    pub is_sampled: bool,
}

/// A slice of a queue; times on its file's clock.
#[derive(Clone, Copy)]
pub(super) struct QueueSlice {
    /// Its number in the queue.
    pub(super) number: u32,
    pub(super) track: TrackId,
    /// Its index on the track.
    pub(super) index: usize,
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) is_sampled: bool,
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
    let thread_rows = ThreadRows::new(trace);
    let mut listed: FxHashSet<TrackId> = FxHashSet::default();
    let mut found = Vec::new();
    for track in trace.tracks() {
        if track.derived || track.slices == 0 || !has_file(track.file) || listed.contains(&track.id)
        {
            continue;
        }
        let device = by_track.get(&track.id).copied();
        let is_thread = track.kind == TrackKind::Thread && is_of_program(trace, track);
        if !is_thread && device.is_none() {
            continue;
        }
        let others = thread_rows.others(track.id).iter().copied();
        let others: Vec<TrackId> = others
            .filter(|other| device.is_none() && !by_track.contains_key(other))
            .collect();
        let mut rows = Vec::with_capacity(1 + others.len());
        let mut first = 0_u32;
        for row in std::iter::once(track.id).chain(others.iter().copied()) {
            let facts = trace.tracks().get(row.index());
            rows.push(QueueRow {
                track: row,
                first,
                is_sampled: facts.is_some_and(|facts| is_sampled_track(&facts.name)),
            });
            first = first.saturating_add(index(trace.slices(row).len()));
        }
        listed.extend(others);
        found.push(PathQueue {
            file: track.file,
            device,
            shift: shift(track.file),
            in_flight: devices.is_in_flight(track.id),
            marks_steps: is_thread && rows.iter().any(|row| marks_steps(row.track)),
            rows,
        });
    }
    found
}

impl PathQueue {
    /// Returns the first row: that of the device, or of the thread.
    pub fn track(&self) -> TrackId {
        self.rows[0].track
    }

    /// Returns the tracks of the rows.
    pub(super) fn tracks(&self) -> impl Iterator<Item = TrackId> + use<'_> {
        self.rows.iter().map(|row| row.track)
    }

    /// Returns the row of a slice of the queue, and its index there; of a number that is none, an index past the end
    /// of the last row.
    #[inline]
    pub(super) fn locate(&self, slice: u32) -> (usize, usize) {
        let mut row = self.rows.len() - 1;
        while self.rows[row].first > slice {
            row -= 1;
        }
        (row, (slice - self.rows[row].first) as usize)
    }

    /// Returns the track of a slice of the queue, and its index there.
    pub(super) fn slice_on_track(&self, slice: u32) -> (TrackId, usize) {
        let (row, at) = self.locate(slice);
        (self.rows[row].track, at)
    }

    /// Returns the number in the queue of a slice of one of its tracks.
    pub(super) fn number(&self, track: TrackId, slice: usize) -> Option<u32> {
        let row = self.rows.iter().find(|row| row.track == track)?;
        Some(row.first + index(slice))
    }

    /// Returns the name of a slice of the queue.
    pub(super) fn name(&self, trace: &Trace, slice: u32) -> Option<NameId> {
        if slice == NONE {
            return None;
        }
        let (track, at) = self.slice_on_track(slice);
        trace.slices(track).name.get(at).copied()
    }

    /// Visits the slices in these ranges, one of each row, in order of their start: those around others first.
    #[inline]
    pub(super) fn visit(
        &self,
        trace: &Trace,
        ranges: &[Range<usize>],
        mut slice: impl FnMut(QueueSlice),
    ) {
        let at = |row: &QueueRow, slices: &Slices<'_>, at: usize| QueueSlice {
            number: row.first + index(at),
            track: row.track,
            index: at,
            start: slices.start[at],
            end: slices.end(at),
            is_sampled: row.is_sampled,
        };
        if let ([row], [range]) = (self.rows.as_slice(), ranges) {
            let slices = trace.slices(row.track);
            range
                .clone()
                .for_each(|index| slice(at(row, &slices, index)));
            return;
        }
        let rows = self.rows.iter().zip(ranges.iter().cloned());
        let mut rows: Vec<_> = rows
            .map(|(row, range)| (row, trace.slices(row.track), range))
            .collect();
        let next = |(row, slices, range): &(&QueueRow, Slices<'_>, Range<usize>)| {
            (!range.is_empty()).then(|| at(row, slices, range.start))
        };
        let mut heads: Vec<Option<QueueSlice>> = rows.iter().map(next).collect();
        loop {
            let first = heads.iter().enumerate().filter_map(|(row, head)| {
                let head = (*head)?;
                Some(((head.start, Reverse(head.end), row), head))
            });
            let Some(((.., row), head)) = first.min_by_key(|(key, _)| *key) else {
                return;
            };
            slice(head);
            rows[row].2.start += 1;
            heads[row] = next(&rows[row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{Dur, EventSink as _, SliceIn, TrackPatch};
    use stepscope_store::{FileSpec, TraceBuilder, ascii_trace};

    use super::*;
    use crate::critical_path::nearest::Nearest;
    use crate::critical_path::path::PathKind;
    use crate::critical_path::{CriticalPath, PathScope, critical_path};
    use crate::parallel::Cancel;

    /// Returns the names of the path's segments in order of time; `-` where nothing is recorded.
    fn names<'a>(path: &CriticalPath<'a>) -> Vec<&'a str> {
        let mut found = Vec::new();
        path.visit_rows(|row| {
            let name = path.name(row.segment as usize);
            found.push(name.map_or("-", |name| path.trace.name(name)));
        });
        found
    }

    fn path(trace: &Trace) -> CriticalPath<'_> {
        let path = critical_path(trace, &PathScope::default(), &Cancel::default());
        path.unwrap().unwrap()
    }

    #[test]
    fn rows_of_a_thread_are_one_queue() {
        let trace = ascii_trace::trace(
            "
            recorder #pid=7 #tid=7 | step0-----  step1---
            kineto #pid=7 #tid=7   |  a--b---     a--
                                   |   c
            ",
        );
        let path = path(&trace);
        assert_eq!(path.segments.queues.len(), 1);
        let expected = [
            "step0", "a", "c", "a", "b", "step0", "-", "step1", "a", "step1",
        ];
        assert_eq!(names(&path), expected);
    }

    #[test]
    fn calls_on_another_row_launch_and_wait() {
        let trace = ascii_trace::trace(
            "
            recorder #pid=7 #tid=7 | step0-------------------------------------------------------
            kineto #pid=7 #tid=7   |  cudaLaunchKernel>1 cudaDeviceSynchronize------------
            7 #device=0            |                       gemm<1--------------------
            ",
        );
        let path = path(&trace);
        let mut found = Vec::new();
        path.visit_rows(|row| {
            let name = path.name(row.segment as usize).unwrap();
            found.push((row.kind, trace.name(name)));
        });
        let expected = [
            (PathKind::Host, "step0"),
            (PathKind::Host, "cudaLaunchKernel"),
            (PathKind::LaunchLatency, "gemm"),
            (PathKind::Device, "gemm"),
            (PathKind::SyncReturn, "cudaDeviceSynchronize"),
            (PathKind::Host, "step0"),
        ];
        assert_eq!(found, expected);
    }

    /// A row of a thread: its name, and name, category, start and length of each slice.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str, i64, i64)]);

    /// Builds a thread of several rows.
    fn thread(rows: &[Row<'_>]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        for (name, slices) in rows {
            let track = sink.track(name);
            let patch = TrackPatch {
                kind: Some(TrackKind::Thread),
                name: Some(name),
                pid: Some(7),
                tid: Some(7),
                ..TrackPatch::default()
            };
            sink.describe(track, patch);
            for (name, category, start, length) in *slices {
                let step = name
                    .strip_prefix("step")
                    .and_then(|number| number.parse().ok());
                let slice = SliceIn {
                    start: Time::from_ps(*start),
                    dur: Dur::from_ps(*length),
                    name: sink.name(name),
                    category: sink.name(category),
                    step,
                    ..SliceIn::default()
                };
                sink.slice(track, slice);
            }
        }
        builder.add(sink);
        builder.finish()
    }

    #[test]
    fn sampled_frames_lie_around_calls() {
        // One frame begins before an operator and ends inside it, another one the other way round.
        let trace = thread(&[
            ("main", &[("loop", "", 0, 100)]),
            (
                "main (sampled)",
                &[("f", "", 5, 25), ("g", "", 30, 30), ("h", "", 80, 10)],
            ),
            (
                "kineto",
                &[
                    ("aten::mm", "cpu_op", 10, 40),
                    ("label", "user_annotation", 70, 20),
                ],
            ),
        ]);
        let expected = ["loop", "f", "aten::mm", "g", "loop", "label", "h", "loop"];
        assert_eq!(names(&path(&trace)), expected);
    }

    #[test]
    fn sampled_frames_lie_inside_steps() {
        let trace = thread(&[
            ("main", &[("step0", "", 30, 80), ("step1", "", 110, 70)]),
            (
                "main (sampled)",
                &[("f", "", 0, 70), ("g", "", 70, 70), ("f", "", 140, 70)],
            ),
        ]);
        assert_eq!(names(&path(&trace)), ["f", "g", "f"]);
    }

    #[test]
    fn slices_of_other_threads_are_no_part_of_the_queue() {
        let trace = ascii_trace::trace(
            "
            recorder #pid=7 #tid=7 | step0-----  step1---
            kineto #pid=7 #tid=8   |  a--b---     a--
            ",
        );
        let path = path(&trace);
        assert_eq!(path.segments.queues.len(), 2);
        assert_eq!(names(&path), ["step0", "-", "step1"]);
    }

    #[test]
    fn slice_is_inside_those_of_other_rows() {
        let trace = ascii_trace::trace(
            "
            kineto #pid=7 #tid=7   |  a--b---     a--
            recorder #pid=7 #tid=7 | step0-----  step1---
            ",
        );
        let path = path(&trace);
        let name = |track, slice: usize| trace.name(trace.slices(track).name[slice]);
        let steps = Nearest::new(&path, |track, slice| name(track, slice).starts_with("step"));
        let mut found = Vec::new();
        path.visit_rows(|row| {
            let around = steps.get(&path, row.segment as usize);
            found.push(around.map_or("-", |(track, slice)| name(track, slice)));
        });
        let expected = [
            "step0", "step0", "step0", "step0", "-", "step1", "step1", "step1",
        ];
        assert_eq!(found, expected);
    }
}
