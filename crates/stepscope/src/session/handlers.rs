//! What happens at a fork, at exit, and when threads end.
#![allow(unsafe_code, reason = "registers functions with the C library")]

use std::sync::Once;
use std::sync::atomic::Ordering;

use super::folder::DESCRIPTORS;
use super::recording::forget_names;
use super::{PROCESS, stop_trace};
use crate::names;
use crate::ring::exit;

/// Handlers for fork, exit and ends of threads; once per process.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    exit::prepare();
    ONCE.call_once(|| {
        // SAFETY: functions without captured state, for the life of the process.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork_in_child));
            libc::atexit(at_exit);
        }
    });
}

/// The child does not own the session: it begins with nothing, and may start its own.
extern "C" fn after_fork_in_child() {
    crate::ring::after_fork_in_child();
    names::after_fork_in_child();
    forget_names();
    for place in &DESCRIPTORS {
        let fd = place.swap(-1, Ordering::SeqCst);
        if fd >= 0 {
            // SAFETY: the child's own copy; the value that owns it is never dropped here.
            unsafe { libc::close(fd) };
        }
    }
    // The parent's session and its lock may be in any state: left alone, for ever.
    PROCESS.store(std::ptr::null_mut(), Ordering::SeqCst);
}

/// A program that ends without a stop: its recording is finished, if that can be done safely. If not
/// (a stop is under way elsewhere), the journal is there to be recovered.
extern "C" fn at_exit() {
    if PROCESS.load(Ordering::Acquire).is_null() {
        return;
    }
    let _ = stop_trace();
}
