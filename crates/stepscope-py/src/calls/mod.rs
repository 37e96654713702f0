//! The function tracer: every call of a Python or C function as a slice, in all threads.
//!
//! ```text
//! 3.12 and newer: monitoring (sys.monitoring)  \
//!                                                stack (what each thread is in) -> recorder
//! 3.10 and 3.11:  profile (PyEval_SetProfile)  /    names (of code objects and C functions)
//! ```
//!
//! Names are as JAX's tracer gives them: `$train.py:12 step` for Python functions, `$builtins len` for
//! functions of C modules, `$<unknown> append` for methods of C types. A generator or coroutine is
//! one slice for each time that it runs. What is running when the recording starts is not shown; what
//! runs when it stops is *unfinished*. The package's own functions are left out.

pub(crate) mod callback;
pub(crate) mod monitoring;
pub(crate) mod names;
mod owner;
pub(crate) mod profile;
mod stack;

use std::cell::UnsafeCell;

use pyo3::ffi;
use pyo3::prelude::*;

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
    #[allow(unsafe_code, reason = "as above")]
    pub(crate) fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is held, and nobody comes back in here, by the rule above.
        work(unsafe { &mut *self.0.get() })
    }
}

/// A Python function begins.
///
/// # Safety
/// `code` is a live code object.
#[inline]
#[allow(unsafe_code, reason = "the interpreter's objects")]
unsafe fn code_begins(py: Python<'_>, code: *mut ffi::PyObject) {
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

/// A C function begins, called by code that `by` gives.
///
/// # Safety
/// `function` is a live object, and so is what `by` gives.
#[inline]
#[allow(unsafe_code, reason = "the interpreter's objects")]
unsafe fn c_function_begins(
    py: Python<'_>,
    function: *mut ffi::PyObject,
    by: impl FnOnce() -> *mut ffi::PyObject,
) {
    // SAFETY: by the caller.
    let key = unsafe { names::c_function_key(py, function) };
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

#[cold]
fn begin_called(py: Python<'_>, function: usize, called: &Called) {
    match called {
        Called::Number(name) => stack::begin(py, function, *name),
        Called::Text(name) => stack::begin_by_text(function, name),
        Called::Not => {}
    }
}

/// Which way calls are traced now.
enum Way {
    Off,
    Monitoring(monitoring::Tool),
    Profile(profile::Hook),
}

static WAY: Locked<Way> = Locked::new(Way::Off);

/// Starts tracing calls. Why it cannot, if it cannot. `own_folder` is the package's own.
#[pyfunction]
#[pyo3(signature = (own_folder))]
pub(crate) fn start_calls(py: Python<'_>, own_folder: String) -> PyResult<Option<String>> {
    if are_traced(py) {
        return Ok(None);
    }
    names::begin(py, own_folder);
    let way = if py.version_info() >= (3, 12) {
        monitoring::Tool::start(py, &monitoring::TRACED).map(|started| started.map(Way::Monitoring))
    } else {
        profile::Hook::start(py).map(|started| started.map(Way::Profile))
    };
    match way {
        Ok(Ok(way)) => {
            WAY.with(py, |now| *now = way);
            Ok(None)
        }
        Ok(Err(reason)) => {
            names::end(py);
            Ok(Some(reason))
        }
        Err(error) => {
            names::end(py);
            Err(error)
        }
    }
}

/// Whether calls are being traced.
pub(crate) fn are_traced(py: Python<'_>) -> bool {
    WAY.with(py, |now| !matches!(now, Way::Off))
}

/// Stops tracing calls; nothing if they are not traced. What is missing from the recording, if something is.
#[pyfunction]
pub(crate) fn stop_calls(py: Python<'_>) -> PyResult<Option<String>> {
    let result = match WAY.with(py, |now| std::mem::replace(now, Way::Off)) {
        Way::Off => return Ok(None),
        Way::Monitoring(tool) => tool.stop(py).map(|()| 0),
        Way::Profile(hook) => hook.stop(py),
    };
    names::end(py);
    Ok(match result? {
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
