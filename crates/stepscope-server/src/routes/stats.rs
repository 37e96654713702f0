//! Search and statistics.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use stepscope_analysis::names::NameSet;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::timeline_query::aggregate::{
    self, AggregateQuery, GroupBy, GroupKey, Totals,
};
use stepscope_analysis::timeline_query::histogram::{self, Scale};
use stepscope_analysis::timeline_query::search::{self, SearchQuery};
use stepscope_model::{Dur, SliceKind, Time, TrackId};
use stepscope_report::name_search::NameSearch;
use stepscope_report::report::shorter;
use stepscope_store::EventId;

use crate::ns::Ns;
use crate::params::{MAX_BINS, Params, window};
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::state::State;
use crate::view::RunView;
use crate::wire::event::EventSummary;
use crate::wire::run::source_of;
use crate::wire::stats::{
    AggregateAnswer, AggregateBody, AggregateRow, HistogramAnswer, Matched, NsIn, SearchAnswer,
    StepRow, StepStats, StepsAnswer, TrackTimeRow,
};

/// Maximum number of hits per page.
pub(super) const MAX_HITS: usize = 1_000;
/// Maximum number of groups in one response.
pub(super) const MAX_ROWS: usize = 100_000;
#[derive(Clone, Copy)]
pub(super) enum Mode {
    Text,
    Exact,
    Regex,
}

impl Mode {
    /// Parses the search mode of the request.
    pub(super) fn from_params(params: &Params) -> Result<Self, Problem> {
        params.choice(
            "mode",
            &[
                ("text", Self::Text),
                ("exact", Self::Exact),
                ("regex", Self::Regex),
            ],
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Run,
    Range,
}

/// Returns the names that contain the text, equal it or match the expression.
pub(super) fn names(
    view: &RunView,
    wanted: &str,
    mode: Mode,
    place: &str,
) -> Result<NameSet, Problem> {
    let search = match mode {
        Mode::Text => NameSearch::Text(wanted),
        Mode::Exact => NameSearch::Exact(wanted),
        Mode::Regex => NameSearch::Regex(wanted),
    };
    let found = search.find(&view.run.trace);
    found.map_err(|detail| Problem::bad_regex(place, detail))
}

/// Returns the range for tests of membership. A slice without duration at the run's last timestamp
/// belongs to a range that ends there.
pub(super) fn reach(view: &RunView, window: &Range<Time>) -> Range<Time> {
    if window.end == view.span().end {
        window.start..window.end.saturating_add(Dur::from_ps(1))
    } else {
        window.clone()
    }
}

/// Replaces each group by its tracks. Each track occurs once, in display order.
pub(super) fn expanded(view: &RunView, tracks: &[TrackId]) -> Vec<TrackId> {
    let mut wanted = vec![false; view.order().len()];
    for &track in tracks {
        for below in view.subtree(track) {
            wanted[below.index()] = true;
        }
    }
    let all = view.order().iter().copied();
    all.filter(|track| wanted[track.index()]).collect()
}

pub(super) fn tracks_of(view: &RunView, params: &Params) -> Result<Vec<TrackId>, Problem> {
    Ok(match params.tracks(view)? {
        Some(tracks) => expanded(view, &tracks),
        None => view.order().to_vec(),
    })
}

/// `GET /runs/{run}/search`
pub(super) async fn search(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, search_in).await
}

fn search_in(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<SearchAnswer>, Problem> {
    let wanted = params.required("q")?;
    let mode = Mode::from_params(params)?;
    let scope = params.choice("scope", &[("run", Scope::Run), ("range", Scope::Range)])?;
    let range = params.window(view)?;
    let limit = params.number("limit", 100, 0..=MAX_HITS)?;
    let page = page(view, params)?;
    let names = names(view, wanted, mode, "q")?;
    let tracks = tracks_of(view, params)?;
    let query = SearchQuery {
        names: &names,
        tracks: &tracks,
        window: (scope == Scope::Range).then(|| range.clone()),
        min: params.dur("min_ns")?.unwrap_or(Dur::ZERO),
        below: params.dur("max_ns")?,
        bins: params.number("bins", 0, 0..=MAX_BINS)?,
        bin_range: match scope {
            Scope::Run => window(view, None, None)?,
            Scope::Range => range,
        },
    };
    let found = search::search(&view.run.trace, &query, page, limit, cancel)?;
    let behind = found.first + found.hits.len() as u64;
    let cursor = match found.hits.last() {
        Some(last) if behind < found.total => Some(format!("{}.{}", last.start.ps(), last.id.0)),
        _ => None,
    };
    Ok(Json(SearchAnswer {
        total: found.total,
        names: names.len(),
        first: found.first,
        cursor,
        by_track: found
            .by_track
            .into_iter()
            .map(|(track, count)| (track.0, count))
            .collect(),
        hits: found
            .hits
            .iter()
            .filter_map(|hit| EventSummary::from_event(view, hit.id))
            .collect(),
        bins: found.bins,
    }))
}

fn page(view: &RunView, params: &Params) -> Result<search::Page, Problem> {
    if let Some(cursor) = params.text("cursor") {
        let parts = cursor.split_once('.');
        let read = parts.and_then(|(start, id)| {
            let start = Time::from_ps(start.parse().ok()?);
            Some(search::Page::After(start, EventId(id.parse().ok()?)))
        });
        return read.ok_or_else(|| Problem::bad_request("cursor", "not a cursor of ours"));
    }
    if let Some(near) = params.ns("near")? {
        return Ok(search::Page::Near(view.clock().at(near)));
    }
    let offset = params.number("offset", 0, 0..=u64::MAX)?;
    Ok(search::Page::Offset(offset))
}

/// `POST /runs/{run}/aggregate`
pub(super) async fn aggregate(
    Shared(state): Shared<Arc<State>>,
    request: RunRequest,
    body: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        return Problem::too_large(crate::body::MAX_BODY_BYTES as u64).into_response();
    };
    // A page of another site cannot send this content type without a CORS preflight.
    let is_json = request
        .header(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.starts_with("application/json"));
    if !is_json {
        let detail = "the body is application/json";
        return Problem::bad_request("Content-Type", detail).into_response();
    }
    let body: AggregateBody = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(error) => return Problem::bad_request("body", error.to_string()).into_response(),
    };
    about_run(&state, request, move |view, _, cancel| {
        aggregate_in(view, &body, cancel).map(Json)
    })
    .await
}

