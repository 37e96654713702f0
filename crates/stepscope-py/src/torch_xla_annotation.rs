//! `Trace` and `StepTrace` of `stepscope.torch_xla`: ours, and beneath them whatever else takes labels there.
//!
//! PyTorch/XLA names operations after scopes, its own recorder takes labels, and so does JAX's tracing.
//! Entering those is written in Python (`stepscope.torch_xla`) and costs microseconds; that nobody wants it,
//! which is nearly always, must cost next to nothing: two of PyTorch/XLA's variables are read where they
//! lie, and JAX is looked for in the table of modules.
#![allow(
    unsafe_code,
    reason = "types made with the C interface, as in the module `annotation`, and variables of a library \
              that is found at run time"
)]

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::annotation::{self, Annotation, IsEnabled, Methods, make_type_with, slot};
use crate::docstrings;

const MODULE: &str = "stepscope.torch_xla";

/// PyTorch/XLA has not been imported.
const NOT_THERE: u8 = 0;
/// Its variables were found.
const FOUND: u8 = 1;
/// Only its functions tell: each label asks.
const ASK: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(NOT_THERE);
/// Its variable that is not 0 where operations keep names, once found.
static NAMES_OPERATIONS: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Its recorder's level, below 1 when that is off, once found.
static LEVEL: AtomicPtr<c_int> = AtomicPtr::new(ptr::null_mut());

/// Keys of the table of modules.
static JAX: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
static TORCH_XLA: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

static ENTER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LEAVE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ENTER_STEP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LEAVE_STEP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Adds the two types to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (key, name) in [(&JAX, c"jax"), (&TORCH_XLA, c"torch_xla")] {
        // SAFETY: with the lock; the reference is kept for ever.
        let name = unsafe { ffi::PyUnicode_InternFromString(name.as_ptr()) };
        if name.is_null() {
            return Err(PyErr::fetch(py));
        }
        key.store(name, Ordering::Release);
    }
    let methods = |enter, exit| Methods {
        enter,
        exit,
        set_metadata: annotation::set_metadata,
        is_enabled: IsEnabled::OfLevel(is_enabled),
    };
    let trace = make_type_with(
        py,
        c"stepscope.torch_xla.Trace",
        docstrings::XLA_TRACE,
        annotation::new_span,
        &[&module.getattr("Trace")?],
        &[
            methods(enter, exit).slot(),
            slot(ffi::Py_tp_call, call as *mut _),
        ],
    )?;
    let step = make_type_with(
        py,
        c"stepscope.torch_xla.StepTrace",
        docstrings::XLA_STEP_TRACE,
        annotation::new_step,
        &[&module.getattr("StepTrace")?, &trace],
        &[
            methods(enter_step, exit_step).slot(),
            slot(ffi::Py_tp_call, call as *mut _),
        ],
    )?;
    module.add("XlaTrace", trace)?;
    module.add("XlaStepTrace", step)
}

/// Whether the program has imported a module.
///
/// # Safety
/// With the interpreter's lock.
unsafe fn is_imported(key: &AtomicPtr<ffi::PyObject>) -> bool {
    // SAFETY: by the caller; the key is a str, and the table lives as long as the interpreter.
    unsafe {
        let found = ffi::PyDict_GetItemWithError(
            ffi::PyImport_GetModuleDict(),
            key.load(Ordering::Relaxed),
        );
        !found.is_null()
    }
}

/// Whether anybody but ourselves may want a label.
///
/// # Safety
/// With the interpreter's lock.
unsafe fn others_may_want() -> bool {
    // SAFETY: by the caller; the variables belong to a library that is never unloaded. PyTorch/XLA writes
    // them as these types, some of them on other threads: a volatile read of a value of that size sees one
    // or the other.
    unsafe {
        let theirs = match STATE.load(Ordering::Acquire) {
            NOT_THERE => is_imported(&TORCH_XLA) && look(),
            FOUND => {
                NAMES_OPERATIONS.load(Ordering::Relaxed).read_volatile() != 0
                    || LEVEL.load(Ordering::Relaxed).read_volatile() > 0
            }
            _ => true,
        };
        theirs || is_imported(&JAX)
    }
}

/// Finds PyTorch/XLA's variables; whether to go on asking.
#[cold]
unsafe fn look() -> bool {
    // SAFETY: by the caller, with the lock.
    let py = unsafe { Python::assume_attached() };
    let found = py
        .import(MODULE)
        .and_then(|module| module.call_method0("_look"))
        .and_then(|found| found.extract::<Option<(usize, usize)>>());
    match found {
        Ok(Some((names, level))) if names != 0 && level != 0 => {
            NAMES_OPERATIONS.store(ptr::with_exposed_provenance_mut(names), Ordering::Relaxed);
            LEVEL.store(ptr::with_exposed_provenance_mut(level), Ordering::Relaxed);
            STATE.store(FOUND, Ordering::Release);
            // SAFETY: as above.
            unsafe { others_may_want() }
        }
        Ok(Some(_)) => {
            STATE.store(ASK, Ordering::Release);
            true
        }
        // It is being imported: it may be whole the next time.
        Ok(None) | Err(_) => false,
    }
}

