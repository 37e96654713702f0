//! The arguments of `stepscope run`.
#![allow(
    clippy::doc_markdown,
    reason = "terminals show these texts as they are"
)]

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::values::{program_steps, ranks, size, slow_step, time};

/// `stepscope run`.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope run -- python train.py --epochs 3\n  \
        stepscope run --steps 10-20 --calls -- python -m package.train\n  \
        stepscope run --ranks 0 --logdir LOGDIR -- torchrun --nproc-per-node 8 train.py\n  \
        stepscope run --on-slow-step 1.5x -- python train.py\n  \
        stepscope run --signal USR2 -- python train.py   # then: kill -USR2 PID, with the id of this command\n\n\
        The program is not changed: its input, output, exit code and signals are its own. What this command\n\
        prints goes to stderr, after the program has ended. docs/guide/run.md describes what is recorded, and\n\
        docs/reference/environment.md the variables that carry these options to the program.")]
pub struct RunArgs {
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Log directory
    #[arg(
        long,
        alias = "log_dir",
        alias = "log-dir",
        value_name = "DIR",
        default_value = "logs"
    )]
    pub logdir: PathBuf,
    /// Name of the run, for all processes [default: the local time]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Name of the job, a fact of each file: 'stepscope fleet' compares runs of one job
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Record these steps only; docs/guide/run.md says what counts as a step
    #[arg(long, value_name = "N[-M]", value_parser = program_steps, conflicts_with_all = ["wait", "keep_last", "on_slow_step"])]
    pub steps: Option<RangeInclusive<u64>>,
    /// Begin the recording after so many steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000), conflicts_with_all = ["steps", "wait", "keep_last", "on_slow_step"])]
    pub skip_first: Option<u64>,
    /// Begin the recording after this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<Duration>,
    /// End the recording after this time
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with_all = ["keep_last", "on_slow_step"])]
    pub duration: Option<Duration>,
    /// Begin and end a recording each time this signal comes (Python programs only); with --keep-last or
    /// --on-slow-step, save the last part (also Rust programs). This command hands the signal to each process that it
    /// records
    #[arg(long, value_name = "SIGNAL", value_enum, ignore_case = true, conflicts_with_all = ["steps", "skip_first", "wait"])]
    pub signal: Option<ToggleSignal>,
    /// Samples of Python stacks per second; 0 takes none
    #[arg(long, value_name = "HZ", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sample: u32,
    /// Record every call of a Python function
    #[arg(long)]
    pub calls: bool,
    /// Record memory of Python programs: of the process, and what PyTorch's allocator for CUDA and JAX's devices hold
    /// at the end
    #[arg(long)]
    pub memory: bool,
    /// Profilers of frameworks that record too: auto, xla, none, or some of jax, torch, torch_xla
    #[arg(long, value_name = "NAMES", default_value = "auto")]
    pub sources: String,
    /// How long the profilers of frameworks record, from the first use of the framework; they keep their events
    /// in memory. With --steps, they record these steps
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub source_time: Duration,
    /// How CUDA and AMD devices are recorded
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Gpu::Auto)]
    pub gpu: Gpu,
    /// Record ranges of NVTX too, in programs whose CUDA devices the collector records
    #[arg(long, conflicts_with = "mirror")]
    pub nvtx: bool,
    /// Ranks that are recorded, separated by commas [default: all]
    #[arg(long, value_name = "RANKS", value_parser = ranks)]
    pub ranks: Option<String>,
    /// Keep only the last part of the program, without the profilers of frameworks
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub keep_last: Option<Duration>,
    /// Save what led to each step that takes so many times the median, and the last part of the program: 30s unless
    /// --keep-last is given
    #[arg(long, value_name = "TIMES", value_parser = slow_step)]
    pub on_slow_step: Option<f64>,
    /// Give labels and steps to Nsight (nvtx) or VTune (itt) too
    #[arg(long, value_name = "TOOL", value_enum)]
    pub mirror: Option<Mirror>,
    /// Maximum size of each process's recording on the disk [default: 8GiB]; with --keep-last or --on-slow-step, of
    /// what the flight recorder keeps [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<u64>,
    /// What happens at the maximum size, or when the disk is nearly full; not with --keep-last or --on-slow-step
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = AtLimitArg::KeepLatest)]
    pub at_limit: AtLimitArg,
    /// Do not record worker processes of multiprocessing
    #[arg(long)]
    pub no_workers: bool,
    /// Do not open the run for its first finding
    #[arg(long)]
    pub no_summary: bool,
}

/// How CUDA and AMD devices are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Gpu {
    /// By the profiler of the program's framework if it has one, else CUDA by the collector
    Auto,
    /// By the collector, for the whole recording; profilers of frameworks are left out
    Collector,
    /// Not by the collector
    None,
}

/// Tool that gets labels and steps too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mirror {
    /// Nsight Systems.
    Nvtx,
    /// VTune.
    Itt,
}

impl Mirror {
    /// Returns the name in the variable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nvtx => "nvtx",
            Self::Itt => "itt",
        }
    }
}

/// Signal that starts and stops a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToggleSignal {
    /// SIGUSR1.
    #[value(alias = "SIGUSR1")]
    Usr1,
    /// SIGUSR2.
    #[value(alias = "SIGUSR2")]
    Usr2,
}

impl ToggleSignal {
    /// Returns the name in the variable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
        }
    }

    /// Returns the number of the signal.
    pub const fn number(self) -> i32 {
        match self {
            Self::Usr1 => libc::SIGUSR1,
            Self::Usr2 => libc::SIGUSR2,
        }
    }
}

/// What happens when a recording has reached a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AtLimitArg {
    /// Remove the oldest part
    KeepLatest,
    /// Stop recording
    Stop,
}

impl AtLimitArg {
    /// Returns the name in the variable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeepLatest => "keep_latest",
            Self::Stop => "stop",
        }
    }
}
