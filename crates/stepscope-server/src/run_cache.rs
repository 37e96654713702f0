//! Computed values of open runs, kept for the next requests.

use std::sync::{Arc, Weak};

use stepscope_engine::Run;

/// A cached value and the run that it belongs to.
pub(crate) struct Cached<T> {
    run: Weak<Run>,
    pub(crate) value: Arc<T>,
}

impl<T> Cached<T> {
    /// Returns whether the value belongs to a run.
    pub(crate) fn is_of(&self, run: &Arc<Run>) -> bool {
        std::ptr::eq(self.run.as_ptr(), Arc::as_ptr(run))
    }

    /// Inserts a value as the newest one, and drops the oldest and those of closed runs.
    pub(crate) fn insert(cache: &mut Vec<Self>, run: &Arc<Run>, value: Arc<T>, most: usize) {
        cache.retain(|known| known.run.strong_count() > 0);
        let run = Arc::downgrade(run);
        cache.insert(0, Self { run, value });
        cache.truncate(most);
    }
}
