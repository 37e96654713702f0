//! The events of an area in pages, and the names of the events that a search matches.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use stepscope_analysis::names::NameSet;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::timeline_query::search::{self, Hit, Page, SearchQuery, listing};
use stepscope_model::{Dur, Time};
use stepscope_report::report::shorter;

use super::stats::{MAX_HITS, Mode, names, reach, tracks_of};
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::state::State;
use crate::view::RunView;
use crate::wire::event::EventSummary;
use crate::wire::stats::{EventsAnswer, NameRow, NamesAnswer};

/// Order of the events.
#[derive(Clone, Copy)]
enum Order {
    Start,
    Longest,
    Shortest,
}

/// `GET /runs/{run}/events`
pub(super) async fn events(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, events_in).await
}

fn events_in(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<EventsAnswer>, Problem> {
    let names = names_asked(view, params)?;
    let order = params.choice(
        "order",
        &[
            ("start", Order::Start),
            ("longest", Order::Longest),
            ("shortest", Order::Shortest),
        ],
    )?;
    let limit = params.number("limit", 100, 0..=MAX_HITS)?;
    let offset = params.number("offset", 0, 0..=u64::MAX)?;
    let window = reach(view, &params.window(view)?);
    let tracks = tracks_of(view, params)?;
    let query = SearchQuery {
        names: &names,
        tracks: &tracks,
        window: Some(window),
        min: Dur::ZERO,
        below: None,
        bins: 0,
        bin_range: Time::ZERO..Time::ZERO,
    };
    let trace = &view.run.trace;
    let (total, hits) = match order {
        Order::Start => {
            let found = search::search(trace, &query, Page::Offset(offset), limit, cancel)?;
            (found.total, found.hits)
        }
        Order::Longest | Order::Shortest => {
            let longest = matches!(order, Order::Longest);
            let found = listing::by_length(trace, &query, longest, offset, limit, cancel)?;
            (found.total, found.hits)
        }
    };
    Ok(Json(EventsAnswer {
        total,
        first: offset.min(total),
        events: summaries(view, &hits),
    }))
}

/// `GET /runs/{run}/names`
pub(super) async fn event_names(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
) -> Response {
    about_run(&state, request, names_in).await
}

fn names_in(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<NamesAnswer>, Problem> {
    params.required("q")?;
    let wanted = names_asked(view, params)?;
    let limit = params.number("limit", 20, 0..=MAX_HITS)?;
    let window = reach(view, &params.window(view)?);
    let tracks = tracks_of(view, params)?;
    let query = SearchQuery {
        names: &wanted,
        tracks: &tracks,
        window: Some(window),
        min: Dur::ZERO,
        below: None,
        bins: 0,
        bin_range: Time::ZERO..Time::ZERO,
    };
    let trace = &view.run.trace;
    let found = listing::by_name(trace, &query, cancel)?;
    Ok(Json(NamesAnswer {
        total: found.iter().map(|name| name.count).sum(),
        names: found.len(),
        rows: found
            .iter()
            .take(limit)
            .map(|one| NameRow {
                name: trace.name(one.name).to_owned(),
                short_name: shorter(trace.name(one.name)),
                count: one.count,
                first: one.first.id.0,
            })
            .collect(),
    }))
}

/// Returns the names that match the request; all names without `q`.
fn names_asked(view: &RunView, params: &Params) -> Result<NameSet, Problem> {
    let mode = Mode::from_params(params)?;
    match params.text("q") {
        Some(text) => names(view, text, mode, "q"),
        None => Ok(NameSet::all(&view.run.trace)),
    }
}

fn summaries(view: &RunView, hits: &[Hit]) -> Vec<EventSummary> {
    hits.iter()
        .filter_map(|hit| EventSummary::from_event(view, hit.id))
        .collect()
}
