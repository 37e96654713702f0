//! Details of one operation for the Ops page: its steps and its contents.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use serde::Serialize;
use stepscope_analysis::ops::OpGrouping;
use stepscope_analysis::ops::available::available;
use stepscope_analysis::ops::inside::{Inside, inside as inside_of_trace};
use stepscope_analysis::ops::trend::{OpSelector, trend};
use stepscope_analysis::parallel::Cancel;

use crate::ns::Ns;
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::state::State;
use crate::view::RunView;

/// Default and maximum number of bars.
const DEFAULT_BARS: usize = 120;
const MAX_BARS: usize = 1_000;

#[derive(Serialize)]
struct StepsAnswer {
    by: &'static str,
    name: String,
    steps: u64,
    derived_from: Option<String>,
    bars: Vec<BarAnswer>,
}

/// One step, or several merged neighbours.
#[derive(Serialize)]
struct BarAnswer {
    from: i64,
    to: i64,
    steps: u64,
    start_ns: Ns,
    end_ns: Ns,
    count: u64,
    total_ns: Ns,
    self_ns: Ns,
}

#[derive(Serialize)]
struct KindsAnswer {
    by: Vec<&'static str>,
}

/// `GET /runs/{run}/ops/kinds`
pub(super) async fn kinds(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, |view, _, cancel| {
        let found = available(&view.run.trace, cancel)?;
        let mut by: Vec<&str> = found.classes.iter().map(|by| by.as_str()).collect();
        by.extend(found.shapes.then_some("shape"));
        by.extend(found.stacks.then_some("stack"));
        Ok(Json(KindsAnswer { by }))
    })
    .await
}

/// `GET /runs/{run}/ops/steps`
pub(super) async fn steps(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, steps_of).await
}

fn steps_of(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<StepsAnswer>, Problem> {
    let known = OpGrouping::ALL.map(|by| (by.as_str(), by));
    let by = params.choice("by", &known)?;
    let on_device = params.choice(
        "place",
        &[("any", None), ("host", Some(false)), ("device", Some(true))],
    )?;
    let selector = OpSelector {
        name: params.required("name")?.to_owned(),
        program: params.text("program").map(str::to_owned),
        on_device,
        shapes: params.text("shapes").map(str::to_owned),
    };
    let most = params.number("bars", DEFAULT_BARS, 1..=MAX_BARS)?;
    let found = trend(&view.run.trace, by, &selector, most, cancel)?;
    let clock = view.clock();
    Ok(Json(StepsAnswer {
        by: by.as_str(),
        name: selector.name,
        steps: found.steps,
        derived_from: found.derived,
        bars: found
            .bars
            .into_iter()
            .map(|bar| BarAnswer {
                from: bar.numbers.0,
                to: bar.numbers.1,
                steps: bar.steps,
                start_ns: clock.show(bar.range.start),
                end_ns: clock.show(bar.range.end),
                count: bar.count,
                total_ns: Ns::from_ps(bar.total_ps),
                self_ns: Ns::from_ps(bar.self_ps),
            })
            .collect(),
    }))
}

#[derive(Serialize)]
struct InsideAnswer {
    name: String,
    program: Option<String>,
    computation: Option<String>,
    total: u64,
    instructions: Vec<InstructionAnswer>,
    missing: Option<MissingAnswer>,
}

#[derive(Serialize)]
struct InstructionAnswer {
    name: String,
    category: String,
    shapes: String,
    op_name: String,
    source: String,
    holds: Option<u64>,
}

/// Why there is no data, and the line of code that records it, if one exists.
#[derive(Serialize)]
struct MissingAnswer {
    reason: &'static str,
    fix: &'static str,
}

/// `GET /runs/{run}/ops/inside`
pub(super) async fn inside(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, instructions_of).await
}

fn instructions_of(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<InsideAnswer>, Problem> {
    let mut answer = InsideAnswer {
        name: params.required("name")?.to_owned(),
        program: params.text("program").map(str::to_owned),
        computation: None,
        total: 0,
        instructions: Vec::new(),
        missing: None,
    };
    let trace = &view.run.trace;
    let program = answer.program.as_deref();
    let missing = |reason, fix| Some(MissingAnswer { reason, fix });
    match inside_of_trace(trace, program, &answer.name, cancel)? {
        Inside::Instructions {
            computation,
            list,
            total,
        } => {
            answer.computation = Some(computation);
            answer.total = total;
            answer.instructions = list
                .into_iter()
                .map(|instruction| InstructionAnswer {
                    name: instruction.name,
                    category: instruction.category,
                    shapes: instruction.shape,
                    op_name: instruction.op_name,
                    source: instruction.source,
                    holds: instruction.holds,
                })
                .collect();
        }
        Inside::Nothing => answer.missing = missing("it is one instruction and runs no others", ""),
        Inside::Unknown => {
            answer.missing = missing("no compiled program in the run has this instruction", "");
        }
        Inside::NoPrograms => {
            answer.missing = missing(
                "the run holds no compiled program: only .xplane.pb files do",
                "jax.profiler.start_trace(dir)  # with ProfileOptions.enable_hlo_proto = True; open its .xplane.pb",
            );
        }
    }
    Ok(Json(answer))
}
