//! `stepscope doctor`: what can be recorded on this machine, and what hinders it.
//!
//! Each check looks at one thing and returns a `Check`; a problem names the command that solves it. Checks read
//! the machine through `Machine`, so tests give them a root folder of their own.

mod cupti_version;
mod devices;
mod environment;
mod faults;
mod hosts;
mod machine;
mod python;
mod rocm;

use std::io::Write;

use serde::Serialize;

use crate::args;
use crate::error::CliError;
use crate::text::{self, clean};

use machine::Machine;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It is there and works, as far as can be seen without using it.
    Ok,
    /// It is not on this machine.
    Absent,
    /// It hinders recording.
    Problem,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Absent => "absent",
            Self::Problem => "problem",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    /// Stable name.
    id: &'static str,
    /// Title for users.
    title: &'static str,
    state: State,
    /// One sentence or version.
    found: String,
    /// What to do: a command, or a sentence with one.
    help: Option<String>,
}

impl Check {
    fn new(id: &'static str, title: &'static str, state: State, found: impl Into<String>) -> Self {
        Self {
            id,
            title,
            state,
            found: found.into(),
            help: None,
        }
    }

    fn ok(id: &'static str, title: &'static str, found: impl Into<String>) -> Self {
        Self::new(id, title, State::Ok, found)
    }

    fn absent(id: &'static str, title: &'static str, found: impl Into<String>) -> Self {
        Self::new(id, title, State::Absent, found)
    }

    fn problem(
        id: &'static str,
        title: &'static str,
        found: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self::new(id, title, State::Problem, found).with_help(help)
    }

    fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The result as JSON: see `docs/reference/doctor.md`.
#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    problems: usize,
    checks: &'a [Check],
}

/// Runs the command.
pub fn run(asked: &args::Doctor, out: &mut dyn Write) -> Result<(), CliError> {
    let machine = Machine::this();
    let checks = all(&machine, asked);
    let problems = checks
        .iter()
        .filter(|check| check.state == State::Problem)
        .count();
    if asked.json {
        let json = serde_json::to_string_pretty(&Json {
            version: env!("CARGO_PKG_VERSION"),
            problems,
            checks: &checks,
        })?;
        writeln!(out, "{}", text::clean_json(&json))?;
    } else {
        print(&checks, problems, out)?;
    }
    match problems {
        0 => Ok(()),
        // The output names them.
        _ => Err(CliError::Gate { code: 1 }),
    }
}

fn all(machine: &Machine, asked: &args::Doctor) -> Vec<Check> {
    let python = python::find(machine, asked.python.as_deref());
    let mut checks = python::checks(machine, python.as_ref());
    checks.extend(python.iter().flat_map(faults::checks));
    checks.extend(devices::checks(machine, python.as_ref().ok()));
    checks.extend(environment::checks(machine, &asked.logdir));
    checks.extend(hosts::checks(&asked.host));
    checks
}

fn print(checks: &[Check], problems: usize, out: &mut dyn Write) -> std::io::Result<()> {
    let title_chars = checks.iter().map(|check| check.title.len()).max();
    for check in checks {
        writeln!(
            out,
            "{:<7}  {:<width$}  {}",
            check.state.as_str(),
            check.title,
            clean(&check.found),
            width = title_chars.unwrap_or(0)
        )?;
        if let Some(help) = &check.help {
            writeln!(out, "         help: {}", clean(help))?;
        }
    }
    match problems {
        0 => writeln!(out, "\nNothing hinders recording."),
        1 => writeln!(out, "\n1 problem."),
        problems => writeln!(out, "\n{problems} problems."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_printed_with_their_help() {
        let checks = [
            Check::ok("python", "Python", "3.12.1"),
            Check::problem("disk", "Disk", "full", "rm -r logs"),
        ];
        let mut out = Vec::new();
        print(&checks, 1, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ok       Python  3.12.1\nproblem  Disk    full\n         help: rm -r logs\n\n1 problem.\n"
        );
    }
}
