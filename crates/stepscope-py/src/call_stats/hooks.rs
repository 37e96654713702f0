//! The interpreter's events, of one thread.
#![allow(unsafe_code, reason = "callbacks of the interpreter")]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::{STACK, functions};
use crate::calls::callback::count;
use crate::calls::{self, Locked, monitoring, names, profile};

enum Way {
    Off,
    Monitoring(monitoring::Tool),
    Profile(profile::Setters),
}

static WAY: Locked<Way> = Locked::new(Way::Off);

thread_local! {
    /// This thread is the one that is profiled.
    static PROFILED: Cell<bool> = const { Cell::new(false) };
}

const EVENTS: [monitoring::Event; 9] = [
    ("PY_START", function_begins),
    ("PY_RESUME", function_begins),
    ("PY_THROW", function_begins),
    ("PY_RETURN", function_ends),
    ("PY_YIELD", function_ends),
    ("PY_UNWIND", function_ends),
    ("CALL", c_function_begins),
    ("C_RETURN", c_function_ends),
    ("C_RAISE", c_function_ends),
];

/// Nanoseconds since some moment.
#[inline]
pub(super) fn now_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(Instant::now);
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Whether events come.
pub(super) fn is_on(py: Python<'_>) -> bool {
    WAY.with(py, |way| !matches!(way, Way::Off))
}

/// Asks for the events of this thread. Why they cannot be had, if they cannot.
pub(super) fn start(py: Python<'_>) -> PyResult<Result<(), String>> {
    if is_on(py) {
        return Ok(if PROFILED.get() {
            Ok(())
        } else {
            Err("calls of another thread are being profiled".to_owned())
        });
    }
    let way = if py.version_info() >= (3, 12) {
        monitoring::Tool::start(py, &EVENTS)?.map(Way::Monitoring)
    } else {
        profile_this_thread(py)?.map(Way::Profile)
    };
    Ok(way.map(|way| {
        WAY.with(py, |now| *now = way);
        PROFILED.set(true);
    }))
}

/// Ends the events.
pub(super) fn stop(py: Python<'_>) -> PyResult<()> {
    match WAY.with(py, |way| std::mem::replace(way, Way::Off)) {
        Way::Off => Ok(()),
        Way::Monitoring(tool) => {
            PROFILED.set(false);
            tool.stop(py)
        }
        Way::Profile(setters) => {
            // The profiled thread lets go of its events when the next one comes.
            // Another profiler may have taken its place: that goes on.
            let holder = py.import("sys")?.call_method0("getprofile")?;
            if PROFILED.replace(false) && holder.is(&*PyBool::new(py, true)) {
                setters.set_own(py, None);
            }
            Ok(())
        }
    }
}

fn profile_this_thread(py: Python<'_>) -> PyResult<Result<profile::Setters, String>> {
    let Some(setters) = profile::find() else {
        return Ok(Err(
            "this interpreter does not export PyEval_SetProfile".to_owned()
        ));
    };
    let other = py.import("sys")?.call_method0("getprofile")?;
    if !other.is_none() {
        return Ok(Err(format!(
            "another profiler is active ({})",
            other.repr()?.to_string_lossy()
        )));
    }
    if calls::are_traced(py) {
        return Ok(Err(
            "calls are being traced (python_tracer_level=0 leaves that out)".to_owned(),
        ));
    }
    setters.set_own(py, Some(event));
    Ok(Ok(setters))
}

fn begin(py: Python<'_>, key: usize, function: u32) {
    let now_ns = now_ns();
    STACK.with(py, |stack| {
        if let Some(stack) = stack {
            stack.begin(key, function, now_ns);
        }
    });
}

fn end(py: Python<'_>, key: usize) {
    let now_ns = now_ns();
    STACK.with(py, |stack| {
        if let Some(stack) = stack {
            stack.end(key, now_ns);
        }
    });
}

/// What our own functions call in C is theirs.
fn in_own(py: Python<'_>) -> bool {
    STACK.with(py, |stack| {
        stack.as_ref().is_some_and(super::Stack::in_hidden)
    })
}

/// # Safety
/// `code` is a live code object.
unsafe fn code_begins(py: Python<'_>, code: *mut ffi::PyObject) {
    // SAFETY: by the caller.
    let function = unsafe { functions::of_code(py, code) };
    begin(py, code as usize, function);
}

/// # Safety
/// `function` is a live object.
unsafe fn c_begins(py: Python<'_>, function: *mut ffi::PyObject) {
    // SAFETY: by the caller.
    unsafe {
        if names::is_c_function(function) && !in_own(py) {
            let (key, number) = functions::of_c_function(py, function);
            begin(py, key, number);
        }
    }
}

/// # Safety
/// `function` is a live object.
unsafe fn c_ends(py: Python<'_>, function: *mut ffi::PyObject) {
    // SAFETY: by the caller.
    unsafe {
        if names::is_c_function(function) && !in_own(py) {
            end(py, functions::key_of_c_function(py, function));
        }
    }
}

unsafe extern "C" fn event(
    _: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    argument: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: called by the interpreter with the lock, the running frame, and for C functions the
    // function.
    unsafe {
        let py = Python::assume_attached();
        if !is_on(py) {
            if let Some(setters) = profile::find() {
                setters.set_own(py, None);
            }
            return 0;
        }
        match what {
            profile::CALL | profile::RETURN => {
                let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
                if what == profile::CALL {
                    code_begins(py, code);
                } else {
                    end(py, code as usize);
                }
                ffi::Py_DECREF(code);
            }
            profile::C_CALL if !argument.is_null() => c_begins(py, argument),
            profile::C_RETURN | profile::C_EXCEPTION if !argument.is_null() => {
                c_ends(py, argument);
            }
            _ => {}
        }
    }
    0
}

/// `(code, offset, ...)`
unsafe extern "C" fn function_begins(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 1 && PROFILED.get() {
        // SAFETY: called by the interpreter with the lock, and that many objects, the first a code object.
        unsafe { code_begins(Python::assume_attached(), *args) };
    }
    monitoring::none()
}

unsafe extern "C" fn function_ends(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 1 && PROFILED.get() {
        // SAFETY: as above.
        unsafe { end(Python::assume_attached(), *args as usize) };
    }
    monitoring::none()
}

/// `(code, offset, callable, argument)`
unsafe extern "C" fn c_function_begins(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 3 && PROFILED.get() {
        // SAFETY: as above.
        unsafe { c_begins(Python::assume_attached(), *args.add(2)) };
    }
    monitoring::none()
}

unsafe extern "C" fn c_function_ends(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 3 && PROFILED.get() {
        // SAFETY: as above.
        unsafe { c_ends(Python::assume_attached(), *args.add(2)) };
    }
    monitoring::none()
}
