//! Errors of the command: `error: cannot DO X: CAUSE`, then a line `help: WHAT TO DO` where there is advice.

use std::io::Write;

use stepscope_engine::EngineError;

use crate::text::clean;

/// Separates an error from its help.
const HELP: &str = "\nhelp: ";

/// Why a command ended without success.
#[derive(Debug)]
pub enum CliError {
    /// The operation failed (exit code 1).
    Failed {
        /// `cannot DO X: CAUSE`, and after a line break `help: WHAT TO DO`.
        text: String,
    },
    /// The command line makes no sense (exit code 2).
    Usage {
        /// `cannot DO X: CAUSE`, and after a line break `help: WHAT TO DO`.
        text: String,
    },
    /// Whoever read our output has closed it (exit code 0): they had enough.
    PipeClosed,
}

impl CliError {
    /// An operation that failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed { text: text.into() }
    }

    /// A command line that makes no sense.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage { text: text.into() }
    }

    /// Whether nothing is printed.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::PipeClosed)
    }

    /// Prints the error and its help, a line each. Nothing can be done when that fails.
    pub fn print(&self, to: &mut dyn Write) {
        let (Self::Failed { text } | Self::Usage { text }) = self else {
            return;
        };
        // Text out of a trace cannot add lines: every other line break is written out.
        let (cause, help) = match text.rsplit_once(HELP) {
            Some((cause, help)) => (cause, Some(help)),
            None => (text.as_str(), None),
        };
        let _ = writeln!(to, "error: {}", clean(cause));
        if let Some(help) = help {
            let _ = writeln!(to, "help: {}", clean(help));
        }
    }

    /// See the module's text of [`crate`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } => 1,
            Self::Usage { .. } => 2,
            Self::PipeClosed => 0,
        }
    }
}

impl From<EngineError> for CliError {
    fn from(error: EngineError) -> Self {
        Self::failed(with_help(&error))
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::PipeClosed;
        }
        Self::failed(format!("cannot write the output: {error}"))
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        Self::from(std::io::Error::from(error))
    }
}

/// The error, and its help on a line of its own.
pub fn with_help(error: &EngineError) -> String {
    match error.hint() {
        Some(help) => format!("{error}{HELP}{help}"),
        None => error.to_string(),
    }
}
