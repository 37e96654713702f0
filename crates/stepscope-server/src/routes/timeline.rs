//! Data of the timeline, and details of one event.

use std::ops::Range;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use serde::Serialize;
use stepscope_analysis::names::NameSet;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::timeline_query::histogram;
use stepscope_model::{Diagnostic, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, FlowEdge, Items};

use crate::ns::Ns;
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::routes::strip;
use crate::state::State;
use crate::view::RunView;
use crate::wire::columns::{Columns, Strings};
use crate::wire::event::{Among, ArgSize, EventDetail, EventSummary};
use crate::wire::run_list::Page;
use crate::wire::stats::{FlowRow, FlowsAnswer};
use crate::wire::track::{self, TrackRow};

const INSTANT: u8 = 1;
const UNFINISHED: u8 = 2;
const DERIVED: u8 = 4;
const STRIP: u8 = 8;

/// Maximum number of top-level tracks in the minimap.
const MAX_GROUPS: usize = 64;
/// Maximum number of flows in one response.
const MAX_EDGES: usize = 1_000;

#[derive(Serialize)]
struct Tracks {
    tracks: Vec<TrackRow>,
}

/// `GET /runs/{run}/tracks`
pub(super) async fn tracks(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, |view, _, _| {
        let tracks = track::tracks(view);
        Ok(Json(Page {
            total: tracks.len(),
            cursor: None,
            list: Tracks { tracks },
        }))
    })
    .await
}

/// `GET /runs/{run}/items`
pub(super) async fn items(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, items_of).await
}

/// Rows of `/items` under construction.
#[derive(Default)]
struct ItemRows {
    t0: Vec<f64>,
    t1: Vec<f64>,
    id: Vec<u32>,
    name: Vec<u32>,
    count: Vec<u32>,
    row: Vec<u16>,
    track: Vec<u16>,
    kind: Vec<u8>,
    busy: Vec<u8>,
    flags: Vec<u8>,
    strings: Strings,
}

/// One row.
struct Item {
    t0: Time,
    t1: Time,
    id: EventId,
    name: NameId,
    count: u32,
    row: u16,
    track: u16,
    kind: SliceKind,
    busy: u8,
    flags: u8,
}

impl ItemRows {
    fn push(&mut self, view: &RunView, item: &Item) {
        let clock = view.clock();
        self.t0.push(clock.show(item.t0).to_f64());
        self.t1.push(clock.show(item.t1).to_f64());
        self.id.push(item.id.0);
        self.name.push(self.strings.index(item.name));
        self.count.push(item.count);
        self.row.push(item.row);
        self.track.push(item.track);
        self.kind.push(item.kind as u8);
        self.busy.push(item.busy);
        self.flags.push(item.flags);
    }
}

fn items_of(view: &RunView, params: &Params, cancel: &Cancel) -> Result<Columns, Problem> {
    params.required("tracks")?;
    let tracks = params.tracks(view)?.unwrap_or_default();
    let window = params.window(view)?;
    let bins = params.bins()?;
    let trace = &view.run.trace;
    let mut rows = ItemRows::default();
    for (index, &id) in tracks.iter().enumerate() {
        cancel.check()?;
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let Some(track) = trace.tracks().get(id.index()) else {
            continue;
        };
        match track.kind {
            TrackKind::Counter => {}
            TrackKind::Group if track.slices == 0 => {
                let strip = strip::strip(view, id, &window, bins, cancel)?;
                for at in 0..strip.t0.len() {
                    rows.push(view, &item(&strip, at, index, STRIP));
                }
            }
            _ => {
                let slices = trace.items(id, window.clone(), bins);
                if track.instants == 0 {
                    push_all(view, index, id, &slices, &mut rows);
                } else {
                    let instants = trace.instant_items(id, window.clone(), bins);
                    push_both(view, index, id, &slices, &instants, &mut rows);
                }
            }
        }
    }
    let ids: Vec<u32> = tracks.iter().map(|track| track.0).collect();
    Ok(header(Columns::new(rows.t0.len()), view, &window, bins)
        .field("tracks", &ids)
        .strings(strings_of(view, &rows.strings))
        .f64("t0", rows.t0.into_iter())
        .f64("t1", rows.t1.into_iter())
        .u32("id", rows.id.into_iter())
        .dictionary("name", rows.name.into_iter())
        .u32("count", rows.count.into_iter())
        .u16("row", rows.row.into_iter())
        .u16("track", rows.track.into_iter())
        .u8("kind", rows.kind.into_iter())
        .u8("busy", rows.busy.into_iter())
        .u8("flags", rows.flags.into_iter()))
}

/// Adds the header fields that every binned response has.
fn header(columns: Columns, view: &RunView, window: &Range<Time>, bins: u32) -> Columns {
    let clock = view.clock();
    let length = window.end.since(window.start);
    columns
        .field("t0", &clock.show(window.start))
        .field("t1", &clock.show(window.end))
        .field("bin_ns", &(Ns::from_dur(length).to_f64() / f64::from(bins)))
}

