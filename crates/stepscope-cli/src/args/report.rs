//! The arguments of `stepscope report`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stepscope_engine::analysis::critical_path::spec::PRESETS;
use stepscope_model::Dur;

use super::Reading;
use super::values::{moment, step_numbers};

/// `stepscope report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepscope report LOGDIR steps\n  \
        stepscope report LOGDIR steps --by step --format csv\n  \
        stepscope report LOGDIR ops --steps 13-21\n  \
        stepscope report LOGDIR all --format html > report.html\n  \
        stepscope report LOGDIR hlo-memory --module jit_train_step --by scope\n  \
        stepscope report LOGDIR critical-path --what-if 'kernel:*gemm*=x0.5'\n  \
        stepscope report LOGDIR roofline --peak-flops 989e12:f32=67e12 --peak-bandwidth 3.35e12\n  \
        stepscope report LOGDIR idle --compat hta\n  \
        stepscope report gs://BUCKET/LOGDIR steps\n  \
        stepscope report list\n\n\
        'all' writes every report into one self-contained HTML file.\n\
        Of a directory with several runs, the newest is used, or the one of --run.")]
pub struct ReportArgs {
    /// Trace file, session folder or log directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Report kind; 'list' lists all kinds, 'all' is one page with all of them
    #[arg(value_name = "KIND", default_value = "steps")]
    pub kind: String,
    /// Grouping of the rows; 'list' lists the groupings of each kind
    #[arg(long, value_name = "GROUPING")]
    pub by: Option<String>,
    /// Maximum number of rows [default: all in JSON and CSV, else 25]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub format: ReportFormat,
    /// Run of the directory, by name or id
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only these steps, by the program's step numbers
    #[arg(long, value_name = "N[-M]", value_parser = step_numbers, conflicts_with_all = ["from", "to"])]
    pub steps: Option<RangeInclusive<i64>>,
    /// Start of the range, measured from the start of the run, such as 1.2s or 965ms
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Dur>,
    /// End of the range, measured from the start of the run
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Dur>,
    /// Use marked steps only; infer no steps from repeating events
    #[arg(long)]
    pub marked_only: bool,
    /// Only this compiled program, by name, number or name(number); for the reports of programs (HLO)
    #[arg(long, value_name = "MODULE")]
    pub module: Option<String>,
    /// Only this memory space of the device, by its number in XLA; for 'hlo-memory'
    #[arg(long, value_name = "N")]
    pub space: Option<i64>,
    /// What is alive at this position of program order, in place of the peak; for 'hlo-memory'
    #[arg(long, value_name = "N")]
    pub position: Option<u32>,
    /// Predict the step after changes, such as `kernel:*gemm*=x0.5,launch_latency=0`; repeatable; for 'critical-path'
    #[arg(long, value_name = "SPEC")]
    pub what_if: Vec<String>,
    /// Names of prepared scenarios; for 'critical-path'.
    #[arg(long, value_name = "NAME", help = preset_help())]
    pub preset: Vec<String>,
    /// Show predictions although the replay error is above 15 %; for 'critical-path'
    #[arg(long)]
    pub force: bool,
    /// Where the path ends: at the end of the last step, or of the device work that the steps launch, if that is
    /// later; for 'critical-path'
    #[arg(long, value_name = "END", value_enum, default_value_t)]
    pub until: PathEnd,
    /// Peak FLOP/s of a device, for all element types or by type: 989e12:f32=67e12; for 'mfu', 'op-profile', 'roofline'
    #[arg(long, value_name = "RATE[:TYPE=RATE,...]")]
    pub peak_flops: Option<String>,
    /// Peak bytes per second of a device's main memory, such as 3.35e12; for 'op-profile', 'roofline'
    #[arg(long, value_name = "RATE")]
    pub peak_bandwidth: Option<String>,
    /// Use the peaks that 'stepscope peaks' measured on this machine, also for runs that do not name their processor
    #[arg(long)]
    pub measured_peaks: bool,
    /// Add the figures of another profiler by its own definitions: hta (for 'idle', 'overlap', 'ranks') or xprof (for
    /// 'steps', 'ops', 'hlo-memory')
    #[arg(long, value_name = "PROFILER")]
    pub compat: Option<String>,
    /// Options of reading.
    #[command(flatten)]
    pub reading: Reading,
}

/// End of a critical path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PathEnd {
    /// The end of the last step.
    #[default]
    LastStep,
    /// The end of the device work.
    Device,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Text table.
    Table,
    /// CSV with units in the column titles.
    Csv,
    /// `{"report","sentence":[…],"rows":[…],"notes":[…]}`, units in the keys.
    Json,
    /// Markdown.
    Md,
    /// One self-contained HTML file.
    Html,
}

/// Returns the help of `--preset`, which lists the presets.
fn preset_help() -> String {
    let [others @ .., last] = PRESETS.map(|preset| preset.name);
    let others = others.join(", ");
    format!("Predict a prepared scenario: {others} or {last}; repeatable; for 'critical-path'")
}
