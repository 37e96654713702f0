//! Errors of opening a run or one of its files.

use std::path::{Path, PathBuf};

use stepscope_formats::FormatError;

use crate::names::DATASET_MARK;

/// A problem with a run or one of its files.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunProblem {
    /// Path of the file (or folder), as shown to users.
    pub file: String,
    /// The reason, lower case, no full stop.
    pub reason: String,
    /// Offset in the uncompressed bytes, if known.
    pub offset: Option<u64>,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl RunProblem {
    pub(crate) fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            file: path.display().to_string(),
            reason: reason.into(),
            offset: None,
            hint: None,
        }
    }

    pub(crate) fn from_format_error(path: &Path, error: &FormatError) -> Self {
        let offset = match error {
            FormatError::Malformed { offset, .. } => Some(*offset),
            _ => None,
        };
        // The texts of the other errors already end in advice.
        let hint = match error {
            FormatError::Unrecognised { .. } => {
                Some("name an XSpace, a Chrome or PyTorch JSON, or a Perfetto trace")
            }
            FormatError::Empty | FormatError::Malformed { .. } => {
                Some("copy it again from where it was recorded, or record it again")
            }
            _ => None,
        };
        Self {
            offset,
            hint: hint.map(str::to_owned),
            ..Self::new(path, error.to_string())
        }
    }
}

/// Errors of the engine. [`EngineError::hint`] says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No run has this id, or it was removed.
    #[error("cannot open run {0}: no such run")]
    NoSuchRun(String),
    /// A file or folder exists, but has no readable content.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The file or folder.
        path: String,
        /// The reason.
        reason: String,
        /// What the user can do about it.
        hint: Option<String>,
    },
    /// The path does not exist.
    #[error("cannot read {0}: no such file or directory")]
    NoSuchPath(String),
    /// A directory without a trace.
    #[error("cannot read {0}: it contains no traces")]
    NoTraces(String),
    /// The output cannot be written.
    #[error("cannot write {path}: {reason}")]
    Unwritable {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
        /// What the user can do about it.
        hint: Option<String>,
    },
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl EngineError {
    pub(crate) fn unreadable(path: &Path, reason: impl Into<String>) -> Self {
        Self::Unreadable {
            path: path.display().to_string(),
            reason: reason.into(),
            hint: None,
        }
    }

    pub(crate) fn unwritable(path: &Path, error: &std::io::Error) -> Self {
        Self::Unwritable {
            path: path.display().to_string(),
            reason: crate::files::reason(error),
            hint: None,
        }
    }

    /// Explains why there is no run at `path`.
    pub(crate) fn nothing_at(
        path: &Path,
        problems: &[RunProblem],
        not_readable: &[PathBuf],
    ) -> Self {
        if path.join(DATASET_MARK).is_file() {
            return Self::Unreadable {
                path: path.display().to_string(),
                reason: "it is a dataset with the tables of runs, not their traces".to_owned(),
                hint: Some("'stepscope query' and 'stepscope fleet' read datasets".to_owned()),
            };
        }
        if let Some(first) = problems.first() {
            return first.clone().into();
        }
        if let Some(first) = not_readable.first() {
            let count = not_readable.len();
            let shown = first.file_name().unwrap_or_default().to_string_lossy();
            let what = if count == 1 { "file" } else { "files" };
            if crate::names::is_program_text(&shown) {
                return Self::Unreadable {
                    path: path.display().to_string(),
                    reason: format!("{count} {what} with compiled programs as text: {shown}"),
                    hint: Some(
                        "dump them as protobuf: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_proto'".to_owned(),
                    ),
                };
            }
            if crate::names::is_nsys_report(&shown) {
                return Self::Unreadable {
                    path: path.display().to_string(),
                    reason: format!("{count} {what} that only Nsight Systems reads: {shown}"),
                    hint: Some("export them: nsys export --type sqlite FILE".to_owned()),
                };
            }
            return Self::unreadable(
                path,
                format!("only {count} {what} recognised, not yet readable: {shown}"),
            );
        }
        Self::NoTraces(path.display().to_string())
    }

    /// Returns what the user can do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreadable { hint, .. } | Self::Unwritable { hint, .. } => hint.as_deref(),
            Self::NoSuchPath(_) => Some("check the spelling"),
            Self::NoTraces(_) => Some(
                "record a trace, or name a folder that contains *.xplane.pb, *.trace.json[.gz], *.pt.trace.json[.gz] or *.pftrace",
            ),
            Self::NoSuchRun(_) => Some("choose one from the list of runs"),
            Self::Cancelled => None,
        }
    }
}

impl From<RunProblem> for EngineError {
    fn from(problem: RunProblem) -> Self {
        Self::Unreadable {
            path: problem.file,
            reason: problem.reason,
            hint: problem.hint,
        }
    }
}
