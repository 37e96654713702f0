//! Second pass: the records.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    ArgRef, ArgValue, Diagnostic, Dur, Epoch, EventSink, FlowDirection, FlowKey, NameId,
    ReadContext, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use crate::json::walk::{self, Fault};
use crate::losses;
use crate::rocprof::facts::{Agent, Process};

/// Number of records between two checks for cancellation.
const OFTEN: u64 = 4_096;

/// The fields of one record.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    kind: u64,
    operation: u64,
    thread: u64,
    start: Option<u64>,
    end: Option<u64>,
    correlation: u64,
    agent: Option<u64>,
    queue: u64,
    kernel: Option<u64>,
    to: Option<u64>,
    from: Option<u64>,
}

impl Record {
    fn read(bytes: &[u8], at: usize) -> Result<(Self, usize), Fault> {
        let mut found = Self::default();
        let end = walk::members(bytes, at, &mut |key, value| {
            let whole = || walk::whole(bytes, value);
            let handle = || walk::inner(bytes, value, b"handle");
            match key {
                b"kind" => found.kind = whole().unwrap_or(0),
                b"operation" => found.operation = whole().unwrap_or(0),
                b"thread_id" => found.thread = whole().unwrap_or(0),
                b"start_timestamp" => found.start = whole(),
                b"end_timestamp" => found.end = whole(),
                b"correlation_id" => {
                    found.correlation = walk::inner(bytes, value, b"internal").unwrap_or(0);
                }
                b"dst_agent_id" => found.to = handle(),
                b"src_agent_id" => found.from = handle(),
                b"agent_id" => found.agent = handle(),
                b"dispatch_info" => {
                    // The value was scanned completely before.
                    let _ = walk::members(bytes, value.span.start, &mut |key, value| match key {
                        b"agent_id" => found.agent = walk::inner(bytes, value, b"handle"),
                        b"queue_id" => {
                            found.queue = walk::inner(bytes, value, b"handle").unwrap_or(0);
                        }
                        b"kernel_id" => found.kernel = walk::whole(bytes, value),
                        _ => {}
                    });
                }
                _ => {}
            }
        })?;
        Ok((found, end))
    }
}

/// A row of one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Device(u32),
    Queue(u32, u64),
    Copies(u32),
    Thread(u64),
}

/// Counts of problems.
#[derive(Default)]
struct RocprofIssues {
    emitted: u64,
    no_time: u64,
    negative: u64,
    no_name: u64,
    too_many_rows: u64,
}

struct EventEmitter<'a, S> {
    bytes: &'a [u8],
    process: &'a Process,
    source: SourceId,
    context: &'a ReadContext,
    sink: &'a mut S,
    origin_ns: u64,
    rows: FxHashMap<Row, TrackId>,
    kernels: FxHashMap<u64, NameId>,
    correlation: NameId,
    issues: RocprofIssues,
}

