//! Merge of another recorder's `XSpace` of the same process into our file.
//!
//! Several concatenated `XSpace` messages are one message, but readers such as `XProf` use only the
//! first plane of a name, ids are local to a plane, and each recorder has its own time origin. So a
//! plane with a unique name is copied with its lines shifted in time. Planes with the same name are
//! merged: the names and stats of the later ones get free ids.
//!
//! The merge works on encoded bytes: from events, it decodes only the ids.

use std::io::{self, Write};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::record::TrackRecord;
use super::well_known_stats::{Role, TASK_ENVIRONMENT};
use super::wire::{self, StatValue, entry, event, line, metadata, plane, space, stat};
use super::write::writer::{LineWriter, PlaneWriter, XSpaceWriter};
use crate::protobuf::wire::{Fields, Value, put_bytes, put_int, put_length, put_message};

/// Times of lines above this value are Unix times; smaller ones count from the start of the
/// profile.
const UNIX_NS: i64 = 100_000_000_000_000_000;

/// Map from ids in a source plane to ids in the destination plane.
type Ids = HashMap<i64, i64, FxBuildHasher>;

/// A plane of another recorder.
#[derive(Clone, Debug)]
pub struct MergedPlane<'a> {
    /// Its name in our file.
    pub name: String,
    /// Number of planes with the same name before this one in its own file. Only first planes are
    /// merged: a recorder that writes several planes of a name keeps them separate.
    nth: usize,
    /// Whether it continues an earlier plane of the same name.
    continues: bool,
    /// An encoded `XPlane`.
    content: &'a [u8],
    /// Nanoseconds to add to its lines' times.
    shift_ns: i64,
    /// Names of the plane's own stats to drop, because they are wrong for the merged file.
    pub without: &'static [&'static str],
}

/// An `XSpace` of another recorder.
#[derive(Clone, Debug, Default)]
pub struct MergedPlanes<'a> {
    /// Its planes in their order, except the plane with the start time.
    pub planes: Vec<MergedPlane<'a>>,
    /// Start of the recording, Unix nanoseconds, if the file contains it.
    pub start_unix_ns: Option<i64>,
    /// End of the recording, Unix nanoseconds, if the file contains it.
    pub stop_unix_ns: Option<i64>,
    /// Events of all lines.
    pub events: u64,
    /// Messages of the recorder: errors, then warnings.
    pub messages: Vec<String>,
    /// Offset of an unreadable part, and the reason; the part before it is included.
    pub fault: Option<(u64, &'static str)>,
}

impl<'a> MergedPlanes<'a> {
    /// Reads the planes of `file` and shifts their times so that zero is `zero_unix_ns`.
    pub fn new(file: &'a [u8], zero_unix_ns: i64) -> Self {
        let counts = super::count_events(file);
        let mut merged = Self {
            events: counts.events,
            fault: counts.fault,
            messages: super::messages(file, 16),
            ..Self::default()
        };
        let mut fields = Fields::new(file);
        while let Some(field) = fields.next_lenient() {
            let (space::PLANES, Some(content)) = (field.number, field.value.bytes()) else {
                continue;
            };
            let name = String::from_utf8_lossy(text(content, plane::NAME)).into_owned();
            if name == TASK_ENVIRONMENT {
                let (start, stop) = environment(content);
                merged.start_unix_ns = start.or(merged.start_unix_ns);
                merged.stop_unix_ns = stop.or(merged.stop_unix_ns);
                continue;
            }
            let nth = merged
                .planes
                .iter()
                .filter(|plane| plane.name == name)
                .count();
            merged.planes.push(MergedPlane {
                name,
                nth,
                continues: false,
                content,
                shift_ns: 0,
                without: &[],
            });
        }
        for plane in &mut merged.planes {
            plane.continues = plane.stat_id(Role::Continues.name()).is_some();
            plane.shift_ns = if begins_at_unix_time(plane.content) {
                zero_unix_ns.wrapping_neg()
            } else {
                merged
                    .start_unix_ns
                    .map_or(0, |start| start.saturating_sub(zero_unix_ns))
            };
        }
        merged
    }
}

