//! What was asked: the command line as types.
//!
//! `stepscope LOGDIR` is `stepscope view LOGDIR`, so the first word may be a path or a command. A
//! word that is neither, but looks like a command, is refused by name instead of being looked for
//! as a path.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::CliError;

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
    /// Secret that other machines must present [default: a new one when --host is not this machine]
    #[arg(long, value_name = "TEXT")]
    pub token: Option<String>,
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
        stepscope report LOGDIR steps --by step --format csv\n\n\
        Kinds: steps (how long the steps took, and the share of each label).\n\
        A directory with several runs: the newest, or the one that --run names.")]
pub struct Report {
    /// A trace file, a session's folder or a log directory
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Which analysis
    #[arg(value_name = "KIND", default_value = "steps")]
    pub kind: String,
    /// What the rows are
    #[arg(long, value_enum, default_value_t = By::Label)]
    pub by: By,
    /// Most rows
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub top: usize,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Name or id of one run of a directory
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// How files are read.
    #[command(flatten)]
    pub reading: Reading,
}

/// Rows of the `steps` report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One row for each label inside the steps.
    Label,
    /// One row for each step.
    Step,
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
}

/// `stepscope convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  stepscope convert vm.xplane.pb trace.json.gz\n  \
        stepscope convert trace.json.gz trace.pftrace\n\n\
        The extension of OUT decides: .xplane.pb, .json, .json.gz, .pftrace.\n\
        OUT appears when it is whole; IN is never overwritten."
)]
pub struct Convert {
    /// A trace file, or a folder that holds one run
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// File to be written
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// How files are read.
    #[command(flatten)]
    pub reading: Reading,
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

fn host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    text.parse().map_err(|_no_address| {
        "not an IP address; 127.0.0.1 is this machine, 0.0.0.0 is every network".to_owned()
    })
}

fn capture_host(text: &str) -> Result<String, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_address = bare.unwrap_or(text).parse::<IpAddr>().is_ok();
    if is_address || !text.is_empty() && text.len() <= 253 && text.chars().all(is_name) {
        return Ok(text.to_owned());
    }
    Err("neither a name nor an address; write it without a port and without grpc://".to_owned())
}

/// Commands of this version.
const COMMANDS: &[&str] = &["view", "info", "report", "convert", "recover"];
/// Commands that the documentation promises for later.
const NOT_BUILT: &[&str] = &["capture", "query", "compare", "run", "doctor"];
/// Options of `view` whose value is the next word.
const WITH_VALUE: &[&str] = &["--port", "--host", "--token", "--capture-to"];

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
            "'stepscope {text}' is not built into this version, see 'stepscope --help' for what is"
        )));
    }
    // A path says so by a separator or an extension.
    if text.contains(['/', '\\', '.']) {
        return Ok(());
    }
    let all = COMMANDS.iter().chain(NOT_BUILT);
    let nearest = all.min_by_key(|command| distance(text, command));
    match nearest {
        Some(command) if distance(text, command) <= (command.len() / 3).max(1) => {
            Err(CliError::usage(format!(
                "no command and no path '{text}', did you mean 'stepscope {command}'?"
            )))
        }
        _ => Ok(()),
    }
}

/// Letters to insert, remove, replace or swap with a neighbour to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(32).collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
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
    format!("{said}, see 'stepscope{of} --help'")
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
            Err(CliError::Usage { line }) => line,
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
            "no command and no path 'inof', did you mean 'stepscope info'?"
        );
        assert_eq!(
            usage("--port 1 reprot"),
            "no command and no path 'reprot', did you mean 'stepscope report'?"
        );
        assert_eq!(
            usage("capture localhost:1 --duration-ms 5"),
            "'stepscope capture' is not built into this version, see 'stepscope --help' for what is"
        );
        // A word that resembles nothing is taken for a path.
        assert!(matches!(parsed("logs"), Ok(Some(Command::View(_)))));
        assert!(matches!(parsed("./inof"), Ok(Some(Command::View(_)))));
    }

    #[test]
    fn usage_errors_are_one_line() {
        assert_eq!(
            usage("info"),
            "the following required arguments were not provided: <PATH>, see 'stepscope info --help'"
        );
        assert_eq!(
            usage("--nope"),
            "unexpected argument '--nope' found, see 'stepscope --help'"
        );
        let line = usage("view --port 99999");
        assert!(
            line.starts_with("invalid value '99999' for '--port <PORT>'") && !line.contains('\n'),
            "{line}"
        );
    }
}
