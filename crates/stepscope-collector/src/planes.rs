//! Work of devices and calls of the program as planes of an `XSpace`.
//!
//! ```text
//! /device:GPU:0   a line for each stream or queue   kernels, copies, memsets
//! /host:CPU       a line for each thread            calls of the vendor's interface, ranges of the program
//! ```
//!
//! A call and the work that it launches have the same `correlation_id`. Planes are written often; all but the first of
//! a device continue the one before. The host's always do: merged with a recording of the program, its lines are those
//! of the program's threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use stepscope_formats::xspace::{
    EventKind, EventMetadataId, HOST_PLANE, LineWriter, PlaneWriter, StatId, TrackRecord,
    WrittenStat, WrittenStatValue, XSpaceWriter,
};
use stepscope_model::TrackKind;

use crate::calls::{CallKind, call_kind};

/// Ids of the lines of copies and of synchronisation, which no queue has.
const COPIES_LINE: i64 = i64::MAX;
const SYNC_LINE: i64 = i64::MAX - 1;

/// A line of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaneLine {
    /// A stream of CUDA.
    Stream(u32),
    /// A queue of HSA.
    Queue(u32),
    /// Copies whose stream or queue is unknown.
    Copies,
    /// Waits for the device, or of its streams for each other.
    Synchronization,
}

impl Default for PlaneLine {
    fn default() -> Self {
        Self::Stream(0)
    }
}

impl PlaneLine {
    fn number(self) -> Option<i64> {
        match self {
            Self::Stream(number) | Self::Queue(number) => Some(number.into()),
            Self::Copies | Self::Synchronization => None,
        }
    }

    /// Returns the id of the line in the plane.
    fn id(self) -> i64 {
        match self {
            Self::Stream(number) | Self::Queue(number) => number.into(),
            Self::Copies => COPIES_LINE,
            Self::Synchronization => SYNC_LINE,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Stream(number) => format!("stream {number}"),
            Self::Queue(number) => format!("queue {number}"),
            Self::Copies => "copies".to_owned(),
            Self::Synchronization => "synchronization".to_owned(),
        }
    }
}

/// Times and line of a device's work. Times are Unix time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedWork {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Stream or queue of the device.
    pub line: PlaneLine,
    /// Number of the call that launched it.
    pub correlation: u64,
    /// Node of a CUDA graph; 0 outside of graphs.
    pub graph_node: u64,
}

/// A call of the vendor's interface. Times are Unix time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// When it began.
    pub start: u64,
    /// When it returned.
    pub end: u64,
    /// Id of the thread in the operating system.
    pub thread: u32,
    /// Number that the work has too.
    pub correlation: u64,
    /// The returned error; 0 for success.
    pub returned: u32,
}

/// A range or a point that the program or a runtime marks on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// Id of the thread in the operating system.
    pub thread: u32,
    /// Start and end, Unix time in nanoseconds; equal for a point.
    pub times: (u64, u64),
    /// Its name.
    pub name: &'a str,
    /// Its category.
    pub category: &'a str,
    /// Bytes of memory that it is about.
    pub bytes: Option<u64>,
}

/// A wait for the device, or of a stream for an event. Times are Unix time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSync {
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// The stream that waits, or that is waited for.
    pub stream: Option<u32>,
    /// Number of the call.
    pub correlation: u64,
    /// The event that is waited for: the stream and the number of the call that recorded it.
    pub event: Option<(u32, u64)>,
}

/// Facts of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Ordinal of the device.
    pub ordinal: u32,
    /// Marketing name.
    pub name: String,
    /// Vendor, as XLA writes it.
    pub vendor: &'static str,
    /// Names and values, those of XLA.
    pub values: Vec<(&'static str, u64)>,
}

/// Events since the last time that planes were written.
#[derive(Default)]
pub struct Planes {
    /// Unix time of the recording's start, nanoseconds: zero of all lines.
    start: u64,
    /// Unix times between which events are recorded.
    window: (u64, u64),
    devices: BTreeMap<u32, DevicePlane>,
    threads: ThreadPlane,
    events: u64,
    /// Devices that have a plane in the file.
    written: BTreeSet<u32>,
}

impl Planes {
    /// Creates planes whose times count from `start`, Unix time in nanoseconds. Only events that overlap `window` are
    /// recorded.
    pub(crate) fn new(start: u64, window: (u64, u64)) -> Self {
        Self {
            start,
            window,
            ..Self::default()
        }
    }