impl MergedPlane<'_> {
    /// Returns whether this plane can be merged with a plane of that name. A plane that continues another is not:
    /// readers add its lines to those of the same ids ([`PlaneWriter::continues`]).
    pub fn joins(&self, name: &str) -> bool {
        self.nth == 0 && self.name == name && !self.continues
    }

    /// Returns the record of the plane's own group, if our writer wrote one.
    pub fn record(&self) -> Option<TrackRecord> {
        let mut fields = Fields::new(self.content);
        while let Some(field) = fields.next_lenient() {
            if let (plane::STATS, Value::Bytes(message)) = (field.number, field.value)
                && let Ok(stat) = wire::stat(message)
                && let StatValue::Str(text) = stat.value
                && Some(stat.metadata_id) == self.stat_id(Role::Track.name())
            {
                let record = TrackRecord::decode(&String::from_utf8_lossy(text));
                if record.line.is_none() {
                    return Some(record);
                }
            }
        }
        None
    }

    /// Returns the id of stats with this name.
    fn stat_id(&self, name: &str) -> Option<i64> {
        let mut fields = Fields::new(self.content);
        while let Some(field) = fields.next_lenient() {
            if let (plane::STAT_METADATA, Value::Bytes(message)) = (field.number, field.value) {
                let (id, value) = map_entry(message);
                if text(value, metadata::NAME) == name.as_bytes() {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Returns the ids of the plane's own stats to drop.
    fn unwanted(&self) -> Vec<i64> {
        self.without
            .iter()
            .filter_map(|name| self.stat_id(name))
            .collect()
    }

    /// Writes this plane under its name, shifted in time.
    fn write_alone<W: Write>(&self, out: &mut XSpaceWriter<W>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(self.content.len() + 64);
        put_bytes(&mut bytes, plane::NAME, self.name.as_bytes());
        let unwanted = self.unwanted();
        let is_unwanted = |message: &[u8]| {
            !unwanted.is_empty()
                && wire::stat(message).is_ok_and(|stat| unwanted.contains(&stat.metadata_id))
        };
        let mut fields = Fields::new(self.content);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (plane::NAME, _) => {}
                (plane::STATS, Value::Bytes(message)) if is_unwanted(message) => {}
                (plane::LINES, Value::Bytes(line)) if self.shift_ns != 0 => {
                    let (head, events) = split_line(line, self.shift_ns);
                    put_length(&mut bytes, plane::LINES, head.len() + events.len());
                    bytes.extend_from_slice(&head);
                    bytes.extend_from_slice(&events);
                }
                _ => bytes.extend_from_slice(raw(self.content, &fields)),
            }
        }
        out.raw_plane(&bytes)
    }
}

/// Writes planes of other recorders; merges planes with the same name.
///
/// # Errors
///
/// Returns errors of the writer.
pub fn write_planes<W: Write>(
    planes: &[MergedPlane<'_>],
    out: &mut XSpaceWriter<W>,
) -> io::Result<()> {
    for (at, first) in planes.iter().enumerate() {
        if first.nth > 0 || first.continues {
            first.write_alone(out)?;
            continue;
        }
        let joins = |plane: &MergedPlane<'_>| plane.joins(&first.name);
        if planes.iter().take(at).any(joins) {
            continue;
        }
        let same: Vec<_> = planes.iter().filter(|plane| joins(plane)).collect();
        match same.as_slice() {
            [alone] => alone.write_alone(out)?,
            several => {
                let mut plane = PlaneWriter::new(&first.name);
                for merged in several {
                    plane.adopt(merged);
                }
                out.plane(&plane)?;
            }
        }
    }
    Ok(())
}

impl PlaneWriter {
    /// Adds lines, names and stats of another recorder's plane. Ids are unchanged unless they are
    /// already used.
    pub fn adopt(&mut self, merged: &MergedPlane<'_>) {
        let mut events = Ids::default();
        let mut stats = Ids::default();
        let mut fields = Fields::new(merged.content);
        let mut unwanted = merged.unwanted();
        if self.has_stat(Role::ProcessId.name()) {
            unwanted.extend(merged.stat_id(Role::ProcessId.name()));
        }
        while let Some(field) = fields.next_lenient() {
            let Some(message) = field.value.bytes() else {
                continue;
            };
            match field.number {
                plane::EVENT_METADATA => {
                    let (id, _) = map_entry(message);
                    events.entry(id).or_insert_with(|| self.free_event_id(id));
                }
                plane::STAT_METADATA => {
                    let (id, _) = map_entry(message);
                    stats.entry(id).or_insert_with(|| self.free_stat_id(id));
                }
                _ => {}
            }
        }
        let mut fields = Fields::new(merged.content);
        while let Some(field) = fields.next_lenient() {
            let Some(message) = field.value.bytes() else {
                continue;
            };
            match field.number {
                plane::LINES => {
                    self.add_line(LineWriter::adopted(
                        message,
                        merged.shift_ns,
                        &events,
                        &stats,
                    ));
                }
                plane::EVENT_METADATA => {
                    let mut out = Vec::new();
                    put_event_metadata(&mut out, message, &events, &stats);
                    self.add_metadata(&out);
                }
                plane::STAT_METADATA => {
                    let mut out = Vec::new();
                    put_stat_metadata(&mut out, message, &stats);
                    self.add_metadata(&out);
                }
                plane::STATS => {
                    let known = wire::stat(message).map(|stat| stat.metadata_id);
                    if !known.is_ok_and(|id| unwanted.contains(&id)) {
                        let mut out = Vec::new();
                        put_stat(&mut out, plane::STATS, message, &stats);
                        self.add_raw_stats(&out);
                    }
                }
                _ => {}
            }
        }
    }
}

impl LineWriter {
    /// Encodes another recorder's line with the new ids of its plane.
    fn adopted(message: &[u8], shift_ns: i64, events: &Ids, stats: &Ids) -> Self {
        let same = |ids: &Ids| ids.iter().all(|(before, after)| before == after);
        let (head, mut encoded) = split_line(message, shift_ns);
        if !same(events) || !same(stats) {
            let mut mapped = Vec::with_capacity(encoded.len() + encoded.len() / 8);
            let mut fields = Fields::new(&encoded);
            while let Some(field) = fields.next_lenient() {
                if let Some(message) = field.value.bytes() {
                    put_message(&mut mapped, line::EVENTS, |out| {
                        put_event(out, message, events, stats);
                    });
                }
            }
            encoded = mapped;
        }
        Self::from_encoded(head, encoded)
    }
}

/// Returns the bytes of the last field that the iterator returned.
fn raw<'a>(message: &'a [u8], fields: &Fields<'_>) -> &'a [u8] {
    message.get(fields.begin()..fields.at()).unwrap_or_default()
}

/// Splits a line into its own fields, with its time shifted, and its events.
fn split_line(message: &[u8], shift_ns: i64) -> (Vec<u8>, Vec<u8>) {
    let mut head = Vec::new();
    let mut events = Vec::with_capacity(message.len());
    let mut time_ns = 0_i64;
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (line::TIMESTAMP_NS, value) => time_ns = value.int().unwrap_or(0),
            (line::EVENTS, _) => events.extend_from_slice(raw(message, &fields)),
            _ => head.extend_from_slice(raw(message, &fields)),
        }
    }
    put_int(
        &mut head,
        line::TIMESTAMP_NS,
        time_ns.wrapping_add(shift_ns),
    );
    (head, events)
}

