//! `stepscope baseline`: a folder of summaries of accepted runs.

use std::io::Write;

use super::sides::{Side, StepsChoice};
use super::summary;
use crate::args;
use crate::error::CliError;

/// Runs the command.
pub fn run(asked: &args::Baseline, out: &mut dyn Write) -> Result<(), CliError> {
    let args::BaselineAction::Accept(asked) = &asked.action;
    let compare = args::Compare {
        reading: asked.reading,
        ..args::Compare::default()
    };
    let side = Side::open(
        std::slice::from_ref(&asked.run),
        &StepsChoice::default(),
        &compare,
    )?;
    let failed = |error: std::io::Error| {
        CliError::failed(format!(
            "cannot write into {}: {error}",
            asked.into.display()
        ))
    };
    std::fs::create_dir_all(&asked.into).map_err(failed)?;
    let time = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    // Nothing is written over: runs of the same second are numbered.
    let mut names = (1_u32..).map(|number| match number {
        1 => format!("{time}.json"),
        _ => format!("{time}-{number:04}.json"),
    });
    let file = names
        .find_map(|name| {
            let file = asked.into.join(name);
            (!file.exists()).then_some(file)
        })
        .unwrap_or_else(|| asked.into.join(format!("{time}.json")));
    summary::write(&side.runs[0], &file)?;
    writeln!(out, "Accepted {} as {}", side.names[0], file.display())?;
    if let Some(keep) = asked.keep {
        let files = summary::summaries(&asked.into)?;
        let keep = keep as usize;
        for old in &files[..files.len().saturating_sub(keep)] {
            std::fs::remove_file(old).map_err(failed)?;
            writeln!(out, "Removed {}", old.display())?;
        }
    }
    Ok(())
}
