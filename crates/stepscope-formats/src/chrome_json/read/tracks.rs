//! Rows of a file by their key, numbered in the order of their first event.

use rustc_hash::FxHashMap;
use stepscope_model::{EventSink, TrackId};

/// What a row is, as far as its events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Slices and instants of one `pid` and `tid`.
    Thread,
    /// One series of one counter.
    Counter,
    /// Intervals that belong to no thread.
    Async,
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) kind: RowKind,
    pub(crate) pid: String,
    /// The file's `tid` for threads; what users read for counters and async rows.
    pub(crate) label: String,
    /// First event whose category says that a device did it.
    pub(crate) device_event: Option<usize>,
    /// Whether the category of any event says that the host did it.
    pub(crate) has_host_event: bool,
}

impl Row {
    /// A row without events yet.
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

    /// The key of the row's `pid` and `tid`, by which the file names it.
    pub(crate) fn thread_key(&self) -> &str {
        self.key.strip_suffix(DEVICE_SUFFIX).unwrap_or(&self.key)
    }

    /// Whether host and device have events in this row: two tracks that share `pid` and `tid`.
    pub(crate) fn is_shared(&self) -> bool {
        self.has_host_event && self.device_event.is_some()
    }

    /// Adds what another part of the file says about the row.
    pub(crate) fn add(&mut self, device_event: Option<usize>, has_host_event: bool) {
        self.device_event = self.device_event.or(device_event);
        self.has_host_event |= has_host_event;
    }
}

/// The key of a device's row in a file where a host thread has the same `pid` and `tid`.
pub(crate) fn device_key(key: &str) -> String {
    format!("{key}{DEVICE_SUFFIX}")
}

const DEVICE_SUFFIX: &str = "/device";

/// Rows, and the sink's number of each.
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

    /// The row with this key, made if it is new; `None` when there are `limit` already.
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
