//! The server and its runs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepscope_remote::writable_log_dir;

use crate::params::{MAX_BINS, MAX_TRACKS, Params};
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::routes::{importing, notes, stats};
use crate::state::State;
use crate::wire::run::RunDetail;
use crate::wire::run_list::{NotReadable, Page, RunRow};

/// Maximum time that a response waits for an import, seconds.
const MAX_WAIT_S: f64 = 60.0;

#[derive(Serialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent facts, as they travel"
)]
struct Server {
    version: &'static str,
    api: u32,
    read_only: bool,
    capture: bool,
    capture_reason: Option<String>,
    token: String,
    viewer: bool,
    log_dirs: Vec<String>,
    example: bool,
    limits: Limits,
}

#[derive(Serialize)]
struct Limits {
    bins: u32,
    tracks: usize,
    search_hits: usize,
    aggregate_rows: usize,
    upload_bytes: u64,
    note_bytes: usize,
}

/// `GET /server`
pub(super) async fn server(Shared(state): Shared<Arc<State>>) -> Response {
    let paths = &state.engine().options().paths;
    let refused = if state.options.read_only {
        Some(Problem::read_only())
    } else {
        writable_log_dir(paths)
            .err()
            .map(|reasons| Problem::no_capture_directory(&reasons))
    };
    let server = Server {
        version: env!("CARGO_PKG_VERSION"),
        api: 1,
        read_only: state.options.read_only,
        capture: refused.is_none(),
        capture_reason: refused.map(|problem| problem.in_one_line()),
        token: state.session_token.clone(),
        viewer: state.viewer.is_built(),
        log_dirs: paths
            .iter()
            .filter(|path| path.is_dir())
            .map(|path| path.display().to_string())
            .collect(),
        example: importing::EXAMPLE.is_some(),
        limits: Limits {
            bins: MAX_BINS,
            tracks: MAX_TRACKS,
            search_hits: stats::MAX_HITS,
            aggregate_rows: stats::MAX_ROWS,
            upload_bytes: state.options.max_upload_bytes,
            note_bytes: notes::MAX_NOTE_BYTES,
        },
    };
    Json(server).uncached(StatusCode::OK)
}

#[derive(Serialize)]
struct Rows {
    runs: Vec<RunRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_readable: Option<NotReadable>,
}

/// Maximum number of file names in a list of unreadable files.
const NAMED: usize = 500;

/// `GET /runs`
pub(super) async fn list(Shared(state): Shared<Arc<State>>, params: Params) -> Response {
    match rows(&state, &params) {
        Ok(page) => Json(page).uncached(StatusCode::OK),
        Err(problem) => problem.into_response(),
    }
}

fn rows(state: &State, params: &Params) -> Result<Page<Rows>, Problem> {
    let all = state.engine().runs();
    let total = all.len();
    let from = params.number("cursor", 0, 0..=usize::MAX)?;
    let limit = params.number("limit", usize::MAX, 1..=usize::MAX)?;
    let runs: Vec<RunRow> = all
        .into_iter()
        .skip(from)
        .take(limit)
        .map(|summary| {
            if state.runs.is_opening(&summary.id) {
                let phase = state.runs.phase(&summary.id);
                RunRow::importing(summary, phase)
            } else {
                RunRow::new(summary)
            }
        })
        .collect();
    let next = from.saturating_add(runs.len());
    Ok(Page {
        total,
        cursor: (next < total).then(|| next.to_string()),
        list: Rows {
            runs,
            not_readable: NotReadable::new(&state.engine().not_readable(), NAMED),
        },
    })
}

/// `GET /runs/{run}`
pub(super) async fn run(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    match importing_row(&state, &request).await {
        Ok(Some(row)) => Json(row).uncached(StatusCode::ACCEPTED),
        Ok(None) => about_run(&state, request, |view, _, _| Ok(Json(RunDetail::new(view)))).await,
        Err(problem) => problem.into_response(),
    }
}

/// Returns the response while the run is being imported. `None` once it is open or cannot be
/// opened; opening it then returns the error.
async fn importing_row(
    state: &Arc<State>,
    request: &RunRequest,
) -> Result<Option<RunRow>, Problem> {
    let id = &request.id;
    if state.engine().opened(id).is_some() {
        return Ok(None);
    }
    let wait = request.params.number("wait", 0.0, 0.0..=MAX_WAIT_S)?;
    let mut outcome = state.runs.start(id)?;
    // Always waits briefly: small runs are open at the first request.
    let wait = Duration::from_secs_f64(wait).max(Duration::from_millis(20));
    let done = tokio::time::timeout(wait, outcome.wait_for(Option::is_some)).await;
    match done {
        Ok(Ok(result)) => match result.as_ref() {
            Some(Err(error)) => Err(state.runs.problem(id, error)),
            _ => Ok(None),
        },
        Ok(Err(_)) => Err(Problem::internal("the import of this run broke off")),
        Err(_) => {
            let summary = state
                .engine()
                .summary(id)
                .ok_or_else(Problem::no_such_run)?;
            Ok(Some(RunRow::importing(summary, state.runs.phase(id))))
        }
    }
}
