//! What Chrome JSON has no word for, as our own writer adds it: the field `stepscope` of an event,
//! and the members `stepscope` and `stepscopeEnd` of the outermost object.

use stepscope_model::{ArgValue, Diagnostic, Epoch, EventSink, FlowDirection};

use super::args::{undisguised, visit_members};
use super::event::{key_text, members};
use super::scan::{JsonType, Value};
use super::torch::{TopLevel, elements, find, whole};

/// A flow end that belongs to the very event that holds it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OwnFlow {
    pub(super) category: String,
    pub(super) id: u64,
    pub(super) direction: FlowDirection,
}

/// The fields of the `stepscope` object of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Own {
    /// `key`: the track's key, where `pid` and `tid` cannot say it.
    pub(super) key: Option<String>,
    /// `step`: the number of a step marker.
    pub(super) step: Option<i64>,
    /// `flags`: bits of `SliceFlags`.
    pub(super) flags: u8,
    /// `flows`: ends of flows of this slice.
    pub(super) flows: Vec<OwnFlow>,
    /// `attached`: this `s`, `t` or `f` entry repeats a flow end that a slice holds.
    pub(super) attached: bool,
}

/// Reads the object that opens at `at`; what it does not know or understand is passed over.
pub(super) fn read(bytes: &[u8], at: usize) -> Own {
    let mut own = Own::default();
    let _ = members(bytes, at, |key, value| match key {
        b"key" => own.key = key_text(bytes, &value).map(|text| text.text.into_owned()),
        b"step" => own.step = number(value.span.of(bytes)),
        b"flags" => own.flags = number(value.span.of(bytes)).unwrap_or_default(),
        b"attached" => own.attached = value.span.of(bytes) == b"true",
        b"flows" if value.sort == JsonType::Array => {
            own.flows = flows(bytes, value.span.start, value.span.end);
        }
        _ => {}
    });
    own
}

fn number<T: std::str::FromStr>(raw: &[u8]) -> Option<T> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// A list of objects `{"cat": "...", "id": 7, "dir": "out"}`.
fn flows(bytes: &[u8], start: usize, end: usize) -> Vec<OwnFlow> {
    let mut found = Vec::new();
    let mut at = start + 1;
    while let Some(skip) = bytes
        .get(at..end)
        .and_then(|rest| memchr::memchr(b'{', rest))
    {
        let mut flow = OwnFlow {
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
            b"id" => flow.id = number(value.span.of(bytes)).unwrap_or_default(),
            b"dir" => {
                flow.direction = match value.span.of(bytes) {
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

/// Whether our own writer made this file.
pub(super) fn is_ours(bytes: &[u8], top: &TopLevel) -> bool {
    object(bytes, top, b"stepscope").is_some()
}

fn object(bytes: &[u8], top: &TopLevel, name: &[u8]) -> Option<Value> {
    find(bytes, top, name).filter(|value| value.sort == JsonType::Object)
}

/// The epoch that our own writer put at the head of a file.
pub(super) fn epoch(bytes: &[u8], top: &TopLevel) -> Option<Epoch> {
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

/// Pours facts, compiled programs and diagnostics that our own writer put behind the events.
pub(super) fn emit_end<S: EventSink>(bytes: &[u8], top: &TopLevel, sink: &mut S) {
    let Some(end) = object(bytes, top, b"stepscopeEnd") else {
        return;
    };
    let mut types = Vec::new();
    let _ = members(bytes, end.span.start, |key, value| {
        if key == b"types" && value.sort == JsonType::Object {
            types = disguises(bytes, value.span.start);
        }
    });
    let _ = members(bytes, end.span.start, |key, list| match key {
        b"facts" if list.sort == JsonType::Object => {
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
    if object.sort == JsonType::Object {
        let _ = visit_members(bytes, object.span.start, &mut visit);
    }
}

/// Names of values that were written as something else, and as what they must be read.
pub(super) fn disguises(bytes: &[u8], at: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let _ = visit_members(bytes, at, &mut |key, value| {
        if let ArgValue::Str(word) = value {
            found.push((key.to_owned(), word.to_owned()));
        }
    });
    found
}

/// The disguises of the arguments of an event whose own field opens at `at`.
pub(super) fn disguises_of_event(bytes: &[u8], at: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let _ = members(bytes, at, |key, value| {
        if key == b"types" && value.sort == JsonType::Object {
            found = disguises(bytes, value.span.start);
        }
    });
    found
}
