//! Conversion of uuids, processes and threads to tracks of the sink.
//!
//! Events refer to a track by uuid, and its description can come later or be missing. So events
//! store a *slot*; slots become tracks at the end, when every description is known:
//!
//! | described as | key | kind |
//! |---|---|---|
//! | thread | `{pid}/{tid}` (several uuids of one thread are one track) | thread |
//! | process | `{pid}`, and `track/{uuid}` for events on the process itself | group, async |
//! | counter | `track/{uuid}` | counter |
//! | anything else, or nothing | `track/{uuid}` | async; a group when it only has children |

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Diagnostic, EventSink, NameId, TrackId, TrackKind, TrackPatch};

use super::sequence::TextCount;
use crate::perfetto::extension;
use crate::perfetto::schema::{counter, process, track, tree};
use crate::protobuf::wire::{Fields, Value};

/// An event's reference to its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TrackRef {
    /// A track by its uuid; 0 is the default track.
    Uuid(u64),
    /// A thread by process and thread number.
    Thread(i64, i64),
    /// A legacy async track: process, category, id.
    Async(i64, NameId, u64),
    /// CPU time of a slot, from legacy fields.
    ThreadTime(u32),
}

/// A counter's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterKind {
    pub(crate) incremental: bool,
    pub(crate) multiplier: i64,
    unit: String,
    builtin: u64,
}

/// Merged content of the `TrackDescriptor`s of one track.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrackDescription {
    name: String,
    parent: u64,
    process: Option<i64>,
    thread: Option<(i64, i64)>,
    pub(crate) counter: Option<CounterKind>,
    rank: Option<i64>,
    explicit_children: bool,
    own: Option<ExtensionTrack>,
}

/// Track properties from our writer's extension.
#[derive(Clone, Debug, Default)]
struct ExtensionTrack {
    key: String,
    kind: u64,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    sort_index: Option<i64>,
    derived: bool,
    category: String,
    row_of: Option<u64>,
    parent: Option<u64>,
    unnamed: bool,
    unit: String,
}

/// Slots and descriptions.
#[derive(Default)]
pub(crate) struct Tracks {
    slots: Vec<TrackRef>,
    index: FxHashMap<TrackRef, u32>,
    described: FxHashMap<u64, TrackDescription>,
    /// Uuids in the order of their first description, so that output is independent of hashing.
    order: Vec<u64>,
    process_names: BTreeMap<i64, String>,
    process_ranks: BTreeMap<i64, i64>,
    thread_names: BTreeMap<(i64, i64), String>,
    last: Option<(TrackRef, u32)>,
    /// Number of slots and descriptions beyond `max_tracks`.
    pub(crate) refused: u64,
}

/// Tracks of all slots.
pub(crate) struct ResolvedTracks {
    /// By slot: the slot that shares its stack of open slices.
    pub(crate) same_as: Vec<u32>,
    /// By slot: the sink's track.
    pub(crate) ids: Vec<TrackId>,
}

impl Tracks {
    /// Returns the slot of a track reference; `None` beyond the limit on tracks.
    pub(crate) fn slot(&mut self, place: TrackRef, max_tracks: u32) -> Option<u32> {
        if let Some((last, slot)) = self.last
            && last == place
        {
            return Some(slot);
        }
        let next = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let slot = match self.index.get(&place) {
            Some(slot) => *slot,
            None if next >= max_tracks => {
                self.refused += 1;
                return None;
            }
            None => {
                self.slots.push(place);
                self.index.insert(place, next);
                next
            }
        };
        self.last = Some((place, slot));
        Some(slot)
    }

    pub(crate) fn counter(&self, uuid: u64) -> Option<&CounterKind> {
        self.described.get(&uuid)?.counter.as_ref()
    }

