//! Rows of a file by their key, numbered in the order of their first event.

use rustc_hash::FxHashMap;
use stepscope_model::{EventSink, TrackId};

/// What a row is, as far as its events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowSort {
    /// Slices and instants of one `pid` and `tid`.
    Thread,
    /// One series of one counter.
    Counter,
    /// Intervals that belong to no thread.
    Async,
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: String,
    pub(super) sort: RowSort,
    pub(super) pid: String,
    /// The file's `tid` for threads; what users read for counters and async rows.
    pub(super) label: String,
    /// First event whose category says that a device did it.
    pub(super) device_event: Option<usize>,
}

/// Rows, and the sink's number of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) all: Vec<Row>,
    ids: Vec<TrackId>,
    by_key: FxHashMap<String, usize>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn find(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub(super) fn id(&self, index: usize) -> TrackId {
        self.ids.get(index).copied().unwrap_or(TrackId(u32::MAX))
    }

    /// The row with this key, made if it is new; `None` when there are `limit` already.
    pub(super) fn get<S: EventSink>(
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
