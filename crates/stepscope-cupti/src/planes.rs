//! Activities as planes of an `XSpace`, in the words of PyTorch's profiler: names of copies, categories.
//!
//! ```text
//! /device:GPU:0   a line for each stream   kernels, copies, memsets
//! /host:CPU       a line for each thread   calls of the runtime and the driver, ranges of NVTX
//! ```
//!
//! A call and the work that it launches have the same `correlation_id`. Planes are written often; all but the first of
//! a device continue the one before. The host's always do: merged with a recording of the program, its lines are those
//! of the program's threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io;

use stepscope_formats::xspace::{
    EventId, EventKind, HOST_PLANE, LineWriter, PlaneWriter, Stat, StatId, StatValue, TrackRecord,
    XSpaceWriter,
};
use stepscope_model::TrackKind;

use crate::records::{Activity, Call, Device, Kernel, Marker, MarkerKind, Memcpy, Memset, Work};

/// Ranges that are open at once; further ones are not recorded.
const MAX_OPEN_RANGES: usize = 1 << 16;
/// Names that are remembered at once.
const MAX_NAMES: usize = 1 << 16;

/// Looks names up.
pub(crate) trait Names {
    /// Returns the name of a call; `None` if calls of this name are not recorded.
    fn call(&self, is_driver: bool, number: u32) -> Option<String>;
    /// Writes out a name of C++.
    fn demangled(&self, name: &str) -> String;
}

/// Activities since the last time that planes were written.
#[derive(Default)]
pub(crate) struct Planes {
    /// Unix time of the recording's start, nanoseconds: zero of all lines.
    start: u64,
    devices: BTreeMap<u32, DevicePlane>,
    threads: ThreadPlane,
    events: u64,
    /// Devices that have a plane in the file.
    written: BTreeSet<u32>,
    /// Names of kernels, as compilers and as programmers write them.
    demangled: HashMap<String, String>,
    /// Names of calls by interface and number; `None`: calls that are not recorded.
    calls: HashMap<(bool, u32), Option<String>>,
    /// Ranges of NVTX without an end: their thread, start and name.
    open: HashMap<u32, (u32, u64, String)>,
}

