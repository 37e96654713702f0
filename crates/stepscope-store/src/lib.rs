//! The immutable columnar trace: built once, then read-only.
//!
//! A reader emits a file's events to a [`FileSink`]; a [`TraceBuilder`] combines the files of a
//! run, sorts, nests and links them, and seals a [`Trace`]. Reading order of the folders, lowest
//! first: `columns` (the tables), `read` (the trace and its queries), `lod` (levels of detail),
//! `build` (from events to a trace), `image` (the cache).
//!
//! The feature `drawing` draws traces as text, for tests of this crate and of the crates above.
//!
//! **Invariant:** the store never reads files and never knows a format's name.
//! **Invariant:** a finished trace has sorted tracks and complete `depth` and `parent`
//! ([`Trace::debug_validate`]).
//! **Invariant:** the same content gives the same trace, independent of the order of emitting and
//! of the number of forks and threads.
//! **Invariant:** a finished trace has no lock, except that the first use of a column of a large
//! cache image waits until the column is verified.

#[cfg(feature = "drawing")]
pub mod ascii_trace;
mod build;
mod columns;
mod image;
mod lod;
mod read;

pub use build::builder::TraceBuilder;
pub use build::sink::FileSink;
pub use columns::pages;
pub use image::error::CacheError;
pub use image::rebuild::Rebuild;
pub use lod::{CounterBins, Items};
pub use read::event::{Event, EventId, FlowEdge, StepMark};
pub use read::facts::{DiagnosticCount, FactValue, FileFacts, FileSpec};
pub use read::galloping_search::galloping_search;
pub use read::query::Overlapping;
pub use read::trace::{Categories, Instants, Samples, Slices, Trace, Track};
