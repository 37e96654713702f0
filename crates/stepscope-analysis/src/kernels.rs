//! Kernels, collectives and copies of the devices: their durations, launches and queues.
//!
//! The accounting rule: a slice belongs to the range when it overlaps it, and its time is clipped to the range,
//! so the totals of the rows add up to the totals of the kinds of work. (Totals are sums: concurrent work counts
//! twice. For unions see [`device`](crate::device).) Durations are by the device's own clock where that is
//! recorded. An asynchronous operation counts by the instructions that start and await it, and not a second time
//! by the line that shows it in flight.
//!
//! ```text
//! launch delay = start of the work - end of the call that launched it   (0 when it started before)
//! queue length at a time = work of the stream that was launched (its call started) and has not started
//! rate of a copy = the rate in the file (`memory bandwidth (GB/s)`), else its bytes / its duration
//! rate of the copies of one size = size * count / sum of their durations
//! ```

#![allow(
    clippy::similar_names,
    reason = "traces have tracks, and calls launch launches"
)]

mod copies;
mod engines;
mod occurrences;

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Cancelled, Dur, NameId, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::device::{Devices, Work, clip_clock, clock, is_clocked};
use crate::launch::{Config, Launches, launches_graph, operation};
use crate::ops::hlo::Catalogue;
use crate::ops::{framework_op_of, percentile};
use crate::parallel::{self, Cancel};

use copies::CopySums;
pub use copies::{Copies, CopySize};
pub use engines::{DeviceEngine, copy_direction};
pub use occurrences::{KernelOccurrence, occurrences};

/// Grouping of slices into rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelGrouping {
    /// Slices of the same name.
    Name,
    /// Slices of the same name, grid, block, registers and shared memory.
    Shape,
    /// Slices launched by operations of the same name.
    Operation,
    /// Slices on the same queue.
    Stream,
    /// Slices of the same kind of work.
    Work,
}

/// Grouping key of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Kind of work, unless rows are streams or operations.
    pub work: Option<Work>,
    /// Name of the slices.
    pub name: Option<NameId>,
    /// Their queue.
    pub track: Option<TrackId>,
    /// Name of the operation that launched them.
    pub operation: Option<NameId>,
    /// Index in [`KernelSummary::ops`] of the framework operation of a compiled program that they run, where rows are
    /// operations.
    pub op: Option<u32>,
    /// Grid, block, registers and shared memory.
    pub shape: Option<LaunchShape>,
}

/// Launch configuration, as far as it separates rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaunchShape {
    /// See [`Config::grid`].
    pub grid: Option<[u32; 3]>,
    /// See [`Config::block`].
    pub block: Option<[u32; 3]>,
    /// See [`Config::registers`].
    pub registers: Option<i64>,
    /// See [`Config::shared_bytes`].
    pub shared_bytes: Option<i64>,
}

/// One row of the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelRow {
    /// Grouping key of its slices.
    pub key: Key,
    /// Kind of work of the longest slice.
    pub work: Work,
    /// Number of slices.
    pub count: u64,
    /// Sum of their times, picoseconds.
    pub total_ps: i128,
    /// Duration of the shortest slice.
    pub min: Dur,
    /// Duration of the longest slice.
    pub max: Dur,
    /// The longest slice (the first of several).
    pub longest: EventId,
    /// Number of slices whose launch is known.
    pub launched: u64,
    /// Sum of their launch delays, picoseconds.
    pub delay_ps: i128,
    /// Median duration, of durations stored with seven digits; 0 before all are known.
    pub p50_ns: f64,
    /// The 95th percentile of the durations, stored as [`KernelRow::p50_ns`].
    pub p95_ns: f64,
    /// The queue of all slices; `None` for several.
    pub track: Option<TrackId>,
    is_on_several: bool,
    /// Sum of the squares of their times.
    squares_ps2: i128,
}

impl KernelRow {
    fn new(key: Key, work: Work) -> Self {
        Self {
            key,
            work,
            count: 0,
            total_ps: 0,
            min: Dur::from_ps(i64::MAX),
            max: Dur::ZERO,
            longest: EventId(u32::MAX),
            launched: 0,
            delay_ps: 0,
            p50_ns: 0.0,
            p95_ns: 0.0,
            track: None,
            is_on_several: false,
            squares_ps2: 0,
        }
    }

