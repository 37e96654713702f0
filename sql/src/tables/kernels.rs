//! `kernels`: every piece of work on a device, with the call that launched it and the operator behind that.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::error::Result;
use rustc_hash::FxHashMap;
use stepscope_analysis::device::{Devices, Work};
use stepscope_analysis::kernels::{
    KernelOccurrence, copy_direction, occurrences, uses_tensor_cores,
};
use stepscope_analysis::launch::{Config, Launches, dims_text, operation};
use stepscope_analysis::names::NameSet;
use stepscope_analysis::ops::framework_op_of;
use stepscope_analysis::ops::hlo::Catalogue;
use stepscope_analysis::ops::rates::done;
use stepscope_engine::report::demangle::demangled;
use stepscope_engine::report::report::short_symbol_name;
use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_model::{Dur, NameId, Time, TrackId};
use stepscope_store::{EventId, Slices, Trace, Track};

use super::listing::{Listing, Table};
use super::stopped;
use crate::rows::Rows;
use crate::run_data::RunData;
use crate::schema::{Column, Type, column, common};

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
    list: kernels,
};

/// Texts of one name.
#[derive(Debug)]
struct Name {
    shown: String,
    short: String,
    direction: Option<&'static str>,
    tensor_core: bool,
}

impl Name {
    fn new(raw: &str) -> Self {
        let shown = demangled(raw).unwrap_or_else(|| raw.to_owned());
        Self {
            short: short_symbol_name(&shown).into_owned(),
            direction: copy_direction(raw),
            tensor_core: uses_tensor_cores(raw),
            shown,
        }
    }
}

/// A piece of work, and how long it waited for what its stream did before.
#[derive(Debug)]
struct Queued {
    work: KernelOccurrence,
    queued: Option<Dur>,
}

#[derive(Debug)]
struct KernelListing {
    list: Vec<Queued>,
    names: FxHashMap<NameId, Name>,
    catalogue: Catalogue,
    /// Names of calls of the model's modules.
    modules: NameSet,
}

fn kernels(data: &RunData) -> Result<Arc<dyn Listing>> {
    let trace = data.trace();
    let devices = Devices::from_trace(trace, data.cancel()).map_err(stopped)?;
    let mut all = KernelListing {
        list: Vec::new(),
        names: FxHashMap::default(),
        catalogue: Catalogue::default(),
        modules: NameSet::matching(trace, |name| name.starts_with(MODULE_CALL)),
    };
    if devices.list.is_empty() {
        return Ok(Arc::new(all));
    }
    let none = Launches::default();
    let launches = data.launches().unwrap_or(&none);
    let found = occurrences(trace, &devices, launches, &trace.span(), data.cancel());
    all.catalogue = Catalogue::from_trace(trace);
    let mut queue = Queue::default();
    for (number, work) in found.map_err(stopped)?.into_iter().enumerate() {
        if number % 4_096 == 0 {
            data.cancel().check().map_err(stopped)?;
        }
        let name = name_of_work(trace, &work);
        let texts = || Name::new(trace.name(name));
        all.names.entry(name).or_insert_with(texts);
        let queued = queue.add(trace, &work);
        all.list.push(Queued { work, queued });
    }
    Ok(Arc::new(all))
}

fn name_of_work(trace: &Trace, work: &KernelOccurrence) -> NameId {
    let names = trace.slices(work.track).name;
    names.get(work.index).copied().unwrap_or_default()
}

impl Listing for KernelListing {
    fn row_count(&self) -> usize {
        self.list.len()
    }

    fn read(
        &self,
        data: &RunData,
        rows: Range<usize>,
        columns: &[&'static Column],
    ) -> Result<Vec<ArrayRef>> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let mut all = Rows::new(KERNELS.columns);
        let reads_args = columns
            .iter()
            .any(|column| FROM_ARGS.contains(&column.name));
        let mut steps = None;
        for queued in self.list.get(rows).unwrap_or_default() {
            if let Some(track) = data.track(queued.work.track) {
                let of_track = steps.take().filter(|(of, _)| *of == track.id);
                let mut of_track =
                    of_track.unwrap_or_else(|| (track.id, data.steps_of_slices(track)));
                let step = of_track.1.step(queued.work.index);
                self.push(data, track, (queued, step), reads_args, &mut all);
                steps = Some(of_track);
            }
        }
        let all = all.finish()?;
        let asked = columns
            .iter()
            .filter_map(|column| all.column_by_name(column.name));
        Ok(asked.map(Arc::clone).collect())
    }
}

/// Columns that come from arguments, which are decoded from the file.
const FROM_ARGS: [&str; 9] = [
    "correlation",
    "grid",
    "block",
    "threads",
    "registers",
    "shared_bytes",
    "occupancy",
    "bytes",
    "graph_id",
];

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

impl KernelListing {
    fn push(
        &self,
        data: &RunData,
        track: &Track,
        (queued, step): (&Queued, Option<i64>),
        reads_args: bool,
        rows: &mut Rows,
    ) {
        let trace = data.trace();
        let work = &queued.work;
        let name = name_of_work(trace, work);
        let raw = trace.name(name);
        let Some(texts) = self.names.get(&name) else {
            return;
        };
        let config = if reads_args {
            Config::from_event(trace, work.event)
        } else {
            Config::default()
        };
        let op = work.launch.and_then(|launch| operation(trace, launch));
        let is_compiled = of_compiled_programs(trace, track.file);
        let compiled = is_compiled.then(|| framework_op_of(trace, &self.catalogue, work.event));
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
            step.into(),
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
            work.launch
                .and_then(|launch| self.layer(trace, launch))
                .into(),
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
            queued.queued.into(),
            counts.and_then(|done| whole(done.flops)).into(),
        ]);
    }
}

impl KernelListing {
    /// Returns the innermost module of the model around a slice.
    fn layer<'a>(&self, trace: &'a Trace, id: EventId) -> Option<&'a str> {
        if self.modules.is_empty() {
            return None;
        }
        let (track, index) = trace.place_of_slice(id)?;
        layer_of(trace, &trace.slices(track), &self.modules, index)
    }
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

/// Returns the module of the model that a slice of a track is, or lies in.
pub(super) fn layer_of<'a>(
    trace: &'a Trace,
    slices: &Slices<'_>,
    modules: &NameSet,
    mut index: usize,
) -> Option<&'a str> {
    loop {
        let name = *slices.name.get(index)?;
        if modules.contains(name) {
            return trace.name(name).strip_prefix(MODULE_CALL);
        }
        index = *slices.parent.get(index)? as usize;
    }
}
