//! Ends requests that run at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A flag that requests wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until some time after it was set.
    pub(crate) async fn wait(&self, after: Duration) {
        while !self.is_set() {
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(after).await;
    }
}
