//! The flight recorder: records all the time, keeps the last seconds, and saves them when asked.
//!
//! It is a session whose journal is a circle ([`crate::journal::circular`]). While the program records itself it
//! pauses; what it had is dropped. Captures ride on it: they hold its segments from their begin.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::finished::{add_written, loss_warnings, nothing_shared, stats};
use super::recording::{self, Circular, Owner, Session};
use super::{HostTracerLevel, SessionError, SessionOptions, StopReport, guarded, process};
use crate::drain::requests::{Carried, Control, DrainRequest};
use crate::drain::triggers::{self, Occasion, SlowRule, Triggers};
use crate::export::file;
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::export::xspace::{self, Facts, Names};
use crate::journal::circular::{Bounds, LEAST_BYTES, Snapshot};
use crate::journal::index::Index;
use crate::platform::os;

/// How long the drain thread may take to answer. One that has ended is noticed at once; on a machine that
/// is busy with other things it may take seconds until it has its turn and has carried what waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the flight recorder records. Start from `FlightOptions::default()`.
#[derive(Clone, Debug)]
pub struct FlightOptions {
    /// Time that is kept. Default: 30 s.
    pub keep_last: Duration,
    /// Bytes of what is kept, at most; not less than 1 MiB. Default: 64 MiB (2.7 million spans). When
    /// that is less than `keep_last` needs, less time is kept, and every save says so. The buffers of
    /// the threads come on top, `buffer_bytes` each. While a save is being written, what is recorded
    /// meanwhile may take a quarter more.
    pub max_bytes: usize,
    /// Where saves go, and where it is kept while the program runs, so that a killed program leaves its
    /// last seconds. Default: none: it is kept in memory, and only
    /// [`write_last`] and captures can have it.
    pub log_dir: Option<PathBuf>,
    /// What is recorded. Default: [`HostTracerLevel::Library`].
    pub host_tracer_level: HostTracerLevel,
    /// Bytes of each thread's buffer to begin with, as in [`SessionOptions::buffer_bytes`].
    /// Default: 2 MiB.
    pub buffer_bytes: usize,
    /// Name of the files before `.xplane.pb`. Default: the machine's name.
    pub host_name: Option<String>,
    /// More facts about the run, shown by viewers: `rank`, `world_size`, ...
    pub facts: Vec<(String, String)>,
    /// A signal that saves the last `keep_last`, such as `SIGUSR2`. A handler that the program has for
    /// it is still called. Needs `log_dir`. Default: none.
    pub save_on_signal: Option<i32>,
    /// Saves by signals are at least so far apart. Default: 1 s.
    pub signal_at_most_every: Duration,
    /// Saves when a step took too long. Needs `log_dir`. Default: none.
    pub slow_step: Option<SlowStep>,
}

impl Default for FlightOptions {
    fn default() -> Self {
        Self {
            keep_last: Duration::from_secs(30),
            max_bytes: 64 << 20,
            log_dir: None,
            host_tracer_level: HostTracerLevel::default(),
            buffer_bytes: 2 << 20,
            host_name: None,
            facts: Vec::new(),
            save_on_signal: None,
            signal_at_most_every: Duration::from_secs(1),
            slow_step: None,
        }
    }
}

/// When a step took too long, and what is saved then. Start from `SlowStep::default()`.
#[derive(Clone, Copy, Debug)]
pub struct SlowStep {
    /// A step is slow that took more than so many times the median of the last 64 of its name.
    /// Default: 2.
    pub times_median: f64,
    /// Time that is saved; at least all of the step. Default: 5 s.
    pub last: Duration,
    /// Steps of a name before any is slow: the first ones compile and warm up. Default: 10.
    pub after_steps: usize,
    /// Such saves are at least so far apart. Default: one minute.
    pub at_most_every: Duration,
}

impl Default for SlowStep {
    fn default() -> Self {
        Self {
            times_median: 2.0,
            last: Duration::from_secs(5),
            after_steps: 10,
            at_most_every: Duration::from_mins(1),
        }
    }
}

