//! Arguments of a node, decoded on request. A token is the offset of the length before its message.

use std::sync::Arc;

use stepscope_model::{ArgError, ArgSource, ArgValue, SharedBytes};

use super::message::{Messages, Node, Tensors, data_dependencies, node_attributes, unsigned};
use crate::cprofile::truncated;

/// Maximum number of data dependencies that are shown.
const MAX_DEPENDENCIES: usize = 256;

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
        let file: &[u8] = (*self.bytes).as_ref();
        let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
        let message = Messages::starting_at(file, at).next();
        let message = message.map_err(|_fault| ArgError::Damaged)?;
        let message = message.ok_or(ArgError::BadToken)?;
        let node = Node::read(message);
        visit("id", unsigned(node.id));
        visit("node type", ArgValue::Str(node.role.name()));
        if let Some(parent) = node.parent {
            visit("control dependency", unsigned(parent));
        }
        let mut dependencies: Vec<String> = Vec::new();
        data_dependencies(message, &mut |id| {
            if dependencies.len() < MAX_DEPENDENCIES {
                dependencies.push(id.to_string());
            }
        });
        if !dependencies.is_empty() {
            let list = format!("[{}]", dependencies.join(", "));
            visit("data dependencies", ArgValue::Json(&list));
        }
        tensors("Input", &node.inputs, visit);
        tensors("Output", &node.outputs, visit);
        // By the names that reports on collectives look for.
        if let Some(op) = node.collective() {
            visit("Collective name", ArgValue::Str(op.as_str()));
        }
        if !node.process_group.is_empty() {
            let group = truncated(&String::from_utf8_lossy(node.process_group));
            visit("Process Group Name", ArgValue::Str(&group));
        }
        node_attributes(message, &mut |attribute| {
            let name = truncated(&String::from_utf8_lossy(attribute.name));
            if let (Some(value), false) = (attribute.value, name == "pg_name") {
                value.visit(&name, visit);
            }
        });
        Ok(())
    }
}

fn tensors(side: &str, tensors: &Tensors<'_>, visit: &mut dyn FnMut(&str, ArgValue<'_>)) {
    for (what, list) in [
        ("values", tensors.values),
        ("shapes", tensors.shapes),
        ("types", tensors.types),
    ] {
        if !matches!(list, b"" | b"[]") {
            let list = truncated(&String::from_utf8_lossy(list));
            visit(&format!("{side} {what}"), ArgValue::Str(&list));
        }
    }
}
