//! Function calls in the stack of open spans. The slot identifies the function, so a tracer that
//! receives "this function ends" needs no stack.
#![allow(unsafe_code, reason = "shared rings; see the module `writer`")]

use std::sync::atomic::{Ordering, compiler_fence};

use super::{FULL, ONE, OpenSlot, Writer, put};
use crate::ring::layout::{FLAG_CALLED, OPEN_SPANS, meta_flags};

impl Writer<'_> {
    /// Returns whether a call tracer has described this thread in this session.
    #[inline]
    pub(crate) fn is_described(self) -> bool {
        self.local.described.get() == self.state
    }

    /// Marks this thread as described by a call tracer.
    #[cold]
    pub(crate) fn set_described(self) {
        self.local.described.set(self.state);
    }

    /// Opens a slot for a call of this function; `false` when no slot is left.
    #[inline]
    pub(crate) fn open_call(self, function: u64, meta: u64) -> bool {
        let depth = self.local.depth.get();
        if depth as usize >= OPEN_SPANS {
            return false;
        }
        self.local.depth.set(depth + 1);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: attached, so it points into the region; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(depth as usize) };
        slot.value.store(function, Ordering::Relaxed);
        slot.key.store(self.now(), Ordering::Relaxed);
        slot.meta.store(meta, Ordering::Release);
        true
    }

    /// Ends the innermost open span if it is a call of this function; `false` if not.
    #[inline]
    pub(crate) fn close_call(self, function: u64) -> bool {
        let top = self.local.depth.get().wrapping_sub(1);
        if top as usize >= OPEN_SPANS {
            return false;
        }
        // SAFETY: attached, so it points into the region; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(top as usize) };
        let meta = slot.meta.load(Ordering::Relaxed);
        if slot.value.load(Ordering::Relaxed) != function || meta_flags(meta) & FLAG_CALLED == 0 {
            return false;
        }
        let key = slot.key.load(Ordering::Relaxed);
        let end = self.now();
        // The span below is usually open; `close` handles the other case.
        // SAFETY: attached, so it points into the region; `top - 1` is below the checked `top`.
        let open_below =
            top == 0 || unsafe { &*self.local.open.get().add(top as usize - 1) }.is_taken();
        self.enter();
        let filled = self.local.filled.get();
        if filled == FULL || !open_below {
            self.leave();
            self.close_in_full(OpenSlot(top), key, end, meta);
            return true;
        }
        // SAFETY: the chunk has room for whole records up to `FULL`.
        unsafe {
            put(
                self.local.chunk_at.get().add(filled as usize),
                [key, end, meta],
            );
        }
        self.publish(filled + ONE);
        slot.meta.store(0, Ordering::Release);
        self.local.depth.set(top);
        self.leave();
        true
    }

    #[cold]
    #[inline(never)]
    fn close_in_full(self, slot: OpenSlot, key: u64, end: u64, meta: u64) {
        self.close(slot, key, end, meta);
    }

    /// Ends the innermost open call of this function, and the calls inside it. Does nothing when
    /// there is none.
    #[cold]
    #[inline(never)]
    pub(crate) fn close_call_below(self, function: u64) {
        let depth = (self.local.depth.get() as usize).min(OPEN_SPANS);
        let call = |index: usize| {
            // SAFETY: attached, so it points into the region; `index` is below `depth`, at most
            // `OPEN_SPANS`.
            let slot = unsafe { &*self.local.open.get().add(index) };
            let meta = slot.meta.load(Ordering::Relaxed);
            let function = slot.value.load(Ordering::Relaxed);
            let key = slot.key.load(Ordering::Relaxed);
            (meta_flags(meta) & FLAG_CALLED != 0).then_some((function, key, meta))
        };
        let Some(found) = (0..depth)
            .rev()
            .find(|&index| call(index).is_some_and(|(of, ..)| of == function))
        else {
            return;
        };
        let end = self.now();
        for index in (found..depth).rev() {
            if let (Some((_, key, meta)), Ok(slot)) = (call(index), u32::try_from(index)) {
                self.close(OpenSlot(slot), key, end, meta);
            }
        }
    }
}
