//! The operators with their numbers, and the facts of one operator, decoded on request.

use std::sync::Arc;

use stepscope_model::{ArgError, ArgSource, ArgValue, ExecutedOperator, SharedBytes};

use super::node::Node;
use super::{Header, each_node};
use crate::json::scan::Value;
use crate::json::value::with_value;
use crate::json::walk::{self, Fault};

pub(super) struct Source {
    bytes: SharedBytes,
}

impl Source {
    pub(super) fn new(bytes: &SharedBytes) -> Self {
        Self {
            bytes: Arc::clone(bytes),
        }
    }
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let text: &[u8] = (*self.bytes).as_ref();
        let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
        if text.get(at) != Some(&b'{') {
            return Err(ArgError::Damaged);
        }
        let read = walk::object(text, at, &mut |key, at| {
            if let (b"attrs", Some(b'[')) = (key, text.get(at)) {
                return walk::list(text, at, &mut |at| {
                    let (mut name, mut value) = (String::new(), Value::default());
                    let end = walk::members(text, at, &mut |key, own| match key {
                        b"name" => name = walk::text(text, own).unwrap_or_default(),
                        b"value" => value = *own,
                        _ => {}
                    })?;
                    show(text, &name, &value, visit);
                    Ok(end)
                });
            }
            let side = match key {
                b"inputs" => "input",
                b"outputs" => "output",
                _ => "",
            };
            if !side.is_empty() && text.get(at) == Some(&b'{') {
                return walk::members(text, at, &mut |key, value| {
                    let key = format!("{side}_{}", String::from_utf8_lossy(key));
                    show(text, &key, value, visit);
                });
            }
            let (value, end) = walk::value(text, at)?;
            let key = match key {
                b"name" => return Ok(end),
                b"inputs" => "input_values".into(),
                b"outputs" => "output_values".into(),
                b"ctrl_deps" => "parent".into(),
                key => String::from_utf8_lossy(key),
            };
            show(text, &key, &value, visit);
            Ok(end)
        });
        read.map(|_| ()).map_err(|_fault| ArgError::Damaged)
    }

    fn operators(&self, visit: &mut dyn FnMut(&ExecutedOperator<'_>)) -> Result<(), ArgError> {
        let text: &[u8] = (*self.bytes).as_ref();
        let walked = each_node(text, &mut Header::default(), &mut |at| {
            let mut node = Node::default();
            let end = node.read(text, at)?;
            visit(&ExecutedOperator {
                name: &node.name,
                record_function: node.record_function.filter(|number| *number > 0),
                token: at as u64,
            });
            Ok(end)
        });
        match walked {
            // The reader has reported a damaged end.
            Ok(_) | Err(Fault::ScanError(_)) => Ok(()),
            Err(Fault::Cancelled) => Err(ArgError::Damaged),
        }
    }
}

/// Visits a fact unless it is empty.
fn show(text: &[u8], key: &str, value: &Value, visit: &mut dyn FnMut(&str, ArgValue<'_>)) {
    if !value.is_empty_container(text) {
        with_value(text, value, |value| {
            if value != ArgValue::Str("") {
                visit(key, value);
            }
        });
    }
}
