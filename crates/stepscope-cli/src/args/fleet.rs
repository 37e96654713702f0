//! The arguments of `stepscope fleet`.

use std::path::PathBuf;

use clap::Args;
use jiff::civil::Date;

use super::ReportFormat;
use super::values::day;

/// `stepscope fleet`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope export LOGDIR dataset && stepscope fleet dataset\n  \
        stepscope fleet dataset hosts --since 2026-11-01\n  \
        stepscope fleet dataset runs --job 'llama/#' --format json\n  \
        stepscope fleet dataset --format html > fleet.html\n\n\
        Reports: hosts (which host do the others wait for), runs (which job became slower, from which run on),\n\
        collectives (how fast, by size and by hosts), steps (what is different in the slowest 1 %). Without a name, all.\n\
        Runs belong to one job if they state the same fact 'job', else if their names differ in digits only.\n\
        The SQL engine, a program of its own, reads the dataset: stepscope-sql.")]
pub struct Fleet {
    /// Folder of the dataset: 'stepscope export' adds runs to it
    #[arg(value_name = "DATASET")]
    pub dataset: PathBuf,
    /// Report: hosts, runs, collectives or steps [default: all]
    #[arg(value_name = "REPORT")]
    pub kind: Option<String>,
    /// First day, UTC
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub since: Option<Date>,
    /// Last day, UTC
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day)]
    pub until: Option<Date>,
    /// One job only
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Maximum number of rows of each table [default: 25; all in JSON and CSV]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Cluster that runs the queries: 'stepscope-sql scheduler' prints its address
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub format: ReportFormat,
}
