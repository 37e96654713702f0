//! The repository's developer commands: `cargo xtask demo | test | check | bench | fuzz | sanitize
//! | soak | gen | ui | dist
//! | site`.
//!
//! One file per command; [`shell`] runs programs, [`part`] collects the results of a command's
//! parts. xtask has few dependencies: it is the first crate that a newcomer compiles.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool talks on the terminal"
)]

mod assistants;
mod bench;
mod browser;
mod check;
mod conformance;
mod cycles;
mod demo;
mod dist;
mod fuzz;
mod generate;
mod laws;
mod licences;
mod lints;
mod objects;
mod package;
mod part;
mod peers;
mod programs;
mod python;
mod sanitize;
mod shell;
mod site;
mod skipped;
mod soak;
mod sql;
mod test;
mod type_names;
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
      fmt, clippy, the SQL engine, licences, layers, words, vocabulary, import circles, launchers, docs, typos, and
      lint and types of the viewer and of the Python package
  cargo xtask bench [spans|open|windows|reports|large|sql|capture|python] ...
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
      the committed code that is generated: Rust from proto/, TypeScript and Python from Rust;
      --check compares only
  cargo xtask ui [--force]
      builds the viewer (npm ci, vite) when its sources have changed
  cargo xtask dist [--check] [--sql] [--manylinux 2_28] [--tag v1.2.3] [crates|source|wheel|tarball]...
      makes what a release uploads, into target/dist; --check checks what
      needs no release build, --sql adds the SQL engine
  cargo xtask site
      the documentation as a web site, into target/site (needs mdbook)
";

/// Runs a command with the arguments after its name.
type Run = fn(&[String]) -> anyhow::Result<()>;

/// The commands.
const COMMANDS: [(&str, Run); 11] = [
    ("demo", demo::run),
    ("test", test::run),
    ("check", check::run),
    ("bench", bench::run),
    ("fuzz", fuzz::run),
    ("sanitize", sanitize::run),
    ("soak", soak::run),
    ("gen", generate::run),
    ("ui", ui::run),
    ("dist", dist::run),
    ("site", site::run),
];

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
    if ["help", "--help", "-h"].contains(&command) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let Some((_name, run)) = COMMANDS.iter().find(|(name, _run)| *name == command) else {
        eprintln!(
            "error: cannot run '{command}': there is no such command\nhelp: 'cargo xtask help' lists the commands"
        );
        return ExitCode::from(2);
    };
    match run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
