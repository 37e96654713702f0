//! Early end of a running capture.

use tokio::sync::watch;

/// Requested end of a capture. Later variants take precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopMode {
    /// Continue.
    #[default]
    GoOn,
    /// End the interval now and keep the data.
    EndEarly,
    /// Stop and discard the data.
    Abandon,
}

/// Handle to end a capture that runs in another thread. Clones control the same capture. Repeated
/// calls, and calls before the start or after the end, are allowed.
#[derive(Clone, Debug)]
pub struct CaptureControl {
    wish: watch::Sender<StopMode>,
}

impl Default for CaptureControl {
    fn default() -> Self {
        Self::new()
    }
}

impl CaptureControl {
    /// Creates a handle for one capture.
    pub fn new() -> Self {
        Self {
            wish: watch::Sender::new(StopMode::GoOn),
        }
    }

    /// Ends the interval on every host now and keeps the recorded data.
    pub fn end_early(&self) {
        self.raise(StopMode::EndEarly);
    }

    /// Stops now: hosts whose data is not yet on disk are asked to end, and their data is
    /// discarded.
    pub fn abandon(&self) {
        self.raise(StopMode::Abandon);
    }

    fn raise(&self, to: StopMode) {
        self.wish.send_if_modified(|wish| {
            let more = *wish < to;
            *wish = to.max(*wish);
            more
        });
    }

    pub(crate) fn watch(&self) -> watch::Receiver<StopMode> {
        self.wish.subscribe()
    }
}