impl Planes {
    /// Creates planes whose times count from `start`, Unix time in nanoseconds.
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }

    /// Returns the number of events that are not written yet.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Adds an activity that ends within `window`, Unix time in nanoseconds.
    pub(crate) fn add(&mut self, activity: Activity<'_>, names: &dyn Names, window: (u64, u64)) {
        let (start, end) = match &activity {
            Activity::Kernel(kernel) => (kernel.work.start, kernel.work.end),
            Activity::Memcpy(copy) => (copy.work.start, copy.work.end),
            Activity::Memset(set) => (set.work.start, set.work.end),
            Activity::Call(call) => (call.start, call.end),
            Activity::Marker(marker) => (marker.time, marker.time),
            Activity::Device(device) => return self.add_device(device),
        };
        // CUPTI has no times for work that it could not follow.
        if start == 0 || end < start || end < window.0 || start > window.1 {
            return;
        }
        match activity {
            Activity::Kernel(kernel) => self.kernel(&kernel, names),
            Activity::Memcpy(copy) => self.memcpy(&copy),
            Activity::Memset(set) => self.memset(&set),
            Activity::Call(call) => self.call(&call, names),
            Activity::Marker(marker) => self.marker(&marker),
            Activity::Device(_) => {}
        }
    }

    /// Encodes the planes and starts empty ones.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut space = XSpaceWriter::new(&mut bytes);
        // A vector takes everything.
        let _ = self.write(&mut space);
        self.events = 0;
        bytes
    }

    fn write(&mut self, space: &mut XSpaceWriter<&mut Vec<u8>>) -> io::Result<()> {
        for (ordinal, device) in std::mem::take(&mut self.devices) {
            let continues = !self.written.insert(ordinal);
            space.plane(&device.finish(continues))?;
        }
        if let Some(plane) = std::mem::take(&mut self.threads).finish() {
            space.plane(&plane)?;
        }
        Ok(())
    }

    fn device(&mut self, ordinal: u32) -> &mut DevicePlane {
        self.devices
            .entry(ordinal)
            .or_insert_with(|| DevicePlane::new(ordinal))
    }

    /// Adds the facts of a device.
    pub(crate) fn add_device(&mut self, facts: &Device<'_>) {
        let plane = &mut self.device(facts.ordinal).plane;
        // The names that XLA gives them.
        for (name, value) in [
            ("memory_size", facts.memory_bytes),
            (
                "memory_bandwidth",
                facts.memory_bandwidth.saturating_mul(1_000),
            ),
            ("compute_cap_major", facts.capability[0].into()),
            ("compute_cap_minor", facts.capability[1].into()),
            ("core_count", facts.multiprocessors.into()),
            ("clock_rate", facts.clock.into()),
            ("l2_cache_size", facts.l2_bytes.into()),
        ] {
            let id = plane.stat(name);
            plane.add_stat(id, StatValue::Uint(value));
        }
        for (name, value) in [
            ("device_type_string", &*facts.name),
            ("device_vendor", "Nvidia"),
        ] {
            let id = plane.stat(name);
            plane.add_stat(id, StatValue::Str(value));
        }
    }

    fn kernel(&mut self, kernel: &Kernel<'_>, names: &dyn Names) {
        if self.demangled.len() >= MAX_NAMES {
            self.demangled.clear();
        }
        if !self.demangled.contains_key(&*kernel.name) {
            let name = names.demangled(&kernel.name);
            self.demangled
                .insert(kernel.name.clone().into_owned(), name);
        }
        let name = self.demangled.get(&*kernel.name).cloned();
        let name = name.unwrap_or_default();
        let [grid, block] = [kernel.grid, kernel.block].map(|[x, y, z]| format!("{x},{y},{z}"));
        let [fixed, launch] = kernel.shared;
        let mut details = String::new();
        // The form in which XLA writes them, and XProf reads them.
        let _ = write!(
            details,
            "regs:{} static_shared:{fixed} dynamic_shared:{launch} grid:{grid} block:{block}",
            kernel.registers
        );
        let start = self.start;
        let device = self.device(kernel.work.device);
        let name = device.plane.event_of(&name, "kernel", EventKind::Slice);
        let details = Some((device.details, StatValue::Text(device.plane.text(&details))));
        device.work(&kernel.work, name, details, start);
        self.events += 1;
    }

    fn memcpy(&mut self, copy: &Memcpy) {
        let mut name = format!(
            "Memcpy {} ({} -> {})",
            direction(copy.direction),
            memory(copy.memories[0].into()),
            memory(copy.memories[1].into())
        );
        if let Some([from, to]) = copy.devices {
            let _ = write!(name, " from GPU {from} to GPU {to}");
        }
        self.transfer(&copy.work, &name, "gpu_memcpy", copy.bytes);
    }

    fn memset(&mut self, set: &Memset) {
        let name = format!("Memset ({})", memory(set.memory.into()));
        self.transfer(&set.work, &name, "gpu_memset", set.bytes);
    }

    fn transfer(&mut self, work: &Work, name: &str, category: &str, bytes: u64) {
        let start = self.start;
        let device = self.device(work.device);
        let name = device.plane.event_of(name, category, EventKind::Slice);
        let bytes = Some((device.bytes, StatValue::Uint(bytes)));
        device.work(work, name, bytes, start);
        self.events += 1;
    }

    fn call(&mut self, call: &Call, names: &dyn Names) {
        let key = (call.is_driver, call.number);
        let name = self
            .calls
            .entry(key)
            .or_insert_with(|| names.call(call.is_driver, call.number));
        let Some(name) = name else {
            return;
        };
        let category = if call.is_driver {
            "cuda_driver"
        } else {
            "cuda_runtime"
        };
        self.threads.call(call, name, category, self.start);
        self.events += 1;
    }

    fn marker(&mut self, marker: &Marker<'_>) {
        let (thread, from, name, kind) = match marker.kind {
            MarkerKind::Start => {
                if self.open.len() < MAX_OPEN_RANGES {
                    let name = marker.name.clone().into_owned();
                    self.open
                        .insert(marker.range, (marker.thread, marker.time, name));
                }
                return;
            }
            MarkerKind::End => match self.open.remove(&marker.range) {
                Some((thread, from, name)) => (thread, from, name, EventKind::Slice),
                None => return,
            },
            MarkerKind::Point => {
                let name = marker.name.clone().into_owned();
                (marker.thread, marker.time, name, EventKind::Instant)
            }
        };
        self.threads
            .range(thread, (from, marker.time), &name, kind, self.start);
        self.events += 1;
    }
}

/// Returns the offset from the start of the recording and the length, in picoseconds.
fn times(start: u64, from: u64, to: u64) -> (i64, i64) {
    let ps = |ns: u64| i64::try_from(ns.saturating_mul(1_000)).unwrap_or(i64::MAX);
    // Work that began before the recording is shown from its start.
    let from = from.max(start);
    (ps(from - start), ps(to.saturating_sub(from)))
}

/// The plane of a device.
struct DevicePlane {
    ordinal: u32,
    plane: PlaneWriter,
    streams: BTreeMap<u32, LineWriter>,
    correlation: StatId,
    details: StatId,
    bytes: StatId,
    graph_node: StatId,
}

impl DevicePlane {
    fn new(ordinal: u32) -> Self {
        let mut plane =
            PlaneWriter::new(&format!("/device:GPU:{ordinal}")).with_id(i64::from(ordinal) + 1);
        Self {
            ordinal,
            correlation: plane.stat("correlation_id"),
            details: plane.stat("kernel_details"),
            bytes: plane.stat("bytes"),
            graph_node: plane.stat("graph node id"),
            plane,
            streams: BTreeMap::new(),
        }
    }

