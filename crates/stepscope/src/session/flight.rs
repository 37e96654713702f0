//! The flight recorder: records continuously, retains the last seconds, and saves them on request.
//!
//! It is a session with a circular journal ([`crate::journal::circular`]). While the program
//! records itself, it pauses and drops its content. A capture can run on it: the capture pins the
//! segments from its start.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::finished::add_written;
use super::recording::{self, Circular, Owner, Session};
use super::{HostTracerLevel, SessionError, SessionOptions, StopReport, guarded, process};
use crate::drain::requests::{Control, DrainProgress, DrainRequest};
use crate::drain::triggers::{self, SaveTrigger, SlowRule, Triggers};
use crate::export::file;
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::export::metadata::{loss_warnings, stats};
use crate::export::xspace::{self, FileMetadata, Names};
use crate::journal::circular::{Bounds, MIN_BYTES, Snapshot};
use crate::journal::index::Index;
use crate::platform::os;

/// Timeout for a reply of the drain thread. A thread that has ended is detected at once; on a busy
/// machine it may take seconds until it runs and has copied the pending records.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of the flight recorder. Start from `FlightOptions::default()`.
#[derive(Clone, Debug)]
pub struct FlightOptions {
    /// Time to retain. Default: 30 s.
    pub keep_last: Duration,
    /// Maximum bytes to retain; at least 1 MiB. Default: 64 MiB (2.7 million spans). When that is
    /// less than `keep_last` needs, less time is retained, and every save has a warning. The
    /// threads' buffers are additional, `buffer_bytes` each. During a save, new records may use a
    /// quarter more.
    pub max_bytes: usize,
    /// Directory of saves, and of the recorder's file while the program runs, so that a killed
    /// program leaves its last seconds. Default: none: the content is in memory, and only
    /// [`write_last`] and captures can read it.
    pub log_dir: Option<PathBuf>,
    /// Level of recorded events. Default: [`HostTracerLevel::Library`].
    pub host_tracer_level: HostTracerLevel,
    /// Initial bytes of each thread's buffer, as in [`SessionOptions::buffer_bytes`]. Default: 2
    /// MiB.
    pub buffer_bytes: usize,
    /// Name of the files before `.xplane.pb`. Default: the machine's name.
    pub host_name: Option<String>,
    /// Additional metadata of the run, shown by viewers: `rank`, `world_size`, ...
    pub facts: Vec<(String, String)>,
    /// A signal that saves the last `keep_last`, such as `SIGUSR2`. A handler of the program for it
    /// is still called. Needs `log_dir`. Default: none.
    pub save_on_signal: Option<i32>,
    /// Minimum interval between saves by signals. Default: 1 s.
    pub signal_at_most_every: Duration,
    /// Saves after a slow step. Needs `log_dir`. Default: none.
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

/// Rule that classifies a step as slow, and the time to save. Start from `SlowStep::default()`.
#[derive(Clone, Copy, Debug)]
pub struct SlowStep {
    /// A step is slow when its duration exceeds this multiple of the median of the last 64 steps
    /// with its name. Default: 2.
    pub times_median: f64,
    /// Time to save; at least the whole step. Default: 5 s.
    pub last: Duration,
    /// Number of steps of a name before any is slow: the first ones compile and warm up. Default:
    /// 10.
    pub after_steps: usize,
    /// Minimum interval between such saves. Default: one minute.
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

/// Status of the flight recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlightStatus {
    /// Time covered, at most `keep_last`. Zero during a pause.
    pub covered: Duration,
    /// Bytes in memory, or in its file.
    pub bytes: u64,
    /// Records dropped since it started, or continued after a pause.
    pub dropped: u64,
    /// Number of saved files since it started.
    pub saves: u64,
    /// Whether it pauses because the program records itself.
    pub paused: bool,
}

/// The flight recorder of this process, also while it pauses.
pub(super) struct Flight {
    pub(super) options: FlightOptions,
    saves: AtomicU64,
    /// Serializes saves.
    saving: Mutex<()>,
}

/// A running flight recorder.
pub(super) struct Running {
    pub(super) flight: Arc<Flight>,
    control: Arc<Control>,
    host: String,
    warnings: Vec<String>,
}

/// The thread that saves after triggers.
pub(super) struct Saver {
    thread: JoinHandle<()>,
}

impl Saver {
    /// Waits for the thread. Requires that the drain thread has ended.
    pub(super) fn join(self) {
        let _ = self.thread.join();
    }
}

/// Starts the flight recorder: from now on the last seconds are retained.
///
/// # Errors
/// [`SessionError::FlightRunning`] when it already runs; [`SessionError::TraceRunning`] and
/// [`SessionError::CaptureRunning`] during another recording; [`SessionError::BadFlight`] for
/// invalid options; those of `start_trace` about the log directory.
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
        super::levels_changed();
        Ok(())
    })
}

