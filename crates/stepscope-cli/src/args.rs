//! The command line as types.
//!
//! `stepscope LOGDIR` means `stepscope view LOGDIR`, so the first word is a path or a command. A
//! word that is not a path but looks like a command is rejected with an error, instead of being
//! treated as a path.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use stepscope_model::spelling::edits;
use stepscope_remote::{Address, OptionValue};

use crate::error::CliError;

mod compare;
mod completions;
mod doctor;
mod fleet;
mod mcp;
mod query;
mod report;
mod run;
mod skill;
mod values;

pub use compare::{Baseline, BaselineAccept, BaselineAction, Compare};
pub use completions::{Completions, ManPages};
pub use doctor::Doctor;
pub use fleet::Fleet;
pub use mcp::Mcp;
pub use query::{Export, Query, QueryFormat};
pub use report::{PathEnd, ReportArgs, ReportFormat};
pub use run::{Gpu, RunArgs, ToggleSignal};
pub use skill::Skill;

use values::{host, interval_ms, option, plain_host, time};

/// One profiler for machine-learning programs: record, read, view.
#[derive(Debug, Parser)]
#[command(
    name = "stepscope",
    version,
    about = "One profiler for machine-learning programs: JAX, PyTorch, PyTorch/XLA, Neuron, Rust",
    args_conflicts_with_subcommands = true,
    subcommand_precedence_over_arg = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  \
        stepscope run -- python train.py    record a program\n  \
        stepscope --port=8791 LOGDIR        view the runs of LOGDIR in a browser\n  \
        stepscope info trace.json.gz        print what a trace contains\n  \
        stepscope report LOGDIR steps       print step times and where the time goes\n  \
        stepscope gs://BUCKET/LOGDIR        view runs in an object store; also s3://, az://, https://\n  \
        stepscope COMMAND --help            print the options of a command"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    view: View,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the viewer over log directories and files (the default command)
    View(View),
    /// Record a program without changing it
    Run(RunArgs),
    /// Print what a trace or a log directory contains
    Info(Info),
    /// Print a report
    Report(ReportArgs),
    /// Compare runs: which is faster, with what confidence, and what makes the difference
    Compare(Compare),
    /// Keep accepted runs to compare with
    Baseline(Baseline),
    /// Write a trace in another format
    Convert(Convert),
    /// Capture running programs: stepscope's, JAX, PyTorch/XLA, TensorFlow
    Capture(CaptureArgs),
    /// Recover the recordings of killed programs
    Recover(Recover),
    /// Measure the peak rates of this machine, for the roofline
    Peaks(Peaks),
    /// Ask runs a question in SQL
    Query(Query),
    /// Add runs to a dataset of Parquet files
    Export(Export),
    /// Report on a dataset of many runs: slow hosts, changed jobs, slow steps
    Fleet(Fleet),
    /// Let an AI assistant ask about runs, over stdin and stdout
    Mcp(Mcp),
    /// Write a skill for AI assistants that run commands
    Skill(Skill),
    /// Print what can be recorded on this machine, and what hinders it
    Doctor(Doctor),
    /// Print the script that completes commands and options in a shell
    Completions(Completions),
    /// Write the man pages of all commands into a folder
    #[command(hide = true)]
    ManPages(ManPages),
}

