//! `kernels`: every piece of work on a device, with the call that launched it and the operator behind that.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use rustc_hash::FxHashMap;
use stepscope_analysis::device::{Devices, Work};
use stepscope_analysis::kernels::{
    KernelOccurrence, copy_direction, occurrences, uses_tensor_cores,
};
use stepscope_analysis::launch::{Config, Launches, dims_text, operation};
use stepscope_analysis::ops::framework_op_of;
use stepscope_analysis::ops::hlo::Catalogue;
use stepscope_analysis::ops::rates::done;
use stepscope_engine::report::demangle::demangled;
use stepscope_engine::report::report::short_symbol_name;
use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_model::{Dur, NameId, Time, TrackId};
use stepscope_store::{EventId, Trace};

use super::{Table, stopped};
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Type, column, common};

pub(super) const KERNELS: Table = Table {
    name: "kernels",
    row: "a kernel, copy or memset on a device",
    columns: &[
        common::RUN,
        common::ID,
        common::TRACK_ID,
        common::HOST,
        common::RANK,
        common::DEVICE,
        common::STREAM,
        common::STEP,
        common::START_PS,
        column(
            "dur_ps",
            Type::BigInt,
            "Duration, by the device's own clock where the file has it",
        )
        .unit("ps"),
        column("name", Type::Text, "Name, demangled"),
        column(
            "short_name",
            Type::Text,
            "Name as tables for people show it",
        ),
        column("raw_name", Type::Text, "Name in the file"),
        column(
            "work",
            Type::Text,
            "'compute', 'communication', 'memcpy' or 'memset'",
        ),
        column("launch_id", Type::BigInt, "The call that launched it").unit("event"),
        column("launch_start_ps", Type::BigInt, "Start of that call").unit("ps"),
        column("launch_dur_ps", Type::BigInt, "Duration of that call").unit("ps"),
        column(
            "delay_ps",
            Type::BigInt,
            "From the end of the call to the start of the work; 0 when it started before",
        )
        .unit("ps"),
        column("op_id", Type::BigInt, "The operator around the call").unit("event"),
        column(
            "op_name",
            Type::Text,
            "Its name; of compiled programs the framework operation",
        ),
        column(
            "layer",
            Type::Text,
            "The module of the model around the call",
        ),
        column(
            "correlation",
            Type::BigInt,
            "Number that the work shares with the call",
        ),
        column("grid", Type::Text, "Blocks in each dimension"),
        column("block", Type::Text, "Threads of a block in each dimension"),
        column("threads", Type::BigInt, "Threads in all").unit("count"),
        column("registers", Type::Int, "Registers per thread").unit("count"),
        column("shared_bytes", Type::BigInt, "Shared memory per block").unit("bytes"),
        column(
            "occupancy",
            Type::Double,
            "Achieved occupancy, as the driver estimates it",
        )
        .unit("share"),
        column("bytes", Type::BigInt, "Bytes that a copy moves").unit("bytes"),
        column(
            "tensor_core",
            Type::Bool,
            "Whether the name is that of a kernel on tensor cores",
        ),
        column(
            "graph_id",
            Type::BigInt,
            "Number of the CUDA graph that it is a node of",
        ),
        column(
            "direction",
            Type::Text,
            "Of a copy: 'host to device', 'device to host', 'between devices' or 'within the device'",
        ),
        column(
            "queue_ps",
            Type::BigInt,
            "The part of 'delay_ps' until the work before it on the stream ended",
        )
        .unit("ps"),
        column(
            "flops",
            Type::BigInt,
            "Floating-point operations of a compiled operation, where the file counts them",
        )
        .unit("count"),
    ],
    build: kernels,
};

/// Texts of one name.
struct Name {
    shown: String,
    short: String,
    direction: Option<&'static str>,
    tensor_core: bool,
}

fn kernels(data: &RunData) -> Result<RecordBatch> {
    let trace = data.trace();
    let devices = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let mut rows = Rows::new(KERNELS.columns);
    if devices.list.is_empty() {
        return rows.finish();
    }
    let none = Launches::default();
    let launches = data.launches().unwrap_or(&none);
    let found = occurrences(trace, &devices, launches, &trace.span(), data.cancel());
    let catalogue = Catalogue::from_trace(trace);
    let mut names: FxHashMap<NameId, Name> = FxHashMap::default();
    let mut queue = Queue::default();
    for (number, work) in found.map_err(stopped)?.iter().enumerate() {
        if number % 4_096 == 0 {
            data.cancel().check().map_err(stopped)?;
        }
        let queued = queue.add(trace, work);
        push(data, &catalogue, (work, queued), &mut names, &mut rows);
    }
    rows.finish()
}

/// The stream whose work is being read, in order of time.
#[derive(Default)]
struct Queue {
    track: Option<TrackId>,
    /// End of its work so far.
    end: Option<Time>,
}

