//! `stepscope skill`: writes a skill, the instructions for AI assistants that run commands.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use stepscope_mcp::{is_as_written, skill_files};

use crate::args;
use crate::error::CliError;
use crate::text::clean;

/// Name of the skill and of its folder.
const NAME: &str = "stepscope";

/// Runs the command.
pub fn run(asked: &args::Skill, out: &mut dyn Write) -> Result<(), CliError> {
    let folder = asked.folder.join(NAME);
    let files = skill_files();
    if !asked.force {
        // All of them, before the first is written.
        for file in &files {
            check_replaceable(&folder.join(file.path))?;
        }
    }
    for file in &files {
        let path = folder.join(file.path);
        write(&path, &file.text).map_err(|error| refused(&path, &error.to_string()))?;
    }
    writeln!(
        out,
        "wrote {} and {} references to {}",
        files[0].path,
        files.len() - 1,
        clean(&folder.display().to_string())
    )?;
    Ok(())
}

/// Checks that there is no file, or one that this command wrote and nobody has changed.
fn check_replaceable(path: &Path) -> Result<(), CliError> {
    match std::fs::read_to_string(path) {
        Ok(text) if is_as_written(&text) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != ErrorKind::InvalidData => {
            Err(refused(path, &error.to_string()))
        }
        // Another text, or bytes that are no text.
        _ => Err(refused(
            path,
            "it exists, and is changed or of another program\nhelp: move it away, or replace it with --force",
        )),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

fn refused(path: &Path, cause: &str) -> CliError {
    CliError::failed(format!("cannot write {}: {cause}", path.display()))
}