    /// Returns the mean duration.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ps as f64 / 1e3 / self.count as f64)
    }

    /// Returns the sample standard deviation (the sum of squares over count - 1).
    pub fn deviation_ns(&self) -> Option<f64> {
        let mean = self.mean_ns().filter(|_| self.count > 1)?;
        let squares = self.squares_ps2 as f64 / 1e6 - mean * mean * self.count as f64;
        Some((squares.max(0.0) / (self.count - 1) as f64).sqrt())
    }

    /// Returns the mean launch delay.
    pub fn mean_delay_ns(&self) -> Option<f64> {
        (self.launched > 0).then(|| self.delay_ps as f64 / 1e3 / self.launched as f64)
    }

    fn add(&mut self, id: EventId, work: Work, dur: Dur, delay: Option<Dur>) {
        self.count += 1;
        self.total_ps += i128::from(dur.ps());
        let ps = i128::from(dur.ps());
        self.squares_ps2 = self.squares_ps2.saturating_add(ps * ps);
        self.min = self.min.min(dur);
        if let Some(delay) = delay {
            self.launched += 1;
            self.delay_ps += i128::from(delay.ps());
        }
        self.see_longest(id, work, dur);
    }

    fn see_track(&mut self, track: TrackId) {
        match self.track {
            None if !self.is_on_several => self.track = Some(track),
            Some(known) if known != track => (self.track, self.is_on_several) = (None, true),
            _ => {}
        }
    }

    fn see_longest(&mut self, id: EventId, work: Work, dur: Dur) {
        if (dur, std::cmp::Reverse(id)) > (self.max, std::cmp::Reverse(self.longest)) {
            self.max = dur;
            self.longest = id;
            self.work = work;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.squares_ps2 = self.squares_ps2.saturating_add(other.squares_ps2);
        self.min = self.min.min(other.min);
        self.launched += other.launched;
        self.delay_ps += other.delay_ps;
        self.see_longest(other.longest, other.work, other.max);
        self.is_on_several |= other.is_on_several;
        match other.track {
            Some(track) => self.see_track(track),
            None if other.is_on_several => self.track = None,
            None => {}
        }
    }
}

/// One queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Its row in the trace.
    pub track: TrackId,
    /// Index into [`Devices::list`].
    pub device: usize,
    /// Number of work slices on it that overlap the range.
    pub count: u64,
    /// Union of them within the range.
    pub busy: Dur,
    /// Number of work slices whose launch is known.
    pub launched: u64,
    /// Mean length of its queue over all its changes, as HTA computes it.
    pub mean_queue: Option<f64>,
    /// Maximum length of the queue.
    pub max_queue: u64,
}

/// One launch of many kernels and copies: a CUDA or HIP graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CudaGraphLaunches {
    /// The launching call.
    pub launch: EventId,
    /// Number of kernels and copies that it launched.
    pub count: u64,
    /// Sum of their times, picoseconds.
    pub total_ps: i128,
    /// From the first start to the last end.
    pub span: (Time, Time),
}

/// Result of [`kernels`].
#[derive(Clone, Debug, Default)]
pub struct KernelSummary {
    /// Rows, longest total first.
    pub rows: Vec<KernelRow>,
    /// Copies by name, longest total first.
    pub copies: Vec<Copies>,
    /// Copies by name and size, longest total first.
    pub copy_sizes: Vec<CopySize>,
    /// Queues with work, in the order of the trace.
    pub streams: Vec<Stream>,
    /// Engines that execute the work of the queues, by device.
    pub engines: Vec<DeviceEngine>,
    /// Graph launches, longest total first.
    pub graphs: Vec<CudaGraphLaunches>,
    /// Launch delays, sorted: from the end of the call to the start of the work.
    pub delays: Vec<Dur>,
    /// Names of framework operations, see [`Key::op`].
    pub ops: Vec<String>,
}

