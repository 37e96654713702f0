//! `Trace` and `StepTrace`: the types that a program meets a million times.
//!
//! They are made with the stable C interface by hand, because what `with Trace("x"):` costs while
//! nothing is recorded is object creation and three calls, and every layer shows: a class made by the
//! binding library costs 1.3 times as much. An object holds its name, its keywords as they came, and
//! the spans that it has open; keywords are looked at only while recording.
//!
//! One object may be entered again while it is open, also on other threads.
#![allow(
    unsafe_code,
    reason = "types made with the C interface; see the module's text"
)]

mod construct;
mod type_object;

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use stepscope::manual_span::{ManualSpan, NamedArg, SpanKind};

pub(crate) use self::construct::{new_span, new_step};
pub(crate) use self::type_object::{Methods, add_to, make_type_with};
use crate::label_log::{self, OpenLabel};
use crate::{tasks, threads, values};

/// An object of `Trace`, `StepTrace` or a subclass.
#[repr(C)]
pub(crate) struct Annotation {
    head: ffi::PyObject,
    /// A `str`, owned.
    pub(crate) name: *mut ffi::PyObject,
    /// A `dict` of keywords, owned, or null.
    pub(crate) metadata: *mut ffi::PyObject,
    kind: SpanKind,
    /// The span that is open.
    open: ManualSpan,
    /// Those that were open when this object was entered once more.
    outer: *mut Vec<ManualSpan>,
    /// What it has begun in the log of labels, innermost last; null for nothing.
    logged: *mut Vec<OpenLabel>,
    /// What a subclass written in Python keeps while the span is open, owned, or null. It is a field of
    /// ours because subclasses with slots of their own could not inherit from both types.
    pub(crate) under: *mut ffi::PyObject,
}

