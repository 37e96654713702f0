//! Edges between host calls and device work: launches, and what waits for work (`waits`, `programs`).

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

mod programs;
mod waits;

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Time, TrackId};
use stepscope_store::{Trace, pages};

use super::calls::{CallKind, CallKinds, sync_records};
use super::graph::{Dependency, EdgeConfidence, LagKind, index};
use super::segments::Segments;
use crate::device::Devices;
use crate::launch::Launches;
use crate::parallel::{self, Cancel};

/// Returns the longest delay between the end of device work and the end of a call that waits for it, where the file
/// does not record what the call waits for, picoseconds: 50 us, or 5 % of a long call, as the clocks of devices and
/// hosts differ.
pub(super) fn longest_return(begin: i64, end: i64) -> i64 {
    (end.saturating_sub(begin) / 20).max(50_000_000)
}

/// Number of pieces of work in a queue from which on a long call that launches one waits until the queue has room:
/// those of CUDA take 1,024.
const FULL_QUEUE: usize = 1_000;
/// Shortest call that waits for room in a queue, picoseconds: calls that do not wait take about 5 us.
const SHORTEST_BLOCKED_CALL: i64 = 10_000_000;

/// A call of a host thread that an edge may depend on; times on the shifted clock.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: CallKind,
    queue: usize,
    /// Number of its slice in the queue.
    slice: u32,
    begin: i64,
    end: i64,
    /// Number that the file gives the call; read where records may have it.
    correlation: Option<i64>,
}

/// Launches of consecutive segments of a queue.
struct FoundLaunches {
    /// For each segment, the start of the call that launched it, or of an earlier one if that was later.
    called: Vec<i64>,
    /// The last of them.
    latest: i64,
    dependencies: Vec<Dependency>,
    /// The device work that each copying call launched.
    copies: Vec<((usize, u32), u32)>,
    /// The calls that wait until a queue has room, with the queue.
    blocked: Vec<(Call, usize)>,
    /// Number of times that contradict an edge.
    contradictions: u64,
}

impl Default for FoundLaunches {
    fn default() -> Self {
        Self {
            called: Vec::new(),
            latest: i64::MIN,
            dependencies: Vec::new(),
            copies: Vec::new(),
            blocked: Vec::new(),
            contradictions: 0,
        }
    }
}

/// Collects the edges.
pub(super) struct DeviceEdges<'a> {
    trace: &'a Trace,
    devices: &'a Devices<'a>,
    launches: &'a Launches,
    kinds: &'a CallKinds,
    segments: &'a Segments,
    /// Time in which calls matter: the window of the path, from the first call on that launched work in it.
    range: Range<i64>,
    /// Start of the call that launched each segment of each device queue, or of an earlier one if that was later;
    /// by queue.
    launched: Vec<Vec<i64>>,
    /// The device work that each copying call launched.
    copies: FxHashMap<(usize, u32), u32>,
    /// The calls that wait until a queue has room, with the queue.
    blocked: Vec<(Call, usize)>,
    /// Queues by file, ordinal of the device and stream.
    streams: BTreeMap<(usize, u32, i64), usize>,
    /// Edges to starts.
    pub(super) dependencies: Vec<Dependency>,
    /// Edges to ends of waits.
    pub(super) syncs: Vec<Dependency>,
    /// Number of times that contradict an edge.
    pub(super) contradictions: u64,
}

impl<'a> DeviceEdges<'a> {
    pub(super) fn new(
        trace: &'a Trace,
        devices: &'a Devices<'a>,
        launches: &'a Launches,
        kinds: &'a CallKinds,
        segments: &'a Segments,
        window: &Range<i64>,
    ) -> Self {
        let mut streams = BTreeMap::new();
        for (number, queue) in segments.queues.iter().enumerate() {
            let track = trace.tracks().get(queue.track().index());
            let device = queue.device.and_then(|device| devices.list.get(device));
            if let (Some(device), Some(stream)) = (device, track.and_then(|track| track.stream)) {
                streams
                    .entry((device.file, device.ordinal, stream))
                    .or_insert(number);
            }
        }
        Self {
            trace,
            devices,
            launches,
            kinds,
            segments,
            range: window.clone(),
            launched: vec![Vec::new(); segments.queues.len()],
            copies: FxHashMap::default(),
            blocked: Vec::new(),
            streams,
            dependencies: Vec::new(),
            syncs: Vec::new(),
            contradictions: 0,
        }
    }

