//! Information about one path: its name and its stamp.

use std::ffi::OsStr;
use std::path::Path;

use stepscope_model::vocabulary::producer::Producer;

use crate::files::Stamp;
use crate::found_run::FoundFile;
use crate::names::{self, NameClass};

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
