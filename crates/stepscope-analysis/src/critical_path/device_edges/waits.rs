//! What waits for device work: calls of the host, and queues that wait for events.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::Cancelled;

use super::super::calls::{CallKind, SyncRecord, SyncRecords};
use super::super::graph::{Dependency, EdgeConfidence, LagKind, index};
use super::{Call, DeviceEdges, longest_return};
use crate::launch::correlation;
use crate::parallel::{self, Cancel};

/// Longest delay between the end of work and the start of work on another queue that waits for it, where the file
/// does not record the event, picoseconds.
const LONGEST_EVENT_WAIT: i64 = 20_000_000;

/// Number of calls whose correlations one thread reads before it takes the next ones.
const CHUNK: usize = 1 << 12;

/// Returns whether a call may have waited for work that ends at a time: inside the call, shortly before its end.
fn is_end_of(call: &Call, end: i64) -> bool {
    let delay = call.end.saturating_sub(end).saturating_abs();
    end > call.begin && delay <= longest_return(call.begin, call.end)
}

/// What the waits of some calls add.
#[derive(Default)]
pub(super) struct FoundWaits {
    dependencies: Vec<Dependency>,
    syncs: Vec<Dependency>,
    /// Thread and slice of the calls that let a queue wait for something unknown.
    unknown: Vec<(usize, u32)>,
    contradictions: u64,
}

