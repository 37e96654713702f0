//! `tracks` and `flows`.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use stepscope_model::{Time, TrackKind};
use stepscope_store::{FlowEdge, Trace, Track};

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(super) const TRACKS: Table = Table {
    name: "tracks",
    row: "a track, or a group of tracks",
    columns: &[
        common::RUN,
        common::TRACK_ID,
        column(
            "key",
            Type::Text,
            "Stable key: the same file gives the same keys",
        ),
        column("name", Type::Text, "Name"),
        column(
            "path",
            Type::Text,
            "Names of its groups and its own, joined by ' > '",
        ),
        column(
            "kind",
            Type::Text,
            "'group', 'thread', 'device', 'async', 'counter' or 'steps'",
        ),
        column("parent_track_id", Type::Int, "The enclosing group"),
        column("file", Type::Int, "File: `files.file`"),
        common::HOST,
        common::RANK,
        column("pid", Type::BigInt, "Process"),
        column("tid", Type::BigInt, "Thread"),
        common::DEVICE,
        common::STREAM,
        column("unit", Type::Text, "Unit of a counter's values"),
        column("derived", Type::Bool, "Computed by a tool"),
        column("slices", Type::BigInt, "Slices").unit("count"),
        column("instants", Type::BigInt, "Instants").unit("count"),
        column("samples", Type::BigInt, "Samples").unit("count"),
        column("busy_ps", Type::BigInt, "Union of its slices").unit("ps"),
        column("first_ps", Type::BigInt, "Its first event").unit("ps"),
        column("last_ps", Type::BigInt, "End of its last event").unit("ps"),
    ],
    list: |data| Ok(Arc::new(tracks(data)?)),
};

const fn kind(track: &Track) -> &'static str {
    match track.kind {
        TrackKind::Group => "group",
        TrackKind::Thread => "thread",
        TrackKind::DeviceQueue => "device",
        TrackKind::Async => "async",
        TrackKind::Counter => "counter",
        TrackKind::Steps => "steps",
        _ => "other",
    }
}

fn tracks(data: &RunData) -> Result<RecordBatch> {
    let mut rows = Rows::new(TRACKS.columns);
    for track in data.trace().tracks() {
        let (first, last) = range(data.trace(), track);
        rows.push([
            (&data.key).into(),
            track.id.0.into(),
            (&track.key).into(),
            (&track.name).into(),
            path(data, track).into(),
            kind(track).into(),
            track.parent.map(|parent| parent.0).into(),
            track.file.into(),
            data.host(track.file).into(),
            data.rank(track.file).into(),
            track.pid.into(),
            track.tid.into(),
            track.device.into(),
            track.stream.into(),
            track.unit.as_ref().into(),
            track.derived.into(),
            track.slices.into(),
            track.instants.into(),
            track.samples.into(),
            track.busy.into(),
            first.into(),
            last.into(),
        ]);
    }
    rows.finish()
}

/// Returns the first time of a track's events, and the last.
fn range(trace: &Trace, track: &Track) -> (Option<Time>, Option<Time>) {
    let slices = trace.slices(track.id);
    let instants = trace.instants(track.id).at;
    let samples = trace.samples(track.id).at;
    let first = [slices.start, instants, samples].map(|times| times.first().copied());
    let ends = (0..slices.len()).map(|index| slices.end(index));
    let last = [
        ends.max(),
        instants.last().copied(),
        samples.last().copied(),
    ];
    (
        first.into_iter().flatten().min(),
        last.into_iter().flatten().max(),
    )
}

fn path(data: &RunData, track: &Track) -> String {
    let mut names = vec![track.name.as_str()];
    let mut parent = track.parent;
    // Groups nest a few levels deep; the bound holds in a damaged image.
    while let Some(group) = parent
        .and_then(|group| data.track(group))
        .filter(|_| names.len() < 64)
    {
        names.push(&group.name);
        parent = group.parent;
    }
    names.reverse();
    names.join(" > ")
}

pub(crate) const FLOWS: Table = Table {
    name: "flows",
    row: "a link from an event to another",
    columns: &[
        common::RUN,
        column("from_id", Type::BigInt, "The event at which it starts").unit("event"),
        column("to_id", Type::BigInt, "The event at which it ends").unit("event"),
        column("kind", Type::Text, "Category of links in the file"),
        column("key", Type::BigInt, "Number of the link in its category"),
    ],
    list: |data| Ok(Arc::new(flows(data)?)),
};

fn flows(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let mut rows = Rows::new(FLOWS.columns);
    for (number, edge) in trace.flow_edges().enumerate() {
        if number % (1 << 16) == 0 {
            data.cancel().check().map_err(stopped)?;
        }
        push_flow(&mut rows, data, edge);
    }
    rows.finish()
}

/// Adds the row of a link.
pub(crate) fn push_flow(rows: &mut Rows, data: &RunData, edge: FlowEdge) {
    rows.push([
        (&data.key).into(),
        data.id(edge.from).into(),
        data.id(edge.to).into(),
        data.trace().name(edge.key.category).into(),
        // All 64 bits.
        edge.key.id.cast_signed().into(),
    ]);
}
