//! What another recorder of the same process recorded, put into a file of ours.
//!
//! Several `XSpace` messages in a row are one, but readers take the first plane of a name (`XProf`
//! does), ids of one plane mean nothing in another, and each recorder counts from a start of its own.
//! So a plane whose name nobody else uses is copied with its lines moved in time, and planes that
//! share a name become one: the names and stats of the later ones get ids that are free.
//!
//! Bytes in, bytes out: events are never decoded further than the ids in them.

use std::io::{self, Write};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::record::TrackRecord;
use super::well_known_stats::{Role, TASK_ENVIRONMENT};
use super::wire::{self, StatValue, entry, event, line, metadata, plane, space, stat};
use super::write::writer::{LineWriter, PlaneWriter, XSpaceWriter};
use crate::protobuf::wire::{Fields, Value, put_bytes, put_int, put_length, put_message};

/// Above this, a line's time is Unix time, and not counted from the start of its profile.
const UNIX_NS: i64 = 100_000_000_000_000_000;

/// Ids of a plane that comes in, and what they are in the plane that it goes into.
type Ids = HashMap<i64, i64, FxBuildHasher>;

/// A plane of another recorder.
#[derive(Clone, Debug)]
pub struct MergedPlane<'a> {
    /// Its name in our file.
    pub name: String,
    /// How many planes of that name its own file has before it. Only first ones become one: a recorder
    /// that writes several means several.
    nth: usize,
    /// An encoded `XPlane`.
    content: &'a [u8],
    /// Nanoseconds to add to its lines' times.
    shift_ns: i64,
    /// Names of stats of the plane itself that are left out: what they say is not true of our file.
    pub without: &'static [&'static str],
}

/// An `XSpace` of another recorder.
#[derive(Clone, Debug, Default)]
pub struct MergedPlanes<'a> {
    /// Its planes, in their order, but for the one that says when it began.
    pub planes: Vec<MergedPlane<'a>>,
    /// When it began, Unix nanoseconds, if it says so.
    pub start_unix_ns: Option<i64>,
    /// When it ended, Unix nanoseconds, if it says so.
    pub stop_unix_ns: Option<i64>,
    /// Events of all lines.
    pub events: u64,
    /// What it has to say: errors, then warnings.
    pub messages: Vec<String>,
    /// Where it cannot be read, and why; what stands before it is there.
    pub fault: Option<(u64, &'static str)>,
}

impl<'a> MergedPlanes<'a> {
    /// Looks through the planes of `file`, whose zero becomes `zero_unix_ns`.
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
                content,
                shift_ns: 0,
                without: &[],
            });
        }
        for plane in &mut merged.planes {
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
    /// Whether it may become one with a plane of that name.
    pub fn joins(&self, name: &str) -> bool {
        self.nth == 0 && self.name == name
    }

    /// What the plane's own group is, where a writer of ours has said so.
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

    /// The id of stats of this name.
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

    /// Ids of the plane's own stats that are left out.
    fn unwanted(&self) -> Vec<i64> {
        self.without
            .iter()
            .filter_map(|name| self.stat_id(name))
            .collect()
    }

    /// Writes this plane, moved in time and under its name.
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

/// Writes planes of other recorders: those that share a name become one.
///
/// # Errors
/// Those of the writer.
pub fn write_planes<W: Write>(
    planes: &[MergedPlane<'_>],
    out: &mut XSpaceWriter<W>,
) -> io::Result<()> {
    for (at, first) in planes.iter().enumerate() {
        if first.nth > 0 {
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
    /// Takes over lines, names and stats of another recorder's plane. Ids stay what they are unless
    /// they are taken.
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
    /// Another recorder's line, with the ids that its plane has got.
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

/// The bytes of the field that was walked last.
fn raw<'a>(message: &'a [u8], fields: &Fields<'_>) -> &'a [u8] {
    message.get(fields.begin()..fields.at()).unwrap_or_default()
}

/// A line's own fields with its time moved, and its events.
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

/// Ids that were never described stay as they are: they mean nothing either way.
fn mapped(ids: &Ids, id: i64) -> i64 {
    ids.get(&id).copied().unwrap_or(id)
}

/// Key and value of a map entry. Where a recorder leaves out the key it is in the value.
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

/// A text field of a message; empty when there is none.
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

/// Whether the plane's lines have Unix times.
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

/// Start and stop of the profile, Unix nanoseconds.
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
    use crate::xspace::{EventKind, HOST_PLANE, Stat, StatValue, read};

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
        writer.add_stat(process, StatValue::Int(7));
        let event = writer.event_of(name, "category", EventKind::Slice);
        let stat = writer.stat("where");
        let text = writer.text(&format!("in {name}"));
        let mut line = LineWriter::new(5, "thread", line_ns);
        let value = StatValue::Text(text);
        line.span(event, 1_000_000, 2_000_000, &[Stat { id: stat, value }]);
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
        host.add_stat(process, StatValue::Int(7));
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
    fn what_is_cut_anywhere_gives_what_stands_before_it() {
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
