//! Rings in addition to the threads' rings.

use super::attach::attach;
use super::{Local, Owner, Writer};

/// A ring for what one thread records on behalf of another.
pub(crate) struct ExtraRing {
    local: Local,
}

impl ExtraRing {
    pub(crate) const fn new() -> Self {
        Self {
            local: Local::new(Owner::ExtraRing),
        }
    }

    /// Like [`with_writer`](super::with_writer), for this ring.
    pub(crate) fn with_writer<T>(&self, state: u32, f: impl FnOnce(Writer<'_>) -> T) -> Option<T> {
        let local = &self.local;
        if local.state.get() != state && !attach(local, state) {
            return None;
        }
        Some(f(Writer { local, state }))
    }
}

impl Drop for ExtraRing {
    fn drop(&mut self) {
        if let Some(region) = self.local.region.get() {
            region.retire();
        }
    }
}
