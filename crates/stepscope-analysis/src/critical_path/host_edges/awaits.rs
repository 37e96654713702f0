//! Waits for the results of compiled programs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use stepscope_model::{Cancelled, NameId};
use stepscope_store::Trace;

use super::super::calls::{CallKind, CallKinds};
use super::super::device_edges::longest_return;
use super::super::graph::{Dependency, EdgeConfidence, LagKind, galloping_search, index};
use super::super::segments::Segments;
use super::{HostEdges, Process, process};
use crate::parallel::{self, Cancel};

impl HostEdges {
    /// Adds the edges to calls that wait for a compiled program: from the last report of the end of device work
    /// inside the wait, else from the last device work of the file, or the last segment of another thread of the
    /// process, that ends shortly before it.
    pub(in super::super) fn awaits(
        &mut self,
        trace: &Trace,
        segments: &Segments,
        kinds: &CallKinds,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        if !kinds.any(CallKind::Await) {
            return Ok(());
        }
        let waits = waits(trace, segments, kinds, cancel)?;
        if waits.is_empty() {
            return Ok(());
        }
        let graph = &segments.graph;
        let mut ends = AwaitedEnds::new(trace, segments, &self.completions);
        for (number, to) in waits.into_iter().enumerate() {
            if number % CHECK_WAITS == 0 {
                cancel.check()?;
            }
            let (begin, end) = (graph.begin[to as usize], graph.end[to as usize]);
            let queue = graph.queue[to as usize] as usize;
            let key = process(trace, segments, queue);
            let earliest = begin.max(end.saturating_sub(longest_return(begin, end)));
            // The thread's own segments end there too.
            let is_other = |segment: u32| graph.queue[segment as usize] as usize != queue;
            let last = |lists: Option<&mut Vec<SortedEnds<'_>>>, after: i64| {
                let lists = lists?.iter_mut();
                let others = lists.filter(|list| list.queue != Some(queue));
                let found = others.filter_map(|list| list.last(after, end, is_other));
                found.max()
            };
            let found = last(ends.reports.get_mut(&key), begin)
                .or_else(|| last(ends.on_devices.get_mut(&key.0), earliest))
                .or_else(|| last(ends.on_threads.get_mut(&key), earliest));
            if let Some((anchor, from)) = found {
                self.syncs.push(Dependency {
                    to,
                    kind: LagKind::SyncReturn,
                    from,
                    anchor,
                    confidence: EdgeConfidence::Inferred,
                });
            }
        }
        Ok(())
    }
}

/// Lists the segments of calls that wait, in their order.
fn waits(
    trace: &Trace,
    segments: &Segments,
    kinds: &CallKinds,
    cancel: &Cancel,
) -> Result<Vec<u32>, Cancelled> {
    let (chunks, size) = segments.chunks(|queue| queue.device.is_none());
    let found = parallel::scan_items(&chunks, size, cancel, Vec::new, |out, chunk| {
        let queue = segments.graph.queue[chunk.start as usize] as usize;
        let queue = &segments.queues[queue];
        let rows = queue.tracks().map(|track| trace.slices(track).name);
        let names: Vec<&[NameId]> = rows.collect();
        out.extend(chunk.clone().filter(|segment| {
            let (row, slice) = queue.locate(segments.slice[*segment as usize]);
            // Where nothing is recorded, the slice is past the end of the last row.
            let name = names[row].get(slice);
            name.is_some_and(|name| kinds.get(*name) == CallKind::Await)
        }));
    })?;
    let mut found: Vec<u32> = found.into_iter().flatten().collect();
    found.sort_unstable();
    Ok(found)
}

/// Waits between two checks for cancellation.
const CHECK_WAITS: usize = 1 << 12;
/// Lists that are searched for each wait; more of them are made one.
const MAX_LISTS: usize = 64;
/// Ends of the waiting thread's own segments that are passed over in a list of several queues.
const MAX_OWN: usize = 64;

/// Ends of segments, in order of time.
struct SortedEnds<'a> {
    /// The queue, if all segments are of one.
    queue: Option<usize>,
    ends: Cow<'a, [i64]>,
    /// The segments that end then; empty if they are consecutive.
    listed: Vec<u32>,
    first: u32,
    /// Where the last search ended, which shortens the next one.
    near: usize,
}