fn aggregate_in(
    view: &RunView,
    body: &AggregateBody,
    cancel: &Cancel,
) -> Result<AggregateAnswer, Problem> {
    let trace = &view.run.trace;
    let time = |place, given: &Option<NsIn>| match given {
        None => Ok(None),
        Some(given) => given.ps().map(Some).ok_or_else(|| {
            Problem::bad_request(place, format!("{place} is a number of nanoseconds"))
        }),
    };
    let window = window(view, time("t0", &body.t0)?, time("t1", &body.t1)?)?;
    let tracks = match &body.tracks {
        None => view.order().to_vec(),
        Some(ids) => {
            let known = trace.tracks().len();
            if let Some(id) = ids.iter().find(|&&id| id as usize >= known) {
                return Err(Problem::no_such_track("tracks", &id.to_string()));
            }
            let ids: Vec<TrackId> = ids.iter().map(|&id| TrackId(id)).collect();
            expanded(view, &ids)
        }
    };
    let names = match (&body.filter, &body.regex) {
        (_, Some(regex)) => Some(names(view, regex, Mode::Regex, "regex")?),
        (Some(text), None) if !text.is_empty() => Some(names(view, text, Mode::Text, "filter")?),
        _ => None,
    };
    let kinds = body.kinds.as_ref().map(|numbers| {
        let all = SliceKind::ALL.iter().copied();
        all.filter(|&kind| numbers.contains(&(kind as u8)))
            .collect::<Vec<_>>()
    });
    let by = groups(body.by.as_deref())?;
    let order = Order::read(body.sort.as_deref().unwrap_or("total"))?;
    let limit = body.limit.unwrap_or(1_000);
    if limit > MAX_ROWS {
        let detail = format!("limit is at most {MAX_ROWS}");
        return Err(Problem::bad_request("limit", detail));
    }
    let query = AggregateQuery {
        window: reach(view, &window),
        tracks: &tracks,
        names: names.as_ref(),
        kinds: kinds.as_deref(),
        by: &by,
    };
    let found = aggregate::aggregate(trace, &query, cancel)?;
    let length = window.end.since(window.start);
    let total = found.groups.len();
    let mut rows: Vec<AggregateRow> = found
        .groups
        .iter()
        .map(|(key, totals)| row(view, &by, key, totals, length))
        .collect();
    order.sort(&mut rows);
    rows.truncate(limit);
    let clock = view.clock();
    Ok(AggregateAnswer {
        t0: clock.show(window.start),
        t1: clock.show(window.end),
        total,
        matched: Matched {
            count: found.matched.count,
            total_ns: Ns::from_ps(found.matched.total_ps),
            self_ns: Ns::from_ps(found.matched.self_ps),
        },
        rows,
        per_track: found
            .per_track
            .iter()
            .map(|time| TrackTimeRow {
                track: time.track.0,
                busy_ns: Ns::from_dur(time.busy),
                idle_ns: Ns::from_dur(Dur::from_ps(length.ps() - time.busy.ps())),
            })
            .collect(),
    })
}

