//! Tables of a run but those of events and arguments.

mod allocations;
pub(crate) mod collectives;
mod devices;
mod kernels;
mod listing;
mod ops;
mod programs;
pub(crate) mod run;
mod statistics;
pub(crate) mod steps;
pub(crate) mod tracks;

use datafusion::error::DataFusionError;
use stepscope_model::Cancelled;

pub use listing::{Listing, RunTable, Table};

/// Every table of runs but those of events and arguments.
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
    ops::OPS,
    kernels::KERNELS,
];

/// Converts the end of a cancelled analysis.
fn stopped(_: Cancelled) -> DataFusionError {
    DataFusionError::Execution("the query was cancelled".to_owned())
}
