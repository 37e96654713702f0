//! Cancellation of a running call.

use std::sync::{Arc, Mutex, PoisonError};

use stepscope_analysis::parallel::Cancel;

/// Stops the work of one call.
#[derive(Default)]
pub struct Stop {
    cancel: Cancel,
    other: Mutex<OtherWork>,
}

/// Whether the call was stopped, and what ends work that does not look at the flag: a query, a capture.
#[derive(Default)]
struct OtherWork {
    is_stopped: bool,
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Stop {
    /// Returns the flag for analyses.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Stores what ends the work that starts now; returns false if the call was stopped before.
    pub(crate) fn arm(&self, end: impl FnOnce() + Send + 'static) -> bool {
        let mut other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        other.end = Some(Box::new(end));
        !other.is_stopped
    }

    /// Stops the call. Does nothing for a call that has ended.
    pub(crate) fn stop(&self) {
        self.cancel.cancel();
        let mut other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        other.is_stopped = true;
        if let Some(end) = other.end.take() {
            end();
        }
    }
}

/// Stops a call when its request is dropped because the client closed the connection.
pub struct StopCallOnDrop(Arc<Stop>);

impl StopCallOnDrop {
    /// Creates the guard of a call.
    pub fn new(stop: &Arc<Stop>) -> Self {
        Self(Arc::clone(stop))
    }
}

impl Drop for StopCallOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_the_request_cancels_its_analysis() {
        let stop = Arc::new(Stop::default());
        assert!(stop.cancel().check().is_ok());
        drop(StopCallOnDrop::new(&stop));
        assert!(stop.cancel().check().is_err());
    }
}
