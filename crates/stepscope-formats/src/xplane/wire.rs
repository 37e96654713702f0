//! Field numbers of the `XSpace` schema, and the shapes that are read on the way.
//!
//! The schema is `tensorflow.profiler.XSpace` (proto3); `docs/formats/xspace.md` shows it whole.

use crate::proto_wire::{Fault, Fields, Value};

/// `XSpace`.
pub(super) mod space {
    pub(in super::super) const PLANES: u32 = 1;
    pub(in super::super) const ERRORS: u32 = 2;
    pub(in super::super) const WARNINGS: u32 = 3;
    pub(in super::super) const HOSTNAMES: u32 = 4;
}

/// `XPlane`.
pub(super) mod plane {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const LINES: u32 = 3;
    pub(in super::super) const EVENT_METADATA: u32 = 4;
    pub(in super::super) const STAT_METADATA: u32 = 5;
    pub(in super::super) const STATS: u32 = 6;
}

/// `XLine`.
pub(super) mod line {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const TIMESTAMP_NS: u32 = 3;
    pub(in super::super) const EVENTS: u32 = 4;
    pub(in super::super) const DISPLAY_ID: u32 = 10;
    pub(in super::super) const DISPLAY_NAME: u32 = 11;
}

/// `XEvent`.
pub(super) mod event {
    pub(in super::super) const METADATA_ID: u32 = 1;
    pub(in super::super) const OFFSET_PS: u32 = 2;
    pub(in super::super) const DURATION_PS: u32 = 3;
    pub(in super::super) const STATS: u32 = 4;
}

/// `XStat`.
pub(super) mod stat {
    pub(in super::super) const METADATA_ID: u32 = 1;
    pub(in super::super) const DOUBLE: u32 = 2;
    pub(in super::super) const UINT64: u32 = 3;
    pub(in super::super) const INT64: u32 = 4;
    pub(in super::super) const STR: u32 = 5;
    pub(in super::super) const BYTES: u32 = 6;
    pub(in super::super) const REF: u32 = 7;
}

/// An entry of a protobuf map.
pub(super) mod entry {
    pub(in super::super) const KEY: u32 = 1;
    pub(in super::super) const VALUE: u32 = 2;
}

/// `XEventMetadata` and `XStatMetadata`, as far as they agree.
pub(super) mod metadata {
    pub(in super::super) const ID: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    /// Of `XStatMetadata`.
    pub(in super::super) const DESCRIPTION: u32 = 3;
    /// Of `XEventMetadata`.
    pub(in super::super) const DISPLAY_NAME: u32 = 4;
    /// Of `XEventMetadata`.
    pub(in super::super) const STATS: u32 = 5;
    /// Of `XEventMetadata`.
    pub(in super::super) const CHILD_ID: u32 = 6;
}

/// The value of an `XStat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StatValue<'a> {
    /// No value was set.
    None,
    Double(f64),
    Uint(u64),
    Int(i64),
    /// Text, not yet checked to be UTF-8.
    Str(&'a [u8]),
    Bytes(&'a [u8]),
    /// Id of the stat metadata whose name is the text.
    Ref(i64),
}

impl StatValue<'_> {
    /// A whole number as its 64 bits, whichever way it was written.
    pub(super) fn bits(self) -> Option<u64> {
        match self {
            Self::Uint(value) => Some(value),
            Self::Int(value) => Some(value as u64),
            _ => None,
        }
    }
}

/// One decoded `XStat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stat<'a> {
    pub(super) metadata_id: i64,
    pub(super) value: StatValue<'a>,
}

/// Decodes one `XStat`; of several values the last counts, as protobuf says.
pub(super) fn stat(message: &[u8]) -> Result<Stat<'_>, Fault> {
    let mut found = Stat {
        metadata_id: 0,
        value: StatValue::None,
    };
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        match (field.number, field.value) {
            (stat::METADATA_ID, Value::Varint(id)) => found.metadata_id = id as i64,
            (stat::DOUBLE, Value::Fixed64(bits)) => {
                found.value = StatValue::Double(f64::from_bits(bits));
            }
            (stat::UINT64, Value::Varint(value)) => found.value = StatValue::Uint(value),
            (stat::INT64, Value::Varint(value)) => found.value = StatValue::Int(value as i64),
            (stat::STR, Value::Bytes(text)) => found.value = StatValue::Str(text),
            (stat::BYTES, Value::Bytes(bytes)) => found.value = StatValue::Bytes(bytes),
            (stat::REF, Value::Varint(id)) => found.value = StatValue::Ref(id as i64),
            _ => {}
        }
    }
    Ok(found)
}
