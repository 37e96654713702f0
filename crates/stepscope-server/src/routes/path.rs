//! The critical path in a window of the timeline, at its resolution.

use std::ops::Range;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use serde::Serialize;
use stepscope_analysis::critical_path::path::PathKind;
use stepscope_analysis::critical_path::{PathScope, WindowEnd};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::path_ranges::{MergedRange, PathHop, PathRanges};
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_model::Time;
use stepscope_report::report::shorter;

use crate::ns::Ns;
use crate::params::{Params, window};
use crate::path_cache::PathCache;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::state::State;
use crate::view::RunView;

/// Maximum number of ranges, and of hops, in one response.
const MAX_RANGES: usize = 4_000;
const MAX_HOPS: usize = 1_000;

#[derive(Serialize)]
struct PathAnswer {
    /// Start and end of the path; `None` without one.
    start_ns: Option<Ns>,
    end_ns: Option<Ns>,
    /// Number of ranges of the whole path.
    total: usize,
    ranges: Vec<RangeRow>,
    hops: Vec<HopRow>,
}

/// A range, or several merged ones: fields other than times and counts are of the longest.
#[derive(Serialize)]
struct RangeRow {
    track: u32,
    row: u16,
    start_ns: Ns,
    end_ns: Ns,
    /// Sum of the ranges.
    total_ns: Ns,
    count: u64,
    kind: &'static str,
    edge: &'static str,
    event: Option<u32>,
    name: Option<String>,
    /// Short name of a C++ function.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_name: Option<String>,
}

/// A change of the track.
#[derive(Serialize)]
struct HopRow {
    from_track: u32,
    from_row: u16,
    from_ns: Ns,
    to_track: u32,
    to_row: u16,
    to_ns: Ns,
    lag: Option<&'static str>,
    edge: &'static str,
}

/// How ranges are merged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merging {
    /// Ranges of one track, at the times of its file.
    Track,
    /// Consecutive ranges, at the times of the path.
    Time,
}

/// `GET /runs/{run}/critical-path/ranges`
pub(super) async fn path(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let cache = Arc::clone(&state.paths);
    about_run(&state, request, move |view, params, cancel| {
        path_of(&cache, view, params, cancel)
    })
    .await
}

fn path_of(
    cache: &PathCache,
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<PathAnswer>, Problem> {
    let scope = scope(view, params)?;
    let shown = shown(view, params)?;
    let bins = params.bins()?;
    let merging = params.choice("by", &[("track", Merging::Track), ("time", Merging::Time)])?;
    let answer = cache.with_path(&view.run, scope, cancel, |path| {
        answer(view, path, shown, bins, merging)
    })?;
    Ok(Json(answer))
}

/// Returns the window of the request; `None` if it has none.
fn shown(view: &RunView, params: &Params) -> Result<Option<Range<Time>>, Problem> {
    let is_given = params.text("t0").is_some() || params.text("t1").is_some();
    is_given.then(|| params.window(view)).transpose()
}

/// Returns the steps whose path is asked for.
fn scope(view: &RunView, params: &Params) -> Result<PathScope, Problem> {
    let (start, end) = (params.ns("scope_t0")?, params.ns("scope_t1")?);
    let range = (start.is_some() || end.is_some()).then(|| window(view, start, end));
    let steps = AnalysisScope {
        range: range.transpose()?,
        marked_only: params.choice("steps", &[("any", false), ("marked", true)])?,
        ..AnalysisScope::default()
    };
    let end = params.choice("until", WindowEnd::WORDS)?;
    Ok(PathScope { steps, end })
}

fn answer(
    view: &RunView,
    path: Option<&PathRanges>,
    shown: Option<Range<Time>>,
    bins: u32,
    merging: Merging,
) -> PathAnswer {
    let Some(path) = path else {
        return PathAnswer {
            start_ns: None,
            end_ns: None,
            total: 0,
            ranges: Vec::new(),
            hops: Vec::new(),
        };
    };
    let clock = view.clock();
    let shown = shown.unwrap_or_else(|| match merging {
        Merging::Track => view.span(),
        Merging::Time => path.window.clone(),
    });
    let merge = |bins| match merging {
        Merging::Track => path.by_track(&shown, bins),
        Merging::Time => path.by_time(&shown, bins),
    };
    let ranges = coarser(bins, MAX_RANGES, merge);
    let hops = match merging {
        Merging::Track => coarser(bins, MAX_HOPS, |bins| path.hops(&shown, bins)),
        Merging::Time => Vec::new(),
    };
    PathAnswer {
        start_ns: Some(clock.show(path.window.start)),
        end_ns: Some(clock.show(path.window.end)),
        total: path.ranges.len(),
        ranges: ranges
            .iter()
            .map(|merged| range_row(view, merged))
            .collect(),
        hops: hops.iter().map(|hop| hop_row(view, hop)).collect(),
    }
}

/// Computes a list with fewer and fewer bins until it is short enough.
fn coarser<T>(bins: u32, most: usize, list: impl Fn(u32) -> Vec<T>) -> Vec<T> {
    let mut bins = bins;
    loop {
        let mut found = list(bins);
        if found.len() <= most || bins == 1 {
            found.truncate(most);
            return found;
        }
        bins = (bins / 2).max(1);
    }
}

fn range_row(view: &RunView, merged: &MergedRange) -> RangeRow {
    let trace = &view.run.trace;
    let clock = view.clock();
    let longest = &merged.longest;
    let event = longest.event.and_then(|event| trace.event(event));
    let name = event.as_ref().map(|event| trace.name(event.name));
    RangeRow {
        track: longest.track.0,
        row: event.as_ref().map_or(0, |event| event.row),
        start_ns: clock.show(merged.start),
        end_ns: clock.show(merged.end),
        total_ns: Ns::from_dur(merged.total),
        count: merged.count,
        kind: longest.kind.as_str(),
        edge: longest.edge.as_str(),
        event: longest.event.map(|event| event.0),
        name: name.map(str::to_owned),
        short_name: name.and_then(shorter),
    }
}

fn hop_row(view: &RunView, hop: &PathHop) -> HopRow {
    let trace = &view.run.trace;
    let clock = view.clock();
    let row = |event: Option<_>| {
        let event = event.and_then(|event| trace.event(event));
        event.map_or(0, |event| event.row)
    };
    HopRow {
        from_track: hop.from.0.0,
        from_row: row(hop.events.0),
        from_ns: clock.show(hop.from.1),
        to_track: hop.to.0.0,
        to_row: row(hop.events.1),
        to_ns: clock.show(hop.to.1),
        lag: hop.lag.map(PathKind::as_str),
        edge: hop.edge.as_str(),
    }
}
