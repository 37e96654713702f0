//! Chrome JSON: what Chrome, PyTorch (kineto), JAX's `trace.json.gz`, Neuron and many others write.
//!
//! An object with a list `traceEvents`, or the bare list; every entry an object with a one-letter
//! phase `ph`. How each field becomes ours stands in `docs/formats/chrome-json.md`. Seen: kineto
//! from 2020 to 2026 (NVIDIA, AMD, MTIA, CPU), XLA's export, `DevTools`.
//!
//! Reading order: `read` with `read::outline` and `read::lists`, then `entry` (the fields of one entry),
//! `read::events` (entries to the sink), `read::pairing` (begins and ends), `read::metadata` (tracks),
//! `dialect` (words of single programs) and `args`. The way back is `write`. JSON itself is in
//! `crate::json`.

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
/// When there is nothing to read (no text, no `traceEvents`, UTF-16), or the reading was cancelled.
/// Damage further in is counted as diagnostics.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    read::read(bytes, context, sink)
}

/// The argument source of a file that has been read before.
///
/// # Errors
///
/// None today; the signature is the one of every format.
pub fn arg_source(
    bytes: &SharedBytes,
    _context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    Ok(args::Source::new(bytes, read::find_ends))
}
