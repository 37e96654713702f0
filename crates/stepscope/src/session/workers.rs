//! Recordings of worker processes, which become files of the program's run.
//!
//! A worker has a journal in the folder of the program's session and never exports its file itself:
//! it may be killed at any time (pools and data loaders end their workers that way), and its exit
//! stays fast. The program holds the lock of [`WORKERS_FILE`] in its journal while it records. A
//! thread of each worker waits for that lock, so that a worker's recording ends when the program
//! stops or dies, without polling. The program's stop then converts the journals of its workers to
//! files; if the program was killed, recovery does that.
#![allow(
    clippy::disallowed_methods,
    reason = "the recorder looks for its workers' journals"
)]

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::recording::{self, Owner};
use super::{Finished, Process, SessionError, SessionOptions, guarded, process, process_blocking};
use crate::export::merge_external::ExternalProfiles;
use crate::journal::files::{JournalFiles, WORKERS_FILE, remove_journal};
use crate::platform::os;
use crate::recover;
use crate::ring::layout::{NAMES_BYTES, NAMES_HEAD};

/// Maximum number of workers that one run records.
const MAX_WORKERS: usize = 256;
/// Time that a stop waits for workers to end their recordings.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(10);
/// The run into which worker processes of this program may record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRun {
    /// The session's folder.
    pub folder: PathBuf,
    /// The name of the program's journal in it.
    pub journal: String,
}

/// Returns the run into which worker processes of this program may record: `None` while the program records
/// nothing, or without a journal.
pub fn worker_run() -> Option<WorkerRun> {
    let process = process().ok()?;
    let session = process.active.as_deref()?;
    let Owner::Program { folder, .. } = &session.owner else {
        return None;
    };
    let journal = session.files.as_ref()?.folder.file_name()?;
    Some(WorkerRun {
        folder: folder.clone(),
        journal: journal.to_str()?.to_owned(),
    })
}

/// Starts recording this worker process into the run of its program, until [`end_worker`], the
/// program's stop or the program's end. Calls `ended` on another thread when the program ended it.
///
/// Returns false when nothing is recorded: the program has stopped meanwhile, or the run has enough
/// workers.
///
/// # Errors
/// [`SessionError::AlreadyRecording`] when this process already records, or the file system's
/// error.
pub fn start_worker(
    run: &WorkerRun,
    options: &SessionOptions,
    ended: fn(),
) -> Result<bool, SessionError> {
    guarded(|| {
        let mut process = process()?;
        process.refuse_start()?;
        process.end_worker(None)?;
        let Ok(program) = File::open(run.folder.join(&run.journal).join(WORKERS_FILE)) else {
            return Ok(false);
        };
        let ended_already = os::try_lock(program.as_fd()).unwrap_or(true);
        if ended_already || journals(&run.folder, &run.journal, false).len() >= MAX_WORKERS {
            return Ok(false);
        }
        let host = recording::host(options)?;
        let number = recording::next_number();
        let stem = format!("{}.worker-{}-{number}", run.journal, std::process::id());
        let files = JournalFiles::create(&run.folder, &stem, false).map_err(|source| {
            SessionError::NotWritable {
                path: run.folder.clone(),
                source,
            }
        })?;
        let owner = Owner::Worker {
            folder: run.folder.clone(),
        };
        process.pause_flight();
        let session = recording::start(number, owner, host, Some(files), options, None);
        process.active = session.map(|session| Some(Box::new(session)))?;
        let watching = std::thread::Builder::new()
            .name("stepscope-worker".to_owned())
            .spawn(move || {
                os::block_all_signals();
                os::wait_for_lock(program.as_fd());
                if let Ok(true) = end_worker_number(Some(number)) {
                    ended();
                }
            });
        if let Err(source) = watching {
            process.end_worker(None)?;
            return Err(SessionError::NoThread { source });
        }
        drop(process);
        super::levels_changed();
        Ok(true)
    })
}

/// Ends the recording of this worker process and leaves its journal to the program. Returns whether
/// there was one.
pub fn end_worker() -> bool {
    end_worker_number(None).unwrap_or(false)
}

fn end_worker_number(number: Option<u32>) -> Result<bool, SessionError> {
    guarded(|| {
        let mut process = process_blocking()?;
        let ended = process.end_worker(number)?;
        if ended {
            process.resume_flight();
        }
        drop(process);
        super::levels_changed();
        Ok(ended)
    })
}

impl Process {
    /// Ends a worker's recording, optionally only the one with this number. Returns whether there
    /// was one.
    pub(super) fn end_worker(&mut self, number: Option<u32>) -> Result<bool, SessionError> {
        let session = self.active.take_if(|session| {
            matches!(session.owner, Owner::Worker { .. })
                && number.is_none_or(|number| number == session.number)
        });
        match session {
            Some(session) => session.finish().map(|finished| {
                finished.leave_to_program();
                true
            }),
            None => Ok(false),
        }
    }
}

impl Finished {
    /// Leaves a compact worker's journal in the run's folder; removes it when nothing was recorded.
    fn leave_to_program(mut self) {
        let Some(files) = &self.files else { return };
        if self.drain.threads == 0 {
            self.remove_journal();
        } else if self.drain.journal.memory().next().is_some() {
            // The file could not store everything: the part in memory would be lost with this
            // process.
            if os::without_size_signal(|| self.write(&ExternalProfiles::default())).is_ok() {
                self.remove_journal();
            }
        } else {
            // All records are in the events file; the rings file is needed only for the names.
            let mut head = [0; NAMES_HEAD];
            if files.rings.read_exact_at(&mut head, 0).is_ok() {
                let used = head[8..].try_into().map_or(0, u64::from_le_bytes);
                let end = files.rings.metadata().map_or(0, |meta| meta.len());
                let from = (NAMES_HEAD as u64 + used)
                    .min(NAMES_BYTES as u64)
                    .next_multiple_of(4096);
                os::punch_hole(files.rings.as_raw_fd(), from, end.saturating_sub(from));
            }
        }
    }
}

/// Lists the journals of the workers of the program with this journal: those that are still being
/// created, or all others.
fn journals(folder: &Path, program: &str, being_created: bool) -> Vec<PathBuf> {
    let prefix = format!("{program}.worker-");
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
