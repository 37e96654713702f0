//! A tiny protobuf encoder for hand-made inputs, right or wrong.

/// Bytes of a message under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn varint(&mut self, value: u64) {
        self.0.extend(varint(value));
    }

    /// A number.
    pub(crate) fn int(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    /// A `double`.
    pub(crate) fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Text or bytes.
    pub(crate) fn bytes(mut self, field: u64, bytes: impl AsRef<[u8]>) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.as_ref().len() as u64);
        self.0.extend(bytes.as_ref());
        self
    }

    /// A message.
    pub(crate) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Bytes as they are.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

/// The bytes of a varint.
pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

/// An entry of `event_metadata`.
pub(crate) fn event_metadata(id: i64, name: &str) -> Message {
    named(id, name)
}

/// An entry of `stat_metadata`.
pub(crate) fn stat_metadata(id: i64, name: &str) -> Message {
    named(id, name)
}

fn named(id: i64, name: &str) -> Message {
    let value = Message::new().int(1, id).bytes(2, name);
    Message::new().int(1, id).message(2, &value)
}

/// An event with its numbers.
pub(crate) fn event(metadata_id: i64, offset_ps: i64, duration_ps: i64) -> Message {
    Message::new()
        .int(1, metadata_id)
        .int(2, offset_ps)
        .int(3, duration_ps)
}
