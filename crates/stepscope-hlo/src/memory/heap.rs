//! The simulation of the heap, as XProf's memory viewer does it.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stepscope_formats::hlo::{HeapEventKind, HeapTrace, Module, SharedText};

use super::Buffers;

/// Longest chain of shared memory that is followed. Chains are short: each sharing names the last owner.
const MAX_SHARES: usize = 1_000;

/// Live bytes of a memory space by XProf's rule.
#[derive(Clone, Debug, Default)]
pub struct HeapUse {
    /// Bytes alive from start to end: arguments, results and constants.
    pub indefinite: u64,
    /// Bytes of the heap before each event of the trace, and after the last one.
    pub points: Vec<u64>,
    /// The same without padding.
    pub unpadded_points: Vec<u64>,
    /// Instruction of each event; empty for the last point.
    pub instructions: Vec<SharedText>,
    /// Largest number of bytes of the heap.
    pub heap_peak: u64,
    /// The same moment without padding.
    pub unpadded_heap_peak: u64,
    /// Event that makes the peak.
    pub peak_position: usize,
    /// Numbers of the buffers alive at the peak, in the order in which they took memory.
    pub alive: Vec<i64>,
    /// First and last event of each buffer with memory of its own.
    pub spans: Vec<(i64, usize, usize)>,
    /// What the events changed, in their order.
    pub(crate) changes: Vec<Change>,
    /// Whether the file has a trace of this space.
    pub has_trace: bool,
}

/// A buffer took or released memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The buffer of the event.
    pub(crate) buffer: i64,
    /// The buffer whose memory it is.
    pub(crate) root: i64,
    /// Bytes taken (positive) or released.
    pub(crate) bytes: i64,
}

impl HeapUse {
    /// Returns the largest number of live bytes.
    pub fn peak(&self) -> u64 {
        self.heap_peak.saturating_add(self.indefinite)
    }

    pub(super) fn new(module: &Module, buffers: &Buffers<'_>, space: i64) -> Self {
        let mut found = Self::default();
        for allocation in &buffers.plan.allocations {
            let is_indefinite =
                (allocation.is_parameter || allocation.is_constant || allocation.may_be_output)
                    && !allocation.is_thread_local;
            if is_indefinite && allocation.space == space {
                found.indefinite = found.indefinite.saturating_add(allocation.size);
            }
        }
        if let Some(trace) = find_trace(buffers, space) {
            found.has_trace = true;
            Simulation::new(module, buffers, &mut found).run(trace);
            // What is alive at the peak: again until there, since every larger size looks like the peak.
            let mut until_peak = Self::default();
            let mut again = Simulation::new(module, buffers, &mut until_peak);
            again.events(trace, found.peak_position);
            found.alive = again.shown();
        }
        found
    }
}

/// Returns the trace of a memory space: that of a temporary allocation, or the one with most events.
fn find_trace<'a>(buffers: &Buffers<'a>, space: i64) -> Option<&'a HeapTrace> {
    let traces = &buffers.plan.traces;
    let of_temporary = traces.iter().find(|trace| {
        let first = trace.events.first();
        let buffer = first.and_then(|event| buffers.by_id.get(&event.buffer_id));
        let allocation = buffer.and_then(|buffer| buffers.plan.allocations.get(buffer.allocation));
        // The number of the allocation in the trace itself is that before allocations were merged.
        allocation.is_some_and(|allocation| allocation.is_temporary() && allocation.space == space)
    });
    let events_of = |trace: &HeapTrace| {
        let is_here = |id: &i64| {
            buffers
                .by_id
                .get(id)
                .is_some_and(|buffer| buffer.space == space)
        };
        let ids = trace.events.iter().map(|event| event.buffer_id);
        ids.filter(is_here).count()
    };
    of_temporary.or_else(|| {
        let counted = traces.iter().map(|trace| (events_of(trace), trace));
        // The first of several with as many events.
        counted
            .rev()
            .max_by_key(|(count, _)| *count)
            .filter(|(count, _)| *count > 0)
            .map(|(_, trace)| trace)
    })
}

struct Simulation<'a, 'b> {
    module: &'a Module,
    buffers: &'a Buffers<'a>,
    found: &'b mut HeapUse,
    size: u64,
    unpadded: u64,
    /// Number of buffers that live in a buffer's memory.
    references: FxHashMap<i64, u32>,
    /// The buffer whose memory a buffer lives in.
    shares: FxHashMap<i64, i64>,
    /// The buffer that is shown for one whose memory was handed on.
    shown: FxHashMap<i64, i64>,
    /// The buffers with memory, by the order in which they took it.
    alive: BTreeMap<usize, i64>,
    /// Where a buffer is in `alive`.
    taken: FxHashMap<i64, usize>,
    spans: FxHashMap<i64, (usize, usize)>,
}

