//! The journals of worker processes in the session's folder, and their conversion to files.
#![allow(
    clippy::disallowed_methods,
    reason = "the recorder looks for its workers' journals"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::journal::files::{JournalFiles, remove_journal};
use crate::recover;

/// Maximum number of workers that one run records.
pub(super) const MAX_WORKERS: usize = 256;
/// Time that a stop waits for workers to end their recordings.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Lists the journals of the workers of the program with this journal: those that are still being
/// created, or all others.
pub(super) fn journals(folder: &Path, program: &str, being_created: bool) -> Vec<PathBuf> {
    let prefix = JournalFiles::worker_stem(program);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&prefix) && name.ends_with(".new") == being_created
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Converts the journals of a program's workers to files of its run, or removes them. The program's
/// recording has ended, so its workers end theirs: this waits for them. Returns warnings for the
/// user.
pub(super) fn collect(folder: &Path, program: &str, keep: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let start = Instant::now();
    let found = journals(folder, program, false);
    // Journals of workers that were killed before they recorded anything.
    for unfinished in journals(folder, program, true) {
        let _ = fs::remove_dir_all(unfinished);
    }
    if found.len() >= MAX_WORKERS {
        warnings.push(format!(
            "only the first {MAX_WORKERS} worker processes were recorded"
        ));
    }
    let (mut late, mut cut) = (0, 0);
    for journal in found {
        loop {
            if keep {
                if let Some(run) = recover::recover(&journal, None) {
                    cut += usize::from(run.cut_at_limit);
                    if let Err(error) = run.file {
                        warnings.push(format!(
                            "the recording of a worker process is lost: {error}"
                        ));
                    }
                    break;
                }
            } else if let Ok(Some(_lock)) = recover::lock(&journal) {
                let _ = remove_journal(&journal);
                break;
            }
            if !journal.exists() {
                break;
            }
            if start.elapsed() > WORKERS_TIMEOUT {
                late += 1;
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    if cut > 0 {
        warnings.push(format!(
            "recordings of worker processes reached their limit on the disk, and their files are incomplete: {cut} (max_bytes, keep_free_bytes)"
        ));
    }
    if late > 0 {
        warnings.push(format!(
            "{late} worker processes did not end their recordings within {} s; opening the run recovers them once they have ended",
            WORKERS_TIMEOUT.as_secs()
        ));
    }
    warnings
}
