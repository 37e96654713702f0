//! Detection of thread exit through a `pthread` key, since registering a Rust destructor allocates.
#![allow(
    unsafe_code,
    reason = "a key of the threads library; SAFETY comments explain each block"
)]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ring::memory::RingMemory;

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Creates the key, once, before the first session.
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
        // SAFETY: the key was created and is never deleted.
        unsafe { libc::pthread_setspecific(key, value) };
    }
}

pub(super) fn unwatch() {
    let key = KEY.load(Ordering::Acquire);
    if key != u32::MAX {
        // SAFETY: the key was created and is never deleted.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
    }
}

/// Runs after the thread's Rust destructors. If a later destructor annotates, the thread attaches
/// anew, and the C library calls this again.
unsafe extern "C" fn on_exit(region: *mut libc::c_void) {
    // SAFETY: set by `watch` to a region, which is never freed.
    let region: &'static RingMemory = unsafe { &*region.cast::<RingMemory>() };
    super::thread_ends();
    region.retire();
}
