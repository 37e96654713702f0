//! PyTorch's execution traces, as `torch.profiler.ExecutionTraceObserver` writes them (JSON): the operators of a
//! program with their inputs, without times. See `docs/formats/execution-trace.md`.
//!
//! Each operator becomes a sample whose stack is the operators around it.

use rustc_hash::FxHashMap;
use stepscope_model::{Diagnostic, EventSink, ReadContext, SharedBytes};

use crate::FormatError;
use crate::json::scan::{JsonType, Value, skip_space};
use crate::json::walk::{self, End, Fault};
use crate::sampling::SampleTable;

/// Maximum depth of a stack. Operators nest far less deeply; damaged files have circles.
const MAX_DEPTH: usize = 512;
/// Number of operators between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Maximum length of a description of inputs.
const MAX_SHAPES_BYTES: usize = 512;

/// An operator.
#[derive(Default)]
struct Node {
    name: String,
    id: Option<u64>,
    parent: u64,
    thread: Option<u64>,
    shapes: String,
    types: String,
}

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the file has no operator, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let text: &[u8] = (**bytes).as_ref();
    let mut nodes = Vec::new();
    let mut schema = String::new();
    let start = if text.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let walked = walk::object(text, skip_space(text, start), &mut |key, at| match key {
        b"nodes" => walk::list(text, at, &mut |at| {
            if nodes.len() % LOOK_EVERY == 0 {
                context.advance(0)?;
            }
            let mut node = Node::default();
            let end = node.read(text, at)?;
            nodes.push(node);
            Ok(end)
        }),
        b"schema" => {
            let (value, end) = walk::value(text, at)?;
            schema = walk::text(text, &value).unwrap_or_default();
            Ok(end)
        }
        _ => walk::skip(text, at),
    });
    let stopped = match walked {
        Ok(_) => None,
        Err(Fault::ScanError(stop)) => Some(stop),
        Err(Fault::Cancelled) => return Err(FormatError::Cancelled),
    };
    if nodes.is_empty() {
        return Err(FormatError::Malformed {
            reason: "no operator is in the execution trace".to_owned(),
            offset: walk::place(stopped, text),
        });
    }
    emit(&nodes, text.len(), context, sink)?;
    if !schema.is_empty() {
        sink.fact(
            "execution_trace.schema",
            stepscope_model::ArgValue::Str(&schema),
        );
    }
    if let Some(stop) = stopped {
        let (what, detail) = walk::loss(stop, text);
        sink.diagnose(what, 1, &detail);
    }
    context.advance(text.len() as u64)?;
    Ok(())
}

fn emit<S: EventSink>(
    nodes: &[Node],
    file_bytes: usize,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let mut table = SampleTable::new(&[("operators", "count")], file_bytes);
    let mut locations = Vec::with_capacity(nodes.len());
    let mut by_id = FxHashMap::default();
    for (index, node) in nodes.iter().enumerate() {
        locations.push(table.location(&node.name, "", 0, 0));
        if let Some(id) = node.id {
            by_id.entry(id).or_insert(index);
        }
    }
    let mut stack = Vec::new();
    let (mut too_deep, mut thread) = (0_u64, String::new());
    for (index, node) in nodes.iter().enumerate() {
        if index % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        stack.clear();
        let mut around = Some(index);
        while let Some(at) = around {
            if stack.len() == MAX_DEPTH {
                too_deep += 1;
                break;
            }
            stack.extend(locations.get(at));
            let parent = nodes.get(at).map(|node| node.parent);
            // The root is its own parent, or has one that is not in the file.
            around = parent
                .and_then(|parent| by_id.get(&parent).copied())
                .filter(|parent| *parent != at);
        }
        thread.clear();
        if let Some(id) = node.thread {
            thread = id.to_string();
        }
        let labels = table.labels(&[
            ("thread", thread.as_str()),
            ("input shapes", node.shapes.as_str()),
            ("input types", node.types.as_str()),
        ]);
        table.add(&stack, &[1], labels);
    }
    let left_out = too_deep + table.stacks_left_out();
    if left_out > 0 {
        sink.diagnose(
            Diagnostic::LimitReached,
            left_out,
            "operators whose callers are not all shown: they nest too deeply, or in circles",
        );
    }
    sink.profile(table.finish());
    Ok(())
}

impl Node {
    fn read(&mut self, text: &[u8], at: usize) -> End {
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
                        b"shapes" => self.shapes = compact(text, value),
                        b"types" => self.types = compact(text, value),
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
                b"tid" => self.thread = walk::whole(text, &value),
                b"input_shapes" => self.shapes = compact(text, &value),
                b"input_types" => self.types = compact(text, &value),
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
        if name == "tid" {
            self.thread = number;
        }
        Ok(end)
    }
}

/// Returns a list without the blanks between its elements; empty for an empty one.
fn compact(text: &[u8], value: &Value) -> String {
    if value.json_type != JsonType::Array || value.is_empty_container(text) {
        return String::new();
    }
    let raw = value.span.slice(text);
    let raw = raw.get(..MAX_SHAPES_BYTES).unwrap_or(raw);
    let mut out = String::from_utf8_lossy(raw).into_owned();
    out.retain(|letter| !letter.is_whitespace());
    out
}
