//! Noticing that a thread ends: a key of the C library, since registering a Rust destructor
//! allocates.

use std::sync::atomic::{AtomicU32, Ordering};

use super::LOCAL;
use crate::region::{FREE, OWNED, RETIRED, Region};

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

pub(super) fn watch(region: &'static Region) {
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
    let region: &'static Region = unsafe { &*region.cast::<Region>() };
    let _ = LOCAL.try_with(|local| {
        local.ended.set(true);
        local.state.set(0);
        local.home.set(0);
        local.region.set(None);
    });
    retire(region);
}

/// The owner lets go. The drain thread frees what a session still reads.
pub(super) fn retire(region: &Region) {
    region.status.store(RETIRED, Ordering::SeqCst);
    if region.session.load(Ordering::SeqCst) == 0 {
        free(region);
    }
}

/// Frees a region whose thread has ended, if nobody else did.
pub(crate) fn free(region: &Region) {
    let _ = region
        .status
        .compare_exchange(RETIRED, FREE, Ordering::SeqCst, Ordering::Relaxed);
}

/// Whether the owner still runs.
pub(crate) fn owned(region: &Region) -> bool {
    region.status.load(Ordering::SeqCst) == OWNED
}
