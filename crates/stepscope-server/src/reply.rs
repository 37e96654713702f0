//! Responses about a run: opens the run, runs the query, encodes, caches and cancels.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepscope_analysis::parallel::Cancel;
use stepscope_model::Cancelled;

use crate::headers::{accepts, matches_etag};
use crate::params::Params;
use crate::problem::Problem;
use crate::state::State;
use crate::view::RunView;
use crate::wire::columns::{self, Columns};

/// Smallest compressed response, bytes.
const COMPRESS_FROM_BYTES: usize = 1_400;

/// A response body.
pub(crate) trait Encode {
    /// Its media type.
    const MEDIA_TYPE: &'static str;

    /// Returns its bytes.
    fn encode(&self) -> Result<Vec<u8>, Problem>;
}

/// A body that is encoded as JSON.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> Encode for Json<T> {
    const MEDIA_TYPE: &'static str = "application/json";

    fn encode(&self) -> Result<Vec<u8>, Problem> {
        serde_json::to_vec(&self.0).map_err(|error| Problem::internal(error.to_string()))
    }
}

impl<T: Serialize> Json<T> {
    /// Returns a response that clients must not cache.
    pub(crate) fn uncached(&self, status: StatusCode) -> Response {
        match self.encode() {
            Ok(body) => {
                let mut response = (status, body).into_response();
                let headers = response.headers_mut();
                headers.insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static(Self::MEDIA_TYPE),
                );
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(problem) => problem.into_response(),
        }
    }
}

impl Encode for Columns {
    const MEDIA_TYPE: &'static str = columns::MEDIA_TYPE;

    fn encode(&self) -> Result<Vec<u8>, Problem> {
        Ok(Self::encode(self))
    }
}

/// A request about one run.
#[derive(Clone, Debug)]
pub(crate) struct RunRequest {
    /// The run's id, not yet validated.
    pub(crate) id: String,
    /// The last part of the path (`{event}`), if the route has one.
    pub(crate) item: Option<String>,
    /// The query.
    pub(crate) params: Params,
    method: Method,
    headers: HeaderMap,
}

impl RunRequest {
    /// Returns the text of a header.
    pub(crate) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Parses the event id in the path.
    pub(crate) fn event(&self) -> Result<stepscope_store::EventId, Problem> {
        let text = self.item.as_deref().unwrap_or_default();
        text.parse()
            .ok()
            .map(stepscope_store::EventId)
            .ok_or_else(|| Problem::no_such_event("id"))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RunRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // A path that cannot be decoded names no existing run.
        let path = RawPathParams::from_request_parts(parts, state)
            .await
            .ok()
            .ok_or_else(Problem::no_such_run)?;
        let part = |name: &str| {
            path.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.to_owned())
        };
        Ok(Self {
            id: part("run").unwrap_or_default(),
            item: part("item"),
            params: Params::from_request_parts(parts, state).await?,
            method: parts.method.clone(),
            headers: parts.headers.clone(),
        })
    }
}

/// Cancels the work when the request is dropped because the connection closed.
pub(crate) struct CancelOnDrop(pub(crate) Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Opens the run, runs `query` on a blocking thread, and returns its response.
pub(crate) async fn about_run<A, Q>(state: &Arc<State>, request: RunRequest, query: Q) -> Response
where
    A: Encode,
    Q: FnOnce(&RunView, &Params, &Cancel) -> Result<A, Problem> + Send + 'static,
{
    match try_about_run(state, request, query).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn try_about_run<A, Q>(
    state: &Arc<State>,
    request: RunRequest,
    query: Q,
) -> Result<Response, Problem>
where
    A: Encode,
    Q: FnOnce(&RunView, &Params, &Cancel) -> Result<A, Problem> + Send + 'static,
{
    let began = Instant::now();
    let run = state.runs.open(&request.id).await?;
    let cancel = Arc::new(Cancel::default());
    let _stop = CancelOnDrop(Arc::clone(&cancel));
    let permits = Arc::clone(&state.permits);
    let permit = permits.acquire_owned().await;
    let state = Arc::clone(state);
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let view = state.runs.view(run);
        let parsed = began.elapsed();
        let caching = Caching::new(&view, &request)?;
        if caching.not_modified {
            return Ok(caching.apply(StatusCode::NOT_MODIFIED.into_response()));
        }
        let answer = query(&view, &request.params, &cancel)?;
        let queried = began.elapsed();
        let body = answer.encode()?;
        if view.run.trace.is_damaged() {
            return Err(Problem::damaged_import());
        }
        let accepts_gzip = request
            .header(header::ACCEPT_ENCODING)
            .is_some_and(|accepted| accepts(accepted, "gzip"));
        let compress = state.compress() && accepts_gzip && body.len() >= COMPRESS_FROM_BYTES;
        let body = if compress { gzip(&body)? } else { body };
        let encoded = began.elapsed();
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let timing = format!(
            "parse;dur={:.3}, query;dur={:.3}, encode;dur={:.3}",
            ms(parsed),
            ms(queried) - ms(parsed),
            ms(encoded) - ms(queried),
        );
        let mut response = Body::from(body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(A::MEDIA_TYPE),
        );
        if state.compress() {
            headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        }
        if compress {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        if let Ok(timing) = HeaderValue::from_str(&timing) {
            headers.insert("server-timing", timing);
        }
        Ok(caching.apply(response))
    });
    match work.await {
        Ok(result) => result,
        Err(_) => Err(Problem::internal("the query broke off")),
    }
}

/// Cache validators of the request and cache headers of the response.
struct Caching {
    etag: String,
    immutable: bool,
    not_modified: bool,
}

impl Caching {
    fn new(view: &RunView, request: &RunRequest) -> Result<Self, Problem> {
        let immutable = match request.params.text("v") {
            Some(v) if v == view.tag() => true,
            Some(_) => return Err(Problem::run_changed()),
            None => false,
        };
        let etag = format!("W/\"{}\"", view.tag());
        let not_modified = request.method == Method::GET
            && request
                .header(header::IF_NONE_MATCH)
                .is_some_and(|known| matches_etag(known, &etag));
        Ok(Self {
            etag,
            immutable,
            not_modified,
        })
    }

    fn apply(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(header::ETAG, etag);
        }
        let keep = if self.immutable {
            "private, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
        response
    }
}

fn gzip(body: &[u8]) -> Result<Vec<u8>, Problem> {
    let failed = |error: std::io::Error| Problem::internal(error.to_string());
    let out = Vec::with_capacity(body.len() / 3);
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
    encoder.write_all(body).map_err(failed)?;
    encoder.finish().map_err(failed)
}

impl From<Cancelled> for Problem {
    fn from(_: Cancelled) -> Self {
        // Not received: the connection is closed.
        Self::internal("the request was cancelled")
    }
}
