//! Path and replay of random graphs, against a plain recursive model.

use std::collections::HashMap;

use proptest::prelude::*;

use super::blocks::Blocks;
use super::graph::{
    Dependency, DependencyGraph, EdgeConfidence, LagKind, NONE, QueueSegments, SegmentKind, index,
};
use super::path::walk;
use super::replay::{Changes, Unchanged, replay};
use super::slack::slack;

/// One random segment: gap before it, length, whether it waits, and seeds of its edges.
type Random = (i64, i64, bool, Vec<(u32, u8)>);

/// Segments of random queues, and what connects them.
struct Parts {
    graph: DependencyGraph,
    groups: Vec<Vec<u32>>,
    dependencies: Vec<Dependency>,
    syncs: Vec<Dependency>,
}

/// Builds a graph from random queues: the first queues are threads, the others belong to a device.
fn build(queues: &[Vec<Random>], groups: &[(u32, u32)]) -> DependencyGraph {
    let Parts {
        mut graph,
        groups,
        dependencies,
        syncs,
    } = parts(queues, groups);
    graph.group = vec![NONE; graph.len()];
    for (number, members) in groups.iter().enumerate() {
        for member in members {
            graph.group[*member as usize] = index(number);
        }
    }
    graph.groups = groups;
    let (mut dependencies, mut syncs) = (dependencies, syncs);
    graph.contradictions = graph.retain_consistent(&mut dependencies, &mut syncs);
    graph.connect(dependencies, syncs);
    graph
}

fn parts(queues: &[Vec<Random>], groups: &[(u32, u32)]) -> Parts {
    let mut graph = DependencyGraph::default();
    let mut times = Vec::new();
    for (number, segments) in queues.iter().enumerate() {
        let first = index(graph.len());
        let mut time = 0;
        for (gap, length, ..) in segments {
            time += gap;
            graph.begin.push(time);
            time += length;
            graph.end.push(time);
            graph.kind.push(SegmentKind::Host);
            graph.queue.push(index(number));
        }
        times.push(time);
        graph.queues.push(QueueSegments {
            first,
            end: index(graph.len()),
            device: if number < 2 { NONE } else { 0 },
            is_ordered: true,
        });
    }
    let count = graph.len();
    let mut dependencies = Vec::new();
    let mut syncs = Vec::new();
    let all = queues.iter().flatten().enumerate();
    for (to, (_, _, waits, edges)) in all {
        for (seed, kind) in edges {
            let from = *seed as usize % count;
            if graph.queue[from] == graph.queue[to] {
                continue;
            }
            let kinds = [
                LagKind::EventWait,
                LagKind::LaunchLatency,
                LagKind::Handover,
            ];
            let mut edge = Dependency {
                to: index(to),
                kind: kinds[*kind as usize % 3],
                from: index(from),
                anchor: graph.end[from].min(graph.begin[to]),
                confidence: EdgeConfidence::Recorded,
            };
            // Some contradict the times: the graph leaves them out.
            dependencies.push(edge);
            if *waits {
                edge.kind = LagKind::SyncReturn;
                edge.anchor = graph.end[from].min(graph.end[to]);
                syncs.push(edge);
            }
        }
    }
    let mut found: Vec<Vec<u32>> = Vec::new();
    for (a, b) in groups {
        let pair = [*a as usize % count, *b as usize % count];
        let waits: Vec<bool> = queues.iter().flatten().map(|segment| segment.2).collect();
        let is_grouped = |segment: usize| found.iter().flatten().any(|one| *one == index(segment));
        let is_free = |segment: &usize| !is_grouped(*segment) && !waits[*segment];
        if graph.queue[pair[0]] != graph.queue[pair[1]] && pair.iter().all(is_free) {
            found.push(pair.map(index).to_vec());
        }
    }
    Parts {
        graph,
        groups: found,
        dependencies,
        syncs,
    }
}

/// Factors of lengths and of lags.
struct Factors {
    lengths: Vec<i64>,
    lags: i64,
}

impl Changes for Factors {
    fn length(&self, segment: usize, measured: i64) -> i64 {
        measured * self.lengths[segment]
    }

    fn lag(&self, _: usize, _: LagKind, measured: i64, _: bool) -> i64 {
        measured * self.lags
    }

    fn waits(&self, _: usize) -> bool {
        true
    }
}

/// One segment is longer.
struct Longer {
    segment: usize,
    by: i64,
}

impl Changes for Longer {
    fn length(&self, segment: usize, measured: i64) -> i64 {
        measured + if segment == self.segment { self.by } else { 0 }
    }

    fn lag(&self, _: usize, _: LagKind, measured: i64, _: bool) -> i64 {
        measured
    }

    fn waits(&self, _: usize) -> bool {
        true
    }
}

