//! Dialects of the programs that write Chrome JSON: mainly PyTorch, also JAX, Neuron, Chrome.

use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{ArgValue, Diagnostic, EventSink};

use crate::json::members::{elements, members};
use crate::json::scan::{JsonType, Value};
use crate::json::value::{TopLevel, find, key_text, visit_members, whole, with_value};

/// Returns the nanoseconds to add to the file's clock to get Unix time, from a top-level member.
pub(crate) fn unix_base_ns(bytes: &[u8], top: &TopLevel) -> Option<i64> {
    UNIX_BASES
        .iter()
        .find_map(|name| find(bytes, top, name.as_bytes()))
        .and_then(|value| whole(bytes, &value))
}

/// Members that hold the Unix time at the zero of the file's clock, in nanoseconds: kineto's since
/// 2024, and Neuron's.
pub(crate) const UNIX_BASES: [&str; 2] = ["baseTimeNanoseconds", "neuronStartTimestampNs"];

/// Returns whether the outermost object has members that only kineto writes.
pub(crate) fn is_torch(bytes: &[u8], top: &TopLevel) -> bool {
    let has = |name: &[u8]| find(bytes, top, name).is_some();
    has(b"schemaVersion") || has(b"deviceProperties") || has(b"distributedInfo")
}

/// Names found in the file that identify the program that wrote it.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each stands for one family of programs"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    pub(crate) jax: bool,
    pub(crate) torch_xla: bool,
    pub(crate) neuron: bool,
    pub(crate) chrome: bool,
}

impl Hints {
    /// Merges the findings of another part.
    pub(crate) fn add(&mut self, other: Self) {
        self.jax |= other.jax;
        self.torch_xla |= other.torch_xla;
        self.neuron |= other.neuron;
        self.chrome |= other.chrome;
    }

    pub(crate) fn look_at(&mut self, text: &str) {
        self.jax |= text.starts_with("PjitFunction(") || text.starts_with("jit_");
        self.torch_xla |= text == "StepMarker" || text.contains("SyncLiveTensorsGraph");
        self.neuron |= text.starts_with("nrt_");
        self.chrome |= text.starts_with("devtools.") || text.starts_with("disabled-by-default-");
    }
}

/// Maximum size of a member that becomes a fact.
const MAX_FACT_BYTES: usize = 64 << 10;

/// Emits the members outside the events as facts.
pub(crate) fn emit_facts<S: EventSink>(bytes: &[u8], top: &TopLevel, sink: &mut S) {
    let has_viztracer = find(bytes, top, b"viztracer_metadata").is_some();
    for (key, value) in top {
        let name = String::from_utf8_lossy(key.slice(bytes));
        match (&*name, value.json_type) {
            // The facts of each device already contain it.
            ("deviceProperties", JsonType::Array) if devices(bytes, value, sink) > 0 => continue,
            ("distributedInfo", JsonType::Object) => {
                let _ = visit_members(bytes, value.span.start, &mut |key, value| {
                    if matches!(key, "rank" | "world_size" | "backend") {
                        sink.fact(key, value);
                    }
                });
            }
            ("host_name" | "hostname", _) => {
                with_value(bytes, value, |value| sink.fact("host", value));
            }
            ("Framework", _) => {
                with_value(bytes, value, |value| {
                    if matches!(value, ArgValue::Str("pytorch-lightning")) {
                        Producer::Lightning.emit(sink);
                    }
                });
            }
            ("ERROR", JsonType::Array) => writer_errors(bytes, value, sink),
            ("viztracer_metadata", JsonType::Object) => {
                let _ = visit_members(bytes, value.span.start, &mut |key, value| {
                    if key == "overflow" && value == ArgValue::Bool(true) {
                        let detail = "viztracer's buffer was full: raise --tracer_entries";
                        sink.diagnose(Diagnostic::DroppedByWriter, 1, detail);
                    }
                });
            }
            // viztracer: the text of each source file.
            ("file_info", JsonType::Object) if has_viztracer => continue,
            _ => {}
        }
        if value.span.len() > MAX_FACT_BYTES {
            sink.diagnose(
                Diagnostic::UnknownEntry,
                1,
                &format!(
                    "\"{name}\" ({} bytes) outside of traceEvents",
                    value.span.len()
                ),
            );
            continue;
        }
        with_value(bytes, value, |value| sink.fact(&name, value));
    }
}

/// Emits the facts `kind` and `kind.…`: the program that wrote the file.
pub(crate) fn emit_badges<S: EventSink>(
    bytes: &[u8],
    top: &TopLevel,
    hints: Hints,
    is_xla: bool,
    sink: &mut S,
) {
    let has = |name: &[u8]| find(bytes, top, name).is_some();
    let torch = is_torch(bytes, top);
    let neuron = hints.neuron || has(b"neuronStartTimestampNs");
    let python = has(b"viztracer_metadata");
    let producers = [
        (torch || (is_xla && hints.torch_xla), Producer::PyTorch),
        (is_xla && hints.jax && !hints.torch_xla, Producer::Jax),
        (is_xla, Producer::Xla),
        (neuron, Producer::Neuron),
        (python, Producer::Python),
    ];
    let mut main = Producer::Chrome;
    for (_, producer) in producers.iter().rev().filter(|(is, _)| *is) {
        producer.emit(sink);
        main = *producer;
    }
    if hints.chrome || main == Producer::Chrome {
        Producer::Chrome.emit(sink);
    }
    sink.fact("kind", ArgValue::Str(main.name()));
    let writer = match main {
        Producer::PyTorch if torch => "torch",
        Producer::PyTorch => "torch_xla",
        Producer::Jax => "jax",
        _ => return,
    };
    sink.fact("writer", ArgValue::Str(writer));
}

/// Emits facts of each device; returns the number of devices.
fn devices<S: EventSink>(bytes: &[u8], list: &Value, sink: &mut S) -> i64 {
    let mut position = 0;
    elements(bytes, list, |device| {
        if device.json_type != JsonType::Object {
            return;
        }
        let mut ordinal = position;
        position += 1;
        let _ = members(bytes, device.span.start, |key, value| {
            if key == b"id" {
                ordinal = whole(bytes, &value).unwrap_or(ordinal);
            }
        });
        let _ = visit_members(bytes, device.span.start, &mut |key, value| {
            let word = match key {
                "id" => return,
                "name" if matches!(value, ArgValue::Str("")) => return,
                "totalGlobalMem" => "memory_bytes",
                other => other,
            };
            sink.fact(&format!("device.{ordinal}.{word}"), value);
        });
    });
    position
}

/// Emits kineto's own log messages from the recording.
fn writer_errors<S: EventSink>(bytes: &[u8], list: &Value, sink: &mut S) {
    elements(bytes, list, |line| {
        if let Some(line) = key_text(bytes, line) {
            sink.diagnose(Diagnostic::WriterError, 1, line.text.trim_end());
        }
    });
}