fn put_event(out: &mut Vec<u8>, message: &[u8], events: &Ids, stats: &Ids) {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (event::METADATA_ID, Value::Varint(id)) => {
                put_int(out, event::METADATA_ID, mapped(events, id as i64));
            }
            (event::STATS, Value::Bytes(message)) => put_stat(out, event::STATS, message, stats),
            _ => out.extend_from_slice(raw(message, &fields)),
        }
    }
}

fn put_stat(out: &mut Vec<u8>, number: u32, message: &[u8], stats: &Ids) {
    put_message(out, number, |out| {
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (stat::METADATA_ID | stat::REF, Value::Varint(id)) => {
                    put_int(out, field.number, mapped(stats, id as i64));
                }
                _ => out.extend_from_slice(raw(message, &fields)),
            }
        }
    });
}

fn put_event_metadata(out: &mut Vec<u8>, message: &[u8], events: &Ids, stats: &Ids) {
    let (id, value) = map_entry(message);
    put_entry(out, plane::EVENT_METADATA, mapped(events, id), |out| {
        let mut fields = Fields::new(value);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (metadata::ID, Value::Varint(_)) => {
                    put_int(out, metadata::ID, mapped(events, id));
                }
                (metadata::CHILD_ID, Value::Varint(child)) => {
                    put_int(out, metadata::CHILD_ID, mapped(events, child as i64));
                }
                (metadata::CHILD_ID, Value::Bytes(packed)) => {
                    let mut at = 0;
                    while let Ok((child, next)) = crate::protobuf::wire::varint(packed, at) {
                        put_int(out, metadata::CHILD_ID, mapped(events, child as i64));
                        at = next;
                    }
                }
                (metadata::STATS, Value::Bytes(message)) => {
                    put_stat(out, metadata::STATS, message, stats);
                }
                _ => out.extend_from_slice(raw(value, &fields)),
            }
        }
    });
}

