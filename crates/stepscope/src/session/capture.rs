//! Captures: recordings that belong to somebody else than the program, such as a server that a
//! remote client asked.

use std::io::Write;
use std::sync::Arc;

use super::flight::{Part, Running};
use super::recording::{self, Owner};
use super::{
    Finished, HostTracerLevel, SessionError, SessionOptions, StopReport, guarded, process,
    process_patiently,
};
use crate::drain::requests::Carried;
use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;

/// A recording in memory that belongs to whoever holds this, not to the program. Dropping it throws
/// the recording away.
///
/// `stop_trace` does not end it, and `start_trace` is an error while it runs.
#[derive(Debug)]
#[must_use = "a capture that is dropped is thrown away"]
pub struct Capture {
    /// Of the session in this process that it is.
    number: u32,
    carried: Arc<Carried>,
    /// Events and bytes that were there before it began.
    before: (u64, u64),
    ride: Option<Ride>,
    ended: bool,
    /// Stopped, but not handed on.
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

/// A capture that is a part of what the flight recorder has.
struct Ride {
    running: Arc<Running>,
    number: u32,
    /// When it began.
    ticks: u64,
    before: (u64, u64),
    dropped_before: u64,
    /// Nothing is to be recorded.
    is_off: bool,
    warnings: Vec<String>,
}

impl std::fmt::Debug for Ride {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ride").finish_non_exhaustive()
    }
}

impl Ride {
    fn start(running: Arc<Running>, options: &SessionOptions) -> Result<Self, SessionError> {
        let number = recording::next_number();
        let before = running.carried().so_far();
        let dropped_before = running.carried().dropped();
        let ticks = running.hold(number, options.memory_limit_bytes)?;
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
        additions: &ExternalProfiles,
    ) -> Result<StopReport, SessionError> {
        let snapshot = self.running.snapshot(Some(self.number))?;
        let mut part = Part::new(&self.running, &snapshot, cut);
        part.since(self.ticks, self.dropped_before);
        for warning in &self.warnings {
            part.warn(warning.clone());
        }
        if self.is_off {
            part.nothing();
        }
        part.write(out, additions)
            .map_err(|source| SessionError::NotDelivered { source })
    }
}

/// How much has been recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CaptureProgress {
    /// Spans, steps, instants and samples so far. What threads have in their current 64 KiB is
    /// counted in records, where an argument counts, too.
    pub events: u64,
    /// Bytes of memory that they take.
    pub bytes: u64,
}

/// Starts a recording in memory, up to [`SessionOptions::memory_limit_bytes`]. Nothing is written
/// to any disk. Of the options, those about files and folders have no meaning here.
///
/// While the flight recorder runs, a capture is a part of what that records, at its level; the flight
/// recorder goes on, and may take so much more memory meanwhile.
///
/// # Errors
/// [`SessionError::TraceRunning`] while the program records itself, [`SessionError::CaptureRunning`]
/// while there is another capture.
pub fn start_capture(options: &SessionOptions) -> Result<Capture, SessionError> {
    guarded(|| {
        let mut process = process()?;
        process.refuse_others()?;
        process.end_worker(None)?;
        if let Some(Owner::Flight {
            running: Some(running),
            ..
        }) = process.active.as_deref().map(|session| &session.owner)
        {
            let ride = Ride::start(Arc::clone(running), options)?;
            process.rider = Some(ride.number);
            return Ok(Capture {
                number: ride.number,
                carried: Arc::clone(ride.running.carried()),
                before: ride.before,
                ride: Some(ride),
                ended: false,
                stopped: Stopped::default(),
            });
        }
        let session = recording::start_in_memory(Owner::Capture, options)?;
        let capture = Capture {
            number: session.number,
            carried: Arc::clone(&session.control.carried),
            before: (0, 0),
            ride: None,
            ended: false,
            stopped: Stopped::default(),
        };
        process.active = Some(Box::new(session));
        drop(process);
        crate::levels_changed();
        Ok(capture)
    })
}

impl Capture {
    /// How much has been recorded so far. Costs a look at each thread's buffer.
    pub fn progress(&self) -> CaptureProgress {
        let (events, bytes) = self.carried.so_far();
        CaptureProgress {
            events: events.saturating_sub(self.before.0),
            bytes: bytes.saturating_sub(self.before.1),
        }
    }

    /// Stops, and writes what `cut` keeps as one `XSpace` to `out`, in large pieces.
    ///
    /// [`StopReport::path`] is empty. Spans that are open are written as unfinished.
    ///
    /// # Errors
    /// [`SessionError::CaptureGone`] in a fork's child; [`SessionError::NotDelivered`] when `out`
    /// fails. Either way the recording has ended.
    pub fn finish(
        self,
        out: &mut dyn Write,
        cut: &ExportLimits,
    ) -> Result<StopReport, SessionError> {
        self.finish_with(out, cut, &ExternalProfiles::default())
    }

    /// As [`finish`](Self::finish), with what other profilers recorded meanwhile. `cut` is not for
    /// that.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with(
        mut self,
        out: &mut dyn Write,
        cut: &ExportLimits,
        additions: &ExternalProfiles,
    ) -> Result<StopReport, SessionError> {
        guarded(|| {
            if let Some(ride) = self.ride.take() {
                let result = ride.finish(out, cut, additions);
                self.get_off(&ride);
                return result;
            }
            let finished = match self.stopped.0.take() {
                Some(finished) => *finished,
                None => self.end()?,
            };
            finished
                .write_to(out, cut, additions)
                .map_err(|source| SessionError::NotDelivered { source })
        })
    }

    /// Stops recording; [`finish`](Self::finish) then only writes. For those who have more to stop
    /// before they can write. One that rides on the flight recorder goes on until `finish`.
    ///
    /// # Errors
    /// [`SessionError::CaptureGone`] in a fork's child.
    pub fn stop(&mut self) -> Result<(), SessionError> {
        guarded(|| {
            if self.ride.is_none() && self.stopped.0.is_none() {
                self.stopped.0 = Some(Box::new(self.end()?));
            }
            Ok(())
        })
    }

    /// Ends the ride.
    fn get_off(&mut self, ride: &Ride) {
        self.ended = true;
        ride.running.release(ride.number);
        if let Ok(mut process) = process_patiently()
            && process.rider == Some(ride.number)
        {
            process.rider = None;
        }
    }

    /// Stops recording.
    fn end(&mut self) -> Result<Finished, SessionError> {
        self.ended = true;
        let mut process = process_patiently()?;
        let mine = |session: &mut Box<recording::Session>| session.number == self.number;
        let session = process.active.take_if(mine);
        let finished = session.ok_or(SessionError::CaptureGone)?.finish();
        drop(process);
        crate::levels_changed();
        finished
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(ride) = self.ride.take() {
            self.get_off(&ride);
        } else if !self.ended {
            let _ = guarded(|| self.end().map(drop));
        }
    }
}
