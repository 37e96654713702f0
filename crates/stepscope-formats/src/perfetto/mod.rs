//! Perfetto protobuf traces: reader and writer.
//!
//! A trace is a sequence of packets from several writing threads (*sequences* in the schema) in one
//! file. A packet holds one item: a track event, a track description, a clock reading, or one of a
//! hundred other types that are counted and skipped. Texts are interned per sequence and referenced
//! by number; a sequence can clear its table and start a new one.
//!
//! ```text
//! packets ── reader ──► events in file order ── pairing ──► slices, instants, samples
//!                │           (times on one clock)                    │
//!             interning, clocks, tracks                          EventSink
//! ```
//!
//! Everything that the schema calls a track becomes a track; parents become parents.
//! `docs/formats/perfetto.md` has the table of fields and the writer's extensions.
//!
//! Reading order: `schema` (field numbers), `read` (packets) with `read::event` (one track event),
//! `read::sequence` (interned state), `read::clocks`, `read::tracks`, `read::pairing`,
//! `read::args`; then `write`.

mod extension;
mod read;
mod schema;
mod write;

use std::sync::Arc;

use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};
pub use write::PerfettoSink;

use crate::FormatError;

/// Reads a whole file. Readable packets are emitted, unreadable ones counted. Returns an error if
/// no packet is readable, or if the read was cancelled.
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

/// Creates the argument source of a file that has already been read. The first request for an
/// argument reads the file once to rebuild the tables of interned texts; until then the source
/// costs nothing.
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