    /// Returns the number of events that are not written yet.
    pub(crate) const fn events(&self) -> u64 {
        self.events
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

    /// Returns whether an event with these times is recorded. Vendors give no times to work that they could not follow.
    const fn is_recorded(&self, start: u64, end: u64) -> bool {
        start != 0 && end >= start && end >= self.window.0 && start <= self.window.1
    }

    fn device(&mut self, ordinal: u32) -> &mut DevicePlane {
        self.devices
            .entry(ordinal)
            .or_insert_with(|| DevicePlane::new(ordinal))
    }

    /// Adds the facts of a device.
    pub(crate) fn add_device(&mut self, facts: &DeviceFacts) {
        let plane = &mut self.device(facts.ordinal).plane;
        for (name, value) in &facts.values {
            let id = plane.stat(name);
            plane.add_stat(id, WrittenStatValue::Uint(*value));
        }
        for (name, value) in [
            ("device_type_string", facts.name.as_str()),
            ("device_vendor", facts.vendor),
        ] {
            let id = plane.stat(name);
            plane.add_stat(id, WrittenStatValue::Str(value));
        }
    }

    /// Adds a kernel. `details` has the form in which XLA writes them and XProf reads them:
    /// `regs:16 static_shared:0 dynamic_shared:0 grid:1,1,1 block:256,1,1`.
    pub fn add_kernel(&mut self, work: &RecordedWork, name: &str, details: &str) {
        if !self.is_recorded(work.start, work.end) {
            return;
        }
        let start = self.start;
        let device = self.device(work.device);
        let name = device.plane.event_of(name, "kernel", EventKind::Slice);
        let details = (
            device.details,
            WrittenStatValue::Text(device.plane.text(details)),
        );
        device.work(work, name, details, start);
        self.events += 1;
    }

    /// Adds a copy or a memset.
    pub fn add_transfer(&mut self, work: &RecordedWork, name: &str, category: &str, bytes: u64) {
        if !self.is_recorded(work.start, work.end) {
            return;
        }
        let start = self.start;
        let device = self.device(work.device);
        let name = device.plane.event_of(name, category, EventKind::Slice);
        device.work(
            work,
            name,
            (device.bytes, WrittenStatValue::Uint(bytes)),
            start,
        );
        self.events += 1;
    }

    /// Adds a wait, with the category and the arguments of PyTorch's profiler.
    pub fn add_sync(&mut self, sync: &DeviceSync, kind: &str) {
        if self.is_recorded(sync.start, sync.end) {
            let start = self.start;
            self.device(sync.device).sync(sync, kind, start);
            self.events += 1;
        }
    }

    /// Adds a fact of the recording.
    pub(crate) fn add_fact(&mut self, name: &str, value: &str) {
        self.threads.add_fact(name, value);
    }

    /// Adds a call of the vendor's interface.
    pub fn add_call(&mut self, call: &Call, name: &str, category: &str) {
        if self.is_recorded(call.start, call.end) {
            self.threads.call(call, name, category, self.start);
            self.events += 1;
        }
    }

    /// Adds a range; a point if its times are equal.
    pub fn add_range(&mut self, range: &Range<'_>) {
        if self.is_recorded(range.times.0, range.times.1) {
            self.threads.range(range, self.start);
            self.events += 1;
        }
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
    lines: BTreeMap<PlaneLine, LineWriter>,
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
            lines: BTreeMap::new(),
        }
    }

