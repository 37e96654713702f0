//! `XSpace` encoder: the recorder and [`super::XSpaceSink`] use it.
//!
//! ```text
//! XSpaceWriter   one file: planes one after another, straight into an `io::Write`
//!   PlaneWriter  one plane: names interned to ids from 1, plane stats, finished lines
//!     LineWriter one line: events appended as their final bytes
//! ```
//!
//! Memory is the encoded bytes of one plane (17 bytes for a span of some microseconds, 23 with a
//! small number as its argument) and its names; a plane is written without an intermediate copy. A
//! message of more than 2 GiB is valid, but readers built on protobuf reject it: write a long
//! recording as several planes with the same name and call [`PlaneWriter::continues`] on the later
//! ones.

use std::io::{self, Write};

use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

use crate::protobuf::wire::{
    put_bytes, put_double, put_int, put_length, put_message, put_uint, put_varint, varint_len,
};
use crate::xspace::record::TrackRecord;
use crate::xspace::well_known_stats::{EventKind, Form, Meaning, Role, TASK_ENVIRONMENT};
use crate::xspace::wire::{entry, event, line, metadata, plane, space, stat};

/// Id of an event's name within one [`PlaneWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventMetadataId(i64);

/// Id of a stat's name within one [`PlaneWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatId(i64);

/// Id of an interned text within one [`PlaneWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(i64);

/// Value of a stat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WrittenStatValue<'a> {
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// Text without interning.
    Str(&'a str),
    /// Interned text: two to four bytes.
    Text(TextId),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// One stat of an event or of a plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrittenStat<'a> {
    /// Its name.
    pub id: StatId,
    /// Its value.
    pub value: WrittenStatValue<'a>,
}

impl WrittenStat<'_> {
    fn put(&self, out: &mut Vec<u8>) {
        put_int(out, stat::METADATA_ID, self.id.0);
        match self.value {
            WrittenStatValue::Int(value) => put_int(out, stat::INT64, value),
            WrittenStatValue::Uint(value) => put_uint(out, stat::UINT64, value),
            WrittenStatValue::Double(value) => put_double(out, stat::DOUBLE, value),
            WrittenStatValue::Str(text) => put_bytes(out, stat::STR, text.as_bytes()),
            WrittenStatValue::Text(id) => put_int(out, stat::REF, id.0),
            WrittenStatValue::Bytes(bytes) => put_bytes(out, stat::BYTES, bytes),
        }
    }
}

/// Writes one `XSpace` file.
///
/// Every method writes immediately. A truncated file is an `XSpace` up to the last complete plane,
/// and output appended to another `XSpace` continues it.
pub struct XSpaceWriter<W: Write> {
    out: W,
}

impl<W: Write> XSpaceWriter<W> {
    /// Starts a file. `out` should be buffered.
    pub fn new(out: W) -> Self {
        Self { out }
    }

    /// Writes the machine's host name.
    pub fn hostname(&mut self, name: &str) -> io::Result<()> {
        self.text(space::HOSTNAMES, name)
    }

    /// Writes an error that occurred while recording.
    pub fn error(&mut self, text: &str) -> io::Result<()> {
        self.text(space::ERRORS, text)
    }

    /// Writes a warning about the recording for the user.
    pub fn warning(&mut self, text: &str) -> io::Result<()> {
        self.text(space::WARNINGS, text)
    }

    /// Writes the start and end of the recording, Unix nanoseconds. Line times are then relative to
    /// the start, as XProf and JAX write them.
    pub fn task_environment(&mut self, start_unix_ns: u64, stop_unix_ns: u64) -> io::Result<()> {
        let mut plane = PlaneWriter::new(TASK_ENVIRONMENT);
        for (name, value) in [
            (Role::ProfileStart.name(), start_unix_ns),
            ("profile_stop_time", stop_unix_ns),
        ] {
            let id = plane.stat(name);
            plane.add_stat(id, WrittenStatValue::Uint(value));
        }
        self.plane(&plane)
    }

