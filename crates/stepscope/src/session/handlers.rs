//! Handlers for fork, exit and thread exit.
#![allow(unsafe_code, reason = "registers functions with the C library")]

use std::sync::Once;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{PROCESS, guarded, process, stop_trace};
use crate::drain::triggers;
use crate::journal::files::DESCRIPTORS;
use crate::ring::steps;
use crate::ring::writer::thread_exit;
use crate::ring::{name_table, names};

/// Installs the handlers for fork, exit and thread exit, and registers the names that every
/// recording needs; once per process.
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

/// Resets the child, which does not own the session; it may start its own.
extern "C" fn after_fork_in_child() {
    crate::ring::writer::after_fork_in_child();
    names::after_fork_in_child();
    steps::after_fork_in_child();
    triggers::release_signal();
    name_table::forget();
    for slot in &DESCRIPTORS {
        let fd = slot.swap(-1, Ordering::SeqCst);
        if fd >= 0 {
            // SAFETY: closes the child's copy of the descriptor; the value that owns it is never
            // dropped here.
            unsafe { libc::close(fd) };
        }
    }
    // The parent's session and its lock may be in any state: the child never accesses them.
    PROCESS.store(std::ptr::null_mut(), Ordering::SeqCst);
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Registers a function like `atexit`; the function receives the exit status.
    fn on_exit(
        function: extern "C" fn(libc::c_int, *mut libc::c_void),
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

#[cfg(not(target_env = "gnu"))]
extern "C" fn at_plain_exit() {
    at_exit(0, std::ptr::null_mut());
}

/// Finishes the recording of a program that ends without a stop, if that is safe. Otherwise (a stop
/// is in progress in another thread) the journal can be recovered. The journal of a flight recorder
/// stays when the program has failed: its last seconds show the cause.
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
            // Never dropped: the journal and its lock stay until the process ends.
            std::mem::forget(process.active.take());
        }
        process.pause_flight();
        // Prevents that the stop below resumes a flight recorder.
        process.flight = None;
        Ok(())
    });
    let _ = stop_trace();
}
