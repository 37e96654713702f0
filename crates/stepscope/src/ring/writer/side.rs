//! Rings beside the threads' own.

use crate::ring::thread_exit;

use super::{Local, Owner, Writer, attach};

/// A ring beside the threads' own, for what one thread records on behalf of another.
pub(crate) struct Side {
    local: Local,
}

impl Side {
    pub(crate) const fn new() -> Self {
        Self {
            local: Local::new(Owner::Side),
        }
    }

    /// As [`with_writer`], for this ring.
    pub(crate) fn with_writer<T>(
        &self,
        state: u32,
        work: impl FnOnce(Writer<'_>) -> T,
    ) -> Option<T> {
        let local = &self.local;
        if local.state.get() != state && !attach(local, state) {
            return None;
        }
        Some(work(Writer { local, state }))
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some(region) = self.local.region.get() {
            thread_exit::retire(region);
        }
    }
}
