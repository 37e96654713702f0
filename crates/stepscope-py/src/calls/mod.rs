//! The function tracer: events of the interpreter for each call of a Python or C function.
//!
//! ```text
//! 3.12 and newer: monitoring (sys.monitoring)  \          / stack (open calls of each thread) -> recorder
//!                                                 this file
//! 3.10 and 3.11:  profile (PyEval_SetProfile)  /          \ call_stats (sums, of one thread)
//! ```
//!
//! One hook serves both consumers. In the recording, every call is a slice, on all threads. Names (`names`)
//! are as JAX's tracer gives them: `$train.py:12 step` for Python functions, `$builtins len` for functions
//! of C modules, `$<unknown> append` for methods of C types. A generator or coroutine is one slice for each
//! time that it runs. Calls that run when the recording starts are not shown; those that run when it stops
//! are *unfinished*. The package's own functions are left out.

mod call_stats;
mod callback;
mod monitoring;
pub(crate) mod names;
mod profile;
mod stack;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

pub(crate) use call_stats::CallStats;
use names::{Called, Lately};

/// A value that only the thread with the interpreter's lock touches.
pub(crate) struct Locked<T>(UnsafeCell<T>);

#[allow(unsafe_code, reason = "the interpreter's lock is the lock")]
// SAFETY: `with` asks for the lock.
unsafe impl<T> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// `work` must not run Python code: that could give up the lock, or come back here.
    #[inline]
    #[allow(unsafe_code, reason = "the lock guards the value")]
    pub(crate) fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is held, and no code comes back in here, by the rule above.
        work(unsafe { &mut *self.0.get() })
    }
}

/// Whether calls go into the recording.
static ARE_RECORDED: AtomicBool = AtomicBool::new(false);

/// A Python function begins, or goes on.
///
/// # Safety
/// `code` is a live code object.
#[inline]
#[allow(unsafe_code, reason = "the interpreter's objects")]
unsafe fn code_begins(py: Python<'_>, code: *mut ffi::PyObject) {
    if stepscope::is_recording() && ARE_RECORDED.load(Ordering::Relaxed) {
        match names::lately(py, code as usize) {
            Lately::Number(name) => stack::begin(py, code as usize, name),
            Lately::Own => {}
            Lately::Unknown => {
                // SAFETY: by the caller.
                let called = unsafe { names::of_code(py, code) };
                begin_called(py, code as usize, &called);
            }
        }
    }
    if call_stats::counts_this_thread() {
        // SAFETY: by the caller.
        unsafe { call_stats::code_begins(py, code) };
    }
}

/// A Python function ends, or waits.
#[inline]
fn code_ends(py: Python<'_>, code: *mut ffi::PyObject) {
    if ARE_RECORDED.load(Ordering::Relaxed) {
        stack::end(code as usize);
    }
    if call_stats::counts_this_thread() {
        call_stats::code_ends(py, code as usize);
    }
}

/// A C function begins, called by code that `by` gives.
///
/// # Safety
/// `function` is a live object for which [`names::is_c_function`] holds, and `by` gives a live code object.
#[inline]
#[allow(unsafe_code, reason = "the interpreter's objects")]
unsafe fn c_function_begins(
    py: Python<'_>,
    function: *mut ffi::PyObject,
    by: impl FnOnce() -> *mut ffi::PyObject,
) {
    // SAFETY: by the caller.
    let key = unsafe { names::c_function_key(function) };
    if stepscope::is_recording() && ARE_RECORDED.load(Ordering::Relaxed) {
        match names::lately(py, key) {
            Lately::Number(name) => stack::begin(py, key, name),
            Lately::Own => {}
            // The end of the lock of our own start, above all. What is known is not asked again: a look-up
            // for each call would be felt.
            // SAFETY: by the caller.
            Lately::Unknown if unsafe { names::is_own_code(py, by()) } => {}
            Lately::Unknown => {
                // SAFETY: by the caller.
                let called = unsafe { names::of_c_function(py, key, function) };
                begin_called(py, key, &called);
            }
        }
    }
    if call_stats::counts_this_thread() {
        // SAFETY: by the caller.
        unsafe { call_stats::c_function_begins(py, key, function) };
    }
}

