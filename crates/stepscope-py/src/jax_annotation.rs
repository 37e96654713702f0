//! `TraceAnnotation` and `StepTraceAnnotation` of `stepscope.jax`: ours, and jaxlib's too while
//! another client captures with that.
//!
//! jaxlib has a recorder of its own. While a session of ours runs it too, what is labelled is in our
//! part of the file already; while `jax.profiler` or a remote client captures with it alone, labels
//! have to be made there. Whether it records only a call tells: 30 nanoseconds, and none of them before
//! the program has imported jax.
#![allow(
    unsafe_code,
    reason = "types made with the C interface, as in the module `annotation`"
)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::annotation::{self, Annotation, Methods, make_type_with};
use crate::{docstrings, pjrt};

/// jaxlib's annotation type, once it was found; never given back.
static TRACE_ME: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
/// Its static method that tells whether something is recorded.
static IS_ENABLED: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
/// Adds the two types to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let base = module.getattr("Trace")?;
    let methods = Methods {
        enter,
        exit,
        set_metadata,
        is_enabled,
    };
    let trace = make_type_with(
        py,
        c"stepscope._core.TraceAnnotation",
        docstrings::TRACE_ANNOTATION,
        annotation::new_span,
        &[&base],
        &[methods.slot()],
    )?;
    let step = make_type_with(
        py,
        c"stepscope._core.StepTraceAnnotation",
        docstrings::STEP_TRACE_ANNOTATION,
        annotation::new_step,
        &[&trace],
        &[],
    )?;
    module.add("TraceAnnotation", trace)?;
    module.add("StepTraceAnnotation", step)
}

/// Whether jaxlib's recorder records for another client.
///
/// # Safety
/// With the interpreter's lock.
unsafe fn others_record() -> bool {
    if pjrt::is_ours() {
        return false;
    }
    // SAFETY: by the caller; the pointer is null or an object that is never given back.
    unsafe {
        let mut ask = IS_ENABLED.load(Ordering::Acquire);
        if ask.is_null() {
            ask = find();
            if ask.is_null() {
                return false;
            }
        }
        let answer = ffi::PyObject_CallNoArgs(ask);
        if answer.is_null() {
            ffi::PyErr_Clear();
            return false;
        }
        let yes = answer == ffi::Py_True();
        ffi::Py_DECREF(answer);
        yes
    }
}

/// Looks whether jaxlib has been imported.
#[cold]
unsafe fn find() -> *mut ffi::PyObject {
    // SAFETY: by the caller, with the lock; the module is borrowed from the table of modules.
    unsafe {
        let modules = ffi::PyImport_GetModuleDict();
        let module = ffi::PyDict_GetItemString(modules, c"jaxlib._profiler".as_ptr());
        if module.is_null() {
            return ptr::null_mut();
        }
        let kind = ffi::PyObject_GetAttrString(module, c"TraceMe".as_ptr());
        if kind.is_null() {
            ffi::PyErr_Clear();
            return ptr::null_mut();
        }
        let ask = ffi::PyObject_GetAttrString(kind, c"is_enabled".as_ptr());
        if ask.is_null() {
            ffi::PyErr_Clear();
            ffi::Py_DECREF(kind);
            return ptr::null_mut();
        }
        TRACE_ME.store(kind, Ordering::Release);
        IS_ENABLED.store(ask, Ordering::Release);
        ask
    }
}

/// # Safety
/// Called by the interpreter, as all functions below: with the lock, and with objects of our types.
unsafe extern "C" fn enter(
    object: *mut ffi::PyObject,
    nothing: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock and an object of our types.
    unsafe {
        if others_record() {
            enter_theirs(object.cast());
            if pjrt::is_recording() {
                // Our rows go into their file, which has this one.
                return ffi::Py_NewRef(object);
            }
        }
        annotation::enter(object, nothing)
    }
}

/// Begins one of jaxlib's under the same name. Whatever it raises is not the program's.
#[cold]
unsafe fn enter_theirs(annotation: *mut Annotation) {
    // SAFETY: the name is a str, the metadata a dict or null, the type was found.
    unsafe {
        if !(*annotation).under.is_null() {
            // Entered again while open: the outer one has its row.
            return;
        }
        let py = Python::assume_attached();
        let kind = TRACE_ME.load(Ordering::Acquire);
        let name = Bound::from_borrowed_ptr(py, (*annotation).name);
        let Ok(arguments) = PyTuple::new(py, [name]) else {
            ffi::PyErr_Clear();
            return;
        };
        let keywords = theirs(annotation);
        let theirs = ffi::PyObject_Call(kind, arguments.as_ptr(), keywords);
        ffi::Py_XDECREF(keywords);
        if theirs.is_null() {
            ffi::PyErr_Clear();
            return;
        }
        let entered = Bound::from_borrowed_ptr(py, theirs).call_method0("__enter__");
        if entered.is_ok() {
            (*annotation).under = theirs;
        } else {
            ffi::Py_DECREF(theirs);
        }
    }
}

/// Keywords for jaxlib's type, owned, or null: a step has one more.
unsafe fn theirs(annotation: *mut Annotation) -> *mut ffi::PyObject {
    // SAFETY: see `enter_theirs`.
    unsafe {
        if !annotation::is_step(annotation) {
            return ffi::Py_XNewRef((*annotation).metadata);
        }
        let keywords = if (*annotation).metadata.is_null() {
            ffi::PyDict_New()
        } else {
            ffi::PyDict_Copy((*annotation).metadata)
        };
        let one = ffi::PyLong_FromLong(1);
        if keywords.is_null() || ffi::PyDict_SetItemString(keywords, c"_r".as_ptr(), one) != 0 {
            ffi::PyErr_Clear();
        }
        ffi::Py_XDECREF(one);
        keywords
    }
}

unsafe extern "C" fn exit(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`.
    unsafe {
        let under = &raw mut (*object.cast::<Annotation>()).under;
        if !(*under).is_null() {
            let py = Python::assume_attached();
            let theirs = std::mem::replace(&mut *under, ptr::null_mut());
            let theirs = Bound::from_owned_ptr(py, theirs);
            let none = py.None();
            // What it raises is not the program's; an error of the program's is not held by anybody here.
            let _ = theirs.call_method1("__exit__", (&none, &none, &none));
        }
        annotation::exit(object, arguments, count)
    }
}

unsafe extern "C" fn set_metadata(
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`.
    unsafe {
        let under = (*object.cast::<Annotation>()).under;
        if !under.is_null() && !keywords.is_null() && ffi::PyTuple_Size(args) == 0 {
            let py = Python::assume_attached();
            let theirs = Bound::from_borrowed_ptr(py, under);
            let keywords = Bound::from_borrowed_ptr(py, keywords);
            let result = keywords
                .cast_into::<pyo3::types::PyDict>()
                .map_err(PyErr::from)
                .and_then(|keywords| theirs.getattr("set_metadata")?.call((), Some(&keywords)));
            drop(result);
        }
        annotation::set_metadata(object, args, keywords)
    }
}

unsafe extern "C" fn is_enabled(
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `enter`.
    unsafe { ffi::PyBool_FromLong((stepscope::is_recording() || others_record()).into()) }
}
