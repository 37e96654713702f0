//! Chrome JSON: real files against their reference figures, broken files, properties.

mod broken;
mod executors;
mod phases;
mod random;
mod round_trip;
mod truth;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use stepscope_formats::FormatError;
use stepscope_formats::probe::Probe;
use stepscope_model::{ReadContext, SharedBytes};

use stepscope_test_data as traces;

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
    stepscope_formats::chrome_json::read(bytes, &context, &mut probe).map(|()| probe)
}

/// Reads a text that must be readable, with one thread.
fn read(text: impl Into<Vec<u8>>) -> Probe {
    read_with(&shared(text), 1).unwrap()
}

/// What a probe holds, in words, without what depends on the order of making (numbers of names).
fn content(probe: &Probe) -> String {
    let slices: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| (slice, probe.args(slice.args)))
        .collect();
    format!(
        "{:#?}\n{:#?}\n{slices:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}",
        probe.epoch,
        probe.tracks,
        probe.instants,
        probe.samples,
        probe.flows,
        probe.modules,
        probe.facts,
        probe.diagnostics,
    )
}
