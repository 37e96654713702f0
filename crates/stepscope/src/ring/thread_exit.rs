//! Noticing that a thread ends: a key of the C library, since registering a Rust destructor
//! allocates.
#![allow(
    unsafe_code,
    reason = "a key of the threads library; each block says why it is sound"
)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ring::memory::{FREE, OWNED, RETIRED, RingMemory};

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Makes the key, once; before the first session.
pub(crate) fn prepare() {
    if KEY.load(Ordering::Acquire) != u32::MAX {
        return;
    }
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is valid for writing, and the destructor has the right signature.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(on_exit)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
}

pub(super) fn watch(region: &'static RingMemory) {
    let key = KEY.load(Ordering::Acquire);
    if key != u32::MAX {
        let value = std::ptr::from_ref(region).cast();
        // SAFETY: the key was made and is never deleted.
        unsafe { libc::pthread_setspecific(key, value) };
    }
}

pub(super) fn unwatch() {
    let key = KEY.load(Ordering::Acquire);
    if key != u32::MAX {
        // SAFETY: as above.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
    }
}

/// The thread's own destructors have run. If a later one annotates, it attaches anew, and the
/// C library calls this again.
unsafe extern "C" fn on_exit(region: *mut libc::c_void) {
    // SAFETY: set by `watch` to a region, which is never freed.
    let region: &'static RingMemory = unsafe { &*region.cast::<RingMemory>() };
    super::writer::thread_ends();
    retire(region);
}

/// The owner lets go. The drain thread frees what a session still reads.
pub(super) fn retire(region: &RingMemory) {
    region.status.store(RETIRED, Ordering::SeqCst);
    if region.session.load(Ordering::SeqCst) == 0 {
        free(region);
    }
}

/// Frees a region whose thread has ended, if nobody else did.
pub(crate) fn free(region: &RingMemory) {
    let _ = region
        .status
        .compare_exchange(RETIRED, FREE, Ordering::SeqCst, Ordering::Relaxed);
}

/// Whether the owner still runs.
pub(crate) fn owned(region: &RingMemory) -> bool {
    region.status.load(Ordering::SeqCst) == OWNED
}