/// Sums up the device work in `range`.
pub fn kernels(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    by: KernelGrouping,
    range: &Range<Time>,
    cancel: &Cancel,
) -> Result<KernelSummary, Cancelled> {
    let queues: Vec<(usize, TrackId)> = devices
        .list
        .iter()
        .enumerate()
        .flat_map(|(device_index, device)| {
            device
                .queues
                .iter()
                .map(move |queue| (device_index, queue.track))
        })
        .collect();
    let chunks = parallel::track_chunks(
        queues
            .iter()
            .map(|(_, track)| (*track, trace.candidates(*track, range.clone()))),
    );
    let catalogue = if by == KernelGrouping::Operation {
        Catalogue::from_trace(trace)
    } else {
        Catalogue::default()
    };
    let scan = Scan {
        trace,
        catalogue: &catalogue,
        devices,
        launches,
        by,
        range,
        clocked: queues
            .iter()
            .map(|(_, track)| *track)
            .filter(|track| is_clocked(trace, *track))
            .collect(),
        repeated: launches.repeated(trace),
        graph_names: (0..trace.name_count())
            .map(|name| NameId(u32::try_from(name).unwrap_or(u32::MAX)))
            .filter(|name| launches_graph(trace.name(*name)))
            .collect(),
    };
    let parts = parallel::scan(&chunks, cancel, ThreadSums::default, |part, chunk| {
        for index in chunk.indexes.clone() {
            scan.take(part, chunk.track, index);
        }
    })?;
    let mut sums = ThreadSums::default();
    for part in parts {
        sums.merge(part);
    }
    let (copies, copy_sizes) = std::mem::take(&mut sums.copies).finish();
    let mut found = KernelSummary {
        rows: sums
            .rows
            .into_iter()
            .map(|(key, mut row)| {
                let mut times = sums.times.remove(&key).unwrap_or_default();
                row.p50_ns = percentile(&mut times, 0.5);
                row.p95_ns = percentile(&mut times, 0.95);
                row
            })
            .collect(),
        ops: sums.ops,
        copies,
        copy_sizes,
        graphs: sums
            .graphs
            .into_values()
            .filter(|graph| graph.count > 1 || is_graph(trace, graph.launch))
            .collect(),
        delays: sums.delays,
        streams: Vec::new(),
        engines: Vec::new(),
    };
    found
        .rows
        .sort_unstable_by_key(|row| (std::cmp::Reverse(row.total_ps), row.key));
    found
        .graphs
        .sort_unstable_by_key(|graph| (std::cmp::Reverse(graph.total_ps), graph.launch));
    found.delays.sort_unstable();
    let numbered: Vec<(usize, TrackId)> = queues
        .iter()
        .enumerate()
        .map(|(number, (_, track))| (number, *track))
        .collect();
    let size = queues
        .iter()
        .map(|(_, track)| trace.slices(*track).len())
        .sum();
    let lengths =
        parallel::scan_items(&numbered, size, cancel, Vec::new, |out, (number, track)| {
            out.push((
                *number,
                queue_lengths(trace, devices, launches, *track, range),
            ));
        })?;
    let mut lengths: Vec<_> = lengths.into_iter().flatten().collect();
    lengths.sort_unstable_by_key(|(number, _)| *number);
    for ((device_index, track), (_, lengths)) in queues.into_iter().zip(lengths) {
        let count = sums.seen.count(track);
        if count > 0 {
            found.streams.push(Stream {
                track,
                device: device_index,
                count,
                busy: devices.queue_busy(&devices.list[device_index], track, range, cancel)?,
                launched: lengths.launched,
                mean_queue: lengths.mean(),
                max_queue: lengths.max,
            });
        }
    }
    let streams = &found.streams;
    found.engines = engines::engines(trace, devices, &sums.seen, streams, range, cancel)?;
    Ok(found)
}

fn is_graph(trace: &Trace, launch: EventId) -> bool {
    name_of(trace, launch).is_some_and(|name| launches_graph(trace.name(name)))
}

/// Returns the name of a slice.
pub fn name_of(trace: &Trace, id: EventId) -> Option<NameId> {
    let (track, index) = trace.place_of_slice(id)?;
    trace.slices(track).name.get(index).copied()
}

struct Scan<'a> {
    trace: &'a Trace,
    catalogue: &'a Catalogue,
    devices: &'a Devices<'a>,
    launches: &'a Launches,
    by: KernelGrouping,
    range: &'a Range<Time>,
    /// Queues whose slices have durations by the device's own clock.
    clocked: FxHashSet<TrackId>,
    /// Calls that launched several slices.
    repeated: FxHashSet<EventId>,
    /// Names of calls that launch graphs.
    graph_names: FxHashSet<NameId>,
}

/// Sums of one worker thread.
#[derive(Default)]
struct ThreadSums {
    rows: FxHashMap<Key, KernelRow>,
    /// All durations of a row, nanoseconds.
    times: FxHashMap<Key, Vec<f32>>,
    ops: Vec<String>,
    op_numbers: FxHashMap<String, u32>,
    copies: CopySums,
    graphs: FxHashMap<EventId, CudaGraphLaunches>,
    seen: engines::EngineCounts,
    delays: Vec<Dur>,
}