impl<'a> SortedEnds<'a> {
    /// Lists the ends of all segments of a queue.
    fn from_queue(segments: &'a Segments, queue: usize) -> Self {
        let range = segments.graph.queues[queue];
        if !range.is_ordered {
            let all = (range.first..range.end).collect();
            return Self::from_segments(segments, Some(queue), all);
        }
        Self {
            queue: Some(queue),
            ends: Cow::Borrowed(&segments.graph.end[range.first as usize..range.end as usize]),
            listed: Vec::new(),
            first: range.first,
            near: 0,
        }
    }

    /// Lists the ends of some segments, all of one queue if it is given.
    fn from_segments(segments: &Segments, queue: Option<usize>, mut listed: Vec<u32>) -> Self {
        let end = |segment: &u32| segments.graph.end[*segment as usize];
        listed.sort_unstable_by_key(|segment| (end(segment), *segment));
        Self {
            queue,
            ends: listed.iter().map(end).collect(),
            listed,
            first: 0,
            near: 0,
        }
    }

    fn segment(&self, position: usize) -> u32 {
        match self.listed.get(position) {
            Some(segment) => *segment,
            None => self.first + index(position),
        }
    }

    /// Returns the last of the ends after a time and not after another one whose segment is wanted, with the segment.
    fn last(
        &mut self,
        after: i64,
        until: i64,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Option<(i64, u32)> {
        self.near = galloping_search(&self.ends, until.saturating_add(1), self.near);
        let before = (0..self.near).rev().take(MAX_OWN);
        let mut before = before.map(|position| (self.ends[position], self.segment(position)));
        let found = before.find(|(_, segment)| is_wanted(*segment))?;
        (found.0 > after).then_some(found)
    }
}

/// The ends that a wait may wait for.
#[derive(Default)]
struct AwaitedEnds<'a> {
    /// Segments that report the end of device work, by process.
    reports: BTreeMap<Process, Vec<SortedEnds<'a>>>,
    /// Without such reports: the segments of threads by process, and those of devices by file.
    on_threads: BTreeMap<Process, Vec<SortedEnds<'a>>>,
    on_devices: BTreeMap<usize, Vec<SortedEnds<'a>>>,
}

impl<'a> AwaitedEnds<'a> {
    /// `completions` lists the reports.
    fn new(trace: &Trace, segments: &'a Segments, completions: &[u32]) -> Self {
        let mut found = Self::default();
        if !completions.is_empty() {
            let mut reports: BTreeMap<Process, Vec<u32>> = BTreeMap::new();
            for report in completions {
                let queue = segments.graph.queue[*report as usize] as usize;
                let of_process = reports.entry(process(trace, segments, queue)).or_default();
                of_process.push(*report);
            }
            let lists = reports.into_iter().map(|(key, reports)| {
                (
                    key,
                    vec![SortedEnds::from_segments(segments, None, reports)],
                )
            });
            found.reports = lists.collect();
            return found;
        }
        let mut on_threads: BTreeMap<Process, Vec<usize>> = BTreeMap::new();
        let mut on_devices: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, queue) in segments.queues.iter().enumerate() {
            let queues = match queue.device {
                None => on_threads
                    .entry(process(trace, segments, number))
                    .or_default(),
                Some(_) => on_devices.entry(queue.file).or_default(),
            };
            queues.push(number);
        }
        let lists = |queues: Vec<usize>| lists(segments, &queues);
        found.on_threads = on_threads
            .into_iter()
            .map(|(key, queues)| (key, lists(queues)))
            .collect();
        found.on_devices = on_devices
            .into_iter()
            .map(|(key, queues)| (key, lists(queues)))
            .collect();
        found
    }
}

/// Lists the ends of the segments of some queues.
fn lists<'a>(segments: &'a Segments, queues: &[usize]) -> Vec<SortedEnds<'a>> {
    if queues.len() <= MAX_LISTS {
        let lists = queues
            .iter()
            .map(|queue| SortedEnds::from_queue(segments, *queue));
        return lists.collect();
    }
    let ranges = queues.iter().map(|queue| segments.graph.queues[*queue]);
    let all = ranges.flat_map(|range| range.first..range.end);
    vec![SortedEnds::from_segments(segments, None, all.collect())]
}
