//! Serialized events.

use std::collections::HashMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use stepscope_analysis::execution_trace;
use stepscope_model::{ArgValue, SliceFlags};
use stepscope_report::demangle::demangled;
use stepscope_report::report::shorter;
use stepscope_store::{Event, EventId};

use super::context::EventContext;
use crate::ns::{FIRST_INEXACT, Ns};
use crate::view::RunView;

/// Maximum length of an arg's text, bytes, unless the client requests all.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 10;
/// Maximum number of bytes of a binary arg.
const MAX_HEX_BYTES: usize = 256;
/// Maximum number of args of one event, unless the client requests all.
pub(crate) const MAX_ARGS: usize = 10_000;

/// An event in short form.
#[derive(Serialize)]
pub(crate) struct EventSummary {
    id: u32,
    name: String,
    /// Short name of a C++ function.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_name: Option<String>,
    track: u32,
    row: u16,
    start_ns: Ns,
    duration_ns: Ns,
    kind: &'static str,
}

impl EventSummary {
    /// Returns the event's short form, if the event exists.
    pub(crate) fn from_event(view: &RunView, id: EventId) -> Option<Self> {
        let trace = &view.run.trace;
        let event = trace.event(id)?;
        let name = trace.name(event.name);
        Some(Self {
            id: id.0,
            name: name.to_owned(),
            short_name: shorter(name),
            track: event.track.0,
            row: event.row,
            start_ns: view.clock().show(event.start),
            duration_ns: Ns::from_dur(event.dur),
            kind: event.kind.label(),
        })
    }
}

/// An event with all details.
#[derive(Serialize)]
pub(crate) struct EventDetail {
    id: u32,
    name: String,
    /// Demangled name.
    #[serde(skip_serializing_if = "Option::is_none")]
    demangled: Option<String>,
    /// Short name of a C++ function.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_name: Option<String>,
    kind: &'static str,
    kind_id: u8,
    category: Option<String>,
    track: u32,
    track_key: String,
    track_name: String,
    start_ns: Ns,
    duration_ns: Ns,
    self_ns: Ns,
    depth: u16,
    row: u16,
    instant: bool,
    unfinished: bool,
    derived: bool,
    step: Option<i64>,
    args: Ordered,
    args_cut: Ordered,
    args_error: Option<String>,
    stack: Vec<String>,
    source: Option<Source>,
    among: Option<Among>,
    links: Links,
    context: EventContext,
    flow_in: usize,
    flow_out: usize,
}

/// A location in the source code.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Source {
    file: String,
    line: Option<u64>,
}

/// Rank of a slice among the slices of the same name.
#[derive(Serialize)]
pub(crate) struct Among {
    /// The name.
    pub(crate) name: String,
    /// Slices of this name in the whole run.
    pub(crate) count: usize,
    /// Rank by duration; 1 is the longest.
    pub(crate) rank: usize,
    /// Share of them that are shorter, 0 to 100.
    pub(crate) percentile: f64,
    /// Shortest.
    pub(crate) min_ns: Ns,
    /// Median.
    pub(crate) median_ns: Ns,
    /// Longest.
    pub(crate) max_ns: Ns,
    /// Sum.
    pub(crate) total_ns: Ns,
}

/// Ids that the args refer to.
#[derive(Default, Serialize)]
struct Links {
    op: Option<String>,
    node: Option<String>,
    module: Option<String>,
    kernel: Option<String>,
}

impl EventDetail {
    /// Returns all details of an event; `size` limits the args.
    pub(crate) fn new(view: &RunView, event: &Event, among: Option<Among>, size: ArgSize) -> Self {
        let trace = &view.run.trace;
        let track = trace.tracks().get(event.track.index());
        let mut args = Args::new(size);
        let error = trace
            .args(event.id, &mut |key, value| args.take(key, value))
            .and_then(|()| {
                execution_trace::facts(trace, event.id, &mut |key, value| args.take(key, value))
            })
            .err();
        args.finish();
        let category = trace.name(event.category);
        let name = trace.name(event.name).to_owned();
        let is_kernel = args.values.get("grid").is_some() || category == "kernel";
        let links = Links {
            op: args.first_text(&["hlo_op", "tf_op", "External op"]),
            node: args.first_text(&["hlo_op"]),
            module: args.first_text(&["hlo_module", "module"]),
            kernel: is_kernel.then(|| name.clone()),
        };
        Self {
            id: event.id.0,
            demangled: demangled(&name),
            short_name: shorter(&name),
            name,
            kind: event.kind.label(),
            kind_id: event.kind as u8,
            category: (!category.is_empty()).then(|| category.to_owned()),
            track: event.track.0,
            track_key: track.map(|track| track.key.clone()).unwrap_or_default(),
            track_name: track.map(|track| track.name.clone()).unwrap_or_default(),
            start_ns: view.clock().show(event.start),
            duration_ns: Ns::from_dur(event.dur),
            self_ns: Ns::from_dur(event.self_time),
            depth: event.depth,
            row: event.row,
            instant: event.instant,
            unfinished: event.flags.contains(SliceFlags::UNFINISHED),
            derived: event.flags.contains(SliceFlags::DERIVED)
                || track.is_some_and(|track| track.derived),
            step: event.step,
            stack: args.stack(),
            source: args.source(),
            args: args.values,
            args_cut: args.cut,
            args_error: error.map(|error| error.to_string()),
            among,
            links,
            context: EventContext::new(trace, event),
            flow_in: trace.flows_in(event.id).len(),
            flow_out: trace.flows_out(event.id).len(),
        }
    }
}