fn groups(words: Option<&[String]>) -> Result<Vec<GroupBy>, Problem> {
    let Some(words) = words else {
        return Ok(vec![GroupBy::Name]);
    };
    let mut out = Vec::new();
    for word in words {
        let by = match word.as_str() {
            "name" => GroupBy::Name,
            "track" => GroupBy::Track,
            "kind" => GroupBy::Kind,
            "category" => GroupBy::Category,
            _ => {
                let detail = "by is a list out of name, track, kind, category";
                return Err(Problem::bad_request("by", detail));
            }
        };
        if !out.contains(&by) {
            out.push(by);
        }
    }
    Ok(out)
}

fn row(
    view: &RunView,
    by: &[GroupBy],
    key: &GroupKey,
    totals: &Totals,
    length: Dur,
) -> AggregateRow {
    let trace = &view.run.trace;
    let texts = by.iter().map(|by| match by {
        GroupBy::Name => key.name.map(|name| trace.name(name).to_owned()),
        GroupBy::Track => key
            .track
            .and_then(|track| Some(trace.tracks().get(track.index())?.name.clone())),
        GroupBy::Kind => key.kind.map(|kind| kind.label().to_owned()),
        GroupBy::Category => key.category.map(|name| trace.name(name).to_owned()),
    });
    let kind = key.kind.unwrap_or_else(|| {
        trace
            .event(totals.longest)
            .map_or(SliceKind::Other, |event| event.kind)
    });
    AggregateRow {
        key: texts.map(Option::unwrap_or_default).collect(),
        short_name: key.name.and_then(|name| shorter(trace.name(name))),
        track: key.track.map(|track| track.0),
        kind: kind as u8,
        count: totals.count,
        total_ns: Ns::from_ps(totals.total_ps),
        self_ns: Ns::from_ps(totals.self_ps),
        mean_ns: Ns::from_ps(totals.total_ps / i128::from(totals.count.max(1))),
        min_ns: Ns::from_dur(totals.min),
        max_ns: Ns::from_dur(totals.max),
        share: share(totals.total_ps, i128::from(length.ps())),
        example: totals.longest.0,
    }
}

/// Returns the share rounded to six decimals; 0 if the whole is zero.
fn share(part_ps: i128, whole_ps: i128) -> f64 {
    if whole_ps <= 0 {
        return 0.0;
    }
    (part_ps as f64 / whole_ps as f64 * 1e6).round() / 1e6
}

/// Sort order of rows; equal rows stay sorted by total time.
#[derive(Debug)]
struct Order {
    column: &'static str,
    rising: bool,
}