/// `stepscope view`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope view LOGDIR --port 8791 --open\n  stepscope view gs://BUCKET/LOGDIR\n\n\
        Prints the log directory, the port and the URL, and serves until CTRL+C.\n\
        New runs appear automatically. No data leaves this machine."
)]
pub struct View {
    /// Log directories, trace files and URLs of either [default: the current directory]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = stepscope_server::DEFAULT_PORT)]
    pub port: u16,
    /// Address to listen on; every other address needs a token, see --token
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = host)]
    pub host: IpAddr,
    /// Further name by which browsers reach this server, without a port; repeatable
    /// [default: localhost and the addresses]
    #[arg(long, value_name = "NAME", value_parser = plain_host)]
    pub host_name: Vec<String>,
    /// Open the viewer in the browser
    #[arg(long)]
    pub open: bool,
    /// Host that the viewer may capture from, a name or address without a port; repeatable
    /// [default: only this machine]
    #[arg(long, value_name = "HOST", value_parser = plain_host)]
    pub capture_to: Vec<String>,
    /// Token that every client must send.
    #[arg(
        long,
        value_name = "TEXT",
        help = "Token that every client must send, also on this machine; other users of this machine see it in \
            the process list [default: STEPSCOPE_TOKEN, else a new one when --host is not this machine]"
    )]
    pub token: Option<String>,
    /// File that contains the token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// Let AI assistants ask about the runs at /mcp, by the Model Context Protocol
    #[arg(long)]
    pub mcp: bool,
    /// Program that assistants may capture from; repeatable
    #[arg(long, value_name = "HOST:PORT", value_parser = mcp::capture_address, requires = "mcp")]
    pub allow_capture: Vec<Address>,
}

/// `stepscope info`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope info plugins/profile/2026_11_20_15_24_16\n  \
        stepscope info trace.json.gz --json | python3 -m json.tool\n  \
        stepscope info s3://BUCKET/logs/plugins/profile/2026_11_20_15_24_16\n\n\
        For a directory, every run in it is read. docs/reference/info.md describes the fields of --json."
)]
pub struct Info {
    /// Trace file, session folder or log directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Print everything as JSON (stable and documented)
    #[arg(long)]
    pub json: bool,
    /// Options of reading.
    #[command(flatten)]
    pub reading: Reading,
}

/// `stepscope convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope convert vm.xplane.pb trace.json.gz\n  \
        stepscope convert trace.json.gz trace.pftrace\n  \
        stepscope convert trace.json.gz events.parquet\n  \
        stepscope convert LOGDIR path.pftrace --overlay critical-path\n  \
        stepscope convert https://HOST/trace.json.gz trace.pftrace\n\n\
        The extension of OUT selects the format: .xplane.pb, .json, .json.gz, .pftrace; .csv and\n\
        .parquet contain the events as rows.\n\
        OUT appears when it is complete; IN is never overwritten."
)]
pub struct Convert {
    /// Trace file, or folder with one run
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Output file
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Add the critical path of the steps: a track of its own, and flows that lead to it
    #[arg(long, value_name = "WHAT", value_enum)]
    pub overlay: Option<OverlayArg>,
    /// Allow an output far larger than the input
    #[arg(long)]
    pub large: bool,
    /// Options of reading.
    #[command(flatten)]
    pub reading: Reading,
}

/// What `stepscope convert` adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverlayArg {
    /// What the end of the steps waited for
    CriticalPath,
}