fn strings_of(view: &RunView, strings: &Strings) -> Vec<String> {
    let ids = strings.ids().iter();
    ids.map(|&id| view.run.trace.name(id).to_owned()).collect()
}

/// Appends all slices of a track.
fn push_all(view: &RunView, track: u16, id: TrackId, items: &Items, rows: &mut ItemRows) {
    let marks = Marks::from_track(view, id);
    for at in 0..items.t0.len() {
        let flags = marks.slice(view, items, at);
        rows.push(view, &item(items, at, track, flags));
    }
}

/// Appends the slices and instants of a track in time order; instants are on row 0.
fn push_both(
    view: &RunView,
    track: u16,
    id: TrackId,
    slices: &Items,
    instants: &Items,
    rows: &mut ItemRows,
) {
    let marks = Marks::from_track(view, id);
    let first_row = slices.row.partition_point(|&row| row == 0);
    let mut next = 0;
    for at in 0..=slices.t0.len() {
        let before = |instant: &Time| at >= first_row || *instant < slices.t0[at];
        while instants.t0.get(next).is_some_and(before) {
            rows.push(view, &item(instants, next, track, INSTANT));
            next += 1;
        }
        if at < slices.t0.len() {
            let flags = marks.slice(view, slices, at);
            rows.push(view, &item(slices, at, track, flags));
        }
    }
}

fn item(items: &Items, at: usize, track: u16, flags: u8) -> Item {
    Item {
        t0: items.t0[at],
        t1: items.t1[at],
        id: items.id[at],
        name: items.name[at],
        count: items.count[at],
        row: items.row[at],
        track,
        kind: items.kind[at],
        busy: items.busy[at],
        flags,
    }
}

/// Data that marks the slices of one track.
struct Marks {
    derived: bool,
    /// End of unfinished slices: the last known timestamp. Only slices with this end are looked up.
    last: Option<Time>,
}

impl Marks {
    fn from_track(view: &RunView, id: TrackId) -> Self {
        let trace = &view.run.trace;
        let unfinished = trace
            .diagnostics()
            .iter()
            .any(|count| count.what == Diagnostic::UnfinishedSlice);
        Self {
            derived: trace.tracks().get(id.index()).is_some_and(|t| t.derived),
            last: unfinished
                .then(|| view.extent(id).map(|extent| extent.end))
                .flatten(),
        }
    }

    fn slice(&self, view: &RunView, items: &Items, at: usize) -> u8 {
        if items.count[at] != 1 {
            return 0;
        }
        let mut flags = if self.derived { DERIVED } else { 0 };
        let at_the_end = self.last.is_some_and(|last| items.t1[at] >= last);
        if at_the_end && is_unfinished(view, items.id[at]) {
            flags |= UNFINISHED;
        }
        flags
    }
}

fn is_unfinished(view: &RunView, id: EventId) -> bool {
    let event = view.run.trace.event(id);
    event.is_some_and(|event| {
        event
            .flags
            .contains(stepscope_model::SliceFlags::UNFINISHED)
    })
}

/// `GET /runs/{run}/counters`
pub(super) async fn counters(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, counters_of).await
}

fn counters_of(view: &RunView, params: &Params, cancel: &Cancel) -> Result<Columns, Problem> {
    params.required("tracks")?;
    let tracks = params.tracks(view)?.unwrap_or_default();
    let window = params.window(view)?;
    let bins = params.bins()?;
    let trace = &view.run.trace;
    let clock = view.clock();
    let (mut t, mut min, mut max, mut last, mut track) = (vec![], vec![], vec![], vec![], vec![]);
    for (index, &id) in tracks.iter().enumerate() {
        cancel.check()?;
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let found = trace.counter_bins(id, window.clone(), bins);
        for at in 0..found.t.len() {
            t.push(clock.show(found.t[at]).to_f64());
            min.push(found.min[at]);
            max.push(found.max[at]);
            last.push(found.last[at]);
            track.push(index);
        }
    }
    let ids: Vec<u32> = tracks.iter().map(|track| track.0).collect();
    Ok(header(Columns::new(t.len()), view, &window, bins)
        .field("tracks", &ids)
        .f64("t", t.into_iter())
        .f64("min", min.into_iter())
        .f64("max", max.into_iter())
        .f64("last", last.into_iter())
        .u16("track", track.into_iter()))
}

/// `GET /runs/{run}/minimap`
pub(super) async fn minimap(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, minimap_of).await
}

fn minimap_of(view: &RunView, params: &Params, cancel: &Cancel) -> Result<Columns, Problem> {
    let bins = params.bins()?;
    let window = params.window(view)?;
    let trace = &view.run.trace;
    let (mut track, mut bin, mut busy) = (vec![], vec![], vec![]);
    let roots = view
        .order()
        .iter()
        .filter(|id| trace.tracks()[id.index()].parent.is_none())
        .map(|&id| (id, strip::work_below(view, id)))
        .filter(|(_, below)| !below.is_empty());
    for (root, below) in roots.take(MAX_GROUPS) {
        cancel.check()?;
        for (index, share) in trace
            .busy_strip(&below, window.clone(), bins)
            .into_iter()
            .enumerate()
        {
            if share > 0 {
                track.push(root.0);
                bin.push(u32::try_from(index).unwrap_or(u32::MAX));
                busy.push(share);
            }
        }
    }
    Ok(header(Columns::new(track.len()), view, &window, bins)
        .field("bins", &bins)
        .u32("track", track.into_iter())
        .u32("bin", bin.into_iter())
        .u8("busy", busy.into_iter()))
}

