//! The `stepscope` command.
//!
//! ```text
//! args (parsed command line) -> one module per command -> text on stdout
//!                                                      -> error: one line on stderr
//! ```
//! Reading order: [`args`], [`error`], [`text`] (formatting), then one module per command:
//! [`view`], [`run`](mod@run), [`info`], [`report`], [`compare`], [`convert`], [`capture`] (with [`interrupt`]), [`recover`], [`peaks`],
//! [`query`], [`fleet`], [`mcp`], [`skill`], [`doctor`], [`completions`].
//!
//! The feature `object-storage` (default) takes URLs of object stores and web servers wherever traces are read.
//!
//! Exit codes: 0 success, 1 the operation failed (of `doctor`: something hinders recording), 2 usage; of a gate also 3 and 4. A reader that closes our output early
//! (`| head`) is not an error. `run` ends as its program does; 126 and 127 if that cannot be started.

pub mod args;
pub mod capture;
pub mod compare;
pub mod completions;
pub mod convert;
pub mod doctor;
pub mod error;
pub mod fleet;
mod heaps;
pub mod info;
pub mod interrupt;
pub mod mcp;
pub mod peaks;
pub mod progress;
pub mod query;
pub mod recover;
pub mod report;
pub mod run;
pub mod skill;
mod staged;
pub mod text;
pub mod view;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use args::Command;
use error::CliError;

/// Runs the command with the arguments of the process.
pub fn main() -> ExitCode {
    main_with(std::env::args_os().collect()).into()
}

/// Runs the command on the process's own output; `arguments` start with the program's name. Returns
/// the exit code.
pub fn main_with(arguments: Vec<OsString>) -> u8 {
    let stdout = std::io::stdout();
    // Not locked: the server of `mcp` writes to stdout from another thread.
    let mut out = BufWriter::new(stdout);
    let outcome = run(arguments, &mut out);
    // Output before a failure must precede the error message.
    let flushed = out.flush().map_err(CliError::from);
    let outcome = outcome.and(flushed);
    // The pipe is closed: discard the buffer so that dropping it does not write again.
    let (_, _) = out.into_parts();
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            error.print(&mut std::io::stderr().lock());
            error.exit_code()
        }
    }
}

/// Runs the command; `arguments` start with the program's name.
pub fn run(arguments: Vec<OsString>, out: &mut dyn Write) -> Result<(), CliError> {
    match args::parse(arguments, out)? {
        Some(Command::View(view)) => view::run(&view, out),
        Some(Command::Run(program)) => run::run(&program),
        Some(Command::Info(info)) => info::run(&info, out),
        Some(Command::Report(report)) => report::run(&report, out),
        Some(Command::Compare(compare)) => compare::run(&compare, out),
        Some(Command::Baseline(baseline)) => compare::baseline::run(&baseline, out),
        Some(Command::Convert(convert)) => convert::run(&convert, out),
        Some(Command::Capture(capture)) => capture::run(&capture, out),
        Some(Command::Recover(recover)) => recover::run(&recover, out),
        Some(Command::Peaks(peaks)) => peaks::run(&peaks, out),
        Some(Command::Query(query)) => query::run(&query, out),
        Some(Command::Export(export)) => query::export(&export),
        Some(Command::Fleet(asked)) => fleet::run(&asked, out),
        Some(Command::Mcp(mcp)) => mcp::run(&mcp),
        Some(Command::Skill(skill)) => skill::run(&skill, out),
        Some(Command::Doctor(doctor)) => doctor::run(&doctor, out),
        Some(Command::Completions(completions)) => completions::run(&completions, out),
        Some(Command::ManPages(pages)) => completions::write_man_pages(&pages),
        // Help or version: already printed.
        None => Ok(()),
    }
}