impl DeviceEdges<'_> {
    /// Adds the edges of the calls that wait; returns thread and slice of those that let a queue wait for something
    /// unknown, in the order of the calls.
    pub(super) fn waits(
        &mut self,
        calls: &[Call],
        records: &SyncRecords,
        cancel: &Cancel,
    ) -> Result<Vec<(usize, u32)>, Cancelled> {
        let recorded = self.event_records(calls);
        let chunks: Vec<_> = calls.chunks(CHUNK).enumerate().collect();
        // A wait takes as long as many slices.
        let size = calls.len().saturating_mul(16);
        let found = parallel::scan_items(&chunks, size, cancel, Vec::new, |out, (at, calls)| {
            let mut found = FoundWaits::default();
            for call in *calls {
                self.wait(call, records, &recorded, &mut found);
            }
            out.push((*at, found));
        })?;
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|(at, _)| *at);
        let mut unknown = Vec::new();
        for (_, found) in found {
            unknown.extend(&found.unknown);
            self.take(found);
        }
        Ok(unknown)
    }

    fn take(&mut self, found: FoundWaits) {
        self.dependencies.extend(found.dependencies);
        self.syncs.extend(found.syncs);
        self.contradictions += found.contradictions;
    }

    /// Reads the correlations of the waits and event records in files with `cuda_sync` records.
    pub(super) fn read_correlations(
        &self,
        calls: &mut [Call],
        records: &SyncRecords,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        if records.is_empty() {
            return Ok(());
        }
        // Arguments take as long as many slices.
        let size = calls.len().saturating_mul(16);
        parallel::scan_column(
            calls,
            CHUNK,
            size,
            cancel,
            || (),
            |(), _, calls| {
                for call in calls.iter_mut().filter(|call| !call.kind.is_launch()) {
                    let queue = &self.segments.queues[call.queue];
                    if records.contains_key(&queue.file) {
                        let (track, slice) = queue.slice_on_track(call.slice);
                        let event = self.trace.slices(track).id(slice);
                        call.correlation = correlation(self.trace, event);
                    }
                }
            },
        )?;
        Ok(())
    }

    /// Finds the starts of the calls that record the events that others wait for, by file and correlation.
    fn event_records(&self, calls: &[Call]) -> FxHashMap<(usize, i64), i64> {
        let mut found = FxHashMap::default();
        for call in calls {
            if call.kind == CallKind::EventRecord
                && let Some(number) = call.correlation
            {
                let file = self.segments.queues[call.queue].file;
                found.entry((file, number)).or_insert(call.begin);
            }
        }
        found
    }

    /// Finds the edges of a call that waits.
    fn wait(
        &self,
        call: &Call,
        records: &SyncRecords,
        recorded: &FxHashMap<(usize, i64), i64>,
        found: &mut FoundWaits,
    ) {
        let file = self.segments.queues[call.queue].file;
        let record = || records.get(&file)?.get(&call.correlation?).copied();
        match call.kind {
            CallKind::DeviceWait | CallKind::StreamWait | CallKind::EventWait => {
                self.host_wait(call, file, record(), recorded, found);
            }
            CallKind::Copy | CallKind::BlockingCopy => {
                if let Some(copy) = self.copies.get(&(call.queue, call.slice)).copied() {
                    self.add_sync(call, copy, EdgeConfidence::Inferred, found);
                }
            }
            CallKind::QueueWait => {
                let known = record()
                    .is_some_and(|record| self.queue_wait(call, file, &record, recorded, found));
                if !known {
                    found.unknown.push((call.queue, call.slice));
                }
            }
            _ => {}
        }
    }

    fn host_wait(
        &self,
        call: &Call,
        file: usize,
        record: Option<SyncRecord>,
        recorded: &FxHashMap<(usize, i64), i64>,
        found: &mut FoundWaits,
    ) {
        if let Some(record) = record {
            if record.whole_device || call.kind == CallKind::DeviceWait {
                for queue in self.queues_of(file, Some(record.device)) {
                    if let Some(work) = self.last_before(queue, call.begin, call.end) {
                        self.add_sync(call, work, EdgeConfidence::Recorded, found);
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
                    self.add_sync(call, work, EdgeConfidence::Recorded, found);
                }
                return;
            }
        }
        self.infer_host_wait(call, file, found);
    }

    /// Infers what a call waits for, from its name and its end.
    ///
    /// A call that waits for a device, or for the only queue with work, ends after all work that was launched before
    /// it, however late it returns. Other calls return shortly after what they wait for: the last work of a queue,
    /// or, for an event, any work of a queue.
    fn infer_host_wait(&self, call: &Call, file: usize, found: &mut FoundWaits) {
        let queues = self.queues_of(file, None);
        let launched = |queue: &usize| {
            if call.kind == CallKind::EventWait {
                self.ended_near(*queue, call)
            } else {
                self.last_before(*queue, call.begin, call.end)
            }
        };
        let mut works: Vec<u32> = queues.iter().filter_map(launched).collect();
        let device = |queue: &usize| self.segments.queues[*queue].device;
        let mut devices = queues.iter().map(device);
        let is_one_device = devices
            .next()
            .is_none_or(|first| devices.all(|other| other == first));
        let is_certain = match call.kind {
            CallKind::DeviceWait => is_one_device,
            CallKind::StreamWait => queues.len() == 1,
            _ => false,
        };
        if !is_certain {
            let end = |work: &u32| self.segments.graph.end[*work as usize];
            let ends_call = |work: &u32| is_end_of(call, end(work));
            let last = works.iter().copied().filter(ends_call).max_by_key(end);
            let Some(last) = last else {
                return;
            };
            if call.kind != CallKind::DeviceWait {
                works = vec![last];
            }
        }
        for work in works {
            self.add_sync(call, work, EdgeConfidence::Inferred, found);
        }
    }

    /// Returns the work of a queue, launched before a call, whose end is close to the end of the call: the last one
    /// that ends before, else the next one.
    fn ended_near(&self, queue: usize, call: &Call) -> Option<u32> {
        let range = self.segments.graph.queues[queue];
        let ends = &self.segments.graph.end[range.first as usize..range.end as usize];
        let launched = self.launched.get(queue)?;
        let launched = launched.partition_point(|launch| *launch < call.begin);
        let next = ends.partition_point(|end| *end <= call.end);
        let candidates = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let found = candidates
            .filter(|work| *work < launched)
            .find(|work| ends.get(*work).is_some_and(|end| is_end_of(call, *end)));
        found.map(|work| range.first + index(work))
    }

    /// Adds the edges to the ends of the calls that wait until a queue has room: the work that ends makes it.
    pub(super) fn waits_for_room(&mut self) {
        let mut found = FoundWaits::default();
        for (call, queue) in std::mem::take(&mut self.blocked) {
            if let Some(work) = self.ended_near(queue, &call) {
                self.add_sync(&call, work, EdgeConfidence::Inferred, &mut found);
            }
        }
        self.take(found);
    }

    /// Adds the edge to the end of a call from the end of work.
    fn add_sync(&self, call: &Call, work: u32, confidence: EdgeConfidence, found: &mut FoundWaits) {
        let (track, slice) = self.segments.queues[call.queue].slice_on_track(call.slice);
        let returned = self.trace.slices(track).end(slice);
        let Some(to) = self.segments.ending_at(call.queue, returned) else {
            return;
        };
        let end = self.segments.graph.end[work as usize];
        if end > call.end {
            found.contradictions += 1;
            // The file says that the call did not wait for this work: its clocks differ, or its times are rounded.
            let begin = self.segments.graph.begin[work as usize];
            if end.saturating_sub(call.end) > longest_return(call.begin, call.end)
                || begin >= call.end
            {
                return;
            }
        }
        found.syncs.push(Dependency {
            to,
            kind: LagKind::SyncReturn,
            from: work,
            anchor: end.min(call.end),
            confidence,
        });
    }

    /// Adds the edge of a queue that waits for an event; returns whether the file has all ids.
    fn queue_wait(
        &self,
        call: &Call,
        file: usize,
        record: &SyncRecord,
        recorded: &FxHashMap<(usize, i64), i64>,
        found: &mut FoundWaits,
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
            self.add_event(to, work, EdgeConfidence::Recorded, found);
        }
        true
    }

    fn add_event(&self, to: u32, work: u32, confidence: EdgeConfidence, found: &mut FoundWaits) {
        let graph = &self.segments.graph;
        let (end, begin) = (graph.end[work as usize], graph.begin[to as usize]);
        if end > begin {
            found.contradictions += 1;
            if graph.begin[work as usize] >= begin {
                return;
            }
        }
        found.dependencies.push(Dependency {
            to,
            kind: LagKind::EventWait,
            from: work,
            anchor: end.min(begin),
            confidence,
        });
    }

    /// Infers the events of calls that let a queue wait without saying for what: the work that the thread launches
    /// next begins shortly after the end of work on another queue, and was launched before that end. The same between
    /// the work of one graph.
    pub(super) fn infer_event_waits(
        &mut self,
        unknown_waits: &[(usize, u32)],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let after_wait = self.launches_after(unknown_waits);
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
        let (chunks, size) = self.segments.chunks(|queue| queue.device.is_some());
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
                let waits = after_wait.contains(&(thread, slice));
                if (waits || self.is_graph(thread, slice))
                    && let Some(work) = self.ended_before(queue, to, ends)
                    && self.returned(thread, slice) < graph.end[work as usize]
                    && (waits || self.call_of(work as usize) == Some((thread, slice)))
                {
                    out.push((to, work));
                }
            }
        })?;
        let mut edges = FoundWaits::default();
        for (to, work) in found.into_iter().flatten() {
            self.add_event(to, work, EdgeConfidence::Inferred, &mut edges);
        }
        self.take(edges);
        Ok(())
    }

    /// Returns thread and slice of the launch that follows each call on its row; the calls are in order of threads,
    /// rows and time.
    fn launches_after(&self, calls: &[(usize, u32)]) -> FxHashSet<(usize, u32)> {
        let mut found = FxHashSet::default();
        let mut last = None;
        for (thread, call) in calls.iter().copied() {
            if last.is_some_and(|(other, launch)| other == thread && launch > call) {
                continue;
            }
            let (track, at) = self.segments.queues[thread].slice_on_track(call);
            let names = &self.trace.slices(track).name[at..];
            let mut after = names.iter().zip(call..).skip(1);
            let launch = after
                .find(|(name, _)| self.kinds.get(**name).is_launch())
                .map(|(_, slice)| slice);
            found.extend(launch.map(|launch| (thread, launch)));
            last = Some((thread, launch.unwrap_or(call + index(names.len()))));
        }
        found
    }

    fn is_graph(&self, thread: usize, slice: u32) -> bool {
        let name = self.segments.queues[thread].name(self.trace, slice);
        name.is_some_and(|name| self.kinds.get(name) == CallKind::GraphLaunch)
    }

    fn returned(&self, thread: usize, slice: u32) -> i64 {
        let (track, slice) = self.segments.queues[thread].slice_on_track(slice);
        self.shifted(thread, self.trace.slices(track).end(slice))
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
}
