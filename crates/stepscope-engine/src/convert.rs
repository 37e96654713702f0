//! Reads a trace and writes it in another format.
//!
//! The output appears under its name only when it is whole: it is written beside it under a
//! temporary name, flushed to the disk, and renamed. The input is never overwritten.

use std::path::Path;

/// Formats that `convert` can write, by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// `.xplane.pb`.
    XSpace,
    /// `.json`.
    ChromeJson,
    /// `.json.gz`.
    ChromeJsonGz,
    /// `.pftrace`, `.perfetto-trace`.
    Perfetto,
}

impl OutputFormat {
    /// By the name of the file to be written.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let ends = |end: &str| name.ends_with(end);
        if ends(".xplane.pb") {
            Some(Self::XSpace)
        } else if ends(".json.gz") {
            Some(Self::ChromeJsonGz)
        } else if ends(".json") {
            Some(Self::ChromeJson)
        } else if ends(".pftrace") || ends(".perfetto-trace") {
            Some(Self::Perfetto)
        } else {
            None
        }
    }
}
