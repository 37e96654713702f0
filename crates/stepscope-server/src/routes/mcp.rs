//! The assistants' protocol: `POST /mcp`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stepscope_mcp::{HttpHeaders, Stop, StopCallOnDrop};

use crate::problem::Problem;
use crate::state::State;

/// Answers one message. When the client closes the connection, the work stops.
pub(super) async fn post(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        return Problem::too_large(crate::body::MAX_BODY_BYTES as u64).into_response();
    };
    let kind = headers.get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let Some(server) = state.mcp.clone() else {
        return Problem::no_such_route().into_response();
    };
    let stop = Arc::new(Stop::default());
    let _stop = StopCallOnDrop::new(&stop);
    let permit = Arc::clone(&state.permits).acquire_owned().await;
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let given = HttpHeaders {
            protocol_version: text("mcp-protocol-version"),
            method: text("mcp-method"),
            name: text("mcp-name"),
        };
        server.post(&body, &given, &stop)
    });
    let answer = match work.await {
        Ok(answer) => answer,
        Err(error) => return Problem::internal(error.to_string()).into_response(),
    };
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let Some(body) = answer.body else {
        return status.into_response();
    };
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, body).into_response()
}
