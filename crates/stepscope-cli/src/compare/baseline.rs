//! `stepscope baseline`: a folder of summaries of accepted runs.

use std::io::Write;

use super::sides::Side;
use super::steps_choice::StepsChoice;
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
    let steps = asked.steps.as_deref().map(StepsChoice::read);
    let steps = steps.transpose()?.unwrap_or_default();
    let side = Side::open(std::slice::from_ref(&asked.run), &steps, &compare)?;
    let failed = |error: std::io::Error| {
        CliError::failed(format!(
            "cannot write into {}: {error}",
            asked.into.display()
        ))
    };
    std::fs::create_dir_all(&asked.into).map_err(failed)?;
    let text = summary::text(&side.runs[0], &steps)?;
    // Names are in the order of time, and nothing is written over.
    let file = loop {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S.%6fZ");
        let file = asked.into.join(format!("{time}.json"));
        match std::fs::File::create_new(&file) {
            Ok(mut created) => {
                created.write_all(text.as_bytes()).map_err(failed)?;
                break file;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    };
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
