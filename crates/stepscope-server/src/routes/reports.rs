//! The reports by name.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use stepscope_engine::analysis::critical_path::WindowEnd;
use stepscope_engine::analysis::peaks::PeakOverrides;
use stepscope_engine::measured_peaks::PeakStore;
use stepscope_report::peak_options::{given_peaks, peak_flops};
use stepscope_report::peer_profiler::PeerProfiler;
use stepscope_report::report::Report;
use stepscope_report::reports::{KINDS, Options, PEAKS, ReportError};

use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::routes::stats::MAX_ROWS;
use crate::state::State;
use crate::view::RunView;

/// Default number of table rows.
const DEFAULT_ROWS: usize = 1_000;

#[derive(Serialize)]
struct KindsAnswer {
    kinds: Vec<KindAnswer>,
}

#[derive(Serialize)]
struct KindAnswer {
    name: &'static str,
    title: &'static str,
    question: &'static str,
    by: &'static [&'static str],
}

/// `GET /reports`
pub(super) async fn kinds() -> Response {
    let kinds = KINDS
        .iter()
        .map(|kind| KindAnswer {
            name: kind.name,
            title: kind.title,
            question: kind.question,
            by: kind.by,
        })
        .collect();
    Json(KindsAnswer { kinds }).uncached(StatusCode::OK)
}

/// `GET /runs/{run}/reports/{kind}`
pub(super) async fn report(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let kind = request.item.clone().unwrap_or_default();
    answer(&state, request, kind).await
}

/// `GET /runs/{run}/{kind}`, for the reports that have their own address.
pub(super) async fn named(
    kind: &'static str,
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    answer(&state, request, kind.to_owned()).await
}

async fn answer(state: &Arc<State>, request: RunRequest, kind: String) -> Response {
    about_run(state, request, move |view, params, cancel| {
        let options = options(view, params, &kind)?;
        match view.run.report(&kind, &options, cancel) {
            Ok(report) => Ok(Json(ReportAnswer(report))),
            Err(error) => Err(refused(&error)),
        }
    })
    .await
}

/// Returns the problem of a report that was not made, with the parameter that caused it.
fn refused(error: &ReportError) -> Problem {
    let problem = match error {
        ReportError::Cancelled => return stepscope_model::Cancelled.into(),
        ReportError::Damaged => return Problem::damaged_import(),
        ReportError::UnknownKind { .. } => Problem::no_such_report(error.cause()),
        ReportError::UnknownModule { .. } => Problem::bad_request("module", error.cause()),
        ReportError::UnknownOption { option, .. } => Problem::bad_request(option, error.cause()),
        ReportError::NoPeerFigures { .. } => Problem::bad_request("compat", error.cause()),
        ReportError::WhatIf { .. } => Problem::bad_request("what_if", error.cause()),
        ReportError::UnknownBy { .. } => Problem::bad_request("by", error.cause()),
    };
    problem.with_hint(error.help())
}

/// A cached report as a response.
struct ReportAnswer(Arc<Report>);

impl Serialize for ReportAnswer {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

fn options(view: &RunView, params: &Params, kind: &str) -> Result<Options, Problem> {
    let ranged = params.text("t0").is_some() || params.text("t1").is_some();
    Ok(Options {
        by: params.text("by").map(str::to_owned),
        top: params.number("top", DEFAULT_ROWS, 1..=MAX_ROWS)?,
        range: ranged.then(|| params.window(view)).transpose()?,
        module: params.text("module").map(str::to_owned),
        space: params.optional_number("space")?,
        position: params.optional_number("position")?,
        what_if: params.all_texts("what_if"),
        presets: params.all_texts("preset"),
        force: params.choice("force", &[("false", false), ("true", true)])?,
        until: params.choice("until", WindowEnd::WORDS)?,
        peaks: peaks(view, params, kind)?,
        compat: peer(params)?,
        marked_only: params.choice("steps", &[("any", false), ("marked", true)])?,
    })
}

/// Returns the profiler whose figures the report adds.
fn peer(params: &Params) -> Result<Option<PeerProfiler>, Problem> {
    let name = params.text("compat");
    let parsed = name.map(str::parse::<PeerProfiler>).transpose();
    parsed.map_err(|error| Problem::bad_request("compat", error.to_string()).advised())
}

/// Returns the peaks that the request gives, and those measured on the processor of the run.
fn peaks(view: &RunView, params: &Params, kind: &str) -> Result<PeakOverrides, Problem> {
    let flops = params.text("peak_flops");
    let given = given_peaks(flops, params.text("peak_bandwidth")).map_err(|error| {
        let option = if flops.is_some_and(|flops| peak_flops(flops).is_err()) {
            "peak_flops"
        } else {
            "peak_bandwidth"
        };
        Problem::bad_request(option, error.to_string())
    })?;
    let mut found = PeakOverrides {
        given,
        ..PeakOverrides::default()
    };
    if PEAKS.contains(&kind) {
        let is_asked = params.choice("peaks", &[("any", false), ("measured", true)])?;
        found.measured = PeakStore::user()
            .rates_for(&view.run.trace, is_asked)
            .map_err(|error| Problem::bad_request("peaks", error.to_string()))?;
    }
    Ok(found)
}
