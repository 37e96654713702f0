//! Serialized tracks.

use serde::Serialize;
use stepscope_model::TrackKind;
use stepscope_store::Track;

use super::run::none_if_empty;
use crate::ns::Ns;
use crate::view::RunView;

/// A track.
#[derive(Serialize)]
pub(crate) struct TrackRow {
    id: u32,
    key: String,
    parent: Option<u32>,
    name: String,
    kind: &'static str,
    role: &'static str,
    rows: u16,
    overlap_rows: u16,
    events: u64,
    busy_ns: Option<Ns>,
    first_ns: Option<Ns>,
    last_ns: Option<Ns>,
    unit: Option<String>,
    host: Option<String>,
    rank: Option<u32>,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    derived: bool,
    hidden: bool,
}

/// Number of threads above which quiet ones are hidden.
const MANY_THREADS: usize = 24;
/// Maximum number of events of a track that only has marks of a profiler.
const MOST_MARKS: u64 = 4;

/// Returns whether a track has only a profiler's own marks, like `Spans`, `Traces` and `global` of
/// torch's files: a few events without process, thread and device.
fn is_bookkeeping(track: &Track) -> bool {
    track.kind == TrackKind::Thread
        && track.pid.is_none()
        && track.tid.is_none()
        && track.device.is_none()
        && u64::from(track.slices) + u64::from(track.instants) <= MOST_MARKS
}

/// Returns all tracks in display order.
pub(crate) fn tracks(view: &RunView) -> Vec<TrackRow> {
    let trace = &view.run.trace;
    let all = trace.tracks();
    let clock = view.clock();
    let threads = all
        .iter()
        .filter(|track| track.kind == TrackKind::Thread && track.slices > 0);
    let many = threads.count() > MANY_THREADS;
    let run_ps = view.span().end.since(view.span().start).ps();
    let has_more = |track: &Track| track.slices + track.instants > 0 && !is_bookkeeping(track);
    let has_more = all.iter().any(has_more);
    // Hidden: profiler marks, and of many threads those busy for less than a thousandth of the run.
    let hidden: Vec<bool> = all
        .iter()
        .map(|track| match track.kind {
            TrackKind::Counter => track.samples == 0,
            TrackKind::Group => false,
            kind => {
                let empty = track.slices == 0 && track.instants == 0;
                let quiet = many
                    && kind == TrackKind::Thread
                    && track.slices < 64
                    && track.busy.ps() < run_ps / 1_000;
                empty || quiet || (has_more && is_bookkeeping(track))
            }
        })
        .collect();
    let mut out = Vec::with_capacity(all.len());
    for &id in view.order() {
        let Some(track) = all.get(id.index()) else {
            continue;
        };
        let has_slices = track.slices > 0;
        let role = role(track.kind);
        let kind = match track.kind {
            TrackKind::Group => "group",
            TrackKind::Counter => "counter",
            _ if !has_slices && track.instants > 0 => "instant",
            _ => "slices",
        };
        let events = if track.kind == TrackKind::Counter {
            u64::from(track.samples)
        } else {
            u64::from(track.slices) + u64::from(track.instants)
        };
        let extent = view.extent(id);
        let file = trace.files().get(track.file);
        // A group is hidden if all its tracks are hidden.
        let hidden = match track.kind {
            TrackKind::Group => view
                .subtree(id)
                .iter()
                .filter(|&&below| !matches!(all[below.index()].kind, TrackKind::Group))
                .all(|below| hidden[below.index()]),
            _ => hidden[id.index()],
        };
        out.push(TrackRow {
            id: id.0,
            key: track.key.clone(),
            parent: track.parent.map(|parent| parent.0),
            name: track.name.clone(),
            kind,
            role,
            rows: if has_slices {
                track.rows
            } else {
                u16::from(track.instants > 0)
            },
            overlap_rows: track.overflow_rows,
            events,
            busy_ns: has_slices.then(|| Ns::from_dur(track.busy)),
            first_ns: extent.as_ref().map(|extent| clock.show(extent.start)),
            last_ns: extent.as_ref().map(|extent| clock.show(extent.end)),
            unit: track.unit.clone(),
            host: file.and_then(|file| none_if_empty(&file.spec.host)),
            rank: file.and_then(|file| file.spec.rank),
            pid: track.pid,
            tid: track.tid,
            device: track.device,
            stream: track.stream,
            derived: track.derived,
            hidden,
        });
    }
    out
}

fn role(kind: TrackKind) -> &'static str {
    match kind {
        TrackKind::Group => "group",
        TrackKind::DeviceQueue => "queue",
        TrackKind::Async => "async",
        TrackKind::Counter => "counter",
        TrackKind::Steps => "steps",
        _ => "thread",
    }
}