impl Queue {
    /// Adds the next work, and returns how long it waited for what its stream did before; `None` without a call.
    fn add(&mut self, trace: &Trace, work: &KernelOccurrence) -> Option<Dur> {
        if self.track != Some(work.track) {
            *self = Self {
                track: Some(work.track),
                end: None,
            };
        }
        let waited = work.call.map(|(_, called)| {
            let until = self.end.map_or(called, |end| end.min(work.start));
            until.since(called).max(Dur::ZERO)
        });
        let end = trace.slices(work.track).end(work.index);
        self.end = self.end.max(Some(end));
        waited
    }
}

fn push(
    data: &RunData,
    catalogue: &Catalogue,
    (work, queued): (&KernelOccurrence, Option<Dur>),
    names: &mut FxHashMap<NameId, Name>,
    rows: &mut Rows,
) {
    let trace = data.trace();
    let Some(track) = data.track(work.track) else {
        return;
    };
    let slices = trace.slices(work.track);
    let name = slices.name.get(work.index).copied().unwrap_or_default();
    let raw = trace.name(name);
    let texts = names.entry(name).or_insert_with(|| {
        let shown = demangled(raw).unwrap_or_else(|| raw.to_owned());
        Name {
            short: short_symbol_name(&shown).into_owned(),
            direction: copy_direction(raw),
            tensor_core: uses_tensor_cores(raw),
            shown,
        }
    });
    let config = Config::from_event(trace, work.event);
    let op = work.launch.and_then(|launch| operation(trace, launch));
    let is_compiled = of_compiled_programs(trace, track.file);
    let compiled = is_compiled.then(|| framework_op_of(trace, catalogue, work.event));
    let counts = is_compiled.then(|| done(trace, work.event, 1)).flatten();
    let op_name = compiled.flatten().or_else(|| {
        let op = name_of(trace, op?)?;
        Some(trace.name(op).to_owned())
    });
    let volume = |dims: [u32; 3]| dims.iter().map(|size| u64::from(*size)).product::<u64>();
    let threads = config.grid.zip(config.block);
    let threads = threads.map(|(grid, block)| volume(grid).saturating_mul(volume(block)));
    rows.push([
        (&data.key).into(),
        data.id(work.event).into(),
        work.track.0.into(),
        data.host(track.file).into(),
        data.rank(track.file).into(),
        work.device.into(),
        track.stream.into(),
        data.step(track, work.index).into(),
        work.start.into(),
        work.dur.into(),
        (&texts.shown).into(),
        (&texts.short).into(),
        raw.into(),
        work.work.as_str().into(),
        work.launch.map(|launch| data.id(launch)).into(),
        work.call.map(|(start, _)| start).into(),
        work.call.map(|(start, end)| end.since(start)).into(),
        work.delay().into(),
        op.map(|op| data.id(op)).into(),
        op_name.into(),
        work.launch.and_then(|launch| layer(trace, launch)).into(),
        config.correlation.into(),
        config.grid.map(dims_text).into(),
        config.block.map(dims_text).into(),
        threads.into(),
        config.registers.into(),
        config.shared_bytes.into(),
        config
            .occupancy_percent
            .map(|percent| percent / 100.0)
            .into(),
        config.bytes.into(),
        (work.work == Work::Compute)
            .then_some(texts.tensor_core)
            .into(),
        config.graph.into(),
        (work.work == Work::Memcpy)
            .then_some(texts.direction)
            .flatten()
            .into(),
        queued.into(),
        counts.and_then(|done| whole(done.flops)).into(),
    ]);
}

/// Returns whether the work of a file may name the operation of a compiled program that it runs, with its counts. Only
/// one format does.
fn of_compiled_programs(trace: &Trace, file: usize) -> bool {
    let file = trace.files().get(file);
    file.is_some_and(|file| file.spec.format == "xspace")
}

/// Returns a count as a whole number; `None` if it counts nothing.
pub(super) fn whole(count: f64) -> Option<i64> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a count above the limit becomes the limit"
    )]
    let count = count.round() as i64;
    (count > 0).then_some(count)
}

fn name_of(trace: &Trace, id: EventId) -> Option<NameId> {
    stepscope_analysis::kernels::name_of(trace, id)
}

/// Returns the innermost module of the model around a slice.
fn layer(trace: &Trace, id: EventId) -> Option<&str> {
    let (track, index) = trace.place_of_slice(id)?;
    layer_of(trace, track, index)
}

/// Returns the module of the model that a slice of a track is, or lies in.
pub(super) fn layer_of(trace: &Trace, track: TrackId, mut index: usize) -> Option<&str> {
    let slices = trace.slices(track);
    loop {
        let name = trace.name(*slices.name.get(index)?);
        if let Some(module) = name.strip_prefix(MODULE_CALL) {
            return Some(module);
        }
        index = *slices.parent.get(index)? as usize;
    }
}
