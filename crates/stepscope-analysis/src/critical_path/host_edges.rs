//! Edges between threads: hand-overs that the file records, waits for compiled programs, the thread of torch's
//! autograd, and collectives on host threads (gloo).

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

mod awaits;

use std::collections::BTreeMap;

use stepscope_model::vocabulary::collective::is_process_group_call;
use stepscope_model::vocabulary::kineto::{AUTOGRAD_ENGINE, Category, is_python_function};
use stepscope_model::{Cancelled, NameId};
use stepscope_store::{EventId, Trace};

use super::device_edges::longest_return;
use super::graph::{Dependency, EdgeConfidence, LagKind, index};
use super::queues::PathQueue;
use super::segments::Segments;
use crate::collectives::Collectives;
use crate::names::by_text;
use crate::parallel::{self, Cancel, TrackChunk};

/// Edges of host threads.
#[derive(Default)]
pub(super) struct HostEdges {
    /// Edges to starts.
    pub(super) dependencies: Vec<Dependency>,
    /// Edges to ends of waits.
    pub(super) syncs: Vec<Dependency>,
    /// Number of times that contradict an edge.
    pub(super) contradictions: u64,
    /// Segments that report the end of device work.
    completions: Vec<u32>,
}

impl HostEdges {
    /// Adds the links from one thread to another. `last_operation` holds, by call, the last operation of the program
    /// that it launched: what the same call also links to, after that operation, reports its end.
    pub(super) fn handovers(
        &mut self,
        trace: &Trace,
        segments: &Segments,
        last_operation: &BTreeMap<u32, u32>,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let threads = segments
            .queues
            .iter()
            .filter(|queue| queue.device.is_none());
        let tracks = threads.flat_map(PathQueue::tracks);
        let slices = tracks.map(|track| (track, 0..trace.slices(track).len()));
        let chunks = parallel::track_chunks(slices);
        let reader = || HandoverReader {
            trace,
            segments,
            last_operation,
            near: vec![0; segments.queues.len()],
            found: Self::default(),
        };
        let found = parallel::scan(&chunks, cancel, reader, HandoverReader::read)?;
        for HandoverReader { mut found, .. } in found {
            self.dependencies.append(&mut found.dependencies);
            self.completions.append(&mut found.completions);
            self.contradictions += found.contradictions;
        }
        self.completions.sort_unstable();
        self.completions.dedup();
        Ok(())
    }

    /// Adds the edges between a thread that calls `backward` and the thread of torch's autograd: all work of
    /// exactly one such thread that begins inside one segment of the caller ends inside it.
    pub(super) fn backward(&mut self, trace: &Trace, segments: &Segments) {
        let is_engine = by_text(trace, |name| name.starts_with(AUTOGRAD_ENGINE));
        if !is_engine.contains(&true) {
            return;
        }
        let is_engine = |name: &NameId| is_engine.get(name.index()) == Some(&true);
        let graph = &segments.graph;
        let engines: Vec<usize> = (0..segments.queues.len())
            .filter(|queue| {
                let queue = &segments.queues[*queue];
                let mut tracks = queue.tracks();
                queue.device.is_none()
                    && !queue.marks_steps
                    && tracks.any(|track| trace.slices(track).name.iter().any(is_engine))
            })
            .collect();
        for (caller, queue) in segments.queues.iter().enumerate() {
            if !queue.marks_steps {
                continue;
            }
            let mut found: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
            for engine in &engines {
                if segments.queues[*engine].file != queue.file {
                    continue;
                }
                let range = graph.queues[*engine];
                let mut first = range.first;
                while first < range.end {
                    let begin = graph.begin[first as usize];
                    let Some((around, _)) = graph.locate(caller, begin.saturating_add(1)) else {
                        first += 1;
                        continue;
                    };
                    let until = graph.end[around as usize];
                    let begins = &graph.begin[first as usize..range.end as usize];
                    let inside = begins.partition_point(|begin| *begin < until).max(1);
                    let last = first + index(inside) - 1;
                    if begin >= graph.begin[around as usize]
                        && graph.end[last as usize] <= until
                        && may_wait(trace, segments, around)
                    {
                        found.entry(around).or_default().push((first, last));
                    }
                    first = last + 1;
                }
            }
            for (around, bursts) in found {
                let [(first, last)] = bursts[..] else {
                    continue;
                };
                self.dependencies.push(Dependency {
                    to: first,
                    kind: LagKind::Handover,
                    from: around,
                    anchor: graph.begin[around as usize],
                    confidence: EdgeConfidence::Inferred,
                });
                self.syncs.push(Dependency {
                    to: around,
                    kind: LagKind::SyncReturn,
                    from: last,
                    anchor: graph.end[last as usize],
                    confidence: EdgeConfidence::Inferred,
                });
            }
        }
    }

