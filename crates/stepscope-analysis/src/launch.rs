//! Host call that launched each kernel or copy, and its launch configuration.
//!
//! A kernel's launch is the host slice that a link of the file leads from; where the file has no link, the
//! runtime call with the same `correlation` number in its arguments (the kernels of a CUDA or HIP graph share the
//! number of the call that launched the graph). The launching operation is the innermost slice around that call
//! that is no runtime call itself.

#![allow(
    clippy::similar_names,
    reason = "traces have tracks, and calls launch launches"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{ArgKeys, ArgValue, Cancelled, Dur, NameId, TrackId, TrackKind};
use stepscope_store::{EventId, Trace};

use crate::device::Devices;
use crate::names::by_text;
use crate::parallel::{self, Cancel};

/// No launch.
const NONE: u32 = u32::MAX;

/// Launches of the slices of devices' queues.
#[derive(Debug, Default)]
pub struct Launches {
    /// For each slice of a track, the id of the launching slice or [`NONE`].
    by_track: FxHashMap<TrackId, Vec<u32>>,
}

/// The launches of a trace, found on first use.
#[derive(Default)]
struct KnownLaunches(Mutex<Option<Arc<Launches>>>);

impl Launches {
    /// Returns the launches of all work of a trace's devices. They are found once, and stay with the trace.
    pub fn from_trace(
        trace: &Trace,
        devices: &Devices<'_>,
        cancel: &Cancel,
    ) -> Result<Arc<Self>, Cancelled> {
        let known = trace.derived::<KnownLaunches>();
        let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(launches) = &*known {
            return Ok(Arc::clone(launches));
        }
        let found = Arc::new(Self::find(trace, devices, cancel)?);
        *known = Some(Arc::clone(&found));
        Ok(found)
    }

    fn find(trace: &Trace, devices: &Devices<'_>, cancel: &Cancel) -> Result<Self, Cancelled> {
        let queues = || devices.list.iter().flat_map(|device| &device.queues);
        let jobs = parallel::track_chunks(
            queues().map(|queue| (queue.track, 0..trace.slices(queue.track).len())),
        );
        let found = parallel::scan(&jobs, cancel, Vec::new, |out, chunk| {
            let slices = trace.slices(chunk.track);
            let mut near = 0;
            let mut links = vec![NONE; chunk.indexes.len()];
            let mut doubtful = Vec::new();
            for (slot, index) in links.iter_mut().zip(chunk.indexes.clone()) {
                let sources = trace.flow_sources(slices.id(index), &mut near);
                let calls = sources.filter_map(|from| Some((from, host_slice(trace, from)?)));
                let Some((from, call)) = calls.last() else {
                    continue;
                };
                if is_doubtful(trace, call) {
                    doubtful.push((chunk.track, index, from.0));
                } else {
                    *slot = from.0;
                }
            }
            out.push((chunk.track, chunk.indexes.start, links, doubtful));
        })?;
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|(track, from, ..)| (*track, *from));
        let mut launches = Self::default();
        let mut all_doubtful = Vec::new();
        for (track, _, links, doubtful) in found {
            launches.by_track.entry(track).or_default().extend(links);
            all_doubtful.extend(doubtful);
        }
        launches.by_number(trace, devices, cancel)?;
        for (track, index, link) in all_doubtful {
            if let Some(slot) = launches.slot(track, index)
                && *slot == NONE
            {
                *slot = link;
            }
        }
        Ok(launches)
    }

    fn slot(&mut self, track: TrackId, index: usize) -> Option<&mut u32> {
        self.by_track.get_mut(&track)?.get_mut(index)
    }

    /// Returns the launch of a slice.
    pub fn get(&self, track: TrackId, index: usize) -> Option<EventId> {
        let launch = *self.by_track.get(&track)?.get(index)?;
        (launch != NONE).then_some(EventId(launch))
    }

    /// Estimates the memory of the links, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let links: usize = self.by_track.values().map(Vec::len).sum();
        links * size_of::<u32>()
    }

    /// Returns the calls that launched more than one slice.
    pub(crate) fn repeated(&self, trace: &Trace) -> FxHashSet<EventId> {
        let mut seen = vec![0_u64; (trace.event_count() as usize).div_ceil(64)];
        let mut repeated = FxHashSet::default();
        // Finding duplicates does not depend on the order of the tracks.
        let launches = self.by_track.values().flatten();
        launches.filter(|id| **id != NONE).for_each(|launch| {
            if let Some(word) = seen.get_mut(*launch as usize / 64) {
                let bit = 1 << (launch % 64);
                if *word & bit != 0 {
                    repeated.insert(EventId(*launch));
                }
                *word |= bit;
            }
        });
        repeated
    }

    /// Links slices without a link by the numbers in the arguments, file by file.
    fn by_number(
        &mut self,
        trace: &Trace,
        devices: &Devices<'_>,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let mut open: BTreeMap<usize, Vec<(TrackId, usize)>> = BTreeMap::new();
        for device in &devices.list {
            for queue in &device.queues {
                let Some(links) = self.by_track.get(&queue.track) else {
                    continue;
                };
                let unlinked = (0..links.len()).filter(|index| {
                    links[*index] == NONE && devices.work(queue.track, *index).is_some()
                });
                open.entry(device.file)
                    .or_default()
                    .extend(unlinked.map(|index| (queue.track, index)));
            }
        }
        open.retain(|_, slices| !slices.is_empty());
        if open.is_empty() {
            return Ok(());
        }
        let calls = launch_calls(trace, |file| open.contains_key(&file), cancel)?;
        for (file, slices) in open {
            let Some(calls) = calls.get(&file) else {
                continue;
            };
            let jobs: Vec<_> = slices.chunks(4_096).collect();
            let linked = parallel::scan_items(
                &jobs,
                slices.len(),
                cancel,
                Vec::new,
                |out: &mut Vec<(TrackId, usize, u32)>, job| {
                    for (track, index) in *job {
                        let id = trace.slices(*track).id(*index);
                        let call = correlation(trace, id);
                        if let Some(call) = call.and_then(|number| calls.get(&number)) {
                            out.push((*track, *index, call.0));
                        }
                    }
                },
            )?;
            for (track, index, call) in linked.into_iter().flatten() {
                if let Some(link) = self.slot(track, index) {
                    *link = call;
                }
            }
        }
        Ok(())
    }
}

