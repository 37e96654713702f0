//! Capturing from running programs.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepscope_remote::writable_log_dir;

use crate::capture::{Capture, address, params};
use crate::guard;
use crate::live::LiveEvent;
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::Json;
use crate::state::State;
use crate::wire::capture::CaptureRow;

/// Maximum time that a response waits for the end of a capture, seconds.
const MAX_WAIT_S: f64 = 60.0;

#[derive(Serialize)]
struct Started<'a> {
    id: &'a str,
}

/// `POST /capture`
pub(super) async fn start(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match begin(&state, &headers, body).await {
        Ok(capture) => Json(Started { id: &capture.id }).uncached(StatusCode::ACCEPTED),
        Err(problem) => problem.into_response(),
    }
}

async fn begin(
    state: &Arc<State>,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Arc<Capture>, Problem> {
    guard::check_write(state, headers)?;
    let too_large = || Problem::too_large(crate::body::MAX_BODY_BYTES as u64);
    let wanted = params::parse(&body.ok().ok_or_else(too_large)?)?;
    let mut request = wanted.request;
    request.log_dir = writable_log_dir(&state.engine().options().paths)
        .map_err(|reasons| Problem::no_capture_directory(&reasons))?;
    // Checked before name lookups, so that a rejected client does not wait.
    if let Some(running) = state.captures.running() {
        return Err(running.in_the_way());
    }
    let targets = address::find(&wanted.urls, &state.captures.allowed).await?;
    let listeners = state.events.clone();
    let changed = move |capture: &Capture| {
        // An error only means that there are no listeners.
        let _ = listeners.send(LiveEvent::from_capture(capture));
    };
    let captures = &state.captures;
    captures.start(&targets, wanted.duration, request, &state.runs, changed)
}

/// `GET /capture/{id}`
pub(super) async fn get(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    params: Params,
) -> Response {
    let asked = capture(&state, &id).and_then(|capture| {
        let wait = params.number("wait", 0.0, 0.0..=MAX_WAIT_S)?;
        Ok((capture, Duration::from_secs_f64(wait)))
    });
    match asked {
        Ok((capture, wait)) => {
            capture.wait(wait).await;
            Json(CaptureRow::new(&capture)).uncached(StatusCode::OK)
        }
        Err(problem) => problem.into_response(),
    }
}

/// `DELETE /capture/{id}`
pub(super) async fn stop(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = guard::check_write(&state, &headers).and_then(|()| capture(&state, &id));
    match found {
        Ok(capture) => {
            capture.stop();
            Json(CaptureRow::new(&capture)).uncached(StatusCode::OK)
        }
        Err(problem) => problem.into_response(),
    }
}

fn capture(state: &State, id: &str) -> Result<Arc<Capture>, Problem> {
    let found = state.captures.get(id);
    found.ok_or_else(Problem::no_such_capture)
}
