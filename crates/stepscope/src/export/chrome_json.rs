//! `HOST.trace.json.gz`: the recording as Chrome JSON, for tools that read no other format.
//!
//! It is written by reading the finished `HOST.xplane.pb`, so both files have the same content.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use stepscope_formats::chrome_json::ChromeSink;
use stepscope_formats::xspace;
use stepscope_model::{Limits, ReadContext, SharedBytes};

use crate::export::file::{create_temporary, sync_folder};

/// Writes the JSON next to a finished `.xplane.pb`: to a temporary file first, then fsync, then
/// rename.
pub(crate) fn write_next_to(xplane_path: &Path) -> io::Result<PathBuf> {
    let name = xplane_path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let host = name.strip_suffix(".xplane.pb").unwrap_or(&name);
    let path = xplane_path.with_file_name(format!("{host}.trace.json.gz"));
    let (temporary, file) = create_temporary(&path)?;
    let result = write(xplane_path, file)
        .and_then(|()| fs::rename(&temporary, &path))
        .map(|()| sync_folder(&path));
    let _ = fs::remove_file(&temporary);
    result.map(|()| path)
}

#[allow(
    clippy::disallowed_methods,
    reason = "the recorder reads back its own file"
)]
fn write(xplane_path: &Path, file: File) -> io::Result<()> {
    let bytes: SharedBytes = Arc::new(fs::read(xplane_path)?);
    let file = BufWriter::new(file);
    let mut sink = ChromeSink::new(GzEncoder::new(file, Compression::fast()));
    let mut context = ReadContext::new(Limits::default());
    context.threads = 1;
    xspace::read(&bytes, &context, &mut sink).map_err(io::Error::other)?;
    let mut file = sink.finish()?.finish()?;
    file.flush()?;
    file.get_ref().sync_all()
}
