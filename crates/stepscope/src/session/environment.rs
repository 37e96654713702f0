//! Recordings that variables ask for: `stepscope run` sets them.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::environment_settings::Settings;
use super::launcher_rank::LauncherRank;
use super::process_report::{self, ProcessReport};
use super::{SessionError, StopReport, save_last, stop_flight, stop_trace};
use crate::platform::os;
use crate::ring::steps::{self, StepBounds};

/// A recording that the environment asked for. Its drop ends and writes it.
#[derive(Debug)]
#[must_use = "the recording ends when this value is dropped"]
pub struct EnvironmentTrace {
    recording: Arc<Recording>,
}

/// Records if the environment asks for it, as `stepscope run` does.
///
/// ```
/// // In `main`; then, from a shell: stepscope run -- target/release/program
/// let _recording = stepscope::trace_from_environment();
/// ```
///
/// The variable `STEPSCOPE_LOG_DIR` names the log directory; without it, nothing is recorded and nothing
/// happens. `STEPSCOPE_WAIT_S`, `STEPSCOPE_DURATION_S`, `STEPSCOPE_STEPS` and `STEPSCOPE_SKIP_FIRST` say when;
/// steps are those of [`step`](crate::step()) on any thread, counted from 1. `STEPSCOPE_RANKS` leaves ranks out.
/// `STEPSCOPE_SESSION_ID`, `STEPSCOPE_JOB`, `STEPSCOPE_MAX_BYTES`, `STEPSCOPE_AT_LIMIT`,
/// `STEPSCOPE_MIRROR`, `STEPSCOPE_KEEP_LAST_S` and `STEPSCOPE_SLOW_STEP` set options. A recording that cannot
/// start is one line on stderr: the program runs all the same.
pub fn trace_from_environment() -> Option<EnvironmentTrace> {
    trace_from(&|name| std::env::var(name).ok())
}

fn trace_from(variable: &dyn Fn(&str) -> Option<String>) -> Option<EnvironmentTrace> {
    let log_dir = variable("STEPSCOPE_LOG_DIR").filter(|log_dir| !log_dir.is_empty())?;
    let ranks = LauncherRank::read(variable);
    let settings = match Settings::read(variable, &log_dir, &ranks) {
        Ok(settings) => settings,
        Err(cause) => {
            os::print_warning(&cause);
            return None;
        }
    };
    let recording = Arc::new(Recording {
        settings,
        process: std::process::id(),
        state: Mutex::new(State {
            phase: Phase::Waiting,
            report: ProcessReport::default(),
        }),
        changed: Condvar::new(),
    });
    if let Some(wanted) = variable("STEPSCOPE_RANKS").filter(|wanted| !wanted.trim().is_empty())
        && !ranks.is_in(&wanted)
    {
        recording.leave_out("only other ranks are recorded");
        return None;
    }
    recording.arm();
    let is_over = recording.lock().phase == Phase::Ended;
    (!is_over).then_some(EnvironmentTrace { recording })
}

impl Drop for EnvironmentTrace {
    fn drop(&mut self) {
        self.recording.end_of_program();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For a time or a step.
    Waiting,
    Recording,
    Ended,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    report: ProcessReport,
}

/// The recording of this process.
#[derive(Debug)]
struct Recording {
    settings: Settings,
    /// A fork's child leaves it alone.
    process: u32,
    /// Locked also while the recording starts and while its file is written: the end of the program waits for that.
    state: Mutex<State>,
    changed: Condvar,
}

/// The recording that begins and ends with steps.
static OF_STEPS: OnceLock<Arc<Recording>> = OnceLock::new();

impl Recording {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_other_process(&self) -> bool {
        std::process::id() != self.process
    }

    /// Begins now, or has a thread or a step begin.
    fn arm(self: &Arc<Self>) {
        if self.settings.steps.is_none() && self.settings.wait.is_zero() {
            self.begin();
            return;
        }
        let cause = "the program has ended before the recording began";
        self.leave_report(&mut self.lock(), Some(cause.to_owned()));
        if let Some(steps) = &self.settings.steps {
            let bounds = StepBounds {
                first: *steps.start(),
                last: *steps.end(),
                before_first: || OF_STEPS.get().into_iter().for_each(Self::begin),
                after_last: || {
                    OF_STEPS
                        .get()
                        .into_iter()
                        .for_each(|recording| recording.end());
                },
            };
            if OF_STEPS.set(Arc::clone(self)).is_err() || !steps::set_bounds(bounds) {
                self.fail("this process has a recording of some steps already");
            }
        } else if let Err(error) = self.after(self.settings.wait, Phase::Waiting, Self::begin) {
            self.fail(&format!("no thread can be started: {error}"));
        }
    }

