//! `stepscope-sql`: answers queries over a pipe, or at a prompt. `stepscope query` starts it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command talks on the terminal"
)]

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;
use stepscope_engine::report::report::Unit;
use stepscope_engine::report::report::number_format::with_unit;
use stepscope_engine::{CopiedFile, RunChoice, SqlRun};
use stepscope_sql::cluster::executor::Offer;
use stepscope_sql::cluster::{self, Cluster, Listen};
use stepscope_sql::export::{self, ArgsChoice, Progress};
use stepscope_sql::locked::MemoryLimits;
use stepscope_sql::runtime::runtime;
use stepscope_sql::schema_table;
use stepscope_sql::serve;
use stepscope_sql::session::{Limits, Session};
use stepscope_sql::shell;

/// Usual ports of the processes of a cluster; an executor has two.
const SCHEDULER_PORT: u16 = 50_050;
const EXECUTOR_PORT: u16 = 50_051;

const HELP: &str = "\
The SQL engine of stepscope. 'stepscope query' finds and starts it:

  stepscope query RUN \"SELECT name, count(*) FROM slices GROUP BY name\"

Usage:
  stepscope-sql --handshake                     print versions as JSON
  stepscope-sql --tables [TABLE]                print tables and columns
  stepscope-sql serve [--memory BYTES]          answer queries over stdin and stdout
  stepscope-sql export --dataset FOLDER [--args none|all|KEY,...] [--shard I/N] [--run NAME]
                       [--by-file [--file N] | --join] [--cluster df://HOST:PORT] [--json] [--no-cache] RUN...
  stepscope-sql shell [--memory BYTES] [--timeout-ms MS] [--rows N] [--no-cache] [--history FILE]
                      [--cluster df://HOST:PORT] RUN...

Several machines that see the same files below the same paths share exports, and queries of datasets:
  stepscope-sql scheduler [--bind 127.0.0.1:50050] [--advertise HOST] [--trusted-network] [--log]
  stepscope-sql executor --scheduler df://HOST:PORT [--bind 127.0.0.1:50051] [--advertise HOST]
                         [--cores N] [--memory BYTES] [--work-dir FOLDER] [--trusted-network] [--log]
  stepscope export LOGDIR dataset --cluster df://HOST:PORT
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("--help", &[][..]),
    };
    let result = match command {
        "--handshake" => {
            println!("{}", serve::hello());
            Ok(())
        }
        "--tables" => match schema_table::as_text(rest.first().map(String::as_str)) {
            Some(text) => {
                print!("{text}");
                Ok(())
            }
            None => Err("cannot print the table: there is none of this name\nhelp: 'stepscope query --tables' lists them".to_owned()),
        },
        "serve" => Options::parse(rest).and_then(|options| {
            serve::serve(options.memory()).map_err(|error| format!("cannot answer: {error}"))
        }),
        "export" => Options::parse(rest).and_then(|options| export(&options)),
        "scheduler" => Options::parse(rest).and_then(|options| start_scheduler(&options)),
        "executor" => Options::parse(rest).and_then(|options| start_executor(&options)),
        "shell" => Options::parse(rest).and_then(|options| start_shell(&options)),
        "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        "--version" => {
            println!("stepscope-sql {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        other => Err(format!("cannot run '{other}': no such command\nhelp: stepscope-sql --help")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Options {
    memory: Option<usize>,
    timeout_ms: Option<u64>,
    rows: Option<usize>,
    no_cache: bool,
    history: Option<PathBuf>,
    dataset: Option<PathBuf>,
    args: Option<String>,
    choice: RunChoice,
    unit: export::ExportUnit,
    listed: bool,
    json: bool,
    cluster: Option<Cluster>,
    process: ProcessOptions,
    paths: Vec<PathBuf>,
}

/// Options of a scheduler and of an executor.
#[derive(Default)]
struct ProcessOptions {
    bind: Option<SocketAddr>,
    advertise: Option<String>,
    trusted_network: bool,
    cores: Option<usize>,
    work_dir: Option<PathBuf>,
    log: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let value = rest.next();
                value.ok_or_else(|| format!("cannot read {argument}: it has no value"))
            };
            match argument.as_str() {
                "--memory" => options.memory = Some(parsed(argument, value()?)?),
                "--timeout-ms" => options.timeout_ms = Some(parsed(argument, value()?)?),
                "--rows" => options.rows = Some(parsed(argument, value()?)?),
                "--history" => options.history = Some(value()?.into()),
                "--dataset" => options.dataset = Some(value()?.into()),
                "--args" => options.args = Some(value()?.clone()),
                "--shard" => {
                    let shard = value()?.parse();
                    options.choice.shard =
                        shard.map_err(|error| format!("cannot read --shard: {error}"))?;
                }
                "--run" => options.choice.runs.push(value()?.clone()),
                "--cluster" | "--scheduler" => options.cluster = Some(value()?.parse()?),
                "--bind" => options.process.bind = Some(parsed(argument, value()?)?),
                "--advertise" => options.process.advertise = Some(value()?.clone()),
                "--cores" => options.process.cores = Some(parsed(argument, value()?)?),
                "--work-dir" => options.process.work_dir = Some(value()?.into()),
                "--trusted-network" => options.process.trusted_network = true,
                "--log" => options.process.log = true,
                "--file" => options.choice.files.push(parsed(argument, value()?)?),
                "--by-file" => options.unit = export::ExportUnit::File,
                "--join" => options.unit = export::ExportUnit::Join,
                "--listed" => options.listed = true,
                "--json" => options.json = true,
                "--no-cache" => options.no_cache = true,
                path => options.paths.push(path.into()),
            }
        }
        Ok(options)
    }

    /// Returns the runs of the paths, and those that the input lists.
    fn sources(&self) -> Result<Vec<SqlRun>, String> {
        let mut sources: Vec<SqlRun> = self.paths.iter().cloned().map(SqlRun::Path).collect();
        if self.unit == export::ExportUnit::Run {
            sources.extend(self.list("runs")?);
        }
        Ok(sources)
    }

    /// Returns the files of divided runs that the input lists.
    fn copied(&self) -> Result<Vec<CopiedFile>, String> {
        match self.unit {
            export::ExportUnit::Run => Ok(Vec::new()),
            export::ExportUnit::File | export::ExportUnit::Join => self.list("files"),
        }
    }

    /// Reads the list on the input, if there is one.
    fn list<T: DeserializeOwned>(&self, what: &str) -> Result<Vec<T>, String> {
        if !self.listed {
            return Ok(Vec::new());
        }
        serde_json::from_reader(std::io::stdin().lock())
            .map_err(|error| format!("cannot read the list of {what}: {error}"))
    }

    /// Returns where a process of a cluster listens.
    fn listen(&self, port: u16) -> Listen {
        let usual = SocketAddr::from(([127, 0, 0, 1], port));
        Listen {
            bind: self.process.bind.unwrap_or(usual),
            advertise: self.process.advertise.clone(),
            trusted_network: self.process.trusted_network,
        }
    }

    fn memory(&self) -> MemoryLimits {
        let usual = MemoryLimits::default();
        MemoryLimits {
            pool_bytes: self.memory.unwrap_or(usual.pool_bytes),
        }
    }
}

