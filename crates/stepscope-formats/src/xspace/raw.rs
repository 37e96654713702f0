//! Unprocessed content of an `XSpace`: planes, lines, events and stats in the file's order, without
//! merging, sorting, nesting or filtering.
//!
//! [`read`](super::read) interprets a file and suits most callers. This module serves callers that
//! need the structure of the file itself: the Python package's `ProfileData`.
//!
//! Cost: [`planes`] iterates over the planes' frames and [`Plane::read`] over one plane's metadata
//! and lines; events and stats are decoded on request. Damage ends the message that contains it. If
//! the planes themselves cannot be framed, the result is an error, as in protobuf's own libraries.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::wire::{self, StatValue, entry, event, line, metadata, plane, space};
use crate::FormatError;
use crate::protobuf::wire::{Fields, Value, offset_in};

/// Byte range of the file.
type FieldRange = Range<usize>;

/// Returns the byte ranges of a file's planes, in its order.
///
/// # Errors
///
/// Returns [`FormatError::Malformed`] if the bytes are not a sequence of protobuf fields to the
/// end.
pub fn planes(file: &[u8]) -> Result<Vec<FieldRange>, FormatError> {
    let mut found = Vec::new();
    let mut fields = Fields::new(file);
    loop {
        match fields.next() {
            Ok(Some(field)) => {
                if let (space::PLANES, Value::Bytes(bytes)) = (field.number, field.value) {
                    found.push(place(file, bytes));
                }
            }
            Ok(None) => return Ok(found),
            Err(fault) => {
                return Err(FormatError::Malformed {
                    reason: fault.text().to_owned(),
                    offset: fields.at() as u64,
                });
            }
        }
    }
}

fn place(file: &[u8], part: &[u8]) -> FieldRange {
    let at = offset_in(file, part);
    at..at + part.len()
}

fn get<'a>(file: &'a [u8], place: &FieldRange) -> &'a [u8] {
    file.get(place.clone()).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One plane's name and metadata, and the byte ranges of the rest.
#[derive(Clone, Debug, Default)]
pub struct Plane {
    /// Its name.
    pub name: String,
    lines: Vec<FieldRange>,
    stats: Vec<FieldRange>,
    event_names: FxHashMap<i64, String>,
    stat_names: FxHashMap<i64, String>,
}

impl Plane {
    /// Reads the plane at a byte range that [`planes`] returned for the same file.
    pub fn read(file: &[u8], at: &FieldRange) -> Self {
        let mut read = Self::default();
        let mut fields = Fields::new(get(file, at));
        while let Some(field) = fields.next_lenient() {
            let Value::Bytes(bytes) = field.value else {
                continue;
            };
            match field.number {
                plane::NAME => read.name = text(bytes),
                plane::LINES => read.lines.push(place(file, bytes)),
                plane::STATS => read.stats.push(place(file, bytes)),
                plane::EVENT_METADATA => insert(&mut read.event_names, bytes),
                plane::STAT_METADATA => insert(&mut read.stat_names, bytes),
                _ => {}
            }
        }
        read
    }

    /// Returns the number of lines.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Returns the line with this index.
    pub fn line(&self, file: &[u8], index: usize) -> Option<RawLine> {
        Some(RawLine::read(file, self.lines.get(index)?))
    }

    /// Calls `visit` for each stat of the plane itself.
    pub fn stats(&self, file: &[u8], visit: &mut dyn FnMut(RawStat<'_>)) {
        for at in &self.stats {
            visit(self.stat(get(file, at)));
        }
    }

    /// Returns the name of an event, empty if the file has none.
    pub fn event_name(&self, event: &RawEvent) -> &str {
        self.event_names
            .get(&event.metadata_id)
            .map_or("", String::as_str)
    }

    /// Calls `visit` for each stat of an event.
    pub fn event_stats(&self, file: &[u8], of: &RawEvent, visit: &mut dyn FnMut(RawStat<'_>)) {
        let mut fields = Fields::new(get(file, &of.at));
        while let Some(field) = fields.next_lenient() {
            if let (event::STATS, Value::Bytes(bytes)) = (field.number, field.value) {
                visit(self.stat(bytes));
            }
        }
    }

    fn stat<'a>(&'a self, message: &'a [u8]) -> RawStat<'a> {
        let Ok(stat) = wire::stat(message) else {
            return RawStat::default();
        };
        RawStat {
            name: self.stat_names.get(&stat.metadata_id).map(String::as_str),
            value: match stat.value {
                StatValue::None => None,
                StatValue::Double(value) => Some(Written::Double(value)),
                StatValue::Uint(value) => Some(Written::Uint(value)),
                StatValue::Int(value) => Some(Written::Int(value)),
                StatValue::Str(bytes) | StatValue::Bytes(bytes) => Some(Written::Bytes(bytes)),
                StatValue::Ref(id) => Some(Written::Bytes(
                    self.stat_names.get(&id).map_or(b"", |name| name.as_bytes()),
                )),
            },
        }
    }
}

/// Inserts one entry of a map from ids to metadata; for duplicate ids the last entry counts.
fn insert(names: &mut FxHashMap<i64, String>, message: &[u8]) {
    let (mut key, mut name) = (0, String::new());
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (entry::KEY, Value::Varint(id)) => key = id as i64,
            (entry::VALUE, Value::Bytes(value)) => {
                let mut fields = Fields::new(value);
                while let Some(field) = fields.next_lenient() {
                    if let (metadata::NAME, Value::Bytes(bytes)) = (field.number, field.value) {
                        name = text(bytes);
                    }
                }
            }
            _ => {}
        }
    }
    names.insert(key, name);
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct RawLine {
    /// Its name; empty if the file contains only a display name.
    pub name: String,
    /// Origin of its events' offsets, nanoseconds.
    pub timestamp_ns: i64,
    events: Vec<FieldRange>,
}

impl RawLine {
    fn read(file: &[u8], at: &FieldRange) -> Self {
        let mut read = Self::default();
        let mut fields = Fields::new(get(file, at));
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (line::NAME, Value::Bytes(bytes)) => read.name = text(bytes),
                (line::TIMESTAMP_NS, Value::Varint(ns)) => read.timestamp_ns = ns as i64,
                (line::EVENTS, Value::Bytes(bytes)) => read.events.push(place(file, bytes)),
                _ => {}
            }
        }
        read
    }

    /// Returns the number of events.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Returns the event with this index.
    pub fn event(&self, file: &[u8], index: usize) -> Option<RawEvent> {
        Some(RawEvent::read(file, self.events.get(index)?))
    }
}