/// The same factors of the segments in blocks.
struct BlockFactors<'a> {
    segments: &'a DependencyGraph,
    blocks: &'a Blocks,
    factors: &'a Factors,
}

impl Changes for BlockFactors<'_> {
    fn length(&self, block: usize, measured: i64) -> i64 {
        let range = self.blocks.segments(block);
        if range.len() == 1 {
            return self.factors.length(range.start, measured);
        }
        let graph = self.segments;
        let lengths = range
            .clone()
            .map(|segment| self.factors.length(segment, graph.length(segment)));
        let inside = range.start + 1..range.end;
        let lags = inside
            .map(|segment| (graph.begin[segment] - graph.end[segment - 1]) * self.factors.lags);
        lengths.chain(lags).sum()
    }

    fn lag(&self, block: usize, kind: LagKind, measured: i64, binding: bool) -> i64 {
        self.factors
            .lag(self.blocks.segments(block).start, kind, measured, binding)
    }

    fn waits(&self, _: usize) -> bool {
        true
    }
}

/// The definitions, word by word and recursively.
struct Model<'a> {
    graph: &'a DependencyGraph,
    factors: &'a Factors,
    known: HashMap<(usize, bool), i64>,
}

impl Model<'_> {
    fn at(&mut self, from: usize, anchor: i64) -> i64 {
        let graph = self.graph;
        if anchor >= graph.end[from] {
            return self.time(from, true);
        }
        if let Some(group) = graph.group(from) {
            let release = graph.begin[graph.last_arriver(group)];
            if anchor > release {
                let left = graph.end[from] - anchor;
                return self.time(from, true) - left * self.factors.lengths[from];
            }
        }
        let mut offset = anchor - graph.begin[from];
        if graph.wait[from] == NONE && graph.group(from).is_none() {
            offset *= self.factors.lengths[from];
        }
        self.time(from, false) + offset
    }

    fn time(&mut self, segment: usize, end: bool) -> i64 {
        if let Some(time) = self.known.get(&(segment, end)) {
            return *time;
        }
        let time = if end {
            self.end(segment)
        } else {
            self.begin(segment)
        };
        self.known.insert((segment, end), time);
        time
    }

    fn begin(&mut self, segment: usize) -> i64 {
        let graph = self.graph;
        let start = graph.begin[segment];
        let binding = graph.bound(segment);
        let mut all: Vec<Dependency> = graph
            .dependencies
            .at(segment)
            .map(|edge| graph.dependencies.list[edge])
            .collect();
        if let Some(previous) = graph.previous(segment) {
            all.push(Dependency {
                to: index(segment),
                kind: graph.gap_kind(segment),
                from: index(previous),
                anchor: graph.end[previous],
                confidence: EdgeConfidence::Ordered,
            });
        }
        let times: Vec<i64> = all
            .iter()
            .map(|edge| {
                let lag = start - edge.anchor;
                let lag = if Some(*edge) == binding {
                    lag
                } else {
                    lag.min(graph.floor_of(segment, edge.kind))
                };
                self.at(edge.from as usize, edge.anchor) + lag * self.factors.lags
            })
            .collect();
        times.into_iter().max().unwrap_or(start)
    }

    fn end(&mut self, segment: usize) -> i64 {
        let graph = self.graph;
        let begin = self.time(segment, false);
        if let Some(bound) = graph.bound_wait(segment) {
            let syncs: Vec<Dependency> = graph
                .syncs
                .at(segment)
                .map(|edge| graph.syncs.list[edge])
                .collect();
            let ends = syncs.into_iter().map(|edge| {
                let lag = if edge == bound {
                    graph.end[segment] - edge.anchor
                } else {
                    0
                };
                self.at(edge.from as usize, edge.anchor) + lag * self.factors.lags
            });
            return ends.collect::<Vec<_>>().into_iter().fold(begin, i64::max);
        }
        if let Some(group) = graph.group(segment) {
            let measured = group
                .iter()
                .map(|member| graph.begin[*member as usize])
                .max()
                .unwrap_or(0);
            let release = group
                .iter()
                .copied()
                .map(|member| self.time(member as usize, false))
                .max();
            let transfer = (graph.end[segment] - measured) * self.factors.lengths[segment];
            return release.unwrap_or(begin) + transfer;
        }
        begin + graph.length(segment) * self.factors.lengths[segment]
    }
}

fn random_queues() -> impl Strategy<Value = Vec<Vec<Random>>> {
    let edges = prop::collection::vec((any::<u32>(), any::<u8>()), 0..3);
    let segment = (0..4_i64, 1..12_i64, any::<bool>(), edges);
    prop::collection::vec(prop::collection::vec(segment, 1..12), 2..6)
}

fn random_groups() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((any::<u32>(), any::<u32>()), 0..4)
}

