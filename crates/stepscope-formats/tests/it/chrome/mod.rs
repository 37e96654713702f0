//! Chrome JSON: real files against their reference figures, broken files, properties.

mod truth;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use stepscope_formats::FormatError;
use stepscope_formats::probe::Probe;
use stepscope_model::{ReadContext, SharedBytes};

use crate::traces;

/// A file's bytes, inflated if they are gzip; what inflates before an error is kept.
fn open(path: &Path) -> Vec<u8> {
    let bytes = traces::bytes(path);
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut inflated = Vec::new();
    let _ = flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut inflated);
    inflated
}

fn shared(bytes: impl Into<Vec<u8>>) -> SharedBytes {
    Arc::new(bytes.into())
}

fn read_with(bytes: &SharedBytes, threads: usize) -> Result<Probe, FormatError> {
    let mut context = ReadContext::default();
    context.threads = threads;
    let mut probe = Probe::new();
    stepscope_formats::chrome::read(bytes, &context, &mut probe).map(|()| probe)
}
