//! Wakes the drain thread: one word that it sleeps on.
//!
//! Recording threads do so only when they leave a chunk while the drain thread sleeps for long
//! because nothing was recorded: at most once per such sleep. So a program that does nothing is woken
//! a few times a second, and a burst after it finds its rings drained in time. Nothing here allocates or
//! locks: signal handlers may use it.
#![allow(unsafe_code, reason = "the kernel's wait on a word")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

static WORD: AtomicU32 = AtomicU32::new(0);
/// The drain thread sleeps for long.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Wakes the drain thread.
pub(crate) fn ring() {
    WORD.fetch_add(1, Ordering::SeqCst);
    // SAFETY: wakes whoever waits on a word that lives for ever; no memory is accessed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WORD.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

/// Wakes the drain thread if it sleeps for long.
pub(crate) fn ring_if_asleep() {
    if ASLEEP.load(Ordering::Relaxed) && ASLEEP.swap(false, Ordering::SeqCst) {
        ring();
    }
}

/// What [`sleep`] is told: a ring after this call ends the sleep.
pub(crate) fn now() -> u32 {
    WORD.load(Ordering::SeqCst)
}

/// Sleeps for a period, less if somebody rings or has rung since `seen`. For the drain thread.
pub(crate) fn sleep(seen: u32, period: Duration, long: bool) {
    ASLEEP.store(long, Ordering::SeqCst);
    let period = libc::timespec {
        tv_sec: period.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(period.subsec_nanos() as i32),
    };
    // SAFETY: the word lives for ever, and the period is valid while the call reads it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WORD.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &raw const period,
        );
    }
    ASLEEP.store(false, Ordering::SeqCst);
}

/// In a child after a fork: nobody sleeps here.
pub(crate) fn after_fork_in_child() {
    ASLEEP.store(false, Ordering::SeqCst);
}
