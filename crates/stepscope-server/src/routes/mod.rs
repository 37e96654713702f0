//! The routes of `/api/v1`, as `docs/reference/http.md` describes them.
//!
//! Handlers are thin: they read parameters, ask the trace or an analysis, and hand over a wire
//! type. Opening, caching, cancelling and encoding happen in [`reply`](crate::reply).

mod area;
mod capturing;
mod events;
mod exporting;
mod flame;
mod importing;
mod memory;
mod notes;
mod ops;
mod page;
mod reports;
mod runs;
mod stats;
mod strip;
mod timeline;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State as Shared};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::problem::Problem;
use crate::state::State;
use crate::{body, guard, tools};

/// Reports with an address of their own, beside `/runs/{run}/reports/{kind}`.
const NAMED: [&str; 6] = [
    "overview",
    "ops",
    "kernels",
    "input",
    "ranks",
    "collectives",
];

/// Everything that the server answers.
pub(crate) fn router(state: Arc<State>) -> Router {
    let mut api = Router::new()
        .route("/server", get(runs::server))
        .route("/events", get(events::stream))
        .route("/capture", post(capturing::start))
        .route("/capture/{id}", get(capturing::get).delete(capturing::stop))
        .route("/reports", get(reports::kinds))
        .route("/runs", get(runs::list))
        .route("/runs/import", post(importing::import))
        .route("/runs/{run}", get(runs::run))
        .route("/runs/{run}/cancel", post(importing::cancel))
        .route("/runs/{run}/tracks", get(timeline::tracks))
        .route("/runs/{run}/items", get(timeline::items))
        .route("/runs/{run}/counters", get(timeline::counters))
        .route("/runs/{run}/minimap", get(timeline::minimap))
        .route("/runs/{run}/events", get(area::events))
        .route("/runs/{run}/events/{item}", get(timeline::event))
        .route("/runs/{run}/neighbours/{item}", get(timeline::neighbours))
        .route("/runs/{run}/flows", get(timeline::flows))
        .route("/runs/{run}/search", get(stats::search))
        .route("/runs/{run}/names", get(area::event_names))
        .route("/runs/{run}/aggregate", post(stats::aggregate))
        .route("/runs/{run}/histogram", get(stats::histogram))
        .route("/runs/{run}/steps", get(stats::steps))
        .route("/runs/{run}/reports/{item}", get(reports::report))
        .route("/runs/{run}/flame", get(flame::flame))
        .route("/runs/{run}/ops/kinds", get(ops::kinds))
        .route("/runs/{run}/ops/steps", get(ops::steps))
        .route("/runs/{run}/ops/inside", get(ops::inside))
        .route("/runs/{run}/memory/timeline", get(memory::timeline))
        .route("/runs/{run}/memory/alive", get(memory::alive))
        .route("/runs/{run}/notes", get(notes::get).put(notes::put))
        .route("/runs/{run}/export", get(exporting::export))
        .fallback(fallback)
        .method_not_allowed_fallback(async || Problem::method_not_allowed());
    for kind in NAMED {
        api = api.route(
            &format!("/runs/{{run}}/{kind}"),
            get(move |state, request| reports::named(kind, state, request)),
        );
    }
    Router::new()
        .nest("/api/v1", api)
        .fallback(page::page)
        // Its own bounds are in front of it.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&state), body::receive))
        .layer(from_fn_with_state(Arc::clone(&state), guard::guard))
        .with_state(state)
}

/// What is not a route: a run that does not exist, a tool to come, or nothing at all.
async fn fallback(Shared(state): Shared<Arc<State>>, request: Request) -> Response {
    let path = request.uri().path();
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let mut parts = path.trim_matches('/').split('/');
    match parts.next() {
        Some("runs") => {
            let run = parts.next().unwrap_or_default();
            // Encoded ids are no ids: the engine's are plain.
            if state.engine().summary(run).is_none() {
                return Problem::no_such_run().into_response();
            }
            if let Some(title) = parts.next().and_then(tools::coming_title) {
                return Problem::coming(title).into_response();
            }
            Problem::no_such_route().into_response()
        }
        Some(first @ ("compare" | "sql")) => {
            let title = tools::coming_title(first).unwrap_or(first);
            Problem::coming(title).into_response()
        }
        _ => Problem::no_such_route().into_response(),
    }
}
