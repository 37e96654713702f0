//! Size and time limits of request bodies, applied before a route handles them.
//!
//! A client that announces a larger body is rejected immediately; a client that stops sending gets
//! a 408. Uploads stream to disk and apply both limits themselves.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State as Shared};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio_stream::StreamExt;

use crate::problem::Problem;
use crate::state::State;

/// Largest body of a request other than an upload, bytes.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
/// The route whose bodies are streamed.
const UPLOADS: &str = "/api/v1/runs/import";

/// Reads the request body, except for an upload, and forwards the request with the body.
pub(crate) async fn receive(
    Shared(state): Shared<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    let streams = request.uri().path() == UPLOADS;
    let limit = if streams {
        state.options.max_upload_bytes
    } else {
        MAX_BODY_BYTES as u64
    };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Problem::too_large(limit).into_response();
    }
    if streams || request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    match read_whole(body, state.options.body_timeout).await {
        Ok(bytes) => next.run(Request::from_parts(parts, bytes.into())).await,
        Err(problem) => problem.into_response(),
    }
}

/// Reads a body of at most [`MAX_BODY_BYTES`], which must arrive `within` this time.
pub(crate) async fn read_whole(body: Body, within: Duration) -> Result<Bytes, Problem> {
    let reading = async {
        let mut whole = Vec::new();
        let mut stream = body.into_data_stream();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| Problem::bad_request("body", error.to_string()))?;
            if whole.len() + part.len() > MAX_BODY_BYTES {
                return Err(Problem::too_large(MAX_BODY_BYTES as u64));
            }
            whole.extend_from_slice(&part);
        }
        Ok(Bytes::from(whole))
    };
    match tokio::time::timeout(within, reading).await {
        Ok(read) => read,
        Err(_) => Err(Problem::too_slow()),
    }
}