    /// Does something on another thread after a time, unless the phase has changed by then.
    fn after(
        self: &Arc<Self>,
        time: Duration,
        phase: Phase,
        work: fn(&Arc<Self>),
    ) -> io::Result<()> {
        let recording = Arc::clone(self);
        let body = move || {
            os::block_all_signals();
            if recording.outlasts(phase, time) {
                work(&recording);
            }
        };
        let thread = std::thread::Builder::new().name("stepscope-timer".to_owned());
        thread.spawn(body).map(drop)
    }

    /// Waits; returns whether the phase is the same after this time.
    fn outlasts(&self, phase: Phase, time: Duration) -> bool {
        let start = Instant::now();
        let mut state = self.lock();
        while state.phase == phase {
            let Some(left) = time
                .checked_sub(start.elapsed())
                .filter(|left| !left.is_zero())
            else {
                return true;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Starts the recording, unless the program has ended.
    fn begin(self: &Arc<Self>) {
        if self.is_other_process() {
            return;
        }
        let mut state = self.lock();
        if state.phase != Phase::Waiting {
            return;
        }
        match self.settings.start() {
            Ok(()) => {
                state.phase = Phase::Recording;
                self.leave_report(&mut state, None);
                drop(state);
                if let Some(duration) = self.settings.duration
                    && let Err(error) =
                        self.after(duration, Phase::Recording, |recording| recording.end())
                {
                    os::print_warning(&format!(
                        "the recording ends with the program: no thread can be started: {error}"
                    ));
                }
            }
            Err(error) => {
                drop(state);
                self.fail(&error.to_string());
                self.stop_counting();
            }
        }
        self.changed.notify_all();
    }

    /// Ends the recording and writes it, if one runs.
    fn end(&self) {
        if self.is_other_process() {
            return;
        }
        let mut state = self.lock();
        if state.phase != Phase::Recording {
            return;
        }
        state.phase = Phase::Ended;
        match self.write() {
            Ok(written) => {
                state.report.path =
                    Some(std::path::absolute(&written.path).unwrap_or(written.path));
                state.report.dropped = written.dropped;
                state.report.warnings.extend(written.warnings);
            }
            // The program has ended it itself.
            Err(SessionError::NotRecording | SessionError::NoFlight) => {}
            Err(error) => os::print_warning(&error.to_string()),
        }
        self.leave_report(&mut state, None);
        drop(state);
        self.stop_counting();
        self.changed.notify_all();
    }

    fn write(&self) -> Result<StopReport, SessionError> {
        match &self.settings.flight {
            Some(flight) => {
                let written = save_last(flight.keep_last)?;
                stop_flight().map(|()| written)
            }
            None => stop_trace(),
        }
    }

    fn end_of_program(&self) {
        self.end();
        if self.is_other_process() {
            return;
        }
        let mut state = self.lock();
        if state.phase == Phase::Waiting {
            state.phase = Phase::Ended;
            self.leave_report(&mut state, Some(self.why_nothing()));
            drop(state);
            self.stop_counting();
            self.changed.notify_all();
        }
    }

    fn stop_counting(&self) {
        if self.settings.steps.is_some() {
            steps::remove_user();
        }
    }

    fn why_nothing(&self) -> String {
        match &self.settings.steps {
            Some(steps) => format!(
                "the program has made {} steps, and the recording begins with step {}",
                steps::counted(),
                steps.start()
            ),
            None => "the program has ended before the recording began".to_owned(),
        }
    }

    /// Gives up, with a line on stderr.
    fn fail(&self, cause: &str) {
        os::print_warning(&format!("cannot record this program: {cause}"));
        self.leave_out(cause);
    }

    fn leave_out(&self, cause: &str) {
        let mut state = self.lock();
        state.phase = Phase::Ended;
        self.leave_report(&mut state, Some(cause.to_owned()));
    }

    fn leave_report(&self, state: &mut State, cause: Option<String>) {
        state.report.cause = cause;
        if let Some(folder) = process_report::folder() {
            state.report.write(&folder, &self.process.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_without_a_log_directory_asks_for_nothing() {
        assert!(trace_from(&|_| None).is_none());
        assert!(trace_from(&|name| (name == "STEPSCOPE_LOG_DIR").then(String::new)).is_none());
    }
}
