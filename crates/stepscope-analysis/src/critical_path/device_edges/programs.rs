//! Edges of compiled programs: of the calls that launch them, and of transfers in flight.

use std::collections::BTreeMap;

use stepscope_model::TrackId;

use super::super::graph::{Dependency, EdgeConfidence, LagKind, NONE, index};
use super::{DeviceEdges, FoundLaunches};

impl DeviceEdges<'_> {
    /// Adds the edges from the calls that launch whole programs to the first operation of each: lines of modules
    /// of compiled programs. Returns, by call, the last operation of the programs that it launched.
    pub(in super::super) fn programs(&mut self, modules: &[TrackId]) -> BTreeMap<u32, u32> {
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
                    let Some((thread, slice)) = self.segments.number_of(host, slice) else {
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
    pub(in super::super) fn transfers(&mut self) {
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
                        confidence: EdgeConfidence::Inferred,
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
                            confidence: EdgeConfidence::Inferred,
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
