//! Captures: recordings that belong to their caller instead of the program, such as a server that a
//! remote client has asked for one.

use std::io::Write;
use std::sync::Arc;

use super::error::SessionError;
use super::finished::{Finished, Owner};
use super::options::{HostTracerLevel, SessionOptions, StopReport};
use super::recording;
use super::running_flight::{FlightExport, Running};
use super::{guarded, process, process_blocking};
use crate::drain::requests::DrainProgress;
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;

/// A recording in memory that belongs to the holder of this value instead of the program. Dropping
/// it discards the recording.
///
/// `stop_trace` does not end it, and `start_trace` is an error while it runs.
#[derive(Debug)]
#[must_use = "a capture that is dropped is thrown away"]
pub struct Capture {
    /// Number of its session in this process.
    number: u32,
    progress: Arc<DrainProgress>,
    /// Events and bytes recorded before its start.
    before: (u64, u64),
    flight: Option<FlightCapture>,
    ended: bool,
    /// Stopped, but not exported.
    stopped: Stopped,
}

/// A capture that has been stopped.
#[derive(Default)]
struct Stopped(Option<Box<Finished>>);

impl std::fmt::Debug for Stopped {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Stopped").field(&self.0.is_some()).finish()
    }
}

/// A capture that reads from the running flight recorder.
struct FlightCapture {
    running: Arc<Running>,
    number: u32,
    /// Start of the capture, ticks.
    ticks: u64,
    before: (u64, u64),
    dropped_before: u64,
    /// Whether the capture's level is off.
    is_off: bool,
    warnings: Vec<String>,
}

impl std::fmt::Debug for FlightCapture {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FlightCapture").finish_non_exhaustive()
    }
}

impl FlightCapture {
    fn start(running: Arc<Running>, options: &SessionOptions) -> Result<Self, SessionError> {
        let number = recording::next_number();
        let before = running.progress().so_far();
        let dropped_before = running.progress().dropped();
        let ticks = running.pin(number, options.memory_limit_bytes)?;
        let level = running.flight.options.host_tracer_level;
        let mut warnings = Vec::new();
        if options.host_tracer_level > level {
            warnings.push(format!(
                "recorded at host_tracer_level {}, that of the flight recorder, not {}",
                level as u32, options.host_tracer_level as u32
            ));
        }
        Ok(Self {
            running,
            number,
            ticks,
            before,
            dropped_before,
            is_off: options.host_tracer_level == HostTracerLevel::Off,
            warnings,
        })
    }

    fn finish(
        &self,
        out: &mut dyn Write,
        cut: &ExportLimits,
        external: &ExternalProfiles,
    ) -> Result<StopReport, SessionError> {
        let snapshot = self.running.snapshot(Some(self.number))?;
        let mut export = FlightExport::new(&self.running, &snapshot, cut);
        export.limit_to_since(self.ticks, self.dropped_before);
        for warning in &self.warnings {
            export.warn(warning.clone());
        }
        if self.is_off {
            export.exclude_events();
        }
        export
            .write(out, external)
            .map_err(|cause| SessionError::NotDelivered { cause })
    }
}

/// Progress of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureProgress {
    /// Spans, steps, instants and samples so far. In a thread's current 64 KiB chunk, records are
    /// counted instead, including those of arguments.
    pub events: u64,
    /// Bytes of memory in use for them.
    pub bytes: u64,
}

