//! Replay: starts and ends of all segments with changed lengths and lags, in one pass.
//!
//! The order on each queue is kept. Every start is the maximum over its dependencies, so one visit of each segment
//! is sufficient: queues advance in turn, and a queue that needs a segment of another one waits for it.

use std::ops::Range;

use stepscope_store::pages;

use super::graph::{Bindings, Dependency, DependencyGraph, Edges, LagKind, NONE, PREVIOUS, index};
use super::path::{PathKind, PathSegment, Walk};
use crate::parallel;

/// Start or end that is not computed yet.
const OPEN: i64 = i64::MIN;

/// What a replay changes.
pub(crate) trait Changes {
    /// Returns the new length of a segment; for a participant of a collective, of its transfer.
    fn length(&self, segment: usize, measured: i64) -> i64;
    /// Returns the new lag of an edge that arrives at a segment; `binding`: it binds in the measurement.
    fn lag(&self, segment: usize, kind: LagKind, measured: i64, binding: bool) -> i64;
    /// Returns whether a wait still waits.
    fn waits(&self, segment: usize) -> bool;
}

/// Changes nothing.
pub(crate) struct Unchanged;

impl Changes for Unchanged {
    fn length(&self, _: usize, measured: i64) -> i64 {
        measured
    }

    fn lag(&self, _: usize, _: LagKind, measured: i64, _: bool) -> i64 {
        measured
    }

    fn waits(&self, _: usize) -> bool {
        true
    }
}

/// Times of a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// Start of each segment, picoseconds.
    pub(crate) begin: Vec<i64>,
    /// End of each segment, picoseconds.
    pub(crate) end: Vec<i64>,
}

/// Replays the graph with changes.
pub(crate) fn replay<C: Changes>(graph: &DependencyGraph, changes: &C) -> Times {
    Replay::new(graph, changes).times
}

/// Maximum number of cycles that are resolved one by one.
const MAX_CYCLES: usize = 1_000;

impl DependencyGraph {
    /// Sets the edges, of which none contradicts the times, removes those that contradict each other, and finds the
    /// binding ones.
    pub(super) fn connect(&mut self, dependencies: Vec<Dependency>, syncs: Vec<Dependency>) {
        let segments = self.len();
        self.dissolve_contradictory_groups();
        let edges = parallel::both(
            || Ok(Edges::new(dependencies, segments)),
            || Ok(Edges::new(syncs, segments)),
        );
        // Nothing cancels it.
        (self.dependencies, self.syncs) = edges.unwrap_or_default();
        let (mut bindings, mut order) = self.bind_and_order();
        if !order.forced.is_empty() {
            // Edges that close a cycle contradict each other.
            if order.forced.len() < MAX_CYCLES {
                self.remove(&order.forced);
            } else {
                self.remove_all();
            }
            (bindings, order) = self.bind_and_order();
        }
        self.schedule = order.schedule;
        self.binding = bindings.binding;
        self.wait = bindings.wait;
        self.floor = bindings.floor;
    }

    fn bind_and_order(&self) -> (Bindings, Order) {
        let found = parallel::both(|| Ok(self.bindings()), || Ok(Order::compute(self)));
        // Nothing cancels it.
        found.unwrap_or_default()
    }
}

/// An order of all starts and ends.
#[derive(Default)]
struct Order {
    schedule: Vec<(u32, u32)>,
    /// Starts (`false`) and ends (`true`) that a cycle of edges stopped.
    forced: Vec<(u32, bool)>,
}

impl Order {
    fn compute(graph: &DependencyGraph) -> Self {
        let mut ordering = Ordering::new(graph);
        ordering.all();
        ordering.found
    }
}

/// Times so far.
pub(super) struct Replay<'a, C> {
    pub(super) graph: &'a DependencyGraph,
    changes: &'a C,
    pub(super) times: Times,
}

impl<'a, C: Changes> Replay<'a, C> {
    /// Replays the graph with changes.
    pub(super) fn new(graph: &'a DependencyGraph, changes: &'a C) -> Self {
        let mut replay = Self {
            graph,
            changes,
            times: Times {
                begin: pages::filled(OPEN, graph.len()),
                end: pages::filled(OPEN, graph.len()),
            },
        };
        for (from, until) in &graph.schedule {
            replay.visit(*from as usize, *until as usize);
        }
        replay
    }

    /// Computes the starts and ends of a range of the schedule.
    fn visit(&mut self, from: usize, until: usize) {
        let mut segment = from / 2;
        if from % 2 == 1 {
            self.times.end[segment] = self.finish(segment);
            segment += 1;
        }
        while 2 * segment + 1 < until {
            self.times.begin[segment] = self.start(segment);
            self.times.end[segment] = self.finish(segment);
            segment += 1;
        }
        if 2 * segment < until {
            self.times.begin[segment] = self.start(segment);
        }
    }

