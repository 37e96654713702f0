//! The Arrow C data interface: how columns reach `pyarrow`, `pandas`, `polars` and others without a
//! copy, and without us knowing any of them.
//!
//! The three structures and their rules are those of Arrow's specification (arrow.apache.org, "The
//! Arrow C data interface", "C stream interface", "The `PyCapsule` interface"). A release callback may come
//! from any thread and without the interpreter's lock: nothing here holds a Python object.
#![allow(unsafe_code, reason = "structures of C with callbacks")]

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;

/// What keeps a column's memory alive.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

/// Strings, one after the other, with the begin of each and the end of the last.
pub(crate) struct StringBuffer {
    offsets: Vec<i64>,
    bytes: Vec<u8>,
}

impl StringBuffer {
    /// Of texts in the order of their numbers.
    pub(crate) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            offsets.push(bytes.len() as i64);
        }
        Self { offsets, bytes }
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }
}

/// One column of a table.
pub(crate) struct Field {
    pub(crate) name: &'static CStr,
    /// Arrow's letter of the type.
    pub(crate) format: &'static CStr,
    /// Unit of the numbers.
    pub(crate) unit: Option<&'static str>,
    /// What the numbers are numbers of.
    pub(crate) texts: Option<Arc<StringBuffer>>,
    pub(crate) data: *const c_void,
    pub(crate) len: usize,
    pub(crate) keep: Keep,
}

// SAFETY: the memory behind `data` is read only, and held by `keep`, which may go to any thread.
unsafe impl Send for Field {}
// SAFETY: the memory behind `data` is read only, so threads may share it; `keep` is `Sync`.
unsafe impl Sync for Field {}

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private: *mut c_void,
}

#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private: *mut c_void,
}

#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private: *mut c_void,
}

/// What a schema's structure points to.
struct OfSchema {
    _name: CString,
    _metadata: Vec<u8>,
    children: Vec<*mut Schema>,
    dictionary: *mut Schema,
}

fn schema(
    name: &CStr,
    format: &'static CStr,
    unit: Option<&str>,
    children: Vec<*mut Schema>,
    dictionary: *mut Schema,
) -> Schema {
    let name = name.to_owned();
    let metadata = unit.map(metadata).unwrap_or_default();
    // Both keep their content where it is when they move.
    let name_at = name.as_ptr();
    let metadata_at = if metadata.is_empty() {
        ptr::null()
    } else {
        metadata.as_ptr().cast()
    };
    let mut private = Box::new(OfSchema {
        _name: name,
        _metadata: metadata,
        children,
        dictionary,
    });
    Schema {
        format: format.as_ptr(),
        name: name_at,
        metadata: metadata_at,
        flags: 0,
        n_children: private.children.len() as i64,
        children: private.children.as_mut_ptr(),
        dictionary,
        release: Some(release_schema),
        private: Box::into_raw(private).cast(),
    }
}

/// One pair of Arrow's metadata: `unit`.
fn metadata(unit: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&1_i32.to_ne_bytes());
    for text in ["unit", unit] {
        let length = i32::try_from(text.len()).unwrap_or(0);
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: called once, by the rules of the interface, with what `schema` made. Children that were
    // moved away have no callback any more; their structures are ours all the same.
    unsafe {
        let private = Box::from_raw((*schema).private.cast::<OfSchema>());
        for child in private.children.iter().copied().chain([private.dictionary]) {
            if !child.is_null() {
                free_schema(child);
            }
        }
        (*schema).release = None;
    }
}

/// # Safety
/// A structure that was boxed here.
unsafe fn free_schema(at: *mut Schema) {
    // SAFETY: by the caller.
    unsafe {
        if let Some(release) = (*at).release {
            release(at);
        }
        drop(Box::from_raw(at));
    }
}

/// What an array's structure points to.
struct OfArray {
    buffers: Vec<*const c_void>,
    children: Vec<*mut Array>,
    dictionary: *mut Array,
    _keep: Option<Keep>,
}

