//! What happens at a fork, at exit, and when threads end.
#![allow(unsafe_code, reason = "registers functions with the C library")]

use std::sync::Once;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::folder::DESCRIPTORS;
use super::recording::forget_names;
use super::{PROCESS, guarded, process, stop_trace};
use crate::api::names;
use crate::api::steps;
use crate::drain::triggers;
use crate::ring::thread_exit;

/// Handlers for fork, exit and ends of threads, and the names that no recording can do without; once
/// per process.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    thread_exit::prepare();
    names::prepare();
    ONCE.call_once(|| {
        // SAFETY: functions without captured state, for the life of the process.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork_in_child));
            #[cfg(target_env = "gnu")]
            on_exit(at_exit, std::ptr::null_mut());
            #[cfg(not(target_env = "gnu"))]
            libc::atexit(at_plain_exit);
        }
    });
}

/// The child does not own the session: it begins with nothing, and may start its own.
extern "C" fn after_fork_in_child() {
    crate::ring::writer::after_fork_in_child();
    names::after_fork_in_child();
    steps::after_fork_in_child();
    triggers::release_signal();
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

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// As `atexit`; the function is told the exit status.
    fn on_exit(
        function: extern "C" fn(libc::c_int, *mut libc::c_void),
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

#[cfg(not(target_env = "gnu"))]
extern "C" fn at_plain_exit() {
    at_exit(0, std::ptr::null_mut());
}

/// A program that ends without a stop: its recording is finished, if that can be done safely. If not
/// (a stop is under way elsewhere), the journal is there to be recovered. The journal of a flight
/// recorder stays when the program has failed: its last seconds are what one wants to see.
extern "C" fn at_exit(status: libc::c_int, _: *mut libc::c_void) {
    if PROCESS.load(Ordering::Acquire).is_null() {
        return;
    }
    let _ = guarded(|| {
        let mut process = process()?;
        process.end_worker(None)?;
        if status != 0
            && process
                .active
                .as_ref()
                .is_some_and(|active| active.is_flight())
        {
            if let Some(active) = &process.active {
                active.control.flush(Duration::from_secs(1));
            }
            // Never dropped: the journal and its lock stay until the process is gone.
            std::mem::forget(process.active.take());
        }
        process.pause_flight();
        // What is stopped below is not to be followed by a flight recorder again.
        process.flight = None;
        Ok(())
    });
    let _ = stop_trace();
}
