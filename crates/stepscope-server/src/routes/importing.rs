//! Adding runs: from the watched directories, from an upload, or the built-in example.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use stepscope_engine::EngineError;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;

use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest};
use crate::state::State;
use crate::{body, guard};

/// Name and bytes of the example recording, if it existed when this crate was compiled.
pub(super) const EXAMPLE: Option<(&str, &[u8])> = include!(concat!(env!("OUT_DIR"), "/example.rs"));

/// Maximum number of upload chunks that wait for the disk.
const CHUNKS: usize = 4;

#[derive(Serialize)]
struct Added {
    id: String,
    ids: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ImportBody {
    path: Option<String>,
    example: bool,
}

/// `POST /runs/import`
pub(super) async fn import(
    Shared(state): Shared<Arc<State>>,
    params: Params,
    request: Request,
) -> Response {
    match add(&state, &params, request).await {
        Ok(ids) => {
            let id = ids.first().cloned().unwrap_or_default();
            // The import starts now, so a later request finds it in progress.
            let _ = state.runs.start(&id);
            Json(Added { id, ids }).uncached(StatusCode::ACCEPTED)
        }
        Err(problem) => problem.into_response(),
    }
}

/// `POST /runs/{run}/cancel`
pub(super) async fn cancel(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
    headers: header::HeaderMap,
) -> Response {
    if let Err(problem) = guard::check_write(&state, &headers) {
        return problem.into_response();
    }
    if state.engine().summary(&request.id).is_none() {
        return Problem::no_such_run().into_response();
    }
    state.engine().cancel(&request.id);
    StatusCode::NO_CONTENT.into_response()
}

async fn add(
    state: &Arc<State>,
    params: &Params,
    request: Request,
) -> Result<Vec<String>, Problem> {
    guard::check_write(state, request.headers())?;
    let is_json = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    // An uploaded JSON trace has a `name`; a JSON request for a path has none.
    if !is_json || params.text("name").is_some() {
        let name = params.text("name").unwrap_or("upload").to_owned();
        return upload(state, name, request.into_body()).await;
    }
    let body = body::read_whole(request.into_body(), state.options.body_timeout).await?;
    let wanted: ImportBody = serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request("body", error.to_string()))?;
    match wanted {
        ImportBody { example: true, .. } => example(state).await,
        ImportBody {
            path: Some(path), ..
        } => {
            let state = Arc::clone(state);
            blocking(move || add_path(&state, &path)).await
        }
        ImportBody { .. } => Err(Problem::bad_request(
            "body",
            "the body has a path, or example, or the request a name and a file",
        )),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Problem::internal("the import broke off")))
}

async fn example(state: &Arc<State>) -> Result<Vec<String>, Problem> {
    let (name, bytes) = EXAMPLE.ok_or_else(|| Problem::coming("the example recording"))?;
    let state = Arc::clone(state);
    blocking(move || {
        let mut added = state
            .example
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(id) = added.as_ref()
            && state.engine().summary(id).is_some()
        {
            return Ok(vec![id.clone()]);
        }
        let id = state
            .engine()
            .import_upload(name, &mut &*bytes)
            .map_err(|error| Problem::not_added(&error))?;
        *added = Some(id.clone());
        Ok(vec![id])
    })
    .await
}

fn add_path(state: &State, path: &str) -> Result<Vec<String>, Problem> {
    let engine = state.engine();
    let path = inside(&engine.options().paths, path).ok_or_else(Problem::no_such_path)?;
    match engine.add_path(&path) {
        Ok(ids) if !ids.is_empty() => Ok(ids),
        Ok(_) | Err(EngineError::NoSuchPath(_)) => Err(Problem::no_such_path()),
        Err(error) => Err(Problem::not_added(&error)),
    }
}

