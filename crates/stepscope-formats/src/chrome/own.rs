//! What Chrome JSON has no word for: the `stepscope` field of an event that our own writer adds.

use stepscope_model::FlowDirection;

use super::event::{key_text, members};
use super::scan::Sort;

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
        b"flows" if value.sort == Sort::Array => {
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
