//! The costs of a program by operation, and by what operations have in common.
//!
//! ```text
//! figure of a module = sum over its rows of (figure * counted) - unknown custom calls
//! ```
//! With the work of loops, rows add up without exception: custom calls have no work there.

use std::collections::BTreeMap;

use stepscope_analysis::ops::hlo::category;
use stepscope_formats::hlo::{Instruction, InstructionAt, Module};
use stepscope_hlo::cost::{
    Analysis, Cost, ExecutionRole, Executions, InstructionWork, counts_by_parts, executions,
};

use super::super::scope;
use super::{RunProgram, whole};
use crate::report::{Cell, Column, Table, Unit};

/// An instruction that runs: those inside of fusions and of reductions are part of one.
struct Operation<'a> {
    program: &'a RunProgram,
    instruction: &'a Instruction,
    cost: &'a Cost,
    executions: Executions,
    /// The loop around the innermost loop.
    outer_loop: Option<InstructionAt>,
}

impl Operation<'_> {
    /// Returns how often the module's figures have it.
    fn counted(&self) -> u64 {
        if counts_by_parts(&self.instruction.opcode) {
            0
        } else {
            self.executions.once
        }
    }
}

fn operations_of<'a>(costs: &'a [(&'a RunProgram, &'a Analysis)]) -> Vec<Operation<'a>> {
    let mut found = Vec::new();
    for (program, analysis) in costs {
        let runs = executions(&program.module);
        let loop_around = |at: InstructionAt| {
            let around = program.module.instruction(at).computation;
            runs[around as usize].innermost_loop
        };
        let instructions = program.module.instructions.iter();
        for (instruction, cost) in instructions.zip(&analysis.instructions) {
            let executions = runs[instruction.computation as usize];
            if executions.role != ExecutionRole::Inside {
                found.push(Operation {
                    program,
                    instruction,
                    cost,
                    executions,
                    outer_loop: executions.innermost_loop.and_then(loop_around),
                });
            }
        }
    }
    found
}

pub(super) fn operations(costs: &[(&RunProgram, &Analysis)]) -> Table {
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("op", "Operation", Unit::Text),
        Column::new("opcode", "Opcode", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
        Column::new("shape", "Shape", Unit::Text),
        Column::new("flops", "FLOPs", Unit::Count),
        Column::new("transcendentals", "Transcendentals", Unit::Count),
        Column::new("bytes_accessed", "Bytes accessed", Unit::Bytes),
        Column::new("intensity", "FLOPs per byte", Unit::Number),
        Column::new("output_bytes", "Bytes of the output", Unit::Bytes),
        Column::new("operand_bytes", "Bytes of each operand", Unit::Bytes),
        Column::new("computation", "Computation", Unit::Text),
        Column::new("counted", "Counted", Unit::Count),
        Column::new("flops_with_loops", "FLOPs with loops", Unit::Count),
        Column::new(
            "bytes_accessed_with_loops",
            "Bytes accessed with loops",
            Unit::Bytes,
        ),
    ]);
    let mut rows = operations_of(costs);
    rows.sort_by(|one, other| {
        let (left, right) = (&one.cost.properties, &other.cost.properties);
        let flops = right.flops.total_cmp(&left.flops);
        let bytes = right.bytes.total_cmp(&left.bytes);
        let names = (&one.program.key, &one.instruction.name);
        let names = names.cmp(&(&other.program.key, &other.instruction.name));
        flops.then(bytes).then(names)
    });
    for row in rows {
        let (instruction, cost) = (row.instruction, row.cost);
        let known = |figure: f32| -> Cell {
            if cost.is_unknown {
                Cell::Empty
            } else {
                whole(figure.into())
            }
        };
        let properties = &cost.properties;
        // The figures of a fusion go on behind its operands, and those of a loop are sums over its instructions.
        let has_operands = !cost.is_unknown && !counts_by_parts(&instruction.opcode);
        let operands = properties.operand_bytes.iter();
        let operands = operands.take(instruction.operands.len());
        let with_loops = |figure: f64| -> Cell {
            if cost.is_unknown || row.executions.with_loops == 0.0 {
                Cell::Empty
            } else {
                whole(figure * row.executions.with_loops)
            }
        };
        let module = &row.program.module;
        table.push([
            (&*module.name).into(),
            row.program.key.id.to_string().into(),
            (&*instruction.name).into(),
            (&*instruction.opcode).into(),
            (&*instruction.origin.op_name).into(),
            instruction.shape.without_layout().to_string().into(),
            known(properties.flops),
            known(properties.transcendentals),
            known(properties.bytes),
            // Not finite, and so empty, where nothing is accessed.
            if cost.is_unknown {
                Cell::Empty
            } else {
                f64::from(properties.flops / properties.bytes).into()
            },
            if has_operands {
                whole(properties.output_bytes.into())
            } else {
                Cell::Empty
            },
            if has_operands {
                Cell::List(operands.map(|bytes| whole((*bytes).into())).collect())
            } else {
                Cell::Empty
            },
            (&*module.computation(instruction.computation).name).into(),
            row.counted().into(),
            with_loops(cost.with_loops.flops),
            with_loops(cost.with_loops.bytes),
        ]);
    }
    table
}

