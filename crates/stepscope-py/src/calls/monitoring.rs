//! `CPython` 3.12 and newer: `sys.monitoring`, with callbacks that are plain C functions.
//!
//! A call site whose callee is not a C function is silenced (`DISABLE`) when it is first met, since
//! its functions announce themselves; so Python calls cost two callbacks and not three. C functions
//! that such a site calls later are not shown. While statistics are counted no call site is silenced.
#![allow(unsafe_code, reason = "callbacks of the interpreter")]

use pyo3::ffi;
use pyo3::prelude::*;

use super::callback::{self, Callback, count};
use super::{Locked, call_stats, names};

/// Our tool number in `sys.monitoring`, while the callbacks are registered.
pub(super) struct Tool {
    number: u8,
}

/// `sys.monitoring.DISABLE`.
static DISABLE: Locked<Option<Py<PyAny>>> = Locked::new(None);

/// Unassigned numbers, then that of optimizers. Debuggers (0), coverage (1) and profilers (2) may start
/// while a recording runs: cProfile, for one, raises where its number is taken.
const NUMBERS: [u8; 3] = [4, 3, 5];

/// Names of the events, and their callbacks.
const EVENTS: [(&str, Callback); 9] = [
    ("PY_START", function_begins),
    ("PY_RESUME", function_begins),
    ("PY_THROW", function_begins),
    ("PY_RETURN", function_ends),
    ("PY_YIELD", function_ends),
    ("PY_UNWIND", function_ends),
    ("CALL", call),
    ("C_RETURN", c_function_ends),
    ("C_RAISE", c_function_ends),
];

impl Tool {
    /// Registers the callbacks. The reason where no number is free.
    pub(super) fn start(py: Python<'_>) -> PyResult<Result<Self, String>> {
        let monitoring = monitoring(py)?;
        let mut holders = Vec::new();
        let mut number = None;
        for candidate in NUMBERS {
            let holder = monitoring.call_method1("get_tool", (candidate,))?;
            if holder.is_none() {
                number = Some(candidate);
                break;
            }
            holders.push(holder.to_string());
        }
        let Some(number) = number else {
            return Ok(Err(format!(
                "other tools use sys.monitoring: {}",
                holders.join(", ")
            )));
        };
        monitoring.call_method1("use_tool_id", (number, "stepscope"))?;
        let tool = Self { number };
        let begun = tool.register(py, &monitoring);
        if let Err(error) = begun {
            tool.stop(py)?;
            return Err(error);
        }
        Ok(Ok(tool))
    }

    fn register(&self, py: Python<'_>, monitoring: &Bound<'_, PyAny>) -> PyResult<()> {
        let disable = monitoring.getattr("DISABLE")?.unbind();
        let before = DISABLE.with(py, |held| held.replace(disable));
        drop(before);
        let events = monitoring.getattr("events")?;
        let mut wanted = 0_u32;
        for (name, callback) in EVENTS {
            let event: u32 = events.getattr(name)?.extract()?;
            let callback = callback::object(py, callback)?;
            monitoring.call_method1("register_callback", (self.number, event, callback))?;
            wanted |= event;
        }
        // Sites that an earlier recording silenced speak again.
        monitoring.call_method0("restart_events")?;
        monitoring.call_method1("set_events", (self.number, wanted))?;
        Ok(())
    }

    /// Unregisters the callbacks.
    pub(super) fn stop(self, py: Python<'_>) -> PyResult<()> {
        let monitoring = monitoring(py)?;
        monitoring.call_method1("set_events", (self.number, 0))?;
        let events = monitoring.getattr("events")?;
        for (name, _) in EVENTS {
            let event: u32 = events.getattr(name)?.extract()?;
            monitoring.call_method1("register_callback", (self.number, event, py.None()))?;
        }
        monitoring.call_method1("free_tool_id", (self.number,))?;
        Ok(())
    }
}

/// Has call sites that were silenced announce their calls again.
pub(super) fn restart_events(py: Python<'_>) -> PyResult<()> {
    monitoring(py)?.call_method0("restart_events").map(drop)
}

fn monitoring(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("sys")?.getattr("monitoring")
}

fn none() -> *mut ffi::PyObject {
    // SAFETY: lives for ever, and since 3.12, the first version that calls this, its references are not
    // counted.
    unsafe { ffi::Py_None() }
}

#[cold]
fn silence(py: Python<'_>) -> *mut ffi::PyObject {
    DISABLE.with(py, |disable| match disable {
        Some(disable) => disable.clone_ref(py).into_ptr(),
        None => none(),
    })
}

/// `(code, offset, ...)`
unsafe extern "C" fn function_begins(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 1 {
        // SAFETY: called by the interpreter with the lock, and that many objects, the first a code object.
        unsafe { super::code_begins(Python::assume_attached(), *args) };
    }
    none()
}

unsafe extern "C" fn function_ends(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 1 {
        // SAFETY: called by the interpreter with the lock, and that many objects, the first a code object.
        unsafe { super::code_ends(Python::assume_attached(), *args) };
    }
    none()
}

/// `(code, offset, callable, argument)`
unsafe extern "C" fn call(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) < 3 {
        return none();
    }
    // SAFETY: called by the interpreter with the lock, and that many objects, the first a code object.
    unsafe {
        let py = Python::assume_attached();
        let callable = *args.add(2);
        if names::is_c_function(callable) {
            super::c_function_begins(py, callable, || *args);
        } else if stepscope::is_recording() && !call_stats::is_counting() {
            return silence(py);
        }
    }
    none()
}

unsafe extern "C" fn c_function_ends(
    _: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    given: usize,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count(given) >= 3 {
        // SAFETY: called by the interpreter with the lock, and that many objects.
        unsafe {
            let callable = *args.add(2);
            if names::is_c_function(callable) {
                super::c_function_ends(Python::assume_attached(), callable);
            }
        }
    }
    none()
}
