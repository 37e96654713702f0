//! Spans of `tracing` in the stack of open spans. They are found by the id that `tracing` gives them.
#![allow(unsafe_code, reason = "shared rings; see the module `writer`")]

use std::sync::atomic::{Ordering, compiler_fence};

use super::{LOCAL, OpenSlot, Writer};
use crate::platform::clock::SLOW_CLOCK;
use crate::ring::layout::{FLAG_TRACED, OPEN_SPANS, meta_flags};

/// Returns the calling thread's writer when it is ready: attached to `state`, with a clock that
/// needs no call. The caller must handle `None` in a separate function, so that the fast path saves
/// no registers.
#[inline]
pub(crate) fn ready_writer(state: u32) -> Option<Writer<'static>> {
    let local = LOCAL.with(std::ptr::from_ref);
    // SAFETY: belongs to this thread, which is running, and is valid until the thread ends; a
    // writer stays on its thread, being neither `Send` nor `Sync`.
    let local = unsafe { &*local };
    (local.state.get() == state && state & SLOW_CLOCK == 0).then_some(Writer { local, state })
}

impl Writer<'_> {
    /// Like [`open`](Writer::open), for a span that is looked up by its id. The span counts as
    /// dropped when no slot is left to store its start.
    #[inline]
    pub(crate) fn open_with_id(self, key: u64, id: u64, meta: u64) {
        let depth = self.local.depth.get();
        self.local.depth.set(depth + 1);
        compiler_fence(Ordering::SeqCst);
        if depth as usize >= OPEN_SPANS {
            return self.count_dropped();
        }
        // SAFETY: attached, so it points into the region; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(depth as usize) };
        slot.key.store(key, Ordering::Relaxed);
        slot.value.store(id, Ordering::Relaxed);
        slot.meta.store(meta, Ordering::Release);
    }

    /// Closes the innermost open span now if it has this id; `false` if not.
    #[inline]
    pub(crate) fn close_top(self, id: u64) -> bool {
        let top = self.local.depth.get().wrapping_sub(1);
        if top as usize >= OPEN_SPANS {
            return false;
        }
        // SAFETY: attached, so it points into the region; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(top as usize) };
        let meta = slot.meta.load(Ordering::Relaxed);
        if slot.value.load(Ordering::Relaxed) != id || meta_flags(meta) & FLAG_TRACED == 0 {
            return false;
        }
        self.close(
            OpenSlot(top),
            slot.key.load(Ordering::Relaxed),
            self.now(),
            meta,
        );
        true
    }

    /// Releases a slot without a record.
    pub(crate) fn forget(self, slot: OpenSlot) {
        self.enter();
        self.pop(slot);
        self.leave();
    }

    /// Counts a dropped event.
    #[cold]
    pub(crate) fn count_dropped(self) {
        // SAFETY: the thread is attached, so `head` points to its region, which is never unmapped.
        let dropped = unsafe { &(*self.local.head.get()).dropped };
        dropped.store(dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the number of open spans, including those without a slot.
    pub(crate) fn depth(self) -> u32 {
        self.local.depth.get()
    }

    /// Returns key, id and meta of an open slot that was taken with an id.
    pub(crate) fn slot(self, index: u32) -> Option<[u64; 3]> {
        if index as usize >= OPEN_SPANS || index >= self.local.depth.get() {
            return None;
        }
        // SAFETY: attached; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(index as usize) };
        let meta = slot.meta.load(Ordering::Relaxed);
        if meta_flags(meta) & FLAG_TRACED == 0 {
            return None;
        }
        let key = slot.key.load(Ordering::Relaxed);
        Some([key, slot.value.load(Ordering::Relaxed), meta])
    }

    /// Returns the slot with this index, to close it.
    pub(crate) fn slot_at(index: u32) -> OpenSlot {
        OpenSlot(index)
    }
}
