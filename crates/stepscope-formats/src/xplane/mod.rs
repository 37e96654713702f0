//! `XSpace` (`*.xplane.pb`): what XProf, JAX, PyTorch/XLA and TensorFlow record, and what we
//! record ourselves.
//!
//! An `XSpace` is planes (a device, the host's threads), a plane is lines (a thread, a stream),
//! a line is events with stats. Seen: JAX 0.4 to 0.10 and PyTorch/XLA 2.9 on CPU, JAX on AMD
//! GPUs, TensorFlow on NVIDIA GPUs, JAX on TPU v6e, Neuron's converted form. The page
//! `docs/formats/xspace.md` has the schema, how each field is read, and the stats that we add.
//!
//! Reading order: `wire` (field numbers), `marks` (stats with a meaning), `index` (where
//! everything lies), `heads` and `lines` (the hot path, with `batch`), `reader`, `facts`, `args`; then
//! `writer`, `merged` (other recorders' planes), `sink`, `rows`, `assemble`; `counts` counts without
//! reading, and [`raw`] is the file as it stands.

mod args;
mod assemble;
mod batch;
mod count_events;
mod facts;
mod index;
mod line_header;
mod lines;
mod merge_planes;
#[cfg(feature = "neuron")]
pub mod neuron;
mod problems;
pub mod raw;
mod reader;
mod record;
mod rows;
mod sink;
mod tracks;
mod well_known_stats;
mod wire;
mod writer;

use std::sync::Arc;

pub use count_events::{EventCounts, count_events, messages};
pub use merge_planes::{MergedPlane, MergedPlanes, write_planes};
pub use reader::read;
pub use record::TrackRecord;
pub use sink::XSpaceSink;
use stepscope_model::{ArgSource, ReadContext, SharedBytes};
pub use well_known_stats::{COUNTERS_LINE, EventKind, HOST_PLANE, pack_flow};

pub use writer::{EventId, LineWriter, PlaneWriter, Stat, StatId, StatValue, TextId, XSpaceWriter};

use crate::FormatError;

/// The argument source of a file that has been read before. Lines are stepped over, not decoded;
/// memory is proportional to the metadata.
pub fn arg_source(
    bytes: &SharedBytes,
    context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    let max_kept = context.limits.max_tracks as usize;
    Ok(Arc::new(args::XSpaceArgs::open(
        Arc::clone(bytes),
        max_kept,
    )))
}