/// Looks for PyTorch/XLA anew; for tests.
#[pyfunction]
pub(crate) fn forget_xla() {
    STATE.store(NOT_THERE, Ordering::Release);
}

/// Calls a function of `stepscope.torch_xla`; false if it raised.
#[cold]
unsafe fn tell(
    function: &PyOnceLock<Py<PyAny>>,
    name: &str,
    object: *mut ffi::PyObject,
    more: &[*mut ffi::PyObject],
) -> bool {
    // SAFETY: by the caller, with the lock and with live objects.
    let told = unsafe {
        let py = Python::assume_attached();
        let arguments = std::iter::once(object)
            .chain(more.iter().copied())
            .map(|object| Bound::from_borrowed_ptr(py, object));
        let arguments: Vec<Bound<'_, PyAny>> = arguments.collect();
        function
            .import(py, MODULE, name)
            .and_then(|function| function.call1(PyTuple::new(py, arguments)?))
            .map_err(|error| error.restore(py))
    };
    told.is_ok()
}

/// # Safety
/// Called by the interpreter, as all functions below: with the lock, and with objects of our types.
unsafe extern "C" fn enter(
    object: *mut ffi::PyObject,
    nothing: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        if others_may_want() && !tell(&ENTER, "_enter_under", object, &[]) {
            return ptr::null_mut();
        }
        annotation::enter(object, nothing)
    }
}

unsafe extern "C" fn exit(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`.
    unsafe {
        let is_under = !(*object.cast::<Annotation>()).under.is_null();
        if is_under && !tell(&LEAVE, "_leave_under", object, &[]) {
            return exit_with_error(object);
        }
        annotation::exit(object, arguments, count)
    }
}

/// Ends the slice; the exception that is set stays.
#[cold]
unsafe fn exit_with_error(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see `enter`; the three are restored as they were.
    unsafe {
        let (mut kind, mut error, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut error, &raw mut traceback);
        ffi::Py_XDECREF(annotation::exit(object, ptr::null_mut(), 0));
        ffi::PyErr_Restore(kind, error, traceback);
    }
    ptr::null_mut()
}

unsafe extern "C" fn enter_step(
    object: *mut ffi::PyObject,
    nothing: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`.
    unsafe {
        if !tell(&ENTER_STEP, "_enter_step", object, &[]) {
            return ptr::null_mut();
        }
        enter(object, nothing)
    }
}

unsafe extern "C" fn exit_step(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`; the arguments are as many as `count` says.
    unsafe {
        let is_under = !(*object.cast::<Annotation>()).under.is_null();
        if is_under || is_imported(&TORCH_XLA) {
            let error = if count > 1 {
                *arguments.add(1)
            } else {
                ffi::Py_None()
            };
            if !tell(&LEAVE_STEP, "_leave_step", object, &[error]) {
                return exit_with_error(object);
            }
        }
        annotation::exit(object, arguments, count)
    }
}

/// The decorator: what waits must not keep a scope open meanwhile.
unsafe extern "C" fn call(
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`.
    unsafe { annotation::call_with(object, args, keywords, MODULE) }
}

unsafe extern "C" fn is_enabled(
    _: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`; the keywords are a dict or null.
    let answer = unsafe {
        let py = Python::assume_attached();
        let args = Bound::from_borrowed_ptr(py, args).cast_into_unchecked::<PyTuple>();
        let keywords = Bound::from_borrowed_ptr_or_opt(py, keywords)
            .map(|keywords| keywords.cast_into_unchecked::<PyDict>());
        level(&args, keywords.as_ref())
            .and_then(|level| {
                if stepscope::is_recording() {
                    return Ok(true);
                }
                let answer = py
                    .import(MODULE)?
                    .call_method1("_theirs_is_enabled", (level,))?;
                answer.is_truthy()
            })
            .map_err(|error| error.restore(py))
    };
    match answer {
        // SAFETY: with the lock.
        Ok(answer) => unsafe { ffi::PyBool_FromLong(answer.into()) },
        Err(()) => ptr::null_mut(),
    }
}

/// The level that is asked for: 1 unless given.
fn level(args: &Bound<'_, PyTuple>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<i64> {
    let given = keywords.map_or(0, PyDictMethods::len) + args.len();
    let level = match keywords
        .map(|keywords| keywords.get_item("level"))
        .transpose()?
        .flatten()
    {
        Some(level) => Some(level),
        None => args.get_item(0).ok(),
    };
    match level {
        None if given == 0 => Ok(1),
        Some(level) if given == 1 => level.extract(),
        _ => Err(PyTypeError::new_err(
            "is_enabled takes a level: is_enabled(1)",
        )),
    }
}