/// Ends the flight recorder and drops its content. Waits for a save in progress.
///
/// # Errors
/// [`SessionError::NoFlight`] when none runs; [`SessionError::CaptureRunning`] while a capture runs
/// on it.
pub fn stop_flight() -> Result<(), SessionError> {
    guarded(|| {
        let mut process = process()?;
        if process.flight.is_none() {
            return Err(SessionError::NoFlight);
        }
        if process.flight_capture.is_some() {
            return Err(SessionError::CaptureRunning);
        }
        process.pause_flight();
        process.flight = None;
        triggers::release_signal();
        drop(process);
        super::levels_changed();
        Ok(())
    })
}

/// Saves the last part of the flight recorder's content as an ordinary run in its log directory.
///
/// # Errors
/// [`SessionError::NoFlight`], [`SessionError::FlightPaused`]; [`SessionError::BadFlight`] when it
/// has no log directory; those of [`stop_trace`](super::stop_trace) about writing.
pub fn save_last(last: Duration) -> Result<StopReport, SessionError> {
    guarded(|| running()?.save(last, "the program asked for it"))
}

/// Writes the last part of the flight recorder's content, within `cut`, as one `XSpace` to `out`.
/// The flight recorder continues undisturbed.
///
/// # Errors
/// [`SessionError::NoFlight`], [`SessionError::FlightPaused`]; [`SessionError::NotDelivered`] when
/// `out` fails.
pub fn write_last(
    last: Duration,
    out: &mut dyn Write,
    cut: &ExportLimits,
) -> Result<StopReport, SessionError> {
    guarded(|| {
        let running = running()?;
        let snapshot = running.snapshot(None)?;
        let mut export = FlightExport::new(&running, &snapshot, cut);
        export.limit_to_last(last);
        export
            .write(out, &ExternalProfiles::default())
            .map_err(|source| SessionError::NotDelivered { source })
    })
}

/// Returns the status of the flight recorder, `None` when there is none. Cheap.
pub fn flight_status() -> Option<FlightStatus> {
    let process = super::process_blocking().ok()?;
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
            let progress = &session.control.progress;
            FlightStatus {
                covered: progress.covered(),
                bytes: progress.bytes(),
                dropped: progress.dropped(),
                saves,
                paused: false,
            }
        }
    })
}

