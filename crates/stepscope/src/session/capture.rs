//! Captures: recordings that belong to somebody else than the program, such as a server that a
//! remote client asked.

use std::io::Write;
use std::sync::Arc;

use super::recording::{self, Owner};
use super::{
    Finished, SessionError, SessionOptions, StopReport, guarded, process, process_patiently,
};
use crate::cut::Cut;
use crate::drain::Carried;

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
    ended: bool,
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
/// # Errors
/// [`SessionError::TraceRunning`] while the program records itself, [`SessionError::CaptureRunning`]
/// while there is another capture.
pub fn start_capture(options: &SessionOptions) -> Result<Capture, SessionError> {
    guarded(|| {
        let mut process = process()?;
        match process.active.as_deref().map(|session| &session.owner) {
            None => {}
            Some(Owner::Program { folder, .. }) => {
                return Err(SessionError::TraceRunning {
                    path: folder.clone(),
                });
            }
            Some(Owner::Capture) => return Err(SessionError::CaptureRunning),
        }
        let session = recording::start_in_memory(Owner::Capture, options)?;
        let capture = Capture {
            number: session.number,
            carried: Arc::clone(&session.control.carried),
            ended: false,
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
        CaptureProgress { events, bytes }
    }

    /// Stops, and writes what `cut` keeps as one `XSpace` to `out`, in large pieces.
    ///
    /// [`StopReport::path`] is empty. Spans that are open are written as unfinished.
    ///
    /// # Errors
    /// [`SessionError::CaptureGone`] in a fork's child; [`SessionError::NotDelivered`] when `out`
    /// fails. Either way the recording has ended.
    pub fn finish(mut self, out: &mut dyn Write, cut: &Cut) -> Result<StopReport, SessionError> {
        guarded(|| {
            let finished = self.end()?;
            finished
                .write_to(out, cut)
                .map_err(|source| SessionError::NotDelivered { source })
        })
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
        if !self.ended {
            let _ = guarded(|| self.end().map(drop));
        }
    }
}