    fn work(
        &mut self,
        work: &RecordedWork,
        name: EventMetadataId,
        more: (StatId, WrittenStatValue<'_>),
        start: u64,
    ) {
        let line = line_of(&mut self.lines, work.line);
        let stats = [
            WrittenStat {
                id: self.correlation,
                value: WrittenStatValue::Uint(work.correlation),
            },
            WrittenStat {
                id: more.0,
                value: more.1,
            },
            WrittenStat {
                id: self.graph_node,
                value: WrittenStatValue::Uint(work.graph_node),
            },
        ];
        let length = if work.graph_node == 0 { 2 } else { 3 };
        let (offset, duration) = times(start, work.start, work.end);
        line.span(name, offset, duration, &stats[..length]);
    }

    fn sync(&mut self, sync: &DeviceSync, kind: &str, start: u64) {
        let name = self.plane.event_of(kind, "cuda_sync", EventKind::Slice);
        let kind = WrittenStatValue::Text(self.plane.text(kind));
        let number = |value: u64| Some(WrittenStatValue::Uint(value));
        let values = [
            ("cuda_sync_kind", Some(kind)),
            ("correlation", number(sync.correlation)),
            ("device", number(sync.device.into())),
            (
                "stream",
                sync.stream.and_then(|stream| number(stream.into())),
            ),
            (
                "wait_on_stream",
                sync.event.and_then(|(stream, _)| number(stream.into())),
            ),
            (
                "wait_on_cuda_event_record_corr_id",
                sync.event.and_then(|(_, call)| number(call)),
            ),
        ];
        let stats: Vec<WrittenStat<'_>> = values
            .into_iter()
            .filter_map(|(name, value)| {
                let id = self.plane.argument(name);
                Some(WrittenStat { id, value: value? })
            })
            .collect();
        let (offset, duration) = times(start, sync.start, sync.end);
        let line = line_of(&mut self.lines, PlaneLine::Synchronization);
        line.span(name, offset, duration, &stats);
    }

    fn finish(mut self, continues: bool) -> PlaneWriter {
        if continues {
            self.plane.continues();
        }
        for (line, writer) in self.lines {
            self.plane.describe(&TrackRecord {
                line: Some(line.id()),
                kind: Some(TrackKind::DeviceQueue),
                device: Some(self.ordinal),
                stream: line.number(),
                ..TrackRecord::default()
            });
            self.plane.add_line(writer);
        }
        self.plane
    }
}

fn line_of(lines: &mut BTreeMap<PlaneLine, LineWriter>, line: PlaneLine) -> &mut LineWriter {
    lines
        .entry(line)
        .or_insert_with(|| LineWriter::new(line.id(), &line.name(), 0))
}

/// The plane of the program's threads.
struct ThreadPlane {
    plane: PlaneWriter,
    has_facts: bool,
    threads: BTreeMap<u32, LineWriter>,
    correlation: StatId,
    /// The same number of a call that launches nothing, without a link.
    wait_number: StatId,
    returned: StatId,
    bytes: StatId,
}

impl Default for ThreadPlane {
    fn default() -> Self {
        let mut plane = PlaneWriter::new(HOST_PLANE).with_id(1);
        Self {
            correlation: plane.stat("correlation_id"),
            wait_number: plane.argument("correlation"),
            returned: plane.stat("return_value"),
            bytes: plane.stat("bytes"),
            plane,
            has_facts: false,
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
        // The number of a call without work on a device would be a link to nowhere.
        let number = match call_kind(name) {
            CallKind::Launch => Some(self.correlation),
            CallKind::Synchronization => Some(self.wait_number),
            CallKind::Other => None,
        };
        let number = number.map(|id| (id, call.correlation));
        let returned = (call.returned != 0).then(|| (self.returned, call.returned.into()));
        let name = self.plane.event_of(name, category, EventKind::Slice);
        let stats: Vec<WrittenStat<'_>> = number
            .into_iter()
            .chain(returned)
            .map(|(id, value)| WrittenStat {
                id,
                value: WrittenStatValue::Uint(value),
            })
            .collect();
        let (offset, duration) = times(start, call.start, call.end);
        self.line(call.thread).span(name, offset, duration, &stats);
    }

    fn range(&mut self, range: &Range<'_>, start: u64) {
        let (from, to) = range.times;
        let kind = if from == to {
            EventKind::Instant
        } else {
            EventKind::Slice
        };
        let name = self.plane.event_of(range.name, range.category, kind);
        let bytes = range.bytes.map(|bytes| WrittenStat {
            id: self.bytes,
            value: WrittenStatValue::Uint(bytes),
        });
        let (offset, duration) = times(start, from, to);
        let stats = bytes.as_slice();
        self.line(range.thread).span(name, offset, duration, stats);
    }

    fn add_fact(&mut self, name: &str, value: &str) {
        let id = self.plane.stat(name);
        self.plane.add_stat(id, WrittenStatValue::Str(value));
        self.has_facts = true;
    }

    fn finish(mut self) -> Option<PlaneWriter> {
        if self.threads.is_empty() && !self.has_facts {
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
