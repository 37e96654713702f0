//! The immutable columnar trace: built once, read forever.
//!
//! A reader emits a file's events to a [`FileSink`]; a [`TraceBuilder`] puts the files of a run together,
//! sorts, nests and links them, and seals a [`Trace`]. Reading order of the modules: `sink` and
//! its parts (`names`, `buffer`), `builder` and its phases (`order`, `table`, `nest`, `flows`),
//! then the trace itself: `trace`, `query`, `lod`.
//!
//! **Invariant:** the store never reads files and never knows a format's name.
//! **Invariant:** a finished trace has sorted tracks and complete `depth` and `parent`
//! ([`Trace::debug_validate`]).
//! **Invariant:** the same content gives the same trace, whatever the order of emitting, the number
//! of forks and threads.
//! **Invariant:** no lock in a finished trace, except that the first use of a column of a large cache
//! image waits until the column is verified.

#[cfg(feature = "drawing")]
pub mod ascii_trace;
mod buffer;
mod builder;
mod cache;
mod column;
mod core_span;
mod facts;
mod flows;
mod galloping_search;
mod image;
mod kinds;
mod levels;
mod lod;
mod mapped;
mod max_end_index;
mod merge_bins;
mod names;
mod nest;
mod order;
mod pages;
mod profiles;
mod query;
mod replay;
mod sections;
mod sink;
mod split_points;
mod suspicious;
mod table;
mod tally;
mod trace;
mod validate;

pub use builder::TraceBuilder;
pub use cache::CacheError;
pub use facts::{DiagnosticCount, FactValue, FileFacts, FileSpec};
pub use galloping_search::galloping_search;
pub use lod::{CounterBins, Items};
pub use query::Overlapping;
pub use sections::Rebuild;
pub use sink::FileSink;
pub use trace::{
    Categories, Event, EventId, FlowEdge, Instants, Samples, Slices, StepMark, Trace, Track,
};
