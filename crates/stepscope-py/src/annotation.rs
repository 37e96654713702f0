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

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use stepscope::manual_span::{ManualSpan, NamedArg, SpanKind};

use crate::label_log::{self, OpenLabel};
use crate::{docstrings, tasks, threads, values};

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

/// Adds the two types to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let trace = make_type(
        py,
        c"stepscope._core.Trace",
        docstrings::TRACE,
        new_span,
        &[],
    )?;
    let name = c"stepscope._core.StepTrace";
    let step = make_type(py, name, docstrings::STEP_TRACE, new_step, &[&trace])?;
    module.add("Trace", trace)?;
    module.add("StepTrace", step)
}

pub(crate) type New = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

fn make_type<'py>(
    py: Python<'py>,
    name: &'static CStr,
    text: &'static CStr,
    new: New,
    bases: &[&Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    make_type_with(py, name, text, new, bases, &[])
}

/// Makes a type, with more slots.
pub(crate) fn make_type_with<'py>(
    py: Python<'py>,
    name: &'static CStr,
    text: &'static CStr,
    new: New,
    bases: &[&Bound<'py, PyAny>],
    more: &[ffi::PyType_Slot],
) -> PyResult<Bound<'py, PyAny>> {
    let mut slots = vec![
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_doc, text.as_ptr().cast_mut().cast()),
    ];
    if bases.is_empty() {
        let methods = Methods {
            enter,
            exit,
            set_metadata,
            is_enabled,
        };
        // Lives as long as the type: for ever.
        let getters: &'static mut [ffi::PyGetSetDef] = Box::leak(Box::new(getters()));
        slots.push(slot(ffi::Py_tp_repr, repr as *mut c_void));
        slots.push(slot(ffi::Py_tp_call, call as *mut c_void));
        slots.push(methods.slot());
        slots.push(slot(ffi::Py_tp_getset, getters.as_mut_ptr().cast()));
    }
    slots.extend(more.iter().map(|slot| ffi::PyType_Slot { ..*slot }));
    slots.push(slot(0, ptr::null_mut()));
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE;
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: c_int::try_from(size_of::<Annotation>())?,
        itemsize: 0,
        flags: u32::try_from(flags)?,
        slots: slots.as_mut_ptr(),
    };
    let bases = if bases.is_empty() {
        ptr::null_mut()
    } else {
        PyTuple::new(py, bases)?.into_ptr()
    };
    // SAFETY: the spec is complete and its tables live for ever; `bases` is a tuple of ours or null.
    unsafe {
        let made = ffi::PyType_FromSpecWithBases(&raw mut spec, bases);
        ffi::Py_XDECREF(bases);
        Bound::from_owned_ptr_or_err(py, made)
    }
}

fn slot(number: c_int, function: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot {
        slot: number,
        pfunc: function,
    }
}

/// The methods of a type: what `with` calls, and what a program calls by name.
pub(crate) struct Methods {
    pub(crate) enter: ffi::PyCFunction,
    pub(crate) exit: ffi::PyCFunctionFast,
    pub(crate) set_metadata: ffi::PyCFunctionWithKeywords,
    /// A static method.
    pub(crate) is_enabled: ffi::PyCFunction,
}

impl Methods {
    /// As a slot of a type. The table lives as long as the type: for ever.
    pub(crate) fn slot(&self) -> ffi::PyType_Slot {
        let table: &'static mut [ffi::PyMethodDef] = Box::leak(Box::new([
            ffi::PyMethodDef {
                ml_name: c"__enter__".as_ptr(),
                ml_meth: ffi::PyMethodDefPointer {
                    PyCFunction: self.enter,
                },
                ml_flags: ffi::METH_NOARGS,
                ml_doc: ptr::null(),
            },
            ffi::PyMethodDef {
                ml_name: c"__exit__".as_ptr(),
                ml_meth: ffi::PyMethodDefPointer {
                    PyCFunctionFast: self.exit,
                },
                ml_flags: ffi::METH_FASTCALL,
                ml_doc: ptr::null(),
            },
            ffi::PyMethodDef {
                ml_name: c"set_metadata".as_ptr(),
                ml_meth: ffi::PyMethodDefPointer {
                    PyCFunctionWithKeywords: self.set_metadata,
                },
                ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
                ml_doc: docstrings::SET_METADATA.as_ptr(),
            },
            ffi::PyMethodDef {
                ml_name: c"is_enabled".as_ptr(),
                ml_meth: ffi::PyMethodDefPointer {
                    PyCFunction: self.is_enabled,
                },
                ml_flags: ffi::METH_NOARGS | ffi::METH_STATIC,
                ml_doc: docstrings::IS_ENABLED.as_ptr(),
            },
            ffi::PyMethodDef::zeroed(),
        ]));
        slot(ffi::Py_tp_methods, table.as_mut_ptr().cast())
    }
}