    /// Returns the new time of a point in a segment; `OPEN` if a cycle was cut there.
    #[inline]
    fn at(&self, from: usize, anchor: i64) -> i64 {
        let graph = self.graph;
        if anchor >= graph.end[from] {
            return self.times.end[from];
        }
        let begin = self.times.begin[from];
        let offset = anchor.saturating_sub(graph.begin[from]).max(0);
        if begin == OPEN || offset == 0 {
            return begin;
        }
        if graph.wait.get(from).is_some_and(|wait| *wait != NONE) {
            return begin.saturating_add(offset);
        }
        let Some(arrival) = graph.last_arrival(from) else {
            let measured = graph.length(from);
            let length = self.changes.length(from, measured);
            return begin.saturating_add(scaled(offset, length, measured));
        };
        if anchor <= arrival {
            return begin.saturating_add(offset);
        }
        // Within the transfer.
        let end = self.times.end[from];
        if end == OPEN {
            return begin;
        }
        let measured = graph.end[from].saturating_sub(arrival);
        let length = self.changes.length(from, measured);
        end.saturating_sub(scaled(
            graph.end[from].saturating_sub(anchor),
            length,
            measured,
        ))
    }

    #[inline]
    fn start(&self, segment: usize) -> i64 {
        let mut latest = OPEN;
        self.arrivals(segment, |arrival| latest = latest.max(arrival.time()));
        if latest == OPEN {
            self.graph.begin[segment]
        } else {
            latest
        }
    }

    /// Visits what the start of a segment depends on.
    #[inline]
    pub(super) fn arrivals(&self, segment: usize, mut visit: impl FnMut(Arrival)) {
        let graph = self.graph;
        let binding = graph.binding[segment];
        let measured = graph.begin[segment];
        if let Some(previous) = graph.previous(segment) {
            let anchor = graph.end[previous];
            let binds = binding == PREVIOUS;
            let lag = if binds {
                measured.saturating_sub(anchor)
            } else {
                0
            };
            let kind = graph.gap_kind(segment);
            visit(Arrival {
                from: previous,
                kind,
                // Segments of a queue are visited in order.
                at: self.times.end[previous],
                lag: self.changes.lag(segment, kind, lag, binds),
                bound: binds,
            });
        }
        for number in graph.dependencies.at(segment) {
            let edge = &graph.dependencies.list[number];
            let at = self.at(edge.from as usize, edge.anchor);
            if at == OPEN {
                continue;
            }
            let lag = measured.saturating_sub(edge.anchor);
            let binds = binding == index(number);
            let (kind, lag) = if binds {
                (graph.lag_kind(segment, edge), lag)
            } else {
                (edge.kind, lag.min(graph.floor_of(segment, edge.kind)))
            };
            visit(Arrival {
                from: edge.from as usize,
                kind,
                at,
                lag: self.changes.lag(segment, kind, lag, binds),
                bound: binds,
            });
        }
    }

    #[inline]
    fn finish(&self, segment: usize) -> i64 {
        let graph = self.graph;
        let begin = self.times.begin[segment];
        let wait = graph.wait[segment];
        if wait != NONE {
            return self.end_of_wait(segment, wait);
        }
        if let Some(group) = graph.group(segment) {
            let mut release = OPEN;
            let mut measured = OPEN;
            for participant in group {
                let participant = *participant as usize;
                release = release.max(self.times.begin[participant]);
                measured = measured.max(graph.begin[participant]);
            }
            let transfer = graph.end[segment].saturating_sub(measured);
            return release.saturating_add(self.changes.length(segment, transfer));
        }
        let length = self.changes.length(segment, graph.length(segment));
        begin.saturating_add(length)
    }

    fn end_of_wait(&self, segment: usize, wait: u32) -> i64 {
        let mut latest = self.times.begin[segment];
        if self.changes.waits(segment) {
            self.returns(segment, wait, |arrival| latest = latest.max(arrival.time()));
        }
        latest
    }

    /// Visits what a wait waits for.
    pub(super) fn returns(&self, segment: usize, wait: u32, mut visit: impl FnMut(Arrival)) {
        let graph = self.graph;
        for number in graph.syncs.at(segment) {
            let edge = &graph.syncs.list[number];
            let at = self.at(edge.from as usize, edge.anchor);
            if at == OPEN {
                continue;
            }
            let binds = wait == index(number);
            let lag = if binds {
                graph.end[segment].saturating_sub(edge.anchor)
            } else {
                0
            };
            visit(Arrival {
                from: edge.from as usize,
                kind: LagKind::SyncReturn,
                at,
                lag: self.changes.lag(segment, LagKind::SyncReturn, lag, binds),
                bound: binds,
            });
        }
    }

