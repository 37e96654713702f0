//! What was asked: the command line as types.
//!
//! `stepscope LOGDIR` is `stepscope view LOGDIR`, so the first word may be a path or a command. A
//! word that is neither, but looks like a command, is refused by name instead of being looked for
//! as a path.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use stepscope_model::Dur;
use stepscope_model::spelling::edits;
use stepscope_remote::OptionValue;

use crate::error::CliError;

mod values;

use values::{capture_host, host, interval_ms, moment, option, step_numbers, time};

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
        stepscope --port=8791 LOGDIR        look at the runs below LOGDIR in a browser\n  \
        stepscope info trace.json.gz        what is in a trace\n  \
        stepscope report LOGDIR steps       how long the steps took, and where the time went\n  \
        stepscope COMMAND --help            all about one command"
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
    /// Say what is in a trace or a log directory
    Info(Info),
    /// Print an analysis as text
    Report(Report),
    /// Write a trace in another format
    Convert(Convert),
    /// Capture from running programs: ours, JAX, PyTorch/XLA, TensorFlow
    Capture(Capture),
    /// Turn what killed programs left into runs
    Recover(Recover),
}

/// `stepscope view`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stepscope view LOGDIR --port 8791 --open\n\n\
        Prints the log directory, the port and the address, and serves until CTRL+C.\n\
        New runs appear by themselves. Nothing leaves this machine."
)]
pub struct View {
    /// Log directories and trace files [default: the current directory]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8791)]
    pub port: u16,
    /// Address to listen on; beyond this machine a token is needed, see --token
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = host)]
    pub host: IpAddr,
    /// Open the viewer in the browser
    #[arg(long)]
    pub open: bool,
    /// Let the viewer capture from HOST, a name or an address without a port; may be repeated
    /// [default: only programs on this machine]
    #[arg(long, value_name = "HOST", value_parser = capture_host)]
    pub capture_to: Vec<String>,
    /// Secret that other machines must present.
    #[arg(
        long,
        value_name = "TEXT",
        help = "Secret that other machines must present; other users of this machine see it in the list of \
            processes [default: STEPSCOPE_TOKEN, else a new one when --host is not this machine]"
    )]
    pub token: Option<String>,
    /// File with that secret
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
}

/// `stepscope info`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope info plugins/profile/2026_11_20_15_24_16\n  \
        stepscope info trace.json.gz --json | python3 -m json.tool\n\n\
        With a directory every run in it is read. The fields of --json stand in docs/reference/info.md."
)]
pub struct Info {
    /// A trace file, a session's folder or a log directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Everything as JSON, for programs; stable and documented
    #[arg(long)]
    pub json: bool,
    /// How files are read.
    #[command(flatten)]
    pub reading: Reading,
}

/// `stepscope report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepscope report LOGDIR steps\n  \
        stepscope report LOGDIR steps --by step --format csv\n  \
        stepscope report LOGDIR ops --steps 13-21\n  \
        stepscope report LOGDIR all --format html > report.html\n  \
        stepscope report list\n\n\
        'all' makes every report, as one HTML file that needs nothing else.\n\
        A directory with several runs: the newest, or the one that --run names.")]
pub struct Report {
    /// A trace file, a session's folder or a log directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Which analysis; 'list' tells all of them and what they answer, 'all' is one page of all
    #[arg(value_name = "KIND", default_value = "steps")]
    pub kind: String,
    /// What the rows are; each kind has its own, 'list' tells them
    #[arg(long, value_name = "WHAT")]
    pub by: Option<String>,
    /// Most rows
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub top: usize,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Name or id of one run of a directory
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Only these steps, by the numbers that the program gave them
    #[arg(long, value_name = "N[-M]", value_parser = step_numbers, conflicts_with_all = ["from", "to"])]
    pub steps: Option<RangeInclusive<i64>>,
    /// Only what is after this moment, counted from the begin of the run, such as 1.2s or 965ms
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Dur>,
    /// Only what is before this moment
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Dur>,
    /// Where no step is marked, let nothing that repeats stand for steps
    #[arg(long)]
    pub marked_only: bool,
    /// How files are read.
    #[command(flatten)]
    pub reading: Reading,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For spreadsheets; units in the titles.
    Csv,
    /// `{"report","rows":[…],"notes":[…]}`, units in the keys.
    Json,
    /// For issues and pages.
    Md,
    /// One file for a browser or a printer, that works without a network.
    Html,
}

