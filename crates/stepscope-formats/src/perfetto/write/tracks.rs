//! Tracks of the writer: their properties and open slices.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{NameId, TrackId, TrackKind, TrackPatch};

use super::put_counter;
use crate::perfetto::extension;
use crate::perfetto::schema::{process, track};
use crate::protobuf::wire::{put_bytes, put_int, put_message, put_sint, put_uint};

/// State that all sequences of one file share.
#[derive(Default)]
pub(crate) struct Shared {
    sequences: u32,
    uuids: FxHashMap<String, u64>,
    last_uuid: u64,
    /// By uuid, the sequence that writes slices to the track itself; other sequences use rows.
    first_rows: FxHashMap<u64, u32>,
    /// Pids and threads that a description already uses: a second one must not merge with it.
    processes: FxHashMap<i64, u64>,
    threads: FxHashMap<(i64, i64), u64>,
    /// Flow categories in the order of their numbers, from 1.
    flow_categories: Vec<String>,
    flow_numbers: FxHashMap<String, u64>,
    /// Flows whose category and id do not fit into 64 bits.
    wide: Vec<(String, u64)>,
    wide_numbers: FxHashMap<(String, u64), u64>,
    /// Groups that are described as a process: thread descriptions can refer to them.
    process_tracks: FxHashSet<u64>,
}

impl Shared {
    /// Returns the number of a new sequence; the file itself is 1.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequences += 1;
        self.sequences + 1
    }

    pub(crate) fn next_uuid(&mut self) -> u64 {
        self.last_uuid += 1;
        self.last_uuid
    }

    pub(crate) fn uuid_of(&mut self, key: &str) -> u64 {
        if let Some(uuid) = self.uuids.get(key) {
            return *uuid;
        }
        let uuid = self.next_uuid();
        self.uuids.insert(key.to_owned(), uuid);
        uuid
    }

    pub(crate) fn owns_first_row(&mut self, uuid: u64, sequence: u32) -> bool {
        *self.first_rows.entry(uuid).or_insert(sequence) == sequence
    }

    /// Returns the number of a flow category; [`extension::WIDE_FLOW`] if there are too many.
    pub(crate) fn flow_category(&mut self, text: &str) -> u64 {
        if let Some(number) = self.flow_numbers.get(text) {
            return *number;
        }
        let number = self.flow_categories.len() as u64 + 1;
        if number >= extension::WIDE_FLOW {
            return extension::WIDE_FLOW;
        }
        self.flow_categories.push(text.to_owned());
        self.flow_numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the 64-bit id of a flow.
    pub(crate) fn flow_id(&mut self, category: u64, text: &str, id: u64) -> u64 {
        if category < extension::WIDE_FLOW && id >> extension::FLOW_SHIFT == 0 {
            return category << extension::FLOW_SHIFT | id;
        }
        let next = self.wide.len() as u64;
        let number = *self
            .wide_numbers
            .entry((text.to_owned(), id))
            .or_insert(next);
        if number == next {
            self.wide.push((text.to_owned(), id));
        }
        extension::WIDE_FLOW << extension::FLOW_SHIFT | number
    }

    /// Appends the categories and wide ids that the flow ids refer to.
    pub(crate) fn put_flows(&self, out: &mut Vec<u8>) {
        for (number, text) in (1_u64..).zip(&self.flow_categories) {
            put_message(out, extension::run::FLOW, |flow| {
                put_uint(flow, extension::flow::NUMBER, number);
                put_bytes(flow, extension::flow::CATEGORY, text.as_bytes());
            });
        }
        for (number, (text, id)) in (0_u64..).zip(&self.wide) {
            put_message(out, extension::run::FLOW, |flow| {
                let number = extension::WIDE_FLOW << extension::FLOW_SHIFT | number;
                put_uint(flow, extension::flow::NUMBER, number);
                put_bytes(flow, extension::flow::CATEGORY, text.as_bytes());
                put_uint(flow, extension::flow::ID, *id);
            });
        }
    }
}

/// One row: nested slices of one track, and the open ones.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) uuid: u64,
    /// End times of the open slices, innermost last; never increasing.
    open: Vec<i64>,
    /// Earliest time of the next event.
    last_ns: i64,
}

impl Row {
    pub(crate) fn new(uuid: u64) -> Self {
        Self {
            uuid,
            open: Vec::new(),
            last_ns: i64::MIN,
        }
    }

    /// Returns whether a slice fits into this row.
    pub(crate) fn fits(&self, start_ns: i64, end_ns: i64) -> bool {
        let around = self.open.iter().rev().find(|end| **end > start_ns);
        start_ns >= self.last_ns && around.is_none_or(|around| *around >= end_ns)
    }

    pub(crate) fn push(&mut self, start_ns: i64, end_ns: i64) {
        self.last_ns = self.last_ns.max(start_ns);
        self.open.push(end_ns);
    }

    /// Removes the innermost slice if it ends at or before `until_ns`; returns its end.
    pub(crate) fn pop(&mut self, until_ns: i64) -> Option<i64> {
        let end_ns = self.open.pop_if(|end| *end <= until_ns)?;
        self.last_ns = self.last_ns.max(end_ns);
        Some(end_ns)
    }
}

/// One track.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent facts about a track, not the states of one machine"
)]
pub(crate) struct TrackState {
    pub(crate) key: String,
    pub(crate) uuid: u64,
    pub(crate) name: String,
    pub(crate) parent: Option<usize>,
    pub(crate) category: Option<NameId>,
    kind: TrackKind,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    sort_index: Option<i64>,
    unit: String,
    derived: bool,
    counter: bool,
    ordered_children: bool,
    /// Whether its description is missing from the file or outdated.
    pub(crate) fresh: bool,
    pub(crate) rows: Vec<Row>,
}

