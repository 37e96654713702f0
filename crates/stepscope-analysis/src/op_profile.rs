//! Operations of compiled programs with their measured time and their work.
//!
//! The times are those of the rows of [`ops`] by HLO operation. The work of one execution is the file's own count
//! where it has one (TPUs), else that of XLA's cost analysis ([`stepscope_hlo::cost`]): by its rules for GPUs on
//! those, by the base rules elsewhere.
//!
//! ```text
//! work of an operation = work of one execution * executions
//! ```
//!
//! Kernels of one operation that run together are one execution ([`OpRow::executions`]); XProf counts the work
//! again for each kernel. A loop, a branch or a call whose instructions have times of their own has no work: they
//! do it. The end of an asynchronous pair (`copy-done`) has none either: its start has it. What neither the
//! file nor the model knows (most custom calls) is unknown, never 0.

mod tree;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_formats::hlo::{Computation, ComputationAt, Instruction, InstructionAt, Module};
use stepscope_hlo::cost::{Cost, InstructionWork, Precision, PrecisionFlops, Rules};
use stepscope_model::vocabulary::xla;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, Time, TrackKind};
use stepscope_store::{Trace, Track};

use crate::hlo_text::name_and_opcode;
use crate::ops::hlo::Catalogue;
use crate::ops::{self, OpGrouping, OpRow, OpsQuery, Split};
use crate::parallel::Cancel;
use crate::programs::{self, RunProgram};
pub use tree::{Grouping, Node, NodeKind};

/// Where the work of an operation is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkSource {
    /// The trace file has it for each execution.
    Recorded,
    /// XLA's cost analysis of the program.
    Model,
    /// Nothing knows it.
    Unknown,
}

impl WorkSource {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "trace file",
            Self::Model => "cost model",
            Self::Unknown => "unknown",
        }
    }
}

/// An operation of a compiled program.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its times and counts.
    pub row: OpRow,
    /// The instruction: its program as an index into [`OpProfile::programs`], and its position there. `None` where
    /// the run does not have the program.
    pub instruction: Option<(usize, InstructionAt)>,
    /// What all its executions did; `None` if unknown.
    pub work: Option<InstructionWork>,
    /// See [`WorkSource`].
    pub source: WorkSource,
    /// Class of its floating-point operations; `None` where the run does not have the program.
    pub precision: Option<Precision>,
    /// The operation that the compiler made it a copy of: those of one name are equal. Its own name for others.
    pub original: String,
    rules: Rules,
}

/// The operations of a run.
#[derive(Debug, Default)]
pub struct OpProfile {
    /// The operations, by self time, the longest first.
    pub ops: Vec<Op>,
    /// The programs that they belong to.
    pub programs: Vec<Arc<RunProgram>>,
    /// Time in which devices ran no operation, summed over devices, picoseconds; `None` on machines whose
    /// operations run on threads of the host, and for a range.
    pub idle_ps: Option<i128>,
}

/// Joins the operations of a run with their programs.
pub fn op_profile(
    trace: &Trace,
    range: Option<Range<Time>>,
    cancel: &Cancel,
) -> Result<OpProfile, Cancelled> {
    OpProfiler::new(trace, range, cancel).map(|profiler| profiler.profile)
}

/// Joins rows by HLO operation with their programs: an operation for each row, in the order of the rows.
pub fn join(trace: &Trace, rows: Vec<OpRow>, cancel: &Cancel) -> Result<OpProfile, Cancelled> {
    let catalogue = Catalogue::from_trace(trace);
    OpProfiler::with_rows(trace, catalogue, rows, cancel).map(|profiler| profiler.profile)
}

/// Joins the operations of a run, and of parts of it, with their programs, which it reads once.
pub struct OpProfiler<'a> {
    trace: &'a Trace,
    catalogue: Catalogue,
    index: Index,
    /// The operations of the whole range.
    pub profile: OpProfile,
}

impl<'a> OpProfiler<'a> {
    /// Joins the operations of a range, or of the whole run.
    pub fn new(
        trace: &'a Trace,
        range: Option<Range<Time>>,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let catalogue = Catalogue::from_trace(trace);
        let is_whole = range.is_none();
        let rows = rows(trace, &catalogue, range, cancel)?;
        let idle_ps = is_whole.then(|| idle(trace, &rows)).flatten();
        let mut profiler = Self::with_rows(trace, catalogue, rows, cancel)?;
        profiler.profile.idle_ps = idle_ps;
        Ok(profiler)
    }