/// Emits the records of all processes; returns their number.
pub(super) fn emit<S: EventSink>(
    bytes: &[u8],
    processes: &[Process],
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<u64, Fault> {
    let origin_ns = processes
        .iter()
        .filter_map(|process| process.init_ns)
        .min()
        .or_else(|| first_time(bytes))
        .unwrap_or(0);
    sink.epoch(Epoch {
        origin_ns: i64::try_from(origin_ns).unwrap_or(i64::MAX),
        unix_ns: None,
    });
    context.advance(0)?;
    let mut count = 0;
    let mut outcome = Ok(());
    for process in processes {
        facts(process, sink);
        let correlation = sink.name("correlation");
        let mut emitter = EventEmitter {
            bytes,
            process,
            source,
            context,
            sink,
            origin_ns,
            rows: FxHashMap::default(),
            kernels: FxHashMap::default(),
            correlation,
            issues: RocprofIssues::default(),
        };
        if let Some(at) = process.records {
            outcome = emitter.records(at).map(|_| ());
        }
        count += emitter.issues.emitted;
        emitter.issues.tell(sink);
        if outcome.is_err() {
            break;
        }
    }
    match outcome {
        Err(Fault::Cancelled) => Err(Fault::Cancelled),
        _ => Ok(count),
    }
}

/// Returns the first timestamp in the file, for files without a start time.
fn first_time(bytes: &[u8]) -> Option<u64> {
    let key = b"\"start_timestamp\":";
    let at = memchr::memmem::find(bytes, key)? + key.len();
    let (value, _) = walk::value(bytes, at).ok()?;
    walk::whole(bytes, &value)
}

fn facts<S: EventSink>(process: &Process, sink: &mut S) {
    sink.fact("kind", ArgValue::Str(Producer::Rocprof.name()));
    sink.fact("host", ArgValue::Str(&process.host));
    if let Ok(pid) = i64::try_from(process.pid) {
        sink.fact("pid", ArgValue::Int(pid));
    }
    if !process.command.is_empty() {
        sink.fact("command", ArgValue::Str(&process.command));
    }
    let mut gpus: Vec<&Agent> = process
        .agents
        .values()
        .filter(|agent| agent.is_gpu)
        .collect();
    gpus.sort_by_key(|agent| agent.index);
    for agent in gpus {
        sink.fact(
            &format!("device.{}.name", agent.index),
            ArgValue::Str(&agent.name),
        );
    }
}

impl RocprofIssues {
    fn tell<S: EventSink>(&self, sink: &mut S) {
        let losses = [
            (Diagnostic::BadTime, self.no_time, "records without a time"),
            (
                Diagnostic::NegativeDuration,
                self.negative,
                "records that end before they begin",
            ),
            (
                Diagnostic::MissingMetadata,
                self.no_name,
                "numbers of kernels or calls without a name",
            ),
            (
                Diagnostic::LimitReached,
                self.too_many_rows,
                "records of rows beyond the limit",
            ),
        ];
        losses::diagnose(sink, &losses);
    }
}

impl<S: EventSink> EventEmitter<'_, S> {
    fn records(&mut self, at: usize) -> Result<usize, Fault> {
        let bytes = self.bytes;
        let mut done = at;
        walk::object(bytes, at, &mut |key, at| {
            // Category of the slices. Categories of calls end in `_runtime`, as in other formats.
            let category = match key {
                b"kernel_dispatch" => "kernel",
                b"memory_copy" => "gpu_memcpy",
                b"hip_api" => "hip_runtime",
                b"hsa_api" => "hsa_runtime",
                b"rccl_api" => "rccl_runtime",
                b"marker_api" => "user_annotation",
                b"pc_sample_host_trap" | b"pc_sample_stochastic" => {
                    return walk::skip(bytes, at);
                }
                other => std::str::from_utf8(other).unwrap_or("record"),
            };
            let category_name = self.sink.name(category);
            walk::list(bytes, at, &mut |at| {
                if bytes.get(at) != Some(&b'{') {
                    return walk::skip(bytes, at);
                }
                let (record, end) = Record::read(bytes, at)?;
                self.record(&record, at, category, category_name);
                if self.issues.emitted.is_multiple_of(OFTEN) {
                    self.context.advance((end.max(done) - done) as u64)?;
                    done = end;
                }
                Ok(end)
            })
        })
    }

    fn record(&mut self, record: &Record, at: usize, category: &str, category_name: NameId) {
        let time = |ns: u64| {
            let ps = (i128::from(ns) - i128::from(self.origin_ns)) * 1_000;
            i64::try_from(ps).ok().map(Time::from_ps)
        };
        let times = record.start.and_then(time).zip(record.end.and_then(time));
        let Some((start, end)) = times.filter(|_| record.start != Some(0)) else {
            self.issues.no_time += 1;
            return;
        };
        let device = |handle: Option<u64>| {
            let agent = self.process.agents.get(&handle?)?;
            agent.is_gpu.then_some(agent.index)
        };
        let row = match category {
            "kernel" => Row::Queue(device(record.agent).unwrap_or(0), record.queue),
            "gpu_memcpy" => Row::Copies(
                device(record.to)
                    .or_else(|| device(record.from))
                    .unwrap_or(0),
            ),
            _ => Row::Thread(record.thread),
        };
        let Some(track) = self.row(row) else {
            self.issues.too_many_rows += 1;
            return;
        };
        let name = match record.kernel {
            Some(kernel) if category == "kernel" => self.kernel(kernel),
            _ => self.operation(record, category),
        };
        let mut dur = end.since(start);
        if dur < Dur::ZERO {
            self.issues.negative += 1;
            dur = Dur::ZERO;
        }
        let flow = SliceFlow {
            key: FlowKey {
                category: self.correlation,
                id: (self.process.pid << 40) ^ record.correlation,
            },
            direction: if matches!(row, Row::Thread(_)) {
                FlowDirection::Out
            } else {
                FlowDirection::In
            },
        };
        let calls = category == "hip_runtime" || category == "hsa_runtime";
        let linked = record.correlation != 0
            && self.process.has_calls
            && (calls || !matches!(row, Row::Thread(_)));
        let flows = if linked {
            std::slice::from_ref(&flow)
        } else {
            &[]
        };
        self.sink.slice(
            track,
            SliceIn {
                start,
                dur,
                name,
                category: category_name,
                args: ArgRef::new(self.source, at as u64),
                flows,
                ..SliceIn::default()
            },
        );
        self.issues.emitted += 1;
    }

    fn kernel(&mut self, kernel: u64) -> NameId {
        if let Some(name) = self.kernels.get(&kernel) {
            return *name;
        }
        let symbol = self.process.kernels.get(&kernel);
        let name = if let Some(symbol) = symbol.filter(|symbol| !symbol.name.is_empty()) {
            self.sink.name(&symbol.name)
        } else {
            self.issues.no_name += 1;
            self.sink.name(&format!("kernel {kernel}"))
        };
        self.kernels.insert(kernel, name);
        name
    }

    fn operation(&mut self, record: &Record, category: &str) -> NameId {
        if category == "user_annotation"
            && let Some(label) = self.process.markers.get(&record.correlation)
        {
            return self.sink.name(label);
        }
        let named = usize::try_from(record.kind)
            .ok()
            .and_then(|kind| self.process.operations.get(kind))
            .and_then(|names| names.get(usize::try_from(record.operation).ok()?))
            .filter(|name| !name.is_empty());
        if let Some(name) = named {
            self.sink.name(name)
        } else {
            self.issues.no_name += 1;
            self.sink.name(&format!("{category} {}", record.operation))
        }
    }

    /// Returns the track of a row; creates it if it is new.
    fn row(&mut self, row: Row) -> Option<TrackId> {
        if let Some(track) = self.rows.get(&row) {
            return Some(*track);
        }
        if self.rows.len() >= self.context.limits.max_tracks as usize {
            return None;
        }
        let pid = self.process.pid;
        let parent = match row {
            Row::Queue(device, _) | Row::Copies(device) => Some(self.row(Row::Device(device))?),
            Row::Device(_) | Row::Thread(_) => None,
        };
        let (key, name) = match row {
            Row::Device(device) => (format!("{pid}/gpu:{device}"), self.device_name(device)),
            Row::Queue(device, queue) => (
                format!("{pid}/gpu:{device}/queue:{queue}"),
                format!("queue {queue}"),
            ),
            Row::Copies(device) => (format!("{pid}/gpu:{device}/copies"), "copies".to_owned()),
            Row::Thread(thread) => (
                format!("{pid}/thread:{thread}"),
                if thread == pid {
                    "main thread".to_owned()
                } else {
                    format!("thread {thread}")
                },
            ),
        };
        let track = self.sink.track(&key);
        let signed = |number: u64| i64::try_from(number).ok();
        let (kind, device, stream) = match row {
            Row::Device(device) => (TrackKind::Group, Some(device), None),
            Row::Queue(device, queue) => (TrackKind::DeviceQueue, Some(device), signed(queue)),
            Row::Copies(device) => (TrackKind::DeviceQueue, Some(device), None),
            Row::Thread(_) => (TrackKind::Thread, None, None),
        };
        self.sink.describe(
            track,
            TrackPatch {
                name: Some(&name),
                kind: Some(kind),
                parent,
                pid: signed(pid),
                tid: match row {
                    Row::Thread(thread) => signed(thread),
                    _ => None,
                },
                device,
                stream,
                ..TrackPatch::default()
            },
        );
        self.rows.insert(row, track);
        Some(track)
    }

    fn device_name(&self, device: u32) -> String {
        let agents = &self.process.agents;
        let own = agents
            .values()
            .find(|agent| agent.is_gpu && agent.index == device);
        match own.filter(|agent| !agent.name.is_empty()) {
            Some(agent) => format!("GPU {device} ({})", agent.name),
            None => format!("GPU {device}"),
        }
    }
}
