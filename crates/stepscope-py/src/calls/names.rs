//! Names of functions, looked up once for each code object and each description of a C function.
//!
//! A code object that has been seen is held until the recording stops, so that its address means
//! nothing else. The description (`PyMethodDef`) of a C function is read from the function object: its
//! place is the first after the object's head in every `CPython` there has been, and is checked at the
//! start with `len`. Methods of C types are descriptors, or bound anew for each use; their
//! descriptions stay.
#![allow(
    unsafe_code,
    reason = "addresses of the interpreter's objects are keys"
)]

use std::ffi::{CStr, c_char};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyModule, PyString};
use rustc_hash::FxHashMap;
use stepscope::open::NameNumber;

use super::Locked;
use super::stack::Called;
use crate::values;

/// What is known of a function.
enum Known {
    Number(NameNumber),
    Text(String),
    /// One of ours.
    Own,
}

struct Entry {
    known: Known,
    /// Keeps the address from being used again.
    _held: Option<Py<PyAny>>,
}

#[derive(Default)]
struct Names {
    own_folder: String,
    functions: FxHashMap<usize, Entry>,
    /// Descriptions of C functions are where they are expected.
    descriptions: bool,
    /// The last one looked up: loops call the same.
    last: (usize, Option<NameNumber>),
}

static NAMES: Locked<Option<Names>> = Locked::new(None);

/// Before calls are traced.
pub(super) fn begin(py: Python<'_>, own_folder: String) {
    let descriptions = descriptions_are_in_place(py);
    NAMES.with(py, |names| {
        *names = Some(Names {
            own_folder,
            descriptions,
            ..Names::default()
        });
    });
}

/// After calls were traced.
pub(super) fn end(py: Python<'_>) {
    // Dropped outside: it lets go of Python objects.
    let names = NAMES.with(py, Option::take);
    drop(names);
}