    /// Writes a finished plane.
    pub fn plane(&mut self, plane: &PlaneWriter) -> io::Result<()> {
        let mut head = Vec::new();
        if plane.id != 0 {
            put_int(&mut head, plane::ID, plane.id);
        }
        put_bytes(&mut head, plane::NAME, plane.name.as_bytes());
        let mut tail = Vec::new();
        plane.put_metadata(&mut tail);
        tail.extend_from_slice(&plane.stats);

        let line_tag = |line: &LineWriter| {
            let mut tag = Vec::new();
            put_length(&mut tag, plane::LINES, line.head.len() + line.events.len());
            tag
        };
        let lines: usize = plane
            .lines
            .iter()
            .map(|line| line_tag(line).len() + line.head.len() + line.events.len())
            .sum();
        let mut tag = Vec::new();
        put_length(&mut tag, space::PLANES, head.len() + lines + tail.len());
        self.out.write_all(&tag)?;
        self.out.write_all(&head)?;
        for line in &plane.lines {
            self.out.write_all(&line_tag(line))?;
            self.out.write_all(&line.head)?;
            self.out.write_all(&line.events)?;
        }
        self.out.write_all(&tail)
    }

    /// Writes an encoded plane.
    pub(crate) fn raw_plane(&mut self, content: &[u8]) -> io::Result<()> {
        let mut tag = Vec::new();
        put_length(&mut tag, space::PLANES, content.len());
        self.out.write_all(&tag)?;
        self.out.write_all(content)
    }

    /// Flushes and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn text(&mut self, number: u32, text: &str) -> io::Result<()> {
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, number, text.as_bytes());
        self.out.write_all(&bytes)
    }
}

/// A stat metadata: a stat's name with its meaning, or an interned text.
#[derive(Debug)]
struct StatEntry {
    id: i64,
    name: Box<str>,
    meaning: Meaning,
}

/// An event metadata.
#[derive(Debug)]
struct EventEntry {
    id: i64,
    name: Box<str>,
    /// Encoded `XStat` fields.
    stats: Vec<u8>,
}

type Ids<K> = HashMap<K, i64, FxBuildHasher>;

/// Ids of one type within a plane: ours count from 1, those of other recorders are unchanged.
#[derive(Debug, Default)]
struct Numbers {
    last: i64,
    /// Ids that [`PlaneWriter::adopt`] assigned.
    taken: HashSet<i64, FxBuildHasher>,
}

impl Numbers {
    /// Returns the next id of ours.
    fn next(&mut self) -> i64 {
        self.last += 1;
        while self.taken.contains(&self.last) {
            self.last += 1;
        }
        self.last
    }

    /// Returns `wanted` if it is free, else another free id.
    fn free(&mut self, wanted: i64) -> i64 {
        let is_ours = (1..=self.last).contains(&wanted);
        let id = if is_ours || self.taken.contains(&wanted) {
            self.next()
        } else {
            wanted
        };
        self.taken.insert(id);
        id
    }
}

/// Builds one plane.
#[derive(Debug, Default)]
pub struct PlaneWriter {
    id: i64,
    name: String,
    events: Vec<EventEntry>,
    event_ids: Ids<(Box<str>, Box<str>, EventKind)>,
    plain_event_ids: Ids<Box<str>>,
    stat_entries: Vec<StatEntry>,
    stat_ids: Ids<(Box<str>, Meaning)>,
    plain_stat_ids: Ids<Box<str>>,
    event_numbers: Numbers,
    stat_numbers: Numbers,
    /// Encoded `XStat` fields.
    stats: Vec<u8>,
    lines: Vec<LineWriter>,
    /// Encoded metadata of adopted planes.
    adopted: Vec<u8>,
}

/// Meaning of a plain stat, the default of [`PlaneWriter::stat`] and similar methods.
const PLAIN: Meaning = Meaning {
    role: Role::Plain,
    form: Form::Plain,
    hidden: false,
};

impl PlaneWriter {
    /// Starts a plane, for the host's threads `/host:CPU`, for a device `/device:GPU:0`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Sets the plane's id; XProf sorts devices by it.
    #[must_use]
    pub fn with_id(mut self, id: i64) -> Self {
        self.id = id;
        self
    }

    /// Returns the id of a span's name.
    pub fn event(&mut self, name: &str) -> EventMetadataId {
        if let Some(id) = self.plain_event_ids.get(name) {
            return EventMetadataId(*id);
        }
        let id = self.push_event(name, Vec::new());
        self.plain_event_ids.insert(name.into(), id.0);
        id
    }

