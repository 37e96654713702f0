//! `XSpace` (`*.xplane.pb`): the format of XProf, JAX, PyTorch/XLA and TensorFlow, and of our own
//! recordings.
//!
//! An `XSpace` consists of planes (a device, the host's threads), a plane of lines (a thread, a
//! stream), a line of events with stats. Tested with JAX 0.4 to 0.10 and PyTorch/XLA 2.9 on CPU,
//! JAX on AMD GPUs, TensorFlow on NVIDIA GPUs, JAX on TPU v6e, and Neuron's converted form.
//! `docs/formats/xspace.md` has the schema, the interpretation of each field, and the stats that we
//! add.
//!
//! Reading order: `wire` (field numbers), `well_known_stats` (stats with a meaning), then `read`:
//! `index` (positions of all parts), `line_header` and `lines` (the hot path, with `batch`),
//! `facts`, `args`; then `write`, `merge_planes` (planes of other recorders). `count_events` counts
//! without decoding, and [`raw`] gives access to the unprocessed file.

mod count_events;
mod memory_access;
mod merge_planes;
#[cfg(feature = "neuron")]
pub mod neuron_archive;
pub mod raw;
mod read;
mod record;
mod well_known_stats;
mod wire;
mod write;

use std::sync::Arc;

pub use count_events::{EventCounts, count_events, messages};
pub use memory_access::{MemoryAccess, MemorySpace, memory_accesses};
pub use merge_planes::{MergedPlane, MergedPlanes, write_planes};
pub use read::read;
pub use record::TrackRecord;

use stepscope_model::{ArgSource, ReadContext, SharedBytes};
pub use well_known_stats::{COUNTERS_LINE, EventKind, HOST_PLANE, pack_flow};

pub use write::XSpaceSink;
pub use write::writer::{
    EventMetadataId, LineWriter, PlaneWriter, StatId, TextId, WrittenStat, WrittenStatValue,
    XSpaceWriter,
};

use crate::FormatError;

/// Creates the argument source of a file that has already been read. Skips lines without decoding
/// them; memory is proportional to the metadata.
pub fn arg_source(
    bytes: &SharedBytes,
    context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    let max_kept = context.limits.max_tracks as usize;
    Ok(Arc::new(read::args::XSpaceArgs::open(
        Arc::clone(bytes),
        max_kept,
    )))
}
