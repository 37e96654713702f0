//! The arguments of `stepscope query` and `stepscope export`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stepscope_engine::Shard;

use super::values::{size, time};

/// `stepscope query`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope query LOGDIR \"SELECT name, count(*), ms(sum(dur_ps)) FROM kernels GROUP BY name ORDER BY 3 DESC LIMIT 10\"\n  \
        stepscope query base.json.gz new.json.gz \"SELECT run, count(*) FROM slices GROUP BY run\" --format json\n  \
        stepscope query LOGDIR \"SELECT * FROM report('steps', 'step')\" --format csv\n  \
        stepscope query s3://BUCKET/LOGDIR \"SELECT count(*) FROM slices\"\n  \
        stepscope query dataset \"SELECT date, host, median(dur_ps) FROM steps GROUP BY date, host\"\n  \
        stepscope query --tables slices\n  \
        stepscope query LOGDIR\n\n\
        Without a query, a prompt reads one after the other. Times are whole picoseconds.\n\
        The SQL engine is a program of its own, stepscope-sql.")]
pub struct Query {
    /// Trace files, session folders and log directories, or one dataset, and last the query
    #[arg(value_name = "PATH... SQL")]
    pub words: Vec<String>,
    /// File that contains the query
    #[arg(long, short, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print the tables, or the columns of one, and end
    #[arg(long, value_name = "TABLE", num_args = 0..=1, default_missing_value = "")]
    pub tables: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = QueryFormat::Table)]
    pub format: QueryFormat,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub rows: usize,
    /// Maximum time of the query, once the runs are open
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub timeout: Duration,
    /// Maximum memory of the query, in addition to the runs
    #[arg(long, value_name = "SIZE", default_value = "2GB", value_parser = size)]
    pub memory: u64,
    /// Cluster that runs a query of a dataset: 'stepscope-sql scheduler' prints its address
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<String>,
    /// Neither read nor write the import cache
    #[arg(long)]
    pub no_cache: bool,
}

/// `stepscope export`.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope export LOGDIR dataset\n  \
        stepscope export monday.json.gz tuesday.json.gz dataset --args bytes,stream\n  \
        stepscope export LOGDIR dataset --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT\n  \
        stepscope export LOGDIR dataset --by-file --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT\n  \
        stepscope export LOGDIR dataset --join\n  \
        stepscope export /shared/logs /shared/dataset --by-file --cluster df://node-0:50050\n  \
        duckdb -c \"SELECT name, count(*) FROM read_parquet('dataset/slices/**/*.parquet', hive_partitioning = true) GROUP BY name\"\n\n\
        The folder gets the tables of 'stepscope query --tables' as Parquet files; further exports add runs. A run that\n\
        is in the dataset is not written again. The SQL engine, a program of its own, writes them: stepscope-sql.\n\n\
        A run of many hosts divides into its files: with --by-file each is read alone, and --join makes the tables of the\n\
        run when all are read. Without --shard and --file, --by-file joins them itself.")]
pub struct Export {
    /// Trace files, session folders or log directories, and last the folder of the dataset
    #[arg(value_name = "PATH... DATASET", num_args = 2.., required = true)]
    pub paths: Vec<PathBuf>,
    /// Arguments of events: none, all, or those of some keys
    #[arg(long, value_name = "none|all|KEY,...", default_value = "none")]
    pub args: String,
    /// Export the runs of one of N parts, I from 0: tasks of a cluster share the work
    #[arg(long, value_name = "I/N", default_value_t = Shard::ALL, hide_default_value = true)]
    pub shard: Shard,
    /// Export the run with this name or id only; may be repeated
    #[arg(long, value_name = "NAME")]
    pub run: Vec<String>,
    /// Read the files of a run one by one: for runs of many hosts
    #[arg(long)]
    pub by_file: bool,
    /// Read the file with this number in its run only, from 0; may be repeated
    #[arg(long, value_name = "N", requires = "by_file")]
    pub file: Vec<u32>,
    /// Make the tables of runs whose files are all read: after the last task of --by-file
    #[arg(long, conflicts_with_all = ["by_file", "shard", "cluster"])]
    pub join: bool,
    /// Cluster that exports the runs: 'stepscope-sql scheduler' prints its address
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<String>,
    /// Print a JSON object for each run
    #[arg(long)]
    pub json: bool,
    /// Neither read nor write the import cache
    #[arg(long)]
    pub no_cache: bool,
}

/// Output format of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    /// Text table.
    Table,
    /// CSV.
    Csv,
    /// `{"columns": [{"key", "title", "type", "unit"}], "rows": [{key: value}], "truncated"}`.
    Json,
    /// Arrow's stream format.
    Arrow,
    /// A Parquet file.
    Parquet,
}

impl QueryFormat {
    /// Returns the name that the SQL engine knows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Arrow => "arrow",
            Self::Parquet => "parquet",
        }
    }
}
