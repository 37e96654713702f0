//! A server over a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::Value;
use stepscope_engine::{Engine, EngineOptions};
use stepscope_server::wire::columns::{Decoded, decode};
use stepscope_server::{Viewer, ViewerOptions, app};
use tempfile::TempDir;
use tower::ServiceExt;

/// When the files of these folders were written: 2026-11-20T14:02:11Z.
const WRITTEN_UNIX_S: u64 = 1_795_183_331;

pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) engine: Arc<Engine>,
    pub(crate) app: Router,
}

/// An answer, whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {} {}", self.status, self.text()))
    }

    pub(crate) fn columns(&self) -> Decoded {
        assert_eq!(
            self.header("content-type"),
            "application/vnd.stepscope.columns",
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        decode(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// `urn:stepscope:CODE` of a problem.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let json = self.json();
        for field in ["type", "title", "status", "detail", "hint", "where"] {
            assert!(json.get(field).is_some(), "{field} is missing in {json}");
        }
        assert_eq!(json["status"], self.status.as_u16());
        let code = json["type"].as_str().unwrap();
        code.strip_prefix("urn:stepscope:").unwrap().to_owned()
    }
}

impl Site {
    /// A server over files with these names and texts.
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(files, |_| {}, Viewer::embedded())
    }

    pub(crate) fn with(
        files: &[(&str, &[u8])],
        change: impl FnOnce(&mut ViewerOptions),
        viewer: Viewer,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        for (name, text) in files {
            put(&logs.join(name), text);
        }
        Self::over(folder, logs, change, viewer)
    }

    /// A server over a single file and no directory.
    pub(crate) fn over_file(name: &str, text: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        put(&file, text);
        Self::over(folder, file, |_| {}, Viewer::embedded())
    }

    fn over(
        folder: TempDir,
        path: PathBuf,
        change: impl FnOnce(&mut ViewerOptions),
        viewer: Viewer,
    ) -> Self {
        let mut options = EngineOptions::new(vec![path]);
        options.cache_dir = Some(folder.path().join("cache"));
        options.use_cache = false;
        options.watch = false;
        let engine = Engine::new(options).unwrap();
        let mut options = ViewerOptions {
            session_token: Some("TOKEN".to_owned()),
            data_dir: Some(folder.path().join("data")),
            ..ViewerOptions::default()
        };
        change(&mut options);
        let app = app(options, Arc::clone(&engine), viewer);
        Self {
            folder,
            engine,
            app,
        }
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// Sends a request as it is.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: to_bytes(body, usize::MAX).await.unwrap().to_vec(),
        }
    }

    /// `GET` below `/api/v1`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", &format!("/api/v1{path}"), &[], ""))
            .await
    }

    /// `GET` below `/api/v1` that must succeed.
    pub(crate) async fn ok(&self, path: &str) -> Answer {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer
    }

    /// `POST` of JSON below `/api/v1`, from our own page.
    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        let headers = [
            ("content-type", "application/json"),
            ("x-stepscope-token", "TOKEN"),
        ];
        self.send(request("POST", &format!("/api/v1{path}"), &headers, body))
            .await
    }
}

pub(crate) fn request(
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(uri);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost:8791");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// Writes a file that looks as if it had been written on a certain day.
pub(crate) fn put(path: &Path, text: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    let file = std::fs::File::options().append(true).open(path).unwrap();
    let written = UNIX_EPOCH + Duration::from_secs(WRITTEN_UNIX_S);
    file.set_modified(written).unwrap();
}

/// The page that tells the interface.
pub(crate) fn page() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/http.md");
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// The recording that the page's examples are about.
pub(crate) fn recording() -> String {
    let (_, page) = page();
    let (_, behind) = page.split_once("```json recording\n").unwrap();
    let (recording, _) = behind.split_once("```").unwrap();
    recording.to_owned()
}

/// A server over that recording, opened.
pub(crate) async fn demo() -> Site {
    let site = Site::new(&[("demo.json", recording().as_bytes())]);
    site.ok("/runs/demo.json?wait=60").await;
    site
}
