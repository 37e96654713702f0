//! `collectives`: each participant's part of each collective.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use rustc_hash::FxHashMap;
use stepscope_analysis::collectives::{CollectiveCall, Collectives, calls, collectives as find};
use stepscope_analysis::device::Devices;
use stepscope_analysis::launch::Launches;
use stepscope_model::{Dur, Time};

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(crate) const COLLECTIVES: Table = Table {
    name: "collectives",
    row: "a participant's part of a collective",
    columns: &[
        common::RUN,
        column(
            "collective",
            Type::BigInt,
            "The same for all parts of one collective",
        ),
        column(
            "sequence",
            Type::BigInt,
            "Position among the collectives of its kind and group at this participant",
        ),
        column("kind", Type::Text, "Operation, such as 'all-reduce'"),
        column("process_group", Type::Text, "Name of the group in the file"),
        column("group_size", Type::Int, "Ranks in the group").unit("count"),
        column("dtype", Type::Text, "Element type"),
        column(
            "bytes",
            Type::BigInt,
            "Size that bandwidths are computed from",
        )
        .unit("bytes"),
        common::HOST,
        common::RANK,
        common::DEVICE,
        common::ID,
        common::STEP,
        common::START_PS,
        common::DUR_PS,
        column(
            "aligned_start_ps",
            Type::BigInt,
            "Start on the clock of the first file",
        )
        .unit("ps"),
        column("late_ps", Type::BigInt, "Behind the first participant").unit("ps"),
        column("wait_ps", Type::BigInt, "Until the last participant").unit("ps"),
        column(
            "transfer_ps",
            Type::BigInt,
            "From the last start to the last end",
        )
        .unit("ps"),
        column(
            "hidden_ps",
            Type::BigInt,
            "Time in which the device also computed",
        )
        .unit("ps"),
        column(
            "comparable",
            Type::Bool,
            "Whether the starts differ by more than the error of the clocks",
        ),
        column(
            "algorithm_bytes_per_second",
            Type::Double,
            "Bytes over transfer time",
        )
        .unit("bytes_per_second"),
        column(
            "bus_bytes_per_second",
            Type::Double,
            "Bus bandwidth as nccl-tests has it",
        )
        .unit("bytes_per_second"),
    ],
    list: |data| Ok(Arc::new(collectives(data)?)),
};

fn collectives(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let devices = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let none = Launches::default();
    let launches = data.launches().unwrap_or(&none);
    let found = find(trace, &devices, launches, data.cancel()).map_err(stopped)?;
    collective_rows(&data.key, &found, |call| Labels {
        host: data.host(call.who.file),
        rank: data.rank(call.who.file),
        id: data.id(call.event),
        step: step_of(data, call),
    })
}

fn step_of(data: &RunData, call: &CollectiveCall) -> Option<i64> {
    let trace = data.trace();
    let track = data.track(trace.track_of(call.event)?)?;
    let (_, index) = trace.place_of_slice(call.event)?;
    data.step(track, index)
}

/// What the tables say of a call, beyond what is compared between participants.
pub(crate) struct Labels<'a> {
    /// Host of its file.
    pub(crate) host: &'a str,
    /// Rank of its file.
    pub(crate) rank: Option<u32>,
    /// Id of its event.
    pub(crate) id: i64,
    /// Its step.
    pub(crate) step: Option<i64>,
}

/// Returns the rows of `collectives`.
pub(crate) fn collective_rows<'a>(
    key: &str,
    found: &Collectives,
    labels: impl Fn(&CollectiveCall) -> Labels<'a>,
) -> Result<RecordBatch> {
    let mut rows = Rows::new(COLLECTIVES.columns);
    let mut counts: FxHashMap<_, i64> = FxHashMap::default();
    let sequences: Vec<i64> = found
        .parts
        .iter()
        .map(|call| {
            let count = counts
                .entry((call.who, call.kind, &call.group, &call.operation))
                .or_default();
            *count += 1;
            *count - 1
        })
        .collect();
    for (number, collective) in found.collectives.iter().enumerate() {
        let parts = || {
            collective
                .parts
                .iter()
                .filter_map(|at| Some((*at, found.parts.get(*at)?)))
        };
        let aligned = |file, start: Time| start.saturating_add(found.shift(file));
        let starts = || parts().map(|(_, call)| aligned(call.who.file, call.start));
        let (first, last) = (starts().min(), starts().max());
        let several = collective.parts.len() > 1;
        let rates = found.bandwidths(collective);
        for (at, call) in parts() {
            let start = aligned(call.who.file, call.start);
            let since = |from: Option<Time>| from.filter(|_| several);
            let labels = labels(call);
            rows.push([
                key.into(),
                number.into(),
                sequences.get(at).copied().into(),
                call.kind.as_str().into(),
                (&call.group).into(),
                found.group_size(call).into(),
                (&call.dtype).into(),
                call.bytes.into(),
                labels.host.into(),
                labels.rank.into(),
                call.who.device.into(),
                labels.id.into(),
                labels.step.into(),
                call.start.into(),
                call.dur().into(),
                start.into(),
                since(first).map(|first| start.since(first)).into(),
                since(last).map(|last| last.since(start)).into(),
                collective.transfer.into(),
                call.hidden.map(Dur::ps).into(),
                found.comparable(collective).into(),
                rates.map(|rates| rates.0).into(),
                rates.and_then(|rates| rates.1).into(),
            ]);
        }
    }
    rows.finish()
}

