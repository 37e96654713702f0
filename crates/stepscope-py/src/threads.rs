//! Threads of the interpreter get the names that Python gave them: before 3.14 the operating system
//! does not know those.
#![allow(
    unsafe_code,
    reason = "asks for the modules without importing anything"
)]

use std::cell::Cell;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use stepscope::manual_span::{name_thread, recording_number};

use crate::values;

thread_local! {
    /// The recording in which this thread has been named.
    static NAMED_IN: Cell<u32> = const { Cell::new(0) };
    /// How often its name was asked for in vain.
    static ATTEMPTS: Cell<u32> = const { Cell::new(0) };
}

/// A thread calls some functions before `threading` knows it; a thread that Python did not start is
/// never known to it.
const MAX_ATTEMPTS: u32 = 50;

/// Names the calling thread, once in each recording. Before its first event. Whether that is done.
#[inline]
pub(crate) fn greet(py: Python<'_>) -> bool {
    let recording = recording_number();
    if recording != 0 && NAMED_IN.get() != recording {
        let attempts = ATTEMPTS.get() + 1;
        if name_from_python(py) || attempts == MAX_ATTEMPTS {
            NAMED_IN.set(recording);
            ATTEMPTS.set(0);
        } else {
            ATTEMPTS.set(attempts);
            return false;
        }
    }
    true
}

/// Whether the thread is known.
#[cold]
fn name_from_python(py: Python<'_>) -> bool {
    // A thread that Python did not start keeps its name: to ask `threading` for it in the usual way
    // would make an object for it. Nothing here runs a Python function: the function tracer calls this.
    let thread = (|| {
        // SAFETY: with the lock; the dictionary lives as long as the interpreter.
        let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
        let threading = modules
            .cast::<PyDict>()
            .ok()?
            .get_item("threading")
            .ok()??;
        let active = threading.getattr("_active").ok()?;
        let ident = threading.getattr("get_ident").ok()?.call0().ok()?;
        let thread = active.cast::<PyDict>().ok()?.get_item(ident).ok()??;
        Some((thread, threading.getattr("_main_thread").ok()?))
    })();
    let Some((thread, main)) = thread else {
        return false;
    };
    // The main thread has the program's name.
    if !thread.is(&main)
        && let Ok(name) = thread.getattr("_name")
        && let Ok(name) = name.cast::<PyString>()
    {
        name_thread(&values::text(name));
    }
    true
}