impl<'a, 'b> Simulation<'a, 'b> {
    fn new(module: &'a Module, buffers: &'a Buffers<'a>, found: &'b mut HeapUse) -> Self {
        Self {
            module,
            buffers,
            found,
            size: 0,
            unpadded: 0,
            references: FxHashMap::default(),
            shares: FxHashMap::default(),
            shown: FxHashMap::default(),
            alive: BTreeMap::new(),
            taken: FxHashMap::default(),
            spans: FxHashMap::default(),
        }
    }

    /// Follows the chain of shared memory; a damaged file may lead in a circle.
    fn root(&self, id: i64) -> i64 {
        let mut root = id;
        for _ in 0..MAX_SHARES {
            match self.shares.get(&root) {
                Some(next) if *next != root => root = *next,
                _ => break,
            }
        }
        root
    }

    fn sizes(&self, id: i64) -> (u64, u64) {
        let padded = self.buffers.by_id.get(&id).map_or(0, |buffer| buffer.size);
        let shape = self.buffers.xprof_shape(self.module, id);
        (
            padded,
            shape.map_or(0, stepscope_formats::hlo::Shape::unpadded_bytes),
        )
    }

    fn point(&mut self, instruction: SharedText) {
        self.found.points.push(self.size);
        self.found.unpadded_points.push(self.unpadded);
        self.found.instructions.push(instruction);
    }

    fn run(mut self, trace: &HeapTrace) {
        self.events(trace, trace.events.len());
        self.point(SharedText::default());
        let mut spans: Vec<(i64, usize, usize)> = self
            .spans
            .iter()
            .map(|(id, (start, end))| (*id, *start, *end))
            .collect();
        spans.sort_unstable();
        self.found.spans = spans;
    }

    /// Simulates the events up to this one.
    fn events(&mut self, trace: &HeapTrace, until: usize) {
        let last = trace.events.len().saturating_sub(1);
        for (at, event) in trace
            .events
            .iter()
            .enumerate()
            .take(until.saturating_add(1))
        {
            self.point(event.instruction.clone());
            let id = event.buffer_id;
            if !self.buffers.by_id.contains_key(&id) {
                continue;
            }
            match event.kind {
                HeapEventKind::Alloc => {
                    self.references.insert(id, 1);
                    self.spans.insert(id, (at, last));
                    self.grow(at, id, id);
                }
                HeapEventKind::Free => self.free(at, id),
                HeapEventKind::ShareWith => {
                    let root = self.root(event.shared_with);
                    self.shares.insert(id, root);
                    let references = self.references.entry(root).or_insert(0);
                    *references += 1;
                    if *references == 1 {
                        self.shown.insert(root, id);
                        self.spans.insert(id, (at, last));
                        self.grow(at, id, root);
                    }
                }
            }
        }
    }

    /// Returns the buffers alive, in the order in which they took memory.
    fn shown(&self) -> Vec<i64> {
        let shown = |id: &i64| self.shown.get(id).copied().unwrap_or(*id);
        self.alive.values().map(shown).collect()
    }

    fn grow(&mut self, at: usize, id: i64, root: i64) {
        let (padded, unpadded) = self.sizes(root);
        self.size = self.size.saturating_add(padded);
        self.unpadded = self.unpadded.saturating_add(unpadded);
        self.alive.insert(at, root);
        self.taken.insert(root, at);
        self.found.changes.push(Change {
            buffer: id,
            root,
            bytes: padded.cast_signed(),
        });
        if self.size > self.found.heap_peak {
            self.found.heap_peak = self.size;
            self.found.unpadded_heap_peak = self.unpadded;
            self.found.peak_position = at;
        }
    }

    fn free(&mut self, at: usize, id: i64) {
        let root = self.root(id);
        if root != id
            && let Some(span) = self.spans.get_mut(&id)
        {
            span.1 = at;
        }
        let Some(references) = self.references.get_mut(&root) else {
            return;
        };
        *references = references.saturating_sub(1);
        if *references > 0 {
            return;
        }
        let Some(taken) = self.taken.remove(&root) else {
            return;
        };
        self.alive.remove(&taken);
        let (padded, unpadded) = self.sizes(root);
        self.size = self.size.saturating_sub(padded);
        self.unpadded = self.unpadded.saturating_sub(unpadded);
        self.found.changes.push(Change {
            buffer: id,
            root,
            bytes: padded.cast_signed().saturating_neg(),
        });
        if !self.shown.contains_key(&root)
            && let Some(span) = self.spans.get_mut(&root)
        {
            span.1 = at;
        }
    }
}
