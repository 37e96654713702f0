//! The arguments of `stepscope mcp`.

use std::path::PathBuf;

use clap::Args;

/// `stepscope mcp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepscope mcp LOGDIR\n  \
        claude mcp add stepscope -- stepscope mcp LOGDIR\n\n\
        Serves the Model Context Protocol on stdin and stdout: an assistant starts this command.\n\
        The tools read the given paths only, and write nothing. 'stepscope view --mcp' serves them over HTTP.")]
pub struct Mcp {
    /// Log directories and trace files [default: the current directory]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}
