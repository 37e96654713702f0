//! Extensions that our writer adds to Chrome JSON: the field `stepscope` of an event, and the
//! members `stepscope` and `stepscopeEnd` of the outermost object.

use stepscope_model::{ArgValue, Diagnostic, Epoch, EventSink, FlowDirection, TrackKind};

use crate::json::members::{elements, members};
use crate::json::scan::{JsonType, Value};
use crate::json::value::{TopLevel, find, key_text, scalar, visit_members, whole};

/// Name of the field that holds the extensions of an event; it is not shown as an argument.
pub(crate) const EXTENSION_FIELD: &[u8] = b"stepscope";

/// Name of the metadata entries in which our writer stores all properties of a track.
pub(crate) const TRACK_ENTRY: &str = "stepscope_track";

/// The words for kinds of tracks in `stepscope_track`.
pub(crate) const KIND_WORDS: [(&str, TrackKind); 6] = [
    ("group", TrackKind::Group),
    ("thread", TrackKind::Thread),
    ("device-queue", TrackKind::DeviceQueue),
    ("async", TrackKind::Async),
    ("counter", TrackKind::Counter),
    ("steps", TrackKind::Steps),
];

/// A flow end that belongs to the event that holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExtensionFlow {
    pub(crate) category: String,
    pub(crate) id: u64,
    pub(crate) direction: FlowDirection,
}

/// The fields of the `stepscope` object of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Extension {
    /// `key`: the track's key, where `pid` and `tid` cannot express it.
    pub(crate) key: Option<String>,
    /// `step`: the number of a step marker.
    pub(crate) step: Option<i64>,
    /// `flags`: bits of `SliceFlags`.
    pub(crate) flags: u8,
    /// `flows`: ends of flows of this slice.
    pub(crate) flows: Vec<ExtensionFlow>,
    /// `attached`: whether this `s`, `t` or `f` entry repeats a flow end that a slice holds.
    pub(crate) attached: bool,
}

/// Reads the object that opens at `at`; ignores unknown or invalid members.
pub(crate) fn read(bytes: &[u8], at: usize) -> Extension {
    let mut own = Extension::default();
    let _ = members(bytes, at, |key, value| match key {
        b"key" => own.key = key_text(bytes, &value).map(|text| text.text.into_owned()),
        b"step" => own.step = number(value.span.slice(bytes)),
        b"flags" => own.flags = number(value.span.slice(bytes)).unwrap_or_default(),
        b"attached" => own.attached = value.span.slice(bytes) == b"true",
        b"flows" if value.json_type == JsonType::Array => {
            own.flows = flows(bytes, value.span.start, value.span.end);
        }
        _ => {}
    });
    own
}

fn number<T: std::str::FromStr>(raw: &[u8]) -> Option<T> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// Reads a list of objects `{"cat": "...", "id": 7, "dir": "out"}`.
fn flows(bytes: &[u8], start: usize, end: usize) -> Vec<ExtensionFlow> {
    let mut found = Vec::new();
    let mut at = start + 1;
    while let Some(skip) = bytes
        .get(at..end)
        .and_then(|rest| memchr::memchr(b'{', rest))
    {
        let mut flow = ExtensionFlow {
            category: String::new(),
            id: 0,
            direction: FlowDirection::Out,
        };
        let next = members(bytes, at + skip, |key, value| match key {
            b"cat" => {
                if let Some(text) = key_text(bytes, &value) {
                    flow.category = text.text.into_owned();
                }
            }
            b"id" => flow.id = number(value.span.slice(bytes)).unwrap_or_default(),
            b"dir" => {
                flow.direction = match value.span.slice(bytes) {
                    b"in" => FlowDirection::In,
                    b"through" => FlowDirection::Through,
                    _ => FlowDirection::Out,
                }
            }
            _ => {}
        });
        let Ok(next) = next else { break };
        found.push(flow);
        at = next;
    }
    found
}

/// Returns whether our writer made this file.
pub(crate) fn is_ours(bytes: &[u8], top: &TopLevel) -> bool {
    object(bytes, top, b"stepscope").is_some()
}

fn object(bytes: &[u8], top: &TopLevel, name: &[u8]) -> Option<Value> {
    find(bytes, top, name).filter(|value| value.json_type == JsonType::Object)
}

