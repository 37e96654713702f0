//! An `XSpace` as it is written: planes, lines, events and stats in the file's order, nothing merged,
//! sorted, nested or left out.
//!
//! [`read`](super::read) is for everybody who wants to know what a program did. This is for those who
//! know what an `XSpace` looks like and want exactly that: the Python package's `ProfileData`.
//!
//! Cost: [`planes`] walks over the planes' frames and [`Plane::read`] over one plane's metadata and
//! lines; events and stats are decoded when they are asked for. Whatever is damaged ends the message
//! that it is in, except that a file whose planes cannot be framed is an error, as it is to protobuf's
//! own libraries.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::wire::{self, StatValue, entry, event, line, metadata, plane, space};
use crate::FormatError;
use crate::protobuf::wire::{Fields, Value, offset_in};

/// Bytes of the file; what it names is a part of it.
type FieldRange = Range<usize>;

/// The places of a file's planes, in its order.
///
/// # Errors
/// [`FormatError::Malformed`] when the bytes are not a row of protobuf fields to the end.
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

/// One plane's name, metadata, and where the rest lies.
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
    /// Reads the plane at a place that [`planes`] gave for the same file.
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

    /// Number of its lines.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// The line with this index.
    pub fn line(&self, file: &[u8], index: usize) -> Option<Line> {
        Some(Line::read(file, self.lines.get(index)?))
    }

    /// Calls `visit` for each stat of the plane itself.
    pub fn stats(&self, file: &[u8], visit: &mut dyn FnMut(Stat<'_>)) {
        for at in &self.stats {
            visit(self.stat(get(file, at)));
        }
    }

    /// The name of an event, empty where the file has none.
    pub fn event_name(&self, event: &Event) -> &str {
        self.event_names
            .get(&event.metadata_id)
            .map_or("", String::as_str)
    }

    /// Calls `visit` for each stat of an event.
    pub fn event_stats(&self, file: &[u8], of: &Event, visit: &mut dyn FnMut(Stat<'_>)) {
        let mut fields = Fields::new(get(file, &of.at));
        while let Some(field) = fields.next_lenient() {
            if let (event::STATS, Value::Bytes(bytes)) = (field.number, field.value) {
                visit(self.stat(bytes));
            }
        }
    }

    fn stat<'a>(&'a self, message: &'a [u8]) -> Stat<'a> {
        let Ok(stat) = wire::stat(message) else {
            return Stat::default();
        };
        Stat {
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

/// One entry of a map from ids to metadata; of several with one id the last counts.
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
pub struct Line {
    /// Its name; empty where the file gives a display name only.
    pub name: String,
    /// What its events' offsets count from, nanoseconds.
    pub timestamp_ns: i64,
    events: Vec<FieldRange>,
}

impl Line {
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

    /// Number of its events.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The event with this index.
    pub fn event(&self, file: &[u8], index: usize) -> Option<Event> {
        Some(Event::read(file, self.events.get(index)?))
    }
}

/// One event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// Id of its metadata.
    pub metadata_id: i64,
    /// Picoseconds after the line's [`timestamp_ns`](Line::timestamp_ns).
    pub offset_ps: i64,
    /// Length, picoseconds.
    pub duration_ps: i64,
    at: FieldRange,
}

impl Event {
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

/// One stat, with what its ids mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stat<'a> {
    /// Its name; `None` when the file does not say what its id means.
    pub name: Option<&'a str>,
    /// `None` when there is no value in the file.
    pub value: Option<Written<'a>>,
}

/// A stat's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Written<'a> {
    /// A number with a fraction.
    Double(f64),
    /// A whole number without sign.
    Uint(u64),
    /// A whole number.
    Int(i64),
    /// Text or bytes, or the text that a reference means.
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
