//! Operators of PyTorch with their measured time and their work.
//!
//! Every kernel, copy and memset of a device belongs to one call of an operator: of the operators around its launch,
//! the outermost one whose work is known by name ([`Model`]), else the innermost one, whose work is unknown. An
//! operator that mostly leaves its work to another one ([`Model::is_composite`]) counts only if no operator with a
//! model of its own launched anything inside the call.
//!
//! ```text
//! time of a call = union of its device work
//! time of a row  = sum of the times of its calls
//! work of a row  = work of one call * calls
//! ```
//! Calls that launched nothing do not count. Collectives are left out. Device work without an operator around its
//! launch is a row without a name. In files without devices the time of a call is its own time and that of the
//! operators inside without a row of their own.
//!
//! Cost: a pass over the device's slices, a sort, and the arguments of each call that counts.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace};

use crate::device::{Devices, Work};
use crate::launch::Launches;
use crate::names::json_on_one_line;
use crate::parallel::{self, Cancel};
use crate::slice_class::is_operator;
use crate::steps::{FusedFiles, StepRank, steps_of};
use crate::torch_args::is_dims;
use crate::torch_cost::{CallArgs, Model, OpCost, TorchOpClass};

/// Calls of one operator with the same inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct TorchOp {
    /// Name of the operator; empty for device work without one.
    pub name: String,
    /// Class of the operator; `None` if its work is unknown by name.
    pub class: Option<TorchOpClass>,
    /// Shapes of the inputs, as the file has them.
    pub shapes: String,
    /// Types of the inputs, as the file has them.
    pub types: String,
    /// Number of the step in which the calls started; `None` outside of steps, or where steps were not requested.
    pub step: Option<i64>,
    /// Number of calls.
    pub calls: u64,
    /// Sum of the times of the calls, picoseconds.
    pub time_ps: i128,
    /// Work of one call; `None` if unknown.
    pub cost: Option<OpCost>,
    /// The first slice that its time is of: on a device, if the run has any.
    pub slice: EventId,
}

/// The operators of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TorchOpProfile {
    /// The operators, by time, the longest first.
    pub ops: Vec<TorchOp>,
    /// Whether the times are those of devices.
    pub on_device: bool,
}

/// Scope of [`torch_op_profile`].
#[derive(Clone, Debug, Default)]
pub struct TorchOpQuery {
    /// Only calls that start in this range.
    pub range: Option<Range<Time>>,
    /// Whether rows are separated by step.
    pub by_step: bool,
    /// Whether only steps that the program marked count.
    pub marked_only: bool,
}

/// Time that belongs to a call.
#[derive(Clone, Copy)]
struct OwnedInterval {
    owner: Owner,
    start: Time,
    end: Time,
    slice: EventId,
}

/// The operators around a launch that its time may belong to.
#[derive(Clone, Copy, Default)]
struct Owner {
    /// The outermost operator with a model.
    modelled: Option<EventId>,
    /// The outermost composite operator.
    composite: Option<EventId>,
    innermost: Option<EventId>,
}

/// What the name of an operator says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameClass {
    Unknown,
    Composite,
    Modelled,
}

