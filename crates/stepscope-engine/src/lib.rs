//! Opens log directories and files, merges hosts and ranks, and caches traces. The single façade
//! between the formats, the store and the programs that show traces.
//!
//! Reading order: [`Engine`] (many runs, watched) and [`open_path`] (one path, once), then the
//! modules below them: `scan` with `names` and `group` (finds each `found_run`), `open` (files to
//! trace), `files` (file contents, safe against truncation), `objects` (files in object stores), `source` (lazily decoded arguments),
//! `cache`, `hash`, `recover`, `convert`, `rows` (events as a table), `sql` (queries, answered by another
//! program).
//!
//! The feature `object-storage` opens URLs of object stores and web servers; without it, they are refused.
//!
//! **Invariant:** a bad file never affects a good one: it becomes a [`RunProblem`], or the error of
//! its own run. (`tests/it`)
//! **Invariant:** nothing is written into a log directory, except runs recovered from the journals
//! of killed programs.

pub mod atomic_file;
mod bounded;
mod cache;
mod convert;
mod csv_writer;
mod engine;
mod error;
mod files;
mod fleet;
mod found_run;
mod group;
mod hash;
pub mod measured_peaks;
mod names;
mod objects;
mod open;
mod open_path;
mod overlay;
mod programs;
mod recover;
mod rows;
mod run;
mod run_files;
mod scan;
mod shard;
mod source;
mod sql;

pub use bounded::{BoundedWriter, most_exported_bytes};
pub use convert::{ConvertOptions, ConvertReport, OutputFormat, Overlay, convert};
pub use csv_writer::{csv_text, csv_writer};
pub use engine::{Engine, EngineEvent, EngineOptions};
pub use error::{EngineError, RunProblem};
pub use files::private::create_private_folder;
pub use fleet::{FLEET_KINDS, FLEET_TABLES, FleetError, FleetKind, FleetOptions, fleet_reports};
pub use names::DATASET_MARK;
pub use objects::{
    DATASET_PARTS, DATASET_RUNS, DATASET_UNFINISHED, fetch_dataset, is_url, shown_path, upload,
};
pub use open_path::{
    Opened, PathReport, expected_bytes, list_chosen, open_chosen, open_each, open_listed, open_path,
};
pub use recover::recover;
pub use rows::{RowFormat, write_rows};
pub use run::{Run, RunState, RunSummary};
pub use run_files::{
    CopiedFile, RunFile, VisitFile, copied_files, joined_hash, list_files, open_files,
};
pub use shard::{RunChoice, Shard};
pub use sql::{
    RunOrigin, SqlAnswer, SqlEngine, SqlError, SqlQuery, SqlRun, SqlStop, TimeLimit,
    find_sql_engine, sql_shell,
};
pub use stepscope::recover::RecoveredRun;
pub use stepscope::session::{Storage, storage};
pub use stepscope_analysis as analysis;
pub use stepscope_compat as compat;
pub use stepscope_formats::Format as TraceFormat;
pub use stepscope_report as report;

/// Returns the version of the readers and the store: programs with the same one share the import cache.
pub const fn readers_version() -> &'static str {
    cache::VERSION
}
