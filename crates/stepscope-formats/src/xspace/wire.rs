//! Field numbers of the `XSpace` schema, and decoded stats.
//!
//! The schema is `tensorflow.profiler.XSpace` (proto3); `docs/formats/xspace.md` contains it in
//! full.

use crate::protobuf::wire::{Fault, Fields, Value};

/// `XSpace`.
pub(crate) mod space {
    pub(crate) const PLANES: u32 = 1;
    pub(crate) const ERRORS: u32 = 2;
    pub(crate) const WARNINGS: u32 = 3;
    pub(crate) const HOSTNAMES: u32 = 4;
}

/// `XPlane`.
pub(crate) mod plane {
    pub(crate) const ID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const LINES: u32 = 3;
    pub(crate) const EVENT_METADATA: u32 = 4;
    pub(crate) const STAT_METADATA: u32 = 5;
    pub(crate) const STATS: u32 = 6;
}

/// `XLine`.
pub(crate) mod line {
    pub(crate) const ID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const TIMESTAMP_NS: u32 = 3;
    pub(crate) const EVENTS: u32 = 4;
    pub(crate) const DISPLAY_ID: u32 = 10;
    pub(crate) const DISPLAY_NAME: u32 = 11;
}

/// `XEvent`.
pub(crate) mod event {
    pub(crate) const METADATA_ID: u32 = 1;
    pub(crate) const OFFSET_PS: u32 = 2;
    pub(crate) const DURATION_PS: u32 = 3;
    pub(crate) const STATS: u32 = 4;
}

/// `XStat`.
pub(crate) mod stat {
    pub(crate) const METADATA_ID: u32 = 1;
    pub(crate) const DOUBLE: u32 = 2;
    pub(crate) const UINT64: u32 = 3;
    pub(crate) const INT64: u32 = 4;
    pub(crate) const STR: u32 = 5;
    pub(crate) const BYTES: u32 = 6;
    pub(crate) const REF: u32 = 7;
}

/// An entry of a protobuf map.
pub(crate) mod entry {
    pub(crate) const KEY: u32 = 1;
    pub(crate) const VALUE: u32 = 2;
}

/// Common fields of `XEventMetadata` and `XStatMetadata`.
pub(crate) mod metadata {
    pub(crate) const ID: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    /// Of `XStatMetadata`.
    pub(crate) const DESCRIPTION: u32 = 3;
    /// Of `XEventMetadata`.
    pub(crate) const DISPLAY_NAME: u32 = 4;
    /// Of `XEventMetadata`.
    pub(crate) const STATS: u32 = 5;
    /// Of `XEventMetadata`.
    pub(crate) const CHILD_ID: u32 = 6;
}

/// The value of an `XStat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StatValue<'a> {
    /// No value was set.
    None,
    Double(f64),
    Uint(u64),
    Int(i64),
    /// Text, not yet checked to be UTF-8.
    Str(&'a [u8]),
    Bytes(&'a [u8]),
    /// Id of the stat metadata that holds the text as its name.
    Ref(i64),
}

impl StatValue<'_> {
    /// Returns an integer as its 64 bits, whether signed or unsigned.
    pub(crate) fn bits(self) -> Option<u64> {
        match self {
            Self::Uint(value) => Some(value),
            Self::Int(value) => Some(value as u64),
            _ => None,
        }
    }
}

/// One decoded `XStat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat<'a> {
    pub(crate) metadata_id: i64,
    pub(crate) value: StatValue<'a>,
}

/// Decodes one `XStat`; of several values the last counts, as protobuf requires.
pub(crate) fn stat(message: &[u8]) -> Result<Stat<'_>, Fault> {
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