/// Returns the thread of a slice and its index there; `None` for a slice of another track.
fn host_slice(trace: &Trace, id: EventId) -> Option<(TrackId, usize)> {
    let (track, index) = trace.place_of_slice(id)?;
    let facts = trace.tracks().get(track.index())?;
    (facts.kind == TrackKind::Thread).then_some((track, index))
}

/// Returns whether a link leaves a slice without length that launches nothing: writers with clocks of whole
/// microseconds put the link at the time at which the adjacent launch starts.
fn is_doubtful(trace: &Trace, (track, index): (TrackId, usize)) -> bool {
    let slices = trace.slices(track);
    let is_empty = slices.dur.get(index).is_some_and(|dur| *dur == Dur::ZERO);
    let name = slices.name.get(index).filter(|_| is_empty);
    name.is_some_and(|name| !launches_work(trace.name(*name)))
}

/// Maps file and number to the calls that launch work.
fn launch_calls(
    trace: &Trace,
    is_selected: impl Fn(usize) -> bool,
    cancel: &Cancel,
) -> Result<FxHashMap<usize, FxHashMap<i64, EventId>>, Cancelled> {
    let names: Vec<bool> = (0..trace.name_count())
        .map(|name| launches_work(trace.name(NameId(u32::try_from(name).unwrap_or(u32::MAX)))))
        .collect();
    let jobs = parallel::track_chunks(
        trace
            .tracks()
            .iter()
            .filter(|track| track.kind == TrackKind::Thread && is_selected(track.file))
            .map(|track| (track.id, 0..track.slices as usize)),
    );
    let found = parallel::scan(&jobs, cancel, Vec::new, |out, chunk| {
        let slices = trace.slices(chunk.track);
        let file = trace
            .tracks()
            .get(chunk.track.index())
            .map(|track| track.file);
        for index in chunk.indexes.clone() {
            let launches = slices.name.get(index).map(|name| names.get(name.index()));
            if launches.flatten() == Some(&true)
                && let Some(number) = correlation(trace, slices.id(index))
            {
                out.push((file.unwrap_or(0), number, slices.id(index)));
            }
        }
    })?;
    let mut calls: FxHashMap<usize, FxHashMap<i64, EventId>> = FxHashMap::default();
    for (file, number, id) in found.into_iter().flatten() {
        let call = calls.entry(file).or_default().entry(number).or_insert(id);
        *call = (*call).min(id);
    }
    Ok(calls)
}

/// Returns whether a runtime call of this name puts work on a queue.
pub fn launches_work(name: &str) -> bool {
    let runtime = ["cuda", "hip", "cu", "xpu", "ur", "ze", "musa"]
        .iter()
        .any(|start| name.starts_with(start))
        || name.starts_with("Memcpy")
        || name.starts_with("Memset");
    runtime
        && ["Launch", "Memcpy", "Memset", "memcpy", "memset"]
            .iter()
            .any(|part| name.contains(part))
}

/// Returns whether a runtime call of this name launches a whole graph.
pub fn launches_graph(name: &str) -> bool {
    name.contains("GraphLaunch")
}

/// Returns the innermost slice around a launch that is no runtime call.
pub fn operation(trace: &Trace, launch: EventId) -> Option<EventId> {
    let is_call = |name: NameId, category: NameId| {
        launches_work(trace.name(name)) || is_runtime(trace.name(category))
    };
    innermost_operation(trace, launch, is_call)
}