impl ThreadSums {
    /// Returns the number of an operation's name.
    fn op(&mut self, name: String) -> u32 {
        if let Some(number) = self.op_numbers.get(&name) {
            return *number;
        }
        let number = u32::try_from(self.ops.len()).unwrap_or(u32::MAX);
        self.ops.push(name.clone());
        self.op_numbers.insert(name, number);
        number
    }

    fn merge(&mut self, mut other: Self) {
        let ops: Vec<u32> = other.ops.drain(..).map(|name| self.op(name)).collect();
        let own = |key: Key| Key {
            op: key.op.and_then(|op| ops.get(op as usize).copied()),
            ..key
        };
        // Sums: the order of the entries has no effect.
        other.rows.into_iter().for_each(|(key, row)| {
            let key = own(key);
            self.rows
                .entry(key)
                .or_insert_with(|| KernelRow::new(key, row.work))
                .merge(&row);
        });
        other.times.into_iter().for_each(|(key, times)| {
            self.times.entry(own(key)).or_default().extend(times);
        });
        self.copies.merge(other.copies);
        other.graphs.into_iter().for_each(|(launch, graph)| {
            let sum = self.graphs.entry(launch).or_insert(CudaGraphLaunches {
                count: 0,
                total_ps: 0,
                ..graph
            });
            sum.count += graph.count;
            sum.total_ps += graph.total_ps;
            sum.span = (sum.span.0.min(graph.span.0), sum.span.1.max(graph.span.1));
        });
        self.seen.merge(other.seen);
        self.delays.extend(other.delays);
    }
}

impl Scan<'_> {
    fn take(&self, part: &mut ThreadSums, track: TrackId, index: usize) {
        let slices = self.trace.slices(track);
        let Some(work) = self.devices.work(track, index) else {
            return;
        };
        let (start, end) = (slices.start[index], slices.end(index));
        let clipped = start.max(self.range.start)..end.min(self.range.end);
        let inside = clipped.start < clipped.end || (start == end && self.range.contains(&start));
        if !inside {
            return;
        }
        let dur = Dur::from_ps(clipped.end.since(clipped.start).ps().max(0));
        let (id, name) = (slices.id(index), slices.name[index]);
        let copy = (work == Work::Memcpy).then_some((name, (clipped.start, clipped.end)));
        part.seen.take(track, work, copy);
        if self.devices.is_in_flight(track) {
            return;
        }
        let is_clocked = self.clocked.contains(&track);
        let own = is_clocked.then(|| clock(self.trace, id)).flatten();
        let dur = own.map_or(dur, |own| clip_clock(own, slices.dur[index], dur));
        let launch = self.launches.get(track, index);
        let call = launch.and_then(|launch| {
            let (track, index) = self.trace.place_of_slice(launch)?;
            let slices = self.trace.slices(track);
            Some((slices.end(index), *slices.name.get(index)?))
        });
        let delay = call.map(|(call, _)| Dur::from_ps(start.since(call).ps().max(0)));
        let is_copy = matches!(work, Work::Memcpy | Work::Memset);
        let config = (is_copy || self.by == KernelGrouping::Shape)
            .then(|| Config::from_event(self.trace, id));
        let mut key = self.key(work, name, track, launch, config.as_ref());
        if let Some(op) = self.compiled_operation(track, id) {
            key = Key {
                op: Some(part.op(op)),
                ..Key::default()
            };
        }
        let row = part
            .rows
            .entry(key)
            .or_insert_with(|| KernelRow::new(key, work));
        row.add(id, work, dur, delay);
        row.see_track(track);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "seven digits of a time are enough for a percentile"
        )]
        part.times
            .entry(key)
            .or_default()
            .push(dur.as_ns_f64() as f32);
        part.delays.extend(delay);
        if is_copy {
            let whole = own.unwrap_or(end.since(start));
            let bytes = config.and_then(|config| config.bytes);
            let whole = config.map_or(whole, |config| config.copy_time(whole));
            part.copies.take(name, id, dur, whole, bytes);
        }
        // Nearly all calls launch one slice: no graph, no entry needed.
        let graph = call.is_some_and(|(_, name)| self.graph_names.contains(&name));
        if let Some(launch) = launch
            && (graph || self.repeated.contains(&launch))
        {
            let graph = part.graphs.entry(launch).or_insert(CudaGraphLaunches {
                launch,
                count: 0,
                total_ps: 0,
                span: (start, end),
            });
            graph.count += 1;
            graph.total_ps += i128::from(dur.ps());
            graph.span = (graph.span.0.min(start), graph.span.1.max(end));
        }
    }

    /// Returns the framework operation of the compiled program that a slice runs, where rows are operations.
    fn compiled_operation(&self, track: TrackId, event: EventId) -> Option<String> {
        if self.by != KernelGrouping::Operation {
            return None;
        }
        let file = self.trace.tracks().get(track.index())?.file;
        // Only these formats name operations of compiled programs; skip the others.
        let format = &self.trace.files().get(file)?.spec.format;
        (format == "xspace")
            .then(|| framework_op_of(self.trace, self.catalogue, event))
            .flatten()
    }

    fn key(
        &self,
        work: Work,
        name: NameId,
        track: TrackId,
        launch: Option<EventId>,
        config: Option<&Config>,
    ) -> Key {
        let named = Key {
            work: Some(work),
            name: Some(name),
            ..Key::default()
        };
        match self.by {
            KernelGrouping::Name => named,
            KernelGrouping::Shape => Key {
                shape: config.map(|config| LaunchShape {
                    grid: config.grid,
                    block: config.block,
                    registers: config.registers,
                    shared_bytes: config.shared_bytes,
                }),
                ..named
            },
            KernelGrouping::Operation => Key {
                operation: launch
                    .and_then(|launch| operation(self.trace, launch))
                    .and_then(|operation| name_of(self.trace, operation)),
                ..Key::default()
            },
            KernelGrouping::Stream => Key {
                track: Some(track),
                ..Key::default()
            },
            KernelGrouping::Work => Key {
                work: Some(work),
                ..Key::default()
            },
        }
    }
}

