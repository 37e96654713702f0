//! SQL over runs. Another program answers: [`SqlEngines`](crate::sql_engines::SqlEngines).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use stepscope_engine::{EngineError, SqlEngine, SqlQuery, SqlRun};

use crate::problem::Problem;
use crate::state::State;

/// Maximum number of runs of one query.
const MAX_RUNS: usize = 100;
/// Default and maximum number of rows.
const DEFAULT_ROWS: usize = 10_000;
const MAX_ROWS: usize = 1_000_000;
/// Default and maximum time, milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 60_000;
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Size after which an answer has no further rows, bytes.
const ANSWER_BYTES: u64 = 64 << 20;
/// Largest answer, bytes: the last rows may exceed [`ANSWER_BYTES`].
const MAX_ANSWER_BYTES: usize = 128 << 20;

/// The body of `POST /sql`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBody {
    runs: Vec<String>,
    sql: String,
    #[serde(default)]
    format: AnswerFormat,
    rows: Option<usize>,
    timeout_ms: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnswerFormat {
    #[default]
    Json,
    Csv,
    Arrow,
}

impl AnswerFormat {
    /// The name of the format in the SQL engine.
    const fn name(self) -> &'static str {
        match self {
            Self::Json => "http-json",
            Self::Csv => "csv",
            Self::Arrow => "arrow",
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// `POST /sql`
pub(super) async fn query(
    Shared(state): Shared<Arc<State>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match try_query(&state, &headers, body).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn try_query(
    state: &Arc<State>,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let Ok(body) = body else {
        return Err(Problem::too_large(crate::body::MAX_BODY_BYTES as u64));
    };
    // A page of another site cannot send this content type without a CORS preflight.
    let kind = headers.get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
        let detail = "the body is application/json";
        return Err(Problem::bad_request("Content-Type", detail));
    }
    let body: SqlBody = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request("body", error.to_string()))?;
    let within = |name: &str, value: u64, most: u64| {
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        let detail = format!("{name} is a number from 1 to {most}");
        Err(Problem::bad_request(name, detail))
    };
    let rows = body.rows.unwrap_or(DEFAULT_ROWS);
    within("rows", rows as u64, MAX_ROWS as u64)?;
    let timeout_ms = body.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    let timeout = Duration::from_millis(within("timeout_ms", timeout_ms, MAX_TIMEOUT_MS)?);
    if body.runs.is_empty() || body.runs.len() > MAX_RUNS {
        let detail = format!("runs has one to {MAX_RUNS} ids");
        return Err(Problem::bad_request("runs", detail));
    }
    let named = |at: usize| body.runs.iter().take(at).any(|id| *id == body.runs[at]);
    if let Some(twice) = (0..body.runs.len()).find(|&at| named(at)) {
        let detail = format!("runs has {} twice", body.runs[twice]);
        return Err(Problem::bad_request("runs", detail));
    }
    if !body.runs.iter().all(|id| state.engine().has_run(id)) {
        return Err(Problem::no_such_run());
    }
    let runs = Arc::clone(state.runs.engine());
    let use_cache = state.engine().options().use_cache;

    let began = Instant::now();
    let format = body.format;
    let answer = state.sql.with_engine(move |engine| {
        // A run in an object store is fetched, which takes time: only for queries that have their turn.
        let runs = body.runs.iter().map(|id| runs.sql_run(id, id));
        let runs: Vec<SqlRun> = match runs.collect::<Result<_, EngineError>>() {
            Ok(runs) => runs,
            Err(EngineError::NoSuchRun(_)) => return Ok(Err(Problem::no_such_run())),
            Err(error) => return Ok(Err(Problem::unreadable(&error))),
        };
        let query = SqlQuery {
            runs: &runs,
            sql: &body.sql,
            format: format.name(),
            rows,
            bytes: ANSWER_BYTES,
            timeout,
            width: None,
            use_cache,
            cluster: None,
        };
        let (bytes, answer) = engine.collect(&query, MAX_ANSWER_BYTES)?;
        Ok(Ok((bytes, answer.truncated)))
    });
    let (bytes, truncated) = answer.await??;
    let mut response = uncached(bytes, format.media_type());
    let truncated = if truncated { "true" } else { "false" };
    let headers = response.headers_mut();
    headers.insert("x-stepscope-truncated", HeaderValue::from_static(truncated));
    let timing = format!("query;dur={:.3}", began.elapsed().as_secs_f64() * 1e3);
    if let Ok(timing) = HeaderValue::from_str(&timing) {
        headers.insert("server-timing", timing);
    }
    Ok(response)
}

/// `GET /sql/schema`
pub(super) async fn schema(Shared(state): Shared<Arc<State>>) -> Response {
    match state.sql.with_engine(SqlEngine::schema).await {
        Ok(schema) => uncached(schema, AnswerFormat::Json.media_type()),
        Err(problem) => problem.into_response(),
    }
}

fn uncached(body: Vec<u8>, media_type: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, body).into_response()
}