/// `GET /runs/{run}/events/{item}`
pub(super) async fn event(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let id = request.event();
    about_run(&state, request, move |view, params, cancel| {
        let trace = &view.run.trace;
        let event = trace.event(id?);
        let event = event.ok_or_else(|| Problem::no_such_event("id"))?;
        let among = if event.instant {
            None
        } else {
            among(view, &event, cancel)?
        };
        let size = params.choice("full", &[("0", ArgSize::Usual), ("1", ArgSize::Full)])?;
        Ok(Json(EventDetail::new(view, &event, among, size)))
    })
    .await
}

fn among(
    view: &RunView,
    event: &stepscope_store::Event,
    cancel: &Cancel,
) -> Result<Option<Among>, Problem> {
    let trace = &view.run.trace;
    let names = NameSet::from_ids(trace, &[event.name]);
    let all = Time::MIN..Time::MAX;
    let durations = histogram::durations(trace, &names, view.order(), &all, cancel)?;
    let quantile = |share| durations.quantile(share).map(Ns::from_dur);
    let (Some(min_ns), Some(median_ns), Some(max_ns)) =
        (quantile(0.0), quantile(0.5), quantile(1.0))
    else {
        return Ok(None);
    };
    let count = durations.count();
    let shorter = durations.shorter_than(event.dur);
    Ok(Some(Among {
        name: trace.name(event.name).to_owned(),
        count,
        rank: durations.longer_than(event.dur) + 1,
        percentile: (shorter as f64 / count as f64 * 1e4).round() / 1e2,
        min_ns,
        median_ns,
        max_ns,
        total_ns: Ns::from_ps(durations.total_ps()),
    }))
}

#[derive(Serialize)]
struct Neighbours {
    prev: Option<u32>,
    next: Option<u32>,
    parent: Option<u32>,
    first_child: Option<u32>,
}

/// `GET /runs/{run}/neighbours/{item}`
pub(super) async fn neighbours(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let id = request.event();
    about_run(&state, request, move |view, _, _| {
        let trace = &view.run.trace;
        let event = trace.event(id?);
        let event = event.ok_or_else(|| Problem::no_such_event("id"))?;
        let (prev, next) = trace.prev_next(event.id);
        let number = |id: Option<EventId>| id.map(|id| id.0);
        Ok(Json(Neighbours {
            prev: number(prev),
            next: number(next),
            parent: number(event.parent),
            first_child: number(trace.first_child(event.id)),
        }))
    })
    .await
}

/// `GET /runs/{run}/flows`
pub(super) async fn flows(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, |view, params, cancel| {
        let text = params.required("event")?;
        let hops = params.number("hops", 3, 1..=8)?;
        let no_such_event = || Problem::no_such_event("event");
        let id = EventId(text.parse().ok().ok_or_else(no_such_event)?);
        view.run.trace.event(id).ok_or_else(no_such_event)?;
        Ok(Json(flows_around(view, id, hops, cancel)?))
    })
    .await
}

/// Searches breadth first in both directions; expands each event once per direction.
fn flows_around(
    view: &RunView,
    id: EventId,
    hops: i32,
    cancel: &Cancel,
) -> Result<FlowsAnswer, Problem> {
    let trace = &view.run.trace;
    let mut edges: Vec<(FlowEdge, i32)> = Vec::new();
    let mut truncated = false;
    for direction in [-1, 1] {
        let mut seen = std::collections::HashSet::from([id]);
        let mut border = vec![id];
        for hop in 1..=hops {
            let mut next = Vec::new();
            for event in border {
                cancel.check()?;
                let links = match direction {
                    1 => trace.flows_out(event),
                    _ => trace.flows_in(event),
                };
                for link in links {
                    if edges.len() >= MAX_EDGES {
                        truncated = true;
                        break;
                    }
                    let other = if direction == 1 { link.to } else { link.from };
                    edges.push((link, hop * direction));
                    if seen.insert(other) {
                        next.push(other);
                    }
                }
            }
            border = next;
        }
    }
    let ends = edges.iter().flat_map(|(edge, _)| [edge.from, edge.to]);
    let mut events: Vec<EventId> = std::iter::once(id).chain(ends).collect();
    events.sort_unstable();
    events.dedup();
    Ok(FlowsAnswer {
        edges: edges
            .into_iter()
            .map(|(edge, hop)| FlowRow {
                from: edge.from.0,
                to: edge.to.0,
                kind: trace.name(edge.key.category).to_owned(),
                hop,
            })
            .collect(),
        events: events
            .into_iter()
            .filter_map(|id| EventSummary::from_event(view, id))
            .collect(),
        truncated,
    })
}
