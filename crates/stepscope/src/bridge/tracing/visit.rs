//! Writes the fields of spans and events into the ring, without allocating.

use std::fmt::{self, Write};

use tracing_core::Event;
use tracing_core::field::{Field, Visit};

use super::callsite::{self, Callsite};
use crate::ring::layout::{ARG_SHARED, FLAG_ARGS, FLAG_NAMED_BY_TEXT, KIND_INSTANT, meta};
use crate::ring::names;
use crate::ring::writer::Writer;
use crate::span::{SpanArgValue, put_text, put_value};

/// Maximum length of a field's debug text, bytes; longer ones are truncated and counted.
const MAX_DEBUG_BYTES: usize = 2_048;
/// Maximum length of a message that is used as a name, bytes.
const MAX_MESSAGE_BYTES: usize = 256;
/// The field that contains an event's text.
const MESSAGE: &str = "message";

/// Visits fields and writes them under one key.
pub(super) struct Args<'a> {
    writer: Writer<'a>,
    callsite: Option<&'static Callsite>,
    key: u64,
    flags: u8,
    /// For an event: whether its message has been written, and whether there are other fields.
    message: Option<bool>,
    any: bool,
}

impl<'a> Args<'a> {
    /// Creates the visitor for a span, which any thread may enter.
    pub(super) fn shared(writer: Writer<'a>, callsite: &'static Callsite, key: u64) -> Self {
        Self {
            writer,
            callsite: Some(callsite),
            key,
            flags: ARG_SHARED,
            message: None,
            any: false,
        }
    }

    fn put(&mut self, field: &Field, value: SpanArgValue<'_>) {
        self.any = true;
        let name = match self.callsite {
            Some(callsite) => callsite.field_name(field),
            None => names::intern(field.name()),
        };
        put_value(self.writer, self.key, name, self.flags, value);
    }

    fn text(&mut self, field: &Field, text: &str) {
        if self.message == Some(false) && field.name() == MESSAGE {
            self.message = Some(true);
            let mut len = text.len().min(MAX_MESSAGE_BYTES);
            while !text.is_char_boundary(len) {
                len -= 1;
            }
            put_text(self.writer, self.key, 0, 0, &text[..len]);
            if len == text.len() {
                return;
            }
        }
        self.put(field, SpanArgValue::Str(text));
    }
}

impl Visit for Args<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = StackText::default();
        // Fails when the text is full; the part that fits is recorded.
        if write!(text, "{value:?}").is_err() {
            self.writer.count_cut();
        }
        self.text(field, text.as_str());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, SpanArgValue::Double(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, SpanArgValue::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, SpanArgValue::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, SpanArgValue::Bool(value));
    }
}

/// Writes an event as an instant.
pub(super) fn put_event(writer: Writer<'_>, event: &Event<'_>) {
    let at = writer.now();
    let callsite = callsite::from_metadata(event.metadata());
    let mut args = Args {
        writer,
        callsite,
        key: at,
        flags: 0,
        message: Some(false),
        any: false,
    };
    event.record(&mut args);
    let mut flags = if args.any { FLAG_ARGS } else { 0 };
    let mut name = 0;
    if args.message == Some(true) {
        flags |= FLAG_NAMED_BY_TEXT;
    } else {
        name = match callsite {
            Some(callsite) => callsite.name(),
            None => names::intern(event.metadata().name()),
        };
        if name == 0 {
            flags |= FLAG_NAMED_BY_TEXT;
            put_text(writer, at, 0, 0, event.metadata().name());
        }
    }
    writer.record([at, 0, meta(name, KIND_INSTANT, flags, 0)]);
}

/// A short text on the stack.
struct StackText {
    bytes: [u8; MAX_DEBUG_BYTES],
    len: usize,
}

impl Default for StackText {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_DEBUG_BYTES],
            len: 0,
        }
    }
}

impl StackText {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for StackText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut len = text.len().min(MAX_DEBUG_BYTES - self.len);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        if len < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}
