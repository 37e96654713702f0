//! The arguments of `stepscope doctor`.

use std::path::PathBuf;

use clap::Args;

/// `stepscope doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepscope doctor\n  \
        stepscope doctor --python .venv/bin/python --logdir LOGDIR\n  \
        stepscope doctor --host trainer-1:9012 --host trainer-2:9012\n  \
        stepscope doctor --json | python3 -m json.tool\n\n\
        Nothing is installed or changed, and nothing is sent but health checks to each --host.\n\
        Python is started once, and imports no framework.\n\
        Exit codes: 0 nothing hinders recording, 1 something does, 2 usage.\n\
        docs/reference/doctor.md describes the checks and the fields of --json.")]
pub struct Doctor {
    /// Python of the programs to record [default: python or python3 on PATH]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// Log directory
    #[arg(
        long,
        alias = "log_dir",
        alias = "log-dir",
        value_name = "DIR",
        default_value = "logs"
    )]
    pub logdir: PathBuf,
    /// Compare the clock of the host of a profiler server with this one; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub host: Vec<String>,
    /// Print the result as JSON (stable and documented)
    #[arg(long)]
    pub json: bool,
}