/// What the operations of a group do.
#[derive(Default)]
struct Group {
    role: ExecutionRole,
    trip_count: Option<u64>,
    outer_loop: String,
    once: InstructionWork,
    with_loops: InstructionWork,
    unknown: u64,
    operations: u64,
}

/// Returns a row for each computation, scope, category or loop of each program: the operations are those that the
/// module's figures have.
pub(super) fn groups(costs: &[(&RunProgram, &Analysis)], by: &str) -> Table {
    let programs: BTreeMap<_, usize> = costs
        .iter()
        .enumerate()
        .map(|(at, (program, _))| (&program.key, at))
        .collect();
    let mut groups: BTreeMap<(usize, String), Group> = BTreeMap::new();
    let loops = costs.iter().enumerate().flat_map(|(at, (_, analysis))| {
        let loops = analysis.loops.iter();
        loops.map(move |one| ((at, one.instruction), one.trip_count))
    });
    let trip_counts: BTreeMap<(usize, InstructionAt), Option<u64>> = loops.collect();
    for row in operations_of(costs) {
        let instruction = row.instruction;
        let module = &row.program.module;
        let name = match by {
            "computation" => module.computation(instruction.computation).name.to_string(),
            "scope" => scope(&instruction.origin.op_name).to_owned(),
            "category" => category(&instruction.opcode, &instruction.fusion_kind),
            _ => loop_name(module, row.executions.innermost_loop),
        };
        let program = programs.get(&row.program.key).copied().unwrap_or(0);
        if row.counted() == 0 {
            continue;
        }
        let group = groups.entry((program, name)).or_default();
        if group.operations == 0 {
            let innermost = row.executions.innermost_loop;
            let trips = innermost.and_then(|at| trip_counts.get(&(program, at)));
            group.trip_count = trips.copied().flatten();
            group.outer_loop = loop_name(module, row.outer_loop);
            group.role = row.executions.role;
        }
        group.operations += 1;
        if row.cost.is_unknown {
            group.unknown += 1;
            continue;
        }
        let properties = &row.cost.properties;
        let times = row.counted() as f64;
        group.once.flops += f64::from(properties.flops) * times;
        group.once.transcendentals += f64::from(properties.transcendentals) * times;
        group.once.bytes += f64::from(properties.bytes) * times;
        let (work, times) = (row.cost.with_loops, row.executions.with_loops);
        group.with_loops.flops += work.flops * times;
        group.with_loops.bytes += work.bytes * times;
    }
    let mut rows: Vec<_> = groups.into_iter().collect();
    rows.sort_by(|(a, left), (b, right)| {
        let flops = right.once.flops.total_cmp(&left.once.flops);
        let bytes = right.once.bytes.total_cmp(&left.once.bytes);
        flops.then(bytes).then_with(|| a.cmp(b))
    });
    let mut table = Table::new(columns(by));
    for ((program, name), group) in rows {
        let (program, _) = &costs[program];
        let mut cells: Vec<Cell> = vec![
            (&*program.module.name).into(),
            program.key.id.to_string().into(),
            name.into(),
        ];
        match by {
            "computation" => cells.push(group.role.as_str().into()),
            "loop" => cells.extend([group.trip_count.into(), group.outer_loop.into()]),
            _ => {}
        }
        cells.extend([
            whole(group.once.flops),
            whole(group.once.transcendentals),
            whole(group.once.bytes),
            whole(group.with_loops.flops),
            whole(group.with_loops.bytes),
            group.unknown.into(),
            group.operations.into(),
        ]);
        table.rows.push(cells);
    }
    table
}

fn columns(by: &str) -> Vec<Column> {
    let mut columns = vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
    ];
    match by {
        "computation" => columns.extend([
            Column::new("computation", "Computation", Unit::Text),
            Column::new("role", "Runs as", Unit::Text),
        ]),
        "scope" => columns.push(Column::new("scope", "Scope", Unit::Text)),
        "category" => columns.push(Column::new("category", "Category", Unit::Text)),
        _ => columns.extend([
            Column::new("loop", "Loop", Unit::Text),
            Column::new("trip_count", "Trips", Unit::Count),
            Column::new("outer_loop", "Loop around it", Unit::Text),
        ]),
    }
    columns.extend([
        Column::new("flops", "FLOPs", Unit::Count),
        Column::new("transcendentals", "Transcendentals", Unit::Count),
        Column::new("bytes_accessed", "Bytes accessed", Unit::Bytes),
        Column::new("flops_with_loops", "FLOPs with loops", Unit::Count),
        Column::new(
            "bytes_accessed_with_loops",
            "Bytes accessed with loops",
            Unit::Bytes,
        ),
        Column::new("unknown_calls", "Unknown custom calls", Unit::Count),
        Column::new("operations", "Operations", Unit::Count),
    ]);
    columns
}

fn loop_name(module: &Module, at: Option<InstructionAt>) -> String {
    at.map_or_else(String::new, |at| module.instruction(at).name.to_string())
}
