//! `Column`: one column of a track, as memory that others read in place.
//!
//! The type is made with the interpreter's C interface by hand: the stable interface of 3.10 has the
//! slots of the buffer protocol, but no declaration of `Py_buffer`, whose layout has not changed since
//! 3.3. Elements, slices and iteration are those of a `memoryview`.
#![allow(
    unsafe_code,
    reason = "the buffer protocol is an interface of C; see above"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::arrow::{self, Field, Keep, StringBuffer};
use crate::calls::Locked;
use crate::docstrings;

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int64,
    Int32,
    Uint16,
    Float64,
}

impl Kind {
    fn size(self) -> isize {
        match self {
            Self::Int64 | Self::Float64 => 8,
            Self::Int32 => 4,
            Self::Uint16 => 2,
        }
    }

    /// The letter of the `struct` module.
    fn letter(self) -> &'static CStr {
        match self {
            Self::Int64 => c"q",
            Self::Int32 => c"i",
            Self::Uint16 => c"H",
            Self::Float64 => c"d",
        }
    }

    /// Arrow's letter.
    fn arrow(self) -> &'static CStr {
        match self {
            Self::Int64 => c"l",
            Self::Int32 => c"i",
            Self::Uint16 => c"S",
            Self::Float64 => c"g",
        }
    }
}

/// Numbers somewhere in memory, and what holds them there.
pub(crate) struct Memory {
    data: *const c_void,
    len: usize,
    kind: Kind,
    keep: Keep,
}

// SAFETY: the memory behind `data` is read only, and held by `keep`, which may go to any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// A part of what `keep` holds.
    ///
    /// # Safety
    /// `values` lies in memory that lives, unchanged, as long as `keep` does, and `T` is of the kind's
    /// size and holds any bits.
    pub(crate) unsafe fn part_of<T>(values: &[T], kind: Kind, keep: Keep) -> Self {
        debug_assert_eq!(size_of::<T>() as isize, kind.size());
        Self {
            data: values.as_ptr().cast(),
            len: values.len(),
            kind,
            keep,
        }
    }

    /// Numbers that were computed.
    pub(crate) fn floats(values: Vec<f64>) -> Self {
        let values = Arc::new(values);
        // SAFETY: the vector lives in the `Arc`, and is never changed.
        unsafe { Self::part_of(&values, Kind::Float64, Arc::<Vec<f64>>::clone(&values)) }
    }

    /// As [`floats`](Self::floats).
    pub(crate) fn int64(values: Vec<i64>) -> Self {
        let values = Arc::new(values);
        // SAFETY: the vector lives in the `Arc`, and is never changed.
        unsafe { Self::part_of(&values, Kind::Int64, Arc::<Vec<i64>>::clone(&values)) }
    }

    /// As [`floats`](Self::floats).
    pub(crate) fn int32(values: Vec<i32>) -> Self {
        let values = Arc::new(values);
        // SAFETY: the vector lives in the `Arc`, and is never changed.
        unsafe { Self::part_of(&values, Kind::Int32, Arc::<Vec<i32>>::clone(&values)) }
    }

    /// As a column of an Arrow table; with `texts`, numbers of texts.
    pub(crate) fn field(
        &self,
        name: &'static CStr,
        unit: Option<&'static str>,
        texts: Option<Arc<StringBuffer>>,
    ) -> Field {
        Field {
            name,
            format: self.kind.arrow(),
            unit,
            texts,
            data: self.data,
            len: self.len,
            keep: Arc::clone(&self.keep),
        }
    }
}

/// `Py_buffer`, as it has been since 3.3.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

const WRITABLE: c_int = 1;
const FORMAT: c_int = 4;
const SHAPE: c_int = 8;
const STRIDES: c_int = 0x10;
const SLOT_GETBUFFER: c_int = 1;

#[repr(C)]
struct Column {
    head: ffi::PyObject,
    memory: *mut Memory,
    shape: [isize; 1],
    strides: [isize; 1],
}

static TYPE: Locked<Option<Py<PyAny>>> = Locked::new(None);

/// Adds the type to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let made = make_type(py)?;
    TYPE.with(py, |held| *held = Some(made.clone().unbind()));
    module.add("Column", made)
}

/// A column for Python.
pub(crate) fn new(py: Python<'_>, memory: Memory) -> PyResult<Bound<'_, PyAny>> {
    let class = TYPE.with(py, |held| held.as_ref().map(|class| class.clone_ref(py)));
    let class = class.ok_or_else(|| PyBufferError::new_err("the module is not whole"))?;
    // SAFETY: our own type: an allocation of its size, all zero but the head.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        let column = object.as_ptr().cast::<Column>();
        (*column).shape = [memory.len as isize];
        (*column).strides = [memory.kind.size()];
        (*column).memory = Box::into_raw(Box::new(memory));
        Ok(object)
    }
}

fn make_type(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let methods = Box::leak(Box::new(methods()));
    let getters = Box::leak(Box::new(getters()));
    let mut slots = [
        slot(
            ffi::Py_tp_doc,
            docstrings::COLUMN.as_ptr().cast_mut().cast(),
        ),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_iter, iter as *mut c_void),
        slot(ffi::Py_mp_length, length as *mut c_void),
        slot(ffi::Py_mp_subscript, subscript as *mut c_void),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getters.as_mut_ptr().cast()),
        slot(SLOT_GETBUFFER, get_buffer as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"stepscope._core.Column".as_ptr(),
        basicsize: c_int::try_from(size_of::<Column>())?,
        itemsize: 0,
        flags: u32::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION)?,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec is complete and its tables live for ever.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }
}

fn slot(number: c_int, function: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot {
        slot: number,
        pfunc: function,
    }
}

