//! The type objects of `Trace`, `StepTrace` and their subclasses: slots, tables of methods, attributes.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stepscope::manual_span::SpanKind;

use super::construct::{new_span, new_step};
use super::{Annotation, dealloc, enter, exit, is_enabled, set_metadata};
use crate::docstrings;

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

unsafe extern "C" fn name(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock and an object of our types.
    unsafe { ffi::Py_NewRef((*object.cast::<Annotation>()).name) }
}

/// A copy: the recorded arguments do not change.
unsafe extern "C" fn metadata(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, with its lock and an object of our types; null or a dict.
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
    // SAFETY: called by the interpreter, with its lock and an object of our types; null or an object.
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
    // SAFETY: called by the interpreter, with its lock and an object of our types;
    // the old value is let go of after the new one stands.
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
    // SAFETY: called by the interpreter, with its lock and an object of our types;
    // the format takes two objects.
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
    // SAFETY: called by the interpreter, with its lock and an object of our types;
    // the arguments are a tuple, and a dict or null.
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
                "cannot decorate: an annotation takes one function\nhelp: write @Trace(\"name\") above a function",
            ))
        };
        result.map_err(|error| error.restore(py))
    };
    result.map_or(ptr::null_mut(), Bound::into_ptr)
}