/// The names of runtime calls, for the operations of many launches.
pub(crate) struct RuntimeNames {
    /// By name: whether it is that of a call that launches work.
    launches: Vec<bool>,
    /// By name: whether it is that of a category of runtime calls.
    is_runtime: Vec<bool>,
}

impl RuntimeNames {
    pub(crate) fn new(trace: &Trace) -> Self {
        Self {
            launches: by_text(trace, launches_work),
            is_runtime: by_text(trace, is_runtime),
        }
    }

    /// Returns the same as [`operation`].
    pub(crate) fn operation(&self, trace: &Trace, launch: EventId) -> Option<EventId> {
        let has = |names: &[bool], name: NameId| names.get(name.index()) == Some(&true);
        innermost_operation(trace, launch, |name, category| {
            has(&self.launches, name) || has(&self.is_runtime, category)
        })
    }
}

fn innermost_operation(
    trace: &Trace,
    launch: EventId,
    is_call: impl Fn(NameId, NameId) -> bool,
) -> Option<EventId> {
    let (track, index) = trace.place_of_slice(launch)?;
    let slices = trace.slices(track);
    let mut at = *slices.parent.get(index)? as usize;
    while is_call(*slices.name.get(at)?, slices.category.get(at)) {
        at = *slices.parent.get(at)? as usize;
    }
    Some(slices.id(at))
}

fn is_runtime(category: &str) -> bool {
    let end = |text: &str| category.len().checked_sub(text.len());
    let last = end("runtime").and_then(|start| category.as_bytes().get(start..));
    last.is_some_and(|last| last.eq_ignore_ascii_case(b"runtime")) || category.ends_with("_driver")
}

/// Launch configuration of a kernel or copy, and the sizes in its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Config {
    /// Blocks in each dimension.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in each dimension.
    pub block: Option<[u32; 3]>,
    /// Registers per thread.
    pub registers: Option<i64>,
    /// Shared memory per block.
    pub shared_bytes: Option<i64>,
    /// Estimate of the driver: active warps as a percentage of the maximum of a multiprocessor.
    pub occupancy_percent: Option<f64>,
    /// Bytes that the copy moves.
    pub bytes: Option<u64>,
    /// Rate of a copy in the file, bytes per second. Its writer computed it before rounding times to whole
    /// microseconds.
    pub copy_rate: Option<f64>,
    /// Number that the work shares with the call that launched it.
    pub correlation: Option<i64>,
    /// Number of the CUDA graph whose node it is.
    pub graph: Option<i64>,
}

/// Arguments that [`Config`] reads.
const CONFIG: ArgKeys = ArgKeys::new(&[
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "est. achieved occupancy %",
    "theoretical_occupancy_pct",
    "bytes",
    "size",
    "memory bandwidth (GB/s)",
    "correlation",
    "correlation_id",
    "graph id",
    "cuda_graph_id",
    "kernel_details",
    "memcpy_details",
    "memset_details",
]);

/// Arguments with the number that work shares with the call that launched it.
const CORRELATION: ArgKeys = ArgKeys::new(&["correlation", "correlation_id"]);

/// Reads the number that an event shares with the call that launched it, or with its work.
pub(crate) fn correlation(trace: &Trace, id: EventId) -> Option<i64> {
    let mut found = None;
    // Unreadable arguments have no number.
    let _ = trace.args_of(id, CORRELATION, &mut |_, value| found = whole(value));
    found
}

impl Config {
    /// Reads the arguments of one event; takes about a microsecond. Unreadable values stay unknown.
    pub fn from_event(trace: &Trace, id: EventId) -> Self {
        let mut found = Self::default();
        let read = trace.args_of(id, CONFIG, &mut |key, value| found.take(key, value));
        if read.is_err() {
            return Self::default();
        }
        found
    }

