//! The comparison of two runs.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use stepscope_analysis::compare::result::{CompareOptions, Comparison, MatchBy, RowsBy};
use stepscope_analysis::compare::run::ComparedRun;
use stepscope_analysis::parallel::{self, Cancel};
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_analysis::steps::{parse_numbers, range_of};
use stepscope_engine::Run;
use stepscope_report::compare::ComparisonView;

use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, StopOnDrop};
use crate::routes::stats::MAX_ROWS;
use crate::side_cache::SideCache;
use crate::state::State;

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
    let _stop = StopOnDrop(Arc::clone(&cancel));
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
    let options = CompareOptions {
        by,
        match_by,
        tolerance: share("tolerance", 0.01, 0.0)?,
        confidence: share("confidence", 0.95, 0.5)?,
    };
    let scope = |run: &Run| {
        Ok::<_, Problem>(AnalysisScope {
            range: steps(run, params)?,
            ..AnalysisScope::default()
        })
    };
    let (of_base, of_new) = (scope(base)?, scope(new)?);
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
    let names = [base.name.clone(), new.name.clone()];
    let top = params.number("top", MAX_ROWS, 1..=MAX_ROWS)?;
    let view = ComparisonView::of_two(&comparison, names, options, top);
    Ok(Json(view).uncached(StatusCode::OK))
}

/// Returns the time range of the steps `N`, `N-M` or `N-`; `None` for `skip-warmup`.
fn steps(
    run: &Run,
    params: &Params,
) -> Result<Option<std::ops::Range<stepscope_model::Time>>, Problem> {
    let Some(text) = params.text("steps").filter(|text| *text != "skip-warmup") else {
        return Ok(None);
    };
    let wrong = || Problem::bad_request("steps", "steps is skip-warmup, N, N-M or N-".to_owned());
    let range = parse_numbers(text).ok_or_else(wrong)?;
    range_of(&run.trace, &range, false)
        .map(Some)
        .map_err(|error| Problem::bad_request("steps", error.to_string()))
}