fn getters() -> [ffi::PyGetSetDef; 4] {
    [
        ffi::PyGetSetDef {
            name: c"name".as_ptr(),
            get: Some(name),
            set: None,
            doc: docstrings::NAME.as_ptr(),
            closure: ptr::null_mut(),
        },
        ffi::PyGetSetDef {
            name: c"metadata".as_ptr(),
            get: Some(metadata),
            set: None,
            doc: docstrings::METADATA.as_ptr(),
            closure: ptr::null_mut(),
        },
        ffi::PyGetSetDef {
            name: c"_under".as_ptr(),
            get: Some(under),
            set: Some(set_under),
            doc: ptr::null(),
            closure: ptr::null_mut(),
        },
        ffi::PyGetSetDef::default(),
    ]
}

/// # Safety
/// Called by the interpreter, as all functions below: with the lock, and with objects of our types.
pub(crate) unsafe extern "C" fn new_span(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        if ffi::PyTuple_Size(args) == 1 {
            let name = ffi::PyTuple_GetItem(args, 0);
            if ffi::PyUnicode_Check(name) != 0 {
                return make(class, name, keywords, SpanKind::Span);
            }
        }
        new_with(class, args, keywords, SpanKind::Span)
    }
}

pub(crate) unsafe extern "C" fn new_step(
    class: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `new_span`.
    unsafe {
        let object = if ffi::PyTuple_Size(args) == 1
            && ffi::PyUnicode_Check(ffi::PyTuple_GetItem(args, 0)) != 0
        {
            make(
                class,
                ffi::PyTuple_GetItem(args, 0),
                keywords,
                SpanKind::Step,
            )
        } else {
            new_with(class, args, keywords, SpanKind::Step)
        };
        if !object.is_null() && !has_step_number(object.cast()) {
            ffi::Py_DECREF(object);
            return ptr::null_mut();
        }
        object
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
        let number = Bound::from_borrowed_ptr(py, number);
        let kind = number.get_type();
        let kind = kind
            .name()
            .map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "step_num is a number, not {kind}: StepTrace(\"train\", step_num=n)"
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
    // SAFETY: see `new_span`.
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
    let most = match kind {
        SpanKind::Span => 1,
        SpanKind::Step => 2,
    };
    if args.len() > most {
        return Err(PyTypeError::new_err(format!(
            "{most} positional argument{} at most (the name{}), not {}; give others by keyword",
            if most == 1 { "" } else { "s" },
            if most == 1 { "" } else { " and step_num" },
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
            None => return Err(PyTypeError::new_err("a name is missing: Trace(\"load\")")),
        },
    };
    if let Ok(number) = args.get_item(1) {
        keywords.set_item("step_num", number)?;
    }
    let name = name.cast_into::<PyString>().map_err(|error| {
        let given = error.into_inner().get_type();
        let given = given
            .name()
            .map_or_else(|_| String::new(), |name| name.to_string());
        PyTypeError::new_err(format!("the name must be a str, not {given}"))
    })?;
    Ok((name, keywords))
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
        // SAFETY: see `new_span`.
        unsafe { enter_on(object.cast()) };
    }
    if label_log::is_on() {
        // SAFETY: see `new_span`.
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
    // SAFETY: as above.
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
        let name =
            Bound::from_borrowed_ptr(py, (*annotation).name).cast_into_unchecked::<PyString>();
        let metadata = Bound::from_borrowed_ptr_or_opt(py, (*annotation).metadata)
            .map(|metadata| metadata.cast_into_unchecked::<PyDict>());
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
    // SAFETY: see `new_span`.
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
    // SAFETY: see `new_span`.
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
    // SAFETY: as above.
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
        let name =
            Bound::from_borrowed_ptr(py, (*annotation).name).cast_into_unchecked::<PyString>();
        let metadata = Bound::from_borrowed_ptr_or_opt(py, (*annotation).metadata)
            .map(|metadata| metadata.cast_into_unchecked::<PyDict>());
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
    // SAFETY: see `new_span`.
    unsafe {
        let py = Python::assume_attached();
        if ffi::PyTuple_Size(args) != 0 {
            PyTypeError::new_err("set_metadata takes keywords only").restore(py);
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
    // SAFETY: see `new_span`.
    unsafe { ffi::PyBool_FromLong((stepscope::is_recording() || label_log::is_on()).into()) }
}

unsafe extern "C" fn name(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: see `new_span`.
    unsafe { ffi::Py_NewRef((*object.cast::<Annotation>()).name) }
}

/// A copy: the recorded arguments do not change.
unsafe extern "C" fn metadata(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: see `new_span`; null or a dict.
    unsafe {
        let metadata = (*object.cast::<Annotation>()).metadata;
        if metadata.is_null() {
            ffi::PyDict_New()
        } else {
            ffi::PyDict_Copy(metadata)
        }
    }
}

unsafe extern "C" fn under(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: see `new_span`; null or an object.
    unsafe {
        let under = (*object.cast::<Annotation>()).under;
        if under.is_null() {
            ffi::Py_NewRef(ffi::Py_None())
        } else {
            ffi::Py_NewRef(under)
        }
    }
}

/// Null and None both stand for nothing.
unsafe extern "C" fn set_under(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: see `new_span`; the old value is let go of after the new one stands.
    unsafe {
        let value = if value == ffi::Py_None() {
            ptr::null_mut()
        } else {
            ffi::Py_XNewRef(value)
        };
        let before = std::mem::replace(&mut (*object.cast::<Annotation>()).under, value);
        ffi::Py_XDECREF(before);
    }
    0
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see `new_span`; the format takes two objects.
    unsafe {
        let format = match (*object.cast::<Annotation>()).kind {
            SpanKind::Span => c"Trace(%R)",
            SpanKind::Step => c"StepTrace(%R)",
        };
        ffi::PyUnicode_FromFormat(format.as_ptr(), (*object.cast::<Annotation>()).name)
    }
}

/// `Trace("x")(function)`: the decorator, which is written in Python.
unsafe extern "C" fn call(
    object: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `new_span`; the arguments are a tuple, and a dict or null.
    let result = unsafe {
        let py = Python::assume_attached();
        let annotation = object.cast::<Annotation>();
        let class = Bound::from_borrowed_ptr(py, ffi::Py_TYPE(object).cast());
        let name = Bound::from_borrowed_ptr(py, (*annotation).name);
        let metadata = Bound::from_borrowed_ptr_or_opt(py, (*annotation).metadata)
            .unwrap_or_else(|| PyDict::new(py).into_any());
        let args = Bound::from_borrowed_ptr(py, args).cast_into_unchecked::<PyTuple>();
        let alone = args.len() == 1 && (keywords.is_null() || ffi::PyDict_Size(keywords) == 0);
        let result = if alone {
            args.get_item(0).and_then(|function| {
                py.import("stepscope._decorate")?
                    .getattr("decorate")?
                    .call1((class, name, metadata, function))
            })
        } else {
            Err(PyTypeError::new_err(
                "as a decorator an annotation takes one function: @Trace(\"name\")",
            ))
        };
        result.map_err(|error| error.restore(py))
    };
    result.map_or(ptr::null_mut(), Bound::into_ptr)
}
