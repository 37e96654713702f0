//! Iteration over the messages of a compiled program, with a count of what cannot be read.

use crate::protobuf::wire::{Fault, Fields, Value, varint};

/// Reads messages and counts the damaged ones.
#[derive(Default)]
pub(super) struct Messages {
    /// Number of messages that end in unreadable bytes.
    pub(super) damaged: usize,
}

impl Messages {
    /// Calls `visit` with the readable fields of a message; of a cut one with as much as there is of it.
    pub(super) fn each<'a>(
        &mut self,
        message: &'a [u8],
        mut visit: impl FnMut(&mut Self, u32, Value<'a>),
    ) {
        let mut fields = Fields::new(message);
        loop {
            match fields.next() {
                Ok(Some(field)) => visit(self, field.number, field.value),
                Ok(None) => return,
                Err(fault) => {
                    self.damaged += 1;
                    if let Fault::Cut { number, .. } = fault {
                        visit(self, number, Value::Bytes(fields.rest()));
                    }
                    return;
                }
            }
        }
    }

    /// Appends a repeated number: packed in newer files, one by one in older ones.
    pub(super) fn numbers(&mut self, value: Value<'_>, into: &mut Vec<i64>) {
        match value {
            Value::Varint(number) => into.push(number as i64),
            Value::Bytes(packed) => {
                let mut at = 0;
                while at < packed.len() {
                    let Ok((number, next)) = varint(packed, at) else {
                        self.damaged += 1;
                        return;
                    };
                    into.push(number as i64);
                    at = next;
                }
            }
            Value::Fixed64(_) | Value::Fixed32(_) => self.damaged += 1,
        }
    }
}

/// Returns text, with invalid UTF-8 replaced.
pub(super) fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).into()
}

/// Returns the text of a value, or nothing for other wire types.
pub(super) fn text_of(value: Value<'_>) -> Box<str> {
    text(value.bytes().unwrap_or_default())
}

/// Returns a number, or 0 for other wire types.
pub(super) fn int(value: Value<'_>) -> i64 {
    value.int().unwrap_or(0)
}