    /// Returns the id of events with this name, category (empty for none) and kind.
    pub fn event_of(&mut self, name: &str, category: &str, kind: EventKind) -> EventMetadataId {
        if category.is_empty() && kind == EventKind::Slice {
            return self.event(name);
        }
        let key = (Box::from(name), Box::from(category), kind);
        if let Some(id) = self.event_ids.get(&key) {
            return EventMetadataId(*id);
        }
        let mut stats = Vec::new();
        for (role, text) in [(Role::Category, category), (Role::Kind, kind.word())] {
            if !text.is_empty() {
                let id = self.hidden_stat(role);
                let value = WrittenStatValue::Text(self.text(text));
                put_message(&mut stats, metadata::STATS, |out| {
                    WrittenStat { id, value }.put(out);
                });
            }
        }
        let id = self.push_event(name, stats);
        self.event_ids.insert(key, id.0);
        id
    }

    /// Creates the id of a counter: each call makes a new one. Put its samples on a line named
    /// [`COUNTERS_LINE`](crate::xspace::COUNTERS_LINE) with [`LineWriter::sample`].
    pub fn counter(&mut self, name: &str, record: &TrackRecord) -> EventMetadataId {
        let id = self.hidden_stat(Role::Track);
        let text = record.encode();
        let mut stats = Vec::new();
        put_message(&mut stats, metadata::STATS, |out| {
            let value = WrittenStatValue::Str(&text);
            WrittenStat { id, value }.put(out);
        });
        self.push_event(name, stats)
    }

    /// Adds a compiled program's metadata entry, in the form used on the plane `/host:metadata`.
    pub fn module(&mut self, name: &str, program_id: Option<u64>) {
        let text = program_id.map_or_else(|| name.to_owned(), |id| format!("{name}({id})"));
        let mut stats = Vec::new();
        if let Some(program_id) = program_id {
            let id = self.stat(Role::ProgramId.name());
            put_message(&mut stats, metadata::STATS, |out| {
                let value = WrittenStatValue::Uint(program_id);
                WrittenStat { id, value }.put(out);
            });
        }
        self.push_event(&text, stats);
    }

    fn push_event(&mut self, name: &str, stats: Vec<u8>) -> EventMetadataId {
        let id = self.event_numbers.next();
        self.events.push(EventEntry {
            id,
            name: name.into(),
            stats,
        });
        EventMetadataId(id)
    }

    /// Returns the id of a stat's name. A well-known name (`step_num`, `flow`, `correlation_id`,
    /// ...) has its meaning.
    pub fn stat(&mut self, name: &str) -> StatId {
        StatId(self.plain_entry(name))
    }

    /// Returns the id of a text for use in stats.
    pub fn text(&mut self, text: &str) -> TextId {
        TextId(self.plain_entry(text))
    }

    /// Returns the id of an argument's name without any other meaning.
    pub fn argument(&mut self, name: &str) -> StatId {
        self.stat_with(name, PLAIN)
    }

    /// Returns the id of a boolean argument: write it as [`WrittenStatValue::Int`] 1 or 0.
    pub fn bool_argument(&mut self, name: &str) -> StatId {
        let form = Form::Bool;
        self.stat_with(name, Meaning { form, ..PLAIN })
    }

    /// Returns the id of an argument with a nested value: write it as JSON text.
    pub fn json_argument(&mut self, name: &str) -> StatId {
        let form = Form::Json;
        self.stat_with(name, Meaning { form, ..PLAIN })
    }

    /// Returns the id of a step marker's step number, which is hidden from the arguments. XProf
    /// also groups by it if the event has a stat `_r` of 1.
    pub fn step_number(&mut self) -> StatId {
        self.hidden_stat(Role::StepNum)
    }

    /// Returns the id of the mark for an event that was still open at the end of the recording:
    /// write it as 1.
    pub fn unfinished(&mut self) -> StatId {
        self.hidden_stat(Role::Unfinished)
    }

    /// Returns the id of a stat with this role that is hidden from the arguments.
    pub(crate) fn hidden_stat(&mut self, role: Role) -> StatId {
        let meaning = Meaning {
            role,
            form: Form::Plain,
            hidden: true,
        };
        self.stat_with(role.name(), meaning)
    }