/// One event.
#[derive(Clone, Debug, Default)]
pub struct RawEvent {
    /// Id of its metadata.
    pub metadata_id: i64,
    /// Picoseconds after the line's [`timestamp_ns`](RawLine::timestamp_ns).
    pub offset_ps: i64,
    /// Length, picoseconds.
    pub duration_ps: i64,
    at: FieldRange,
}

impl RawEvent {
    fn read(file: &[u8], at: &FieldRange) -> Self {
        let mut read = Self {
            at: at.clone(),
            ..Self::default()
        };
        let mut fields = Fields::new(get(file, at));
        while let Some(field) = fields.next_lenient() {
            let Value::Varint(value) = field.value else {
                continue;
            };
            match field.number {
                event::METADATA_ID => read.metadata_id = value as i64,
                event::OFFSET_PS => read.offset_ps = value as i64,
                event::DURATION_PS => read.duration_ps = value as i64,
                _ => {}
            }
        }
        read
    }
}

/// One stat, with its ids resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RawStat<'a> {
    /// Its name; `None` if the file has no metadata for its id.
    pub name: Option<&'a str>,
    /// Its value; `None` if the file has none.
    pub value: Option<Written<'a>>,
}

/// A stat's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Written<'a> {
    /// A floating-point number.
    Double(f64),
    /// An unsigned integer.
    Uint(u64),
    /// A signed integer.
    Int(i64),
    /// Text or bytes, or the text that a reference resolves to.
    Bytes(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn named(key: u8, name: &str) -> Vec<u8> {
        let message = field(2, name.as_bytes());
        [&[8, key][..], &field(2, &message)].concat()
    }

    /// A plane with one line of two events; the second event's metadata is not there.
    fn file() -> Vec<u8> {
        let stats = [
            field(4, &[8, 1, 32, 7]),                           // int64 7
            field(4, &[&[8, 9][..], &field(5, b"x")].concat()), // of an unknown stat
            field(4, &[8, 1, 56, 1]),                           // a reference to itself
            field(4, &[8, 1]),                                  // without a value
        ]
        .concat();
        let first = [&[8, 3, 16, 100, 24, 50][..], &stats].concat();
        let line = [
            field(2, b"L"),
            vec![24, 5],
            field(4, &first),
            field(4, &[8, 4]),
        ]
        .concat();
        let plane = [
            field(2, b"P"),
            field(3, &line),
            field(4, &named(3, "e")),
            field(5, &named(1, "s")),
            field(6, &[8, 1, 24, 8]),
        ]
        .concat();
        field(1, &plane)
    }

    #[test]
    fn everything_comes_as_it_is_written() {
        let file = file();
        let places = planes(&file).expect("framed");
        assert_eq!(places.len(), 1);
        let plane = Plane::read(&file, &places[0]);
        assert_eq!((plane.name.as_str(), plane.line_count()), ("P", 1));
        let line = plane.line(&file, 0).expect("a line");
        assert_eq!((line.name.as_str(), line.timestamp_ns), ("L", 5));
        assert_eq!(line.event_count(), 2);
        let first = line.event(&file, 0).expect("an event");
        assert_eq!((first.offset_ps, first.duration_ps), (100, 50));
        assert_eq!(plane.event_name(&first), "e");
        let mut seen = Vec::new();
        plane.event_stats(&file, &first, &mut |stat| {
            seen.push(format!("{:?} {:?}", stat.name, stat.value));
        });
        assert_eq!(
            seen,
            [
                "Some(\"s\") Some(Int(7))",
                "None Some(Bytes([120]))",
                "Some(\"s\") Some(Bytes([115]))",
                "Some(\"s\") None",
            ]
        );
        let second = line.event(&file, 1).expect("an event");
        assert_eq!(plane.event_name(&second), "");
        let mut values = Vec::new();
        plane.stats(&file, &mut |stat| {
            values.push(stat.value.map(|_| stat.name.is_some()));
        });
        assert_eq!(values, [Some(true)]);
        assert!(line.event(&file, 2).is_none() && plane.line(&file, 1).is_none());
    }

    #[test]
    fn a_cut_file_is_an_error_and_no_panic() {
        let file = file();
        assert_eq!(planes(&[]).expect("nothing"), []);
        for length in 1..file.len() {
            assert!(planes(&file[..length]).is_err(), "{length}");
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut broken = file.clone();
                broken[at] ^= 1 << bit;
                for place in planes(&broken).unwrap_or_default() {
                    let plane = Plane::read(&broken, &place);
                    for index in 0..plane.line_count() {
                        let line = plane.line(&broken, index).expect("a line");
                        for index in 0..line.event_count() {
                            let event = line.event(&broken, index).expect("an event");
                            plane.event_stats(&broken, &event, &mut |_| {});
                        }
                    }
                }
            }
        }
    }
}
