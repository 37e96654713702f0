//! How somebody else ends a capture that runs.

use tokio::sync::watch;

/// What was asked of a capture. Later ones count more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopMode {
    /// Nothing: it goes on.
    #[default]
    GoOn,
    /// End the interval now, keep the data.
    EndEarly,
    /// Stop, keep nothing.
    Abandon,
}

/// Ends a capture that runs in another thread. Clones are the same control; asking twice is fine,
/// and so is asking before it has begun or after it is over.
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
    /// A control for one capture.
    pub fn new() -> Self {
        Self {
            wish: watch::Sender::new(StopMode::GoOn),
        }
    }

    /// Ends the interval now, on every host; what was recorded until then is kept.
    pub fn end_early(&self) {
        self.raise(StopMode::EndEarly);
    }

    /// Stops now: hosts whose data is not on the disk yet are told to end, and give nothing.
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
