//! Sees new runs appear.
//!
//! A named thread looks at the folders that the last scan listed. When a folder's time of change
//! or the state of a trace file differs, or a program that was recording has died, the engine scans
//! again. It waits at least a second
//! between two looks, and at least fifty times as long as the last one took, so that a directory
//! with a hundred thousand files costs at most two per cent of a core.

use std::path::PathBuf;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::files::Stamp;

const LEAST_WAIT: Duration = Duration::from_secs(1);

/// What was seen at the last scan: folders with their change time, files with their stamps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) folders: Vec<(PathBuf, i64)>,
    pub(crate) files: Vec<(PathBuf, Stamp)>,
    /// Folders with the journal of a program that was recording.
    pub(crate) journals: Vec<PathBuf>,
}

impl Seen {
    /// Whether anything is not as it was.
    pub(crate) fn has_changed(&self) -> bool {
        let now = |path: &PathBuf| std::fs::metadata(path).ok().map(|m| Stamp::of(&m));
        let folder_changed = |(path, modified_ns): &(PathBuf, i64)| {
            now(path).map(|stamp| stamp.modified_ns) != Some(*modified_ns)
        };
        let file_changed = |(path, stamp): &(PathBuf, Stamp)| now(path) != Some(*stamp);
        let died = |session: &PathBuf| !stepscope::recover::pending(session).is_empty();
        self.folders.iter().any(folder_changed)
            || self.files.iter().any(file_changed)
            || self.journals.iter().any(died)
    }
}

/// Looks until the engine is gone. `stop` is disconnected when it is.
pub(crate) fn run(engine: &Weak<Engine>, stop: &Receiver<()>) {
    let mut wait = LEAST_WAIT;
    while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(wait) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let begun = Instant::now();
        if engine.seen().has_changed() {
            engine.rescan();
        }
        wait = LEAST_WAIT.max(begun.elapsed() * 50);
    }
}
