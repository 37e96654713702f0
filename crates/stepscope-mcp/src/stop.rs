//! Cancellation of a running call.

use std::sync::{Arc, Mutex, PoisonError};

use stepscope_analysis::parallel::Cancel;
use stepscope_engine::SqlStop;

/// Stops the analysis or the query of one call.
#[derive(Default)]
pub struct Stop {
    cancel: Cancel,
    query: Mutex<QueryStop>,
}

/// Whether the call was stopped, and what ends its query.
#[derive(Default)]
struct QueryStop {
    is_stopped: bool,
    engine: Option<SqlStop>,
}

impl Stop {
    /// Returns the flag for analyses.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Stores what ends the query that starts now; returns false if the call was stopped before.
    pub(crate) fn arm(&self, engine: SqlStop) -> bool {
        let mut query = self.query.lock().unwrap_or_else(PoisonError::into_inner);
        query.engine = Some(engine);
        !query.is_stopped
    }

    /// Stops the call. Does nothing for a call that has ended.
    pub(crate) fn stop(&self) {
        self.cancel.cancel();
        let mut query = self.query.lock().unwrap_or_else(PoisonError::into_inner);
        query.is_stopped = true;
        if let Some(engine) = query.engine.take() {
            engine.stop();
        }
    }
}

/// Stops a call when its request is dropped because the client closed the connection.
pub struct StopOnDrop(Arc<Stop>);

impl StopOnDrop {
    /// Creates the guard of a call.
    pub fn new(stop: &Arc<Stop>) -> Self {
        Self(Arc::clone(stop))
    }
}

impl Drop for StopOnDrop {
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
        drop(StopOnDrop::new(&stop));
        assert!(stop.cancel().check().is_err());
    }
}