fn put_stat_metadata(out: &mut Vec<u8>, message: &[u8], stats: &Ids) {
    let (id, value) = map_entry(message);
    put_entry(out, plane::STAT_METADATA, mapped(stats, id), |out| {
        put_int(out, metadata::ID, mapped(stats, id));
        let mut fields = Fields::new(value);
        while let Some(field) = fields.next_lenient() {
            if field.number != metadata::ID {
                out.extend_from_slice(raw(value, &fields));
            }
        }
    });
}

fn put_entry(out: &mut Vec<u8>, number: u32, key: i64, value: impl FnOnce(&mut Vec<u8>)) {
    put_message(out, number, |out| {
        put_int(out, entry::KEY, key);
        put_message(out, entry::VALUE, value);
    });
}

/// Maps an id. Ids without metadata are unchanged, because they have no meaning in either plane.
fn mapped(ids: &Ids, id: i64) -> i64 {
    ids.get(&id).copied().unwrap_or(id)
}

/// Returns the key and value of a map entry. If a recorder omits the key, the value contains it.
fn map_entry(message: &[u8]) -> (i64, &[u8]) {
    let mut id = None;
    let mut value: &[u8] = &[];
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (entry::KEY, Value::Varint(key)) => id = Some(key as i64),
            (entry::VALUE, Value::Bytes(message)) => value = message,
            _ => {}
        }
    }
    let inner = || {
        let mut fields = Fields::new(value);
        while let Some(field) = fields.next_lenient() {
            if let (metadata::ID, Value::Varint(id)) = (field.number, field.value) {
                return id as i64;
            }
        }
        0
    };
    (id.unwrap_or_else(inner), value)
}

/// Returns a text field of a message; empty if there is none.
fn text(message: &[u8], number: u32) -> &[u8] {
    let mut found: &[u8] = &[];
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        if field.number == number
            && let Some(bytes) = field.value.bytes()
        {
            found = bytes;
        }
    }
    found
}

/// Returns whether the plane's lines have Unix times.
fn begins_at_unix_time(content: &[u8]) -> bool {
    let mut fields = Fields::new(content);
    while let Some(field) = fields.next_lenient() {
        let (plane::LINES, Some(line)) = (field.number, field.value.bytes()) else {
            continue;
        };
        let mut inner = Fields::new(line);
        while let Some(field) = inner.next_lenient() {
            match (field.number, field.value) {
                (line::TIMESTAMP_NS, value) => return value.int().unwrap_or(0) > UNIX_NS,
                (line::EVENTS, _) => break,
                _ => {}
            }
        }
    }
    false
}

