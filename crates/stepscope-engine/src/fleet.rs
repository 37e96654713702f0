//! Reports over a dataset: what the runs and hosts of a fleet have in common, and which stand out.
//!
//! Each report is one or two queries over the small tables of the dataset ([`SqlEngine`] answers them) and arithmetic
//! on their rows. A run is computed once, by `stepscope export`; a report over thousands of runs reads a few columns.
//!
//! ```text
//! runs exported anywhere -> dataset -> SQL -> hosts | runs | collectives | steps
//! ```
//!
//! Runs belong to one *job* if they state the same fact `job`, else if their names differ in digits only.

mod ask;
mod collectives;
mod hosts;
mod runs;
mod steps;

use std::path::PathBuf;

use jiff::civil::Date;
use stepscope_report::report::Report;

use crate::objects::DATASET_RUNS;
use crate::sql::{SqlEngine, SqlError};
use ask::Asked;

/// Which part of a dataset a report covers.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// Folder of the dataset.
    pub dataset: PathBuf,
    /// First day, UTC.
    pub since: Option<Date>,
    /// Last day, UTC.
    pub until: Option<Date>,
    /// Job; all jobs without it.
    pub job: Option<String>,
    /// Rows of each table.
    pub top: usize,
    /// Address of the cluster that runs the queries, `df://HOST:PORT`.
    pub cluster: Option<String>,
}

/// One report over a fleet.
#[derive(Clone, Copy)]
pub struct FleetKind {
    /// Name on the command line and in JSON.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// The question that it answers.
    pub question: &'static str,
    make: fn(&mut Asked<'_>) -> Result<Report, FleetError>,
}

/// The tables of a dataset that the reports read.
pub const FLEET_TABLES: [&str; 5] = ["clocks", "collectives", "facts", DATASET_RUNS, "steps"];

/// Every report over a fleet.
pub const FLEET_KINDS: [FleetKind; 4] = [
    FleetKind {
        name: "hosts",
        title: "Hosts",
        question: "Which host do the others wait for, and since when?",
        make: hosts::hosts,
    },
    FleetKind {
        name: "runs",
        title: "Runs",
        question: "Which job became slower, from which run on, and what changed there?",
        make: runs::runs,
    },
    FleetKind {
        name: "collectives",
        title: "Collectives",
        question: "How fast are collectives, by size and by the hosts that they span?",
        make: collectives::collectives,
    },
    FleetKind {
        name: "steps",
        title: "Slowest steps",
        question: "What is different in the slowest 1 % of the steps?",
        make: steps::steps,
    },
];

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// A query failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The answer of a query has another shape.
    #[error("cannot read the answer of the SQL engine: {0}")]
    Answer(String),
    /// The figures would be those of a part of the rows.
    #[error(
        "cannot report on the dataset: a report of more than {0} rows is not made\nhelp: choose fewer runs with --since, --until or --job"
    )]
    TooManyRows(usize),
    /// No run is left.
    #[error(
        "cannot report on {}: no run of the dataset is in this range\nhelp: 'stepscope query {} \"SELECT date, name FROM runs\"' lists its runs",
        .0.display(),
        .0.display()
    )]
    NoRuns(PathBuf),
}

/// Makes reports over a dataset.
pub fn fleet_reports(
    engine: &mut SqlEngine,
    options: &FleetOptions,
    kinds: &[FleetKind],
) -> Result<Vec<Report>, FleetError> {
    let mut asked = Asked::new(engine, options)?;
    kinds.iter().map(|kind| (kind.make)(&mut asked)).collect()
}
