//! Errors of the command: `error: cannot DO X: CAUSE`, followed by an optional line `help: WHAT TO
//! DO`.

use std::io::Write;

use stepscope_engine::EngineError;

use crate::text::clean;

/// Separates an error from its help.
const HELP: &str = "\nhelp: ";

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// The operation failed (exit code 1).
    Failed {
        /// `cannot DO X: CAUSE`, and after a line break `help: WHAT TO DO`.
        text: String,
    },
    /// The command line is invalid (exit code 2).
    Usage {
        /// `cannot DO X: CAUSE`, and after a line break `help: WHAT TO DO`.
        text: String,
    },
    /// A gate did not pass; the output says why.
    Gate {
        /// 3: a rule failed; 4: the gate cannot decide.
        code: u8,
    },
    /// A gate has nothing to decide by (exit code 4).
    Undecided {
        /// `cannot DO X: CAUSE`, and after a line break `help: WHAT TO DO`.
        text: String,
    },
    /// The program of `stepscope run` could not be started.
    NotStarted {
        /// `cannot run PROGRAM: CAUSE`, and after a line break `help: WHAT TO DO`.
        text: String,
        /// 127: there is no such program; 126: it cannot be executed.
        code: u8,
    },
    /// The program of `stepscope run` ended with this code.
    ProgramEnded {
        /// The program's exit code, or 128 and its signal.
        code: u8,
    },
    /// The reader of our output closed the pipe (exit code 0).
    PipeClosed,
}

impl CliError {
    /// Creates the error of a failed operation.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed { text: text.into() }
    }

    /// Creates the error of an invalid command line.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage { text: text.into() }
    }

    /// Returns whether nothing is printed.
    pub fn is_quiet(&self) -> bool {
        matches!(
            self,
            Self::PipeClosed | Self::Gate { .. } | Self::ProgramEnded { .. }
        )
    }

    /// Prints the error and its help, one line each. Ignores write errors.
    pub fn print(&self, to: &mut dyn Write) {
        let (Self::Failed { text }
        | Self::Usage { text }
        | Self::Undecided { text }
        | Self::NotStarted { text, .. }) = self
        else {
            return;
        };
        // Text from a trace must not add lines: all other line breaks are escaped.
        let (cause, help) = match text.rsplit_once(HELP) {
            Some((cause, help)) => (cause, Some(help)),
            None => (text.as_str(), None),
        };
        let _ = writeln!(to, "error: {}", clean(cause));
        if let Some(help) = help {
            let _ = writeln!(to, "help: {}", clean(help));
        }
    }

    /// Returns the exit code; see [`crate`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } => 1,
            Self::Usage { .. } => 2,
            Self::Undecided { .. } => 4,
            Self::Gate { code } | Self::NotStarted { code, .. } | Self::ProgramEnded { code } => {
                *code
            }
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

/// Returns the error, with its help on a separate line.
pub fn with_help(error: &EngineError) -> String {
    match error.hint() {
        Some(help) => format!("{error}{HELP}{help}"),
        None => error.to_string(),
    }
}
