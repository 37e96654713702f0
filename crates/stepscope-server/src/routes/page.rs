//! The viewer's page and files.

use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::state::State;

/// Placeholder of the session token in the page.
const TOKEN_PLACE: &str = "__STEPSCOPE_TOKEN__";

/// The page of a build without the viewer.
const WITHOUT_VIEWER: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>stepscope</title>
<h1>The viewer is not built in</h1>
<p>This stepscope was built without its viewer, which takes Node.js 20 or newer. With that on the PATH, run in the clone</p>
<pre>pip install --force-reinstall --no-deps .</pre>
<p>for the Python package, or</p>
<pre>cargo xtask ui &amp;&amp; cargo install --locked --path crates/stepscope-cli</pre>
<p>for the command alone. The interface under <a href=\"/api/v1/runs\">/api/v1</a> works without it.</p>
";

/// Answers every path outside of `/api`: the viewer's files and its page.
pub(super) async fn page(Shared(state): Shared<Arc<State>>, request: Request) -> Response {
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
        let (accepted, known) = (wants(header::ACCEPT_ENCODING), wants(header::IF_NONE_MATCH));
        if let Some(response) = state.viewer.asset(path, accepted, known) {
            return response;
        }
        // Addresses of viewer pages have no extension in their last part, except for run names.
        let is_page = matches!(path.split('/').next(), Some("run" | "compare" | "sql"))
            || !path.rsplit('/').next().unwrap_or_default().contains('.');
        if !is_page {
            return Problem::no_such_route().into_response();
        }
    }
    index(&state, path)
}

/// Returns the page. It refers to its files by relative paths, so that a proxy may serve the viewer
/// below any path. The address `run/NAME/timeline` needs two `../`.
fn index(state: &State, path: &str) -> Response {
    let page = match state.viewer.page() {
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
