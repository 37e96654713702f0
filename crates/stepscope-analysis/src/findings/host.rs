//! Activity of a host thread over time.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::vocabulary::kineto::{OPTIMIZER_CALL, PARAM_COMMS};
use stepscope_model::vocabulary::lightning;
use stepscope_model::{NameId, SliceKind, Time, TrackId};
use stepscope_store::{Overlapping, Trace};

use crate::slice_class::is_input;
use crate::slice_class::is_operator;
use crate::steps::STEP_MARKER;

/// Class of a slice of a host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostClass {
    /// Compiles.
    Compile,
    /// Fetches or prepares input.
    Input,
    /// Collects garbage.
    Collector,
    /// Takes memory from the driver or gives it back.
    Allocator,
    /// Profiler overhead.
    Overhead,
    /// Communicates.
    Collective,
    /// Waits for a device.
    Wait,
    /// A framework operator.
    Operator,
    /// Any other call of a device's runtime.
    Runtime,
    /// A step marker, which encloses everything and explains nothing.
    Step,
    /// Anything else: a Python function, a label.
    Other,
}

impl HostClass {
    /// Classes that decide the class of nested slices, the strongest first.
    const DECIDE: [Self; 7] = [
        Self::Compile,
        Self::Input,
        Self::Collector,
        Self::Allocator,
        Self::Overhead,
        Self::Collective,
        Self::Wait,
    ];
}

/// What a thread does between two timestamps.
pub(super) struct Segment {
    pub(super) range: Range<Time>,
    /// Index of the innermost open slice; `None` where no slice is open.
    pub(super) innermost: Option<usize>,
    /// The strongest class of the open slices that [decides](HostClass::DECIDE); without one, that of the innermost
    /// slice.
    pub(super) class: HostClass,
}

/// An open slice of a walk.
struct Open {
    index: usize,
    class: HostClass,
    /// Index into [`HostClass::DECIDE`] of the strongest class of this slice and those around it; its length for none.
    strongest: usize,
}

/// Reader of host threads.
pub(super) struct Host<'a> {
    pub(super) trace: &'a Trace,
    overlapping: FxHashMap<TrackId, Option<Overlapping>>,
    classes: FxHashMap<(NameId, NameId), HostClass>,
    /// Slices of a name and category that compute.
    computing: FxHashMap<(NameId, NameId), bool>,
    step_names: FxHashSet<NameId>,
    /// Whether the run has operators of a framework.
    has_operators: bool,
}

