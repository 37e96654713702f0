//! Functions by number: each code object and each description of a C function, once.
//!
//! What was seen is held, so that its address means nothing else, until the last profile is gone.
#![allow(
    unsafe_code,
    reason = "addresses of the interpreter's objects are keys"
)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMappingProxy, PyModule, PyString, PyTuple};
use rustc_hash::FxHashMap;

use super::table::HIDDEN;
use crate::calls::{Locked, names};
use crate::values;

#[derive(Default)]
struct Functions {
    own_folder: String,
    numbers: FxHashMap<usize, u32>,
    /// A code object, or the text that stands for a C function.
    what: Vec<Py<PyAny>>,
    /// Keeps addresses from being used again.
    held: Vec<Py<PyAny>>,
    /// The last one looked up.
    last: (usize, u32),
}

static FUNCTIONS: Locked<Option<Functions>> = Locked::new(None);

/// Before the first profile is switched on.
pub(super) fn begin(py: Python<'_>, own_folder: &str) {
    names::find_descriptions(py);
    FUNCTIONS.with(py, |functions| {
        let functions = functions.get_or_insert_default();
        if functions.own_folder.is_empty() {
            own_folder.clone_into(&mut functions.own_folder);
        }
    });
}

/// After the last profile is gone.
pub(super) fn forget(py: Python<'_>) {
    // Dropped outside: it lets go of Python objects.
    let functions = FUNCTIONS.with(py, Option::take);
    drop(functions);
}

/// A code object, or the text that stands for a C function.
pub(super) fn what(py: Python<'_>, number: usize) -> Option<Py<PyAny>> {
    FUNCTIONS.with(py, |functions| {
        let what = functions.as_ref()?.what.get(number)?;
        Some(what.clone_ref(py))
    })
}

/// The number of a code object's function.
///
/// # Safety
/// `code` is a live code object.
#[inline]
pub(super) unsafe fn of_code(py: Python<'_>, code: *mut ffi::PyObject) -> u32 {
    // SAFETY: by the caller.
    known(py, code as usize).unwrap_or_else(|| unsafe { new_code(py, code) })
}

/// The number of a C function, or of a method of a C type; `key` is its [`names::c_function_key`].
///
/// # Safety
/// `function` is a live C function or method.
#[inline]
pub(super) unsafe fn of_c_function(
    py: Python<'_>,
    key: usize,
    function: *mut ffi::PyObject,
) -> u32 {
    // SAFETY: by the caller.
    known(py, key).unwrap_or_else(|| unsafe { new_c_function(py, key, function) })
}

#[inline]
fn known(py: Python<'_>, key: usize) -> Option<u32> {
    FUNCTIONS.with(py, |functions| {
        let functions = functions.as_mut()?;
        if functions.last.0 == key {
            return Some(functions.last.1);
        }
        let number = *functions.numbers.get(&key)?;
        functions.last = (key, number);
        Some(number)
    })
}

#[cold]
unsafe fn new_code(py: Python<'_>, code: *mut ffi::PyObject) -> u32 {
    // SAFETY: by the caller.
    let code = unsafe { Bound::from_borrowed_ptr(py, code) };
    let file = code
        .getattr("co_filename")
        .ok()
        .and_then(|file| file.cast_into::<PyString>().ok())
        .map(|file| values::text(&file).into_owned())
        .unwrap_or_default();
    let own = FUNCTIONS.with(py, |functions| {
        functions
            .as_ref()
            .is_some_and(|one| !one.own_folder.is_empty() && file.starts_with(&one.own_folder))
    });
    let key = code.as_ptr() as usize;
    let held = code.unbind();
    let what = (!own).then(|| held.clone_ref(py));
    keep(py, key, what, Some(held))
}

#[cold]
unsafe fn new_c_function(py: Python<'_>, key: usize, function: *mut ffi::PyObject) -> u32 {
    // SAFETY: by the caller.
    let function = unsafe { Bound::from_borrowed_ptr(py, function) };
    let own = function
        .getattr("__module__")
        .is_ok_and(|module| module.eq("stepscope._core").unwrap_or(false));
    // A bound method would keep its object alive; its description stays without that.
    let held = (key == function.as_ptr() as usize).then(|| function.clone().unbind());
    let what = (!own).then(|| {
        let text = text_of_c_function(&function).unwrap_or_else(|_| "<unknown>".to_owned());
        PyString::new(py, &text).into_any().unbind()
    });
    keep(py, key, what, held)
}

fn keep(py: Python<'_>, key: usize, what: Option<Py<PyAny>>, held: Option<Py<PyAny>>) -> u32 {
    FUNCTIONS.with(py, |functions| {
        let Some(functions) = functions.as_mut() else {
            return HIDDEN;
        };
        let number = match what {
            Some(what) => {
                functions.what.push(what);
                u32::try_from(functions.what.len() - 1).unwrap_or(HIDDEN)
            }
            None => HIDDEN,
        };
        functions.numbers.insert(key, number);
        functions.held.extend(held);
        number
    })
}

/// The text that `cProfile` gives a C function.
fn text_of_c_function(function: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = function.py();
    // SAFETY: a live object.
    if unsafe { ffi::PyCFunction_Check(function.as_ptr()) } == 0 {
        // A method of a C type, not bound.
        return Ok(function.repr()?.to_string_lossy().into_owned());
    }
    let name: String = function.getattr("__name__")?.extract()?;
    let module = function
        .getattr("__module__")
        .ok()
        .and_then(|module| module.extract::<String>().ok());
    let bound_to = function.getattr("__self__")?;
    if bound_to.is_none() {
        return Ok(match module {
            Some(module) if module != "builtins" => format!("<{module}.{name}>"),
            _ => format!("<{name}>"),
        });
    }
    if !bound_to.is_instance_of::<PyModule>()
        && let Some(method) = in_type(py, &bound_to, &name)
    {
        return Ok(method.repr()?.to_string_lossy().into_owned());
    }
    Ok(match module {
        Some(module) => format!("<built-in method {module}.{name}>"),
        None => format!("<built-in method {name}>"),
    })
}

/// What the object's type, or one that it comes from, has under this name.
fn in_type<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
    name: &str,
) -> Option<Bound<'py, PyAny>> {
    let line = object.get_type().getattr("__mro__").ok()?;
    for kind in line.cast::<PyTuple>().ok()?.iter() {
        let members = kind.getattr("__dict__").ok()?;
        let found = if let Ok(members) = members.cast::<PyMappingProxy>() {
            members.get_item(name).ok()
        } else {
            let members = members.cast::<PyDict>().ok()?;
            members.get_item(PyString::new(py, name)).ok().flatten()
        };
        if found.is_some() {
            return found;
        }
    }
    None
}
