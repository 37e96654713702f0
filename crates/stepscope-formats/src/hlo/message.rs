//! Iteration over the messages of a compiled program, with a count of what cannot be read.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::shape::Shape;
use super::shared_text::SharedText;
use crate::protobuf::wire::{Fault, Fields, Value, varint};

/// Reads messages and counts the damaged ones.
///
/// Most instructions share their opcode, their shape and their origin with others. Each of these is read once:
/// copies of them were most of the time that a module took.
#[derive(Default)]
pub(super) struct Messages<'a> {
    /// Number of messages that end in unreadable bytes.
    pub(super) damaged: usize,
    /// Texts that were read, by their bytes.
    texts: FxHashMap<&'a [u8], SharedText>,
    /// Undamaged shapes that were read, by their messages.
    shapes: FxHashMap<&'a [u8], Arc<Shape>>,
    /// The shape of instructions without one.
    pub(super) no_shape: Arc<Shape>,
}

/// A text that is often that of the message before, too.
#[derive(Default)]
pub(super) struct Repeated {
    last: SharedText,
}

impl Repeated {
    /// Returns the text of a value, or nothing for other wire types.
    pub(super) fn text_of(&mut self, value: Value<'_>) -> SharedText {
        let bytes = value.bytes().unwrap_or_default();
        if self.last.as_bytes() != bytes {
            self.last = text(bytes).into();
        }
        self.last.clone()
    }
}

impl<'a> Messages<'a> {
    /// Calls `visit` with the readable fields of a message; of a cut one with as much as there is of it.
    pub(super) fn each<'b>(
        &mut self,
        message: &'b [u8],
        mut visit: impl FnMut(&mut Self, u32, Value<'b>),
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

    /// Returns a text of which a module has few, or nothing for other wire types.
    pub(super) fn shared_text(&mut self, value: Value<'a>) -> SharedText {
        let bytes = value.bytes().unwrap_or_default();
        let known = self.texts.entry(bytes);
        known.or_insert_with(|| text(bytes).into()).clone()
    }

    /// Returns a shape that other messages may have too.
    pub(super) fn shared_shape(&mut self, message: &'a [u8]) -> Arc<Shape> {
        if let Some(known) = self.shapes.get(message) {
            return Arc::clone(known);
        }
        let damaged = self.damaged;
        let shape = Arc::new(Shape::read(self, message));
        // Each use of a damaged shape counts.
        if self.damaged == damaged {
            self.shapes.insert(message, Arc::clone(&shape));
        }
        shape
    }

    /// Appends a repeated number: packed in newer files, one by one in older ones.
    pub(super) fn numbers(&mut self, value: Value<'_>, into: &mut Vec<i64>) {
        match value {
            Value::Varint(number) => into.push(number as i64),
            Value::Bytes(packed) => {
                let count = packed.iter().filter(|byte| **byte < 0x80).count();
                if into.is_empty() {
                    into.reserve_exact(count);
                }
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
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(bytes).into(),
    }
}

/// Returns the text of a value, or nothing for other wire types.
pub(super) fn text_of(value: Value<'_>) -> Box<str> {
    text(value.bytes().unwrap_or_default())
}

/// Returns a number, or 0 for other wire types.
pub(super) fn int(value: Value<'_>) -> i64 {
    value.int().unwrap_or(0)
}
