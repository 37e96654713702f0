//! One operation of a compiled program, and search among all.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use serde::Serialize;
use stepscope_formats::hlo::{InstructionAt, SourceLine};
use stepscope_hlo::graph::{adjacent, instruction_text, search as search_module};

use super::TimedProgram;
use crate::ns::Ns;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::state::State;

/// Maximum and default number of found operations.
const MAX_FOUND: usize = 1_000;
const DEFAULT_FOUND: usize = 50;
/// Maximum number of lines of a stack.
const MAX_STACK: usize = 64;
/// Maximum number of listed operands and of listed users.
const MAX_NEIGHBOURS: usize = 200;

#[derive(Serialize)]
struct OpAnswer {
    module: String,
    name: String,
    opcode: String,
    shape: String,
    computation: String,
    op_name: String,
    /// Lines of source as `file:line`, innermost first.
    stack: Vec<String>,
    text: String,
    operands: Vec<String>,
    operand_count: usize,
    users: Vec<String>,
    user_count: usize,
    /// Computations that it runs.
    called: Vec<String>,
    /// Operations that run the computation around it.
    callers: Vec<String>,
    flops: Option<f64>,
    transcendentals: Option<f64>,
    bytes_accessed: Option<f64>,
    result_bytes: u64,
    peak_bytes: u64,
    count: Option<u64>,
    self_ns: Option<Ns>,
    total_ns: Option<Ns>,
    /// Fraction of the self times of the program's operations.
    share: Option<f64>,
    /// The longest occurrence.
    event: Option<u32>,
}

/// `GET /runs/{run}/graph/op`
pub(in crate::routes) async fn op(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    let cache = Arc::clone(&state.op_times);
    about_run(&state, request, move |view, params, cancel| {
        let timed = TimedProgram::new(&cache, view, params, cancel)?;
        let at = timed
            .instruction(params, "node")?
            .ok_or_else(|| Problem::bad_request("node", "node is missing"))?;
        Ok(Json(answer(&timed, at)))
    })
    .await
}

fn line(source: SourceLine<'_>) -> String {
    format!("{}:{}", source.file, source.line)
}

fn answer(timed: &TimedProgram, at: InstructionAt) -> OpAnswer {
    let (module, flow) = (&timed.program.module, timed.program.flow());
    let instruction = module.instruction(at);
    let names = |list: &[InstructionAt]| -> Vec<String> {
        let list = list.iter().take(MAX_NEIGHBOURS);
        list.map(|at| module.instruction(*at).name.to_string())
            .collect()
    };
    let (operands, users) = adjacent(module, flow, at);
    let origin = &instruction.origin;
    let stack: Vec<String> = if origin.file.is_empty() {
        let frames = module.frames.stack(origin.frame);
        frames.take(MAX_STACK).map(line).collect()
    } else {
        module.source(instruction).map(line).into_iter().collect()
    };
    let cost = &timed.costs().instructions[at as usize];
    let work = (!cost.is_unknown).then_some(cost.with_loops);
    let time = timed.time(at);
    let all = timed.times.get(&timed.name);
    let sum: i128 = all.map_or(0, |times| times.values().map(|time| time.self_ps).sum());
    let computation = module.computation(instruction.computation);
    OpAnswer {
        module: timed.name.clone(),
        name: instruction.name.to_string(),
        opcode: instruction.opcode.to_string(),
        shape: instruction.shape.to_string(),
        computation: computation.name.to_string(),
        op_name: origin.op_name.to_string(),
        stack,
        text: instruction_text(module, at),
        operand_count: operands.len(),
        operands: names(&operands),
        user_count: users.len(),
        users: names(&users),
        called: instruction
            .called
            .iter()
            .map(|called| module.computation(*called).name.to_string())
            .collect(),
        callers: names(flow.callers(instruction.computation)),
        flops: work.map(|work| work.flops),
        transcendentals: work.map(|work| work.transcendentals),
        bytes_accessed: work.map(|work| work.bytes),
        result_bytes: instruction.shape.bytes(),
        peak_bytes: timed.peak_bytes.get(&at).copied().unwrap_or(0),
        count: time.map(|time| time.count),
        self_ns: time.map(|time| Ns::from_ps(time.self_ps)),
        total_ns: time.map(|time| Ns::from_ps(time.total_ps)),
        share: time
            .filter(|_| sum > 0)
            .map(|time| time.self_ps as f64 / sum as f64),
        event: time.map(|time| time.longest.0),
    }
}

#[derive(Serialize)]
struct FoundAnswer {
    module: String,
    total: usize,
    ops: Vec<FoundOp>,
}

#[derive(Serialize)]
struct FoundOp {
    name: String,
    opcode: String,
    shape: String,
    op_name: String,
    source: Option<String>,
}

/// `GET /runs/{run}/graph/search`
pub(in crate::routes) async fn search(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    let cache = Arc::clone(&state.op_times);
    about_run(&state, request, move |view, params, cancel| {
        let timed = TimedProgram::new(&cache, view, params, cancel)?;
        let text = params.required("q")?;
        let top = params.number("top", DEFAULT_FOUND, 1..=MAX_FOUND)?;
        let module = &timed.program.module;
        let found = search_module(module, text);
        let ops = found.iter().take(top).map(|at| {
            let instruction = module.instruction(*at);
            FoundOp {
                name: instruction.name.to_string(),
                opcode: instruction.opcode.to_string(),
                shape: instruction.shape.without_layout().to_string(),
                op_name: instruction.origin.op_name.to_string(),
                source: module.source(instruction).map(line),
            }
        });
        Ok(Json(FoundAnswer {
            module: timed.name.clone(),
            total: found.len(),
            ops: ops.collect(),
        }))
    })
    .await
}