    /// Finds all edges.
    pub(super) fn find(&mut self, cancel: &Cancel) -> Result<(), Cancelled> {
        self.launches(cancel)?;
        if self.launched.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let first = self.launched.iter().filter_map(|calls| {
            let mut known = calls.iter().filter(|call| **call > i64::MIN);
            known.next().copied()
        });
        self.range.start = first.fold(self.range.start, i64::min);
        let mut calls = self.calls(cancel)?;
        let records = sync_records(self.trace, cancel, |track| {
            let mut queues = self.segments.queues.iter();
            let of_file = queues.find(|queue| queue.file == track.file);
            of_file.map_or(0..0, |queue| self.in_range(track.id, queue.shift))
        })?;
        self.read_correlations(&mut calls, &records, cancel)?;
        let unknown_waits = self.waits(&calls, &records, cancel)?;
        self.waits_for_room();
        if unknown_waits.is_empty() && !self.kinds.any(CallKind::GraphLaunch) {
            return Ok(());
        }
        self.infer_event_waits(&unknown_waits, cancel)
    }

    fn shift(&self, queue: usize) -> i64 {
        self.segments.queues[queue].shift
    }

    /// Returns the indexes of the slices of a track that matter.
    fn in_range(&self, track: TrackId, shift: i64) -> Range<usize> {
        let time = |at: i64| Time::from_ps(at.saturating_sub(shift));
        let range = time(self.range.start)..time(self.range.end);
        self.trace.candidates(track, range)
    }

    fn shifted(&self, queue: usize, time: Time) -> i64 {
        time.ps().saturating_add(self.shift(queue))
    }

    /// Returns the thread of the call that launched a segment, and the number of its slice there.
    fn call_of(&self, segment: usize) -> Option<(usize, u32)> {
        let (track, slice) = self.segments.slice_of(segment)?;
        let launch = self.launches.get(track, slice)?;
        let (host, call) = self.trace.place_of_slice(launch)?;
        self.segments.number_of(host, call)
    }

    /// Adds the edges from launching calls to the work of all queues.
    fn launches(&mut self, cancel: &Cancel) -> Result<(), Cancelled> {
        let (jobs, size) = self.segments.chunks(|queue| queue.device.is_some());
        let new = || (vec![0; self.segments.queues.len()], Vec::new());
        let found = parallel::scan_items(&jobs, size, cancel, new, |(near, out), job| {
            let mut found = FoundLaunches::default();
            for segment in job.clone() {
                if let Some((thread, slice)) = self.call_of(segment as usize) {
                    self.launch(segment, thread, slice, near, &mut found);
                }
                found.called.push(found.latest);
            }
            out.push((job.start, found));
        })?;
        let mut found: Vec<_> = found.into_iter().flat_map(|(_, found)| found).collect();
        found.sort_unstable_by_key(|(first, _)| *first);
        let edges = found.iter().map(|(_, found)| found.dependencies.len());
        pages::reserve(&mut self.dependencies, edges.sum());
        for (first, mut found) in found {
            let queue = self.segments.graph.queue[first as usize] as usize;
            let launched = &mut self.launched[queue];
            let before = launched.last().copied().unwrap_or(i64::MIN);
            let called = found.called.drain(..);
            launched.extend(called.map(|called| called.max(before)));
            self.add(found);
        }
        Ok(())
    }

    fn add(&mut self, found: FoundLaunches) {
        self.dependencies.extend(found.dependencies);
        self.copies.extend(found.copies);
        self.blocked.extend(found.blocked);
        self.contradictions += found.contradictions;
    }

