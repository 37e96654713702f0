//! Replay: starts and ends of all segments with changed lengths and lags, in one pass.
//!
//! The order on each queue is kept. Every start is the maximum over its dependencies, so one visit of each segment
//! is sufficient: queues advance in turn, and a queue that needs a segment of another one waits for it.

use super::graph::{Dependency, Edges, Graph, LagKind, NONE, PREVIOUS, index};

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
pub(crate) fn replay<C: Changes>(graph: &Graph, changes: &C) -> Times {
    let mut run = Run::new(graph, changes);
    run.all();
    run.times
}

/// Maximum number of cycles that are resolved one by one.
const MAX_CYCLES: usize = 1_000;

impl Graph {
    /// Sets the edges, removes those that contradict each other, and finds the binding ones.
    pub fn connect(&mut self, dependencies: Vec<Dependency>, syncs: Vec<Dependency>) {
        let segments = self.len();
        let (mut dependencies, mut syncs) = (dependencies, syncs);
        let before = dependencies.len() + syncs.len();
        // An anchor outside of its segment has no time in a replay.
        let leaves = |edge: &Dependency| {
            let from = edge.from as usize;
            edge.from != edge.to && (self.begin[from]..=self.end[from]).contains(&edge.anchor)
        };
        dependencies.retain(|edge| leaves(edge) && edge.anchor <= self.begin[edge.to as usize]);
        syncs.retain(|edge| leaves(edge) && edge.anchor <= self.end[edge.to as usize]);
        self.contradictions += (before - dependencies.len() - syncs.len()) as u64;
        self.dissolve_contradictory_groups();
        self.dependencies = Edges::new(dependencies, segments);
        self.syncs = Edges::new(syncs, segments);
        let forced = if self.may_have_cycles() {
            find_cycles(self)
        } else {
            Some(Vec::new())
        };
        match forced {
            Some(forced) if forced.is_empty() => {}
            Some(forced) => self.remove(&forced),
            None => self.remove_all(),
        }
        self.bind();
    }
}

/// Finds the starts (`false`) and ends (`true`) whose edges close a cycle. `None`: there are too many.
pub(crate) fn find_cycles(graph: &Graph) -> Option<Vec<(u32, bool)>> {
    if graph.dependencies.list.is_empty() && graph.syncs.list.is_empty() && graph.groups.is_empty()
    {
        return Some(Vec::new());
    }
    let mut run = Run::new(graph, &Unchanged);
    run.all();
    (run.forced.len() < MAX_CYCLES).then_some(run.forced)
}

struct Run<'a, C> {
    graph: &'a Graph,
    changes: &'a C,
    times: Times,
    /// Next segment of each queue.
    next: Vec<u32>,
    /// First queue that waits for each segment.
    waiting: Vec<u32>,
    /// Next queue that waits for the same segment.
    sibling: Vec<u32>,
    /// Segment that each queue waits for.
    needs: Vec<u32>,
    /// Queues that may advance.
    ready: Vec<u32>,
    forced: Vec<(u32, bool)>,
}

impl<'a, C: Changes> Run<'a, C> {
    fn new(graph: &'a Graph, changes: &'a C) -> Self {
        let queues = graph.queues.len();
        Self {
            graph,
            changes,
            times: Times {
                begin: vec![OPEN; graph.len()],
                end: vec![OPEN; graph.len()],
            },
            next: graph.queues.iter().map(|queue| queue.first).collect(),
            waiting: vec![NONE; graph.len()],
            sibling: vec![NONE; queues],
            needs: vec![NONE; queues],
            ready: (0..index(queues)).rev().collect(),
            forced: Vec::new(),
        }
    }

    fn all(&mut self) {
        loop {
            while let Some(queue) = self.ready.pop() {
                self.advance(queue as usize);
            }
            if self.forced.len() >= MAX_CYCLES || !self.force() {
                return;
            }
        }
    }

    /// Visits the segments of a queue until one needs a time that is open.
    fn advance(&mut self, queue: usize) {
        let end = self.graph.queues[queue].end;
        while self.next[queue] < end {
            let segment = self.next[queue] as usize;
            if let Err(needed) = self.visit(segment, false) {
                self.sibling[queue] = self.waiting[needed];
                self.waiting[needed] = index(queue);
                self.needs[queue] = index(needed);
                return;
            }
        }
    }

    /// Computes start and end of a segment. Error: the segment that must be computed first.
    fn visit(&mut self, segment: usize, force: bool) -> Result<(), usize> {
        if self.times.begin[segment] == OPEN {
            self.times.begin[segment] = self.start(segment, force)?;
            self.wake(segment);
            if force {
                return Ok(());
            }
        }
        self.times.end[segment] = self.finish(segment, force)?;
        self.next[self.graph.queue[segment] as usize] += 1;
        self.wake(segment);
        Ok(())
    }

    fn wake(&mut self, segment: usize) {
        let mut queue = std::mem::replace(&mut self.waiting[segment], NONE);
        while queue != NONE {
            self.ready.push(queue);
            self.needs[queue as usize] = NONE;
            queue = std::mem::replace(&mut self.sibling[queue as usize], NONE);
        }
    }

