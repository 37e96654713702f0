//! `stepscope completions` prints the completion script of a shell; `stepscope man-pages` writes the man pages.

use std::io::Write;

use clap::Command;
use clap::builder::PossibleValuesParser;
use stepscope_engine::report::reports;

use crate::args::{self, Completions, ManPages};
use crate::error::CliError;

/// Runs `stepscope completions`.
pub fn run(asked: &Completions, out: &mut dyn Write) -> Result<(), CliError> {
    // The parser takes any kind and suggests the nearest one; a shell can offer them all.
    let kinds = reports::KINDS.iter().map(|kind| kind.name);
    let kinds = PossibleValuesParser::new(kinds.chain(["all", "list"]));
    let mut command = visible(&args::definition()).mut_subcommand("report", |report| {
        report.mut_arg("kind", |kind| kind.value_parser(kinds))
    });
    // The generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut command, "stepscope", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// Returns a command without its hidden subcommands, which the generators of some shells offer too.
fn visible(command: &Command) -> Command {
    let subcommands = command.get_subcommands();
    let shown = subcommands.filter(|subcommand| !subcommand.is_hide_set());
    Command::new("stepscope")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .subcommands(shown)
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
