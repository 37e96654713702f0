//! All that is known of a track, on its way into a file.

use std::sync::Arc;

use stepscope_model::{TrackKind, TrackPatch};

use super::describe::KIND_WORDS;
use super::print;

/// A [`TrackPatch`] that owns its texts; the parent by its key.
#[derive(Clone, Debug, Default)]
pub(super) struct Described {
    pub(super) name: Option<Arc<str>>,
    pub(super) kind: Option<TrackKind>,
    parent: Option<Arc<str>>,
    pid: Option<i64>,
    tid: Option<i64>,
    device: Option<u32>,
    stream: Option<i64>,
    pub(super) sort_index: Option<i64>,
    unit: Option<Arc<str>>,
    derived: Option<bool>,
    category: Option<Arc<str>>,
}

/// A patch with its references resolved.
pub(super) fn owned(
    patch: &TrackPatch<'_>,
    parent: Option<Arc<str>>,
    category: Option<Arc<str>>,
) -> Described {
    Described {
        name: patch.name.map(Arc::from),
        kind: patch.kind,
        parent,
        pid: patch.pid,
        tid: patch.tid,
        device: patch.device,
        stream: patch.stream,
        sort_index: patch.sort_index,
        unit: patch.unit.map(Arc::from),
        derived: patch.derived,
        category,
    }
}

impl Described {
    /// Takes over what a later patch says.
    pub(super) fn update(&mut self, later: Self) {
        self.name = later.name.or(self.name.take());
        self.kind = later.kind.or(self.kind);
        self.parent = later.parent.or(self.parent.take());
        self.pid = later.pid.or(self.pid);
        self.tid = later.tid.or(self.tid);
        self.device = later.device.or(self.device);
        self.stream = later.stream.or(self.stream);
        self.sort_index = later.sort_index.or(self.sort_index);
        self.unit = later.unit.or(self.unit.take());
        self.derived = later.derived.or(self.derived);
        self.category = later.category.or(self.category.take());
    }

    /// Appends `,"name":…` and so on: the arguments of a `stepscope_track` entry behind its key.
    pub(super) fn print(&self, out: &mut Vec<u8>) {
        let kind = self.kind.and_then(|kind| {
            let found = KIND_WORDS.iter().find(|(_, known)| *known == kind);
            found.map(|(word, _)| *word)
        });
        let texts = [
            ("name", self.name.as_deref()),
            ("kind", kind),
            ("parent", self.parent.as_deref()),
            ("unit", self.unit.as_deref()),
            ("category", self.category.as_deref()),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                open(out, field);
                print::string(out, text);
            }
        }
        let numbers = [
            ("pid", self.pid),
            ("tid", self.tid),
            ("device", self.device.map(i64::from)),
            ("stream", self.stream),
            ("sort_index", self.sort_index),
        ];
        for (field, number) in numbers {
            if let Some(number) = number {
                open(out, field);
                print::whole(out, number.into());
            }
        }
        if let Some(derived) = self.derived {
            open(out, "derived");
            out.extend_from_slice(if derived { b"true" } else { b"false" });
        }
    }
}

fn open(out: &mut Vec<u8>, field: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\":");
}