/// Finds the operators of a run, their times and their work.
pub fn torch_op_profile(
    trace: &Trace,
    query: &TorchOpQuery,
    cancel: &Cancel,
) -> Result<TorchOpProfile, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    let operators = Operators::new(trace);
    let on_device = !devices.list.is_empty();
    let mut pieces = if on_device {
        device_pieces(trace, &devices, &operators, cancel)?
    } else {
        host_pieces(trace, &operators, cancel)?
    };
    let delegated: FxHashSet<EventId> = pieces
        .iter()
        .filter(|piece| piece.owner.modelled.is_some())
        .filter_map(|piece| piece.owner.composite)
        .collect();
    let owner = |piece: &OwnedInterval| {
        let Owner {
            modelled,
            composite,
            innermost,
        } = piece.owner;
        let composite = composite.filter(|call| !delegated.contains(call));
        modelled.or(composite).or(innermost)
    };
    if let Some(range) = &query.range {
        pieces.retain(|piece| {
            let start = owner(piece).and_then(|call| start_of(trace, call));
            range.contains(&start.unwrap_or(piece.start))
        });
    }
    pieces.sort_unstable_by_key(|piece| (owner(piece), piece.start, piece.slice));
    let mut calls: Vec<Call> = Vec::new();
    for piece in &pieces {
        let event = owner(piece);
        match calls.last_mut().filter(|call| call.event == event) {
            Some(call) => call.add(piece, on_device),
            None => calls.push(Call::new(event, piece)),
        }
    }
    cancel.check()?;
    let steps = query.by_step.then(|| Steps::new(trace, query.marked_only));
    let jobs: Vec<&[Call]> = calls.chunks(4_096).collect();
    let found = parallel::scan_items(
        &jobs,
        calls.len(),
        cancel,
        FxHashMap::<Inputs, Sum>::default,
        |sums, job| {
            for call in *job {
                let inputs = Inputs::read(trace, &operators, call, steps.as_ref());
                sums.entry(inputs)
                    .or_insert_with(|| Sum::new(call))
                    .add(call);
            }
        },
    )?;
    let mut sums: BTreeMap<Inputs, Sum> = BTreeMap::new();
    for (inputs, sum) in found.into_iter().flatten() {
        match sums.entry(inputs) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(sum);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().merge(&sum),
        }
    }
    let mut ops: Vec<TorchOp> = sums
        .into_iter()
        .map(|(inputs, sum)| inputs.into_op(&sum))
        .collect();
    // Stable: of equal times the order of names and inputs.
    ops.sort_by_key(|op| std::cmp::Reverse(op.time_ps));
    Ok(TorchOpProfile { ops, on_device })
}

fn start_of(trace: &Trace, call: EventId) -> Option<Time> {
    let (track, index) = trace.place_of_slice(call)?;
    trace.slices(track).start.get(index).copied()
}

/// The operators of a trace, by category and name.
struct Operators {
    /// For each text, whether it is a category of operators.
    categories: Vec<bool>,
    /// For each text, what it says as the name of an operator.
    names: Vec<NameClass>,
}

impl Operators {
    fn new(trace: &Trace) -> Self {
        let texts =
            (0..trace.name_count()).map(|name| NameId(u32::try_from(name).unwrap_or(u32::MAX)));
        let mut categories = vec![false; trace.name_count()];
        for (category, _) in trace.by_category() {
            if let Some(slot) = categories.get_mut(category.index()) {
                *slot = is_operator(trace.name(category));
            }
        }
        let names = texts.map(|text| match Model::from_name(trace.name(text)) {
            None => NameClass::Unknown,
            Some(model) if model.is_composite => NameClass::Composite,
            Some(_) => NameClass::Modelled,
        });
        Self {
            names: names.collect(),
            categories,
        }
    }

    fn is_operator(&self, category: NameId) -> bool {
        self.categories.get(category.index()) == Some(&true)
    }

    fn class(&self, name: NameId) -> NameClass {
        let known = self.names.get(name.index()).copied();
        known.unwrap_or(NameClass::Unknown)
    }

    /// Returns the operators around a slice of the host, itself included.
    fn around(&self, trace: &Trace, track: TrackId, mut index: usize) -> Owner {
        let slices = trace.slices(track);
        let mut owner = Owner::default();
        while index < slices.len() {
            if self.is_operator(slices.category.get(index)) {
                let event = slices.id(index);
                owner.innermost.get_or_insert(event);
                match self.class(slices.name[index]) {
                    NameClass::Modelled => owner.modelled = Some(event),
                    NameClass::Composite => owner.composite = Some(event),
                    NameClass::Unknown => {}
                }
            }
            index = slices.parent[index] as usize;
        }
        owner
    }
}