/// Lengths of one queue after each of its changes.
#[derive(Default)]
struct Lengths {
    launched: u64,
    changes: u64,
    sum: i128,
    max: u64,
}

impl Lengths {
    fn mean(&self) -> Option<f64> {
        (self.changes > 0).then(|| self.sum as f64 / self.changes as f64)
    }
}

fn queue_lengths(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    track: TrackId,
    range: &Range<Time>,
) -> Lengths {
    let slices = trace.slices(track);
    let (mut calls, mut starts): (Vec<Time>, Vec<Time>) = (Vec::new(), Vec::new());
    let mut found = Lengths::default();
    for index in trace.candidates(track, range.clone()) {
        let (start, end) = (slices.start[index], slices.end(index));
        if end < range.start || start >= range.end || devices.work(track, index).is_none() {
            continue;
        }
        let call = launches.get(track, index).and_then(|launch| {
            let (track, index) = trace.place_of_slice(launch)?;
            trace.slices(track).start.get(index).copied()
        });
        if let Some(call) = call {
            found.launched += 1;
            calls.push(call);
            starts.push(start);
        }
    }
    // Both are nearly in order, which this sort handles quickly.
    calls.sort();
    starts.sort();
    // At equal timestamps, launches come before starts.
    let mut calls = calls.into_iter().peekable();
    let mut starts = starts.into_iter().peekable();
    let mut length = 0_i64;
    loop {
        match (calls.peek(), starts.peek()) {
            (Some(call), Some(begin)) if call <= begin => {
                calls.next();
                length += 1;
            }
            (_, Some(_)) => {
                starts.next();
                length -= 1;
            }
            (Some(_), None) => {
                calls.next();
                length += 1;
            }
            (None, None) => break,
        }
        found.changes += 1;
        found.sum += i128::from(length);
        found.max = found.max.max(u64::try_from(length).unwrap_or(0));
    }
    found
}

/// Returns whether a kernel's name shows that it uses tensor cores, or matrix cores of AMD: XProf's reading of
/// names, by the shapes of their instructions.
pub fn uses_tensor_cores(name: &str) -> bool {
    const PARTS: &[&str] = &[
        "884", "1688", "16816", "8816", "8832", "16832", "hmma", "xmma", "imma", "wgmma", "hgmma",
        "tensorop", "nvjet",
    ];
    PARTS.iter().any(|part| name.contains(part)) || (name.contains("Cijk_") && name.contains("_MI"))
}

#[cfg(test)]
mod tests;
