//! The arguments of `stepscope compare` and `stepscope baseline`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stepscope_engine::analysis::compare::result::{MatchBy, Rename, RowsBy};

use super::Reading;
use super::values::{confidence, match_by, rename, rows_by, tolerance};

/// `stepscope compare`.
#[derive(Debug, Default, Args)]
#[command(
    after_help = "Examples:\n  stepscope compare before.json.gz after.json.gz\n  \
        stepscope compare main=logs/a pull=logs/b --by class --format md=comment.md\n  \
        stepscope compare --base a1 --base a2 --base a3 --new b1 --new b2 --new b3\n  \
        stepscope compare --baseline accepted logs/new --gate stepscope-gate.toml --format junit=gate.xml\n  \
        stepscope compare old new --rename 'model/*=net/*' --rename sgemm=gemm\n  \
        stepscope compare --history accepted\n  \
        stepscope compare gs://BUCKET/main gs://BUCKET/pull\n\n\
        Of a directory with several runs, the newest is used; DIR#RUN names one by its name or id. Exit codes: 0 success, 1 failure, 2 usage;\n\
        with --gate also 3 a rule failed, 4 the gate cannot decide."
)]
pub struct Compare {
    /// Base, then new side: trace files, session folders, log directories or summaries; LABEL=PATH names a side.
    /// Further paths are further new sides
    #[arg(value_name = "RUN")]
    pub paths: Vec<PathBuf>,
    /// Run of the base; repeatable
    #[arg(long, value_name = "RUN")]
    pub base: Vec<PathBuf>,
    /// Run of the new side; repeatable
    #[arg(long = "new", value_name = "RUN")]
    pub new_runs: Vec<PathBuf>,
    /// Rows of the attribution: op, kernel, module, class, bucket, tree
    #[arg(long, value_name = "ROWS", default_value = "op", value_parser = rows_by)]
    pub by: RowsBy,
    /// What operations are matched by: auto, name, shape, stack, class
    #[arg(long = "match", value_name = "KEY", default_value = "auto", value_parser = match_by)]
    pub match_by: MatchBy,
    /// Names of operations, kernels and modules of the base that have another name on the new side: `*` in BASE matches
    /// any text, and in NEW stands for it; repeatable
    #[arg(long, value_name = "BASE=NEW", conflicts_with = "history", value_parser = rename)]
    pub rename: Vec<Rename>,
    /// Steps to compare, by the program's step numbers: skip-warmup, N, N-M or N- [default: skip-warmup]
    #[arg(long, value_name = "STEPS")]
    pub steps: Option<String>,
    /// Steps of the base, where they are others than those of the new side
    #[arg(long, value_name = "STEPS", conflicts_with = "history")]
    pub base_steps: Option<String>,
    /// Steps of the new side
    #[arg(long, value_name = "STEPS", conflicts_with = "history")]
    pub new_steps: Option<String>,
    /// Rank of the base: only its steps are compared [default: the slowest of each step]
    #[arg(long, value_name = "N", conflicts_with = "history")]
    pub base_rank: Option<u32>,
    /// Rank of the new side
    #[arg(long, value_name = "N", conflicts_with = "history")]
    pub new_rank: Option<u32>,
    /// Change below which sides are the same [default: 1%]
    #[arg(long, value_name = "SHARE", value_parser = tolerance)]
    pub tolerance: Option<f64>,
    /// Coverage of intervals [default: 0.95]
    #[arg(long, value_name = "SHARE", value_parser = confidence)]
    pub confidence: Option<f64>,
    /// Maximum number of rows [default: 25 in tables, else all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output: table, md, csv, json, html, junit or github; FORMAT=FILE writes a file; repeatable
    /// [default: table]
    #[arg(long, value_name = "FORMAT[=FILE]")]
    pub format: Vec<String>,
    /// File of rules that decides the exit code
    #[arg(long, value_name = "FILE")]
    pub gate: Option<PathBuf>,
    /// Print the rules of the gate in words, with the smallest change that the runs show, and judge nothing
    #[arg(long, requires = "gate")]
    pub explain: bool,
    /// Compare an earlier prediction with the new run: JSON of `report RUN critical-path --what-if SPEC --format json`,
    /// or a SPEC, which is predicted from the base; repeatable
    #[arg(long, value_name = "FILE|SPEC")]
    pub check_what_if: Vec<String>,
    /// Folder of accepted runs as the base
    #[arg(long, value_name = "DIR", conflicts_with = "base")]
    pub baseline: Option<PathBuf>,
    /// Number of accepted runs that are the base, the newest that fit
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub last: usize,
    /// Folder of accepted runs: prints the change points of their steps
    #[arg(long, value_name = "DIR", conflicts_with_all = ["base", "new_runs", "baseline", "gate"])]
    pub history: Option<PathBuf>,
    /// Write the summary of one run, which can stand in its place, and compare nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base", "new_runs", "baseline", "gate", "history"])]
    pub save_summary: Option<PathBuf>,
    /// Options of reading.
    #[command(flatten)]
    pub reading: Reading,
}

/// `stepscope baseline`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stepscope baseline accept LOGDIR --into accepted --keep 20")]
pub struct Baseline {
    /// What to do.
    #[command(subcommand)]
    pub action: BaselineAction,
}

/// What `stepscope baseline` does.
#[derive(Debug, Subcommand)]
pub enum BaselineAction {
    /// Add the summary of a run to a folder of accepted runs
    Accept(BaselineAccept),
}

/// `stepscope baseline accept`.
#[derive(Debug, Args)]
pub struct BaselineAccept {
    /// Trace file, session folder, log directory or summary
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Folder of accepted runs
    #[arg(long, value_name = "DIR")]
    pub into: PathBuf,
    /// Steps to keep, by the program's step numbers: skip-warmup, N, N-M or N- [default: skip-warmup]
    #[arg(long, value_name = "STEPS")]
    pub steps: Option<String>,
    /// Maximum number of runs in the folder; the oldest are removed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Options of reading.
    #[command(flatten)]
    pub reading: Reading,
}