/// Finds the work of devices and the operators that launched it.
fn device_pieces(
    trace: &Trace,
    devices: &Devices<'_>,
    operators: &Operators,
    cancel: &Cancel,
) -> Result<Vec<OwnedInterval>, Cancelled> {
    let launches = Launches::from_trace(trace, devices, cancel)?;
    let queues = devices.list.iter().flat_map(|device| &device.queues);
    let chunks = parallel::track_chunks(
        queues.map(|queue| (queue.track, 0..trace.slices(queue.track).len())),
    );
    let found = parallel::scan(&chunks, cancel, Vec::new, |pieces, chunk| {
        let slices = trace.slices(chunk.track);
        for index in chunk.indexes.clone() {
            if !matches!(
                devices.work(chunk.track, index),
                Some(Work::Compute | Work::Memcpy | Work::Memset)
            ) {
                continue;
            }
            let launch = launches.get(chunk.track, index);
            let place = launch.and_then(|launch| trace.place_of_slice(launch));
            pieces.push(OwnedInterval {
                owner: place.map_or_else(Owner::default, |(track, index)| {
                    operators.around(trace, track, index)
                }),
                start: slices.start[index],
                end: slices.end(index),
                slice: slices.id(index),
            });
        }
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Finds the own times of operators on threads: without the operators inside.
fn host_pieces(
    trace: &Trace,
    operators: &Operators,
    cancel: &Cancel,
) -> Result<Vec<OwnedInterval>, Cancelled> {
    let threads = trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::Thread && !track.derived);
    let mut pieces = Vec::new();
    for track in threads {
        cancel.check()?;
        let slices = trace.slices(track.id);
        let first = pieces.len();
        // The nearest operator around each slice, as an index into `pieces`; parents come before children.
        let mut nearest = vec![usize::MAX; slices.len()];
        for index in 0..slices.len() {
            let parent = slices.parent[index] as usize;
            let around = nearest.get(parent).copied().unwrap_or(usize::MAX);
            nearest[index] = around;
            if !operators.is_operator(slices.category.get(index)) {
                continue;
            }
            nearest[index] = pieces.len();
            let (start, dur) = (slices.start[index], slices.dur[index]);
            pieces.push(OwnedInterval {
                owner: operators.around(trace, track.id, index),
                start,
                end: start.saturating_add(dur),
                slice: slices.id(index),
            });
            if let Some(outer) = pieces.get_mut(around).filter(|_| around >= first) {
                // Only the length counts, not where the time is.
                let own = outer.end.since(outer.start).ps().saturating_sub(dur.ps());
                let own = stepscope_model::Dur::from_ps(own.max(0));
                outer.end = outer.start.saturating_add(own);
            }
        }
    }
    Ok(pieces)
}

/// The time of a call.
struct Call {
    event: Option<EventId>,
    time_ps: i64,
    /// End of the last work.
    end: Time,
    /// Its first slice.
    slice: EventId,
}

impl Call {
    fn new(event: Option<EventId>, piece: &OwnedInterval) -> Self {
        Self {
            event,
            time_ps: piece.end.since(piece.start).ps(),
            end: piece.end,
            slice: piece.slice,
        }
    }

    /// Adds a piece; pieces come in the order of their starts. Work of a device that overlaps counts once.
    fn add(&mut self, piece: &OwnedInterval, is_union: bool) {
        let start = if is_union {
            piece.start.max(self.end)
        } else {
            piece.start
        };
        if piece.end > start {
            self.time_ps = self.time_ps.saturating_add(piece.end.since(start).ps());
        }
        self.end = self.end.max(piece.end);
    }
}

/// Sums over calls.
struct Sum {
    calls: u64,
    time_ps: i128,
    slice: EventId,
}

impl Sum {
    const fn new(call: &Call) -> Self {
        Self {
            calls: 0,
            time_ps: 0,
            slice: call.slice,
        }
    }

    fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.time_ps += i128::from(call.time_ps);
        self.slice = self.slice.min(call.slice);
    }

    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.time_ps += other.time_ps;
        self.slice = self.slice.min(other.slice);
    }
}

/// The inputs that separate rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Inputs {
    name: String,
    dims: String,
    types: String,
    strides: String,
    concrete: String,
    step: Option<i64>,
}