impl<'a> Host<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let markers = trace.step_marks().iter();
        let step_names = markers.filter_map(|marker| {
            let (track, index) = trace.place_of_slice(marker.event)?;
            trace.slices(track).name.get(index).copied()
        });
        let step_markers = trace.find_names(&mut |name| name == STEP_MARKER);
        Self {
            trace,
            overlapping: FxHashMap::default(),
            classes: FxHashMap::default(),
            computing: FxHashMap::default(),
            step_names: step_names.chain(step_markers).collect(),
            has_operators: !trace.find_names(&mut |name| is_operator(name)).is_empty(),
        }
    }

    /// Classifies a slice.
    pub(super) fn class(&mut self, track: TrackId, index: usize) -> HostClass {
        let slices = self.trace.slices(track);
        let Some(name) = slices.name.get(index).copied() else {
            return HostClass::Other;
        };
        let category = slices.category.get(index);
        if let Some(class) = self.classes.get(&(name, category)) {
            return *class;
        }
        let class = if self.step_names.contains(&name) {
            HostClass::Step
        } else {
            let kind = self.trace.kind(track, name, category);
            classify(kind, self.trace.name(category), self.trace.name(name))
        };
        self.classes.insert((name, category), class);
        class
    }

    /// Returns whether a slice is an operation that computes.
    pub(super) fn computes(&mut self, track: TrackId, index: usize) -> bool {
        let slices = self.trace.slices(track);
        let key = (slices.name[index], slices.category.get(index));
        if let Some(known) = self.computing.get(&key) {
            return *known;
        }
        let kind = self.trace.kind(track, key.0, key.1);
        // Operators say more of a trainer's action than its name does.
        let is_named_by_others =
            self.has_operators && self.trace.name(key.0).starts_with(lightning::ACTION);
        let is_operation = matches!(
            kind,
            SliceKind::MatMul
                | SliceKind::Attention
                | SliceKind::Fusion
                | SliceKind::Elementwise
                | SliceKind::Other
        ) || self.class(track, index) == HostClass::Operator;
        let computes = is_operation && !is_named_by_others;
        self.computing.insert(key, computes);
        computes
    }

    /// Returns whether a slice itself waits: for time to pass, a lock, another thread, a device.
    pub(super) fn waits(&mut self, track: TrackId, index: usize) -> bool {
        match self.class(track, index) {
            HostClass::Wait => true,
            HostClass::Other => {
                let name = self.trace.slices(track).name.get(index);
                name.is_some_and(|name| is_waiting_function(self.trace.name(*name)))
            }
            _ => false,
        }
    }

    /// Lists the slices that are open at a timestamp, the outermost first.
    pub(super) fn open_at(&mut self, track: TrackId, at: Time) -> Vec<usize> {
        let trace = self.trace;
        let others = self
            .overlapping
            .entry(track)
            .or_insert_with(|| trace.overlapping(track));
        let mut open: Vec<usize> = trace.around(track, at, others.as_ref()).collect();
        open.reverse();
        open
    }

    /// Lists the indexes of the slices of a track that overlap a range: those open at its start, and those that
    /// start in it. A slice around the whole recording costs no more than any other.
    pub(super) fn touching(&mut self, track: TrackId, range: &Range<Time>) -> Vec<usize> {
        let mut found = self.open_at(track, range.start);
        let start = self.trace.slices(track).start;
        let from = start.partition_point(|start| *start <= range.start);
        let to = start.partition_point(|start| *start < range.end);
        found.extend(from..to.max(from));
        found
    }

    /// Visits the segments of a thread in order.
    pub(super) fn walk(
        &mut self,
        track: TrackId,
        range: &Range<Time>,
        visit: &mut dyn FnMut(&mut Self, Segment),
    ) {
        if range.start >= range.end {
            return;
        }
        let slices = self.trace.slices(track);
        let mut open = Vec::new();
        for index in self.open_at(track, range.start) {
            if slices.end(index) > range.start {
                self.open(track, index, &mut open);
            }
        }
        let mut now = range.start;
        let from = slices.start.partition_point(|start| *start <= range.start);
        let to = slices.start.partition_point(|start| *start < range.end);
        for index in from..to {
            let start = slices.start[index];
            self.advance(track, &mut open, &mut now, start, visit);
            self.open(track, index, &mut open);
        }
        self.advance(track, &mut open, &mut now, range.end, visit);
    }

    /// Opens a slice inside those that are open.
    fn open(&mut self, track: TrackId, index: usize, open: &mut Vec<Open>) {
        let class = self.class(track, index);
        let decide = HostClass::DECIDE.iter().position(|one| *one == class);
        let around = open
            .last()
            .map_or(HostClass::DECIDE.len(), |around| around.strongest);
        open.push(Open {
            index,
            class,
            strongest: decide.map_or(around, |own| own.min(around)),
        });
    }

    /// Closes slices that end before `until`, and visits the segments between.
    fn advance(
        &mut self,
        track: TrackId,
        open: &mut Vec<Open>,
        now: &mut Time,
        until: Time,
        visit: &mut dyn FnMut(&mut Self, Segment),
    ) {
        let slices = self.trace.slices(track);
        while let Some(innermost) = open.last() {
            let end = slices.end(innermost.index);
            if end > until {
                break;
            }
            if end > *now {
                visit(self, segment(*now..end, open));
                *now = end;
            }
            open.pop();
        }
        // Slices that overlap without nesting may have ended below the innermost one.
        if matches!(self.overlapping.get(&track), Some(Some(_))) {
            let left = std::mem::take(open).into_iter();
            for slice in left.filter(|slice| slices.end(slice.index) > *now) {
                self.open(track, slice.index, open);
            }
        }
        if until > *now {
            visit(self, segment(*now..until, open));
            *now = until;
        }
    }
}

fn segment(range: Range<Time>, open: &[Open]) -> Segment {
    let innermost = open.last();
    let strongest = innermost.and_then(|slice| HostClass::DECIDE.get(slice.strongest).copied());
    let own = innermost.map_or(HostClass::Other, |slice| slice.class);
    Segment {
        range,
        innermost: innermost.map(|slice| slice.index),
        class: strongest.unwrap_or(own),
    }
}

