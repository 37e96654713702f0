//! Rows of a file by their key, numbered in the order of their first event.

use rustc_hash::FxHashMap;
use stepscope_model::{EventSink, TrackId};

/// Type of a row, derived from its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Slices and instants of one `pid` and `tid`.
    Thread,
    /// One series of one counter.
    Counter,
    /// Intervals outside threads.
    Async,
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) kind: RowKind,
    pub(crate) pid: String,
    /// The file's `tid` for threads; the display name for counters and async rows.
    pub(crate) label: String,
    /// Offset of the first event whose category belongs to a device.
    pub(crate) device_event: Option<usize>,
    /// Whether the category of any event belongs to the host.
    pub(crate) has_host_event: bool,
}

impl Row {
    /// Creates a row without events.
    pub(crate) fn new(key: &str, kind: RowKind, pid: &str, label: &str) -> Self {
        Self {
            key: key.to_owned(),
            kind,
            pid: pid.to_owned(),
            label: label.to_owned(),
            device_event: None,
            has_host_event: false,
        }
    }

    /// Returns the key of the row's `pid` and `tid`, under which the file's metadata describes it.
    pub(crate) fn thread_key(&self) -> &str {
        self.key.strip_suffix(DEVICE_SUFFIX).unwrap_or(&self.key)
    }

    /// Returns whether host and device have events in this row: two tracks that share `pid` and
    /// `tid`.
    pub(crate) fn is_shared(&self) -> bool {
        self.has_host_event && self.device_event.is_some()
    }

    /// Merges the properties of the row in another part of the file.
    pub(crate) fn add(&mut self, device_event: Option<usize>, has_host_event: bool) {
        self.device_event = self.device_event.or(device_event);
        self.has_host_event |= has_host_event;
    }
}

/// Returns the key of a device's row in a file where a host thread has the same `pid` and `tid`.
pub(crate) fn device_key(key: &str) -> String {
    format!("{key}{DEVICE_SUFFIX}")
}

const DEVICE_SUFFIX: &str = "/device";

/// Rows, each with the sink's track id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) all: Vec<Row>,
    ids: Vec<TrackId>,
    by_key: FxHashMap<String, usize>,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn id(&self, index: usize) -> TrackId {
        self.ids.get(index).copied().unwrap_or(TrackId(u32::MAX))
    }

    /// Returns the row with this key and creates it if it is new; `None` if the count is at
    /// `limit`.
    pub(crate) fn get<S: EventSink>(
        &mut self,
        sink: &mut S,
        key: &str,
        limit: u32,
        make: impl FnOnce() -> Row,
    ) -> Option<usize> {
        if let Some(index) = self.find(key) {
            return Some(index);
        }
        if self.all.len() >= limit as usize {
            return None;
        }
        let index = self.all.len();
        self.ids.push(sink.track(key));
        self.all.push(make());
        self.by_key.insert(key.to_owned(), index);
        Some(index)
    }
}