impl Order {
    fn read(text: &str) -> Result<Self, Problem> {
        let (column, direction) = text.split_once(':').unwrap_or((text, ""));
        let columns = ["total", "self", "count", "mean", "max", "min", "key"];
        let column = columns.into_iter().find(|&known| known == column);
        let rising = match direction {
            "asc" => Some(true),
            "desc" => Some(false),
            "" => Some(column == Some("key")),
            _ => None,
        };
        if let (Some(column), Some(rising)) = (column, rising) {
            return Ok(Self { column, rising });
        }
        let detail = format!("sort is one of {}, with :asc or :desc", columns.join(", "));
        Err(Problem::bad_request("sort", detail))
    }

    fn sort(&self, rows: &mut [AggregateRow]) {
        rows.sort_by(|a, b| {
            let order = match self.column {
                "self" => a.self_ns.cmp(&b.self_ns),
                "count" => a.count.cmp(&b.count),
                "mean" => a.mean_ns.cmp(&b.mean_ns),
                "max" => a.max_ns.cmp(&b.max_ns),
                "min" => a.min_ns.cmp(&b.min_ns),
                "key" => a.key.cmp(&b.key),
                _ => a.total_ns.cmp(&b.total_ns),
            };
            if self.rising { order } else { order.reverse() }
        });
    }
}

/// `GET /runs/{run}/histogram`
pub(super) async fn histogram(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, histogram_of).await
}

fn histogram_of(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<HistogramAnswer>, Problem> {
    let name = params.required("name")?;
    let (scale, scale_word) = params.choice(
        "scale",
        &[
            ("log", (Scale::Log, "log")),
            ("linear", (Scale::Linear, "linear")),
        ],
    )?;
    let bins = params.number("bins", 40, 1..=200)?;
    let range = [params.dur("low_ns")?, params.dur("high_ns")?];
    let window = params.window(view)?;
    let tracks = tracks_of(view, params)?;
    let mode = params.choice("mode", &[("exact", Mode::Exact), ("regex", Mode::Regex)])?;
    let names = names(view, name, mode, "name")?;
    let all = histogram::durations(&view.run.trace, &names, &tracks, &window, cancel)?;
    let bins = all.histogram(scale, bins, range);
    let quantile = |share| all.quantile(share).map(Ns::from_dur);
    Ok(Json(HistogramAnswer {
        name: name.to_owned(),
        count: all.count(),
        total_ns: Ns::from_ps(all.total_ps()),
        min_ns: quantile(0.0),
        median_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        max_ns: quantile(1.0),
        scale: scale_word,
        edges: bins.edges.into_iter().map(Ns::from_dur).collect(),
        counts: bins.counts,
        totals: bins.totals_ps.into_iter().map(Ns::from_ps).collect(),
    }))
}

/// `GET /runs/{run}/steps`
pub(super) async fn steps(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, |view, _, _| Ok(Json(steps_of(view)))).await
}

fn steps_of(view: &RunView) -> StepsAnswer {
    let trace = &view.run.trace;
    let found = view.run.steps();
    let times = &found.times;
    let stats = times.p50_ns.map(|p50_ns| StepStats {
        count: found.count(),
        ranks: found.ranks(),
        mean_ns: times.mean_ns.unwrap_or(p50_ns),
        min_ns: times.min_ns.unwrap_or(p50_ns),
        p50_ns,
        p90_ns: times.p90_ns,
        max_ns: times.max_ns.unwrap_or(p50_ns),
    });
    let rows = found.steps.iter().filter_map(|step| {
        let event = trace.event(step.event)?;
        let rank = trace.files().get(step.file).and_then(|file| file.spec.rank);
        Some(StepRow {
            n: step.number,
            id: event.id.0,
            name: trace.name(event.name).to_owned(),
            track: event.track.0,
            host: (!step.host.is_empty()).then(|| step.host.clone()),
            rank,
            process: step.process,
            start_ns: view.clock().show(step.start),
            duration_ns: Ns::from_dur(step.dur),
        })
    });
    let steps: Vec<StepRow> = rows.collect();
    StepsAnswer {
        total: steps.len(),
        cursor: None,
        source: source_of(found),
        steps,
        stats,
    }
}