const ARGS: ArgKeys = ArgKeys::new(&[
    "Input Dims",
    "Input dims",
    "Input type",
    "Input Strides",
    "Concrete Inputs",
]);

impl Inputs {
    fn read(trace: &Trace, operators: &Operators, call: &Call, steps: Option<&Steps>) -> Self {
        let mut found = Self::default();
        let place = call.event.and_then(|event| trace.place_of_slice(event));
        let Some((event, (track, index))) = call.event.zip(place) else {
            return found;
        };
        let slices = trace.slices(track);
        trace.name(slices.name[index]).clone_into(&mut found.name);
        found.step = steps.and_then(|steps| steps.at(trace, track, slices.start[index]));
        // Unreadable arguments leave the work unknown.
        let _ = trace.args_of(event, ARGS, &mut |key, value| {
            if let ArgValue::Json(text) | ArgValue::Str(text) = value {
                let slot = match key {
                    key if is_dims(key) => &mut found.dims,
                    "Input type" => &mut found.types,
                    "Input Strides" => &mut found.strides,
                    _ => &mut found.concrete,
                };
                *slot = json_on_one_line(text).into_owned();
            }
        });
        // Values of operators without a formula would separate equal rows.
        if operators.class(slices.name[index]) == NameClass::Unknown {
            found.strides.clear();
            found.concrete.clear();
        }
        found
    }

    fn into_op(self, sum: &Sum) -> TorchOp {
        let model = Model::from_name(&self.name);
        let args = CallArgs {
            dims: &self.dims,
            types: &self.types,
            strides: &self.strides,
            concrete: &self.concrete,
        };
        TorchOp {
            class: model.map(Model::class),
            cost: model.and_then(|model| model.cost(&self.name, args)),
            calls: sum.calls,
            time_ps: sum.time_ps,
            slice: sum.slice,
            step: self.step,
            name: self.name,
            shapes: self.dims,
            types: self.types,
        }
    }
}

/// The steps of each rank, in order.
struct Steps {
    fused: FusedFiles,
    by_rank: BTreeMap<StepRank, Vec<(Time, Time, i64)>>,
}

impl Steps {
    fn new(trace: &Trace, marked_only: bool) -> Self {
        let steps = steps_of(trace, marked_only).steps;
        let mut by_rank: BTreeMap<StepRank, Vec<(Time, Time, i64)>> = BTreeMap::new();
        for step in steps.iter().filter(|step| !step.unfinished) {
            let end = step.start.saturating_add(step.dur);
            let own = by_rank.entry(step.rank()).or_default();
            own.push((step.start, end, step.number));
        }
        for own in by_rank.values_mut() {
            own.sort_unstable();
        }
        Self {
            fused: FusedFiles::new(trace, by_rank.keys().copied()),
            by_rank,
        }
    }

    /// Returns the number of the step at a time on a track.
    fn at(&self, trace: &Trace, track: TrackId, time: Time) -> Option<i64> {
        let track = trace.tracks().get(track.index())?;
        let own = self.by_rank.get(&self.fused.rank(track))?;
        let after = own.partition_point(|(start, _, _)| *start <= time);
        let (_, end, number) = own.get(after.checked_sub(1)?)?;
        (time < *end).then_some(*number)
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{
        Dur, Epoch, EventSink, FlowDirection, FlowKey, SliceFlow, SliceIn, TrackPatch,
    };
    use stepscope_store::{FileSpec, TraceBuilder, ascii_trace};

    use super::*;

    /// A thread with nested operators, and kernels by the number of their launch.
    fn trace(
        operators: &[(&str, i64, i64)],
        launches: &[(u64, i64)],
        kernels: &[(u64, i64, i64)],
    ) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        let thread = sink.track("main");
        let queues = [sink.track("stream 1"), sink.track("stream 2")];
        for queue in queues {
            let patch = TrackPatch {
                kind: Some(TrackKind::DeviceQueue),
                ..TrackPatch::default()
            };
            sink.describe(queue, patch);
        }
        let mut slice = |on, name: &str, category: &str, start, length, flow| {
            let (name, category) = (sink.name(name), sink.name(category));
            let flows: Vec<SliceFlow> = Option::<(u64, FlowDirection)>::into_iter(flow)
                .map(|(id, direction)| SliceFlow {
                    key: FlowKey {
                        id,
                        category: NameId::EMPTY,
                    },
                    direction,
                })
                .collect();
            sink.slice(
                on,
                SliceIn {
                    start: Time::from_ps(start),
                    dur: Dur::from_ps(length),
                    name,
                    category,
                    flows: &flows,
                    ..SliceIn::default()
                },
            );
        };
        for (name, start, length) in operators {
            slice(thread, name, "cpu_op", *start, *length, None);
        }
        for (number, start) in launches {
            let flow = Some((*number, FlowDirection::Out));
            slice(thread, "cudaLaunchKernel", "cuda_runtime", *start, 1, flow);
        }
        for (index, (number, start, length)) in kernels.iter().enumerate() {
            let flow = Some((*number, FlowDirection::In));
            slice(queues[index % 2], "gemm", "kernel", *start, *length, flow);
        }
        builder.add(sink);
        builder.finish()
    }

