//! Writer of the properties of a track.

use std::sync::Arc;

use crate::chrome_json::dialect::stepscope::KIND_WORDS;
use crate::json::write;

/// A track with its parent's key and its category's text.
pub(crate) type TrackInfo = stepscope_model::TrackInfo<Arc<str>, Arc<str>>;

/// Appends `,"name":…` and so on: the arguments of a `stepscope_track` entry after its key.
pub(crate) fn print(track: &TrackInfo, out: &mut Vec<u8>) {
    let kind = track.kind.and_then(|kind| {
        let found = KIND_WORDS.iter().find(|(_, known)| *known == kind);
        found.map(|(word, _)| *word)
    });
    let texts = [
        ("name", track.name.as_deref()),
        ("kind", kind),
        ("parent", track.parent.as_deref()),
        ("unit", track.unit.as_deref()),
        ("category", track.category.as_deref()),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            open(out, field);
            write::string(out, text);
        }
    }
    let numbers = [
        ("pid", track.pid),
        ("tid", track.tid),
        ("device", track.device.map(i64::from)),
        ("stream", track.stream),
        ("sort_index", track.sort_index),
    ];
    for (field, number) in numbers {
        if let Some(number) = number {
            open(out, field);
            write::whole(out, number.into());
        }
    }
    if let Some(derived) = track.derived {
        open(out, "derived");
        out.extend_from_slice(if derived { b"true" } else { b"false" });
    }
}

fn open(out: &mut Vec<u8>, field: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\":");
}
