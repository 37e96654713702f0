//! Sessions: from `start_trace` to the file in the log directory.
//!
//! One recording runs at a time: the program's, a [`Capture`], or the flight recorder's, which
//! pauses for the first and includes the second. A recording owns the drain thread and, when it is
//! crash safe, the journal's files. Foreseeable failures are reported at the start. A recording of
//! the program whose file cannot be written at the end is retained, so that the stop can be
//! retried.
//!
//! Reading order: this file (the public functions), `recording` (from start to stop), `finished`
//! (export), `collector` (events of CUDA devices), `capture`, `flight` and `running_flight` (the flight recorder), `workers` and
//! `worker_journals` (processes of one program), `handlers` (fork and exit), `mirrors`, `folder`,
//! `storage` (the file system of a log directory), `environment` (recordings that variables ask for, with
//! `environment_settings` and `launcher_rank`), `process_report` (what `stepscope run` reads about this process).
#![allow(
    unsafe_code,
    reason = "the process's one session lives behind a pointer that a fork's child lets go of"
)]

mod capture;
mod collector;
mod environment;
mod environment_settings;
mod error;
mod finished;
mod flight;
mod flight_options;
mod folder;
mod handlers;
mod launcher_rank;
pub(crate) mod mirrors;
mod options;
mod process_report;
mod recording;
mod running_flight;
mod storage;
mod worker_journals;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

pub use capture::{Capture, CaptureProgress, start_capture};
#[doc(hidden)]
pub use collector::collector_file;
pub use environment::{EnvironmentTrace, trace_from_environment};
pub use error::SessionError;
pub use flight::{FlightStatus, flight_status, save_last, start_flight, stop_flight, write_last};
pub use flight_options::{FlightOptions, SlowStep};
#[doc(hidden)]
pub use launcher_rank::LauncherRank;
pub use options::{AtLimit, HostTracerLevel, SessionOptions, StopReport};
#[doc(hidden)]
pub use process_report::ProcessReport;
pub use storage::{Storage, storage};
pub use workers::{WorkerRun, end_worker, start_worker, worker_run};

use crate::export::merge_external::ExternalProfiles;
use crate::platform::os;
use crate::ring::session_state::session;
use finished::{Finished, Owner};
use recording::Session;
use running_flight::Flight;

/// Recording state of this process.
#[derive(Default)]
struct Process {
    /// The active recording.
    active: Option<Box<Session>>,
    /// A recording of the program that is stopped, but not written.
    unwritten: Option<Box<Finished>>,
    /// The flight recorder, also while it pauses.
    flight: Option<Arc<Flight>>,
    /// The capture that runs on the flight recorder.
    flight_capture: Option<u32>,
}