    /// Adds the edges between the thread that marks the steps and the collectives that other threads of its process
    /// run: it hands over a collective that begins while it works, and it waits inside a segment for the collectives
    /// that end there, if the last of them ends shortly before the segment.
    pub(super) fn collectives(
        &mut self,
        trace: &Trace,
        segments: &Segments,
        matched: &Collectives,
    ) {
        let graph = &segments.graph;
        let mut callers = BTreeMap::new();
        for (number, queue) in segments.queues.iter().enumerate() {
            if queue.marks_steps {
                callers
                    .entry(process(trace, segments, number))
                    .or_insert(number);
            }
        }
        let mut ends: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for call in &matched.parts {
            let Some((track, slice)) = trace.place_of_slice(call.event) else {
                continue;
            };
            let Some(queue) = segments.queue_of(track) else {
                continue;
            };
            if segments.queues[queue].device.is_some() {
                continue;
            }
            let name = trace.slices(track).name[slice];
            let caller = callers.get(&process(trace, segments, queue)).copied();
            let Some(caller) = caller.filter(|caller| *caller != queue) else {
                continue;
            };
            if !is_process_group_call(trace.name(name)) {
                continue;
            }
            let Some(range) = segments.of_slice(trace, call.event, call.start..call.end) else {
                continue;
            };
            let (first, last) = (range.start, range.end - 1);
            let begin = graph.begin[first as usize];
            if let Some((from, anchor)) = graph.locate(caller, begin) {
                let before = graph.previous(first as usize);
                // A thread that takes one collective after the other while the caller waits needs no further call.
                let is_next =
                    before.is_some_and(|before| graph.end[before] > graph.begin[from as usize]);
                if !is_next || !may_wait(trace, segments, from) {
                    self.dependencies.push(Dependency {
                        to: first,
                        kind: LagKind::Handover,
                        from,
                        anchor,
                        confidence: EdgeConfidence::Inferred,
                    });
                }
            }
            let end = graph.end[last as usize];
            if let Some((around, at)) = graph.locate(caller, end)
                && at == end
                && may_wait(trace, segments, around)
            {
                ends.entry(around).or_default().push(last);
            }
        }
        for (around, ends) in ends {
            let (begin, end) = (graph.begin[around as usize], graph.end[around as usize]);
            let latest = ends.iter().map(|last| graph.end[*last as usize]).max();
            if latest.is_none_or(|latest| end.saturating_sub(latest) > longest_return(begin, end)) {
                continue;
            }
            self.syncs.extend(ends.into_iter().map(|last| Dependency {
                to: around,
                kind: LagKind::SyncReturn,
                from: last,
                anchor: graph.end[last as usize],
                confidence: EdgeConfidence::Inferred,
            }));
        }
    }
}

/// File and number of a process.
type Process = (usize, Option<i64>);

/// Returns the process of a thread.
fn process(trace: &Trace, segments: &Segments, queue: usize) -> Process {
    let queue = &segments.queues[queue];
    let track = trace.tracks().get(queue.track().index());
    (queue.file, track.and_then(|track| track.pid))
}

/// Reads the links that arrive at slices of host threads.
struct HandoverReader<'a> {
    trace: &'a Trace,
    segments: &'a Segments,
    last_operation: &'a BTreeMap<u32, u32>,
    /// Where the last segment was found in each queue.
    near: Vec<usize>,
    found: HostEdges,
}

impl HandoverReader<'_> {
    fn read(&mut self, chunk: &TrackChunk) {
        let (trace, segments) = (self.trace, self.segments);
        let Some(queue) = segments.queue_of(chunk.track) else {
            return;
        };
        let slices = trace.slices(chunk.track);
        for (to, from) in trace.flows_into(chunk.track, chunk.indexes.clone()) {
            let Some(start) = slices.start.get(to).copied() else {
                continue;
            };
            let near = &mut self.near[queue];
            let Some(segment) = segments.starting_at(queue, start, near) else {
                continue;
            };
            // A slice may begin together with those inside it: the segment is that of the innermost.
            let Some((track, mut inner)) = segments.slice_of(segment as usize) else {
                continue;
            };
            while track == chunk.track && inner > to && slices.start.get(inner) == Some(&start) {
                inner = slices.parent[inner] as usize;
            }
            if track != chunk.track || inner == to {
                self.hand_over((queue, segment), from);
            }
        }
    }

    fn hand_over(&mut self, (queue, to): (usize, u32), from: EventId) {
        let (trace, segments) = (self.trace, self.segments);
        let graph = &segments.graph;
        let begin = graph.begin[to as usize];
        let found = &mut self.found;
        let edge = |from: u32, anchor: i64| Dependency {
            to,
            kind: LagKind::Handover,
            from,
            anchor,
            confidence: EdgeConfidence::Recorded,
        };
        if let Some(operation) = self.last_operation.get(&from.0).copied()
            && graph.end[operation as usize] <= begin
        {
            let end = graph.end[operation as usize];
            found.dependencies.push(edge(operation, end));
            found.completions.push(to);
        }
        let Some((track, slice)) = trace.place_of_slice(from) else {
            return;
        };
        let Some(source) = segments.queue_of(track).filter(|source| *source != queue) else {
            return;
        };
        let shift = segments.queues[source].shift;
        let slices = trace.slices(track);
        let start = slices.start[slice].ps().saturating_add(shift);
        let end = slices.end(slice).ps().saturating_add(shift);
        if begin < start {
            found.contradictions += 1;
            return;
        }
        let near = &mut self.near[source];
        if let Some((from, anchor)) = graph.locate_near(source, end.min(begin), near) {
            found.dependencies.push(edge(from, anchor));
        }
    }
}

/// Returns whether a segment of the calling thread may be a wait: a Python frame, a marker, or nothing.
fn may_wait(trace: &Trace, segments: &Segments, segment: u32) -> bool {
    let Some((track, slice)) = segments.slice_of(segment as usize) else {
        return true;
    };
    let slices = trace.slices(track);
    let name = slices.name.get(slice).map_or("", |name| trace.name(*name));
    let category = Category::from_name(trace.name(slices.category.get(slice)));
    is_python_function(name)
        || matches!(
            category,
            Some(Category::PythonFunction | Category::Annotation)
        )
}
