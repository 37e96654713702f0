//! Operators of an execution trace.

use crate::json::scan::{JsonType, Value};
use crate::json::walk::{self, End};
use crate::sampling::compact;

/// An operator, in one of the two schemas.
#[derive(Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) id: Option<u64>,
    pub(super) parent: u64,
    /// Number of the call of the operator, which kineto's events have too.
    pub(super) record_function: Option<u64>,
    pub(super) thread: Option<u64>,
    pub(super) shapes: String,
    pub(super) types: String,
}

impl Node {
    /// Reads the node at `at`; returns its end.
    pub(super) fn read(&mut self, text: &[u8], at: usize) -> End {
        if text.get(at) != Some(&b'{') {
            return walk::skip(text, at);
        }
        walk::object(text, at, &mut |key, at| {
            // Schema 1.1 has the facts of PyTorch in a list, and inputs in an object.
            match (key, text.get(at)) {
                (b"attrs", Some(b'[')) => {
                    return walk::list(text, at, &mut |at| self.attribute(text, at));
                }
                (b"inputs", Some(b'{')) => {
                    return walk::members(text, at, &mut |key, value| match key {
                        b"shapes" => self.shapes = list(text, value),
                        b"types" => self.types = list(text, value),
                        _ => {}
                    });
                }
                _ => {}
            }
            let (value, end) = walk::value(text, at)?;
            match key {
                b"name" => self.name = walk::text(text, &value).unwrap_or_default(),
                b"id" => self.id = walk::whole(text, &value),
                b"parent" | b"ctrl_deps" => {
                    self.parent = walk::whole(text, &value).unwrap_or_default();
                }
                b"rf_id" => self.record_function = walk::whole(text, &value),
                b"tid" => self.thread = walk::whole(text, &value),
                b"input_shapes" => self.shapes = list(text, &value),
                b"input_types" => self.types = list(text, &value),
                _ => {}
            }
            Ok(end)
        })
    }

    /// Reads `{"name": "tid", "type": "uint64", "value": 1}`.
    fn attribute(&mut self, text: &[u8], at: usize) -> End {
        let (mut name, mut number) = (String::new(), None);
        let end = walk::members(text, at, &mut |key, value| match key {
            b"name" => name = walk::text(text, value).unwrap_or_default(),
            b"value" => number = walk::whole(text, value),
            _ => {}
        })?;
        match &*name {
            "tid" => self.thread = number,
            "rf_id" => self.record_function = number,
            _ => {}
        }
        Ok(end)
    }
}

/// Returns a list without blanks; empty for other values.
fn list(text: &[u8], value: &Value) -> String {
    if value.json_type != JsonType::Array || value.is_empty_container(text) {
        return String::new();
    }
    compact(value.span.slice(text))
}
