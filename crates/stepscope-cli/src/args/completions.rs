//! The arguments of `stepscope completions` and of `stepscope man-pages`.
#![allow(
    clippy::doc_markdown,
    reason = "terminals show these texts as they are"
)]

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `stepscope completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        stepscope completions bash > ~/.local/share/bash-completion/completions/stepscope\n  \
        stepscope completions zsh > ~/.zfunc/_stepscope\n  \
        stepscope completions fish > ~/.config/fish/completions/stepscope.fish\n  \
        stepscope completions powershell >> $PROFILE\n\n\
        A new shell completes commands, options and the kinds of reports. In zsh, ~/.zfunc must be in $fpath\n\
        before compinit runs.")]
pub struct Completions {
    /// Shell that reads the script
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// `stepscope man-pages`: for packages, which install the pages where `man` finds them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stepscope man-pages ~/.local/share/man/man1")]
pub struct ManPages {
    /// Folder, which is created if necessary
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