    fn work(
        &mut self,
        work: &Work,
        name: EventId,
        more: Option<(StatId, StatValue<'_>)>,
        start: u64,
    ) {
        let line = self.streams.entry(work.stream).or_insert_with(|| {
            LineWriter::new(work.stream.into(), &format!("stream {}", work.stream), 0)
        });
        let mut stats = [Stat {
            id: self.correlation,
            value: StatValue::Uint(work.correlation.into()),
        }; 3];
        let mut length = 1;
        if let Some((id, value)) = more {
            stats[length] = Stat { id, value };
            length += 1;
        }
        if work.graph_node != 0 {
            stats[length] = Stat {
                id: self.graph_node,
                value: StatValue::Uint(work.graph_node),
            };
            length += 1;
        }
        let (offset, duration) = times(start, work.start, work.end);
        line.span(name, offset, duration, &stats[..length]);
    }

    fn finish(mut self, continues: bool) -> PlaneWriter {
        if continues {
            self.plane.continues();
        }
        for (stream, line) in self.streams {
            self.plane.describe(&TrackRecord {
                line: Some(stream.into()),
                kind: Some(TrackKind::DeviceQueue),
                device: Some(self.ordinal),
                stream: Some(stream.into()),
                ..TrackRecord::default()
            });
            self.plane.add_line(line);
        }
        self.plane
    }
}

/// The plane of the program's threads.
struct ThreadPlane {
    plane: PlaneWriter,
    threads: BTreeMap<u32, LineWriter>,
    correlation: StatId,
    returned: StatId,
}

impl Default for ThreadPlane {
    fn default() -> Self {
        let mut plane = PlaneWriter::new(HOST_PLANE).with_id(1);
        Self {
            correlation: plane.stat("correlation_id"),
            returned: plane.stat("return_value"),
            plane,
            threads: BTreeMap::new(),
        }
    }
}

impl ThreadPlane {
    fn line(&mut self, thread: u32) -> &mut LineWriter {
        self.threads
            .entry(thread)
            .or_insert_with(|| LineWriter::new(thread.into(), &thread_name(thread), 0))
    }

    fn call(&mut self, call: &Call, name: &str, category: &str, start: u64) {
        let launches = ["Launch", "Memcpy", "Memset"]
            .iter()
            .any(|part| name.contains(part));
        let name = self.plane.event_of(name, category, EventKind::Slice);
        let [correlation, returned] = [
            (self.correlation, call.correlation),
            (self.returned, call.returned),
        ]
        .map(|(id, value)| Stat {
            id,
            value: StatValue::Uint(value.into()),
        });
        // The number of a call without work on a device would be a link to nowhere.
        let stats: &[Stat<'_>] = match (launches, call.returned) {
            (true, 0) => &[correlation],
            (true, _) => &[correlation, returned],
            (false, 0) => &[],
            (false, _) => &[returned],
        };
        let (offset, duration) = times(start, call.start, call.end);
        self.line(call.thread).span(name, offset, duration, stats);
    }

    fn range(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        name: &str,
        kind: EventKind,
        start: u64,
    ) {
        let name = self.plane.event_of(name, "nvtx", kind);
        let (offset, duration) = times(start, from, to);
        self.line(thread).span(name, offset, duration, &[]);
    }

    fn finish(mut self) -> Option<PlaneWriter> {
        if self.threads.is_empty() {
            return None;
        }
        self.plane.continues();
        for (thread, line) in self.threads {
            self.plane.describe(&TrackRecord {
                line: Some(thread.into()),
                kind: Some(TrackKind::Thread),
                pid: Some(std::process::id().into()),
                tid: Some(thread.into()),
                ..TrackRecord::default()
            });
            self.plane.add_line(line);
        }
        Some(self.plane)
    }
}

/// Returns the name that a thread of this process has given itself.
fn thread_name(thread: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    match name.as_deref().map(str::trim) {
        Ok(name) if !name.is_empty() => name.to_owned(),
        _ => format!("thread {thread}"),
    }
}

/// The word of PyTorch's profiler for a `CUpti_ActivityMemcpyKind`.
fn direction(kind: u8) -> &'static str {
    match kind {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "unknown",
    }
}

/// The word of PyTorch's profiler for a `CUpti_ActivityMemoryKind`.
fn memory(kind: u32) -> &'static str {
    match kind {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    }
}

/// Returns the name of a call without the version of the interface (`cudaLaunchKernel_v7000`), or `None` for calls that
/// only ask or set something: they take most of the records and none of the time.
pub(crate) fn recorded_call(name: &str) -> Option<&str> {
    const LEFT_OUT: [&str; 11] = [
        "Get",
        "Set",
        "Peek",
        "Query",
        "IsCapturing",
        "CaptureInfo",
        "PushCurrent",
        "PopCurrent",
        "Occupancy",
        "Attribute",
        "CanAccessPeer",
    ];
    let name = match name.rsplit_once("_v") {
        Some((plain, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => plain,
        _ => name,
    };
    let name = name
        .strip_suffix("_ptsz")
        .or_else(|| name.strip_suffix("_ptds"))
        .unwrap_or(name);
    let left_out = LEFT_OUT.iter().any(|part| name.contains(part)) || name.starts_with("__");
    (!left_out).then_some(name)
}