/// Whether the recording contains calls only.
pub(crate) static LEAVES_LABELS_OUT: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone; the class outlives its objects.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let annotation = object.cast::<Annotation>();
        if (*annotation).open.was_begun() {
            end_all(annotation);
        }
        while !(*annotation).logged.is_null() {
            exit_logged(annotation);
        }
        ffi::Py_DECREF((*annotation).name);
        ffi::Py_XDECREF((*annotation).metadata);
        ffi::Py_XDECREF((*annotation).under);
        if ffi::PyType_IS_GC(class) != 0 {
            ffi::PyObject_GC_Del(object.cast());
        } else {
            ffi::PyObject_Free(object.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

/// What is open when the object goes away has ended. The exception that it goes away by stays the
/// program's.
#[cold]
unsafe fn end_all(annotation: *mut Annotation) {
    // SAFETY: by the caller; `outer` was made by `enter_again`; the three are restored as they were.
    unsafe {
        let (mut kind, mut error, mut traceback) =
            (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut error, &raw mut traceback);
        end((*annotation).open, annotation);
        if !(*annotation).outer.is_null() {
            for open in Box::from_raw((*annotation).outer).into_iter().rev() {
                end(open, annotation);
            }
        }
        ffi::PyErr_Restore(kind, error, traceback);
    }
}

pub(crate) unsafe extern "C" fn enter(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // One word says for both kinds that no consumer wants the label.
    if stepscope::span::is_step_enabled() {
        // SAFETY: called by the interpreter, with its lock and an object of our types.
        unsafe { enter_on(object.cast()) };
    }
    if label_log::is_on() {
        // SAFETY: called by the interpreter, with its lock and an object of our types.
        unsafe { enter_logged(object.cast()) };
    }
    // SAFETY: a live object.
    unsafe { ffi::Py_NewRef(object) }
}

/// `__enter__` while something is wanted: spans, or only steps.
unsafe fn enter_on(annotation: *mut Annotation) {
    // SAFETY: by the caller.
    if !unsafe { is_step(annotation) } && !stepscope::span::is_enabled() {
        return;
    }
    if LEAVES_LABELS_OUT.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: called from the interpreter, which holds the lock.
    let py = unsafe { Python::assume_attached() };
    threads::greet(py);
    // SAFETY: the name is a str for as long as the object lives, which the caller sees to.
    let span = unsafe {
        let name =
            Bound::from_borrowed_ptr(py, (*annotation).name).cast_into_unchecked::<PyString>();
        let kind = (*annotation).kind;
        if (*annotation).metadata.is_null() {
            begin(py, &name, kind, &[])
        } else {
            let metadata = Bound::from_borrowed_ptr(py, (*annotation).metadata)
                .cast_into_unchecked::<PyDict>();
            values::with_args(Some(&metadata), |args| begin(py, &name, kind, args))
        }
    };
    if !span.was_begun() {
        return;
    }
    // SAFETY: by the caller a live object of our types; with the lock.
    unsafe {
        if (*annotation).open.is_open() {
            enter_again(annotation);
        }
        (*annotation).open = span;
    }
}

#[inline]
fn begin(
    py: Python<'_>,
    name: &Bound<'_, PyString>,
    kind: SpanKind,
    args: &[NamedArg<'_>],
) -> ManualSpan {
    if tasks::are_possible() {
        tasks::begin(py, name, kind, args)
    } else {
        ManualSpan::begin(&values::text(name), kind, args)
    }
}

/// `__enter__` while labels are kept for a profile of torch's.
#[cold]
unsafe fn enter_logged(annotation: *mut Annotation) {
    // SAFETY: called with the lock, with a live object, whose fields stay.
    unsafe {
        let py = Python::assume_attached();
        let (name, metadata) = label(py, annotation);
        let begun = values::with_args(metadata.as_ref(), |args| {
            label_log::begin(py, &values::text(&name), args)
        });
        if let Some(begun) = begun {
            if (*annotation).logged.is_null() {
                (*annotation).logged = Box::into_raw(Box::default());
            }
            (*(*annotation).logged).push(begun);
        }
    }
}

/// Name and keywords.
///
/// # Safety
/// A live object of our types.
unsafe fn label(
    py: Python<'_>,
    annotation: *const Annotation,
) -> (Bound<'_, PyString>, Option<Bound<'_, PyDict>>) {
    // SAFETY: by the caller; the name is a str, the keywords are a dict or null.
    unsafe {
        let name = Bound::from_borrowed_ptr(py, (*annotation).name);
        let metadata = Bound::from_borrowed_ptr_or_opt(py, (*annotation).metadata);
        (
            name.cast_into_unchecked(),
            metadata.map(|metadata| metadata.cast_into_unchecked()),
        )
    }
}

/// Ends the label that was begun last in the log of labels.
#[cold]
unsafe fn exit_logged(annotation: *mut Annotation) {
    // SAFETY: not null by the caller, made by `enter_logged`; called with the lock.
    unsafe {
        let last = (*(*annotation).logged).pop();
        if (*(*annotation).logged).is_empty() {
            drop(Box::from_raw((*annotation).logged));
            (*annotation).logged = ptr::null_mut();
        }
        if let Some(last) = last {
            label_log::end(Python::assume_attached(), last);
        }
    }
}

/// Whether it is one of a step.
///
/// # Safety
/// A live object of our types.
pub(crate) unsafe fn is_step(annotation: *const Annotation) -> bool {
    // SAFETY: by the caller.
    unsafe { matches!((*annotation).kind, SpanKind::Step) }
}

/// Puts the span that is open aside.
#[cold]
unsafe fn enter_again(annotation: *mut Annotation) {
    // SAFETY: `outer` is null or was made here.
    unsafe {
        if (*annotation).outer.is_null() {
            (*annotation).outer = Box::into_raw(Box::default());
        }
        (*(*annotation).outer).push((*annotation).open);
    }
}

pub(crate) unsafe extern "C" fn exit(
    object: *mut ffi::PyObject,
    _: *mut *mut ffi::PyObject,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock and an object of our types.
    unsafe {
        let annotation = object.cast::<Annotation>();
        if (*annotation).open.was_begun() {
            exit_on(annotation);
        }
        if !(*annotation).logged.is_null() {
            exit_logged(annotation);
        }
        ffi::Py_NewRef(ffi::Py_None())
    }
}

/// `__exit__` of an object that has a span.
unsafe fn exit_on(annotation: *mut Annotation) {
    // SAFETY: called by the interpreter, with its lock and an object of our types.
    unsafe {
        let span = std::mem::replace(&mut (*annotation).open, ManualSpan::NONE);
        if (*annotation).outer.is_null() {
            if let Err(span) = end_here(span) {
                end(span, annotation);
            }
        } else {
            exit_one_of_several(annotation, span);
        }
    }
}

/// Ends a span that began on this thread.
#[inline]
fn end_here(span: ManualSpan) -> Result<(), ManualSpan> {
    let row = span.row();
    span.end()?;
    if tasks::may_keep(row) {
        // SAFETY: called from the interpreter, which holds the lock.
        tasks::ended(unsafe { Python::assume_attached() }, row, span.began());
    }
    Ok(())
}

/// Of several open spans of one object, the last of the task that runs or else of this thread; else the last.
#[cold]
unsafe fn exit_one_of_several(annotation: *mut Annotation, last: ManualSpan) {
    // SAFETY: not null by the caller, made by `enter_again`; nothing here runs Python code before the
    // borrow ends.
    let spans = unsafe { &mut *(*annotation).outer };
    spans.push(last);
    let row = if tasks::are_possible() {
        // SAFETY: called from the interpreter, which holds the lock.
        tasks::row_here(unsafe { Python::assume_attached() })
    } else {
        0
    };
    let of_task = |place: &usize| spans[*place].row() == row;
    let (mine, others): (Vec<usize>, Vec<usize>) = (0..spans.len()).rev().partition(of_task);
    let mut all = mine.into_iter().chain(others);
    let found = all.find(|place| end_here(spans[*place]).is_ok());
    let elsewhere = match found {
        Some(place) => {
            spans.remove(place);
            None
        }
        None => spans.pop(),
    };
    let next = spans.pop().unwrap_or(ManualSpan::NONE);
    // SAFETY: by the caller a live object of our types; with the lock.
    unsafe {
        (*annotation).open = next;
        if let Some(span) = elsewhere {
            end(span, annotation);
        }
    }
}

/// Ends a span wherever it began.
#[cold]
unsafe fn end(span: ManualSpan, annotation: *mut Annotation) {
    let Err(span) = end_here(span) else {
        return;
    };
    // SAFETY: called with the lock, with a live object.
    unsafe {
        let py = Python::assume_attached();
        threads::greet(py);
        let (name, metadata) = label(py, annotation);
        values::with_args(metadata.as_ref(), |args| {
            span.end_elsewhere(&values::text(&name), args);
        });
    }
}

pub(crate) unsafe extern "C" fn set_metadata(
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock and an object of our types.
    unsafe {
        let py = Python::assume_attached();
        if ffi::PyTuple_Size(args) != 0 {
            PyTypeError::new_err(
                "cannot set metadata: set_metadata takes keywords only\nhelp: set_metadata(key=value)",
            )
            .restore(py);
            return ptr::null_mut();
        }
        let annotation = object.cast::<Annotation>();
        let is_open = (*annotation).open.is_open();
        if let Some(keywords) = Bound::from_borrowed_ptr_or_opt(py, keywords)
            && (is_open || !(*annotation).logged.is_null())
        {
            let keywords = keywords.cast_into_unchecked::<PyDict>();
            values::with_args(Some(&keywords), |args| {
                if is_open {
                    (*annotation).open.add(args);
                }
                // `str()` of a value may have run anything.
                let logged = (*annotation).logged;
                if let Some(begun) = logged.as_ref().and_then(|logged| logged.last()) {
                    label_log::add(py, *begun, args);
                }
            });
        }
        ffi::Py_NewRef(ffi::Py_None())
    }
}

unsafe extern "C" fn is_enabled(
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock and an object of our types.
    unsafe { ffi::PyBool_FromLong((stepscope::is_recording() || label_log::is_on()).into()) }
}
