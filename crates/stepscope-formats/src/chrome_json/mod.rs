//! Chrome JSON: the format of Chrome, PyTorch (kineto), JAX's `trace.json.gz`, Neuron and others.
//!
//! A file is an object with a list `traceEvents`, or the bare list; every entry is an object with a
//! one-letter phase `ph`. `docs/formats/chrome-json.md` describes how each field is read. Tested
//! with kineto from 2020 to 2026 (NVIDIA, AMD, MTIA, CPU), XLA's export and `DevTools`.
//!
//! Reading order: `read` with `read::outline` and `read::lists`, then `entry` (the fields of one
//! entry), `read::events` (entries to the sink), `read::pairing` (begins and ends),
//! `read::metadata` (tracks), `dialect` (extensions of single programs) and `args`. `write` is the
//! writer. JSON itself is in `crate::json`.

mod args;
mod dialect;
mod entry;
mod read;
mod write;

use std::sync::Arc;

pub use crate::json::repair::{Repaired, repair};
pub use write::ChromeSink;

use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};

use crate::FormatError;

/// Reads a whole file into `sink`; `bytes` is the uncompressed text.
///
/// # Errors
///
/// Returns an error if the text is empty, is UTF-16 or has no `traceEvents`, or if the read was
/// cancelled. Damage later in the file is counted as diagnostics.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    read::read(bytes, context, sink)
}

/// Creates the argument source of a file that has already been read.
///
/// # Errors
///
/// Currently none; all formats share this signature.
pub fn arg_source(
    bytes: &SharedBytes,
    _context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    Ok(args::Source::new(bytes, read::find_ends))
}
