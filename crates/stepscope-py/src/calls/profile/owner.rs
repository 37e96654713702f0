//! `CPython` 3.10 and 3.11: the object that the interpreter keeps with the profile function of a thread.
//!
//! Setting another function, as cProfile does it, says nothing to the one that was there; but the
//! interpreter lets go of this object. `sys.getprofile` gives it, and a profiler that puts it back with
//! `sys.setprofile`, as well-behaved profilers do at their end, has calls traced again.
#![allow(unsafe_code, reason = "a type made with the interpreter's C interface")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use stepscope::manual_span::instant_with;

use super::begin_thread;

/// The instant on the track of a thread that another profiler has taken over.
const LOST: &str = "another profiler started: calls of this thread are not recorded from here";

/// Whether an owner that is released was replaced by another profiler.
static EXPECTED: AtomicBool = AtomicBool::new(false);
static LOST_THREADS: AtomicU64 = AtomicU64::new(0);

/// Begins or ends a time in which an owner that goes away was replaced; how many were since the last call.
pub(super) fn expect(on: bool) -> u64 {
    EXPECTED.store(on, Ordering::Relaxed);
    LOST_THREADS.swap(0, Ordering::Relaxed)
}

/// Makes one.
pub(super) fn new(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let kind = TYPE.get_or_try_init(py, || make_type(py))?;
    // SAFETY: the type's objects have nothing but a head, which its allocator fills.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(kind.as_ptr().cast(), 0)) }
}

fn make_type(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let slot = |number, function| ffi::PyType_Slot {
        slot: number,
        pfunc: function,
    };
    let mut slots = [
        slot(ffi::Py_tp_call, call as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"stepscope._core.CallTracer".as_ptr(),
        basicsize: c_int::try_from(size_of::<ffi::PyObject>())?,
        itemsize: 0,
        flags: u32::try_from(ffi::Py_TPFLAGS_DEFAULT)?,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec is complete; the interpreter copies the slots.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    Ok(made.unbind())
}

/// Another profiler has put it back: `(frame, event, argument)`.
unsafe extern "C" fn call(
    _: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with the lock and a tuple.
    unsafe {
        let py = Python::assume_attached();
        let arguments = Bound::from_borrowed_ptr(py, arguments).cast_into_unchecked::<PyTuple>();
        match begin_thread(&arguments) {
            Ok(()) => ffi::Py_NewRef(ffi::Py_None()),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    }
}

unsafe extern "C" fn repr(_: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: with the lock; a text that ends in zero.
    unsafe { ffi::PyUnicode_FromString(c"<stepscope's call tracer>".as_ptr()) }
}

/// Runs no Python code: the interpreter is in the middle of a change.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone; the type outlives its objects. A thread that ends has no frame.
    unsafe {
        let is_replaced = !ffi::PyEval_GetFrame().is_null();
        if is_replaced && EXPECTED.load(Ordering::Relaxed) {
            LOST_THREADS.fetch_add(1, Ordering::Relaxed);
            if stepscope::is_recording() {
                instant_with(LOST, &[]);
            }
        }
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}
