//! Recordings of worker processes, which become files of the program's run.
//!
//! A worker has a journal in the folder of the program's session and never exports its file itself:
//! it may be killed at any time (pools and data loaders end their workers that way), and its exit
//! stays fast. The program holds the lock of [`WORKERS_FILE`] in its journal while it records. A
//! thread of each worker waits for that lock, so that a worker's recording ends when the program
//! stops or dies, without polling. The program's stop then converts the journals of its workers to
//! files; if the program was killed, recovery does that.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::error::SessionError;
use super::finished::{Finished, Owner};
use super::options::SessionOptions;
use super::recording;
use super::worker_journals::{MAX_WORKERS, journals};
use super::{Process, guarded, process, process_blocking};
use crate::export::merge_external::ExternalProfiles;
use crate::journal::files::{JournalFiles, WORKERS_FILE};
use crate::platform::os;
use crate::ring::layout::{NAMES_BYTES, NAMES_HEAD};

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
        let stem = JournalFiles::worker_stem(&run.journal);
        let stem = format!("{stem}{}-{number}", std::process::id());
        let files = JournalFiles::create(&run.folder, &stem, false).map_err(|source| {
            SessionError::NotWritable {
                path: run.folder.clone(),
                cause: source,
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
            return Err(SessionError::NoThread { cause: source });
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
