//! Tracks: the rows of processes, threads, devices and streams.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{EventSink, TrackId, TrackKind, TrackPatch};

use super::export::GlobalId;
use super::sqlite::RowReader;
use super::strings::Strings;
use super::target::Target;

/// A row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RowKey {
    /// A process: a group.
    Process(u32),
    /// A thread.
    Thread(GlobalId),
    /// A device as one process uses it: a group.
    Device(u32, u32),
    /// A stream of a device.
    Stream(u32, u32, i64),
    /// Copies of managed memory, which run on no stream.
    ManagedMemory(u32, u32),
    /// Waits for a device or of a stream.
    Synchronization(u32, u32),
    /// Ranges of a process that begin and end anywhere.
    Ranges(u32),
    /// Allocations of device memory.
    Allocations(u32, u32),
}

/// Who names rows, and how many there may be.
#[derive(Clone, Copy)]
pub(super) struct RowNames<'c> {
    pub(super) target: &'c Target,
    pub(super) strings: &'c Strings,
    /// Rows that parts before this one have.
    pub(super) known: &'c FxHashSet<RowKey>,
    /// Maximum number of rows.
    pub(super) max_rows: usize,
}

/// The rows that one part of the reading uses.
#[derive(Default)]
pub(super) struct Rows {
    tracks: FxHashMap<RowKey, TrackId>,
    /// Rows in the order of their first event, for parts that follow.
    pub(super) new: Vec<RowKey>,
}

impl Rows {
    /// Returns the track of a row and describes it at its first use; `None` if there are too many.
    #[inline]
    pub(super) fn get<S: EventSink>(
        &mut self,
        key: RowKey,
        names: &RowNames<'_>,
        reader: &mut RowReader<'_, '_>,
        sink: &mut S,
    ) -> Option<TrackId> {
        if let Some(track) = self.tracks.get(&key) {
            return Some(*track);
        }
        self.create(key, names, reader, sink)
    }

    fn create<S: EventSink>(
        &mut self,
        key: RowKey,
        names: &RowNames<'_>,
        reader: &mut RowReader<'_, '_>,
        sink: &mut S,
    ) -> Option<TrackId> {
        let parent = match key {
            RowKey::Process(_) | RowKey::Device(..) => None,
            RowKey::Thread(GlobalId { pid, .. }) | RowKey::Ranges(pid) => {
                Some(self.get(RowKey::Process(pid), names, reader, sink)?)
            }
            RowKey::Stream(pid, device, _)
            | RowKey::ManagedMemory(pid, device)
            | RowKey::Synchronization(pid, device)
            | RowKey::Allocations(pid, device) => {
                Some(self.get(RowKey::Device(pid, device), names, reader, sink)?)
            }
        };
        if !names.known.contains(&key) {
            if names.known.len() + self.new.len() >= names.max_rows {
                return None;
            }
            self.new.push(key);
        }
        let description = Description::new(key, names, reader);
        let track = sink.track(&description.key);
        sink.describe(
            track,
            TrackPatch {
                name: Some(&description.name),
                kind: Some(description.kind),
                parent,
                pid: Some(i64::from(description.pid)),
                tid: description.tid.map(i64::from),
                device: description.device,
                stream: description.stream,
                ..TrackPatch::default()
            },
        );
        self.tracks.insert(key, track);
        Some(track)
    }
}

/// Texts and numbers of a row.
struct Description {
    key: String,
    name: String,
    kind: TrackKind,
    pid: u32,
    tid: Option<u32>,
    device: Option<u32>,
    stream: Option<i64>,
}

impl Description {
    fn new(key: RowKey, names: &RowNames<'_>, reader: &mut RowReader<'_, '_>) -> Self {
        let empty = |kind: TrackKind, pid: u32| Self {
            key: String::new(),
            name: String::new(),
            kind,
            pid,
            tid: None,
            device: None,
            stream: None,
        };
        let queue = |pid: u32, device: u32, end: &str| Self {
            key: format!("{pid}/gpu:{device}/{end}"),
            device: Some(device),
            ..empty(TrackKind::DeviceQueue, pid)
        };
        match key {
            RowKey::Process(pid) => {
                let name = names.target.processes.get(&pid);
                Self {
                    key: pid.to_string(),
                    name: match name {
                        Some(name) => format!("{name} ({pid})"),
                        None => format!("process {pid}"),
                    },
                    ..empty(TrackKind::Group, pid)
                }
            }
            RowKey::Thread(thread) => {
                let GlobalId { pid, tid } = thread;
                let number = names.target.threads.get(&thread);
                let name = number.and_then(|number| names.strings.get(reader, *number));
                Self {
                    key: format!("{pid}/{tid}"),
                    name: match name {
                        Some(name) => format!("{name} {tid}"),
                        None if tid == pid => "main thread".to_owned(),
                        None => format!("thread {tid}"),
                    },
                    tid: Some(tid),
                    ..empty(TrackKind::Thread, pid)
                }
            }
            RowKey::Device(pid, device) => {
                let name = names.target.devices.get(&device);
                Self {
                    key: format!("{pid}/gpu:{device}"),
                    name: match name.filter(|name| !name.is_empty()) {
                        Some(name) => format!("GPU {device} ({name})"),
                        None => format!("GPU {device}"),
                    },
                    device: Some(device),
                    ..empty(TrackKind::Group, pid)
                }
            }
            RowKey::Stream(pid, device, stream) => Self {
                name: format!("stream {stream}"),
                stream: Some(stream),
                ..queue(pid, device, &format!("stream:{stream}"))
            },
            RowKey::ManagedMemory(pid, device) => Self {
                name: "managed memory".to_owned(),
                ..queue(pid, device, "managed")
            },
            RowKey::Synchronization(pid, device) => Self {
                name: "synchronization".to_owned(),
                ..queue(pid, device, "synchronization")
            },
            RowKey::Ranges(pid) => Self {
                key: format!("{pid}/ranges"),
                name: "NVTX ranges".to_owned(),
                ..empty(TrackKind::Async, pid)
            },
            RowKey::Allocations(pid, device) => Self {
                name: "memory".to_owned(),
                kind: TrackKind::Async,
                ..queue(pid, device, "memory")
            },
        }
    }
}
