//! What `XSpace` has no field for: the kind of a track, its process, its unit.

use stepscope_model::TrackKind;

use crate::proto_wire::{Fields, Value, put_bytes, put_int};

/// What a line, a plane or a counter is, where `XSpace` has no field for it.
///
/// Written as a protobuf message of its own in a `_track` stat: fields 1 to 14 in the order of
/// this struct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackRecord {
    /// Id of the line; `None` when this is about the plane's own group.
    pub line: Option<i64>,
    /// Kind of the track.
    pub kind: Option<TrackKind>,
    /// Operating-system process.
    pub pid: Option<i64>,
    /// Operating-system thread.
    pub tid: Option<i64>,
    /// Ordinal of the accelerator.
    pub device: Option<u32>,
    /// Queue of that accelerator.
    pub stream: Option<i64>,
    /// Unit of a counter's values.
    pub unit: Option<String>,
    /// Computed by a tool.
    pub derived: bool,
    /// Position among the siblings.
    pub sort_index: Option<i64>,
    /// Id of the line that encloses this one, where that is not the plane.
    pub parent: Option<i64>,
    /// Name, where the field of that name holds something else.
    pub name: Option<String>,
    /// The line's events belong to the plane's own group.
    pub on_group: bool,
    /// Of a plane: its lines have no group.
    pub ungrouped: bool,
    /// Category that all events of the track share.
    pub category: Option<String>,
}

impl TrackRecord {
    /// As the bytes of a `_track` stat.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut int = |number, value: Option<i64>| {
            if let Some(value) = value {
                put_int(&mut out, number, value);
            }
        };
        int(1, self.line);
        int(2, self.kind.map(|kind| kind as i64));
        int(3, self.pid);
        int(4, self.tid);
        int(5, self.device.map(i64::from));
        int(6, self.stream);
        int(8, self.derived.then_some(1));
        int(9, self.sort_index);
        int(10, self.parent);
        int(12, self.on_group.then_some(1));
        int(13, self.ungrouped.then_some(1));
        if let Some(unit) = &self.unit {
            put_bytes(&mut out, 7, unit.as_bytes());
        }
        if let Some(name) = &self.name {
            put_bytes(&mut out, 11, name.as_bytes());
        }
        if let Some(category) = &self.category {
            put_bytes(&mut out, 14, category.as_bytes());
        }
        out
    }

    /// The reverse; what cannot be read is left out.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut record = Self::default();
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (1, Value::Varint(value)) => record.line = Some(value as i64),
                (2, Value::Varint(value)) => record.kind = kind_of(value),
                (3, Value::Varint(value)) => record.pid = Some(value as i64),
                (4, Value::Varint(value)) => record.tid = Some(value as i64),
                (5, Value::Varint(value)) => record.device = u32::try_from(value).ok(),
                (6, Value::Varint(value)) => record.stream = Some(value as i64),
                (7, Value::Bytes(text)) => {
                    record.unit = Some(String::from_utf8_lossy(text).into_owned());
                }
                (8, Value::Varint(value)) => record.derived = value != 0,
                (9, Value::Varint(value)) => record.sort_index = Some(value as i64),
                (10, Value::Varint(value)) => record.parent = Some(value as i64),
                (11, Value::Bytes(text)) => {
                    record.name = Some(String::from_utf8_lossy(text).into_owned());
                }
                (12, Value::Varint(value)) => record.on_group = value != 0,
                (13, Value::Varint(value)) => record.ungrouped = value != 0,
                (14, Value::Bytes(text)) => {
                    record.category = Some(String::from_utf8_lossy(text).into_owned());
                }
                _ => {}
            }
        }
        record
    }
}

fn kind_of(number: u64) -> Option<TrackKind> {
    [
        TrackKind::Group,
        TrackKind::Thread,
        TrackKind::DeviceQueue,
        TrackKind::Async,
        TrackKind::Counter,
        TrackKind::Steps,
    ]
    .into_iter()
    .find(|kind| *kind as u64 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_record_comes_back() {
        let record = TrackRecord {
            line: Some(-3),
            kind: Some(TrackKind::Counter),
            pid: Some(7),
            tid: Some(-1),
            device: Some(3),
            stream: Some(13),
            unit: Some("bytes".to_owned()),
            derived: true,
            sort_index: Some(-5),
            parent: Some(9),
            name: Some("über".to_owned()),
            on_group: true,
            ungrouped: true,
            category: Some("kernel".to_owned()),
        };
        assert_eq!(TrackRecord::decode(&record.encode()), record);
        assert_eq!(
            TrackRecord::decode(&TrackRecord::default().encode()),
            TrackRecord::default()
        );
    }
}
