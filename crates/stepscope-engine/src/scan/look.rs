//! Information about one path: its name, its first bytes, its stamp.

use std::ffi::OsStr;
use std::path::Path;

use stepscope_formats::detect;
use stepscope_model::vocabulary::producer::Producer;

use crate::files::head::head_of;
use crate::files::{FileLocation, Stamp};
use crate::found_run::FoundFile;
use crate::names::{self, NameClass};

/// Number of first bytes that decide whether a `.json` is a trace.
pub(super) const SNIFF_BYTES: usize = 64 << 10;

/// Returns whether the first bytes of a `.json` contain the list of events. Other JSON files share
/// a key or two with traces, and must not fill the list of runs. (If the user names such a file, it
/// is opened regardless.)
pub(super) fn has_events(path: &Path, place: Option<&FileLocation>) -> bool {
    let contains = |head: &[u8], word: &[u8]| memchr::memmem::find(head, word).is_some();
    [SNIFF_BYTES, detect::PREFIX_BYTES].into_iter().any(|most| {
        head_of(path, place, most).is_ok_and(|head| {
            let is_list = head.trim_ascii_start().first() == Some(&b'[');
            contains(
                &head,
                if is_list {
                    b"\"ph\""
                } else {
                    b"\"traceEvents\""
                },
            )
        })
    })
}

/// Returns whether a folder is a session in XProf's layout.
pub(super) fn is_session(folder: &Path) -> bool {
    let named = |path: Option<&Path>, name: &str| {
        path.and_then(Path::file_name)
            .is_some_and(|found| found == name)
    };
    named(folder.parent(), "profile") && named(folder.parent().and_then(Path::parent), "plugins")
}

/// Returns whether the file is `perfetto_trace.json.gz`, which JAX writes next to
/// `HOST.trace.json.gz`.
pub(super) fn is_perfetto_twin(file: &FoundFile) -> bool {
    names::stem(&file.name) == "perfetto_trace"
}

pub(super) fn same_file(a: Stamp, b: Stamp) -> bool {
    a.inode != 0 && (a.inode, a.device) == (b.inode, b.device)
}

pub(super) fn lossy_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Returns when a file was recorded: the time in its name, or the session's time, or the
/// modification time.
///
/// A session's name is local time in an unknown time zone. If the modification time is within a day
/// of it, both are taken as the same event, and the modification time is exact.
pub(super) fn recorded(file: &FoundFile, session: Option<&OsStr>) -> Option<i64> {
    const DAY_NS: i64 = 26 * 3_600 * 1_000_000_000;
    if let Some(time) = names::time_in_name(names::stem(&file.name)) {
        return Some(time);
    }
    let changed = file.stamp.modified_ns;
    let named = session.and_then(|name| names::session_time(&name.to_string_lossy()));
    match named {
        Some(named) if changed.abs_diff(named) > DAY_NS.unsigned_abs() => Some(named),
        _ => (changed != 0).then_some(changed),
    }
}

/// Returns the badges that the name alone shows; further ones need the content.
pub(super) fn kinds_of(file: &FoundFile) -> Vec<String> {
    let name = file.name.to_ascii_lowercase();
    let kind = if name.contains(".pt.trace.json") {
        Producer::PyTorch
    } else if name.starts_with("neuron_") {
        Producer::Neuron
    } else if file.class == NameClass::Perfetto {
        Producer::Perfetto
    } else {
        return Vec::new();
    };
    vec![kind.name().to_owned()]
}
