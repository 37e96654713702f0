//! Edges between host calls and device work: launches, waits of the host, waits of queues for events.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Cancelled, Time, TrackId};
use stepscope_store::Trace;

use super::calls::{CallKind, CallKinds, SyncRecord, correlation, sync_records};
use super::graph::{Confidence, Dependency, LagKind, NONE, index};
use super::segments::Segments;
use crate::device::Devices;
use crate::launch::Launches;
use crate::parallel::{self, Cancel};

/// Longest delay between the end of device work and the end of the call that waits for it, where the file does not
/// record what the call waits for, picoseconds.
pub(super) const LONGEST_RETURN: i64 = 50_000_000;
/// Longest delay between the end of work and the start of work on another queue that waits for it, where the file
/// does not record the event, picoseconds.
const LONGEST_EVENT_WAIT: i64 = 20_000_000;

/// A call of a host thread that an edge may depend on; times on the shifted clock.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: CallKind,
    queue: usize,
    slice: u32,
    begin: i64,
    end: i64,
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
            contradictions: 0,
        }
    }
}

/// Returns whether calls of this kind put work on a queue.
fn is_launch(kind: CallKind) -> bool {
    matches!(
        kind,
        CallKind::Launch | CallKind::Copy | CallKind::BlockingCopy
    )
}