/// The calls of one file, as they are found: what [`collective_rows`] needs of it when it compares the files of a run
/// that were read one by one. No session has this table.
pub(crate) const CALLS: Table = Table {
    name: "collective_calls",
    row: "a call of a collective",
    columns: &[
        common::DEVICE,
        common::ID,
        common::STEP,
        common::START_PS,
        common::DUR_PS,
        column("kind", Type::Text, "Operation"),
        column("process_group", Type::Text, "Name of the group in the file"),
        column(
            "operation",
            Type::Text,
            "Name that calls are matched by if the group is unknown",
        ),
        column(
            "group_size",
            Type::Int,
            "Ranks in the group, if the file has it",
        ),
        column("dtype", Type::Text, "Element type"),
        column("bytes", Type::BigInt, "Size").unit("bytes"),
        column(
            "hidden_ps",
            Type::BigInt,
            "Time in which the device also computed",
        )
        .unit("ps"),
    ],
    list: |data| Ok(Arc::new(collective_calls(data)?)),
};

pub(crate) fn collective_calls(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let devices = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let none = Launches::default();
    let launches = data.launches().unwrap_or(&none);
    let found = calls(trace, &devices, launches, data.cancel()).map_err(stopped)?;
    let mut rows = Rows::new(CALLS.columns);
    for call in &found {
        rows.push([
            call.who.device.into(),
            data.id(call.event).into(),
            step_of(data, call).into(),
            call.start.into(),
            call.dur().into(),
            call.kind.as_str().into(),
            (&call.group).into(),
            (&call.operation).into(),
            call.group_size.into(),
            (&call.dtype).into(),
            call.bytes.into(),
            call.hidden.map(Dur::ps).into(),
        ]);
    }
    rows.finish()
}

pub(crate) const CLOCKS: Table = Table {
    name: "clocks",
    row: "the clock of a file with collectives, compared with the first one's",
    columns: &[
        common::RUN,
        column("file", Type::Int, "File: `files.file`"),
        common::HOST,
        common::RANK,
        column("collectives", Type::BigInt, "Collectives that both have").unit("count"),
        column(
            "estimate_ps",
            Type::BigInt,
            "Offset at which their ends coincide best",
        )
        .unit("ps"),
        column(
            "applied_ps",
            Type::BigInt,
            "Applied offset: 0 if the files' own clocks can be right",
        )
        .unit("ps"),
        column("error_ps", Type::BigInt, "Maximum error of a time").unit("ps"),
        column(
            "arrival_error_ps",
            Type::BigInt,
            "Maximum error of the start of a collective",
        )
        .unit("ps"),
    ],
    list: |data| Ok(Arc::new(clocks(data)?)),
};

fn clocks(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let devices = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let none = Launches::default();
    let launches = data.launches().unwrap_or(&none);
    let found = find(trace, &devices, launches, data.cancel()).map_err(stopped)?;
    clock_rows(&data.key, &found, |file| (data.host(file), data.rank(file)))
}

/// Returns the rows of `clocks`; `host` returns host and rank of a file.
pub(crate) fn clock_rows<'a>(
    key: &str,
    found: &Collectives,
    host: impl Fn(usize) -> (&'a str, Option<u32>),
) -> Result<RecordBatch> {
    let mut rows = Rows::new(CLOCKS.columns);
    for clock in &found.clocks {
        let (host, rank) = host(clock.file);
        rows.push([
            key.into(),
            clock.file.into(),
            host.into(),
            rank.into(),
            clock.shared.into(),
            clock.estimate.into(),
            clock.applied.into(),
            clock.error().into(),
            clock.arrival_error().into(),
        ]);
    }
    rows.finish()
}