fn methods() -> [ffi::PyMethodDef; 4] {
    let keywords = |name: &'static CStr, doc: *const c_char, function| ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionWithKeywords: function,
        },
        ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
        ml_doc: doc,
    };
    [
        ffi::PyMethodDef {
            ml_name: c"tolist".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunction: to_list,
            },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: docstrings::TOLIST.as_ptr(),
        },
        keywords(c"__arrow_c_array__", ptr::null(), arrow_array),
        ffi::PyMethodDef {
            ml_name: c"__arrow_c_schema__".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunction: arrow_schema,
            },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: ptr::null(),
        },
        ffi::PyMethodDef::zeroed(),
    ]
}

fn getters() -> [ffi::PyGetSetDef; 2] {
    [
        ffi::PyGetSetDef {
            name: c"format".as_ptr(),
            get: Some(format),
            set: None,
            doc: docstrings::FORMAT.as_ptr(),
            closure: ptr::null_mut(),
        },
        ffi::PyGetSetDef::default(),
    ]
}

/// The column's memory; `None`, with an exception, for one that `object.__new__` made.
///
/// # Safety
/// An object of our type.
unsafe fn memory<'a>(object: *mut ffi::PyObject) -> Option<&'a Memory> {
    // SAFETY: by the caller.
    unsafe {
        let memory = (*object.cast::<Column>()).memory;
        if memory.is_null() {
            ffi::PyErr_SetString(ffi::PyExc_BufferError, c"a column of nothing".as_ptr());
        }
        memory.as_ref()
    }
}

/// # Safety
/// Called by the interpreter, as all functions below: with the lock, and with objects of our type.
unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut View,
    flags: c_int,
) -> c_int {
    // SAFETY: called by the interpreter, with its lock and an object of our type; `view` is room for one.
    unsafe {
        (*view).obj = ptr::null_mut();
        let Some(memory) = memory(object) else {
            return -1;
        };
        if flags & WRITABLE != 0 {
            let text = c"columns of a trace are read only";
            ffi::PyErr_SetString(ffi::PyExc_BufferError, text.as_ptr());
            return -1;
        }
        let column = object.cast::<Column>();
        let wanted = |flag: c_int| flags & flag == flag;
        view.write(View {
            buf: memory.data.cast_mut(),
            obj: ffi::Py_NewRef(object),
            len: memory.len as isize * memory.kind.size(),
            itemsize: memory.kind.size(),
            readonly: 1,
            ndim: 1,
            format: if wanted(FORMAT) {
                memory.kind.letter().as_ptr().cast_mut()
            } else {
                ptr::null_mut()
            },
            shape: if wanted(SHAPE) {
                (&raw mut (*column).shape).cast()
            } else {
                ptr::null_mut()
            },
            strides: if wanted(STRIDES) {
                (&raw mut (*column).strides).cast()
            } else {
                ptr::null_mut()
            },
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        0
    }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone; the class outlives its objects.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let memory = (*object.cast::<Column>()).memory;
        if !memory.is_null() {
            drop(Box::from_raw(memory));
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: see `get_buffer`.
    unsafe { memory(object).map_or(-1, |memory| memory.len as isize) }
}

/// Calls `work` with a `memoryview` of the column.
unsafe fn with_view(
    object: *mut ffi::PyObject,
    work: impl FnOnce(*mut ffi::PyObject) -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: by the caller, as `get_buffer`.
    unsafe {
        let view = ffi::PyMemoryView_FromObject(object);
        if view.is_null() {
            return view;
        }
        let result = work(view);
        ffi::Py_DECREF(view);
        result
    }
}

unsafe extern "C" fn subscript(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`.
    unsafe { with_view(object, |view| ffi::PyObject_GetItem(view, key)) }
}

unsafe extern "C" fn iter(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`.
    unsafe { with_view(object, |view| ffi::PyObject_GetIter(view)) }
}

unsafe extern "C" fn to_list(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`.
    unsafe { with_view(object, |view| ffi::PySequence_List(view)) }
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`; the format takes a number and a C text.
    unsafe {
        match memory(object) {
            Some(memory) => ffi::PyUnicode_FromFormat(
                c"<Column of %zd, %s>".as_ptr(),
                memory.len as isize,
                name_of(memory.kind).as_ptr(),
            ),
            None => ptr::null_mut(),
        }
    }
}

fn name_of(kind: Kind) -> &'static CStr {
    match kind {
        Kind::Int64 => c"int64",
        Kind::Int32 => c"int32",
        Kind::Uint16 => c"uint16",
        Kind::Float64 => c"float64",
    }
}

unsafe extern "C" fn format(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`.
    unsafe {
        match memory(object) {
            Some(memory) => ffi::PyUnicode_FromString(memory.kind.letter().as_ptr()),
            None => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn arrow_schema(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`.
    unsafe {
        let py = Python::assume_attached();
        let Some(memory) = memory(object) else {
            return ptr::null_mut();
        };
        let field = memory.field(c"", None, None);
        given(py, arrow::field_schema(py, &field))
    }
}

/// `(requested_schema=None)`: the requested schema is a hint, and is ignored.
unsafe extern "C" fn arrow_array(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: see `get_buffer`.
    unsafe {
        let py = Python::assume_attached();
        let Some(memory) = memory(object) else {
            return ptr::null_mut();
        };
        let field = memory.field(c"", None, None);
        let pair = arrow::field_schema(py, &field)
            .and_then(|schema| Ok((schema, arrow::field_array(py, &field)?)))
            .and_then(|(schema, array)| PyTuple::new(py, [schema, array]))
            .map(Bound::into_any);
        given(py, pair)
    }
}

fn given(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}
