//! The arguments of `stepscope mcp`.

use std::path::PathBuf;

use clap::Args;
use stepscope_remote::Address;

/// `stepscope mcp`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepscope mcp LOGDIR\n  \
        claude mcp add stepscope -- stepscope mcp LOGDIR\n  \
        stepscope mcp --allow-capture localhost:9012 LOGDIR\n\n\
        Serves the Model Context Protocol on stdin and stdout: an assistant starts this command.\n\
        The tools read the given paths only, and write nothing unless --allow-capture is given.\n\
        'stepscope view --mcp' serves them over HTTP.")]
pub struct Mcp {
    /// Log directories and trace files [default: the current directory]
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Program that the assistant may capture from, into the first PATH that is a directory; repeatable
    #[arg(long, value_name = "HOST:PORT", value_parser = capture_address)]
    pub allow_capture: Vec<Address>,
}

/// Parses the address of a program.
pub(super) fn capture_address(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(str::to_owned)
}