    /// Returns the new time of a point in a segment.
    fn at(&self, from: usize, anchor: i64) -> Option<i64> {
        let graph = self.graph;
        if anchor >= graph.end[from] {
            let end = self.times.end[from];
            return (end != OPEN).then_some(end);
        }
        let begin = self.times.begin[from];
        if begin == OPEN {
            return None;
        }
        let waits = graph.wait.get(from).is_some_and(|wait| *wait != NONE);
        if let Some(group) = graph.group(from).filter(|_| !waits) {
            let release = graph.begin[graph.last_arriver(group)];
            if anchor > release {
                // Within the transfer: its end is known as soon as all participants have arrived.
                let end = self.times.end[from];
                let measured = graph.end[from].saturating_sub(release);
                let length = self.changes.length(from, measured);
                let left = scaled(graph.end[from].saturating_sub(anchor), length, measured);
                return (end != OPEN).then_some(end.saturating_sub(left));
            }
            return Some(begin.saturating_add(anchor.saturating_sub(graph.begin[from]).max(0)));
        }
        let offset = anchor.saturating_sub(graph.begin[from]).max(0);
        let offset = if waits {
            offset
        } else {
            let measured = graph.length(from);
            scaled(offset, self.changes.length(from, measured), measured)
        };
        Some(begin.saturating_add(offset))
    }

    fn start(&self, segment: usize, force: bool) -> Result<i64, usize> {
        let graph = self.graph;
        let binding = graph.binding.get(segment).copied().unwrap_or(NONE);
        let measured = graph.begin[segment];
        let mut latest = OPEN;
        if let Some(previous) = graph.previous(segment) {
            let anchor = graph.end[previous];
            let binds = binding == PREVIOUS;
            let lag = if binds {
                measured.saturating_sub(anchor)
            } else {
                0
            };
            let lag = self
                .changes
                .lag(segment, graph.gap_kind(segment), lag, binds);
            // Segments of a queue are visited in order.
            latest = self.times.end[previous].saturating_add(lag);
        }
        for number in graph.dependencies.at(segment) {
            let edge = &graph.dependencies.list[number];
            let from = edge.from as usize;
            let Some(at) = self.at(from, edge.anchor) else {
                if force {
                    continue;
                }
                return Err(from);
            };
            let lag = measured.saturating_sub(edge.anchor);
            let binds = binding == index(number);
            let lag = if binds {
                lag
            } else {
                lag.min(graph.floor_of(segment, edge.kind))
            };
            let lag = self.changes.lag(segment, edge.kind, lag, binds);
            latest = latest.max(at.saturating_add(lag));
        }
        Ok(if latest == OPEN { measured } else { latest })
    }

    fn finish(&self, segment: usize, force: bool) -> Result<i64, usize> {
        let graph = self.graph;
        let begin = self.times.begin[segment];
        let wait = graph.wait.get(segment).copied().unwrap_or(NONE);
        // Without the binding edges, all edges decide the order.
        let ordering = graph.wait.is_empty();
        if wait != NONE || ordering && !graph.syncs.at(segment).is_empty() {
            let mut latest = begin;
            if !self.changes.waits(segment) {
                return Ok(latest);
            }
            for number in graph.syncs.at(segment) {
                let edge = &graph.syncs.list[number];
                let from = edge.from as usize;
                let Some(at) = self.at(from, edge.anchor) else {
                    if force {
                        continue;
                    }
                    return Err(from);
                };
                let binds = wait == index(number);
                let lag = if binds {
                    graph.end[segment].saturating_sub(edge.anchor)
                } else {
                    0
                };
                let lag = self.changes.lag(segment, LagKind::SyncReturn, lag, binds);
                latest = latest.max(at.saturating_add(lag));
            }
            return Ok(latest);
        }
        if let Some(group) = graph.group(segment) {
            let mut release = OPEN;
            let mut measured = OPEN;
            for participant in group {
                let participant = *participant as usize;
                let begin = self.times.begin[participant];
                if begin == OPEN {
                    if force {
                        continue;
                    }
                    return Err(participant);
                }
                release = release.max(begin);
                measured = measured.max(graph.begin[participant]);
            }
            let transfer = graph.end[segment].saturating_sub(measured);
            return Ok(release.saturating_add(self.changes.length(segment, transfer)));
        }
        let length = self.changes.length(segment, graph.length(segment));
        Ok(begin.saturating_add(length))
    }

    /// Advances the queue whose next time is the earliest without the times that it needs. Returns whether there
    /// is one: a cycle of edges stopped all of them.
    fn force(&mut self) -> bool {
        let graph = self.graph;
        let blocked =
            (0..graph.queues.len()).filter(|queue| self.next[*queue] < graph.queues[*queue].end);
        let time = |queue: &usize| {
            let segment = self.next[*queue] as usize;
            if self.times.begin[segment] == OPEN {
                (graph.begin[segment], segment)
            } else {
                (graph.end[segment], segment)
            }
        };
        let Some(queue) = blocked.min_by_key(time) else {
            return false;
        };
        let segment = self.next[queue] as usize;
        let at_end = self.times.begin[segment] != OPEN;
        self.forced.push((index(segment), at_end));
        self.unblock(queue);
        // Forced visits need nothing.
        let _ = self.visit(segment, true);
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