/// What the flight recorder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlightStatus {
    /// How much of the past is there, at most `keep_last`. Zero while it pauses.
    pub covered: Duration,
    /// Bytes of memory, or of its file, for that.
    pub bytes: u64,
    /// Records that found no room since it began, or went on after a pause.
    pub dropped: u64,
    /// Files saved since it began.
    pub saves: u64,
    /// It pauses because the program records itself.
    pub paused: bool,
}

/// The flight recorder of this process, also while it pauses.
pub(super) struct Flight {
    pub(super) options: FlightOptions,
    saves: AtomicU64,
    /// What saves did by themselves, so that two at once do not meet.
    saving: Mutex<()>,
}

/// A flight recorder that runs.
pub(super) struct Running {
    pub(super) flight: Arc<Flight>,
    control: Arc<Control>,
    host: String,
    warnings: Vec<String>,
}

/// The thread that saves by itself.
pub(super) struct Saver {
    thread: JoinHandle<()>,
}

impl Saver {
    /// After the drain thread has ended.
    pub(super) fn join(self) {
        let _ = self.thread.join();
    }
}

/// Starts the flight recorder: from now on the last seconds are kept.
///
/// # Errors
/// [`SessionError::FlightRunning`] when it runs already; [`SessionError::TraceRunning`] and
/// [`SessionError::CaptureRunning`] while something else records; [`SessionError::BadFlight`] for
/// options that cannot be; those of `start_trace` about the log directory.
pub fn start_flight(options: &FlightOptions) -> Result<(), SessionError> {
    guarded(|| {
        options.check()?;
        let mut process = process()?;
        if process.flight.is_some() {
            return Err(SessionError::FlightRunning);
        }
        process.refuse_others()?;
        process.end_worker(None)?;
        if let Some(signal) = options.save_on_signal {
            triggers::catch_signal(signal).map_err(|source| SessionError::BadFlight {
                reason: format!("signal {signal} cannot be caught ({source})"),
            })?;
        }
        let flight = Arc::new(Flight {
            options: options.clone(),
            saves: AtomicU64::new(0),
            saving: Mutex::new(()),
        });
        match start(&flight) {
            Ok(session) => process.active = Some(Box::new(session)),
            Err(error) => {
                triggers::release_signal();
                return Err(error);
            }
        }
        process.flight = Some(flight);
        drop(process);
        crate::levels_changed();
        Ok(())
    })
}

/// Ends the flight recorder and drops what it has. Waits for a save that is under way.
///
/// # Errors
/// [`SessionError::NoFlight`] when there is none; [`SessionError::CaptureRunning`] while a capture
/// rides on it.
pub fn stop_flight() -> Result<(), SessionError> {
    guarded(|| {
        let mut process = process()?;
        if process.flight.is_none() {
            return Err(SessionError::NoFlight);
        }
        if process.rider.is_some() {
            return Err(SessionError::CaptureRunning);
        }
        process.pause_flight();
        process.flight = None;
        triggers::release_signal();
        drop(process);
        crate::levels_changed();
        Ok(())
    })
}

/// Writes the last part of what the flight recorder has as an ordinary run into its log directory.
///
/// # Errors
/// [`SessionError::NoFlight`], [`SessionError::FlightPaused`]; [`SessionError::BadFlight`] when it has
/// no log directory; those of [`stop_trace`](super::stop_trace) about writing.
pub fn save_last(last: Duration) -> Result<StopReport, SessionError> {
    guarded(|| running()?.save(last, "the program asked for it"))
}