/// Returns the last segment of the first queue, and the window up to its end.
fn window(graph: &DependencyGraph) -> (usize, std::ops::Range<i64>) {
    let last = graph.queues[0].end as usize - 1;
    (last, 0..graph.end[last])
}

proptest! {
    #[test]
    fn the_path_covers_the_window(queues in random_queues(), groups in random_groups()) {
        let graph = build(&queues, &groups);
        let (last, window) = window(&graph);
        let path = walk(&graph, last, &window);
        let mut time = window.start;
        for row in &path {
            prop_assert_eq!(row.begin, time);
            time = row.end;
        }
        prop_assert_eq!(time, window.end);
    }

    #[test]
    fn the_unchanged_replay_is_the_measurement(queues in random_queues(), groups in random_groups()) {
        let graph = build(&queues, &groups);
        let times = replay(&graph, &Unchanged);
        prop_assert_eq!(&times.begin, &graph.begin);
        prop_assert_eq!(&times.end, &graph.end);
    }

    #[test]
    fn a_segment_may_be_longer_by_its_slack_and_no_more(
        queues in random_queues(),
        groups in random_groups(),
        chosen in any::<usize>(),
    ) {
        let graph = build(&queues, &groups);
        let (last, _) = window(&graph);
        let segment = chosen % graph.len();
        // A wait has no length of its own.
        prop_assume!(graph.wait[segment] == NONE);
        let end_with = |by: i64| replay(&graph, &Longer { segment, by }).end[last];
        let end = graph.end[last];
        let Some(slack) = slack(&graph, last)[segment] else {
            prop_assert_eq!(end_with(1_000), end);
            return Ok(());
        };
        prop_assert!(slack >= 0);
        prop_assert_eq!(end_with(slack), end);
        // A point inside moves by less than the segment grows.
        let leaves_inside = |edge: &Dependency| {
            edge.from as usize == segment && edge.anchor < graph.end[segment]
        };
        let edges = graph.dependencies.list.iter().chain(&graph.syncs.list);
        if graph.group(segment).is_some() || !edges.clone().any(leaves_inside) {
            prop_assert!(end_with(slack + 1) > end);
        }
    }

    #[test]
    fn the_replay_equals_the_recursive_model(
        queues in random_queues(),
        groups in random_groups(),
        seeds in prop::collection::vec(0..4_i64, 60),
        lags in 0..3_i64,
    ) {
        let graph = build(&queues, &groups);
        let factors = Factors {
            lengths: (0..graph.len()).map(|segment| seeds[segment % seeds.len()]).collect(),
            lags,
        };
        let times = replay(&graph, &factors);
        let mut model = Model { graph: &graph, factors: &factors, known: HashMap::new() };
        for segment in 0..graph.len() {
            prop_assert_eq!(times.begin[segment], model.time(segment, false), "start of {}", segment);
            prop_assert_eq!(times.end[segment], model.time(segment, true), "end of {}", segment);
        }
    }

    #[test]
    fn blocks_have_the_path_and_the_replay_of_their_segments(
        queues in random_queues(),
        groups in random_groups(),
        seeds in prop::collection::vec(0..4_i64, 60),
        lags in 0..3_i64,
        chunk_segments in 1..3_usize,
    ) {
        let graph = build(&queues, &groups);
        let (last, window) = window(&graph);
        let parts = parts(&queues, &groups);
        let blocks = Blocks::new(&parts.graph, &parts.groups, last, parts.dependencies, parts.syncs);
        prop_assert_eq!(blocks.graph.contradictions, graph.contradictions);
        for block in 0..blocks.graph.len() {
            for segment in blocks.segments(block) {
                prop_assert_eq!(blocks.block_of(segment), block);
            }
        }
        let mut path = Vec::new();
        let of_blocks = walk(&blocks.graph, blocks.block_of(last), &window);
        blocks.visit(&parts.graph, &of_blocks, |_, row| path.push(row));
        let mut of_pieces = Vec::new();
        for piece in blocks.pieces(&parts.graph, &of_blocks, chunk_segments) {
            blocks.visit(&parts.graph, &piece, |_, row| of_pieces.push(row));
        }
        prop_assert_eq!(of_pieces, &path[..]);
        prop_assert_eq!(path, walk(&graph, last, &window));
        let factors = Factors {
            lengths: (0..graph.len()).map(|segment| seeds[segment % seeds.len()]).collect(),
            lags,
        };
        let expected = replay(&graph, &factors);
        let of_blocks = BlockFactors { segments: &parts.graph, blocks: &blocks, factors: &factors };
        let times = replay(&blocks.graph, &of_blocks);
        for block in 0..blocks.graph.len() {
            let range = blocks.segments(block);
            prop_assert_eq!(times.begin[block], expected.begin[range.start], "start of {:?}", range);
            prop_assert_eq!(times.end[block], expected.end[range.end - 1], "end of {:?}", range);
        }
    }

    #[test]
    fn lengths_and_lags_times_a_factor_scale_the_window(
        queues in random_queues(),
        factor in 0..5_i64,
    ) {
        let mut queues = queues;
        for queue in &mut queues {
            // Work without a cause keeps its measured start, and a wait has no length of its own.
            queue[0].0 = 0;
            for segment in queue {
                segment.2 = false;
            }
        }
        let graph = build(&queues, &[]);
        let factors = Factors { lengths: vec![factor; graph.len()], lags: factor };
        let times = replay(&graph, &factors);
        for segment in 0..graph.len() {
            prop_assert_eq!(times.end[segment], factor * graph.end[segment], "end of {}", segment);
        }
    }

    #[test]
    fn longer_segments_never_shorten_the_window(
        queues in random_queues(),
        groups in random_groups(),
        selected in prop::collection::vec(any::<bool>(), 60),
    ) {
        let graph = build(&queues, &groups);
        let (last, window) = window(&graph);
        let factors = |factor: i64| Factors {
            lengths: (0..graph.len()).map(|segment| if selected[segment % 60] { factor } else { 1 }).collect(),
            lags: 1,
        };
        let ends: Vec<i64> = (0..4).map(|factor| replay(&graph, &factors(factor)).end[last]).collect();
        prop_assert!(ends.is_sorted(), "{:?}", ends);
        // No saving beyond the time of the selection on the path.
        let path = walk(&graph, last, &window);
        let on_path = path.iter().filter(|row| row.kind.is_segment() && selected[row.segment as usize % 60]);
        let on_path: i64 = on_path.map(super::path::PathSegment::length).sum();
        prop_assert!(ends[0] >= window.end - on_path, "{:?} {}", ends, on_path);
        // A queue takes at least the sum of its lengths.
        let queue = graph.queues[0];
        let own: i64 = (queue.first..queue.end)
            .filter(|segment| graph.wait[*segment as usize] == NONE && graph.group(*segment as usize).is_none())
            .map(|segment| graph.length(segment as usize))
            .sum();
        prop_assert!(ends[1] >= own);
    }
}

