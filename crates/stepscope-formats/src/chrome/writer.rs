//! Writing Chrome JSON.

use stepscope_model::{Diagnostic, Epoch, EventSink};

use super::args::visit_members;
use super::event::members;
use super::reader::object_at;
use super::torch::{TopLevel, whole};

/// Whether our own writer made this file.
pub(super) fn is_ours(bytes: &[u8], top: &TopLevel) -> bool {
    object_at(top, bytes, b"stepscope").is_some()
}

/// The epoch that our own writer put at the head of a file.
pub(super) fn epoch_of(bytes: &[u8], top: &TopLevel) -> Option<Epoch> {
    let head = object_at(top, bytes, b"stepscope")?;
    let (mut origin_ns, mut unix_ns) = (None, None);
    let _ = members(bytes, head.start, |key, value| match key {
        b"originNanoseconds" => origin_ns = whole(bytes, &value),
        b"unixNanoseconds" => unix_ns = whole(bytes, &value),
        _ => {}
    });
    Some(Epoch {
        origin_ns: origin_ns?,
        unix_ns,
    })
}

/// Facts, compiled programs and diagnostics that our own writer put behind the events.
pub(super) fn pour_end<S: EventSink>(bytes: &[u8], top: &TopLevel, sink: &mut S) {
    let Some(end) = object_at(top, bytes, b"stepscopeEnd") else {
        return;
    };
    let _ = members(bytes, end.start, |key, list| match key {
        b"facts" => {
            let _ = visit_members(bytes, list.span.start, &mut |key, value| {
                sink.fact(key, value);
            });
        }
        b"modules" => {
            let _ = members(bytes, list.span.start, |name, id| {
                let name = super::text::unescape(name, true);
                sink.module(&name.text, whole(bytes, &id).map(i64::cast_unsigned));
            });
        }
        b"diagnostics" => {
            let _ = members(bytes, list.span.start, |code, entry| {
                let Some(what) = Diagnostic::ALL
                    .iter()
                    .find(|what| what.code().as_bytes() == code)
                else {
                    return;
                };
                let _ = members(bytes, entry.span.start, |detail, count| {
                    let detail = super::text::unescape(detail, true);
                    let count = whole(bytes, &count).unwrap_or(1);
                    sink.diagnose(*what, count.unsigned_abs(), &detail.text);
                });
            });
        }
        _ => {}
    });
}
