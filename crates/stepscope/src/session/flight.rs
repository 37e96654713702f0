//! The flight recorder: records continuously, retains the last seconds, and saves them on request.
//!
//! It is a session with a circular journal ([`crate::journal::circular`]). While the program
//! records itself, it pauses and drops its content. A capture can run on it: the capture pins the
//! segments from its start.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::flight_options::FlightOptions;
use super::options::StopReport;
use super::recording::{self, Circular, Session};
use super::running_flight::{Flight, FlightExport, Running, start_saver};
use super::{SessionError, guarded, process};
use crate::drain::triggers::{self, SaveTrigger, SlowRule, Triggers};
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::journal::circular::Bounds;

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
        let flight = Arc::new(Flight::new(options.clone()));
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
            .map_err(|cause| SessionError::NotDelivered { cause })
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
    let active = process.active.as_deref();
    let running = active.and_then(|session| session.running.clone());
    running.ok_or(SessionError::FlightPaused)
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
    if saves_on_trigger {
        match start_saver(Arc::clone(&running), from) {
            Ok(saver) => session.saver = Some(saver),
            Err(error) => {
                if let Ok(finished) = session.finish() {
                    finished.discard();
                }
                return Err(error);
            }
        }
    }
    session.running = Some(running);
    Ok(session)
}
