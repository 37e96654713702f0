//! Notes on a run, stored in the user's data directory under the run's content hash.
//!
//! Log directories may be read-only and runs may be copied, so notes are bound to the content. A
//! file is replaced atomically (temporary file, fsync, rename): a crash leaves the old file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use stepscope_engine::{atomic_file, create_private_folder};

use crate::guard;
use crate::headers::{fingerprint, matches_etag};
use crate::ns::parse_ns;
use crate::problem::Problem;
use crate::reply::{Encode, Json, RunRequest};
use crate::state::State;
use crate::wire::stats::Notes;

/// Maximum size of all notes of one run, bytes.
pub(super) const MAX_NOTE_BYTES: usize = 1 << 20;
/// Maximum length of a note's id.
const MAX_ID_LEN: usize = 64;

/// `GET /runs/{run}/notes`
pub(super) async fn get(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let file = match file_of(&state, &request).await {
        Ok(file) => file,
        Err(problem) => return problem.into_response(),
    };
    let known = request.header(header::IF_NONE_MATCH).map(str::to_owned);
    in_background(move || {
        let response = answer(&read(&file)?)?;
        let etag = response.headers().get(header::ETAG);
        let etag = etag.and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        if known.is_some_and(|known| matches_etag(&known, etag)) {
            let headers = response.headers().clone();
            return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
        }
        Ok(response)
    })
    .await
}

/// `PUT /runs/{run}/notes`
pub(super) async fn put(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let checked = guard::check_write(&state, &headers).and_then(|()| {
        let too_large = || Problem::too_large(MAX_NOTE_BYTES as u64);
        let body = body.ok().ok_or_else(too_large)?;
        if body.len() > MAX_NOTE_BYTES {
            return Err(too_large());
        }
        parse(&body)
    });
    let notes = match checked {
        Ok(notes) => notes,
        Err(problem) => return problem.into_response(),
    };
    let file = match file_of(&state, &request).await {
        Ok(file) => file,
        Err(problem) => return problem.into_response(),
    };
    let if_match = request.header(header::IF_MATCH).map(str::to_owned);
    in_background(move || {
        let _one_writer = state.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(if_match) = if_match {
            let etag = etag(&Json(read(&file)?).encode()?);
            if !matches_etag(&if_match, &etag) {
                return Err(Problem::notes_changed());
            }
        }
        let bytes = Json(&notes).encode()?;
        write(&file, &bytes).map_err(|error| {
            Problem::internal(format!(
                "notes cannot be kept in {}: {error}",
                file.display()
            ))
        })?;
        answer(&notes)
    })
    .await
}

async fn in_background(
    work: impl FnOnce() -> Result<Response, Problem> + Send + 'static,
) -> Response {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => Problem::internal("the notes broke off").into_response(),
    }
}

/// Returns the file with the run's notes.
async fn file_of(state: &Arc<State>, request: &RunRequest) -> Result<PathBuf, Problem> {
    let run = state.runs.open(&request.id).await?;
    let hash = &run.content_hash;
    if hash.is_empty() || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::internal(
            "the run's content hash is not hexadecimal",
        ));
    }
    let data_dir = match &state.options.data_dir {
        Some(dir) => dir.clone(),
        None => state.engine().data_dir(),
    };
    Ok(data_dir.join("notes").join(format!("{hash}.json")))
}

fn parse(body: &[u8]) -> Result<Notes, Problem> {
    let notes: Notes = serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request("body", error.to_string()))?;
    let mut ids = std::collections::HashSet::new();
    for note in &notes.notes {
        if note.id.is_empty() || note.id.chars().count() > MAX_ID_LEN || !ids.insert(&note.id) {
            let detail = format!("ids of notes are unique, of 1 to {MAX_ID_LEN} characters");
            return Err(Problem::bad_request("notes.id", detail));
        }
        let times = (
            parse_ns(&note.t0.to_string()),
            parse_ns(&note.t1.to_string()),
        );
        if !matches!(times, (Some(t0), Some(t1)) if t0 <= t1) {
            let detail = "t0 and t1 are nanoseconds, t1 is not before t0";
            return Err(Problem::bad_request("notes.t0", detail));
        }
    }
    Ok(notes)
}

/// Reads the notes. A missing file means no notes. A damaged file is an error, so that it is never
/// overwritten silently.
fn read(file: &Path) -> Result<Notes, Problem> {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|opened| {
        opened
            .take(2 * MAX_NOTE_BYTES as u64)
            .read_to_end(&mut text)
    });
    match read {
        Ok(_) => serde_json::from_slice(&text)
            .map_err(|error| Problem::internal(format!("{} is damaged: {error}", file.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Notes::default()),
        Err(error) => Err(Problem::internal(format!(
            "notes cannot be read from {}: {error}",
            file.display()
        ))),
    }
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::NotFound)?;
    create_private_folder(folder)?;
    atomic_file::replace(file, |out| {
        out.write_all(bytes)?;
        out.as_file().sync_all()
    })?;
    // Makes the rename durable.
    File::open(folder)?.sync_all()
}

fn etag(bytes: &[u8]) -> String {
    format!("\"{:016x}\"", fingerprint(bytes))
}

fn answer(notes: &Notes) -> Result<Response, Problem> {
    let body = Json(notes).encode()?;
    let etag = HeaderValue::from_str(&etag(&body));
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(etag) = etag {
        headers.insert(header::ETAG, etag);
    }
    Ok(response)
}