/// Returns the running flight recorder.
fn running() -> Result<Arc<Running>, SessionError> {
    let process = super::process_blocking()?;
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
        if self.max_bytes < MIN_BYTES {
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

/// Starts the flight recorder, or continues it after a pause.
pub(super) fn start(flight: &Arc<Flight>) -> Result<Session, SessionError> {
    let options = &flight.options;
    let (to, from) = sync_channel::<SaveTrigger>(1);
    let on_signal = options
        .save_on_signal
        .map(|_| (options.keep_last, options.signal_at_most_every));
    let slow = options.slow_step.map(|slow| SlowRule {
        times_median: slow.times_median,
        last: slow.last,
        after_steps: slow.after_steps,
        at_most_every: slow.at_most_every,
    });
    let saves_on_trigger = on_signal.is_some() || slow.is_some();
    let circular = Circular {
        bounds: Bounds {
            keep: options.keep_last,
            bytes: options.max_bytes,
        },
        triggers: &move |state| {
            saves_on_trigger.then(|| Triggers::new(state, to.clone(), on_signal, slow))
        },
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
    let new_saver = if saves_on_trigger {
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
        running: running_slot,
        saver,
        ..
    } = &mut session.owner
    {
        *saver = new_saver;
        *running_slot = Some(running);
    }
    Ok(session)
}

fn start_saver(running: Arc<Running>, from: Receiver<SaveTrigger>) -> Result<Saver, SessionError> {
    let body = move || {
        os::block_all_signals();
        // The loop ends when the drain thread has ended.
        for trigger in from {
            let result = guarded(|| running.save(trigger.last, &trigger.because));
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
    pub(super) fn progress(&self) -> &Arc<DrainProgress> {
        &self.control.progress
    }

    /// Takes a snapshot of the content, optionally only since the start of a capture.
    pub(super) fn snapshot(&self, since_pin: Option<u32>) -> Result<Snapshot, SessionError> {
        let (reply, from) = sync_channel(1);
        if !self
            .control
            .send(DrainRequest::Snapshot { since_pin, reply })
        {
            return Err(SessionError::FlightPaused);
        }
        from.recv_timeout(REPLY_TIMEOUT).map_err(no_reply)
    }

    /// Prevents overwriting until the pin is released. Returns the start of the pin in ticks.
    pub(super) fn pin(&self, number: u32, bytes: usize) -> Result<u64, SessionError> {
        let (reply, from) = sync_channel(1);
        let request = DrainRequest::Pin {
            number,
            bytes,
            reply,
        };
        if !self.control.send(request) {
            return Err(SessionError::FlightPaused);
        }
        from.recv_timeout(REPLY_TIMEOUT).map_err(no_reply)
    }

    pub(super) fn release(&self, number: u32) {
        self.control.send(DrainRequest::Release { number });
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
        os::without_size_signal(|| self.save_snapshot(log_dir, &snapshot, last, because))
    }

    fn save_snapshot(
        &self,
        log_dir: &Path,
        snapshot: &Snapshot,
        last: Duration,
        because: &str,
    ) -> Result<StopReport, SessionError> {
        let folder = super::folder::create(log_dir, None, "")?;
        let path = folder.join(format!("{}.xplane.pb", self.host));
        let cut = ExportLimits::default();
        let mut export = FlightExport::new(self, snapshot, &cut);
        export.limit_to_last(last);
        export.fact("saved_because", because);
        match export.save(&path) {
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

fn no_reply(error: RecvTimeoutError) -> SessionError {
    match error {
        // The flight recorder stopped in the meantime.
        RecvTimeoutError::Disconnected => SessionError::FlightPaused,
        RecvTimeoutError::Timeout => SessionError::Internal {
            reason: "the drain thread does not answer".to_owned(),
        },
    }
}

/// An export of a part of the flight recorder's content.
pub(super) struct FlightExport<'s> {
    index: Index<'s>,
    facts: FileMetadata,
    dropped: u64,
    crash_safe: bool,
    cut: ExportLimits,
    snapshot: &'s Snapshot,
}

impl<'s> FlightExport<'s> {
    pub(super) fn new(running: &Running, snapshot: &'s Snapshot, cut: &ExportLimits) -> Self {
        let mut index = Index::default();
        index.nothing_shared = super::nothing_shared();
        index.first_ticks = snapshot.first_ticks;
        for segment in &snapshot.segments {
            index.add(segment.blocks());
        }
        index.add(&snapshot.extra_blocks);
        let mut warnings = running.warnings.clone();
        if let Some(error) = &snapshot.file_error {
            warnings.push(format!(
                "the flight recorder's file could not grow ({error}): a killed program would lose a part"
            ));
        }
        Self {
            dropped: snapshot.dropped,
            crash_safe: running.flight.options.log_dir.is_some() && warnings.is_empty(),
            facts: FileMetadata {
                host: running.host.clone(),
                warnings,
                ..FileMetadata::default()
            },
            index,
            cut: cut.clone(),
            snapshot,
        }
    }

    /// Limits the export to the last `last`, and adds a warning when less is covered.
    pub(super) fn limit_to_last(&mut self, last: Duration) {
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

    /// Limits the export to events after these ticks; `dropped_before` is the count of dropped
    /// records at that time.
    pub(super) fn limit_to_since(&mut self, ticks: u64, dropped_before: u64) {
        self.index.floor = ticks;
        self.dropped = self.snapshot.dropped_in_all.saturating_sub(dropped_before);
    }

    /// Excludes all events.
    pub(super) fn exclude_events(&mut self) {
        self.index.forget_events();
    }

    /// Adds a warning to the file and the report.
    pub(super) fn warn(&mut self, warning: String) {
        self.facts.warnings.push(warning);
    }

    /// Adds a metadata value of the run.
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
        external: &ExternalProfiles,
    ) -> std::io::Result<StopReport> {
        let mut report = self.complete();
        let written = xspace::write(
            out,
            &self.index,
            &Names::ThisProcess,
            &self.facts,
            &self.cut,
            external,
        )?;
        add_written(&mut report, &written, &self.cut);
        Ok(report)
    }

    fn save(mut self, path: &Path) -> std::io::Result<StopReport> {
        let mut report = self.complete();
        let (path, written) = file::write_file(
            path,
            &self.index,
            &Names::ThisProcess,
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