    /// Returns what binds the start of a segment.
    fn binds_start(&self, segment: usize) -> Option<Arrival> {
        let mut found = None;
        self.arrivals(segment, |arrival| arrival.take_later(&mut found));
        found
    }

    /// Returns what binds the end of a wait; `None` if it ends as it begins.
    fn binds_end(&self, segment: usize) -> Option<Arrival> {
        let wait = self.graph.wait[segment];
        if wait == NONE || !self.changes.waits(segment) {
            return None;
        }
        let mut found = None;
        self.returns(segment, wait, |arrival| arrival.take_later(&mut found));
        found.filter(|arrival| arrival.time() > self.times.begin[segment])
    }

    /// Returns the participant that arrives last; of several, the one that did so in the measurement.
    fn last_arriver(&self, group: &[u32]) -> Option<usize> {
        let participants = group.iter().map(|participant| *participant as usize);
        participants.max_by_key(|one| {
            let begin = self.times.begin[*one];
            (begin, self.graph.begin[*one], std::cmp::Reverse(*one))
        })
    }
}

/// A dependency in a replay.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    /// The segment that it leaves.
    pub(super) from: usize,
    kind: LagKind,
    /// New time at which it leaves.
    pub(super) at: i64,
    /// New lag.
    pub(super) lag: i64,
    /// Whether it binds in the measurement.
    bound: bool,
}

impl Arrival {
    /// Returns the time at which it arrives.
    #[inline]
    fn time(&self) -> i64 {
        self.at.saturating_add(self.lag)
    }

    /// Replaces an earlier one; of equal ones, that of the measurement stays.
    fn take_later(self, found: &mut Option<Self>) {
        if found.is_none_or(|known| (self.time(), self.bound) > (known.time(), known.bound)) {
            *found = Some(self);
        }
    }
}

/// Walks back through a replay along what binds, as [`walk`](super::path::walk) does through the measurement.
pub(crate) fn walk_replayed<C: Changes>(
    graph: &DependencyGraph,
    changes: &C,
    times: Times,
    last: usize,
    window: &Range<i64>,
) -> Vec<PathSegment> {
    let replay = Replay {
        graph,
        changes,
        times,
    };
    let times = &replay.times;
    let mut walk = Walk::new(window);
    let mut segment = last;
    walk.charge(PathKind::Unknown, segment, times.end[segment]);
    // Each segment is visited once, and once more where it waits.
    for _ in 0..=2 * graph.len() {
        if walk.is_done() {
            break;
        }
        if walk.time >= times.end[segment]
            && let Some(sync) = replay.binds_end(segment)
        {
            walk.charge(PathKind::SyncReturn, segment, sync.at);
            segment = sync.from;
            continue;
        }
        if let Some(last) = graph
            .group(segment)
            .and_then(|group| replay.last_arriver(group))
            && (walk.time > times.begin[last] || walk.time >= times.end[segment])
        {
            walk.charge(PathKind::Communication, segment, times.begin[last]);
            segment = last;
        }
        let kind = PathKind::of_segment(graph.kind[segment]);
        walk.charge(kind, segment, times.begin[segment]);
        let Some(bound) = replay.binds_start(segment) else {
            walk.charge(PathKind::Unknown, segment, window.start);
            break;
        };
        walk.charge(PathKind::of_lag(bound.kind), segment, bound.at);
        segment = bound.from;
    }
    walk.rows.reverse();
    walk.rows
}

/// Finds an order of all starts and ends in which each comes after those that it needs: queues advance in turn.
struct Ordering<'a> {
    graph: &'a DependencyGraph,
    /// Next start (twice the number of a segment) or end (one more) of each queue.
    next: Vec<u32>,
    /// First queue that waits for each segment.
    waiting: Vec<u32>,
    /// Next queue that waits for the same segment.
    sibling: Vec<u32>,
    /// Segment that each queue waits for.
    needs: Vec<u32>,
    /// Queues that may advance.
    ready: Vec<u32>,
    found: Order,
}

impl<'a> Ordering<'a> {
    fn new(graph: &'a DependencyGraph) -> Self {
        let queues = graph.queues.len();
        Self {
            graph,
            next: graph.queues.iter().map(|queue| 2 * queue.first).collect(),
            waiting: pages::filled(NONE, graph.len()),
            sibling: vec![NONE; queues],
            needs: vec![NONE; queues],
            ready: (0..index(queues)).rev().collect(),
            found: Order::default(),
        }
    }

    fn all(&mut self) {
        loop {
            while let Some(queue) = self.ready.pop() {
                self.advance(queue as usize);
            }
            if self.found.forced.len() >= MAX_CYCLES || !self.force() {
                return;
            }
        }
    }