/// Writes the last part of what the flight recorder has, and of that what `cut` keeps, as one
/// `XSpace` to `out`. The flight recorder goes on undisturbed.
///
/// # Errors
/// [`SessionError::NoFlight`], [`SessionError::FlightPaused`]; [`SessionError::NotDelivered`] when `out`
/// fails.
pub fn write_last(
    last: Duration,
    out: &mut dyn Write,
    cut: &ExportLimits,
) -> Result<StopReport, SessionError> {
    guarded(|| {
        let running = running()?;
        let snapshot = running.snapshot(None)?;
        let mut part = Part::new(&running, &snapshot, cut);
        part.last(last);
        part.write(out, &ExternalProfiles::default())
            .map_err(|source| SessionError::NotDelivered { source })
    })
}

/// What the flight recorder has, `None` when there is none. Cheap.
pub fn flight_status() -> Option<FlightStatus> {
    let process = super::process_patiently().ok()?;
    let flight = process.flight.as_ref()?;
    let saves = flight.saves.load(Ordering::Relaxed);
    let running = process.active.as_ref().filter(|active| active.is_flight());
    Some(match running {
        None => FlightStatus {
            saves,
            paused: true,
            ..FlightStatus::default()
        },
        Some(session) => {
            let carried = &session.control.carried;
            FlightStatus {
                covered: carried.covered(),
                bytes: carried.bytes(),
                dropped: carried.dropped(),
                saves,
                paused: false,
            }
        }
    })
}

/// The flight recorder that runs.
fn running() -> Result<Arc<Running>, SessionError> {
    let process = super::process_patiently()?;
    if process.flight.is_none() {
        return Err(SessionError::NoFlight);
    }
    match process.active.as_deref().map(|session| &session.owner) {
        Some(Owner::Flight {
            running: Some(running),
            ..
        }) => Ok(Arc::clone(running)),
        _ => Err(SessionError::FlightPaused),
    }
}

impl FlightOptions {
    fn check(&self) -> Result<(), SessionError> {
        let bad = |reason: &str| {
            Err(SessionError::BadFlight {
                reason: reason.to_owned(),
            })
        };
        if self.keep_last.is_zero() {
            return bad("keep_last is 0; give the time that is to be kept");
        }
        if self.max_bytes < LEAST_BYTES {
            return bad("max_bytes is less than 1 MiB");
        }
        if self.host_tracer_level == HostTracerLevel::Off {
            return bad("host_tracer_level is Off; nothing would be recorded");
        }
        if self.log_dir.is_none() && (self.save_on_signal.is_some() || self.slow_step.is_some()) {
            return bad("save_on_signal and slow_step need a log_dir to save into");
        }
        if let Some(slow) = &self.slow_step
            && (slow.times_median.is_nan() || slow.times_median < 1.0)
        {
            return bad("times_median is not 1 or more");
        }
        Ok(())
    }

    fn session_options(&self) -> SessionOptions {
        SessionOptions {
            host_tracer_level: self.host_tracer_level,
            crash_safe: self.log_dir.is_some(),
            buffer_bytes: self.buffer_bytes,
            host_name: self.host_name.clone(),
            facts: self.facts.clone(),
            ..SessionOptions::default()
        }
    }
}

/// Starts, or goes on after a pause.
pub(super) fn start(flight: &Arc<Flight>) -> Result<Session, SessionError> {
    let options = &flight.options;
    let (to, from) = sync_channel::<Occasion>(1);
    let on_signal = options
        .save_on_signal
        .map(|_| (options.keep_last, options.signal_at_most_every));
    let slow = options.slow_step.map(|slow| SlowRule {
        times_median: slow.times_median,
        last: slow.last,
        after_steps: slow.after_steps,
        at_most_every: slow.at_most_every,
    });
    let wanted = on_signal.is_some() || slow.is_some();
    let circular = Circular {
        bounds: Bounds {
            keep: options.keep_last,
            bytes: options.max_bytes,
        },
        triggers: &move |state| wanted.then(|| Triggers::new(state, to.clone(), on_signal, slow)),
    };
    let mut session = recording::start_flight(
        options.log_dir.as_deref(),
        &options.session_options(),
        &circular,
    )?;
    let running = Arc::new(Running {
        flight: Arc::clone(flight),
        control: Arc::clone(&session.control),
        host: session.host.clone(),
        warnings: session.warnings.clone(),
    });
    let new_saver = if wanted {
        match start_saver(Arc::clone(&running), from) {
            Ok(saver) => Some(saver),
            Err(error) => {
                if let Ok(finished) = session.finish() {
                    finished.discard();
                }
                return Err(error);
            }
        }
    } else {
        None
    };
    if let Owner::Flight {
        running: place,
        saver,
        ..
    } = &mut session.owner
    {
        *saver = new_saver;
        *place = Some(running);
    }
    Ok(session)
}

