//! What went wrong, as the user reads it: one line, `error: what, where, what to do`.

use std::io::Write;

use stepscope_engine::EngineError;

use crate::text::clean;

/// Why a command ended without success.
#[derive(Debug)]
pub enum CliError {
    /// The operation failed (exit code 1).
    Failed {
        /// What, where, what to do.
        line: String,
    },
    /// The command line makes no sense (exit code 2).
    Usage {
        /// What, where, what to do.
        line: String,
    },
    /// Whoever read our output has closed it (exit code 0): they had enough.
    PipeClosed,
}

impl CliError {
    /// An operation that failed.
    pub fn failed(line: impl Into<String>) -> Self {
        Self::Failed { line: line.into() }
    }

    /// A command line that makes no sense.
    pub fn usage(line: impl Into<String>) -> Self {
        Self::Usage { line: line.into() }
    }

    /// Whether nothing is printed.
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::PipeClosed)
    }

    /// Prints the one line. Nothing can be done when that fails.
    pub fn print(&self, to: &mut dyn Write) {
        if let Self::Failed { line } | Self::Usage { line } = self {
            let _ = writeln!(to, "error: {}", clean(line));
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
        Self::failed(line_of(&error))
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::PipeClosed;
        }
        Self::failed(format!("the output cannot be written, {error}"))
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        Self::from(std::io::Error::from(error))
    }
}

/// `what, where, what to do`.
pub fn line_of(error: &EngineError) -> String {
    let mut line = match error {
        EngineError::Unreadable { path, reason, .. } => format!("{reason}, {path}"),
        EngineError::Unwritable { path, reason, .. } => format!("cannot write: {reason}, {path}"),
        EngineError::NoSuchPath(path) => format!("no such file or directory, {path}"),
        EngineError::NoTraces(path) => format!("no traces found, {path}"),
        EngineError::NoSuchRun(id) => format!("no such run, {id}"),
        other => other.to_string(),
    };
    if let Some(hint) = error.hint() {
        line.push_str(", ");
        line.push_str(hint);
    }
    line
}