    fn rows(trace: &Trace) -> Vec<(String, u64, i128)> {
        let query = TorchOpQuery::default();
        let found = torch_op_profile(trace, &query, &Cancel::default()).unwrap();
        let rows = found.ops.into_iter();
        rows.map(|op| (op.name, op.calls, op.time_ps)).collect()
    }

    fn row(name: &str, calls: u64, time_ps: i128) -> (String, u64, i128) {
        (name.to_owned(), calls, time_ps)
    }

    #[test]
    fn the_outermost_operator_with_a_model_owns_a_kernel() {
        let operators = [
            ("aten::linear", 0, 40),
            ("aten::addmm", 10, 20),
            ("aten::copy_", 12, 5),
            ("aten::nonzero", 50, 10),
        ];
        let launches = [(1, 13), (2, 20), (3, 52), (4, 70)];
        // The first two overlap on two streams: together they take 15.
        let kernels = [(1, 100, 10), (2, 105, 10), (3, 200, 4), (4, 300, 3)];
        assert_eq!(
            rows(&trace(&operators, &launches, &kernels)),
            [
                row("aten::addmm", 1, 15),
                row("aten::nonzero", 1, 4),
                row("", 1, 3)
            ]
        );
    }

    #[test]
    fn a_composite_operator_counts_only_without_others_inside() {
        let operators = [
            ("aten::linear", 0, 10),
            ("custom::gemm", 1, 8),
            ("aten::linear", 20, 20),
            ("aten::mm", 21, 5),
            ("custom::gemm", 30, 8),
        ];
        let launches = [(1, 2), (2, 22), (3, 31)];
        let kernels = [(1, 100, 7), (2, 110, 6), (3, 120, 5)];
        assert_eq!(
            rows(&trace(&operators, &launches, &kernels)),
            [
                row("aten::linear", 1, 7),
                row("aten::mm", 1, 6),
                row("custom::gemm", 1, 5)
            ]
        );
    }

    #[test]
    fn without_devices_own_times_count() {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        let thread = sink.track("main");
        for (name, start, length) in [
            ("aten::nonzero", 0, 100),
            ("aten::addmm", 10, 40),
            ("aten::expand", 20, 5),
            ("aten::mm", 60, 30),
        ] {
            let (name, category) = (sink.name(name), sink.name("cpu_op"));
            sink.slice(
                thread,
                SliceIn {
                    start: Time::from_ps(start),
                    dur: Dur::from_ps(length),
                    name,
                    category,
                    ..SliceIn::default()
                },
            );
        }
        builder.add(sink);
        assert_eq!(
            rows(&builder.finish()),
            [
                row("aten::addmm", 1, 40),
                row("aten::mm", 1, 30),
                row("aten::nonzero", 1, 30)
            ]
        );
    }

    #[test]
    fn a_run_without_operators_has_no_rows() {
        assert!(rows(&ascii_trace::trace("main | step0----")).is_empty());
    }
}