/// `stepscope convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope convert vm.xplane.pb trace.json.gz\n  \
        stepscope convert trace.json.gz trace.pftrace\n  \
        stepscope convert trace.json.gz events.parquet\n\n\
        The extension of OUT decides: .xplane.pb, .json, .json.gz, .pftrace; .csv and\n\
        .parquet hold the events as rows.\n\
        OUT appears when it is whole; IN is never overwritten."
)]
pub struct Convert {
    /// A trace file, or a folder that holds one run
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// File to be written
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Write it even when it becomes far larger than what is read
    #[arg(long)]
    pub large: bool,
    /// How files are read.
    #[command(flatten)]
    pub reading: Reading,
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
        CTRL+C ends the capture early and keeps the data; twice gives it up.\n\
        With --perfetto, the trace is also written for ui.perfetto.dev, and waits on port 9001 of this\n\
        machine until its page has fetched it. The fields of --json stand in docs/reference/capture.md."
)]
pub struct Capture {
    /// Where the programs listen: host:port or a port alone, several with commas
    #[arg(value_name = "ADDR[,ADDR]")]
    pub addresses: String,
    /// The interval in milliseconds, as the second word: stepscope capture PORT MS
    #[arg(value_name = "MS", conflicts_with_all = ["duration_ms", "last"], value_parser = interval_ms)]
    pub ms: Option<u64>,
    /// The interval in milliseconds
    #[arg(long, value_name = "N", conflicts_with = "last", value_parser = interval_ms)]
    pub duration_ms: Option<u64>,
    /// What has just happened: of programs that keep the last seconds, such as 10s or 500ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub last: Option<Duration>,
    /// The log directory [with MS: a new directory, which is printed]
    #[arg(long, alias = "log_dir", alias = "log-dir", value_name = "DIR")]
    pub logdir: Option<PathBuf>,
    /// Name of the session [default: the local time]
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Wait so long before the interval begins
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub delay_ms: u64,
    /// Further attempts for hosts that recorded nothing, are busy or do not answer yet
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// How much longer than the interval a host may take to give its data
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub timeout: Duration,
    /// Within this time a host must have answered once
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = time)]
    pub connect_timeout: Duration,
    /// 0 nothing of the host, 1 the user's annotations, 2 also the framework's, 3 everything
    #[arg(
        long,
        alias = "host_tracer_level",
        value_name = "N",
        default_value_t = 2
    )]
    pub host_tracer_level: u32,
    /// 0 no Python calls, 1 Python calls
    #[arg(
        long,
        alias = "python_tracer_level",
        value_name = "N",
        default_value_t = 1
    )]
    pub python_tracer_level: u32,
    /// Python stacks instead of calls, so many times a second; of programs that this profiler records
    #[arg(long, value_name = "HZ", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub python_sampling_hz: u32,
    /// 0 no devices, 1 devices
    #[arg(
        long,
        alias = "device_tracer_level",
        value_name = "N",
        default_value_t = 1
    )]
    pub device_tracer_level: u32,
    /// Most events, where the program's profiler has such a limit
    #[arg(long, value_name = "N")]
    pub max_events: Option<u64>,
    /// An option that only some profilers know; may be repeated
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = option)]
    pub options: Vec<(String, OptionValue)>,
    /// The host of an address that is a port alone
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    pub host: String,
    /// Also write HOST.pftrace, and hand it to the Perfetto viewer in the browser
    #[arg(long)]
    pub perfetto: bool,
    /// With --perfetto: write the file, and do not wait for the browser
    #[arg(long, alias = "no_perfetto_link")]
    pub no_perfetto_link: bool,
    /// With --perfetto: how long the file waits for the browser
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time)]
    pub perfetto_timeout: Duration,
    /// The result as JSON, for programs; stable and documented
    #[arg(long)]
    pub json: bool,
}