    /// Visits the starts and ends of a queue until one needs another one that is open.
    fn advance(&mut self, queue: usize) {
        let from = self.next[queue];
        let end = 2 * self.graph.queues[queue].end;
        while self.next[queue] < end {
            let next = self.next[queue];
            let segment = next as usize / 2;
            let needed = if next.is_multiple_of(2) {
                self.needed_by_start(segment)
            } else {
                self.needed_by_end(segment)
            };
            if let Some(needed) = needed {
                self.sibling[queue] = self.waiting[needed];
                self.waiting[needed] = index(queue);
                self.needs[queue] = index(needed);
                break;
            }
            self.next[queue] += 1;
            self.wake(segment);
        }
        if from < self.next[queue] {
            self.found.schedule.push((from, self.next[queue]));
        }
    }

    #[inline]
    fn wake(&mut self, segment: usize) {
        let mut queue = self.waiting[segment];
        if queue == NONE {
            return;
        }
        self.waiting[segment] = NONE;
        while queue != NONE {
            self.ready.push(queue);
            self.needs[queue as usize] = NONE;
            queue = std::mem::replace(&mut self.sibling[queue as usize], NONE);
        }
    }

    /// Returns whether a start (`false`) or end (`true`) was visited.
    #[inline]
    fn is_visited(&self, segment: usize, end: bool) -> bool {
        let queue = self.graph.queue[segment] as usize;
        index(2 * segment) + u32::from(end) < self.next[queue]
    }

    /// Returns the first segment with an open time among the sources of edges.
    fn open_source<'b>(&self, edges: impl Iterator<Item = &'b Dependency>) -> Option<usize> {
        let mut sources = edges.map(|edge| {
            let from = edge.from as usize;
            let graph = self.graph;
            let arrival = graph.last_arrival(from).unwrap_or(i64::MAX);
            (
                from,
                edge.anchor >= graph.end[from] || edge.anchor > arrival,
            )
        });
        let open = sources.find(|(from, end)| !self.is_visited(*from, *end));
        open.map(|(from, _)| from)
    }

    fn needed_by_start(&self, segment: usize) -> Option<usize> {
        let edges = &self.graph.dependencies;
        self.open_source(edges.list[edges.at(segment)].iter())
    }

    fn needed_by_end(&self, segment: usize) -> Option<usize> {
        let graph = self.graph;
        let syncs = &graph.syncs.list[graph.syncs.at(segment)];
        if let Some(open) = self.open_source(syncs.iter()) {
            return Some(open);
        }
        // A wait ends with what it waits for, whatever the others of its collective do.
        if syncs.iter().any(|sync| sync.anchor > graph.begin[segment]) {
            return None;
        }
        let mut participants = graph.group(segment)?.iter().map(|member| *member as usize);
        participants.find(|member| !self.is_visited(*member, false))
    }

    /// Advances the queue whose next time is the earliest without the times that it needs. Returns whether there
    /// is one: a cycle of edges stopped all of them.
    fn force(&mut self) -> bool {
        let graph = self.graph;
        let blocked = (0..graph.queues.len())
            .filter(|queue| self.next[*queue] < 2 * graph.queues[*queue].end);
        let time = |queue: &usize| {
            let segment = self.next[*queue] as usize / 2;
            if self.next[*queue].is_multiple_of(2) {
                (graph.begin[segment], segment)
            } else {
                (graph.end[segment], segment)
            }
        };
        let Some(queue) = blocked.min_by_key(time) else {
            return false;
        };
        let next = self.next[queue];
        let segment = next as usize / 2;
        self.found.forced.push((index(segment), next % 2 == 1));
        self.unblock(queue);
        self.found.schedule.push((next, next + 1));
        self.next[queue] += 1;
        self.wake(segment);
        self.ready.push(index(queue));
        true
    }

    /// Takes a queue out of the list of those that wait for a segment.
    fn unblock(&mut self, queue: usize) {
        let needed = std::mem::replace(&mut self.needs[queue], NONE) as usize;
        let Some(first) = self.waiting.get_mut(needed) else {
            return;
        };
        let after = std::mem::replace(&mut self.sibling[queue], NONE);
        if *first == index(queue) {
            *first = after;
            return;
        }
        let mut at = *first as usize;
        while let Some(next) = self.sibling.get(at).copied() {
            if next == index(queue) {
                self.sibling[at] = after;
                return;
            }
            at = next as usize;
        }
    }
}

/// Scales an offset as a segment's length changes.
fn scaled(offset: i64, length: i64, measured: i64) -> i64 {
    if length == measured || measured <= 0 {
        return offset;
    }
    let exact = i128::from(offset) * i128::from(length) / i128::from(measured);
    i64::try_from(exact).unwrap_or(i64::MAX)
}