/// A C function ends.
///
/// # Safety
/// `function` is a live object for which [`names::is_c_function`] holds.
#[inline]
#[allow(unsafe_code, reason = "the interpreter's objects")]
unsafe fn c_function_ends(py: Python<'_>, function: *mut ffi::PyObject) {
    // SAFETY: by the caller.
    let key = unsafe { names::c_function_key(function) };
    if ARE_RECORDED.load(Ordering::Relaxed) {
        stack::end(key);
    }
    if call_stats::counts_this_thread() {
        call_stats::c_function_ends(py, key);
    }
}

#[cold]
fn begin_called(py: Python<'_>, function: usize, called: &Called) {
    match called {
        Called::Number(name) => stack::begin(py, function, *name),
        Called::Text(name) => stack::begin_by_text(function, name),
        Called::Not => {}
    }
}

/// The hook through which the interpreter's events come.
enum Hook {
    Off,
    Monitoring(monitoring::Tool),
    Profile(profile::Hook),
}

static HOOK: Locked<Hook> = Locked::new(Hook::Off);

/// The threads whose calls a consumer needs. `sys.monitoring` has no choice: the consumer leaves others out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    All,
    Calling,
}

/// Starts the hook, or joins one that runs. The reason where that is impossible.
pub(crate) fn start_hook(py: Python<'_>, threads: Threads) -> PyResult<Result<(), String>> {
    let is_off = HOOK.with(py, |hook| matches!(hook, Hook::Off));
    let started = if py.version_info() >= (3, 12) {
        if !is_off {
            monitoring::restart_events(py)?;
            return Ok(Ok(()));
        }
        monitoring::Tool::start(py)?.map(Hook::Monitoring)
    } else if is_off {
        profile::Hook::start(py, threads)?.map(Hook::Profile)
    } else if threads == Threads::Calling {
        Err("calls are being traced (python_tracer_level=0 leaves that out)".to_owned())
    } else {
        Err("another profiler is active (statistics of calls)".to_owned())
    };
    Ok(started.map(|started| HOOK.with(py, |hook| *hook = started)))
}

/// Stops the hook, unless a consumer is left. The number of threads that another profiler has taken over.
pub(crate) fn stop_hook(py: Python<'_>) -> PyResult<u64> {
    if ARE_RECORDED.load(Ordering::Relaxed) || call_stats::is_counting() {
        return Ok(0);
    }
    match HOOK.with(py, |hook| std::mem::replace(hook, Hook::Off)) {
        Hook::Off => Ok(0),
        Hook::Monitoring(tool) => tool.stop(py).map(|()| 0),
        Hook::Profile(hook) => hook.stop(py),
    }
}

/// Starts recording calls. The reason where that is impossible. `own_folder` is the package's own.
#[pyfunction]
#[pyo3(signature = (own_folder))]
pub(crate) fn start_calls(py: Python<'_>, own_folder: String) -> PyResult<Option<String>> {
    if ARE_RECORDED.load(Ordering::Relaxed) {
        return Ok(None);
    }
    names::begin(py, own_folder);
    // Before the hook starts: a thread's first event may come while it does.
    ARE_RECORDED.store(true, Ordering::Relaxed);
    let started = start_hook(py, Threads::All);
    if !matches!(started, Ok(Ok(()))) {
        ARE_RECORDED.store(false, Ordering::Relaxed);
        names::end(py);
    }
    Ok(started?.err())
}

/// Stops recording calls, if they are recorded. The warning where calls are missing from the recording.
#[pyfunction]
pub(crate) fn stop_calls(py: Python<'_>) -> PyResult<Option<String>> {
    if !ARE_RECORDED.swap(false, Ordering::Relaxed) {
        return Ok(None);
    }
    let lost = stop_hook(py);
    names::end(py);
    Ok(match lost? {
        0 => None,
        lost => Some(format!(
            "calls of Python functions are missing on {lost} thread{}: another profiler took the \
             interpreter's profile function while this recording ran; use only one of them, or \
             python_sampling_hz in place of calls",
            if lost == 1 { "" } else { "s" }
        )),
    })
}

/// In a fork's child: the recording is the parent's.
#[pyfunction]
pub(crate) fn forget_calls(py: Python<'_>) -> PyResult<()> {
    stop_calls(py).map(|_missing| ())
}