    /// Returns the id of a stat with this meaning.
    pub(crate) fn stat_with(&mut self, name: &str, meaning: Meaning) -> StatId {
        if meaning.description(name).is_empty() {
            return self.stat(name);
        }
        let key = (Box::from(name), meaning);
        if let Some(id) = self.stat_ids.get(&key) {
            return StatId(*id);
        }
        let id = self.push_stat(name, meaning);
        self.stat_ids.insert(key, id);
        StatId(id)
    }

    fn plain_entry(&mut self, name: &str) -> i64 {
        if let Some(id) = self.plain_stat_ids.get(name) {
            return *id;
        }
        let role = Role::from_name(name.as_bytes());
        let id = self.push_stat(name, Meaning { role, ..PLAIN });
        self.plain_stat_ids.insert(name.into(), id);
        id
    }

    fn push_stat(&mut self, name: &str, meaning: Meaning) -> i64 {
        let id = self.stat_numbers.next();
        self.stat_entries.push(StatEntry {
            id,
            name: name.into(),
            meaning,
        });
        id
    }

    /// Adds a stat of the plane itself (`process_id`, `device_vendor`, ...).
    pub fn add_stat(&mut self, id: StatId, value: WrittenStatValue<'_>) {
        put_message(&mut self.stats, plane::STATS, |out| {
            WrittenStat { id, value }.put(out);
        });
    }

    /// Writes the properties of a line (or, without a line id, of the plane itself) that the schema
    /// has no field for.
    pub fn describe(&mut self, record: &TrackRecord) {
        let id = self.hidden_stat(Role::Track);
        self.add_stat(id, WrittenStatValue::Str(&record.encode()));
    }

    /// Marks this plane as the continuation of an earlier plane with the same name in this file.
    pub fn continues(&mut self) {
        let id = self.hidden_stat(Role::Continues);
        self.add_stat(id, WrittenStatValue::Int(1));
    }

    /// Adds a finished line.
    pub fn add_line(&mut self, line: LineWriter) {
        self.lines.push(line);
    }

    /// Returns an id for another recorder's event name, `wanted` if it is free.
    pub(crate) fn free_event_id(&mut self, wanted: i64) -> i64 {
        self.event_numbers.free(wanted)
    }

    /// Returns an id for another recorder's stat name, `wanted` if it is free.
    pub(crate) fn free_stat_id(&mut self, wanted: i64) -> i64 {
        self.stat_numbers.free(wanted)
    }

    /// Returns whether the plane has a stat with this name.
    pub(crate) fn has_stat(&self, name: &str) -> bool {
        self.plain_stat_ids.contains_key(name)
    }

    /// Adds encoded metadata fields.
    pub(crate) fn add_metadata(&mut self, fields: &[u8]) {
        self.adopted.extend_from_slice(fields);
    }

    /// Adds encoded stat fields of the plane.
    pub(crate) fn add_raw_stats(&mut self, fields: &[u8]) {
        self.stats.extend_from_slice(fields);
    }

    fn put_metadata(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.adopted);
        for item in &self.events {
            put_message(out, plane::EVENT_METADATA, |out| {
                put_int(out, entry::KEY, item.id);
                put_message(out, entry::VALUE, |out| {
                    put_int(out, metadata::ID, item.id);
                    put_bytes(out, metadata::NAME, item.name.as_bytes());
                    out.extend_from_slice(&item.stats);
                });
            });
        }
        for item in &self.stat_entries {
            put_message(out, plane::STAT_METADATA, |out| {
                put_int(out, entry::KEY, item.id);
                put_message(out, entry::VALUE, |out| {
                    put_int(out, metadata::ID, item.id);
                    put_bytes(out, metadata::NAME, item.name.as_bytes());
                    let description = item.meaning.description(&item.name);
                    if !description.is_empty() {
                        put_bytes(out, metadata::DESCRIPTION, description.as_bytes());
                    }
                });
            });
        }
    }
}

/// Builds one line. Adding events needs no [`PlaneWriter`], so that several lines can be filled at
/// once; the ids must come from the plane that the line is added to.
#[derive(Clone, Debug, Default)]
pub struct LineWriter {
    head: Vec<u8>,
    events: Vec<u8>,
    scratch: Vec<u8>,
}