/// Whether a function is traced; then `work` is called with its name.
///
/// # Safety
/// `code` is a live code object.
#[inline]
pub(super) unsafe fn with_code(
    py: Python<'_>,
    code: *mut ffi::PyObject,
    work: impl FnOnce(&Called<'_>),
) -> bool {
    let key = code as usize;
    // SAFETY: by the caller.
    let name = || unsafe { describe_code(py, code) };
    with_known(py, key, name, work)
}

/// As [`with_code`], for a C function; its key.
///
/// # Safety
/// `function` is a live object.
#[inline]
pub(super) unsafe fn with_c_function(
    py: Python<'_>,
    function: *mut ffi::PyObject,
    work: impl FnOnce(usize, &Called<'_>),
) {
    // SAFETY: by the caller.
    unsafe {
        let key = c_function_key(py, function);
        let name = || describe_c_function(py, function);
        with_known(py, key, name, |called| work(key, called));
    }
}

#[inline]
fn with_known(
    py: Python<'_>,
    key: usize,
    describe: impl FnOnce() -> (Entry, String),
    work: impl FnOnce(&Called<'_>),
) -> bool {
    let number = NAMES.with(py, |names| match names {
        Some(names) if names.last.0 == key => names.last.1,
        Some(names) => match names.functions.get(&key).map(|entry| &entry.known) {
            Some(Known::Number(number)) => {
                names.last = (key, Some(*number));
                Some(*number)
            }
            _ => None,
        },
        None => None,
    });
    match number {
        Some(number) => {
            work(&Called::Number(number));
            true
        }
        None => with_unknown(py, key, describe, work),
    }
}

/// A function that is new, has no number, or is ours.
#[cold]
fn with_unknown(
    py: Python<'_>,
    key: usize,
    describe: impl FnOnce() -> (Entry, String),
    work: impl FnOnce(&Called<'_>),
) -> bool {
    enum Found {
        Nothing,
        Own,
        Text(String),
    }
    let look = |names: &mut Option<Names>| match names {
        None => Some(Found::Own),
        Some(names) => match &names.functions.get(&key)?.known {
            Known::Own => Some(Found::Own),
            Known::Text(text) => Some(Found::Text(text.clone())),
            Known::Number(_) => Some(Found::Nothing),
        },
    };
    let text = match NAMES.with(py, look) {
        Some(Found::Own) => return false,
        Some(Found::Text(text)) => text,
        Some(Found::Nothing) | None => {
            // Asks the interpreter: not inside of `with`.
            let (entry, text) = describe();
            let own = matches!(entry.known, Known::Own);
            NAMES.with(py, |names| {
                if let Some(names) = names {
                    names.functions.insert(key, entry);
                }
            });
            if own {
                return false;
            }
            text
        }
    };
    work(&Called::Text(&text));
    true
}

fn entry(text: &str, own: bool, held: Option<Py<PyAny>>) -> Entry {
    let known = match NameNumber::of(text) {
        _ if own => Known::Own,
        Some(number) => Known::Number(number),
        None => Known::Text(text.to_owned()),
    };
    Entry { known, _held: held }
}

unsafe fn describe_code(py: Python<'_>, code: *mut ffi::PyObject) -> (Entry, String) {
    // SAFETY: by the caller.
    let code = unsafe { Bound::from_borrowed_ptr(py, code) };
    let (text, file) = text_of_code(&code);
    let own = NAMES.with(py, |names| {
        names
            .as_ref()
            .is_some_and(|names| file.starts_with(&names.own_folder))
    });
    (entry(&text, own, Some(code.unbind())), text)
}

/// What a function is called, `$train.py:12 step`, and its file. Runs no Python code.
pub(crate) fn text_of_code(code: &Bound<'_, PyAny>) -> (String, String) {
    let attribute = |name: &str| {
        let value = code.getattr(name).ok()?.cast_into::<PyString>().ok()?;
        Some(values::text(&value).into_owned())
    };
    let file = attribute("co_filename").unwrap_or_else(|| "<unknown>".to_owned());
    let function = attribute("co_name").unwrap_or_default();
    let line = code
        .getattr("co_firstlineno")
        .and_then(|line| line.extract::<u32>())
        .unwrap_or(0);
    let base = file.rsplit('/').next().unwrap_or(&file);
    let text = if line == 0 {
        format!("${base} {function}")
    } else {
        format!("${base}:{line} {function}")
    };
    (text, file)
}

unsafe fn describe_c_function(py: Python<'_>, function: *mut ffi::PyObject) -> (Entry, String) {
    // SAFETY: by the caller.
    let function = unsafe { Bound::from_borrowed_ptr(py, function) };
    let attribute = |name: &str| {
        let value = function.getattr(name).ok()?.cast_into::<PyString>().ok()?;
        Some(values::text(&value).into_owned())
    };
    let name = attribute("__name__").unwrap_or_default();
    let bound_to = function.getattr("__self__").ok();
    let of_module = bound_to.as_ref().is_some_and(|object| {
        object.is_instance_of::<PyModule>() || object.is_instance_of::<PyCapsule>()
    });
    // A method of a C type has no module of its own.
    let module = attribute("__module__").unwrap_or_else(|| "<unknown>".to_owned());
    let own = module == "stepscope._core";
    let text = format!("${module} {name}");
    // A bound method would keep its object alive.
    let held = of_module.then(|| function.unbind());
    (entry(&text, own, held), text)
}

/// Whether the object is a C function or a method of a C type.
///
/// # Safety
/// `callable` is a live object.
#[inline]
pub(crate) unsafe fn is_c_function(callable: *mut ffi::PyObject) -> bool {
    // SAFETY: by the caller; the types live for ever.
    unsafe {
        let kind = ffi::Py_TYPE(callable);
        ffi::PyCFunction_Check(callable) != 0
            || kind == &raw mut ffi::PyMethodDescr_Type
            || kind == &raw mut ffi::PyClassMethodDescr_Type
    }
}

/// Address of a C function's description, or of the object where that is not known.
#[inline]
pub(super) unsafe fn c_function_key(py: Python<'_>, function: *mut ffi::PyObject) -> usize {
    // SAFETY: by the caller.
    unsafe {
        let checked = NAMES.with(py, |names| {
            names.as_ref().is_some_and(|names| names.descriptions)
        });
        if checked && ffi::PyCFunction_Check(function) != 0 {
            description(function) as usize
        } else {
            // A descriptor of a type.
            function as usize
        }
    }
}

/// # Safety
/// `function` is a C function, and the description is where it is expected.
pub(crate) unsafe fn description(function: *mut ffi::PyObject) -> *const *const c_char {
    // SAFETY: by the caller.
    unsafe { *function.add(1).cast::<*const *const c_char>() }
}

pub(crate) fn descriptions_are_in_place(py: Python<'_>) -> bool {
    let Ok(len) = py
        .import("builtins")
        .and_then(|module| module.getattr("len"))
    else {
        return false;
    };
    // SAFETY: a C function object is longer than its head by several pointers, the first of which
    // points to a description, which begins with a pointer to a name.
    unsafe {
        let at = description(len.as_ptr());
        !at.is_null() && !(*at).is_null() && CStr::from_ptr(*at) == c"len"
    }
}