/// Returns the epoch that our writer put at the start of a file.
pub(crate) fn epoch(bytes: &[u8], top: &TopLevel) -> Option<Epoch> {
    let head = object(bytes, top, b"stepscope")?;
    let (mut origin_ns, mut unix_ns) = (None, None);
    let _ = members(bytes, head.span.start, |key, value| match key {
        b"originNanoseconds" => origin_ns = whole(bytes, &value),
        b"unixNanoseconds" => unix_ns = whole(bytes, &value),
        _ => {}
    });
    Some(Epoch {
        origin_ns: origin_ns?,
        unix_ns,
    })
}

/// Emits the facts, compiled programs and diagnostics that our writer put after the events.
pub(crate) fn emit_end<S: EventSink>(bytes: &[u8], top: &TopLevel, sink: &mut S) {
    let Some(end) = object(bytes, top, b"stepscopeEnd") else {
        return;
    };
    let mut types = Vec::new();
    let _ = members(bytes, end.span.start, |key, value| {
        if key == b"types" && value.json_type == JsonType::Object {
            types = disguises(bytes, value.span.start);
        }
    });
    let _ = members(bytes, end.span.start, |key, list| match key {
        b"facts" if list.json_type == JsonType::Object => {
            let _ = visit_members(bytes, list.span.start, &mut |key, value| {
                undisguised(&types, key, value, &mut |key, value| sink.fact(key, value));
            });
        }
        b"modules" => elements(bytes, &list, |module| {
            let mut name = String::new();
            let mut id = None;
            each(bytes, module, |key, value| match (key, value) {
                ("name", ArgValue::Str(text)) => text.clone_into(&mut name),
                ("id", ArgValue::Int(number)) => id = Some(number.cast_unsigned()),
                ("id", ArgValue::Uint(number)) => id = Some(number),
                _ => {}
            });
            sink.module(&name, id);
        }),
        b"diagnostics" => elements(bytes, &list, |said| {
            let (mut code, mut detail, mut count) = (String::new(), String::new(), 1);
            each(bytes, said, |key, value| match (key, value) {
                ("code", ArgValue::Str(text)) => text.clone_into(&mut code),
                ("detail", ArgValue::Str(text)) => text.clone_into(&mut detail),
                ("count", ArgValue::Int(number)) => count = number.unsigned_abs(),
                _ => {}
            });
            if let Some(what) = Diagnostic::ALL.iter().find(|what| what.code() == code) {
                sink.diagnose(*what, count, &detail);
            }
        }),
        _ => {}
    });
}

fn each(bytes: &[u8], object: &Value, mut visit: impl FnMut(&str, ArgValue<'_>)) {
    if object.json_type == JsonType::Object {
        let _ = visit_members(bytes, object.span.start, &mut visit);
    }
}

/// Returns the names of values in replacement form, and their original types.
pub(crate) fn disguises(bytes: &[u8], at: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let _ = visit_members(bytes, at, &mut |key, value| {
        if let ArgValue::Str(word) = value {
            found.push((key.to_owned(), word.to_owned()));
        }
    });
    found
}

/// Returns the replacement forms of the arguments of an event whose `stepscope` field opens at
/// `at`.
pub(crate) fn disguises_of_event(bytes: &[u8], at: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let _ = members(bytes, at, |key, value| {
        if key == b"types" && value.json_type == JsonType::Object {
            found = disguises(bytes, value.span.start);
        }
    });
    found
}

/// Visits a value converted back from its replacement form to its original type.
pub(crate) fn undisguised(
    types: &[(String, String)],
    key: &str,
    value: ArgValue<'_>,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) {
    let word = types
        .iter()
        .find(|(name, _)| name == key)
        .map(|(_, word)| word.as_str());
    match (word, value) {
        (Some("float"), ArgValue::Str(text @ ("NaN" | "Infinity" | "-Infinity"))) => {
            visit(key, scalar(text));
        }
        (Some("json"), ArgValue::Str(text)) => visit(key, ArgValue::Json(text)),
        (Some("bytes"), ArgValue::Str(text)) => match from_hex(text) {
            Some(bytes) => visit(key, ArgValue::Bytes(&bytes)),
            None => visit(key, value),
        },
        _ => visit(key, value),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok())
        .collect()
}