    /// Joins these rows, in their order.
    fn with_rows(
        trace: &'a Trace,
        catalogue: Catalogue,
        rows: Vec<OpRow>,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let wanted: FxHashSet<&str> = rows
            .iter()
            .filter_map(|row| row.program.as_deref())
            .collect();
        let programs = programs::read(trace, cancel, |key| {
            wanted.contains(key.to_string().as_str()) || wanted.contains(&*key.name)
        })?;
        let mut profiler = Self {
            trace,
            catalogue,
            index: Index::new(&programs, &rows),
            profile: OpProfile {
                programs,
                ..OpProfile::default()
            },
        };
        profiler.profile.ops = profiler.join(rows, cancel)?;
        Ok(profiler)
    }

    /// Joins the operations of a part of the range, by self time, the longest first. One that crosses an end counts
    /// with the time inside and all of its work.
    pub fn ops_in(&self, range: Range<Time>, cancel: &Cancel) -> Result<Vec<Op>, Cancelled> {
        let rows = rows(self.trace, &self.catalogue, Some(range), cancel)?;
        self.join(rows, cancel)
    }

    fn join(&self, rows: Vec<OpRow>, cancel: &Cancel) -> Result<Vec<Op>, Cancelled> {
        let join = |row| {
            cancel.check()?;
            Ok(self.profile.join(self.trace, row, &self.index))
        };
        rows.into_iter().map(join).collect()
    }
}

fn rows(
    trace: &Trace,
    catalogue: &Catalogue,
    range: Option<Range<Time>>,
    cancel: &Cancel,
) -> Result<Vec<OpRow>, Cancelled> {
    let query = OpsQuery {
        by: OpGrouping::Hlo,
        split: Split::None,
        range,
    };
    Ok(ops::compute_rows(trace, &query, catalogue, cancel)?.rows)
}

/// Instructions by program and name, and the computations with instructions that were measured.
struct Index {
    programs: FxHashMap<String, usize>,
    instructions: Vec<FxHashMap<Box<str>, InstructionAt>>,
    measured: FxHashSet<(usize, ComputationAt)>,
}

impl Index {
    fn new(programs: &[Arc<RunProgram>], rows: &[OpRow]) -> Self {
        let mut index = Self {
            programs: FxHashMap::default(),
            instructions: Vec::new(),
            measured: FxHashSet::default(),
        };
        for (at, program) in programs.iter().enumerate() {
            index.programs.insert(program.key.to_string(), at);
            index
                .programs
                .entry(program.key.name.to_string())
                .or_insert(at);
            let instructions = (0..).zip(&program.module.instructions);
            let by_name = instructions.map(|(at, instruction)| (instruction.name.clone(), at));
            index.instructions.push(by_name.collect());
        }
        for row in rows {
            if let Some((program, at)) = index.find(row) {
                let computation = programs[program].module.instruction(at).computation;
                index.measured.insert((program, computation));
            }
        }
        index
    }

    fn find(&self, row: &OpRow) -> Option<(usize, InstructionAt)> {
        let program = *self.programs.get(row.program.as_deref()?)?;
        let at = self.instructions[program].get(row.name.as_str())?;
        Some((program, *at))
    }

    /// Returns whether instructions that this one runs were measured.
    fn has_measured_parts(&self, program: usize, module: &Module, of: &Instruction) -> bool {
        // Called computations come before their callers; a damaged file may have them in a circle.
        let mut open: Vec<ComputationAt> = of.called.to_vec();
        let mut seen: FxHashSet<ComputationAt> = open.iter().copied().collect();
        while let Some(at) = open.pop() {
            if self.measured.contains(&(program, at)) {
                return true;
            }
            for inner in module.instructions_of(module.computation(at)) {
                let new = inner.called.iter().filter(|called| seen.insert(**called));
                open.extend(new);
            }
        }
        false
    }
}