/// Returns the start and stop of the profile, Unix nanoseconds.
fn environment(content: &[u8]) -> (Option<i64>, Option<i64>) {
    let mut names: HashMap<i64, &[u8], FxBuildHasher> = HashMap::default();
    let mut values = Vec::new();
    let mut fields = Fields::new(content);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (plane::STAT_METADATA, Value::Bytes(message)) => {
                let (id, value) = map_entry(message);
                names.insert(id, text(value, metadata::NAME));
            }
            (plane::STATS, Value::Bytes(message)) => values.extend(wire::stat(message).ok()),
            _ => {}
        }
    }
    let find = |wanted: &str| {
        values
            .iter()
            .find(|stat| names.get(&stat.metadata_id) == Some(&wanted.as_bytes()))
            .and_then(|stat| match stat.value {
                StatValue::Uint(value) => i64::try_from(value).ok(),
                StatValue::Int(value) => Some(value),
                _ => None,
            })
    };
    (find(Role::ProfileStart.name()), find("profile_stop_time"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stepscope_model::{ReadContext, SharedBytes};

    use super::*;
    use crate::probe::Probe;
    use crate::xspace::{EventKind, HOST_PLANE, WrittenStat, WrittenStatValue, read};

    /// One plane with an event of this name a microsecond after the line's time, and a text argument.
    fn recorded(plane: &str, name: &str, line_ns: i64, start_unix_ns: Option<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut space = XSpaceWriter::new(&mut out);
        let mut writer = PlaneWriter::new(plane);
        // So that the ids of two of these mean different things.
        for n in 0..name.len() {
            writer.event(&format!("unused {n}"));
            writer.stat(&format!("nothing {n}"));
        }
        let process = writer.stat("process_id");
        writer.add_stat(process, WrittenStatValue::Int(7));
        let event = writer.event_of(name, "category", EventKind::Slice);
        let stat = writer.stat("where");
        let text = writer.text(&format!("in {name}"));
        let mut line = LineWriter::new(5, "thread", line_ns);
        let value = WrittenStatValue::Text(text);
        line.span(
            event,
            1_000_000,
            2_000_000,
            &[WrittenStat { id: stat, value }],
        );
        writer.add_line(line);
        space.plane(&writer).unwrap();
        if let Some(start) = start_unix_ns {
            space.task_environment(start, start + 10_000).unwrap();
        }
        out
    }

    fn emitted(bytes: Vec<u8>) -> Probe {
        let bytes: SharedBytes = Arc::new(bytes);
        let mut probe = Probe::new();
        read(&bytes, &ReadContext::default(), &mut probe).unwrap();
        probe
    }

    const ZERO: i64 = 1_700_000_000_000_000_000;

    /// Ours, with the others' planes in it.
    fn merged(others: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut space = XSpaceWriter::new(&mut out);
        let mut host = PlaneWriter::new(HOST_PLANE);
        let process = host.stat("process_id");
        host.add_stat(process, WrittenStatValue::Int(7));
        let event = host.event("ours");
        let mut line = LineWriter::new(1, "main", 0);
        line.span(event, 0, 9_000_000, &[]);
        host.add_line(line);
        let mut rest = Vec::new();
        for bytes in others {
            for plane in MergedPlanes::new(bytes, ZERO).planes {
                if plane.joins(HOST_PLANE) {
                    host.adopt(&plane);
                } else {
                    rest.push(plane);
                }
            }
        }
        space.plane(&host).unwrap();
        write_planes(&rest, &mut space).unwrap();
        space
            .task_environment(ZERO as u64, ZERO as u64 + 10_000)
            .unwrap();
        out
    }

    #[test]
    fn planes_of_one_name_become_one_on_one_clock() {
        let start = ZERO as u64 + 3_000;
        let others = [
            recorded(HOST_PLANE, "first", 500, Some(start)),
            recorded(HOST_PLANE, "the second", ZERO + 4_000, None),
            recorded("/device:GPU:0", "kernel", 100, Some(start)),
            recorded("/device:GPU:0", "another", 200, Some(start)),
        ];
        let bytes = merged(&others);
        assert_eq!(crate::xspace::count_events(&bytes).planes, 3);
        let probe = emitted(bytes);
        let at = |name: &str| {
            let slice = probe.slices.iter().find(|slice| slice.name == name);
            let slice = slice.unwrap_or_else(|| panic!("{name} is missing"));
            (slice.start_ps / 1_000_000, slice.dur_ps)
        };
        assert_eq!(at("ours"), (0, 9_000_000));
        // Microseconds: 3 to its start, half to its line, 1 to the event.
        assert_eq!(at("first"), (4, 2_000_000));
        assert_eq!(at("the second"), (5, 2_000_000));
        assert_eq!(at("kernel").0, 4);
        assert_eq!(at("another").0, 4);
        for name in ["first", "the second", "kernel", "another"] {
            let slice = probe
                .slices
                .iter()
                .find(|slice| slice.name == name)
                .unwrap();
            let args = probe.args(slice.args);
            let (_, text) = args.iter().find(|(key, _)| key == "where").unwrap();
            assert!(text.contains(&format!("in {name}")), "{args:?}");
            assert_eq!(slice.category, "category");
        }
    }

    #[test]
    fn truncated_files_give_their_complete_planes() {
        let whole = recorded(HOST_PLANE, "first", 500, Some(ZERO as u64));
        let mut events = 0;
        for end in 0..=whole.len() {
            let found = MergedPlanes::new(&whole[..end], ZERO);
            assert!(found.events >= events || end < whole.len());
            events = events.max(found.events);
            let probe = emitted(merged(&[whole[..end].to_vec()]));
            assert!(
                probe.slices.iter().any(|slice| slice.name == "ours"),
                "{end}"
            );
        }
        assert_eq!(events, 1);
    }

    #[test]
    fn a_stat_that_is_not_true_of_our_file_is_left_out() {
        let bytes = recorded("/host:other", "first", 0, Some(ZERO as u64));
        let mut merged = MergedPlanes::new(&bytes, ZERO);
        merged.planes[0].without = &["process_id"];
        let mut out = Vec::new();
        write_planes(&merged.planes, &mut XSpaceWriter::new(&mut out)).unwrap();
        let again = MergedPlanes::new(&out, ZERO);
        let stats = |plane: &MergedPlane<'_>| {
            let mut count = 0;
            let mut fields = Fields::new(plane.content);
            while let Some(field) = fields.next_lenient() {
                count += u32::from(field.number == plane::STATS);
            }
            count
        };
        assert_eq!((stats(&merged.planes[0]), stats(&again.planes[0])), (1, 0));
    }
}