/// Starts a recording in memory, up to [`SessionOptions::memory_limit_bytes`]. It writes nothing to
/// disk and ignores the options about files and folders.
///
/// While the flight recorder runs, a capture is a export of its recording, at its level; the flight
/// recorder continues, and may use this much more memory meanwhile.
///
/// # Errors
/// [`SessionError::TraceRunning`] while the program records itself,
/// [`SessionError::CaptureRunning`] during another capture.
pub fn start_capture(options: &SessionOptions) -> Result<Capture, SessionError> {
    guarded(|| {
        let mut process = process()?;
        process.refuse_others()?;
        process.end_worker(None)?;
        let active = process.active.as_deref();
        if let Some(running) = active.and_then(|session| session.running.clone()) {
            let flight_capture = FlightCapture::start(running, options)?;
            process.flight_capture = Some(flight_capture.number);
            return Ok(Capture {
                number: flight_capture.number,
                progress: Arc::clone(flight_capture.running.progress()),
                before: flight_capture.before,
                flight: Some(flight_capture),
                ended: false,
                stopped: Stopped::default(),
            });
        }
        let session = recording::start_in_memory(Owner::Capture, options)?;
        let capture = Capture {
            number: session.number,
            progress: Arc::clone(&session.control.progress),
            before: (0, 0),
            flight: None,
            ended: false,
            stopped: Stopped::default(),
        };
        process.active = Some(Box::new(session));
        drop(process);
        super::levels_changed();
        Ok(capture)
    })
}

impl Capture {
    /// Returns the progress so far. Reads a counter of each thread's buffer.
    pub fn progress(&self) -> CaptureProgress {
        let (events, bytes) = self.progress.so_far();
        CaptureProgress {
            events: events.saturating_sub(self.before.0),
            bytes: bytes.saturating_sub(self.before.1),
        }
    }

    /// Stops, and writes the export within `cut` as one `XSpace` to `out`, in large chunks.
    ///
    /// [`StopReport::path`] is empty. Open spans are written as unfinished.
    ///
    /// # Errors
    /// [`SessionError::CaptureGone`] in a fork's child; [`SessionError::NotDelivered`] when `out`
    /// fails. In both cases the recording has ended.
    pub fn finish(
        self,
        out: &mut dyn Write,
        cut: &ExportLimits,
    ) -> Result<StopReport, SessionError> {
        self.finish_with(out, cut, &ExternalProfiles::default())
    }

    /// Like [`finish`](Self::finish), and adds the profiles of other profilers, to which `cut` does
    /// not apply.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with(
        mut self,
        out: &mut dyn Write,
        cut: &ExportLimits,
        external: &ExternalProfiles,
    ) -> Result<StopReport, SessionError> {
        guarded(|| {
            if let Some(flight_capture) = self.flight.take() {
                let result = flight_capture.finish(out, cut, external);
                self.release_flight(&flight_capture);
                return result;
            }
            let finished = match self.stopped.0.take() {
                Some(finished) => *finished,
                None => self.end()?,
            };
            finished
                .write_to(out, cut, external)
                .map_err(|cause| SessionError::NotDelivered { cause })
        })
    }

    /// Stops recording; [`finish`](Self::finish) then only writes. Call it before stopping other
    /// profilers. A capture of the flight recorder continues until `finish`.
    ///
    /// # Errors
    /// [`SessionError::CaptureGone`] in a fork's child.
    pub fn stop(&mut self) -> Result<(), SessionError> {
        guarded(|| {
            if self.flight.is_none() && self.stopped.0.is_none() {
                self.stopped.0 = Some(Box::new(self.end()?));
            }
            Ok(())
        })
    }

    /// Ends a capture of the flight recorder.
    fn release_flight(&mut self, flight_capture: &FlightCapture) {
        self.ended = true;
        flight_capture.running.release(flight_capture.number);
        if let Ok(mut process) = process_blocking()
            && process.flight_capture == Some(flight_capture.number)
        {
            process.flight_capture = None;
        }
    }

    /// Stops recording.
    fn end(&mut self) -> Result<Finished, SessionError> {
        self.ended = true;
        let mut process = process_blocking()?;
        let mine = |session: &mut Box<recording::Session>| session.number == self.number;
        let session = process.active.take_if(mine);
        let finished = session.ok_or(SessionError::CaptureGone)?.finish();
        drop(process);
        super::levels_changed();
        finished
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(flight_capture) = self.flight.take() {
            self.release_flight(&flight_capture);
        } else if !self.ended {
            let _ = guarded(|| self.end().map(drop));
        }
    }
}
