//! `devices` and `gaps`: accelerators, and the times in which they ran nothing.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use rustc_hash::FxHashMap;
use stepscope_analysis::device::Devices;
use stepscope_analysis::idle::{Gap, IdleCause, idle};
use stepscope_analysis::launch::Launches;
use stepscope_analysis::memory::owners::device_bytes;
use stepscope_model::Time;
use stepscope_store::EventId;

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Column, Type, column, common};

const fn time(name: &'static str, meaning: &'static str) -> Column {
    column(name, Type::BigInt, meaning).unit("ps")
}

pub(super) const DEVICES: Table = Table {
    name: "devices",
    row: "an accelerator with work",
    columns: &[
        common::RUN,
        common::HOST,
        common::RANK,
        common::DEVICE,
        column("name", Type::Text, "Name of its group of tracks"),
        column("streams", Type::Int, "Queues with work").unit("count"),
        column("compute", Type::BigInt, "Computations").unit("count"),
        column("communication", Type::BigInt, "Collectives and transfers").unit("count"),
        column("memcpy", Type::BigInt, "Copies").unit("count"),
        column("memset", Type::BigInt, "Memsets").unit("count"),
        time("start_ps", "Start of the first work"),
        time("dur_ps", "From the first work to the end of the last"),
        time("busy_ps", "Any work runs, no waits"),
        time("compute_ps", "A computation runs"),
        time("communication_ps", "Communication runs"),
        time(
            "exposed_communication_ps",
            "Communication that computation does not hide",
        ),
        time("copy_ps", "A copy or memset runs"),
        time("idle_ps", "Nothing runs"),
        column(
            "memory_bytes",
            Type::BigInt,
            "Its memory, if the file states it",
        )
        .unit("bytes"),
    ],
    list: |data| Ok(Arc::new(devices(data)?)),
};

fn devices(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let found = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let mut rows = Rows::new(DEVICES.columns);
    for device in &found.list {
        let times = found.times_in(device, device.span.clone(), data.cancel());
        let times = times.map_err(stopped)?;
        let [compute, communication, memcpy, memset] = device.counts;
        rows.push([
            (&data.key).into(),
            data.host(device.file).into(),
            data.rank(device.file).into(),
            device.ordinal.into(),
            (&device.name).into(),
            device.queues.len().into(),
            compute.into(),
            communication.into(),
            memcpy.into(),
            memset.into(),
            device.span.start.into(),
            device.span.end.since(device.span.start).into(),
            times.busy().into(),
            times.compute().into(),
            times.communication().into(),
            times.exposed_communication().into(),
            times.copy().into(),
            times.idle().into(),
            memory_bytes(data, device.file, device.ordinal).into(),
        ]);
    }
    rows.finish()
}

/// Returns the memory of a device, from the facts of its file.
fn memory_bytes(data: &RunData, file: usize, device: u32) -> Option<i64> {
    let file = data.trace().files().get(file)?;
    device_bytes(file, device)
}

pub(super) const GAPS: Table = Table {
    name: "gaps",
    row: "a time in which an accelerator ran nothing",
    columns: &[
        common::RUN,
        common::HOST,
        common::RANK,
        common::DEVICE,
        common::START_PS,
        common::DUR_PS,
        column(
            "cause",
            Type::Text,
            "Cause of most of it, as in the report idle",
        ),
        time(
            "host_ps",
            "The launching thread was busy with something else",
        ),
        time("launch_ps", "From the call to the start of the work"),
        time(
            "synchronisation_ps",
            "The launching thread waited for the device",
        ),
        time(
            "input_ps",
            "The launching thread waited for input, or prepared it",
        ),
        time("communication_ps", "The launching thread communicated"),
        time("unknown_ps", "The file does not show the cause"),
        column(
            "before_id",
            Type::BigInt,
            "The work that ended last before it",
        )
        .unit("event"),
        column("after_id", Type::BigInt, "The work that ended it").unit("event"),
        column(
            "launch_id",
            Type::BigInt,
            "The call that launched that work",
        )
        .unit("event"),
        common::STEP,
    ],
    list: |data| Ok(Arc::new(gaps(data)?)),
};

fn gaps(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let devices = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let none = Launches::default();
    let launches = data.launches().unwrap_or(&none);
    let found = idle(trace, &devices, launches, None, data.cancel()).map_err(stopped)?;
    let before = before(data, &devices, &found.gaps)?;
    let mut rows = Rows::new(GAPS.columns);
    for gap in &found.gaps {
        let Some(device) = devices.list.get(gap.device) else {
            continue;
        };
        let of = |cause: IdleCause| {
            let at = IdleCause::ALL.iter().position(|known| *known == cause);
            at.and_then(|at| gap.causes.get(at)).copied()
        };
        let step = gap.next.and_then(|next| {
            let (track, index) = trace.place_of_slice(next)?;
            data.step(data.track(track)?, index)
        });
        rows.push([
            (&data.key).into(),
            data.host(device.file).into(),
            data.rank(device.file).into(),
            device.ordinal.into(),
            gap.start.into(),
            gap.dur().into(),
            gap.cause().as_str().into(),
            of(IdleCause::Host).into(),
            of(IdleCause::Launch).into(),
            of(IdleCause::Synchronisation).into(),
            of(IdleCause::Input).into(),
            of(IdleCause::Communication).into(),
            of(IdleCause::Unknown).into(),
            before
                .get(&(gap.device, gap.start))
                .map(|event| data.id(*event))
                .into(),
            gap.next.map(|event| data.id(event)).into(),
            gap.launch.map(|event| data.id(event)).into(),
            step.into(),
        ]);
    }
    rows.finish()
}

/// Returns the work that ends where each gap starts, by device and start of the gap.
fn before(
    data: &RunData,
    devices: &Devices<'_>,
    gaps: &[Gap],
) -> Result<FxHashMap<(usize, Time), EventId>> {
    let mut starts: FxHashMap<(usize, Time), Option<EventId>> = gaps
        .iter()
        .map(|gap| ((gap.device, gap.start), None))
        .collect();
    for (number, device) in devices.list.iter().enumerate() {
        for queue in &device.queues {
            data.cancel().check().map_err(stopped)?;
            let slices = data.trace().slices(queue.track);
            for index in 0..slices.len() {
                if let Some(event) = starts.get_mut(&(number, slices.end(index)))
                    && devices.work(queue.track, index).is_some()
                {
                    event.get_or_insert(slices.id(index));
                }
            }
        }
    }
    let known = starts
        .into_iter()
        .filter_map(|(key, event)| Some((key, event?)));
    Ok(known.collect())
}
