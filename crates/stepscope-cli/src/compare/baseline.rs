//! `stepscope baseline`: a folder of summaries of accepted runs.

use std::io::Write;
use std::path::{Path, PathBuf};

use stepscope_engine::analysis::compare::run::ComparedRun;

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
        let files = summaries(&asked.into)?;
        let keep = keep as usize;
        for old in &files[..files.len().saturating_sub(keep)] {
            std::fs::remove_file(old).map_err(failed)?;
            writeln!(out, "Removed {}", old.display())?;
        }
    }
    Ok(())
}

/// Lists the summaries of a folder, the oldest first.
pub(super) fn summaries(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |error: std::io::Error| {
        CliError::failed(format!("cannot read {}: {error}", folder.display()))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Opens the newest runs of a folder whose devices, ranks and recording options are those of `new`.
pub(super) fn open(folder: &Path, last: usize, new: &ComparedRun) -> Result<Side, CliError> {
    let mut side = Side {
        label: folder.display().to_string(),
        names: Vec::new(),
        runs: Vec::new(),
    };
    for path in summaries(folder)?.iter().rev() {
        if side.runs.len() >= last.max(1) {
            break;
        }
        let Some(run) = summary::read_if_summary(path)? else {
            continue;
        };
        let key = |run: &ComparedRun| (run.devices.clone(), run.ranks, run.recording);
        if key(&run) == key(new) {
            side.names.push(
                path.file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            );
            side.runs.push(run);
        }
    }
    if side.runs.is_empty() {
        return Err(CliError::failed(format!(
            "cannot compare with {}: no accepted run has the devices, ranks and recording options of the new one\nhelp: accept one with 'stepscope baseline accept RUN --into {}'",
            folder.display(),
            folder.display()
        )));
    }
    side.names.reverse();
    side.runs.reverse();
    Ok(side)
}