fn classify(kind: SliceKind, category: &str, name: &str) -> HostClass {
    let stops = name.contains("stop_trace") || name.contains("start_trace");
    if category.eq_ignore_ascii_case("overhead") || stops {
        return HostClass::Overhead;
    }
    if is_allocation(name) {
        return HostClass::Allocator;
    }
    if is_collector(name) {
        return HostClass::Collector;
    }
    if kind == SliceKind::Compile || is_compiler(name) {
        return HostClass::Compile;
    }
    if is_input(kind, name) || name.starts_with("torch/utils/data/") {
        return HostClass::Input;
    }
    match kind {
        SliceKind::Collective => HostClass::Collective,
        SliceKind::Wait => HostClass::Wait,
        _ if waits_for_device(name) => HostClass::Wait,
        SliceKind::Runtime => HostClass::Runtime,
        _ if is_operator(category) && computes(name) => HostClass::Operator,
        _ => HostClass::Other,
    }
}

/// Returns whether an operation computes on data; one that only moves data, allocates memory or calls others does
/// not.
fn computes(name: &str) -> bool {
    const OTHERS: [&str; 12] = [
        "autograd::",
        "c10d::",
        PARAM_COMMS,
        "aten::copy_",
        "aten::to",
        "aten::_to_copy",
        "aten::item",
        "aten::_local_scalar_dense",
        "aten::empty",
        "aten::resize",
        "aten::is_nonzero",
        OPTIMIZER_CALL,
    ];
    !OTHERS.iter().any(|other| name.starts_with(other))
}

/// Returns whether a call allocates memory from the driver, or frees it.
fn is_allocation(name: &str) -> bool {
    const CALLS: [&str; 10] = [
        "cudaMalloc",
        "cudaFree",
        "hipMalloc",
        "hipFree",
        "cuMemAlloc",
        "cuMemFree",
        "cuMemCreate",
        "cuMemRelease",
        "cuMemMap",
        "cuMemUnmap",
    ];
    CALLS.iter().any(|call| name.starts_with(call)) || name.contains("empty_cache")
}

/// Returns whether a function of C that Python calls waits: `$time sleep` as our recorder and JAX name it, and
/// `<built-in method acquire of _thread.lock object at 0x7f10>` as torch does.
fn is_waiting_function(name: &str) -> bool {
    const WAIT: [&str; 8] = [
        "acquire",
        "poll",
        "recv",
        "recv_into",
        "select",
        "sleep",
        "wait",
        "waitpid",
    ];
    let mut words = name.split_whitespace();
    let function = match words.next() {
        Some(module) if module.starts_with('$') && !module.contains(".py:") => words.next_back(),
        Some("<built-in") => words.nth(1),
        Some("<method") => words.next(),
        _ => None,
    };
    function.is_some_and(|function| WAIT.contains(&function.trim_matches(['\'', '>'])))
}

/// Returns whether a slice is a run of Python's garbage collector.
pub(super) fn is_collector(name: &str) -> bool {
    name == "gc"
        || name.starts_with("$gc ")
        || [
            "built-in function collect",
            "gc.collect",
            "garbage collection",
        ]
        .iter()
        .any(|part| name.contains(part))
}

/// Returns whether a frame of torch's compiler runs only while it compiles.
fn is_compiler(name: &str) -> bool {
    [
        "torch/_dynamo/convert_frame.py",
        "torch/_inductor/compile_fx.py",
        "torch/_inductor/codecache.py",
    ]
    .iter()
    .any(|file| name.starts_with(file))
}

/// Returns whether the host waits for a device in a call that is no runtime call.
fn waits_for_device(name: &str) -> bool {
    [
        "block_until_ready",
        "BlockHostUntil",
        "PjRtFuture::Await",
        "wait_device_ops",
    ]
    .iter()
    .any(|call| name.contains(call))
}

#[cfg(test)]
mod tests {
    use super::is_waiting_function;

    #[test]
    fn functions_of_c_that_wait_are_known_by_the_names_of_each_recorder() {
        for name in [
            "$time sleep",
            "$lock acquire",
            "<built-in function sleep>",
            "<built-in method acquire of _thread.lock object at 0x7f10>",
            "<method 'recv' of '_socket.socket' objects>",
        ] {
            assert!(is_waiting_function(name), "{name}");
        }
        for name in [
            "$train.py:3 sleep",
            "train.py(3): wait",
            "$builtins len",
            "<built-in method matmul of type object at 0x7f10>",
            "acquire_batch",
            "$",
            "",
        ] {
            assert!(!is_waiting_function(name), "{name}");
        }
    }
}
