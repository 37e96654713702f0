//! Opens log directories and files, merges hosts and ranks, caches. The one façade.
//! (API skeleton: signatures are the contract, bodies to come.)
#![allow(unused_variables, clippy::todo, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use stepscope_formats::Format;
use stepscope_model::{Diagnostic, Limits, ReadContext};
use stepscope_store::Trace;

#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Log directories and single files.
    pub paths: Vec<PathBuf>,
    /// `None`: the user's cache directory (`$XDG_CACHE_HOME/stepscope`, `~/.cache/stepscope`).
    pub cache_dir: Option<PathBuf>,
    pub use_cache: bool,
    /// How deep below each path traces are looked for.
    pub max_depth: usize,
    pub limits: Limits,
    /// Rescan in the background (named thread) and publish `RunAdded`/`RunChanged`.
    pub watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    Listed,
    Importing,
    Ready,
    Partial,
    Error,
}

/// One row of the run list. Cheap: made from directory entries, filled in as runs are opened.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// Stable, URL-safe; derived from the path relative to the watched directory.
    pub id: String,
    /// `SUBRUN/SESSION` or the file's name.
    pub name: String,
    /// Badges: JAX, PyTorch, XLA, NEURON, Lightning, Rust, Python, Chrome, Perfetto.
    pub kinds: Vec<String>,
    pub hosts: Vec<String>,
    pub devices: u32,
    pub steps: Option<u64>,
    pub step_ns: Option<f64>,
    pub duration_ns: Option<f64>,
    pub recorded_unix_ns: Option<i64>,
    pub bytes: u64,
    pub state: RunState,
    /// 0..=1 while importing.
    pub progress: f64,
    pub error: Option<RunProblem>,
    pub files: Vec<PathBuf>,
}

/// Why a run or a file of it could not be opened.
#[derive(Clone, Debug)]
pub struct RunProblem {
    pub file: String,
    pub reason: String,
    pub offset: Option<u64>,
    pub hint: Option<String>,
}

/// An opened run.
pub struct Run {
    pub id: String,
    pub name: String,
    pub kinds: Vec<String>,
    pub trace: Arc<Trace>,
    /// Hex; changes when any file of the run changes. Immutable answers are keyed by it.
    pub content_hash: String,
    pub problems: Vec<RunProblem>,
    pub from_cache: bool,
}

#[derive(Clone, Debug)]
pub enum EngineEvent {
    RunAdded(String),
    RunChanged(String),
    RunRemoved(String),
    Progress {
        run: String,
        phase: &'static str,
        done: f64,
    },
    Warning {
        run: String,
        what: Diagnostic,
        detail: String,
    },
}

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error("no such run: {0}")]
    NoSuchRun(String),
    #[error("{path}: {reason}")]
    Unreadable {
        path: String,
        reason: String,
        hint: Option<String>,
    },
    #[error("no such file or directory: {0}")]
    NoSuchPath(String),
    #[error("no traces found below {0}")]
    NoTraces(String),
    #[error("cancelled")]
    Cancelled,
}

pub struct Engine {}
impl Engine {
    pub fn new(options: EngineOptions) -> Result<Arc<Self>, EngineError> {
        todo!()
    }
    /// Looks at the directories again; returns at once with what is there (no file is parsed).
    pub fn rescan(&self) {
        todo!()
    }
    /// Newest first.
    pub fn runs(&self) -> Vec<RunSummary> {
        todo!()
    }
    pub fn summary(&self, id: &str) -> Option<RunSummary> {
        todo!()
    }
    /// Opens the run (blocking; concurrent callers share one import). Kept in an LRU of opened runs.
    pub fn open(&self, id: &str) -> Result<Arc<Run>, EngineError> {
        todo!()
    }
    /// The run if it is open already.
    pub fn opened(&self, id: &str) -> Option<Arc<Run>> {
        todo!()
    }
    pub fn cancel(&self, id: &str) {
        todo!()
    }
    /// Adds a file or directory outside the watched ones for this session (from the command line).
    pub fn add_path(&self, path: &Path) -> Result<Vec<String>, EngineError> {
        todo!()
    }
    /// Adds an uploaded file (kept in the cache directory).
    pub fn import_upload(
        &self,
        file_name: &str,
        body: &mut dyn std::io::Read,
    ) -> Result<String, EngineError> {
        todo!()
    }
    pub fn subscribe(&self) -> Receiver<EngineEvent> {
        todo!()
    }
    pub fn options(&self) -> &EngineOptions {
        todo!()
    }
    /// The user's data directory for notes.
    pub fn data_dir(&self) -> PathBuf {
        todo!()
    }
}

/// Opens whatever is at `path` (file or directory) as runs, without a watcher: for `info`, `report`, `convert`.
pub fn open_path(
    path: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
) -> Result<Vec<Result<Run, (String, EngineError)>>, EngineError> {
    todo!()
}

/// Formats that `convert` can write, by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    XSpace,
    ChromeJson,
    ChromeJsonGz,
    Perfetto,
}

/// Reads `input` and writes `output` (temporary file, fsync, rename).
pub fn convert(
    input: &Path,
    output: &Path,
    context: &Arc<ReadContext>,
) -> Result<ConvertReport, EngineError> {
    todo!()
}
#[derive(Clone, Debug, Default)]
pub struct ConvertReport {
    pub slices: u64,
    pub instants: u64,
    pub samples: u64,
    pub flows: u64,
    pub bytes: u64,
    pub notes: Vec<String>,
}

pub use stepscope_analysis as analysis;
pub use stepscope_formats::Format as TraceFormat;
#[allow(dead_code)]
type _F = Format;
