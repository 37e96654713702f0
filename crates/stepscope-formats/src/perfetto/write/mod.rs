//! Perfetto writer: a sink whose file `ui.perfetto.dev` and `trace_processor` open.
//!
//! Events are written as they come; only the open slices of each track are in memory. Slices of one
//! track should come in order of time, enclosing ones first, as a finished trace emits them. The
//! writer emits a begin at once, and the end when a later slice starts after it. A slice that
//! overlaps the open ones without nesting, or that comes too late, goes to a *row*: a separate
//! child track, which our reader merges back. So any order is correct, and the usual order gives
//! the smallest file.
//!
//! Times are whole nanoseconds, rounded down, shifted so that the epoch is a fixed small number
//! (small numbers have short encodings); a clock snapshot holds the Unix time. Properties that the
//! schema cannot express go to fields of our own: see [`super::extension`].

mod intern;
mod tracks;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgRef, ArgSource, ArgValue, Diagnostic, Epoch, EventSink, FlowBind, FlowDirection, InstantIn,
    NameId, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackPatch,
};

use self::intern::Interner;
use self::tracks::{Shared, TrackState};
use crate::perfetto::extension;
use crate::perfetto::schema::{clock, counter, event, packet, track};
use crate::protobuf::wire::{
    put_bytes, put_double, put_fixed64, put_int, put_message, put_sint, put_uint,
};

/// Timestamp of the epoch in packets: 78 hours, which leaves room for earlier events, and
/// timestamps up to three days later still take seven bytes.
const BASE_NS: i64 = 1 << 48;
/// Buffer size at which packets are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Sink that writes a Perfetto trace. [`finish`](Self::finish) completes the file.
///
/// ```
/// use stepscope_formats::perfetto::PerfettoSink;
/// use stepscope_model::{Dur, Epoch, EventSink, SliceIn, Time, TrackPatch};
///
/// let mut sink = PerfettoSink::new(Vec::new());
/// sink.epoch(Epoch::default());
/// let track = sink.track("1/2");
/// sink.describe(track, TrackPatch { name: Some("worker"), ..TrackPatch::default() });
/// let name = sink.name("forward");
/// sink.slice(track, SliceIn { start: Time::ZERO, dur: Dur::from_ps(2_000), name, ..SliceIn::default() });
/// let file = sink.finish()?;
/// assert!(file.starts_with(&[0x0a]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PerfettoSink<W: Write + Send> {
    out: Out<W>,
    /// Complete packets that are not written yet.
    packets: Vec<u8>,
    error: Option<io::Error>,
    shared: Arc<Mutex<Shared>>,
    sequence: u32,
    begun: bool,
    epoch: Epoch,
    names: Vec<Arc<str>>,
    name_ids: FxHashMap<Arc<str>, NameId>,
    tracks: Vec<TrackState>,
    track_ids: FxHashMap<String, TrackId>,
    sources: Vec<Arc<dyn ArgSource>>,
    interner: Interner,
    /// Category numbers of flows, by name.
    flow_categories: FxHashMap<NameId, u64>,
    /// Facts, modules and diagnostics: fields of [`extension::run`].
    run: Vec<u8>,
    /// The event under construction.
    scratch: Vec<u8>,
    moved_times: u64,
}

enum Out<W> {
    /// The output file.
    File(W),
    /// A fork's buffer, kept in memory until the fork is merged.
    Memory(Vec<u8>),
}

impl<W: Write + Send> PerfettoSink<W> {
    /// Creates a sink that writes to `out`, with a buffer.
    pub fn new(out: W) -> Self {
        let mut made = Self::over(Out::File(out), Arc::default(), 1);
        made.name("");
        made
    }

    fn over(out: Out<W>, shared: Arc<Mutex<Shared>>, sequence: u32) -> Self {
        Self {
            out,
            packets: Vec::new(),
            error: None,
            shared,
            sequence,
            begun: false,
            epoch: Epoch::default(),
            names: Vec::new(),
            name_ids: FxHashMap::default(),
            tracks: Vec::new(),
            track_ids: FxHashMap::default(),
            sources: Vec::new(),
            interner: Interner::default(),
            flow_categories: FxHashMap::default(),
            run: Vec::new(),
            scratch: Vec::new(),
            moved_times: 0,
        }
    }

