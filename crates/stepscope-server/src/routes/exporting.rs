//! A run, or a range of it, as a file.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::reply::RunRequest;
use crate::state::State;

/// `GET /runs/{run}/export`
pub(super) async fn export(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    if state.engine().summary(&request.id).is_none() {
        return Problem::no_such_run().into_response();
    }
    Problem::coming("exporting").into_response()
}