fn array(
    length: usize,
    buffers: Vec<*const c_void>,
    children: Vec<*mut Array>,
    dictionary: *mut Array,
    keep: Option<Keep>,
) -> Array {
    let mut private = Box::new(OfArray {
        buffers,
        children,
        dictionary,
        _keep: keep,
    });
    Array {
        length: length as i64,
        null_count: 0,
        offset: 0,
        n_buffers: private.buffers.len() as i64,
        n_children: private.children.len() as i64,
        buffers: private.buffers.as_mut_ptr(),
        children: private.children.as_mut_ptr(),
        dictionary,
        release: Some(release_array),
        private: Box::into_raw(private).cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: as `release_schema`.
    unsafe {
        let private = Box::from_raw((*array).private.cast::<OfArray>());
        for child in private.children.iter().copied().chain([private.dictionary]) {
            if !child.is_null() {
                free_array(child);
            }
        }
        (*array).release = None;
    }
}

/// # Safety
/// A structure that was boxed here.
unsafe fn free_array(at: *mut Array) {
    // SAFETY: by the caller.
    unsafe {
        if let Some(release) = (*at).release {
            release(at);
        }
        drop(Box::from_raw(at));
    }
}

impl Field {
    fn schema(&self) -> Schema {
        let dictionary = match &self.texts {
            Some(_) => boxed(schema(c"", c"U", None, Vec::new(), ptr::null_mut())),
            None => ptr::null_mut(),
        };
        schema(self.name, self.format, self.unit, Vec::new(), dictionary)
    }

    fn array(&self) -> Array {
        let dictionary = match &self.texts {
            Some(texts) => boxed(texts_array(texts)),
            None => ptr::null_mut(),
        };
        let buffers = vec![ptr::null(), self.data];
        let keep = Some(Arc::clone(&self.keep));
        array(self.len, buffers, Vec::new(), dictionary, keep)
    }
}

fn texts_array(texts: &Arc<StringBuffer>) -> Array {
    let buffers = vec![
        ptr::null(),
        texts.offsets.as_ptr().cast(),
        texts.bytes.as_ptr().cast(),
    ];
    let keep: Keep = Arc::<StringBuffer>::clone(texts);
    array(
        texts.len(),
        buffers,
        Vec::new(),
        ptr::null_mut(),
        Some(keep),
    )
}

fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

fn table_schema(fields: &[Field]) -> Schema {
    let children = fields.iter().map(|field| boxed(field.schema())).collect();
    schema(c"", c"+s", None, children, ptr::null_mut())
}

fn table_array(fields: &[Field]) -> Array {
    let length = fields.first().map_or(0, |field| field.len);
    let children = fields.iter().map(|field| boxed(field.array())).collect();
    array(length, vec![ptr::null()], children, ptr::null_mut(), None)
}

/// What a stream has still to give.
struct OfStream {
    fields: Vec<Field>,
    given: bool,
}

unsafe extern "C" fn get_schema(stream: *mut Stream, out: *mut Schema) -> c_int {
    // SAFETY: by the interface: our stream, and room for a schema.
    unsafe {
        let private = &*(*stream).private.cast::<OfStream>();
        out.write(table_schema(&private.fields));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut Stream, out: *mut Array) -> c_int {
    // SAFETY: by the interface: our stream, and room for an array. The end of the stream is an array without its
    // callback.
    unsafe {
        let private = &mut *(*stream).private.cast::<OfStream>();
        if private.given {
            ptr::write_bytes(out, 0, 1);
        } else {
            private.given = true;
            out.write(table_array(&private.fields));
        }
    }
    0
}

unsafe extern "C" fn get_last_error(_: *mut Stream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream(stream: *mut Stream) {
    // SAFETY: called once, with what `stream_of` made.
    unsafe {
        drop(Box::from_raw((*stream).private.cast::<OfStream>()));
        (*stream).release = None;
    }
}

/// A table as a capsule that holds a stream of one batch.
pub(crate) fn stream_of(py: Python<'_>, fields: Vec<Field>) -> PyResult<Bound<'_, PyAny>> {
    let private = Box::new(OfStream {
        fields,
        given: false,
    });
    let stream = boxed(Stream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private: Box::into_raw(private).cast(),
    });
    capsule(py, stream.cast(), STREAM, drop_stream)
}

/// The types of a table as a capsule.
pub(crate) fn schema_of<'py>(py: Python<'py>, fields: &[Field]) -> PyResult<Bound<'py, PyAny>> {
    capsule(py, boxed(table_schema(fields)).cast(), SCHEMA, drop_schema)
}

/// One column's type as a capsule.
pub(crate) fn field_schema<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    capsule(py, boxed(field.schema()).cast(), SCHEMA, drop_schema)
}

/// One column as a capsule.
pub(crate) fn field_array<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    capsule(py, boxed(field.array()).cast(), ARRAY, drop_array)
}

/// Texts as a pair of capsules: type and array.
pub(crate) fn texts_of<'py>(
    py: Python<'py>,
    texts: &Arc<StringBuffer>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let kind = schema(c"", c"U", None, Vec::new(), ptr::null_mut());
    Ok((
        capsule(py, boxed(kind).cast(), SCHEMA, drop_schema)?,
        capsule(py, boxed(texts_array(texts)).cast(), ARRAY, drop_array)?,
    ))
}

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

fn capsule<'py>(
    py: Python<'py>,
    content: *mut c_void,
    name: &'static CStr,
    drop: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a structure made for this name, which the destructor frees.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(content, name.as_ptr(), Some(drop)))
    }
}

unsafe extern "C" fn drop_schema(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule's own pointer; its callback is gone if a consumer took the content.
    unsafe { free_schema(ffi::PyCapsule_GetPointer(capsule, SCHEMA.as_ptr()).cast()) }
}

unsafe extern "C" fn drop_array(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule's own pointer; its callback is gone if a consumer took the content.
    unsafe { free_array(ffi::PyCapsule_GetPointer(capsule, ARRAY.as_ptr()).cast()) }
}

unsafe extern "C" fn drop_stream(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule's own pointer, a stream from a `Box`; its callback is gone if a consumer took the
    // content.
    unsafe {
        let stream: *mut Stream = ffi::PyCapsule_GetPointer(capsule, STREAM.as_ptr()).cast();
        if let Some(release) = (*stream).release {
            release(stream);
        }
        drop(Box::from_raw(stream));
    }
}
