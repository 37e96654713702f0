//! Makes annotations from the arguments of a call: `Trace("x")`, `Trace(name="x")`, `StepTrace("train", 3)`.

use std::ptr;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use stepscope::manual_span::{ManualSpan, SpanKind};

use super::Annotation;

/// Makes a `Trace`.
///
/// # Safety
/// Called by the interpreter, as `new_step`: with its lock, a class of ours, a tuple, and a dict or null.
pub(crate) unsafe extern "C" fn new_span(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock, a class of ours and its arguments.
    unsafe { new_of_kind(class, args, keywords, SpanKind::Span) }
}

/// Makes a `StepTrace`; `step_num` must be a number.
pub(crate) unsafe extern "C" fn new_step(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock, a class of ours and its arguments.
    unsafe {
        let object = new_of_kind(class, args, keywords, SpanKind::Step);
        if !object.is_null() && !has_step_number(object.cast()) {
            ffi::Py_DECREF(object);
            return ptr::null_mut();
        }
        object
    }
}

/// Makes an annotation: at once from one positional name, as nearly all are made.
#[inline]
unsafe fn new_of_kind(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
    kind: SpanKind,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock, a class of ours and its arguments.
    unsafe {
        if ffi::PyTuple_Size(args) == 1 {
            let name = ffi::PyTuple_GetItem(args, 0);
            if ffi::PyUnicode_Check(name) != 0 {
                return make(class, name, keywords, kind);
            }
        }
        new_with(class, args, keywords, kind)
    }
}

/// Whether `step_num` is a number, or left out; else an exception is set.
unsafe fn has_step_number(annotation: *mut Annotation) -> bool {
    // SAFETY: by the caller a live object; with the lock.
    unsafe {
        if (*annotation).metadata.is_null() {
            return true;
        }
        let number = ffi::PyDict_GetItemString((*annotation).metadata, c"step_num".as_ptr());
        if number.is_null() || number == ffi::Py_None() || ffi::PyNumber_Check(number) != 0 {
            return true;
        }
        let py = Python::assume_attached();
        let kind = type_name(&Bound::from_borrowed_ptr(py, number));
        PyTypeError::new_err(format!(
            "cannot create a step: step_num must be a number, not {kind}\nhelp: StepTrace(\"train\", step_num=n)"
        ))
        .restore(py);
        false
    }
}

/// Everything but one positional name.
#[cold]
unsafe fn new_with(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
    kind: SpanKind,
) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, which holds the lock.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: called by the interpreter, with its lock, a class of ours and its arguments.
    let result = unsafe { named(py, args, keywords, kind) };
    match result {
        // SAFETY: a str, and a dict of our own.
        Ok((name, keywords)) => unsafe { make(class, name.as_ptr(), keywords.as_ptr(), kind) },
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

/// Name and keywords, whichever way they came: `Trace(name="x")`, `StepTrace("train", 3)`.
unsafe fn named(
    py: Python<'_>,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
    kind: SpanKind,
) -> PyResult<(Bound<'_, PyString>, Bound<'_, PyDict>)> {
    // SAFETY: the tuple of arguments, borrowed.
    let args = unsafe { Bound::from_borrowed_ptr(py, args) }.cast_into::<PyTuple>()?;
    // SAFETY: a dict or null.
    let keywords = match unsafe { Bound::from_borrowed_ptr_or_opt(py, keywords) } {
        Some(keywords) => keywords.cast_into::<PyDict>()?.copy()?,
        None => PyDict::new(py),
    };
    let (what, most, positional) = match kind {
        SpanKind::Span => ("a span", 1, "argument at most (the name)"),
        SpanKind::Step => ("a step", 2, "arguments at most (the name and step_num)"),
    };
    if args.len() > most {
        return Err(PyTypeError::new_err(format!(
            "cannot create {what}: it takes {most} positional {positional}, not {}\nhelp: give the others by keyword",
            args.len()
        )));
    }
    let name = match args.get_item(0) {
        Ok(name) => name,
        Err(_) => match keywords.get_item("name")? {
            Some(name) => {
                keywords.del_item("name")?;
                name
            }
            None => {
                return Err(PyTypeError::new_err(format!(
                    "cannot create {what}: the name is missing\nhelp: give one, as in Trace(\"load\")"
                )));
            }
        },
    };
    if let Ok(number) = args.get_item(1) {
        keywords.set_item("step_num", number)?;
    }
    let name = name.cast_into::<PyString>().map_err(|error| {
        let given = type_name(&error.into_inner());
        PyTypeError::new_err(format!(
            "cannot create {what}: the name must be a str, not {given}\nhelp: give one, as in Trace(\"load\")"
        ))
    })?;
    Ok((name, keywords))
}

/// The name of a value's class; empty if it has none.
fn type_name(value: &Bound<'_, PyAny>) -> String {
    let class = value.get_type();
    class
        .name()
        .map_or_else(|_| String::new(), |name| name.to_string())
}

/// # Safety
/// `name` is a str, `keywords` a dict or null.
unsafe fn make(
    class: *mut ffi::PyTypeObject,
    name: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
    kind: SpanKind,
) -> *mut ffi::PyObject {
    // SAFETY: an allocation of the class's size, which is at least ours, all zero but the head.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class, 0);
        if object.is_null() {
            return object;
        }
        let annotation = object.cast::<Annotation>();
        (&raw mut (*annotation).name).write(ffi::Py_NewRef(name));
        (&raw mut (*annotation).metadata).write(ffi::Py_XNewRef(keywords));
        (&raw mut (*annotation).kind).write(kind);
        (&raw mut (*annotation).open).write(ManualSpan::NONE);
        (&raw mut (*annotation).outer).write(ptr::null_mut());
        (&raw mut (*annotation).logged).write(ptr::null_mut());
        (&raw mut (*annotation).under).write(ptr::null_mut());
        object
    }
}