#[test]
fn edges_that_close_a_cycle_are_left_out() {
    let mut graph = DependencyGraph {
        begin: vec![0, 0],
        end: vec![5, 5],
        kind: vec![SegmentKind::Host; 2],
        queue: vec![0, 1],
        queues: vec![
            QueueSegments {
                first: 0,
                end: 1,
                device: NONE,
                is_ordered: true,
            },
            QueueSegments {
                first: 1,
                end: 2,
                device: NONE,
                is_ordered: true,
            },
        ],
        ..DependencyGraph::default()
    };
    let sync = |to: u32, from: u32| Dependency {
        to,
        kind: LagKind::SyncReturn,
        from,
        anchor: 5,
        confidence: EdgeConfidence::Inferred,
    };
    graph.connect(Vec::new(), vec![sync(0, 1), sync(1, 0)]);
    assert_eq!(graph.contradictions, 1);
    assert_eq!(replay(&graph, &Unchanged).end, [5, 5]);
    assert_eq!(walk(&graph, 0, &(0..5)).len(), 1);
}

/// A participant that ends when the last one arrives has a transfer of zero, and still waits for it.
#[test]
fn the_path_follows_the_last_arriver_into_a_transfer_of_zero() {
    let queues = [
        vec![(0, 9, false, Vec::new())],
        vec![(0, 9, false, Vec::new()), (0, 1, false, Vec::new())],
    ];
    let graph = build(&queues, &[(0, 2)]);
    assert_eq!(graph.group(0), Some([0, 2].as_slice()));
    let path = walk(&graph, 0, &(0..9));
    let segments: Vec<u32> = path.iter().map(|row| row.segment).collect();
    assert_eq!(segments, [1]);
    let halved = Factors {
        lengths: vec![1, 0, 1],
        lags: 1,
    };
    assert_eq!(replay(&graph, &halved).end[0], 0);
}

#[test]
fn work_inside_a_transfer_moves_with_the_last_arrival() {
    let graph = {
        let mut graph = build(
            &[
                vec![(0, 10, false, Vec::new())],
                vec![(0, 4, false, Vec::new()), (0, 6, false, Vec::new())],
                vec![(8, 1, false, Vec::new())],
            ],
            &[(0, 2)],
        );
        let launch = Dependency {
            to: 3,
            kind: LagKind::LaunchLatency,
            from: 0,
            anchor: 7,
            confidence: EdgeConfidence::Recorded,
        };
        graph.connect(vec![launch], Vec::new());
        graph
    };
    // Arrival at 0 instead of 4: what began 4 after it begins 4 after the new one.
    let earlier = Factors {
        lengths: vec![1, 0, 1, 1],
        lags: 1,
    };
    assert_eq!(replay(&graph, &earlier).begin[3], 4);
}