/// Returns the canonical path if it lies in one of the allowed directories or is one of the allowed
/// files. Links that lead outside of them are rejected.
fn inside(allowed: &[PathBuf], path: &str) -> Option<PathBuf> {
    if path.contains('\0') {
        return None;
    }
    let path = Path::new(path);
    let real_roots: Vec<PathBuf> = allowed
        .iter()
        .filter_map(|root| root.canonicalize().ok())
        .collect();
    let candidates: Vec<PathBuf> = if path.is_absolute() {
        vec![path.to_owned()]
    } else {
        real_roots.iter().map(|root| root.join(path)).collect()
    };
    candidates
        .iter()
        .filter_map(|candidate| candidate.canonicalize().ok())
        .find(|real| real_roots.iter().any(|root| real.starts_with(root)))
}

async fn upload(state: &Arc<State>, name: String, body: Body) -> Result<Vec<String>, Problem> {
    let limit = state.options.max_upload_bytes;
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let engine = Arc::clone(state.runs.engine());
    let importing = tokio::task::spawn_blocking(move || {
        let mut body = ChannelReader {
            receiver,
            current: Bytes::new(),
            ended: false,
        };
        engine.import_upload(&name, &mut body)
    });
    let fed = feed(body, &sender, limit, state.options.body_timeout).await;
    if fed.is_err() {
        // A truncated file must not pass for a complete one.
        let _ = sender.send(Chunk::Broken).await;
    } else {
        let _ = sender.send(Chunk::End).await;
    }
    drop(sender);
    let imported = importing.await;
    fed?;
    match imported {
        Ok(Ok(id)) => Ok(vec![id]),
        Ok(Err(error)) => Err(Problem::not_added(&error)),
        Err(_) => Err(Problem::internal("the import broke off")),
    }
}

/// A chunk of an upload, sent to the thread that writes it.
enum Chunk {
    Bytes(Bytes),
    End,
    Broken,
}

async fn feed(
    body: Body,
    sender: &mpsc::Sender<Chunk>,
    limit: u64,
    stall: Duration,
) -> Result<(), Problem> {
    let mut stream = body.into_data_stream();
    let mut left = limit;
    loop {
        let next = tokio::time::timeout(stall, stream.next()).await;
        match next {
            Err(_) => return Err(Problem::too_slow()),
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => {
                return Err(Problem::bad_request("body", error.to_string()));
            }
            Ok(Some(Ok(bytes))) => {
                left = left
                    .checked_sub(bytes.len() as u64)
                    .ok_or_else(|| Problem::too_large(limit))?;
                if sender.send(Chunk::Bytes(bytes)).await.is_err() {
                    // The reader stopped; it reports its own error.
                    return Ok(());
                }
            }
        }
    }
}

/// A blocking reader of a body that arrives through a channel.
struct ChannelReader {
    receiver: mpsc::Receiver<Chunk>,
    current: Bytes,
    ended: bool,
}

impl Read for ChannelReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(Chunk::Bytes(bytes)) => self.current = bytes,
                Some(Chunk::End) => self.ended = true,
                // Also if the client disconnected: a truncated file must not pass for a complete
                // one.
                Some(Chunk::Broken) | None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the upload broke off",
                    ));
                }
            }
        }
        let count = self.current.len().min(out.len());
        out[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_directories_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, other) = (dir.path().join("logs"), dir.path().join("other"));
        std::fs::create_dir_all(logs.join("run")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(logs.join("run/a.json"), "{}").unwrap();
        std::fs::write(other.join("b.json"), "{}").unwrap();
        std::fs::write(dir.path().join("logs.json"), "{}").unwrap();
        std::os::unix::fs::symlink(&other, logs.join("out")).unwrap();
        let logs = logs.canonicalize().unwrap();
        let allowed = [logs.clone()];
        let file = logs.join("run/a.json");
        for (path, expected) in [
            ("run/a.json", Some(&file)),
            ("run/../run/a.json", Some(&file)),
            (file.to_str().unwrap(), Some(&file)),
            ("../other/b.json", None),
            ("out/b.json", None),
            ("../logs.json", None),
            ("/etc/passwd", None),
            (other.join("b.json").to_str().unwrap(), None),
            ("run/a.json\0", None),
            ("missing", None),
        ] {
            assert_eq!(inside(&allowed, path).as_ref(), expected, "{path:?}");
        }
    }
}
