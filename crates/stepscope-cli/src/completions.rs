//! `stepscope completions` prints the completion script of a shell; `stepscope man-pages` writes the man pages.

use std::io::Write;

use clap::builder::PossibleValuesParser;
use stepscope_engine::report::reports;

use crate::args::{self, Completions, ManPages};
use crate::error::CliError;

/// Runs `stepscope completions`.
pub fn run(asked: &Completions, out: &mut dyn Write) -> Result<(), CliError> {
    // The parser takes any kind and suggests the nearest one; a shell can offer them all.
    let kinds = reports::KINDS.iter().map(|kind| kind.name);
    let kinds = PossibleValuesParser::new(kinds.chain(["all", "list"]));
    let mut command = args::definition().mut_subcommand("report", |report| {
        report.mut_arg("kind", |kind| kind.value_parser(kinds))
    });
    // The generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut command, "stepscope", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// Runs `stepscope man-pages`.
pub fn write_man_pages(asked: &ManPages) -> Result<(), CliError> {
    let folder = &asked.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(args::definition(), folder))
        .map_err(|error| {
            CliError::failed(format!(
                "cannot write the man pages into {}: {error}",
                folder.display()
            ))
        })
}
