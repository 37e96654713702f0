//! Wakes the drain thread, which sleeps on a futex word.
//!
//! A recording thread wakes it only when it leaves a chunk during the drain thread's long sleep
//! after inactivity: at most once per such sleep. An idle program is therefore woken only a few
//! times a second, and a burst after that finds its rings drained in time. Nothing here allocates
//! or locks: signal handlers may use it.
#![allow(unsafe_code, reason = "the kernel's wait on a word")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

static WORD: AtomicU32 = AtomicU32::new(0);
/// Whether the drain thread is in a long sleep.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Wakes the drain thread.
pub(crate) fn wake() {
    WORD.fetch_add(1, Ordering::SeqCst);
    // SAFETY: wakes the waiters on a static word; no other memory is accessed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WORD.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}

/// Wakes the drain thread if it is in a long sleep.
pub(crate) fn wake_if_asleep() {
    if ASLEEP.load(Ordering::Relaxed) && ASLEEP.swap(false, Ordering::SeqCst) {
        wake();
    }
}

/// Returns the counter for [`sleep`]: a wake after this call ends the sleep.
pub(crate) fn now() -> u32 {
    WORD.load(Ordering::SeqCst)
}

/// Sleeps for a period, or until a wake after `seen` was read. Drain thread only.
pub(crate) fn sleep(seen: u32, period: Duration, long: bool) {
    ASLEEP.store(long, Ordering::SeqCst);
    let period = libc::timespec {
        tv_sec: period.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(period.subsec_nanos() as i32),
    };
    // SAFETY: the word is static, and the period is valid while the call reads it.
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

/// Resets the state in a fork's child, which has no drain thread.
pub(crate) fn after_fork_in_child() {
    ASLEEP.store(false, Ordering::SeqCst);
}