impl LineWriter {
    /// Starts a line. `id` is the thread's id; `timestamp_ns` is the line's time zero, in
    /// nanoseconds since the start of the profile.
    pub fn new(id: i64, name: &str, timestamp_ns: i64) -> Self {
        let mut head = Vec::new();
        put_int(&mut head, line::ID, id);
        put_bytes(&mut head, line::NAME, name.as_bytes());
        put_int(&mut head, line::TIMESTAMP_NS, timestamp_ns);
        put_bytes(&mut head, line::DISPLAY_NAME, name.as_bytes());
        Self {
            head,
            ..Self::default()
        }
    }

    /// Adds a span; offset from the line's time zero and duration are in picoseconds.
    #[inline]
    pub fn span(
        &mut self,
        name: EventMetadataId,
        offset_ps: i64,
        duration_ps: i64,
        stats: &[WrittenStat<'_>],
    ) {
        self.put(name, offset_ps, duration_ps, stats);
    }

    /// Adds an instant, without a duration. Its name must use [`EventKind::Instant`].
    #[inline]
    pub fn point(&mut self, name: EventMetadataId, offset_ps: i64, stats: &[WrittenStat<'_>]) {
        self.put(name, offset_ps, 0, stats);
    }

    /// Adds a sample; `value_stat` is the plane's stat `counter_value`.
    pub fn sample(
        &mut self,
        counter: EventMetadataId,
        offset_ps: i64,
        value_stat: StatId,
        value: f64,
    ) {
        let stat = WrittenStat {
            id: value_stat,
            value: WrittenStatValue::Double(value),
        };
        self.put(counter, offset_ps, 0, &[stat]);
    }

    /// Creates a line from encoded bytes.
    pub(crate) fn from_encoded(head: Vec<u8>, events: Vec<u8>) -> Self {
        Self {
            head,
            events,
            ..Self::default()
        }
    }

    /// Returns the number of bytes of the events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    #[inline]
    fn put(
        &mut self,
        name: EventMetadataId,
        offset_ps: i64,
        duration_ps: i64,
        stats: &[WrittenStat<'_>],
    ) {
        self.scratch.clear();
        for stat in stats {
            put_message(&mut self.scratch, event::STATS, |out| stat.put(out));
        }
        self.put_encoded(name.0, offset_ps, duration_ps);
    }

    /// Adds an event whose stats are in the scratch buffer.
    #[inline]
    fn put_encoded(&mut self, metadata_id: i64, offset_ps: i64, duration_ps: i64) {
        let number = |value: i64| 1 + varint_len(value as u64);
        let duration = if duration_ps == 0 {
            0
        } else {
            number(duration_ps)
        };
        let length = number(metadata_id) + number(offset_ps) + duration + self.scratch.len();
        let out = &mut self.events;
        put_length(out, line::EVENTS, length);
        put_varint(out, u64::from(event::METADATA_ID) << 3);
        put_varint(out, metadata_id as u64);
        put_int(out, event::OFFSET_PS, offset_ps);
        if duration_ps != 0 {
            put_int(out, event::DURATION_PS, duration_ps);
        }
        out.extend_from_slice(&self.scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_few_bytes() {
        let mut plane = PlaneWriter::new("/host:CPU");
        let name = plane.event("forward");
        let batch = plane.stat("batch");
        let mut line = LineWriter::new(7, "python", 0);
        // A minute into the session, ten microseconds long.
        line.span(name, 60_000_000_000_000, 10_000_000, &[]);
        assert_eq!(line.len(), 17);
        let stat = WrittenStat {
            id: batch,
            value: WrittenStatValue::Int(64),
        };
        line.span(name, 60_000_000_000_000, 10_000_000, &[stat]);
        assert_eq!(line.len(), 17 + 23);
    }

    #[test]
    fn names_are_interned_from_one() {
        let mut plane = PlaneWriter::new("p");
        assert_eq!(plane.event("a"), EventMetadataId(1));
        assert_eq!(plane.event("b"), EventMetadataId(2));
        assert_eq!(plane.event("a"), EventMetadataId(1));
        assert_eq!(
            plane.event_of("a", "", EventKind::Slice),
            EventMetadataId(1)
        );
        let instant = plane.event_of("a", "", EventKind::Instant);
        assert_eq!(instant, EventMetadataId(3));
        assert_eq!(plane.event_of("a", "", EventKind::Instant), instant);
        assert_eq!(plane.stat("x"), plane.argument("x"));
        assert_ne!(plane.stat("flow"), plane.argument("flow"));
        assert_ne!(plane.bool_argument("x"), plane.stat("x"));
    }
}