impl Process {
    /// Returns the error that prevents the program from starting a recording.
    fn refuse_start(&self) -> Result<(), SessionError> {
        match self.refuse_others() {
            Err(SessionError::TraceRunning { path }) => {
                return Err(SessionError::AlreadyRecording { path });
            }
            result => result?,
        }
        match &self.unwritten {
            Some(unwritten) => Err(SessionError::Unwritten {
                path: unwritten.path(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the error for an active recording other than the flight recorder.
    fn refuse_others(&self) -> Result<(), SessionError> {
        match self.active.as_deref().map(|session| &session.owner) {
            Some(Owner::Program { folder, .. }) => Err(SessionError::TraceRunning {
                path: folder.clone(),
            }),
            Some(Owner::Capture) => Err(SessionError::CaptureRunning),
            Some(Owner::Flight { .. } | Owner::Worker { .. }) | None => match self.flight_capture {
                Some(_) => Err(SessionError::CaptureRunning),
                None => Ok(()),
            },
        }
    }

    /// Finishes the program's recording and removes it.
    fn finish_program(&mut self) -> Result<Box<Finished>, SessionError> {
        if let Some(unwritten) = self.unwritten.take() {
            return Ok(unwritten);
        }
        let is_program =
            |session: &mut Box<Session>| matches!(session.owner, Owner::Program { .. });
        if let Some(session) = self.active.take_if(is_program) {
            let collected = collector::end();
            let mut finished = session.finish()?;
            finished.collected = collected;
            return Ok(Box::new(finished));
        }
        Err(match self.refuse_others() {
            Err(_) => SessionError::NotYours,
            Ok(()) => SessionError::NotRecording,
        })
    }

    /// Stops the flight recorder, if it runs, and drops its content.
    fn pause_flight(&mut self) {
        let session = self.active.take_if(|session| session.is_flight());
        if let Some(Ok(finished)) = session.map(|session| session.finish()) {
            finished.discard();
        }
    }

    /// Resumes a paused flight recorder. Returns a warning when that fails.
    fn resume_flight(&mut self) -> Option<String> {
        let flight = self.flight.as_ref().filter(|_| self.active.is_none())?;
        match flight::start(flight) {
            Ok(session) => {
                self.active = Some(Box::new(session));
                None
            }
            Err(error) => Some(format!("the flight recorder could not go on: {error}")),
        }
    }
}

static PROCESS: AtomicPtr<Mutex<Process>> = AtomicPtr::new(std::ptr::null_mut());

fn process() -> Result<MutexGuard<'static, Process>, SessionError> {
    let mut at = PROCESS.load(Ordering::Acquire);
    if at.is_null() {
        let created = Box::into_raw(Box::default());
        at = match PROCESS.compare_exchange(
            std::ptr::null_mut(),
            created,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => created,
            Err(other) => other,
        };
    }
    // SAFETY: a thread created it above, and it is never freed (a fork's child drops only the
    // pointer to the parent's).
    match unsafe { &*at }.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(SessionError::Busy),
    }
}

/// Like [`process`], for callers that cannot retry later.
fn process_blocking() -> Result<MutexGuard<'static, Process>, SessionError> {
    let start = Instant::now();
    loop {
        match process() {
            Err(SessionError::Busy) if start.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Runs `f` and turns a panic into an error, so that it does not reach the program.
fn guarded<T>(work: impl FnOnce() -> Result<T, SessionError>) -> Result<T, SessionError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        Err(SessionError::Internal { reason })
    })
}

/// Updates `tracing`'s callsites after a session has started or stopped, or mirrors have changed.
fn levels_changed() {
    #[cfg(feature = "tracing")]
    crate::bridge::tracing::levels_changed();
}

/// Whether the recording certainly has no arguments that several threads share.
fn nothing_shared() -> bool {
    #[cfg(feature = "tracing")]
    {
        !crate::bridge::tracing::in_use()
    }
    #[cfg(not(feature = "tracing"))]
    {
        true
    }
}

/// Starts recording into `LOG_DIR/plugins/profile/SESSION/` with the default options.
///
/// # Errors
/// See [`SessionError`]: already recording, or the log directory is unusable.
pub fn start_trace(log_dir: impl AsRef<Path>) -> Result<(), SessionError> {
    start_trace_with(log_dir, &SessionOptions::default())
}

/// Starts recording into `LOG_DIR/plugins/profile/SESSION/`.
///
/// # Errors
/// See [`SessionError`]: already recording, a capture is running, or the log directory is unusable.
pub fn start_trace_with(
    log_dir: impl AsRef<Path>,
    options: &SessionOptions,
) -> Result<(), SessionError> {
    let log_dir = log_dir.as_ref();
    guarded(|| {
        let mut process = process()?;
        process.refuse_start()?;
        process.end_worker(None)?;
        process.pause_flight();
        let started = recording::start_program(log_dir, options);
        if started.is_ok() {
            collector::begin();
        }
        let result = started.map(|session| process.active = Some(Box::new(session)));
        process.resume_flight();
        drop(process);
        levels_changed();
        result
    })
}

/// Stops recording and writes `HOST.xplane.pb`.
///
/// Open spans are written as unfinished, up to now. A running [`Capture`] is not affected.
///
/// # Errors
/// [`SessionError::NotRecording`] when nothing is being recorded; a second call is therefore
/// harmless. [`SessionError::NotWritten`] when the file could not be written: the recording is
/// retained for another call.
pub fn stop_trace() -> Result<StopReport, SessionError> {
    stop_trace_with(&ExternalProfiles::default())
}

/// Stops recording without writing: [`stop_trace_with`] writes. Call it before stopping other
/// profilers, so that their work is not recorded.
///
/// # Errors
/// [`SessionError::NotRecording`] when nothing is being recorded.
pub fn end_trace() -> Result<(), SessionError> {
    guarded(|| {
        let mut process = process()?;
        let finished = process.finish_program()?;
        process.unwritten = Some(finished);
        drop(process);
        levels_changed();
        Ok(())
    })
}

/// Like [`stop_trace`], and adds the profiles of other profilers of this process.
///
/// # Errors
/// As [`stop_trace`]; another call needs the external profiles again.
pub fn stop_trace_with(external: &ExternalProfiles) -> Result<StopReport, SessionError> {
    guarded(|| {
        let mut process = process()?;
        let mut finished = process.finish_program()?;
        let mut result = os::without_size_signal(|| finished.write(external));
        let mut workers = Vec::new();
        match &result {
            Ok(_) => {
                workers = finished.collect_workers(true);
                finished.remove_journal();
            }
            Err(_) => process.unwritten = Some(finished),
        }
        let warning = process.resume_flight();
        if let Ok(report) = &mut result {
            report.warnings.extend(warning);
            report.warnings.extend(workers);
        }
        drop(process);
        levels_changed();
        result
    })
}

/// Discards a recording: the running one, or one whose file could not be written.
///
/// # Errors
/// [`SessionError::NotRecording`] when there is none.
pub fn discard_trace() -> Result<(), SessionError> {
    guarded(|| {
        let mut process = process()?;
        let finished = process.finish_program()?;
        finished.discard();
        process.resume_flight();
        drop(process);
        levels_changed();
        Ok(())
    })
}

/// Waits until everything recorded so far (by this thread, and by others before this call) is in
/// the journal. A crash-safe session does not need this call to survive a kill of the process; it
/// is for data that must survive the machine, and for tests. Returns `false` when nothing is being
/// recorded, or the journal does not complete the flush within a second.
pub fn flush_trace() -> bool {
    let control = match process() {
        Ok(process) => match &process.active {
            Some(session) => Arc::clone(&session.control),
            None => return false,
        },
        Err(_) => return false,
    };
    control.flush(Duration::from_secs(1))
}

/// Returns whether a recording is active in this process.
pub fn is_recording() -> bool {
    session() != 0
}

/// Returns the default name of a session that starts now: the local time as `YYYY_MM_DD_HH_MM_SS`.
/// For tools that create the session's folder themselves.
pub fn default_session_name() -> String {
    session_name_at(stepscope_model::clock::unix_now_ns())
}

/// Returns the default name of a session that started at this Unix time: the local time, in the
/// format of [`default_session_name`].
pub fn session_name_at(unix_ns: i64) -> String {
    os::local_time_text(unix_ns.div_euclid(1_000_000_000))
}

/// Returns this machine's host name, `localhost` if it has none: the default host of recordings.
pub fn host_name() -> String {
    os::host_name()
}

/// Records while `work` runs, also when it panics.
///
/// # Errors
/// As [`start_trace`] (`work` then does not run) and [`stop_trace`].
pub fn trace<T>(
    log_dir: impl AsRef<Path>,
    work: impl FnOnce() -> T,
) -> Result<(T, StopReport), SessionError> {
    struct StopOnPanic;
    impl Drop for StopOnPanic {
        fn drop(&mut self) {
            let _ = stop_trace();
        }
    }
    start_trace(log_dir)?;
    let stop = StopOnPanic;
    let result = work();
    std::mem::forget(stop);
    stop_trace().map(|report| (result, report))
}
