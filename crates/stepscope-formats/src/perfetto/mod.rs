//! Perfetto protobuf traces: reader and writer.
//!
//! A trace is a row of packets, written by several sequences (one per writing thread) into one
//! file. A packet holds one thing: a track event, the description of a track, a clock reading, or
//! one of a hundred other kinds that are counted and left out. Texts are interned per sequence
//! and referred to by number; a sequence may forget its table and begin a new one.
//!
//! ```text
//! packets ── reader ──► events in file order ── pairing ──► slices, instants, samples
//!                │           (times on one clock)                    │
//!             interning, clocks, tracks                          EventSink
//! ```
//!
//! Everything that the schema calls a track becomes a track; parents become parents. See
//! `docs/formats/perfetto.md` for the table of fields, and for what the writer adds of its own.
//!
//! Reading order: `schema` (field numbers), `read` (packets) with `read::event` (one track event),
//! `read::sequence` (interned state), `read::clocks`, `read::tracks`, `read::pairing`, `read::args`; then
//! `write`.

mod extension;
mod read;
mod schema;
mod write;

use std::sync::Arc;

use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};
pub use write::PerfettoSink;

use crate::FormatError;

/// Reads a whole file. What is readable is emitted, the rest counted; an error means that not one
/// packet could be read, or that the reading was cancelled.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file = bytes.as_ref().as_ref();
    if file.is_empty() {
        return Err(FormatError::Empty);
    }
    let late = Arc::new(read::args::LateArgs::new(Arc::clone(bytes), context.limits));
    let source = sink.source(Arc::clone(&late) as Arc<dyn ArgSource>);
    let tables = read::read(file, context, source, sink)?;
    late.fill(tables);
    Ok(())
}

/// The argument source of a file that has been read before. Costs nothing until the first
/// argument is asked for: then the file is walked once, to rebuild the tables of interned texts.
pub fn arg_source(
    bytes: &SharedBytes,
    context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    if bytes.as_ref().as_ref().is_empty() {
        return Err(FormatError::Empty);
    }
    Ok(Arc::new(read::args::LateArgs::new(
        Arc::clone(bytes),
        context.limits,
    )))
}
