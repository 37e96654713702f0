//! The comparison of two runs.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use stepscope_analysis::compare::result::{
    CompareOptions, Comparison, DEFAULT_CONFIDENCE, DEFAULT_TOLERANCE, MatchBy, Rename, RowsBy,
};
use stepscope_analysis::compare::run::ComparedRun;
use stepscope_analysis::parallel::{self, Cancel};
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_analysis::steps::parse_numbers;
use stepscope_engine::Run;
use stepscope_report::compare::ComparisonView;
use stepscope_report::step_selection::no_such_steps;

use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{CancelOnDrop, Json};
use crate::routes::stats::MAX_ROWS;
use crate::side_cache::SideCache;
use crate::state::State;

/// All steps but those of warm-up.
const SKIP_WARMUP: &str = "skip-warmup";

/// `GET /compare?base=RUN&new=RUN`
pub(super) async fn compare(Shared(state): Shared<Arc<State>>, params: Params) -> Response {
    match answer(&state, params).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn answer(state: &Arc<State>, params: Params) -> Result<Response, Problem> {
    let base = state.runs.open(params.required("base")?).await?;
    let new = state.runs.open(params.required("new")?).await?;
    let cancel = Arc::new(Cancel::default());
    let _stop = CancelOnDrop(Arc::clone(&cancel));
    let permit = Arc::clone(&state.permits).acquire_owned().await;
    let sides = Arc::clone(&state.sides);
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        compute(&sides, [&base, &new], &params, &cancel)
    });
    work.await
        .map_err(|error| Problem::internal(error.to_string()))?
}

fn compute(
    sides: &SideCache,
    [base, new]: [&Arc<Run>; 2],
    params: &Params,
    cancel: &Cancel,
) -> Result<Response, Problem> {
    let by = params.choice("by", &RowsBy::ALL.map(|by| (by.as_str(), by)))?;
    let match_by = params.choice("match", &MatchBy::ALL.map(|by| (by.as_str(), by)))?;
    let share = |name: &str, default: f64, low: f64| match params.text(name) {
        None => Ok(default),
        Some(text) => text
            .parse::<f64>()
            .ok()
            .filter(|value| (low..1.0).contains(value))
            .ok_or_else(|| {
                Problem::bad_request(name, format!("{name} is a number from {low} to below 1"))
            }),
    };
    let renames = params.all_texts("rename").into_iter().map(|text| {
        Rename::parse(&text).ok_or_else(|| {
            Problem::bad_request(
                "rename",
                format!("'{text}' is not BASE=NEW; a * in NEW needs one * in BASE, for whose text it stands"),
            )
        })
    });
    let renames = renames.collect::<Result<Vec<Rename>, Problem>>()?;
    let options = CompareOptions {
        by,
        match_by,
        renames,
        tolerance: share("tolerance", DEFAULT_TOLERANCE, 0.0)?,
        confidence: share("confidence", DEFAULT_CONFIDENCE, 0.5)?,
    };
    let of_base = scope(base, params, ["base_steps", "base_rank"])?;
    let of_new = scope(new, params, ["new_steps", "new_rank"])?;
    let detail = options.detail();
    let read_base = || sides.side(base, of_base, detail, cancel);
    let read_new = || sides.side(new, of_new, detail, cancel);
    let (from, to) = if Arc::ptr_eq(base, new) {
        (read_base()?, read_new()?)
    } else {
        parallel::both(read_base, read_new)?
    };
    if base.trace.is_damaged() || new.trace.is_damaged() {
        return Err(Problem::damaged_import());
    }
    let side = std::slice::from_ref::<ComparedRun>;
    let comparison = Comparison::new(side(&from), side(&to), &options);
    let names = names([base, new], params);
    let top = params.number("top", MAX_ROWS, 1..=MAX_ROWS)?;
    let view = ComparisonView::of_two(&comparison, names, &options, top);
    Ok(Json(view).uncached(StatusCode::OK))
}

/// Returns the names of the sides: those of the runs, and of one run with what is compared of it.
fn names(runs: [&Arc<Run>; 2], params: &Params) -> [String; 2] {
    let names = runs.map(|run| run.name.clone());
    let limits = [("base_steps", "base_rank"), ("new_steps", "new_rank")].map(|(steps, rank)| {
        let steps = params.text(steps).map(|steps| format!("steps {steps}"));
        let rank = params.text(rank).map(|rank| format!("rank {rank}"));
        [rank, steps]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    });
    if names[0] != names[1] || limits[0] == limits[1] {
        return names;
    }
    std::array::from_fn(|side| match limits[side].as_str() {
        "" => names[side].clone(),
        limit => format!("{}: {limit}", names[side]),
    })
}

/// Returns the scope of a side: its own steps, else those of both sides, `N`, `N-M`, `N-` or `skip-warmup`, and its rank.
fn scope(
    run: &Run,
    params: &Params,
    [own_steps, own_rank]: [&str; 2],
) -> Result<AnalysisScope, Problem> {
    let rank = params.text(own_rank).map(|text| {
        let mut ranks = run.trace.files().iter().map(|file| file.spec.rank);
        let rank = text.parse().ok();
        rank.filter(|_| ranks.any(|known| known == rank))
            .ok_or_else(|| {
                Problem::bad_request(own_rank, format!("{own_rank} is a rank of the run"))
            })
    });
    let of_both = || Some(("steps", params.text("steps")?));
    let own = params.text(own_steps).map(|text| (own_steps, text));
    let (name, text) = own.or_else(of_both).unwrap_or(("steps", SKIP_WARMUP));
    let wrong = || Problem::bad_request(name, format!("{name} is {SKIP_WARMUP}, N, N-M or N-"));
    let numbers = match text {
        SKIP_WARMUP => None,
        text => Some(parse_numbers(text).ok_or_else(wrong)?),
    };
    AnalysisScope::of_steps(&run.trace, numbers, rank.transpose()?)
        .map_err(|error| Problem::bad_request(name, no_such_steps(&error)))
}