impl TrackState {
    pub(crate) fn new(key: &str, uuid: u64) -> Self {
        Self {
            key: key.to_owned(),
            uuid,
            fresh: true,
            ..Self::default()
        }
    }

    /// Returns a copy of the track for a fork, without open slices.
    pub(crate) fn without_rows(&self) -> Self {
        Self {
            rows: Vec::new(),
            ..self.clone()
        }
    }

    pub(crate) fn patch(&mut self, patch: &TrackPatch<'_>) {
        self.fresh = true;
        if let Some(name) = patch.name {
            name.clone_into(&mut self.name);
        }
        if let Some(unit) = patch.unit {
            unit.clone_into(&mut self.unit);
        }
        self.kind = patch.kind.unwrap_or(self.kind);
        self.parent = patch.parent.map(TrackId::index).or(self.parent);
        self.pid = patch.pid.or(self.pid);
        self.tid = patch.tid.or(self.tid);
        self.device = patch.device.or(self.device);
        self.stream = patch.stream.or(self.stream);
        self.sort_index = patch.sort_index.or(self.sort_index);
        self.derived = patch.derived.unwrap_or(self.derived);
        self.category = patch.category.or(self.category);
    }

    /// Merges a fork's properties of the track; `parent` and `category` are handles of this sink.
    pub(crate) fn learn(&mut self, fork: &Self, parent: Option<usize>, category: Option<NameId>) {
        self.patch(&TrackPatch {
            name: (!fork.name.is_empty()).then_some(fork.name.as_str()),
            kind: Some(fork.kind),
            parent: None,
            pid: fork.pid,
            tid: fork.tid,
            device: fork.device,
            stream: fork.stream,
            sort_index: fork.sort_index,
            unit: (!fork.unit.is_empty()).then_some(fork.unit.as_str()),
            derived: Some(fork.derived),
            category,
        });
        self.parent = parent.or(self.parent);
        self.counter |= fork.counter;
        self.ordered_children |= fork.ordered_children;
    }

    pub(crate) fn order_children(&mut self) {
        if !self.ordered_children {
            self.ordered_children = true;
            self.fresh = true;
        }
    }

    pub(crate) fn is_counter(&self) -> bool {
        self.counter || self.kind == TrackKind::Counter
    }

    pub(crate) fn make_counter(&mut self) {
        if !self.counter {
            self.counter = true;
            self.fresh = true;
        }
    }

    /// Appends the description.
    pub(crate) fn put(&self, parent: u64, category: &str, shared: &mut Shared, out: &mut Vec<u8>) {
        put_uint(out, track::UUID, self.uuid);
        if parent != 0 {
            put_uint(out, track::PARENT_UUID, parent);
        }
        let name = if self.name.is_empty() {
            &self.key
        } else {
            &self.name
        };
        let pid = self
            .pid
            .filter(|pid| *pid > 0 && i32::try_from(*pid).is_ok());
        let tid = self.tid.filter(|tid| *tid > 0);
        match (self.kind, pid, tid) {
            (TrackKind::Group, Some(pid), None)
                if parent == 0
                    && *shared.processes.entry(pid).or_insert(self.uuid) == self.uuid =>
            {
                shared.process_tracks.insert(self.uuid);
                put_message(out, track::PROCESS, |message| {
                    put_int(message, process::PID, pid);
                    put_bytes(message, process::NAME, name.as_bytes());
                });
            }
            (TrackKind::Thread, Some(pid), Some(tid))
                if !self.is_counter()
                    && shared.process_tracks.contains(&parent)
                    && *shared.threads.entry((pid, tid)).or_insert(self.uuid) == self.uuid =>
            {
                put_message(out, track::THREAD, |message| {
                    put_int(message, process::PID, pid);
                    put_int(message, process::THREAD_TID, tid);
                    put_bytes(message, process::THREAD_NAME, name.as_bytes());
                });
            }
            _ => {}
        }
        put_bytes(out, track::NAME, name.as_bytes());
        if self.is_counter() {
            put_counter(out, &self.unit);
        }
        if self.ordered_children {
            put_uint(out, track::CHILD_ORDERING, track::ORDERING_EXPLICIT);
        }
        if let Some(rank) = self.sort_index.filter(|rank| i32::try_from(*rank).is_ok()) {
            put_int(out, track::SIBLING_ORDER_RANK, rank);
        }
        put_message(out, extension::FIELD, |own| {
            put_bytes(own, extension::track::KEY, self.key.as_bytes());
            put_uint(own, extension::track::KIND, self.kind as u64);
            if self.name.is_empty() {
                put_uint(own, extension::track::UNNAMED, 1);
            }
            if parent != 0 {
                put_uint(own, extension::track::PARENT, parent);
            }
            for (field, value) in [
                (extension::track::PID, self.pid),
                (extension::track::TID, self.tid),
                (extension::track::STREAM, self.stream),
                (extension::track::SORT_INDEX, self.sort_index),
            ] {
                if let Some(value) = value {
                    put_sint(own, field, value);
                }
            }
            if let Some(device) = self.device {
                put_uint(own, extension::track::DEVICE, u64::from(device));
            }
            if self.derived {
                put_uint(own, extension::track::DERIVED, 1);
            }
            if !category.is_empty() {
                put_bytes(own, extension::track::CATEGORY, category.as_bytes());
            }
            if !self.unit.is_empty() {
                put_bytes(own, extension::track::UNIT, self.unit.as_bytes());
            }
        });
    }
}