/// Limit of args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgSize {
    /// Up to [`MAX_TEXT_BYTES`] per text and [`MAX_ARGS`] args.
    Usual,
    /// Everything.
    Full,
}

/// A JSON object that keeps the order of its keys.
#[derive(Debug, Default)]
struct Ordered(Vec<(String, OrderedValue)>);

/// A value of such an object.
#[derive(Debug)]
enum OrderedValue {
    Value(Value),
    /// Text that is JSON already.
    Raw(Box<RawValue>),
}

impl Ordered {
    fn get(&self, key: &str) -> Option<&OrderedValue> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == key).map(|(_, value)| value)
    }
}

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            match value {
                OrderedValue::Value(value) => map.serialize_entry(key, value)?,
                OrderedValue::Raw(value) => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

/// Args under construction, in the file's order.
struct Args {
    size: ArgSize,
    values: Ordered,
    /// Number of occurrences of each key.
    known: HashMap<String, usize>,
    cut: Ordered,
    seen: usize,
}

impl Args {
    fn new(size: ArgSize) -> Self {
        Self {
            size,
            values: Ordered::default(),
            known: HashMap::new(),
            cut: Ordered::default(),
            seen: 0,
        }
    }

    fn take(&mut self, key: &str, value: ArgValue<'_>) {
        self.seen += 1;
        if self.size == ArgSize::Usual && self.seen > MAX_ARGS {
            return;
        }
        let mut name = key.to_owned();
        // A generated name may equal an existing key.
        while let Some(copies) = self.known.get_mut(&name) {
            *copies += 1;
            name = format!("{key} ({copies})");
        }
        self.known.insert(name.clone(), 1);
        let value = match value {
            ArgValue::Int(value) => whole(i128::from(value)),
            ArgValue::Uint(value) => whole(i128::from(value)),
            ArgValue::Double(value) => real(value),
            ArgValue::Bool(value) => value.into(),
            ArgValue::Json(text) if !self.too_long(text) => {
                if let Ok(raw) = serde_json::from_str(text) {
                    self.values.0.push((name, OrderedValue::Raw(raw)));
                    return;
                }
                // Text that is not valid JSON (for example a bare NaN) is kept as text.
                text.into()
            }
            ArgValue::Str(text) | ArgValue::Json(text) => self.shortened(&name, text),
            ArgValue::Bytes(bytes) => {
                let shown = &bytes[..bytes.len().min(MAX_HEX_BYTES)];
                let hex = hex(shown);
                serde_json::json!({"$bytes": bytes.len(), "hex": hex})
            }
        };
        self.values.0.push((name, OrderedValue::Value(value)));
    }

    /// Adds the number of args if some are omitted.
    fn finish(&mut self) {
        if self.seen > self.values.0.len() {
            let all = OrderedValue::Value(self.seen.into());
            self.cut.0.push(("…".to_owned(), all));
        }
    }

    fn too_long(&self, text: &str) -> bool {
        self.size == ArgSize::Usual && text.len() > MAX_TEXT_BYTES
    }

    fn shortened(&mut self, name: &str, text: &str) -> Value {
        if !self.too_long(text) {
            return text.into();
        }
        let bytes = OrderedValue::Value(text.len().into());
        self.cut.0.push((name.to_owned(), bytes));
        text[..text.floor_char_boundary(MAX_TEXT_BYTES)].into()
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.values.get(key)? {
            OrderedValue::Value(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            OrderedValue::Value(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        }
    }

    fn first_text(&self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| self.text(key))
    }

    /// Returns the lines of a recorded call stack, innermost first as in the file.
    fn stack(&self) -> Vec<String> {
        for key in ["Call stack", "stack", "source_stack", "Python stack"] {
            let lines: Vec<String> = match self.values.get(key) {
                Some(OrderedValue::Value(Value::String(text))) => {
                    text.split(['\n', ';']).map(str::to_owned).collect()
                }
                Some(OrderedValue::Raw(list)) => {
                    serde_json::from_str(list.get()).unwrap_or_default()
                }
                _ => continue,
            };
            let lines = lines.iter().map(|line| line.trim());
            return lines
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect();
        }
        Vec::new()
    }

    fn source(&self) -> Option<Source> {
        let text = self.first_text(&["source", "source_file", "file"])?;
        let line = self
            .first_text(&["source_line", "line"])
            .and_then(|line| line.parse().ok());
        Some(Source::read(&text, line))
    }
}

impl Source {
    /// Parses `file:line`; a colon may be part of the file's name.
    fn read(text: &str, line: Option<u64>) -> Self {
        let parts = text
            .rsplit_once(':')
            .and_then(|(file, line)| Some((file, line.parse().ok()?)));
        match (line, parts) {
            (None, Some((file, line))) => Self {
                file: file.to_owned(),
                line: Some(line),
            },
            (line, _) => Self {
                file: text.to_owned(),
                line,
            },
        }
    }
}

/// Converts an integer: a JSON number below 2^53, else its digits as a string.
pub(crate) fn whole(value: i128) -> Value {
    match i64::try_from(value) {
        Ok(value) if u128::from(value.unsigned_abs()) < FIRST_INEXACT => value.into(),
        _ => value.to_string().into(),
    }
}

/// Converts a float; JSON has no NaN and no infinity, so these become strings.
pub(crate) fn real(value: f64) -> Value {
    if value.is_finite() {
        value.into()
    } else {
        value.to_string().into()
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(size: ArgSize, given: &[(&str, ArgValue<'_>)]) -> Args {
        let mut args = Args::new(size);
        for &(key, value) in given {
            args.take(key, value);
        }
        args.finish();
        args
    }

    #[test]
    fn values_keep_their_meaning() {
        let args = collect(
            ArgSize::Usual,
            &[
                ("big", ArgValue::Int(i64::MIN)),
                ("limit", ArgValue::Int((1 << 53) - 1)),
                ("huge", ArgValue::Uint(u64::MAX)),
                ("nan", ArgValue::Double(f64::NAN)),
                ("half", ArgValue::Double(0.5)),
                ("dims", ArgValue::Json("[[2,3],null]")),
                ("broken", ArgValue::Json("[NaN")),
                ("__proto__", ArgValue::Str("<img src=x onerror=alert(1)>")),
                ("blob", ArgValue::Bytes(&[0, 255])),
                ("half", ArgValue::Bool(true)),
            ],
        );
        let expected = r#"{"big":"-9223372036854775808","limit":9007199254740991,"huge":"18446744073709551615","nan":"NaN","half":0.5,"dims":[[2,3],null],"broken":"[NaN","__proto__":"<img src=x onerror=alert(1)>","blob":{"$bytes":2,"hex":"00ff"},"half (2)":true}"#;
        assert_eq!(serde_json::to_string(&args.values).unwrap(), expected);
    }

    #[test]
    fn long_texts_are_cut_at_a_character_and_marked() {
        let text = "é".repeat(MAX_TEXT_BYTES);
        let args = collect(ArgSize::Usual, &[("a", ArgValue::Str(&text))]);
        assert_eq!(args.text("a").map(|text| text.len()), Some(MAX_TEXT_BYTES));
        let cut = format!("{{\"a\":{}}}", text.len());
        assert_eq!(serde_json::to_string(&args.cut).unwrap(), cut);
        let args = collect(ArgSize::Full, &[("a", ArgValue::Str(&text))]);
        assert_eq!(args.text("a"), Some(text));
        assert!(args.cut.0.is_empty());
    }

    #[test]
    fn too_many_arguments_are_counted() {
        let given = vec![("a", ArgValue::Int(1)); MAX_ARGS + 5];
        let args = collect(ArgSize::Usual, &given);
        assert_eq!(args.values.0.len(), MAX_ARGS);
        let cut = format!("{{\"…\":{}}}", MAX_ARGS + 5);
        assert_eq!(serde_json::to_string(&args.cut).unwrap(), cut);
    }

    #[test]
    fn stacks_are_taken_apart() {
        for (value, expected) in [
            (
                ArgValue::Str("a.py(1): f;\nb.py(2): g"),
                &["a.py(1): f", "b.py(2): g"][..],
            ),
            (ArgValue::Json("[\"x\",\"y\"]"), &["x", "y"]),
            (ArgValue::Int(1), &[]),
        ] {
            let args = collect(ArgSize::Usual, &[("Call stack", value)]);
            assert_eq!(args.stack(), expected);
        }
    }

    #[test]
    fn places_in_the_program_are_recognised() {
        for (text, line, expected) in [
            ("model.py:88", None, ("model.py", Some(88))),
            ("C:\\a.py:3", None, ("C:\\a.py", Some(3))),
            ("model.py", Some(4), ("model.py", Some(4))),
            ("C:\\a.py", None, ("C:\\a.py", None)),
        ] {
            let (file, expected) = expected;
            let read = Source::read(text, line);
            assert_eq!((read.file.as_str(), read.line), (file, expected), "{text}");
        }
    }
}