fn start_saver(running: Arc<Running>, from: Receiver<Occasion>) -> Result<Saver, SessionError> {
    let body = move || {
        os::hold_all_signals();
        // Ends when the drain thread has ended.
        for occasion in from {
            let result = guarded(|| running.save(occasion.last, &occasion.because));
            if let Err(error) = result {
                recording::warn_once(&format!("the flight recorder could not save: {error}"));
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("stepscope-save".to_owned())
        .spawn(body)
        .map_err(|source| SessionError::NoThread { source })?;
    Ok(Saver { thread })
}

impl Running {
    pub(super) fn carried(&self) -> &Arc<Carried> {
        &self.control.carried
    }

    /// What there is now; since a capture began, when that is given.
    pub(super) fn snapshot(&self, since_pin: Option<u32>) -> Result<Snapshot, SessionError> {
        let (answer, from) = sync_channel(1);
        if !self
            .control
            .ask(DrainRequest::Snapshot { since_pin, answer })
        {
            return Err(SessionError::FlightPaused);
        }
        from.recv_timeout(PATIENCE).map_err(no_answer)
    }

    /// Nothing from now on is written over before it is released. The ticks of that moment.
    pub(super) fn hold(&self, number: u32, bytes: usize) -> Result<u64, SessionError> {
        let (answer, from) = sync_channel(1);
        let request = DrainRequest::Pin {
            number,
            bytes,
            answer,
        };
        if !self.control.ask(request) {
            return Err(SessionError::FlightPaused);
        }
        from.recv_timeout(PATIENCE).map_err(no_answer)
    }

    pub(super) fn release(&self, number: u32) {
        self.control.ask(DrainRequest::Release { number });
    }

    fn save(&self, last: Duration, because: &str) -> Result<StopReport, SessionError> {
        let Some(log_dir) = &self.flight.options.log_dir else {
            return Err(SessionError::BadFlight {
                reason: "it has no log_dir to save into; use write_last".to_owned(),
            });
        };
        let saving = self.flight.saving.lock();
        let _one = saving.unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot(None)?;
        os::without_size_signal(|| self.save_shot(log_dir, &snapshot, last, because))
    }

    fn save_shot(
        &self,
        log_dir: &Path,
        snapshot: &Snapshot,
        last: Duration,
        because: &str,
    ) -> Result<StopReport, SessionError> {
        let folder = super::folder::make(log_dir, None, "")?;
        let path = folder.join(format!("{}.xplane.pb", self.host));
        let cut = ExportLimits::default();
        let mut part = Part::new(self, snapshot, &cut);
        part.last(last);
        part.fact("saved_because", because);
        match part.save(&path) {
            Ok(report) => {
                self.flight.saves.fetch_add(1, Ordering::Relaxed);
                Ok(report)
            }
            Err(source) => {
                let _ = std::fs::remove_dir(&folder);
                Err(SessionError::NotSaved { path, source })
            }
        }
    }
}

fn no_answer(error: RecvTimeoutError) -> SessionError {
    match error {
        // Stopped in the meantime.
        RecvTimeoutError::Disconnected => SessionError::FlightPaused,
        RecvTimeoutError::Timeout => SessionError::Internal {
            reason: "the drain thread does not answer".to_owned(),
        },
    }
}

/// A part of what the flight recorder has, on its way out.
pub(super) struct Part<'s> {
    index: Index<'s>,
    facts: Facts,
    dropped: u64,
    crash_safe: bool,
    cut: ExportLimits,
    snapshot: &'s Snapshot,
}

impl<'s> Part<'s> {
    pub(super) fn new(running: &Running, snapshot: &'s Snapshot, cut: &ExportLimits) -> Self {
        let mut index = Index::default();
        index.nothing_shared = nothing_shared();
        index.first_ticks = snapshot.first_ticks;
        for piece in &snapshot.pieces {
            index.add(piece.blocks());
        }
        index.add(&snapshot.moment);
        let mut warnings = running.warnings.clone();
        if let Some(error) = &snapshot.file_error {
            warnings.push(format!(
                "the flight recorder's file could not grow ({error}): a killed program would lose a part"
            ));
        }
        Self {
            dropped: snapshot.dropped,
            crash_safe: running.flight.options.log_dir.is_some() && warnings.is_empty(),
            facts: Facts {
                host: running.host.clone(),
                warnings,
                ..Facts::default()
            },
            index,
            cut: cut.clone(),
            snapshot,
        }
    }

    /// Only what happened in the last time; a word when that is not all there.
    pub(super) fn last(&mut self, last: Duration) {
        let timeline = self.index.timeline();
        let now = timeline.unix_of(self.index.last_reading());
        let last_ns = i64::try_from(last.as_nanos()).unwrap_or(i64::MAX);
        let from = now.saturating_sub(last_ns);
        self.cut.from_unix_ns = Some(self.cut.from_unix_ns.map_or(from, |other| other.max(from)));
        let covered = self.snapshot.covered;
        if self.snapshot.short && covered < last {
            self.facts.warnings.push(format!(
                "covers {:.1} s of the {:.1} s asked for: raise max_bytes, or lower the trace level",
                covered.as_secs_f64(),
                last.as_secs_f64(),
            ));
        }
    }

    /// Only what happened after these ticks, when so many records had been dropped.
    pub(super) fn since(&mut self, ticks: u64, dropped_before: u64) {
        self.index.floor = ticks;
        self.dropped = self.snapshot.dropped_in_all.saturating_sub(dropped_before);
    }

    /// Nothing of it.
    pub(super) fn nothing(&mut self) {
        self.index.forget_events();
    }

    /// A sentence for the file and the report.
    pub(super) fn warn(&mut self, warning: String) {
        self.facts.warnings.push(warning);
    }

    /// One more fact about the run.
    fn fact(&mut self, key: &str, value: &str) {
        self.facts.stats.push((key.to_owned(), value.to_owned()));
    }

    fn complete(&mut self) -> StopReport {
        let cut_texts = self.index.threads.values().map(|thread| thread.cut).sum();
        self.facts
            .warnings
            .extend(loss_warnings(self.dropped, cut_texts));
        self.facts.stats.extend(stats(&self.index, self.dropped));
        StopReport {
            threads: self.index.threads.len() as u64,
            dropped: self.dropped,
            cut_texts,
            crash_safe: self.crash_safe,
            warnings: self.facts.warnings.clone(),
            ..StopReport::default()
        }
    }

    pub(super) fn write(
        mut self,
        out: &mut dyn Write,
        additions: &ExternalProfiles,
    ) -> std::io::Result<StopReport> {
        let mut report = self.complete();
        let written = xspace::write(
            out,
            &self.index,
            &Names::Own,
            &self.facts,
            &self.cut,
            additions,
        )?;
        add_written(&mut report, &written, &self.cut);
        Ok(report)
    }

    fn save(mut self, path: &Path) -> std::io::Result<StopReport> {
        let mut report = self.complete();
        let (path, written) = file::write_file(
            path,
            &self.index,
            &Names::Own,
            &self.facts,
            &self.cut,
            &ExternalProfiles::default(),
            &mut |_, _| {},
        )?;
        add_written(&mut report, &written, &self.cut);
        report.path = path;
        Ok(report)
    }
}