    /// Ends open slices, writes the remaining packets and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.close();
        let mut run = Vec::new();
        put_sint(&mut run, extension::run::ORIGIN_NS, self.epoch.origin_ns);
        put_int(&mut run, extension::run::BASE_NS, BASE_NS);
        if let Some(unix_ns) = self.epoch.unix_ns {
            put_sint(&mut run, extension::run::UNIX_NS, unix_ns);
        }
        self.lock().put_flows(&mut run);
        if self.moved_times > 0 {
            let moved = self.moved_times;
            self.diagnose(
                Diagnostic::BadTime,
                moved,
                "more than 78 hours before the epoch; moved to there",
            );
        }
        run.append(&mut self.run);
        self.packet(None, |message| put_bytes(message, extension::FIELD, &run));
        self.write();
        match (self.out, self.error) {
            (_, Some(error)) => Err(error),
            (Out::File(mut out), None) => {
                out.flush()?;
                Ok(out)
            }
            (Out::Memory(_), None) => Err(io::Error::other("a fork has no file of its own")),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        // No code panics while it holds this lock; the content would be valid even then.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends open slices on every track, and writes track descriptions that came late.
    fn close(&mut self) {
        self.begin();
        for index in 0..self.tracks.len() {
            self.describe_track(index);
            let rows = self.tracks.get(index).map_or(0, |track| track.rows.len());
            for row in 0..rows {
                self.end_until(index, row, i64::MAX);
            }
        }
    }

    /// Appends one packet; `at_ns` is its timestamp.
    fn packet(&mut self, at_ns: Option<i64>, fill: impl FnOnce(&mut Vec<u8>)) {
        let sequence = u64::from(self.sequence);
        let interned = std::mem::take(&mut self.interner.fresh);
        put_message(&mut self.packets, 1, |message| {
            if let Some(at_ns) = at_ns {
                put_int(message, packet::TIMESTAMP, at_ns);
            }
            put_uint(message, packet::SEQUENCE_ID, sequence);
            if !interned.is_empty() {
                put_bytes(message, packet::INTERNED_DATA, &interned);
            }
            fill(message);
        });
        self.interner.fresh = interned;
        self.interner.fresh.clear();
        if self.packets.len() >= BUFFER_BYTES {
            self.write();
        }
    }

    fn write(&mut self) {
        match &mut self.out {
            Out::Memory(gathered) => gathered.append(&mut self.packets),
            Out::File(out) => {
                if self.error.is_none()
                    && let Err(error) = out.write_all(&self.packets)
                {
                    self.error = Some(error);
                }
                self.packets.clear();
            }
        }
    }

    /// Appends the first packets of this sequence, once.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.packet(None, |message| {
            put_uint(message, packet::SEQUENCE_FLAGS, packet::FLAG_CLEARED);
            put_uint(message, packet::FIRST_ON_SEQUENCE, 1);
        });
        let unix_ns = self.epoch.unix_ns.and_then(|ns| u64::try_from(ns).ok());
        if let (Some(unix_ns), Out::File(_)) = (unix_ns, &self.out) {
            self.packet(Some(BASE_NS), |message| {
                put_message(message, packet::CLOCK_SNAPSHOT, |snapshot| {
                    for (id, ns) in [
                        (clock::BOOTTIME, BASE_NS as u64),
                        (clock::REALTIME, unix_ns),
                    ] {
                        put_message(snapshot, clock::CLOCKS, |reading| {
                            put_uint(reading, clock::ID, id);
                            put_uint(reading, clock::TIMESTAMP, ns);
                        });
                    }
                    put_uint(snapshot, clock::PRIMARY, clock::BOOTTIME);
                });
            });
        }
    }

    /// Converts a time to a packet timestamp.
    fn at_ns(&mut self, time: Time) -> i64 {
        let at_ns = time.floor_ns().saturating_add(BASE_NS);
        if at_ns < 0 {
            self.moved_times += 1;
        }
        at_ns.max(0)
    }

    /// Writes a track's description if it has changed, after those of its parents.
    fn describe_track(&mut self, index: usize) {
        // A cycle of parents ends at the first repeated track.
        let mut chain = Vec::new();
        let mut next = Some(index);
        while let Some(at) = next {
            let Some(state) = self.tracks.get_mut(at) else {
                break;
            };
            if !std::mem::replace(&mut state.fresh, false) {
                break;
            }
            chain.push(at);
            next = state.parent;
        }
        while let Some(at) = chain.pop() {
            let Some(state) = self.tracks.get(at) else {
                continue;
            };
            let parent = state.parent.and_then(|parent| self.tracks.get(parent));
            let category = state
                .category
                .and_then(|name| self.names.get(name.index()))
                .cloned();
            let mut bytes = Vec::new();
            state.put(
                parent.map_or(0, |parent| parent.uuid),
                category.as_deref().unwrap_or(""),
                &mut self.lock(),
                &mut bytes,
            );
            self.packet(None, |message| {
                put_bytes(message, packet::TRACK_DESCRIPTOR, &bytes);
            });
        }
    }

    /// Returns the row of a track that fits a slice with these times; ends the slices that are
    /// over.
    fn row_for(&mut self, index: usize, start_ns: i64, end_ns: i64) -> Option<(usize, u64)> {
        let state = self.tracks.get(index)?;
        let fitting = state.rows.iter().position(|row| row.fits(start_ns, end_ns));
        let row = if let Some(row) = fitting {
            self.end_until(index, row, start_ns);
            row
        } else {
            let first = state.rows.is_empty() && !state.is_counter();
            let (track_uuid, sequence) = (state.uuid, self.sequence);
            let name = state.name.clone();
            let mut shared = self.lock();
            let uuid = if first && shared.owns_first_row(track_uuid, sequence) {
                track_uuid
            } else {
                shared.next_uuid()
            };
            drop(shared);
            if uuid != track_uuid {
                self.packet(None, |message| {
                    put_message(message, packet::TRACK_DESCRIPTOR, |row| {
                        put_uint(row, track::UUID, uuid);
                        put_uint(row, track::PARENT_UUID, track_uuid);
                        put_bytes(row, track::NAME, name.as_bytes());
                        put_message(row, extension::FIELD, |own| {
                            put_uint(own, extension::track::ROW_OF, track_uuid);
                        });
                    });
                });
            }
            let rows = &mut self.tracks.get_mut(index)?.rows;
            rows.push(tracks::Row::new(uuid));
            rows.len() - 1
        };
        let row_state = self.tracks.get_mut(index)?.rows.get_mut(row)?;
        row_state.push(start_ns, end_ns);
        Some((row, row_state.uuid))
    }

    /// Ends the open slices of a row that end at or before `until_ns`.
    fn end_until(&mut self, index: usize, row: usize, until_ns: i64) {
        while let Some((uuid, end_ns)) = self
            .tracks
            .get_mut(index)
            .and_then(|state| state.rows.get_mut(row))
            .and_then(|row| Some((row.uuid, row.pop(until_ns)?)))
        {
            self.packet(Some(end_ns), |message| {
                put_message(message, packet::TRACK_EVENT, |out| {
                    put_uint(out, event::TYPE, event::TYPE_END);
                    put_uint(out, event::TRACK_UUID, uuid);
                });
            });
        }
    }

    /// Appends the fields that begins and instants share to the scratch buffer: name, category,
    /// arguments.
    fn put_common(&mut self, name: NameId, category: NameId, args: ArgRef) {
        if let Some(text) = self.names.get(name.index()).filter(|text| !text.is_empty()) {
            match self.interner.name(name, text) {
                Some(iid) => put_uint(&mut self.scratch, event::NAME_IID, iid),
                None => put_bytes(&mut self.scratch, event::NAME, text.as_bytes()),
            }
        }
        if let Some(text) = self
            .names
            .get(category.index())
            .filter(|text| !text.is_empty())
        {
            match self.interner.category(category, text) {
                Some(iid) => put_uint(&mut self.scratch, event::CATEGORY_IIDS, iid),
                None => put_bytes(&mut self.scratch, event::CATEGORIES, text.as_bytes()),
            }
        }
        let Some((source, token)) = args.get() else {
            return;
        };
        let Some(source) = self.sources.get(usize::from(source.0)) else {
            return;
        };
        let (scratch, interner) = (&mut self.scratch, &mut self.interner);
        let outcome = source.visit(token, &mut |key, value| {
            put_message(scratch, event::DEBUG_ANNOTATIONS, |entry| {
                interner.annotation(entry, key, value);
            });
        });
        if let Err(error) = outcome {
            let text = error.to_string();
            self.diagnose(Diagnostic::Unreadable, 1, &format!("arguments: {text}"));
        }
    }

    fn put_flow(&mut self, flow: SliceFlow) {
        let shared = Arc::clone(&self.shared);
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let category = flow.key.category;
        let names = &self.names;
        let number = *self.flow_categories.entry(category).or_insert_with(|| {
            let text = names.get(category.index()).map_or("", |text| text);
            shared.flow_category(text)
        });
        let text = self.names.get(category.index()).map_or("", |text| text);
        let id = shared.flow_id(number, text, flow.key.id);
        let field = if flow.direction == FlowDirection::In {
            event::TERMINATING_FLOW_IDS
        } else {
            event::FLOW_IDS
        };
        put_fixed64(&mut self.scratch, field, id);
    }

    /// Writes the scratch buffer as a track event.
    fn write_event(&mut self, at_ns: i64) {
        let scratch = std::mem::take(&mut self.scratch);
        self.packet(Some(at_ns), |message| {
            put_bytes(message, packet::TRACK_EVENT, &scratch);
        });
        self.scratch = scratch;
    }

    /// Starts an event in the scratch buffer.
    fn start_event(&mut self, kind: u64, uuid: u64) {
        self.scratch.clear();
        put_uint(&mut self.scratch, event::TYPE, kind);
        put_uint(&mut self.scratch, event::TRACK_UUID, uuid);
    }

    fn uuid(&self, track: TrackId) -> Option<u64> {
        self.tracks.get(track.index()).map(|state| state.uuid)
    }
}

