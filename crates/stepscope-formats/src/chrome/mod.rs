//! Chrome JSON: what Chrome, PyTorch (kineto), JAX's `trace.json.gz`, Neuron and many others write.
//!
//! An object with a list `traceEvents`, or the bare list; every entry an object with a one-letter
//! phase `ph`. How each field becomes ours stands in `docs/formats/chrome-json.md`. Seen: kineto
//! from 2020 to 2026 (NVIDIA, AMD, MTIA, CPU), XLA's export, `DevTools`.
//!
//! Reading order: [`read`], then `reader` (outline and parts), `emit` (entry to sink), `pairs`
//! (begins and ends), `describe` and `torch` (names and facts), `args`; below them `event`, `scan`,
//! `number`, `text`. The way back is `writer`; `mend` repairs files for other readers.

mod args;
mod describe;
mod described;
mod emit;
mod event;
mod extension;
mod extension_out;
mod flows;
mod mask;
mod names;
mod number;
mod pairs;
mod print;
mod read_issues;
mod reader;
mod repair;
pub(crate) mod scan;
mod some_args;
pub(crate) mod text;
mod texts;
mod torch;
mod tracks;
mod writer;

use std::sync::Arc;

pub use repair::{Mended, mend};
pub use writer::ChromeSink;

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
    reader::read(bytes, context, sink)
}

/// The argument source of a file that has been read before.
///
/// # Errors
///
/// None today; the signature is the one of every format.
pub fn arg_source(
    bytes: &SharedBytes,
    context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    Ok(args::unread(bytes, context))
}