impl OpProfile {
    fn join(&self, trace: &Trace, row: OpRow, index: &Index) -> Op {
        let rules = rules(trace, &row);
        let instruction = index.find(&row);
        let planned = instruction.map(|(program, at)| {
            let instruction = self.programs[program].module.instruction(at);
            instruction.origin.deduplicated_name.to_string()
        });
        let original = planned
            .filter(|name| !name.is_empty())
            .or_else(|| recorded_original(trace, &row))
            .unwrap_or_else(|| row.name.clone());
        let mut op = Op {
            instruction,
            work: None,
            source: WorkSource::Unknown,
            precision: None,
            original,
            rules,
            row,
        };
        let opcode = match instruction {
            Some((program, at)) => &*self.programs[program].module.instruction(at).opcode,
            None => name_and_opcode(&op.row.name).1,
        };
        if opcode.ends_with("-done") || opcode.ends_with("-update") {
            (op.work, op.source) = (Some(InstructionWork::default()), WorkSource::Model);
            return op;
        }
        let cost = instruction.map(|(program, at)| {
            let read = &self.programs[program];
            let cost = &read.costs(rules).instructions[at as usize];
            (program, read.module.instruction(at), cost)
        });
        op.precision = cost.and_then(|(_, _, cost)| cost.precision);
        if let Some(recorded) = op.row.recorded {
            // Work of an unknown type counts as that of the peak which makers name first.
            let precision = op.precision.unwrap_or(Precision::F16);
            op.work = Some(InstructionWork {
                flops: recorded.flops,
                transcendentals: 0.0,
                bytes: recorded.bytes,
                levels: recorded.levels,
                precisions: PrecisionFlops::only(precision, recorded.flops),
            });
            op.source = WorkSource::Recorded;
            return op;
        }
        let Some((program, instruction, cost)) = cost else {
            return op;
        };
        let once = if xla::is_container(opcode) {
            let module = &self.programs[program].module;
            if index.has_measured_parts(program, module, instruction) {
                (op.work, op.source) = (Some(InstructionWork::default()), WorkSource::Model);
                return op;
            }
            cost.with_loops
        } else {
            work(cost, instruction)
        };
        if !cost.is_unknown {
            op.work = Some(once.scaled(op.row.executions as f64));
            op.source = WorkSource::Model;
        }
        op
    }

    /// Returns the instruction of an operation.
    pub fn instruction(&self, op: &Op) -> Option<&Instruction> {
        let (program, at) = op.instruction?;
        Some(self.programs[program].module.instruction(at))
    }

    /// Returns the computation that a fusion runs.
    fn fused<'a>(&'a self, op: &Op) -> Option<(&'a Module, &'a Computation)> {
        let (program, at) = op.instruction?;
        let module = &self.programs[program].module;
        let instruction = module.instruction(at);
        let fused = module.callee(instruction)?;
        (&*instruction.opcode == "fusion").then_some((module, fused))
    }

    /// Returns what one instruction of the program of an operation does in one execution.
    fn once(&self, op: &Op, at: InstructionAt) -> Option<InstructionWork> {
        let (program, _) = op.instruction?;
        let program = &self.programs[program];
        let cost = program.costs(op.rules).instructions.get(at as usize)?;
        let instruction = program.module.instruction(at);
        (!cost.is_unknown).then(|| work(cost, instruction))
    }
}

fn work(cost: &Cost, instruction: &Instruction) -> InstructionWork {
    InstructionWork {
        bytes: cost.properties.exact_bytes(instruction.operands.len()),
        ..cost.with_loops
    }
}

/// Returns the operation that a slice of a TPU names as its original.
fn recorded_original(trace: &Trace, row: &OpRow) -> Option<String> {
    let mut found = None;
    // Unreadable arguments leave it unknown.
    let _ = trace.args_of(row.longest, ORIGINAL, &mut |_, value| {
        if let ArgValue::Str(name) = value {
            found = Some(name.to_owned());
        }
    });
    found.filter(|name| !name.is_empty())
}

const ORIGINAL: ArgKeys = ArgKeys::new(&["deduplicated_name"]);

/// Returns the rules by which the work of a row is counted: those of GPUs on their streams.
fn rules(trace: &Trace, row: &OpRow) -> Rules {
    let line = trace
        .place_of_slice(row.longest)
        .and_then(|(line, _)| trace.tracks().get(line.index()));
    match line {
        Some(line) if row.on_device && ops::is_stream(line) => Rules::Gpu,
        _ => Rules::Base,
    }
}

/// Computes the time between the first and the last slice of each device in which it ran no operation; never
/// negative.
fn idle(trace: &Trace, rows: &[OpRow]) -> Option<i128> {
    let is_line =
        |track: &&Track| track.kind == TrackKind::DeviceQueue && !track.derived && track.slices > 0;
    let mut spans: BTreeMap<(usize, Option<u32>), Range<Time>> = BTreeMap::new();
    for track in trace.tracks().iter().filter(is_line) {
        let slices = trace.slices(track.id);
        let first = slices.start.iter().min();
        let last = (0..slices.len()).map(|index| slices.end(index)).max();
        if let Some((first, last)) = first.zip(last) {
            let span = spans
                .entry((track.file, track.device))
                .or_insert(*first..last);
            *span = span.start.min(*first)..span.end.max(last);
        }
    }
    let on_device: Vec<&OpRow> = rows.iter().filter(|row| row.on_device).collect();
    if spans.is_empty() || on_device.is_empty() {
        return None;
    }
    let span: i128 = spans
        .values()
        .map(|span| i128::from(span.end.since(span.start).ps()))
        .sum();
    let busy: i128 = on_device.iter().map(|row| row.self_ps).sum();
    Some((span - busy).max(0))
}