    /// Returns the duration of a copy: from the rate in the file, if that matches its length within the rounding
    /// to whole microseconds; else that length.
    pub fn copy_time(&self, length: Dur) -> Dur {
        /// Maximum error when a start and an end are rounded to whole microseconds.
        const CUT_PS: f64 = 2e6;
        let Some((bytes, rate)) = self.bytes.zip(self.copy_rate) else {
            return length;
        };
        let ps = bytes as f64 / rate * 1e12;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "within two microseconds of a length"
        )]
        if (ps - length.ps() as f64).abs() <= CUT_PS {
            Dur::from_ps(ps.round() as i64)
        } else {
            length
        }
    }

    fn take(&mut self, key: &str, value: ArgValue<'_>) {
        match key {
            "grid" => self.grid = dims(value),
            "block" => self.block = dims(value),
            "registers per thread" => self.registers = whole(value),
            "shared memory" => self.shared_bytes = whole(value),
            "est. achieved occupancy %" => self.occupancy_percent = number(value),
            "theoretical_occupancy_pct" => {
                self.occupancy_percent = number(value).filter(|percent| *percent > 0.0);
            }
            "bytes" | "size" => {
                self.bytes = whole(value).and_then(|bytes| u64::try_from(bytes).ok());
            }
            "memory bandwidth (GB/s)" => {
                let rate = number(value).filter(|rate| rate.is_finite() && *rate > 0.0);
                self.copy_rate = rate.map(|rate| rate * 1e9);
            }
            "correlation" | "correlation_id" => self.correlation = whole(value),
            // PyTorch writes 0 for work without a graph.
            "graph id" | "cuda_graph_id" => self.graph = whole(value).filter(|graph| *graph != 0),
            "kernel_details" | "memcpy_details" | "memset_details" => {
                if let ArgValue::Str(text) = value {
                    self.take_details(text);
                }
            }
            _ => {}
        }
    }

    /// Reads `regs:38 shm:0 grid:160,1,1 block:1024,1,1`, the form of XSpace files of GPUs.
    fn take_details(&mut self, text: &str) {
        for (key, value) in text
            .split_whitespace()
            .filter_map(|word| word.split_once(':'))
        {
            let whole = || value.parse::<i64>().ok();
            match key {
                "regs" => self.registers = whole(),
                "shm" | "static_shared" | "dynamic_shared" | "group_mem" => {
                    let more = whole().unwrap_or(0);
                    self.shared_bytes = Some(self.shared_bytes.unwrap_or(0).saturating_add(more));
                }
                "grid" => self.grid = list(value),
                "block" => self.block = list(value),
                "occ_pct" => {
                    let percent = value.parse().ok().filter(|percent| *percent > 0.0);
                    self.occupancy_percent = percent.or(self.occupancy_percent);
                }
                "size" | "num_bytes" => self.bytes = value.parse().ok(),
                _ => {}
            }
        }
    }
}

fn whole(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::Int(number) => Some(number),
        ArgValue::Uint(number) => i64::try_from(number).ok(),
        ArgValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn number(value: ArgValue<'_>) -> Option<f64> {
    match value {
        ArgValue::Double(number) => Some(number).filter(|number| number.is_finite()),
        other => whole(other).map(|number| number as f64),
    }
}

/// Reads `[512, 1, 1]`.
fn dims(value: ArgValue<'_>) -> Option<[u32; 3]> {
    match value {
        ArgValue::Json(text) | ArgValue::Str(text) => list(text),
        _ => None,
    }
}

fn list(text: &str) -> Option<[u32; 3]> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let mut numbers = text.split(',').map(|part| part.trim().parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// Formats dimensions for tables: `512,1,1`.
pub fn dims_text(dims: [u32; 3]) -> String {
    let [x, y, z] = dims;
    format!("{x},{y},{z}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_read_in_each_form() {
        let mut torch = Config::default();
        torch.take("grid", ArgValue::Json("[512, 2, 1]"));
        torch.take("block", ArgValue::Json("[nonsense]"));
        torch.take("shared memory", ArgValue::Int(400));
        torch.take("est. achieved occupancy %", ArgValue::Int(75));
        assert_eq!((torch.grid, torch.block), (Some([512, 2, 1]), None));
        assert_eq!(torch.shared_bytes, Some(400));
        assert_eq!(torch.occupancy_percent, Some(75.0));
        torch.take("graph id", ArgValue::Int(5));
        assert_eq!(torch.graph, Some(5));
        torch.take("graph id", ArgValue::Int(0));
        assert_eq!(torch.graph, None);
        let mut xla = Config::default();
        let text = "regs:38 static_shared:32 dynamic_shared:8 grid:160,1,1 block:256,1,1 occ_pct:0";
        xla.take("kernel_details", ArgValue::Str(text));
        assert_eq!(xla.shared_bytes, Some(40));
        assert_eq!(xla.block, Some([256, 1, 1]));
        assert_eq!(xla.occupancy_percent, None);
        xla.take(
            "memcpy_details",
            ArgValue::Str("kind:Unknown size:655360 dest:2"),
        );
        assert_eq!(xla.bytes, Some(655_360));
    }

    #[test]
    fn calls_that_launch_are_known_by_name() {
        for (name, expected) in [
            ("cudaLaunchKernel", true),
            ("hipGraphLaunch", true),
            ("cuLaunchKernelEx", true),
            ("hipMemcpyWithStream", true),
            ("cudaDeviceSynchronize", false),
            ("aten::copy_", false),
        ] {
            assert_eq!(launches_work(name), expected, "{name}");
        }
        assert!(launches_graph("cudaGraphLaunch") && !launches_graph("cudaLaunchKernel"));
    }
}