/// `stepscope capture`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope capture localhost:9012 --duration-ms 2000 --logdir LOGDIR\n  \
        stepscope capture host0:9012,host1:9012 --duration-ms 500 --logdir LOGDIR\n  \
        stepscope capture localhost:9012 --last 10s --logdir LOGDIR\n  \
        stepscope capture 9012 2000\n\n\
        The program must run a profiler server: stepscope's, jax.profiler.start_server(9012),\n\
        xp.start_server(9012) or tf.profiler.experimental.server.start(9012).\n\
        CTRL+C ends the capture early and keeps the data; a second CTRL+C discards it.\n\
        With --perfetto, the trace is also written for ui.perfetto.dev, and served on port 9001 of this\n\
        machine until the browser has fetched it. docs/reference/capture.md describes the fields of --json."
)]
pub struct CaptureArgs {
    /// Addresses of the profiler servers: host:port or a port, separated by commas
    #[arg(value_name = "ADDR[,ADDR]")]
    pub addresses: String,
    /// Duration in milliseconds, as the second argument: stepscope capture PORT MS
    #[arg(value_name = "MS", conflicts_with_all = ["duration_ms", "last"], value_parser = interval_ms)]
    pub ms: Option<u64>,
    /// Duration in milliseconds
    #[arg(long, value_name = "N", conflicts_with = "last", value_parser = interval_ms)]
    pub duration_ms: Option<u64>,
    /// The last part of a flight recorder instead, such as 10s or 500ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub last: Option<Duration>,
    /// Log directory [default with MS: a new directory, which is printed]
    #[arg(long, alias = "log_dir", alias = "log-dir", value_name = "DIR")]
    pub logdir: Option<PathBuf>,
    /// Name of the session [default: the local time]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Delay before the capture, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub delay_ms: u64,
    /// Retries for hosts that recorded nothing, are busy or do not answer yet
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// How long a host may take to send its data, beyond the duration
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub timeout: Duration,
    /// How long a host may take to answer the first request
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub connect_timeout: Duration,
    /// 0: no host events, 1: annotations of the user, 2: also of the framework, 3: all
    #[arg(
        long,
        alias = "host_tracer_level",
        value_name = "N",
        default_value_t = 2
    )]
    pub host_tracer_level: u32,
    /// 0: no Python calls, 1: Python calls
    #[arg(
        long,
        alias = "python_tracer_level",
        value_name = "N",
        default_value_t = 1
    )]
    pub python_tracer_level: u32,
    /// Sample Python stacks at this rate instead of tracing calls; stepscope's programs only
    #[arg(long, value_name = "HZ", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub python_sampling_hz: u32,
    /// 0: no device events, 1: device events
    #[arg(
        long,
        alias = "device_tracer_level",
        value_name = "N",
        default_value_t = 1
    )]
    pub device_tracer_level: u32,
    /// Maximum number of events, if the program's profiler has such a limit
    #[arg(long, value_name = "N")]
    pub max_events: Option<u64>,
    /// Option of the program's profiler; repeatable
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = option)]
    pub options: Vec<(String, OptionValue)>,
    /// Host of the addresses that are a port only
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    pub host: String,
    /// Also write HOST.pftrace, and open it in the Perfetto viewer
    #[arg(long)]
    pub perfetto: bool,
    /// With --perfetto: write the file only
    #[arg(long, alias = "no_perfetto_link")]
    pub no_perfetto_link: bool,
    /// With --perfetto: how long to wait for the browser
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    pub perfetto_timeout: Duration,
    /// Print the result as JSON (stable and documented)
    #[arg(long)]
    pub json: bool,
}

/// `stepscope recover`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stepscope recover LOGDIR\n\n\
        A program that is killed while it records leaves a journal in its session folder. This command\n\
        turns each journal into a run, marked as recovered. Journals of running programs stay.\n\
        'stepscope view' and 'stepscope info' do the same.")]
pub struct Recover {
    /// Log directory of the program
    #[arg(value_name = "LOGDIR")]
    pub logdir: PathBuf,
}

/// `stepscope peaks`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope peaks --device cpu    measure this machine's processor\n  \
        stepscope peaks --json          the same, as JSON\n\n\
        Measures matrix products and a copy of main memory on all cores, for a few seconds, and stores \
        the rates under the processor's model. 'stepscope report RUN roofline' uses them for runs of this \
        processor; with --measured-peaks, also for runs that do not name theirs. The peaks of GPUs and TPUs \
        come from the trace file and from a table: docs/reference/peaks.md.")]
pub struct Peaks {
    /// Device to measure
    #[arg(long, value_enum, default_value_t = PeakDevice::Cpu)]
    pub device: PeakDevice,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Device whose peaks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeakDevice {
    /// The processor of this machine.
    Cpu,
    /// A GPU: its peaks are not measured.
    Gpu,
}

/// Options of all commands that read traces.
#[derive(Clone, Copy, Debug, Args)]
pub struct Reading {
    /// Neither read nor write the import cache
    #[arg(long)]
    pub no_cache: bool,
    /// Maximum size of a decompressed file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = stepscope_model::Limits::default().max_inflated_bytes)]
    pub max_inflated_bytes: u64,
    /// Maximum ratio of decompressed to compressed size, checked beyond 64 MiB
    #[arg(long, value_name = "N", default_value_t = stepscope_model::Limits::default().max_inflate_ratio)]
    pub max_inflate_ratio: u64,
}

impl Default for Reading {
    fn default() -> Self {
        let limits = stepscope_model::Limits::default();
        Self {
            no_cache: false,
            max_inflated_bytes: limits.max_inflated_bytes,
            max_inflate_ratio: limits.max_inflate_ratio,
        }
    }
}

impl Reading {
    /// Returns the limits for readers.
    pub fn limits(self) -> stepscope_model::Limits {
        stepscope_model::Limits {
            max_inflated_bytes: self.max_inflated_bytes,
            max_inflate_ratio: self.max_inflate_ratio,
            ..stepscope_model::Limits::default()
        }
    }
}

/// Options of `view` whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "--port",
    "--host",
    "--token",
    "--token-file",
    "--host-name",
    "--capture-to",
    "--allow-capture",
];

