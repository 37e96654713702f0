//! The viewer's files, from inside the binary.
//!
//! `ui/dist` is built by `cargo xtask ui` and embedded when this crate is compiled. Without it the
//! crate compiles too, and every page says how to get the viewer.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::reply::{accepts, matches_etag};
use crate::state::State;

#[derive(rust_embed::Embed)]
#[folder = "../../ui/dist"]
#[allow_missing = true]
struct Embedded;

/// Stands in the page where the session token belongs.
const TOKEN_PLACE: &str = "__STEPSCOPE_TOKEN__";

/// What is shown when the viewer was not built.
const WITHOUT_VIEWER: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>stepscope</title>
<h1>The viewer is not built in</h1>
<p>This stepscope was built without its viewer, which takes Node.js 20 or newer. With that on the PATH, run in the clone</p>
<pre>pip install --force-reinstall --no-deps .</pre>
<p>for the Python package, or</p>
<pre>cargo xtask ui &amp;&amp; cargo install --locked --path crates/stepscope-cli</pre>
<p>for the command alone. The interface under <a href=\"/api/v1/runs\">/api/v1</a> works without it.</p>
";

/// Where the viewer's files come from.
#[derive(Clone)]
pub struct Viewer {
    file: fn(&str) -> Option<Cow<'static, [u8]>>,
}

impl Viewer {
    /// What was embedded when this crate was compiled.
    pub fn embedded() -> Self {
        Self {
            file: |path| Embedded::get(path).map(|file| file.data),
        }
    }

    /// Another source: gives the content of a file by its path below `dist`. For tests.
    pub fn from_source(file: fn(&str) -> Option<Cow<'static, [u8]>>) -> Self {
        Self { file }
    }

    /// Whether there is a viewer.
    pub fn is_built(&self) -> bool {
        (self.file)("index.html").is_some()
    }
}

/// Everything that is not the interface.
pub(crate) async fn page(Shared(state): Shared<Arc<State>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Problem::method_not_allowed().into_response();
    }
    let path = request.uri().path().trim_start_matches('/');
    if matches!(path.split('/').next(), Some("api")) {
        return Problem::no_such_route().into_response();
    }
    let wants = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .unwrap_or_default()
    };
    if !path.is_empty() && path != "index.html" {
        if let Some(response) = asset(
            &state.viewer,
            path,
            wants(header::ACCEPT_ENCODING),
            wants(header::IF_NONE_MATCH),
        ) {
            return response;
        }
        // Pages of the viewer have no extension in their last part, run names aside.
        let is_page = matches!(path.split('/').next(), Some("run" | "compare" | "sql"))
            || !path.rsplit('/').next().unwrap_or_default().contains('.');
        if !is_page {
            return Problem::no_such_route().into_response();
        }
    }
    index(&state, path)
}

/// The page. It names its files from its own place, so that a proxy may serve the viewer anywhere:
/// in the address `run/NAME/timeline` they lie two folders further up.
fn index(state: &State, path: &str) -> Response {
    let page = match (state.viewer.file)("index.html") {
        Some(page) => {
            let up = format!("=\"{}assets/", "../".repeat(path.matches('/').count()));
            String::from_utf8_lossy(&page)
                .replace(TOKEN_PLACE, &state.session_token)
                .replace("=\"./assets/", &up)
        }
        None => WITHOUT_VIEWER.to_owned(),
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (StatusCode::OK, headers, page).into_response()
}

/// A file of the viewer, in the smallest form that the client takes.
fn asset(viewer: &Viewer, path: &str, accepted: &str, known: &str) -> Option<Response> {
    let plain = (viewer.file)(path)?;
    let (coding, body) = [("br", ".br"), ("gzip", ".gz")]
        .into_iter()
        .filter(|(coding, _)| accepts(accepted, coding))
        .find_map(|(coding, ending)| {
            let packed = (viewer.file)(&format!("{path}{ending}"))?;
            Some((Some(coding), packed))
        })
        .unwrap_or((None, plain));
    // Names under assets/ hold a hash of the content.
    let hashed = path.starts_with("assets/");
    let keep = if hashed {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let etag = format!("\"{:016x}\"", fingerprint(&body));
    let mut response = if matches_etag(known, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        body.into_response()
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(media_type(path)),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    Some(response)
}

/// Tells contents apart (FNV-1a); not a protection against forgery.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}