fn parsed<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_wrong| format!("cannot read {option} {text}: the value is not valid"))
}

/// Exports runs, and prints a line for each.
fn export(options: &Options) -> Result<(), String> {
    let dataset = options
        .dataset
        .as_ref()
        .ok_or("cannot export: no folder is named\nhelp: --dataset FOLDER")?;
    let choice = options.args.as_deref().unwrap_or("none");
    let asked = export::Options {
        unit: options.unit,
        args: ArgsChoice::parse(choice),
        use_cache: !options.no_cache,
        choice: options.choice.clone(),
        copied: options.copied()?,
    };
    let mut done = ExportTotals::default();
    let mut report = |progress| done.add(progress, options.json);
    let sources = options.sources()?;
    let on_cluster = options
        .cluster
        .as_ref()
        .filter(|_| asked.unit != export::ExportUnit::Join);
    let result = match on_cluster {
        None => export::export(&sources, dataset, &asked, &mut report),
        Some(cluster) => {
            let show = std::io::stderr().is_terminal();
            let what = match asked.unit {
                export::ExportUnit::File => "files",
                export::ExportUnit::Run | export::ExportUnit::Join => "runs",
            };
            let mut waiting = |done: usize, all: usize| {
                if show {
                    eprint!("\r{done} of {all} {what}");
                }
            };
            let threads = runtime().map_err(|error| format!("cannot export: {error}"))?;
            let exported = cluster::export(
                cluster,
                &sources,
                dataset,
                &asked,
                &mut report,
                &mut waiting,
            );
            let exported = threads.block_on(exported);
            if show {
                // The lines of the runs take the place of the count.
                eprint!("\r\x1b[K");
            }
            exported.and_then(|()| {
                if asked.joins() {
                    export::join(&sources, dataset, &asked, &mut report)?;
                }
                Ok(())
            })
        }
    };
    result.map_err(|error| error.to_string())?;
    if !options.json {
        done.print();
    }
    if done.failed > 0 {
        let verb = match asked.unit {
            export::ExportUnit::Join => "join",
            export::ExportUnit::Run | export::ExportUnit::File => "export",
        };
        return Err(format!(
            "cannot {verb} all runs: {} failed, with the causes above\n\
             help: repeat the command for them; runs that are in the dataset are not written again",
            done.failed
        ));
    }
    Ok(())
}

