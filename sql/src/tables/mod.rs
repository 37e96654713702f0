//! Tables of a run: the small ones are computed as a whole on first use and cached, the others are listed.

mod allocations;
pub(crate) mod collectives;
mod devices;
mod kernels;
mod listed;
mod ops;
mod programs;
mod provider;
pub(crate) mod run;
mod statistics;
pub(crate) mod steps;
pub(crate) mod tracks;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use stepscope_model::Cancelled;

use crate::run_data::RunData;
use crate::schema::Column;

pub use listed::{ListedTable, Listing, RunListing};
pub use provider::RunTable;

/// A table of a run.
#[derive(Debug)]
pub struct Table {
    /// Name.
    pub name: &'static str,
    /// One row is this.
    pub row: &'static str,
    /// Columns.
    pub columns: &'static [Column],
    /// Computes the rows.
    pub build: fn(&RunData) -> Result<RecordBatch>,
}

/// Every small table.
pub const TABLES: &[Table] = &[
    run::RUNS,
    run::FILES,
    run::HOSTS,
    devices::DEVICES,
    run::FACTS,
    run::DIAGNOSTICS,
    tracks::TRACKS,
    tracks::FLOWS,
    steps::STEPS,
    devices::GAPS,
    collectives::COLLECTIVES,
    collectives::CLOCKS,
    allocations::ALLOCATIONS,
    statistics::NAMES,
    statistics::PROFILES,
    programs::INSTRUCTIONS,
];

/// Every table whose rows are listed.
pub const LISTED_TABLES: &[ListedTable] = &[ops::OPS, kernels::KERNELS];

/// Converts the end of a cancelled analysis.
fn stopped(_: Cancelled) -> DataFusionError {
    DataFusionError::Execution("the query was cancelled".to_owned())
}
