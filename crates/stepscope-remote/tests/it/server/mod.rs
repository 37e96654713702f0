//! The server half.

mod abuse;
mod analysis;
mod capture;
mod lifecycle;
pub(crate) mod program;
mod watching;

use std::sync::Arc;

use stepscope_formats::probe::Probe;
use stepscope_formats::xspace;
use stepscope_model::{ReadContext, SharedBytes};

/// Runs a test that talks to a server.
fn talk<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

/// What is in an `XSpace`, by the reader that everybody uses.
fn read(xspace: &[u8]) -> Probe {
    let mut probe = Probe::new();
    let bytes: SharedBytes = Arc::new(xspace.to_vec());
    xspace::read(&bytes, &ReadContext::default(), &mut probe).unwrap();
    probe
}

/// How many slices have this name.
fn count(probe: &Probe, name: &str) -> usize {
    probe
        .slices
        .iter()
        .filter(|slice| slice.name == name)
        .count()
}
