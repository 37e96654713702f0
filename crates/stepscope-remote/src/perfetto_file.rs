//! Writes the Perfetto form of a captured trace.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_formats::perfetto::PerfettoSink;
use stepscope_formats::{FormatError, xspace};
use stepscope_model::{ReadContext, SharedBytes};

use crate::atomic_file;

/// Why the Perfetto form of a trace cannot be written. The trace itself remains.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfettoFileError {
    /// The trace cannot be opened.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The trace.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not an XSpace trace.
    #[error("cannot read {path} as an XSpace trace: {error}")]
    NoTrace {
        /// The file.
        path: String,
        /// The reader's error.
        error: FormatError,
    },
    /// The Perfetto file cannot be written, or it exists.
    #[error("cannot write {path}: {error}")]
    Unwritable {
        /// The Perfetto file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

/// Returns the path of the Perfetto form of `HOST.xplane.pb`: `HOST.pftrace` in the same folder.
pub fn perfetto_path(xplane: &Path) -> PathBuf {
    let name = xplane.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".xplane.pb").unwrap_or(&name);
    xplane.with_file_name(format!("{stem}.pftrace"))
}

/// Writes the XSpace `xplane` as a Perfetto trace to `out` atomically, without replacing a file.
/// Returns its length in bytes.
///
/// Events are streamed from the reader to the file: memory use is the length of the input.
pub fn write_perfetto(xplane: &Path, out: &Path) -> Result<u64, PerfettoFileError> {
    let shown = |path: &Path| path.display().to_string();
    let mut content = Vec::new();
    File::open(xplane)
        .and_then(|mut file| file.read_to_end(&mut content))
        .map_err(|error| PerfettoFileError::Unreadable {
            path: shown(xplane),
            error,
        })?;
    let content: SharedBytes = Arc::new(content);
    // More threads would hold parts of the file in memory until they are merged.
    let mut bounds = ReadContext::default();
    bounds.threads = 1;
    let mut no_trace = None;
    let written = atomic_file::write(out, |file| {
        let mut sink = PerfettoSink::new(BufWriter::with_capacity(1 << 20, file));
        if let Err(error) = xspace::read(&content, &bounds, &mut sink) {
            no_trace = Some(error);
            return Err(io::ErrorKind::InvalidData.into());
        }
        sink.finish()?.flush()
    });
    if let Some(error) = no_trace {
        let path = shown(xplane);
        return Err(PerfettoFileError::NoTrace { path, error });
    }
    written.map_err(|error| PerfettoFileError::Unwritable {
        path: shown(out),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfetto_path_replaces_the_extension() {
        assert_eq!(
            perfetto_path(Path::new("a/h_9012.xplane.pb")),
            Path::new("a/h_9012.pftrace")
        );
        assert_eq!(perfetto_path(Path::new("x.pb")), Path::new("x.pb.pftrace"));
    }
}