    /// Stores a `TrackDescriptor`.
    pub(crate) fn describe(&mut self, message: &[u8], max_tracks: u32, texts: &mut TextCount) {
        let mut uuid = 0;
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            if let (track::UUID, Value::Varint(number)) = (field.number, field.value) {
                uuid = number;
            }
        }
        if !self.described.contains_key(&uuid) {
            if self.order.len() >= max_tracks as usize {
                self.refused += 1;
                return;
            }
            self.order.push(uuid);
        }
        let mut found = self.described.remove(&uuid).unwrap_or_default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (track::NAME | track::STATIC_NAME | track::ATRACE_NAME, Value::Bytes(name)) => {
                    found.name = texts.owned(name);
                }
                (track::PARENT_UUID, Value::Varint(parent)) => found.parent = parent,
                (track::PROCESS, Value::Bytes(message)) => {
                    found.process = self.process(message, texts).or(found.process);
                }
                (track::THREAD, Value::Bytes(message)) => {
                    found.thread = self.thread(message, texts).or(found.thread);
                }
                (track::COUNTER, Value::Bytes(message)) => {
                    found.counter = Some(counter_kind(message, texts));
                }
                (track::SIBLING_ORDER_RANK, value) => found.rank = value.int(),
                (track::CHILD_ORDERING, Value::Varint(order)) => {
                    found.explicit_children = order == track::ORDERING_EXPLICIT;
                }
                (extension::FIELD, Value::Bytes(message)) => {
                    found.own = Some(own_track(message, texts));
                }
                _ => {}
            }
        }
        self.described.insert(uuid, found);
    }

    /// Stores a `ProcessDescriptor`; returns its pid.
    pub(crate) fn process(&mut self, message: &[u8], texts: &mut TextCount) -> Option<i64> {
        let (mut pid, mut name, mut command, mut rank) = (None, None, None, None);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (process::PID, value) => pid = value.int(),
                (process::NAME, Value::Bytes(text)) => name = Some(text),
                (process::CMDLINE, Value::Bytes(text)) => command = command.or(Some(text)),
                (process::LEGACY_SORT_INDEX, value) => rank = value.int(),
                _ => {}
            }
        }
        let pid = pid?;
        if let Some(name) = name.or(command).filter(|name| !name.is_empty()) {
            self.process_names.insert(pid, texts.owned(name));
        }
        if let Some(rank) = rank {
            self.process_ranks.insert(pid, rank);
        }
        Some(pid)
    }

    /// Stores a `ThreadDescriptor`; returns its pid and tid.
    pub(crate) fn thread(&mut self, message: &[u8], texts: &mut TextCount) -> Option<(i64, i64)> {
        let (mut pid, mut tid, mut name) = (0, None, None);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (process::PID, value) => pid = value.int().unwrap_or(0),
                (process::THREAD_TID, value) => tid = value.int(),
                (process::THREAD_NAME, Value::Bytes(text)) => name = Some(text),
                _ => {}
            }
        }
        let tid = tid?;
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            self.thread_names.insert((pid, tid), texts.owned(name));
        }
        Some((pid, tid))
    }

    /// Stores a `ProcessTree`, for names only: it lists every process of the machine.
    pub(crate) fn process_tree(&mut self, message: &[u8], texts: &mut TextCount) {
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let Some(entry) = field.value.bytes() else {
                continue;
            };
            let (mut id, mut group, mut name) = (None, None, None);
            let mut inner = Fields::new(entry);
            while let Some(inner) = inner.next_lenient() {
                match (field.number, inner.number, inner.value) {
                    (tree::PROCESSES, tree::PROCESS_PID, value)
                    | (tree::THREADS, tree::THREAD_TID, value) => id = value.int(),
                    (tree::THREADS, tree::THREAD_TGID, value) => group = value.int(),
                    (tree::PROCESSES, tree::PROCESS_CMDLINE, Value::Bytes(text))
                    | (tree::THREADS, tree::THREAD_NAME, Value::Bytes(text)) => {
                        name = name.or(Some(text));
                    }
                    _ => {}
                }
            }
            match (field.number, id, group, name) {
                (tree::PROCESSES, Some(pid), _, Some(name)) => {
                    self.process_names.insert(pid, texts.owned(name));
                }
                (tree::THREADS, Some(tid), Some(pid), Some(name)) => {
                    self.thread_names.insert((pid, tid), texts.owned(name));
                }
                _ => {}
            }
        }
    }

    /// Creates every track that has events or a description, parents before children.
    pub(crate) fn place<S: EventSink>(
        &mut self,
        used: &[bool],
        texts: &TextCount,
        sink: &mut S,
    ) -> ResolvedTracks {
        self.break_rings(sink);
        let mut has_children: FxHashSet<u64> = FxHashSet::default();
        for uuid in &self.order {
            has_children.extend(self.described.get(uuid).map(TrackDescription::parent_uuid));
        }
        for at in 0..self.order.len() {
            let Some(uuid) = self.order.get(at).copied() else {
                continue;
            };
            let slot = self.index.get(&TrackRef::Uuid(uuid)).copied();
            let events = slot.is_some_and(|slot| used.get(slot as usize) == Some(&true));
            self.make(uuid, events, has_children.contains(&uuid), sink);
        }
        let same_as = self.same_as();
        let ids = (0..self.slots.len())
            .map(|slot| self.track_of_slot(slot, texts, sink))
            .collect();
        ResolvedTracks { same_as, ids }
    }

    /// Returns, by slot, the slot that shares its stack of open slices. Uuids of one thread are one
    /// track. Rows that our writer made for an overlapping track stay separate until their events
    /// are paired.
    fn same_as(&self) -> Vec<u32> {
        let mut first: FxHashMap<(i64, i64), u32> = FxHashMap::default();
        let mut same = Vec::with_capacity(self.slots.len());
        for (slot, place) in (0_u32..).zip(&self.slots) {
            let thread = match place {
                TrackRef::Thread(pid, tid) => Some((*pid, *tid)),
                TrackRef::Uuid(uuid) => self
                    .described
                    .get(uuid)
                    .and_then(|known| known.thread.filter(|_| known.own.is_none())),
                _ => None,
            };
            same.push(thread.map_or(slot, |thread| *first.entry(thread).or_insert(slot)));
        }
        same
    }

    fn track_of_slot<S: EventSink>(&self, slot: usize, texts: &TextCount, sink: &mut S) -> TrackId {
        match self.slots.get(slot) {
            Some(TrackRef::Uuid(uuid)) => self.track_of_uuid(*uuid, sink),
            Some(TrackRef::Thread(pid, tid)) => self.thread_track(*pid, *tid, "", sink),
            Some(TrackRef::Async(pid, category, id)) => {
                let category_text = texts.category_text(*category);
                let id_text = format!("{pid}/async/{category_text}/{id:#x}");
                let parent = self.group(*pid, sink);
                let made = sink.track(&id_text);
                sink.describe(
                    made,
                    TrackPatch {
                        name: (!category_text.is_empty()).then_some(category_text),
                        kind: Some(TrackKind::Async),
                        parent: Some(parent),
                        pid: Some(*pid),
                        category: Some(*category),
                        ..TrackPatch::default()
                    },
                );
                made
            }
            Some(TrackRef::ThreadTime(of)) => {
                let of = *of as usize;
                let key = format!("{}/thread time", self.key_of_slot(of));
                let parent = self.track_of_slot(of, texts, sink);
                let made = sink.track(&key);
                sink.describe(
                    made,
                    TrackPatch {
                        name: Some("thread time"),
                        kind: Some(TrackKind::Counter),
                        parent: Some(parent),
                        unit: Some("ns"),
                        ..TrackPatch::default()
                    },
                );
                made
            }
            None => sink.track("track/0"),
        }
    }

    fn key_of_slot(&self, slot: usize) -> String {
        match self.slots.get(slot) {
            Some(TrackRef::Uuid(uuid)) => self.key_of_uuid(*uuid),
            Some(TrackRef::Thread(pid, tid)) => format!("{pid}/{tid}"),
            _ => "track/0".to_owned(),
        }
    }

    fn key_of_uuid(&self, uuid: u64) -> String {
        match self.described.get(&uuid) {
            Some(TrackDescription { own: Some(own), .. }) => match own.row_of {
                Some(of) if of != uuid => self.plain_key(of),
                _ => own.key.clone(),
            },
            Some(TrackDescription {
                thread: Some((pid, tid)),
                ..
            }) => format!("{pid}/{tid}"),
            _ => format!("track/{uuid}"),
        }
    }

    /// Returns the key like [`Self::key_of_uuid`], without following a row to its track.
    fn plain_key(&self, uuid: u64) -> String {
        self.described
            .get(&uuid)
            .and_then(|described| described.own.as_ref())
            .map_or_else(|| format!("track/{uuid}"), |own| own.key.clone())
    }

    fn track_of_uuid<S: EventSink>(&self, uuid: u64, sink: &mut S) -> TrackId {
        match self.described.get(&uuid) {
            Some(TrackDescription {
                own: None,
                thread: Some((pid, tid)),
                name,
                ..
            }) => self.thread_track(*pid, *tid, name, sink),
            described => {
                let made = sink.track(&self.key_of_uuid(uuid));
                if described.is_none() {
                    let name = if uuid == 0 {
                        Some("Default track")
                    } else {
                        None
                    };
                    sink.describe(
                        made,
                        TrackPatch {
                            name,
                            kind: Some(TrackKind::Async),
                            ..TrackPatch::default()
                        },
                    );
                }
                made
            }
        }
    }

    fn group<S: EventSink>(&self, pid: i64, sink: &mut S) -> TrackId {
        let made = sink.track(&pid.to_string());
        sink.describe(
            made,
            TrackPatch {
                name: self.process_names.get(&pid).map(String::as_str),
                kind: Some(TrackKind::Group),
                pid: Some(pid),
                sort_index: self.process_ranks.get(&pid).copied(),
                ..TrackPatch::default()
            },
        );
        made
    }

    fn thread_track<S: EventSink>(&self, pid: i64, tid: i64, name: &str, sink: &mut S) -> TrackId {
        let parent = self.group(pid, sink);
        let made = sink.track(&format!("{pid}/{tid}"));
        let known = self.thread_names.get(&(pid, tid)).map(String::as_str);
        sink.describe(
            made,
            TrackPatch {
                name: known.or((!name.is_empty()).then_some(name)),
                kind: Some(TrackKind::Thread),
                parent: Some(parent),
                pid: Some(pid),
                tid: Some(tid),
                ..TrackPatch::default()
            },
        );
        made
    }

    /// Creates the track of one description.
    fn make<S: EventSink>(&self, uuid: u64, events: bool, children: bool, sink: &mut S) {
        let Some(described) = self.described.get(&uuid) else {
            return;
        };
        if let Some(own) = &described.own {
            if own.row_of.is_none() {
                self.make_own(uuid, described, own, sink);
            }
            return;
        }
        if let Some((pid, tid)) = described.thread {
            self.thread_track(pid, tid, &described.name, sink);
            return;
        }
        if let Some(pid) = described.process {
            let group = self.group(pid, sink);
            if events {
                let made = sink.track(&format!("track/{uuid}"));
                let name = (!described.name.is_empty()).then_some(described.name.as_str());
                sink.describe(
                    made,
                    TrackPatch {
                        name: name.or(Some("process")),
                        kind: Some(TrackKind::Async),
                        parent: Some(group),
                        pid: Some(pid),
                        ..TrackPatch::default()
                    },
                );
            }
            return;
        }
        let parent = self.parent_track(described.parent, sink);
        let pid = self
            .described
            .get(&described.parent)
            .and_then(|parent| parent.process.or(parent.thread.map(|thread| thread.0)));
        let made = sink.track(&format!("track/{uuid}"));
        let builtin = match described.counter.as_ref().map(|counter| counter.builtin) {
            Some(1) => "thread time",
            Some(2) => "thread instructions",
            _ => "",
        };
        let name = if described.name.is_empty() {
            builtin
        } else {
            &described.name
        };
        let kind = match &described.counter {
            Some(_) => TrackKind::Counter,
            None if children && !events => TrackKind::Group,
            None => TrackKind::Async,
        };
        let unit = described
            .counter
            .as_ref()
            .map(|counter| counter.unit.as_str());
        sink.describe(
            made,
            TrackPatch {
                name: (!name.is_empty()).then_some(name),
                kind: Some(kind),
                parent,
                pid,
                sort_index: described.rank,
                unit: unit.filter(|unit| !unit.is_empty()),
                ..TrackPatch::default()
            },
        );
    }

    fn make_own<S: EventSink>(
        &self,
        uuid: u64,
        described: &TrackDescription,
        own: &ExtensionTrack,
        sink: &mut S,
    ) {
        let made = sink.track(&self.plain_key(uuid));
        let parent = own
            .parent
            .filter(|parent| *parent != 0)
            .map(|parent| sink.track(&self.plain_key(parent)));
        let kind = match own.kind {
            0 => TrackKind::Group,
            2 => TrackKind::DeviceQueue,
            3 => TrackKind::Async,
            4 => TrackKind::Counter,
            5 => TrackKind::Steps,
            _ => TrackKind::Thread,
        };
        let category = (!own.category.is_empty()).then(|| sink.name(&own.category));
        let name = if own.unnamed { "" } else { &described.name };
        sink.describe(
            made,
            TrackPatch {
                name: (!name.is_empty()).then_some(name),
                kind: Some(kind),
                parent,
                pid: own.pid,
                tid: own.tid,
                device: own.device,
                stream: own.stream,
                sort_index: own.sort_index,
                unit: (!own.unit.is_empty()).then_some(own.unit.as_str()),
                derived: own.derived.then_some(true),
                category,
            },
        );
    }

    fn parent_track<S: EventSink>(&self, parent: u64, sink: &mut S) -> Option<TrackId> {
        if parent == 0 {
            return None;
        }
        let described = self.described.get(&parent)?;
        if described.own.is_none()
            && let Some(pid) = described.process
        {
            return Some(self.group(pid, sink));
        }
        Some(self.track_of_uuid(parent, sink))
    }

    /// Breaks cycles of parents at the track that was described first.
    fn break_rings<S: EventSink>(&mut self, sink: &mut S) {
        // The walk that visited a uuid; walks are numbered from 1.
        let mut seen: FxHashMap<u64, usize> = FxHashMap::default();
        let mut rings = 0;
        let mut first = 0;
        for walk in 1..=self.order.len() {
            let Some(mut uuid) = self.order.get(walk - 1).copied() else {
                break;
            };
            loop {
                match seen.get(&uuid) {
                    Some(number) if *number == walk => {
                        if let Some(described) = self.described.get_mut(&uuid) {
                            described.parent = 0;
                            if let Some(own) = &mut described.own {
                                own.parent = None;
                            }
                        }
                        rings += 1;
                        if rings == 1 {
                            first = uuid;
                        }
                        break;
                    }
                    Some(_) => break,
                    None => {}
                }
                seen.insert(uuid, walk);
                let Some(described) = self.described.get(&uuid) else {
                    break;
                };
                uuid = described.parent_uuid();
                if uuid == 0 {
                    break;
                }
            }
        }
        if rings > 0 {
            sink.diagnose(
                Diagnostic::Unreadable,
                rings,
                &format!("parents of track {first} form a ring; it stands at the top"),
            );
        }
    }
}