impl<W: Write + Send> EventSink for PerfettoSink<W> {
    fn epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    fn name(&mut self, text: &str) -> NameId {
        if let Some(id) = self.name_ids.get(text) {
            return *id;
        }
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = Arc::from(text);
        self.names.push(Arc::clone(&text));
        self.name_ids.insert(text, id);
        id
    }

    fn track(&mut self, key: &str) -> TrackId {
        if let Some(id) = self.track_ids.get(key) {
            return *id;
        }
        let id = TrackId(u32::try_from(self.tracks.len()).unwrap_or(u32::MAX));
        let uuid = self.lock().uuid_of(key);
        self.tracks.push(TrackState::new(key, uuid));
        self.track_ids.insert(key.to_owned(), id);
        id
    }

    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        if let (Some(parent), Some(_)) = (patch.parent, patch.sort_index)
            && let Some(parent) = self.tracks.get_mut(parent.index())
        {
            parent.order_children();
        }
        if let Some(state) = self.tracks.get_mut(track.index()) {
            state.patch(&patch);
        }
    }

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        self.sources.push(source);
        SourceId(u16::try_from(self.sources.len() - 1).unwrap_or(u16::MAX))
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        self.begin();
        self.describe_track(track.index());
        let start_ns = self.at_ns(slice.start);
        let end_ns = self
            .at_ns(slice.start.saturating_add(slice.dur))
            .max(start_ns);
        let Some((_, uuid)) = self.row_for(track.index(), start_ns, end_ns) else {
            return;
        };
        self.start_event(event::TYPE_BEGIN, uuid);
        self.put_common(slice.name, slice.category, slice.args);
        for flow in slice.flows {
            self.put_flow(*flow);
        }
        if slice.step.is_some() || slice.flags.0 != 0 {
            put_message(&mut self.scratch, extension::FIELD, |own| {
                if let Some(step) = slice.step {
                    put_sint(own, extension::event::STEP, step);
                }
                if slice.flags.0 != 0 {
                    put_uint(own, extension::event::FLAGS, u64::from(slice.flags.0));
                }
            });
        }
        self.write_event(start_ns);
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        self.begin();
        self.describe_track(track.index());
        let Some(uuid) = self.uuid(track) else { return };
        let at_ns = self.at_ns(instant.at);
        self.start_event(event::TYPE_INSTANT, uuid);
        self.put_common(instant.name, instant.category, instant.args);
        self.write_event(at_ns);
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        self.begin();
        if let Some(state) = self.tracks.get_mut(track.index()) {
            state.make_counter();
        }
        self.describe_track(track.index());
        let Some(uuid) = self.uuid(track) else { return };
        let at_ns = self.at_ns(at);
        self.start_event(event::TYPE_COUNTER, uuid);
        match whole(value) {
            Some(value) => put_int(&mut self.scratch, event::COUNTER_VALUE, value),
            None => put_double(&mut self.scratch, event::DOUBLE_COUNTER_VALUE, value),
        }
        self.write_event(at_ns);
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        self.begin();
        self.describe_track(track.index());
        let Some(uuid) = self.uuid(track) else { return };
        let at_ns = self.at_ns(at);
        self.start_event(event::TYPE_INSTANT, uuid);
        put_bytes(&mut self.scratch, event::NAME, b"flow");
        self.put_flow(flow);
        let bind = match bind {
            FlowBind::Enclosing => 1,
            FlowBind::Next => 2,
        };
        put_message(&mut self.scratch, extension::FIELD, |own| {
            put_uint(own, extension::event::FLOW_BIND, bind);
        });
        self.write_event(at_ns);
    }

    fn module(&mut self, name: &str, program_id: Option<u64>) {
        put_message(&mut self.run, extension::run::MODULE, |module| {
            put_bytes(module, extension::module::NAME, name.as_bytes());
            if let Some(id) = program_id {
                put_uint(module, extension::module::PROGRAM_ID, id);
            }
        });
    }

    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        put_message(&mut self.run, extension::run::FACT, |fact| {
            intern::plain_annotation(fact, key, value);
        });
    }

    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        put_message(&mut self.run, extension::run::DIAGNOSTIC, |entry| {
            put_bytes(entry, extension::diagnostic::CODE, what.code().as_bytes());
            put_uint(entry, extension::diagnostic::COUNT, count);
            put_bytes(entry, extension::diagnostic::DETAIL, detail.as_bytes());
        });
    }

    fn fork(&self) -> Self {
        let sequence = self.lock().next_sequence();
        let mut fork = Self::over(Out::Memory(Vec::new()), Arc::clone(&self.shared), sequence);
        fork.epoch = self.epoch;
        fork.names.clone_from(&self.names);
        fork.name_ids.clone_from(&self.name_ids);
        fork.tracks = self.tracks.iter().map(TrackState::without_rows).collect();
        fork.track_ids.clone_from(&self.track_ids);
        fork.sources.clone_from(&self.sources);
        fork
    }

    fn merge(&mut self, mut fork: Self) {
        self.begin();
        fork.close();
        fork.write();
        self.packets.append(&mut fork.packets);
        if let Out::Memory(mut gathered) = fork.out {
            self.packets.append(&mut gathered);
        }
        self.run.append(&mut fork.run);
        self.moved_times += fork.moved_times;
        self.error = self.error.take().or(fork.error);
        for track in &fork.tracks {
            let parent = track.parent.and_then(|parent| fork.tracks.get(parent));
            let parent = parent.map(|parent| self.track(&parent.key).index());
            let category = track
                .category
                .and_then(|name| fork.names.get(name.index()))
                .map(|text| self.name(text));
            let id = self.track(&track.key);
            if let Some(state) = self.tracks.get_mut(id.index()) {
                state.learn(track, parent, category);
            }
        }
        self.write();
    }
}

/// Converts a sample to an integer, if the conversion is exact in both directions.
fn whole(value: f64) -> Option<i64> {
    let fits = value.fract() == 0.0
        && value.abs() < 9_007_199_254_740_992.0
        && !(value == 0.0 && value.is_sign_negative());
    #[allow(
        clippy::cast_possible_truncation,
        reason = "whole and below 2^53: exact"
    )]
    fits.then_some(value as i64)
}

/// Appends the counter part of a track description.
fn put_counter(out: &mut Vec<u8>, unit: &str) {
    put_message(out, track::COUNTER, |message| {
        if !unit.is_empty() {
            put_bytes(message, counter::UNIT_NAME, unit.as_bytes());
        }
    });
}