    /// Finds the edge from a call to work. `near` stores, by queue, where the last call was found.
    fn launch(
        &self,
        segment: u32,
        thread: usize,
        slice: u32,
        near: &mut [usize],
        found: &mut FoundLaunches,
    ) {
        let segments = self.segments;
        let (track, call) = segments.queues[thread].slice_on_track(slice);
        let slices = self.trace.slices(track);
        let called = self.shifted(thread, slices.start[call]);
        let returned = self.shifted(thread, slices.end(call));
        let begin = segments.graph.begin[segment as usize];
        let end = segments.graph.end[segment as usize];
        // Only the first piece of a slice is launched.
        let queue = segments.graph.queue[segment as usize] as usize;
        let is_first = segments
            .slice_of(segment as usize)
            .is_some_and(|(track, slice)| {
                let start = self.trace.slices(track).start.get(slice);
                start.is_some_and(|start| self.shifted(queue, *start) == begin)
            });
        let kind = self.kinds.get(slices.name[call]);
        let mut anchor = returned.min(begin);
        let limit = longest_return(called, returned);
        let is_awaited = match kind {
            CallKind::BlockingCopy => end > called && end <= returned.saturating_add(limit),
            CallKind::Copy => end <= returned && returned.saturating_sub(end) <= limit,
            _ => false,
        };
        if is_awaited {
            // The call launches the copy as it begins, and then waits for it.
            anchor = called.min(begin);
            found.copies.push(((thread, slice), segment));
        }
        found.latest = found.latest.max(called);
        if !is_first {
            return;
        }
        if kind.is_bare_launch() && returned.saturating_sub(called) >= SHORTEST_BLOCKED_CALL {
            let range = segments.graph.queues[queue];
            let begins = &segments.graph.begin[range.first as usize..segment as usize];
            let begun = begins.partition_point(|begin| *begin < called);
            if begins.len() - begun >= FULL_QUEUE {
                let call = Call {
                    kind,
                    queue: thread,
                    slice,
                    begin: called,
                    end: returned,
                    correlation: None,
                };
                found.blocked.push((call, queue));
            }
        }
        if begin < called {
            found.contradictions += 1;
        }
        let near = &mut near[thread];
        if let Some((from, anchor)) = segments.graph.locate_near(thread, anchor, near) {
            found.dependencies.push(Dependency {
                to: segment,
                kind: LagKind::LaunchLatency,
                from,
                anchor,
                confidence: EdgeConfidence::Recorded,
            });
        }
    }

    /// Lists the calls of all threads that may wait or mark events, in order of threads, rows and time.
    fn calls(&self, cancel: &Cancel) -> Result<Vec<Call>, Cancelled> {
        let queues = &self.segments.queues;
        let threads = queues.iter().filter(|queue| queue.device.is_none());
        let chunks = parallel::track_chunks(threads.flat_map(|queue| {
            let tracks = queue.tracks();
            tracks.map(|track| (track, self.in_range(track, queue.shift)))
        }));
        let found = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
            let Some((queue, first)) = self.segments.number_of(chunk.track, 0) else {
                return;
            };
            let slices = self.trace.slices(chunk.track);
            for slice in chunk.indexes.clone() {
                let kind = self.kinds.get(slices.name[slice]);
                if !matches!(kind, CallKind::Other | CallKind::Await) && !kind.is_bare_launch() {
                    out.push(Call {
                        kind,
                        queue,
                        slice: first + index(slice),
                        begin: self.shifted(queue, slices.start[slice]),
                        end: self.shifted(queue, slices.end(slice)),
                        correlation: None,
                    });
                }
            }
        })?;
        let mut found: Vec<Call> = found.into_iter().flatten().collect();
        // Runs of chunks.
        found.sort_by_key(|call| (call.queue, call.slice));
        Ok(found)
    }

    /// Returns the last work of a queue that was launched before a time and begins before another one.
    fn last_before(&self, queue: usize, called: i64, begins_before: i64) -> Option<u32> {
        let range = self.segments.graph.queues[queue];
        let launched = self.launched.get(queue)?;
        let count = launched.partition_point(|call| *call < called);
        let begin = &self.segments.graph.begin[range.first as usize..range.end as usize];
        let count = count.min(begin.partition_point(|begin| *begin < begins_before));
        Some(range.first + index(count.checked_sub(1)?))
    }

    /// Lists the queues of a device of a file; without a device, those of all devices of the file.
    fn queues_of(&self, file: usize, ordinal: Option<u32>) -> Vec<usize> {
        let queues = self.segments.queues.iter().enumerate();
        let of_device = queues.filter(|(_, queue)| {
            let device = queue
                .device
                .and_then(|device| self.devices.list.get(device));
            device.is_some_and(|device| {
                !queue.in_flight
                    && device.file == file
                    && ordinal.is_none_or(|ordinal| device.ordinal == ordinal)
            })
        });
        of_device.map(|(number, _)| number).collect()
    }
}