/// Returns the definition of the command line, for completion scripts and man pages.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Lists the names of the commands.
fn commands() -> Vec<String> {
    let definition = definition();
    let names = definition.get_subcommands().map(clap::Command::get_name);
    names.map(str::to_owned).collect()
}

/// Parses the command line. Returns `None` if help or the version was requested, after printing it
/// to `out`.
pub fn parse(arguments: Vec<OsString>, out: &mut dyn Write) -> Result<Option<Command>, CliError> {
    if let Some(word) = first_word(arguments.get(1..).unwrap_or_default()) {
        check_word(word)?;
    }
    match Cli::try_parse_from(arguments) {
        Ok(cli) => Ok(Some(cli.command.unwrap_or(Command::View(cli.view)))),
        Err(error) if !error.use_stderr() => {
            write!(out, "{}", error.render())?;
            Ok(None)
        }
        Err(error) => Err(CliError::usage(one_line(&error.render().to_string()))),
    }
}

/// Returns the first word that is neither an option nor an option's value.
fn first_word(arguments: &[OsString]) -> Option<&OsStr> {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str() else {
            return Some(word);
        };
        if text == "--" {
            return None;
        }
        if WITH_VALUE.contains(&text) {
            words.next();
        } else if !text.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// Rejects a first word that looks like a command and is not a path.
fn check_word(word: &OsStr) -> Result<(), CliError> {
    let Some(text) = word.to_str() else {
        return Ok(());
    };
    let commands = commands();
    if commands.iter().any(|command| command == text) || Path::new(text).exists() {
        return Ok(());
    }
    // A separator or an extension marks a path.
    if text.contains(['/', '\\', '.']) {
        return Ok(());
    }
    // Longer words resemble no command.
    let text_head: String = text.chars().take(32).collect();
    let nearest = commands
        .iter()
        .min_by_key(|command| edits(&text_head, command));
    match nearest {
        Some(command) if edits(&text_head, command) <= (command.len() / 3).max(1) => {
            Err(CliError::usage(format!(
                "cannot run '{text}': no such command or path\nhelp: did you mean 'stepscope {command}'?"
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the first paragraph of the parser's message as one line, with a pointer to the help.
fn one_line(text: &str) -> String {
    let first: Vec<_> = text
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    let first = first.join(" ");
    let said = first.strip_prefix("error: ").unwrap_or(&first);
    let usage = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Usage: "))
        .and_then(|usage| usage.split_whitespace().nth(1))
        .filter(|word| commands().iter().any(|command| command == word));
    let of = usage.map_or_else(String::new, |command| format!(" {command}"));
    format!("{said}\nhelp: see 'stepscope{of} --help'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Command>, CliError> {
        let words = std::iter::once("stepscope").chain(line.split_whitespace());
        parse(words.map(OsString::from).collect(), &mut Vec::new())
    }

    fn usage(line: &str) -> String {
        match parsed(line) {
            Err(CliError::Usage { text }) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn view_needs_no_word() {
        for line in [
            "--port=9000 logs",
            "--port 9000 logs",
            "logs --port 9000",
            "view logs --port 9000",
        ] {
            let Ok(Some(Command::View(view))) = parsed(line) else {
                panic!("{line}");
            };
            assert_eq!((view.port, view.paths), (9000, vec![PathBuf::from("logs")]));
        }
        let Ok(Some(Command::View(view))) = parsed("") else {
            panic!();
        };
        assert_eq!((view.port, view.paths.len()), (8791, 0));
        assert!(view.host.is_loopback() && !view.open && view.token.is_none());
        assert!(view.capture_to.is_empty() && view.host_name.is_empty());
    }

    #[test]
    fn captures_beyond_this_machine_are_named_one_by_one() {
        let line = "--capture-to trainer.lan --capture-to [2001:db8::7] --capture-to 10.0.0.7 logs";
        let Ok(Some(Command::View(view))) = parsed(line) else {
            panic!();
        };
        assert_eq!(
            view.capture_to,
            ["trainer.lan", "[2001:db8::7]", "10.0.0.7"]
        );
        assert_eq!(view.paths, vec![PathBuf::from("logs")]);
        for wrong in ["trainer.lan:9012", "grpc://a", "10.0.0.0/8", "*"] {
            let line = usage(&format!("view --capture-to {wrong}"));
            assert!(line.contains("without a port"), "{line}");
        }
    }

    #[test]
    fn words_that_look_like_commands_are_named() {
        assert_eq!(
            usage("inof x"),
            "cannot run 'inof': no such command or path\nhelp: did you mean 'stepscope info'?"
        );
        assert_eq!(
            usage("--port 1 reprot"),
            "cannot run 'reprot': no such command or path\nhelp: did you mean 'stepscope report'?"
        );
        // A word that resembles nothing is taken for a path.
        assert!(matches!(parsed("logs"), Ok(Some(Command::View(_)))));
        assert!(matches!(parsed("./inof"), Ok(Some(Command::View(_)))));
    }

    fn capture(line: &str) -> CaptureArgs {
        match parsed(line) {
            Ok(Some(Command::Capture(capture))) => capture,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_capture_is_asked_for_in_two_shapes() {
        let ours = capture("capture a:1,b:2 --duration-ms 500 --logdir logs --option x=1");
        assert_eq!(ours.addresses, "a:1,b:2");
        assert_eq!(
            (ours.duration_ms, ours.ms, ours.last),
            (Some(500), None, None)
        );
        assert_eq!(ours.options, [("x".to_owned(), OptionValue::Int(1))]);
        let theirs = capture("capture 9012 2000 --log_dir logs --no_perfetto_link --host h");
        assert_eq!(
            (theirs.ms, theirs.logdir),
            (Some(2_000), Some("logs".into()))
        );
        assert!(theirs.no_perfetto_link && theirs.host == "h");
        let past = capture("capture :9012 --last 1.5min --timeout 5 --logdir logs");
        assert_eq!(past.last, Some(Duration::from_secs(90)));
        assert_eq!(past.timeout, Duration::from_secs(5));
        for (line, said) in [
            ("capture", "<ADDR[,ADDR]>"),
            ("capture a:1 --duration-ms 0 --logdir d", "at least 1 ms"),
            ("capture a:1 --duration-ms -5 --logdir d", "-5"),
            ("capture a:1 100 --last 1s", "cannot be used with"),
            ("capture a:1 --last 1parsec", "give a time such as"),
            ("capture a:1 100 --option =1", "KEY=VALUE"),
            ("capture a:1 100 --option x", "KEY=VALUE"),
        ] {
            let line = usage(line);
            assert!(line.contains(said), "{line}");
        }
    }

    #[test]
    fn usage_errors_have_a_cause_and_a_help_line() {
        assert_eq!(
            usage("info"),
            "the following required arguments were not provided: <PATH>\nhelp: see 'stepscope info --help'"
        );
        assert_eq!(
            usage("--nope"),
            "unexpected argument '--nope' found\nhelp: see 'stepscope --help'"
        );
        let line = usage("view --port 99999");
        assert!(
            line.starts_with("invalid value '99999' for '--port <PORT>'")
                && line.lines().count() == 2,
            "{line}"
        );
    }
}
