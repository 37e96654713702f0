//! The routes of `/api/v1`; `docs/reference/http.md` documents them.
//!
//! Handlers are thin: they parse parameters, call the trace or an analysis, and return a wire type.
//! [`reply`](crate::reply) opens, caches, cancels and encodes.

mod area;
mod capturing;
mod compare;
mod events;
mod exporting;
mod flame;
mod graph;
mod importing;
mod mcp;
mod memory;
mod notes;
mod ops;
mod page;
mod path;
mod reports;
mod runs;
mod snapshot;
mod sql;
mod stats;
mod strip;
mod timeline;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State as Shared};
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};

use crate::problem::Problem;
use crate::state::State;
use crate::{body, guard, guard::MCP_PATH};

/// Reports with their own address in addition to `/runs/{run}/reports/{kind}`.
const NAMED: [&str; 7] = [
    "overview",
    "ops",
    "kernels",
    "input",
    "roofline",
    "ranks",
    "collectives",
];

/// An endpoint below `/api/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// Path with its variables in braces: `/runs/{run}/tracks`.
    pub path: String,
}

/// Lists every endpoint; `cargo xtask gen` writes the list for the viewer.
pub fn endpoints() -> Vec<Endpoint> {
    table().into_iter().map(|(endpoint, _)| endpoint).collect()
}

type Route = (Endpoint, MethodRouter<Arc<State>>);

fn route(method: &'static str, path: &str, router: MethodRouter<Arc<State>>) -> Route {
    let path = path.to_owned();
    (Endpoint { method, path }, router)
}

fn get<T: 'static>(path: &str, handler: impl Handler<T, Arc<State>>) -> Route {
    route("GET", path, routing::get(handler))
}

fn post<T: 'static>(path: &str, handler: impl Handler<T, Arc<State>>) -> Route {
    route("POST", path, routing::post(handler))
}

fn put<T: 'static>(path: &str, handler: impl Handler<T, Arc<State>>) -> Route {
    route("PUT", path, routing::put(handler))
}

fn delete<T: 'static>(path: &str, handler: impl Handler<T, Arc<State>>) -> Route {
    route("DELETE", path, routing::delete(handler))
}

fn table() -> Vec<Route> {
    let mut routes = vec![
        get("/server", runs::server),
        get("/events", events::stream),
        post("/capture", capturing::start),
        get("/capture/{id}", capturing::get),
        delete("/capture/{id}", capturing::stop),
        get("/reports", reports::kinds),
        post("/sql", sql::query),
        get("/sql/schema", sql::schema),
        get("/compare", compare::compare),
        get("/runs", runs::list),
        post("/runs/import", importing::import),
        get("/runs/{run}", runs::run),
        post("/runs/{run}/cancel", importing::cancel),
        get("/runs/{run}/tracks", timeline::tracks),
        get("/runs/{run}/items", timeline::items),
        get("/runs/{run}/counters", timeline::counters),
        get("/runs/{run}/minimap", timeline::minimap),
        get("/runs/{run}/events", area::events),
        get("/runs/{run}/events/{item}", timeline::event),
        get("/runs/{run}/neighbours/{item}", timeline::neighbours),
        get("/runs/{run}/flows", timeline::flows),
        get("/runs/{run}/search", stats::search),
        get("/runs/{run}/names", area::event_names),
        post("/runs/{run}/aggregate", stats::aggregate),
        get("/runs/{run}/histogram", stats::histogram),
        get("/runs/{run}/steps", stats::steps),
        get("/runs/{run}/reports/{item}", reports::report),
        get("/runs/{run}/critical-path/ranges", path::path),
        get("/runs/{run}/flame", flame::flame),
        get("/runs/{run}/ops/kinds", ops::kinds),
        get("/runs/{run}/ops/steps", ops::steps),
        get("/runs/{run}/ops/inside", ops::inside),
        get("/runs/{run}/memory/timeline", memory::timeline),
        get("/runs/{run}/memory/alive", memory::alive),
        get("/runs/{run}/memory/snapshot", snapshot::allocators),
        get("/runs/{run}/memory/snapshot/timeline", snapshot::timeline),
        get("/runs/{run}/memory/snapshot/state", snapshot::state),
        get("/runs/{run}/memory/snapshot/events", snapshot::events),
        get(
            "/runs/{run}/memory/snapshot/allocation",
            snapshot::allocation,
        ),
        get("/runs/{run}/graph", graph::graph),
        get("/runs/{run}/graph/modules", graph::modules),
        get("/runs/{run}/graph/op", graph::op::op),
        get("/runs/{run}/graph/search", graph::op::search),
        get("/runs/{run}/graph/text", graph::files::text),
        get("/runs/{run}/graph/dot", graph::files::dot),
        get("/runs/{run}/graph/svg", graph::files::svg),
        get("/runs/{run}/notes", notes::get),
        put("/runs/{run}/notes", notes::put),
        get("/runs/{run}/export", exporting::export),
    ];
    routes.extend(NAMED.map(|kind| {
        get(&format!("/runs/{{run}}/{kind}"), move |state, request| {
            reports::named(kind, state, request)
        })
    }));
    routes
}

/// Builds the router of all routes.
pub(crate) fn router(state: Arc<State>) -> Router {
    let api = table()
        .into_iter()
        .fold(Router::new(), |api, (endpoint, router)| {
            api.route(&endpoint.path, router)
        })
        .fallback(fallback)
        // Applies to the routes above.
        .method_not_allowed_fallback(async || Problem::method_not_allowed());
    let mut router = Router::new().nest("/api/v1", api);
    if state.mcp.is_some() {
        router = router.route(MCP_PATH, routing::post(mcp::post));
    }
    router
        .fallback(page::page)
        // This route checks the size itself.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&state), body::receive))
        .layer(from_fn_with_state(Arc::clone(&state), guard::guard))
        .with_state(state)
}

/// Answers paths without a route: an unknown run, a planned feature, or an unknown path.
async fn fallback(Shared(state): Shared<Arc<State>>, request: Request) -> Response {
    let path = request.uri().path();
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let mut parts = path.trim_matches('/').split('/');
    match parts.next() {
        Some("runs") => {
            let run = parts.next().unwrap_or_default();
            // Ids of the engine need no percent-encoding; an encoded one does not exist.
            if state.engine().summary(run).is_none() {
                return Problem::no_such_run().into_response();
            }
            Problem::no_such_route().into_response()
        }
        _ => Problem::no_such_route().into_response(),
    }
}
