//! Arguments of a collective, in the names that torch's profiler uses.

use stepscope_model::ArgValue;

use super::values::Dump;
use crate::pickle::{Pickle, Value};

/// Maximum number of bytes of a list as text.
const MAX_LIST_BYTES: usize = 4_096;
/// Maximum nesting of a list as text.
const MAX_LIST_DEPTH: usize = 8;
/// Maximum number of tensors of a collective, and of dimensions of a tensor, that are multiplied.
const MAX_TENSORS: usize = 1 << 14;
const MAX_DIMS: usize = 64;
/// Maximum number of frames of a stack.
const MAX_FRAMES: usize = 64;

/// Calls `visit` for each argument of an entry.
pub(super) fn visit(dump: &Dump<'_>, entry: Value, visit: &mut dyn FnMut(&str, ArgValue<'_>)) {
    let values = &dump.values;
    let get = |key: &str| values.get(entry, key);
    let operation = dump.shown(get("profiling_name"));
    let (_, collective) = operation.split_once(':').unwrap_or(("", &operation));
    visit("Collective name", ArgValue::Str(collective));
    let (group, description) = dump.group(entry);
    visit("Process Group Name", ArgValue::Str(&group));
    if !description.is_empty() {
        visit("Process Group Description", ArgValue::Str(&description));
    }
    let ranks = values.get(dump.group_config(&group), "ranks");
    let ranks = match ranks {
        Value::Text(_) => dump.shown(ranks),
        Value::List(_) => list_text(dump, ranks),
        _ => String::new(),
    };
    if !ranks.is_empty() {
        visit("Process Group Ranks", ArgValue::Str(&ranks));
        let count = ranks
            .split(',')
            .filter(|rank| rank.contains(|c: char| c.is_ascii_digit()));
        let count = i64::try_from(count.count()).unwrap_or(i64::MAX);
        visit("Group size", ArgValue::Int(count));
    }
    let dtypes = values.list(get("input_dtypes"));
    if let Some(dtype) = dtypes.first() {
        visit("dtype", ArgValue::Str(&dump.shown(*dtype)));
    }
    for (key, name) in [
        ("input_sizes", "In msg nelems"),
        ("output_sizes", "Out msg nelems"),
    ] {
        if let Some(count) = elements(values, get(key)) {
            visit(name, ArgValue::Int(count));
        }
    }
    for key in [
        "state",
        "collective_seq_id",
        "p2p_seq_id",
        "seq_id",
        "op_id",
        "record_id",
        "is_p2p",
        "retired",
        "timeout_ms",
        "thread_id",
        "thread_name",
        "duration_ms",
        "time_created_ns",
        "time_discovered_started_ns",
        "time_discovered_completed_ns",
        "input_sizes",
        "input_dtypes",
        "output_sizes",
        "output_dtypes",
    ] {
        match get(key) {
            Value::None | Value::Dict(_) => {}
            Value::Bool(is) => visit(key, ArgValue::Bool(is)),
            Value::Int(number) => visit(key, ArgValue::Int(number)),
            Value::Uint(number) => visit(key, ArgValue::Uint(number)),
            Value::Float(number) => visit(key, ArgValue::Double(number)),
            text @ Value::Text(_) => visit(key, ArgValue::Str(&dump.shown(text))),
            list @ Value::List(_) => visit(key, ArgValue::Json(&list_text(dump, list))),
        }
    }
    let frames = values.list(get("frames")).iter().take(MAX_FRAMES);
    let frames = frames.map(|frame| {
        let part = |key: &str| dump.shown(values.get(*frame, key));
        format!("{}({}): {}", part("filename"), part("line"), part("name"))
    });
    let stack = frames.collect::<Vec<_>>().join(";");
    if !stack.is_empty() {
        visit("Call stack", ArgValue::Str(&stack));
    }
}

/// Returns the number of elements of all tensors of a list of sizes.
fn elements(values: &Pickle<'_>, sizes: Value) -> Option<i64> {
    let Value::List(_) = sizes else {
        return None;
    };
    let tensors = values.list(sizes).iter().take(MAX_TENSORS);
    let counts = tensors.map(|tensor| {
        let dims = values.list(*tensor).iter().take(MAX_DIMS);
        let dims = dims.map(|dim| Pickle::whole(*dim).unwrap_or(0));
        dims.fold(1, u64::saturating_mul)
    });
    let sum = counts.fold(0, u64::saturating_add);
    Some(i64::try_from(sum).unwrap_or(i64::MAX))
}

/// Formats a list as JSON text of a bounded size.
fn list_text(dump: &Dump<'_>, list: Value) -> String {
    let mut out = String::new();
    write_value(dump, list, MAX_LIST_DEPTH, &mut out);
    out
}

fn write_value(dump: &Dump<'_>, value: Value, depth: usize, out: &mut String) {
    match value {
        Value::List(_) if depth > 0 => {
            out.push('[');
            for (at, element) in dump.values.list(value).iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                if out.len() > MAX_LIST_BYTES {
                    out.push_str("\"…\"");
                    break;
                }
                write_value(dump, *element, depth - 1, out);
            }
            out.push(']');
        }
        Value::Int(_) | Value::Uint(_) => out.push_str(&dump.shown(value)),
        Value::Text(_) => {
            out.push('"');
            out.push_str(&dump.shown(value).escape_default().to_string());
            out.push('"');
        }
        Value::Bool(is) => out.push_str(if is { "true" } else { "false" }),
        _ => out.push_str("null"),
    }
}
