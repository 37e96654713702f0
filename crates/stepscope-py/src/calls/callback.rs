//! Callbacks for `sys.monitoring`: objects whose call is a C function and nothing else.
//!
//! A function of C made in the usual way is called through two more, which count arguments and depth;
//! events come twice for each call of a function, so that is felt. These objects have the function
//! itself in the place that the interpreter looks at.
#![allow(unsafe_code, reason = "a type made with the interpreter's C interface")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::Locked;

/// Is called with itself, the arguments, their number (see [`count`]) and null. Returns a new reference.
pub(super) type Callback = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// How many arguments there are: the highest bit says something else.
#[inline]
pub(super) fn count(arguments: usize) -> usize {
    arguments & (usize::MAX >> 1)
}

/// As the interpreter sees it.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    call: Callback,
}

/// `Py_TPFLAGS_HAVE_VECTORCALL`, in the stable interface since 3.12, before which this is not used.
const HAVE_VECTORCALL: u32 = 1 << 11;

/// A Python object that calls `callback`. Each is made once and stays.
pub(super) fn object(py: Python<'_>, callback: Callback) -> PyResult<Bound<'_, PyAny>> {
    static MADE: Locked<Option<Py<PyDict>>> = Locked::new(None);
    let key = callback as usize;
    let made = MADE.with(py, |made| made.as_ref().map(|made| made.clone_ref(py)));
    let made = if let Some(made) = made {
        made.into_bound(py)
    } else {
        let fresh = PyDict::new(py);
        MADE.with(py, |made| *made = Some(fresh.clone().unbind()));
        fresh
    };
    if let Some(known) = made.get_item(key)? {
        return Ok(known);
    }
    let kind = if let Some(kind) = made.get_item("type")? {
        kind
    } else {
        let kind = make_type(py)?;
        made.set_item("type", &kind)?;
        kind
    };
    // SAFETY: the type's objects are `Object`s, and its allocator gives a whole one with its head filled.
    let new = unsafe {
        let new = ffi::PyType_GenericAlloc(kind.as_ptr().cast(), 0);
        let new = Bound::from_owned_ptr_or_err(py, new)?;
        (*new.as_ptr().cast::<Object>()).call = callback;
        new
    };
    made.set_item(key, &new)?;
    Ok(new)
}

fn make_type(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // These tables have to live as long as the type: for ever.
    let members: &'static mut [ffi::PyMemberDef] = Box::leak(Box::new([
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: ffi::Py_ssize_t::try_from(std::mem::offset_of!(Object, call))?,
            flags: ffi::Py_READONLY,
            doc: ptr::null::<c_char>(),
        },
        ffi::PyMemberDef::default(),
    ]));
    let mut slots = [
        ffi::PyType_Slot {
            slot: ffi::Py_tp_members,
            pfunc: members.as_mut_ptr().cast(),
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_call,
            pfunc: call as *mut c_void,
        },
        ffi::PyType_Slot {
            slot: 0,
            pfunc: ptr::null_mut(),
        },
    ];
    let flags = u32::try_from(ffi::Py_TPFLAGS_DEFAULT)?;
    let mut spec = ffi::PyType_Spec {
        name: c"stepscope._core.Callback".as_ptr(),
        basicsize: c_int::try_from(size_of::<Object>())?,
        itemsize: 0,
        flags: flags | HAVE_VECTORCALL,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec is complete and its tables live for ever.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }
}

/// For calls that are not the interpreter's own.
unsafe extern "C" fn call(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with the lock, one of these objects and a tuple.
    unsafe {
        let py = Python::assume_attached();
        let arguments = Bound::<PyAny>::from_borrowed_ptr(py, arguments);
        let Ok(arguments) = arguments.cast::<pyo3::types::PyTuple>() else {
            return ffi::Py_NewRef(ffi::Py_None());
        };
        let arguments: Vec<_> = arguments.iter().map(|one| one.as_ptr()).collect();
        let callback = (*this.cast::<Object>()).call;
        callback(this, arguments.as_ptr(), arguments.len(), ptr::null_mut())
    }
}