/// `stepscope recover`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stepscope recover LOGDIR\n\n\
        A program that was killed while it recorded leaves a journal beside its session. This turns\n\
        each into an ordinary run, marked as recovered; programs that still run are left alone.\n\
        Opening the directory with 'stepscope view' or 'info' does the same.")]
pub struct Recover {
    /// The directory that the program recorded into
    #[arg(value_name = "LOGDIR")]
    pub logdir: PathBuf,
}

/// Options of everything that reads traces.
#[derive(Clone, Copy, Debug, Args)]
pub struct Reading {
    /// Read the files again, and keep no import
    #[arg(long)]
    pub no_cache: bool,
    /// Most bytes that a compressed file may inflate to
    #[arg(long, value_name = "BYTES", default_value_t = stepscope_model::Limits::default().max_inflated_bytes)]
    pub max_inflated_bytes: u64,
    /// Most bytes out per compressed byte, looked at past 64 MiB
    #[arg(long, value_name = "N", default_value_t = stepscope_model::Limits::default().max_inflate_ratio)]
    pub max_inflate_ratio: u64,
}

impl Reading {
    /// As bounds for readers.
    pub fn limits(self) -> stepscope_model::Limits {
        stepscope_model::Limits {
            max_inflated_bytes: self.max_inflated_bytes,
            max_inflate_ratio: self.max_inflate_ratio,
            ..stepscope_model::Limits::default()
        }
    }
}

/// Commands of this version.
const COMMANDS: &[&str] = &["view", "info", "report", "convert", "capture", "recover"];
/// Commands that the documentation promises for later.
const NOT_BUILT: &[&str] = &["query", "compare", "run", "doctor"];
/// Options of `view` whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "--port",
    "--host",
    "--token",
    "--token-file",
    "--capture-to",
];

/// Understands the command line. `None` when help or the version was asked for: then it has been
/// printed to `out`.
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

/// The first word that is neither an option nor an option's value.
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

/// Refuses a first word that is no path and that looks like a command.
fn check_word(word: &OsStr) -> Result<(), CliError> {
    let Some(text) = word.to_str() else {
        return Ok(());
    };
    if COMMANDS.contains(&text) || Path::new(text).exists() {
        return Ok(());
    }
    if NOT_BUILT.contains(&text) {
        return Err(CliError::usage(format!(
            "cannot run 'stepscope {text}': this version does not have the command\nhelp: 'stepscope --help' lists the commands"
        )));
    }
    // A path says so by a separator or an extension.
    if text.contains(['/', '\\', '.']) {
        return Ok(());
    }
    let all = COMMANDS.iter().chain(NOT_BUILT);
    // What a file name holds past this resembles no command.
    let text_head: String = text.chars().take(32).collect();
    let nearest = all.min_by_key(|command| edits(&text_head, command));
    match nearest {
        Some(command) if edits(&text_head, command) <= (command.len() / 3).max(1) => {
            Err(CliError::usage(format!(
                "cannot run '{text}': no such command or path\nhelp: did you mean 'stepscope {command}'?"
            )))
        }
        _ => Ok(()),
    }
}

/// The parser's words as one line: its first paragraph, and where to look.
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
        .filter(|word| COMMANDS.contains(word));
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
        use clap::CommandFactory;
        Cli::command().debug_assert();
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
        assert!(view.capture_to.is_empty());
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
        assert_eq!(
            usage("compare a b"),
            "cannot run 'stepscope compare': this version does not have the command\nhelp: 'stepscope --help' lists the commands"
        );
        // A word that resembles nothing is taken for a path.
        assert!(matches!(parsed("logs"), Ok(Some(Command::View(_)))));
        assert!(matches!(parsed("./inof"), Ok(Some(Command::View(_)))));
    }

    fn capture(line: &str) -> Capture {
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
