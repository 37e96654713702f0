//! `stepscope recover`: converts the journals of killed programs to runs.

use std::io::Write;

use stepscope_engine::EngineError;

use crate::args;
use crate::error::CliError;
use crate::text::{self, clean};

/// Runs the command.
pub fn run(asked: &args::Recover, out: &mut dyn Write) -> Result<(), CliError> {
    let shown = asked.logdir.display().to_string();
    if stepscope_engine::is_url(&asked.logdir) {
        return Err(CliError::failed(format!(
            "cannot recover {shown}: programs write journals to their own machine only\nhelp: run this on the machine of the program, with its local log directory"
        )));
    }
    if !asked.logdir.exists() {
        return Err(EngineError::NoSuchPath(shown).into());
    }
    if !asked.logdir.is_dir() {
        return Err(CliError::failed(format!(
            "cannot recover {shown}: not a directory\nhelp: name the log directory of the program"
        )));
    }
    let runs = stepscope_engine::recover(&asked.logdir);
    if runs.is_empty() {
        writeln!(out, "nothing to recover below {}", clean(&shown))?;
    }
    let mut failed = Vec::new();
    for run in &runs {
        let file = match &run.file {
            Ok(file) => file.display().to_string(),
            Err(error) => {
                failed.push(error.to_string());
                continue;
            }
        };
        let mut counts = vec![format!("{} spans", text::count(run.spans))];
        if run.unfinished > 0 {
            counts.push(format!(
                "{} of them unfinished",
                text::count(run.unfinished)
            ));
        }
        if run.dropped > 0 {
            counts.push(format!(
                "{} dropped by the program",
                text::count(run.dropped)
            ));
        }
        writeln!(out, "recovered {}: {}", clean(&file), counts.join(", "))?;
    }
    match failed.as_slice() {
        [] => Ok(()),
        [one] => Err(CliError::failed(one)),
        [first, ..] => Err(CliError::failed(format!(
            "cannot recover {} recordings in {shown}; the first: {first}",
            failed.len()
        ))),
    }
}
