//! The repository's developer commands: `cargo xtask demo | test | check | bench | fuzz | sanitize
//! | soak | gen | ui`.
//!
//! One file per command; [`shell`] runs programs, [`part`] collects the results of a command's
//! parts. xtask has few dependencies: it is the first crate that a newcomer compiles.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool talks on the terminal"
)]

mod bench;
mod browser;
mod check;
mod cycles;
mod demo;
mod fuzz;
mod generate;
mod laws;
mod package;
mod part;
mod peers;
mod python;
mod sanitize;
mod shell;
mod soak;
mod sql;
mod test;
mod ui;
mod vocabulary;

use std::process::ExitCode;

const HELP: &str = "\
stepscope's developer commands

  cargo xtask demo [--no-serve] [--port N]
      builds the viewer and the release binary, trains the example,
      prints its step report and serves the viewer
  cargo xtask test [--quick] [PART]...
      every test, or those parts whose name contains PART ('capture');
      installs its requirements. --quick skips the browser, the Python
      frameworks and the captures, and reports them as not run
  cargo xtask check [PART]...
      fmt, clippy, the SQL engine, layers, words, vocabulary, import circles, docs, typos, and lint
      and types of the viewer and of the Python package
  cargo xtask bench [spans|open|windows|reports|large|capture|python] ...
      ratios to other tools, measured in the same run; writes
      benches/RESULTS.md and leaves other sections unchanged
  cargo xtask fuzz [TARGET] [--seconds 600]
      every fuzz target for ten minutes each
  cargo xtask sanitize [loom|thread|miri]
      the recorder under loom, ThreadSanitizer and Miri; a part whose tool is
      missing is not run, and reports the remedy
  cargo xtask soak [--minutes 60] [--seed 1]
      recorder, captures, server and browser for an hour with faults
      injected; memory, handles, threads and losses as a table
  cargo xtask gen [--check]
      the committed Rust generated from proto/; --check compares only
  cargo xtask ui [--force]
      builds the viewer (npm ci, vite) when its sources have changed
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("--help", &[][..]),
    };
    if rest.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let result = match command {
        "demo" => demo::run(rest),
        "test" => test::run(rest),
        "check" => check::run(rest),
        "bench" => bench::run(rest),
        "fuzz" => fuzz::run(rest),
        "sanitize" => sanitize::run(rest),
        "soak" => soak::run(rest),
        "gen" => generate::run(rest),
        "ui" => ui::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => {
            eprintln!("error: no command '{other}'; 'cargo xtask help' lists them");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
