//! PyTorch's execution traces, as `torch.profiler.ExecutionTraceObserver` writes them (JSON): the operators of a
//! program with their inputs, without times. See `docs/formats/execution-trace.md`.
//!
//! Each operator becomes a sample whose stack is the operators around it.

mod args;
mod node;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgSource, ArgValue, Diagnostic, EventSink, ReadContext, SharedBytes};

use self::node::Node;
use crate::FormatError;
use crate::json::scan::skip_space;
use crate::json::walk::{self, End, Fault};
use crate::sampling::{MAX_STACK, SampleTable};

/// Number of operators between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;

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
    let mut header = Header::default();
    let walked = each_node(text, &mut header, &mut |at| {
        if nodes.len() % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        let mut node = Node::default();
        let end = node.read(text, at)?;
        nodes.push(node);
        Ok(end)
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
    sink.source(arg_source(bytes));
    emit(&nodes, text.len(), context, sink)?;
    if !header.schema.is_empty() {
        sink.fact("execution_trace.schema", ArgValue::Str(&header.schema));
    }
    if let Some(pid) = header.pid.and_then(|pid| i64::try_from(pid).ok()) {
        sink.fact("execution_trace.pid", ArgValue::Int(pid));
    }
    if let Some(stop) = stopped {
        let (what, detail) = walk::loss(stop, text);
        sink.diagnose(what, 1, &detail);
    }
    context.advance(text.len() as u64)?;
    Ok(())
}

/// Returns the argument source of a file that has already been read. A token is the offset of an operator's opening
/// brace.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(args::Source::new(bytes))
}

/// What a file says about the whole.
#[derive(Default)]
struct Header {
    schema: String,
    pid: Option<u64>,
}

/// Calls `visit` with the offset of each node; `visit` returns its end. Reads the header.
fn each_node(text: &[u8], header: &mut Header, visit: &mut dyn FnMut(usize) -> End) -> End {
    let start = if text.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    walk::object(text, skip_space(text, start), &mut |key, at| match key {
        b"nodes" => walk::list(text, at, visit),
        b"schema" | b"pid" => {
            let (value, end) = walk::value(text, at)?;
            if key == b"pid" {
                header.pid = walk::whole(text, &value);
            } else {
                header.schema = walk::text(text, &value).unwrap_or_default();
            }
            Ok(end)
        }
        _ => walk::skip(text, at),
    })
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
            if stack.len() == MAX_STACK {
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