impl TrackDescription {
    fn parent_uuid(&self) -> u64 {
        match &self.own {
            Some(own) => own.parent.unwrap_or(0),
            None => self.parent,
        }
    }
}

fn counter_kind(message: &[u8], texts: &mut TextCount) -> CounterKind {
    let mut kind = CounterKind {
        multiplier: 1,
        ..CounterKind::default()
    };
    let mut unit = 0;
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (counter::TYPE, Value::Varint(builtin)) => kind.builtin = builtin,
            (counter::UNIT, Value::Varint(number)) => unit = number,
            (counter::UNIT_NAME, Value::Bytes(text)) => kind.unit = texts.owned(text),
            (counter::UNIT_MULTIPLIER, value) => {
                kind.multiplier = value.int().filter(|m| *m != 0).unwrap_or(1);
            }
            (counter::IS_INCREMENTAL, Value::Varint(flag)) => kind.incremental = flag != 0,
            _ => {}
        }
    }
    if kind.unit.is_empty() {
        let text = match (unit, kind.builtin) {
            (1, _) | (_, 1) => "ns",
            (2, _) | (_, 2) => "count",
            (3, _) => "bytes",
            _ => "",
        };
        text.clone_into(&mut kind.unit);
    }
    kind
}

fn own_track(message: &[u8], texts: &mut TextCount) -> ExtensionTrack {
    let mut found = ExtensionTrack::default();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (extension::track::KEY, Value::Bytes(key)) => found.key = texts.owned(key),
            (extension::track::KIND, Value::Varint(kind)) => found.kind = kind,
            (extension::track::PID, value) => found.pid = value.sint(),
            (extension::track::TID, value) => found.tid = value.sint(),
            (extension::track::DEVICE, Value::Varint(device)) => {
                found.device = u32::try_from(device).ok();
            }
            (extension::track::STREAM, value) => found.stream = value.sint(),
            (extension::track::SORT_INDEX, value) => found.sort_index = value.sint(),
            (extension::track::DERIVED, Value::Varint(flag)) => found.derived = flag != 0,
            (extension::track::CATEGORY, Value::Bytes(text)) => found.category = texts.owned(text),
            (extension::track::ROW_OF, Value::Varint(uuid)) => found.row_of = Some(uuid),
            (extension::track::PARENT, Value::Varint(uuid)) => found.parent = Some(uuid),
            (extension::track::UNNAMED, Value::Varint(flag)) => found.unnamed = flag != 0,
            (extension::track::UNIT, Value::Bytes(text)) => found.unit = texts.owned(text),
            _ => {}
        }
    }
    found
}