/// What an export did.
#[derive(Default)]
struct ExportTotals {
    runs: ExportCount,
    /// Of files of runs that are divided.
    files: ExportCount,
    failed: u64,
}

/// Number and size of runs or files.
#[derive(Default)]
struct ExportCount {
    exported: u64,
    present: u64,
    slices: u64,
    bytes: u64,
}

impl ExportCount {
    fn is_empty(&self) -> bool {
        self.exported + self.present == 0
    }

    fn print(&self, what: &str) {
        println!(
            "{what}exported: {}, present: {}, {}",
            self.exported,
            self.present,
            sizes(self.slices, self.bytes)
        );
    }
}

impl ExportTotals {
    fn count(&mut self, file: Option<u32>) -> &mut ExportCount {
        if file.is_some() {
            &mut self.files
        } else {
            &mut self.runs
        }
    }

    /// Counts what was done, and prints a line for it.
    fn add(&mut self, progress: Progress, as_json: bool) {
        let (run, file, state, made) = match progress {
            Progress::Exported {
                run,
                file,
                slices,
                bytes,
            } => {
                let count = self.count(file);
                count.exported += 1;
                count.slices += slices;
                count.bytes += bytes;
                (run, file, "exported", Some((slices, bytes)))
            }
            Progress::Present { run, file } => {
                self.count(file).present += 1;
                (run, file, "present", None)
            }
            Progress::Failed { run, cause } => {
                self.failed += 1;
                eprintln!("Failed: {run}: {cause}");
                if as_json {
                    let line = json!({"run": run, "state": "failed", "error": cause});
                    println!("{line}");
                }
                return;
            }
            Progress::Problem(text) => {
                eprintln!("Not whole: {text}");
                return;
            }
            Progress::Warning(text) => {
                eprintln!("Warning: {text}");
                return;
            }
        };
        if as_json {
            let mut line = json!({"run": run, "state": state});
            if let Some(file) = file {
                line["file"] = file.into();
            }
            if let Some((slices, bytes)) = made {
                line["slices"] = slices.into();
                line["bytes"] = bytes.into();
            }
            println!("{line}");
            return;
        }
        let file = file.map_or_else(String::new, |file| format!(", file {file}"));
        let made = made.map_or_else(|| state.to_owned(), |(slices, bytes)| sizes(slices, bytes));
        println!("{run}{file}: {made}");
    }

    fn print(&self) {
        if !self.files.is_empty() {
            self.files.print("files ");
        }
        if !self.runs.is_empty() || self.files.is_empty() {
            self.runs.print("");
        }
    }
}

fn sizes(slices: u64, bytes: u64) -> String {
    let number = |value: u64, unit| with_unit(value as f64, i64::try_from(value).ok(), unit);
    format!(
        "{} slices, {}",
        number(slices, Unit::Count),
        number(bytes, Unit::Bytes)
    )
}

fn start_scheduler(options: &Options) -> Result<(), String> {
    cluster::log_to_stderr(options.process.log);
    cluster::scheduler::serve(&options.listen(SCHEDULER_PORT), |address| {
        println!("scheduler: {address}");
    })
}

fn start_executor(options: &Options) -> Result<(), String> {
    cluster::log_to_stderr(options.process.log);
    let scheduler = options
        .cluster
        .as_ref()
        .ok_or("cannot run an executor: no scheduler is named\nhelp: --scheduler df://HOST:PORT")?;
    let all_cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let offer = Offer {
        listen: options.listen(EXECUTOR_PORT),
        cores: options.process.cores.unwrap_or_else(all_cores),
        memory: options.memory(),
        work_dir: options.process.work_dir.clone(),
    };
    let name = scheduler.to_string();
    cluster::executor::serve(scheduler, &offer, move |address| {
        println!("executor: {address} of {name}");
    })
}

fn start_shell(options: &Options) -> Result<(), String> {
    let memory = options.memory();
    let opened = Session::open(
        &options.sources()?,
        !options.no_cache,
        memory,
        options
            .cluster
            .clone()
            .map(|cluster| Arc::new(cluster) as _),
    );
    let (session, problems) = opened.map_err(|error| match error.hint() {
        Some(hint) => format!("{error}\nhelp: {hint}"),
        None => error.to_string(),
    })?;
    for problem in problems {
        eprintln!("Not whole: {problem}");
    }
    let limits = Limits {
        rows: options.rows.unwrap_or(1_000),
        bytes: u64::MAX,
    };
    let timeout = Duration::from_millis(options.timeout_ms.unwrap_or(60_000));
    shell::run(
        &session,
        memory,
        limits,
        timeout,
        options.history.as_deref(),
    )
    .map_err(|error| format!("cannot show a prompt: {error}"))
}