/// Collects the edges.
pub(super) struct DeviceEdges<'a> {
    trace: &'a Trace,
    devices: &'a Devices<'a>,
    launches: &'a Launches,
    kinds: &'a CallKinds,
    segments: &'a Segments,
    /// Start of the call that launched each segment of each device queue, or of an earlier one if that was later;
    /// by queue.
    launched: Vec<Vec<i64>>,
    /// The device work that each copying call launched.
    copies: FxHashMap<(usize, u32), u32>,
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
    ) -> Self {
        let mut streams = BTreeMap::new();
        for (number, queue) in segments.queues.iter().enumerate() {
            let track = trace.tracks().get(queue.track.index());
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
            launched: vec![Vec::new(); segments.queues.len()],
            copies: FxHashMap::default(),
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
        let calls = self.calls(cancel, |kind| {
            !matches!(kind, CallKind::Other | CallKind::Await | CallKind::Launch)
        })?;
        let records = sync_records(self.trace);
        let recorded = self.event_records(&calls, &records);
        let mut unknown_waits = Vec::new();
        for call in &calls {
            self.wait(call, &records, &recorded, &mut unknown_waits);
        }
        if unknown_waits.is_empty() {
            return Ok(());
        }
        let launches = self.calls(cancel, is_launch)?;
        self.infer_event_waits(&launches, &unknown_waits, cancel)
    }

    fn shift(&self, queue: usize) -> i64 {
        self.segments.queues[queue].shift
    }

    fn shifted(&self, queue: usize, time: Time) -> i64 {
        time.ps().saturating_add(self.shift(queue))
    }

    /// Returns the thread and the slice of the call that launched a segment.
    fn call_of(&self, segment: usize) -> Option<(usize, usize)> {
        let (track, slice) = self.segments.slice_of(segment)?;
        let launch = self.launches.get(track, slice)?;
        let (host, call) = self.trace.place_of_slice(launch)?;
        Some((self.segments.queue_of(host)?, call))
    }

    /// Adds the edges from launching calls to the work of all queues.
    fn launches(&mut self, cancel: &Cancel) -> Result<(), Cancelled> {
        let (jobs, size) = self.device_chunks();
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

    /// Splits the segments of the queues of devices into chunks, in their order; returns also the number of segments.
    fn device_chunks(&self) -> (Vec<Range<u32>>, usize) {
        let queues = self.segments.queues.iter().zip(&self.segments.graph.queues);
        let devices = queues.filter(|(queue, _)| queue.device.is_some());
        let chunk = index(parallel::CHUNK_LEN);
        let chunks = devices.flat_map(|(_, range)| {
            let starts = (range.first..range.end).step_by(parallel::CHUNK_LEN);
            starts.map(move |first| first..range.end.min(first.saturating_add(chunk)))
        });
        let chunks: Vec<Range<u32>> = chunks.collect();
        let size = chunks.iter().map(Range::len).sum();
        (chunks, size)
    }

    fn add(&mut self, found: FoundLaunches) {
        self.dependencies.extend(found.dependencies);
        self.copies.extend(found.copies);
        self.contradictions += found.contradictions;
    }

    /// Finds the edge from a call to work. `near` stores, by queue, where the last call was found.
    fn launch(
        &self,
        segment: u32,
        thread: usize,
        slice: usize,
        near: &mut [usize],
        found: &mut FoundLaunches,
    ) {
        let segments = self.segments;
        let slices = self.trace.slices(segments.queues[thread].track);
        let called = self.shifted(thread, slices.start[slice]);
        let returned = self.shifted(thread, slices.end(slice));
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
        let kind = self.kinds.get(slices.name[slice]);
        let mut anchor = returned.min(begin);
        let is_awaited = match kind {
            CallKind::BlockingCopy => {
                end > called && end <= returned.saturating_add(LONGEST_RETURN)
            }
            CallKind::Copy => end <= returned && returned.saturating_sub(end) <= LONGEST_RETURN,
            _ => false,
        };
        if is_awaited {
            // The call launches the copy as it begins, and then waits for it.
            anchor = called.min(begin);
            found.copies.push(((thread, index(slice)), segment));
        }
        found.latest = found.latest.max(called);
        if !is_first {
            return;
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
                confidence: Confidence::Recorded,
            });
        }
    }

    /// Lists the calls of all threads of some kinds, in order of threads and time.
    fn calls(
        &self,
        cancel: &Cancel,
        is_kind: impl Fn(CallKind) -> bool + Sync,
    ) -> Result<Vec<Call>, Cancelled> {
        let queues = &self.segments.queues;
        let threads = queues.iter().filter(|queue| queue.device.is_none());
        let chunks = parallel::track_chunks(
            threads.map(|queue| (queue.track, 0..self.trace.slices(queue.track).len())),
        );
        let found = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
            let Some(queue) = self.segments.queue_of(chunk.track) else {
                return;
            };
            let slices = self.trace.slices(chunk.track);
            for slice in chunk.indexes.clone() {
                let kind = self.kinds.get(slices.name[slice]);
                if is_kind(kind) {
                    out.push(Call {
                        kind,
                        queue,
                        slice: index(slice),
                        begin: self.shifted(queue, slices.start[slice]),
                        end: self.shifted(queue, slices.end(slice)),
                    });
                }
            }
        })?;
        let mut found: Vec<Call> = found.into_iter().flatten().collect();
        // Runs of chunks.
        found.sort_by_key(|call| (call.queue, call.slice));
        Ok(found)
    }

    fn correlation(&self, call: &Call) -> Option<i64> {
        let slices = self.trace.slices(self.segments.queues[call.queue].track);
        correlation(self.trace, slices.id(call.slice as usize))
    }

    /// Finds the starts of the calls that record the events that others wait for, by file and correlation.
    fn event_records(
        &self,
        calls: &[Call],
        records: &BTreeMap<usize, FxHashMap<i64, SyncRecord>>,
    ) -> FxHashMap<(usize, i64), i64> {
        let mut found = FxHashMap::default();
        for call in calls
            .iter()
            .filter(|call| call.kind == CallKind::EventRecord)
        {
            let file = self.segments.queues[call.queue].file;
            if records.contains_key(&file)
                && let Some(number) = self.correlation(call)
            {
                found.entry((file, number)).or_insert(call.begin);
            }
        }
        found
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

    /// Adds the edges of a call that waits.
    fn wait(
        &mut self,
        call: &Call,
        records: &BTreeMap<usize, FxHashMap<i64, SyncRecord>>,
        recorded: &FxHashMap<(usize, i64), i64>,
        unknown_waits: &mut Vec<(usize, i64)>,
    ) {
        let file = self.segments.queues[call.queue].file;
        let of_file = records.get(&file);
        let record = |edges: &Self| {
            let number = of_file.and_then(|_| edges.correlation(call));
            number.and_then(|number| of_file?.get(&number)).copied()
        };
        match call.kind {
            CallKind::DeviceWait | CallKind::StreamWait | CallKind::EventWait => {
                let record = record(self);
                self.host_wait(call, file, record, recorded);
            }
            CallKind::Copy | CallKind::BlockingCopy => {
                if let Some(copy) = self.copies.get(&(call.queue, call.slice)).copied() {
                    self.add_sync(call, copy, Confidence::Inferred);
                }
            }
            CallKind::QueueWait => {
                let known = record(self)
                    .is_some_and(|record| self.queue_wait(call, file, &record, recorded));
                if !known {
                    unknown_waits.push((call.queue, call.begin));
                }
            }
            _ => {}
        }
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

    fn host_wait(
        &mut self,
        call: &Call,
        file: usize,
        record: Option<SyncRecord>,
        recorded: &FxHashMap<(usize, i64), i64>,
    ) {
        if let Some(record) = record {
            if record.whole_device || call.kind == CallKind::DeviceWait {
                for queue in self.queues_of(file, Some(record.device)) {
                    if let Some(work) = self.last_before(queue, call.begin, call.end) {
                        self.add_sync(call, work, Confidence::Recorded);
                    }
                }
                return;
            }
            let stream = record.on_stream.or(record.stream);
            let queue = stream.and_then(|stream| self.streams.get(&(file, record.device, stream)));
            let called = match record.record {
                Some(number) => recorded.get(&(file, number)).copied(),
                None if call.kind == CallKind::StreamWait => Some(call.begin),
                None => None,
            };
            if let (Some(queue), Some(called)) = (queue.copied(), called) {
                if let Some(work) = self.last_before(queue, called, call.end) {
                    self.add_sync(call, work, Confidence::Recorded);
                }
                return;
            }
        }
        // Not recorded: work that ends inside the call, shortly before its end.
        let mut last: Option<(i64, u32)> = None;
        let mut all = Vec::new();
        for queue in self.queues_of(file, None) {
            let Some(work) = self.last_before(queue, call.begin, call.end) else {
                continue;
            };
            let end = self.segments.graph.end[work as usize];
            all.push(work);
            let is_close =
                end > call.begin && call.end.saturating_sub(end).saturating_abs() <= LONGEST_RETURN;
            if is_close && last.is_none_or(|(latest, _)| end > latest) {
                last = Some((end, work));
            }
        }
        let Some((_, work)) = last else {
            return;
        };
        if call.kind == CallKind::DeviceWait {
            for work in all {
                self.add_sync(call, work, Confidence::Inferred);
            }
        } else {
            self.add_sync(call, work, Confidence::Inferred);
        }
    }

    /// Adds the edge to the end of a call from the end of work.
    fn add_sync(&mut self, call: &Call, work: u32, confidence: Confidence) {
        let slices = self.trace.slices(self.segments.queues[call.queue].track);
        let Some(to) = self
            .segments
            .ending_at(call.queue, slices.end(call.slice as usize))
        else {
            return;
        };
        let end = self.segments.graph.end[work as usize];
        if end > call.end {
            self.contradictions += 1;
            // The file says that the call did not wait for this work: its clocks differ, or its times are rounded.
            let begin = self.segments.graph.begin[work as usize];
            if end.saturating_sub(call.end) > LONGEST_RETURN || begin >= call.end {
                return;
            }
        }
        self.syncs.push(Dependency {
            to,
            kind: LagKind::SyncReturn,
            from: work,
            anchor: end.min(call.end),
            confidence,
        });
    }

    /// Adds the edge of a queue that waits for an event; returns whether the file has all ids.
    fn queue_wait(
        &mut self,
        call: &Call,
        file: usize,
        record: &SyncRecord,
        recorded: &FxHashMap<(usize, i64), i64>,
    ) -> bool {
        let queue = |stream: Option<i64>| {
            stream.and_then(|stream| self.streams.get(&(file, record.device, stream)).copied())
        };
        let (Some(waiting), Some(on)) = (queue(record.stream), queue(record.on_stream)) else {
            return false;
        };
        let Some(called) = record
            .record
            .and_then(|number| recorded.get(&(file, number)).copied())
        else {
            return false;
        };
        let range = self.segments.graph.queues[waiting];
        let next = self.launched[waiting].partition_point(|launch| *launch < call.end);
        let to = range.first + index(next);
        if to < range.end
            && waiting != on
            && let Some(work) = self.last_before(on, called, i64::MAX)
        {
            self.add_event(to, work, Confidence::Recorded);
        }
        true
    }

    fn add_event(&mut self, to: u32, work: u32, confidence: Confidence) {
        let graph = &self.segments.graph;
        let (end, begin) = (graph.end[work as usize], graph.begin[to as usize]);
        if end > begin {
            self.contradictions += 1;
            if graph.begin[work as usize] >= begin {
                return;
            }
        }
        self.dependencies.push(Dependency {
            to,
            kind: LagKind::EventWait,
            from: work,
            anchor: end.min(begin),
            confidence,
        });
    }

    /// Infers the events of calls that let a queue wait without saying for what: the work that the thread launches
    /// next begins shortly after the end of work on another queue, and was launched before that end.
    fn infer_event_waits(
        &mut self,
        calls: &[Call],
        unknown_waits: &[(usize, i64)],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let mut after_wait: FxHashSet<(usize, u32)> = FxHashSet::default();
        let mut last: Option<(usize, bool)> = None;
        let mut waits = unknown_waits.iter().peekable();
        for call in calls {
            let (thread, mut waited) = last.unwrap_or((call.queue, false));
            waited &= thread == call.queue;
            while let Some((queue, begin)) = waits.peek().copied().copied() {
                if (queue, begin) > (call.queue, call.begin) {
                    break;
                }
                waited |= queue == call.queue;
                waits.next();
            }
            if waited {
                after_wait.insert((call.queue, call.slice));
                waited = false;
            }
            last = Some((call.queue, waited));
        }
        let mut ends: BTreeMap<usize, Vec<(i64, u32)>> = BTreeMap::new();
        let graph = &self.segments.graph;
        for (number, queue) in self.segments.queues.iter().enumerate() {
            let (Some(device), range) = (queue.device, graph.queues[number]) else {
                continue;
            };
            if queue.in_flight {
                continue;
            }
            let of_device = ends.entry(device).or_default();
            of_device.extend(
                (range.first..range.end).map(|segment| (graph.end[segment as usize], segment)),
            );
        }
        for ends in ends.values_mut() {
            #[allow(
                clippy::stable_sort_primitive,
                reason = "merges the sorted runs of the queues"
            )]
            ends.sort();
        }
        let (chunks, size) = self.device_chunks();
        let found = parallel::scan_items(&chunks, size, cancel, Vec::new, |out, chunk| {
            let queue = graph.queue[chunk.start as usize] as usize;
            let device = self.segments.queues[queue].device;
            let Some(ends) = device.and_then(|device| ends.get(&device)) else {
                return;
            };
            for to in chunk.clone() {
                let Some((thread, slice)) = self.call_of(to as usize) else {
                    continue;
                };
                if after_wait.contains(&(thread, index(slice)))
                    && let Some(work) = self.ended_before(queue, to, ends)
                    && self.returned(thread, slice) < graph.end[work as usize]
                {
                    out.push((to, work));
                }
            }
        })?;
        for (to, work) in found.into_iter().flatten() {
            self.add_event(to, work, Confidence::Inferred);
        }
        Ok(())
    }

    fn returned(&self, thread: usize, slice: usize) -> i64 {
        let slices = self.trace.slices(self.segments.queues[thread].track);
        self.shifted(thread, slices.end(slice))
    }

    /// Returns the work on another queue that ends last before a segment begins, within the limit; `None` if work
    /// on the same queue ends later.
    fn ended_before(&self, queue: usize, to: u32, ends: &[(i64, u32)]) -> Option<u32> {
        let graph = &self.segments.graph;
        let begin = graph.begin[to as usize];
        let before = ends.partition_point(|(end, _)| *end <= begin);
        let (end, work) = *ends.get(before.checked_sub(1)?)?;
        let other = graph.queue[work as usize] as usize != queue;
        (other && begin.saturating_sub(end) <= LONGEST_EVENT_WAIT).then_some(work)
    }

    /// Adds the edges from the calls that launch whole programs to the first operation of each: lines of modules
    /// of compiled programs. Returns, by call, the last operation of the programs that it launched.
    pub(super) fn programs(&mut self, modules: &[TrackId]) -> BTreeMap<u32, u32> {
        let mut last_operation = BTreeMap::new();
        let mut near_calls = vec![0; self.segments.queues.len()];
        for track in modules {
            let Some(facts) = self.trace.tracks().get(track.index()) else {
                continue;
            };
            let ordinal = facts.device.unwrap_or(0);
            let queues = self.queues_of(facts.file, Some(ordinal));
            let slices = self.trace.slices(*track);
            let mut near = 0;
            for module in 0..slices.len() {
                let calls: Vec<_> = self
                    .trace
                    .flow_sources(slices.id(module), &mut near)
                    .collect();
                for call in calls {
                    let Some((host, slice)) = self.trace.place_of_slice(call) else {
                        continue;
                    };
                    let Some(thread) = self.segments.queue_of(host) else {
                        continue;
                    };
                    let mut last: Option<(i64, u32)> = None;
                    for queue in &queues {
                        let from = self.shifted(*queue, slices.start[module]);
                        let to = self.shifted(*queue, slices.end(module));
                        let Some((first, end)) = self.within(*queue, from, to) else {
                            continue;
                        };
                        if self.call_of(first as usize).is_none() {
                            let mut found = FoundLaunches::default();
                            self.launch(first, thread, slice, &mut near_calls, &mut found);
                            self.add(found);
                        }
                        let ends = self.segments.graph.end[end as usize];
                        if last.is_none_or(|(latest, _)| ends > latest) {
                            last = Some((ends, end));
                        }
                    }
                    if let Some((_, segment)) = last {
                        last_operation.insert(call.0, segment);
                    }
                }
            }
        }
        last_operation
    }

    /// Adds the edges of transfers in flight: from the operation that runs when one begins, and to the instruction
    /// that waits for its end.
    pub(super) fn transfers(&mut self) {
        let graph = &self.segments.graph;
        for (number, queue) in self.segments.queues.iter().enumerate() {
            let device = queue
                .device
                .and_then(|device| self.devices.list.get(device));
            let (Some(device), true) = (device, queue.in_flight) else {
                continue;
            };
            let range = graph.queues[number];
            let others = self.queues_of(device.file, Some(device.ordinal));
            let mut ends: Vec<(i64, u32)> = Vec::new();
            for transfer in range.first..range.end {
                let begin = graph.begin[transfer as usize];
                ends.push((graph.end[transfer as usize], transfer));
                let around = others
                    .iter()
                    .filter_map(|other| graph.locate(*other, begin));
                if let Some((from, anchor)) = around.max_by_key(|(from, anchor)| (*anchor, *from)) {
                    self.dependencies.push(Dependency {
                        to: transfer,
                        kind: LagKind::EventWait,
                        from,
                        anchor,
                        confidence: Confidence::Inferred,
                    });
                }
            }
            ends.sort_unstable();
            for other in others {
                let range = graph.queues[other];
                for to in range.first..range.end {
                    let slice = self.segments.slice_of(to as usize);
                    if !slice.is_some_and(|(track, slice)| self.devices.is_await(track, slice)) {
                        continue;
                    }
                    let (begin, end) = (graph.begin[to as usize], graph.end[to as usize]);
                    let before = ends.partition_point(|(at, _)| *at <= end);
                    let last = before.checked_sub(1).map(|last| ends[last]);
                    if let Some((anchor, from)) = last.filter(|(at, _)| *at > begin) {
                        self.syncs.push(Dependency {
                            to,
                            kind: LagKind::SyncReturn,
                            from,
                            anchor,
                            confidence: Confidence::Inferred,
                        });
                    }
                }
            }
        }
    }

    /// Returns the first and the last segment of a queue that begin in a range.
    fn within(&self, queue: usize, from: i64, to: i64) -> Option<(u32, u32)> {
        let range = self.segments.graph.queues[queue];
        let begin = &self.segments.graph.begin[range.first as usize..range.end as usize];
        let first = begin.partition_point(|begin| *begin < from);
        let end = begin.partition_point(|begin| *begin < to);
        (first < end && range.first != NONE)
            .then(|| (range.first + index(first), range.first + index(end - 1)))
    }
}
