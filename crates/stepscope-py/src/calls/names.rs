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
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyModule, PyString};
use rustc_hash::FxHashMap;
use stepscope::manual_span::NameNumber;

use super::Locked;
use crate::values;

/// What is known of a function.
enum FunctionName {
    Number(NameNumber),
    Text(String),
    /// One of ours.
    Own,
}

struct Entry {
    known: FunctionName,
    /// Keeps the address from being used again.
    _held: Option<Py<PyAny>>,
}

struct Names {
    own_folder: String,
    functions: FxHashMap<usize, Entry>,
    /// Functions looked up last, each at a place that its address tells.
    recent: Box<[Recent; RECENT]>,
}

/// A function, and its name; `None` is one of ours.
type Recent = (usize, Option<NameNumber>);

/// Number of places for recent ones.
const RECENT: usize = 1024;

impl Names {
    /// Addresses are multiples of 16, and those of code objects mostly of 32.
    #[inline]
    fn place(key: usize) -> usize {
        (key >> 5 ^ key >> 14) % RECENT
    }
}

static NAMES: Locked<Option<Names>> = Locked::new(None);

/// Before calls are traced.
pub(super) fn begin(py: Python<'_>, own_folder: String) {
    find_descriptions(py);
    NAMES.with(py, |names| {
        *names = Some(Names {
            own_folder,
            functions: FxHashMap::default(),
            recent: Box::new([(0, None); RECENT]),
        });
    });
}

/// After calls were traced.
pub(super) fn end(py: Python<'_>) {
    // Dropped outside: it lets go of Python objects.
    let names = NAMES.with(py, Option::take);
    drop(names);
}

/// How a function is called in the recording.
pub(super) enum Called {
    Number(NameNumber),
    /// There are no more numbers.
    Text(String),
    /// It is one of ours.
    Not,
}

/// What is known of a function without a look-up.
pub(super) enum Lately {
    Number(NameNumber),
    /// It is one of ours.
    Own,
    /// Nothing.
    Unknown,
}

/// What was looked up lately of a function.
#[inline]
pub(super) fn lately(py: Python<'_>, key: usize) -> Lately {
    NAMES.with(py, |names| {
        let Some(names) = names else {
            return Lately::Unknown;
        };
        match names.recent[Names::place(key)] {
            (known, Some(number)) if known == key => Lately::Number(number),
            (known, None) if known == key => Lately::Own,
            _ => Lately::Unknown,
        }
    })
}

/// The name of a function with this code.
///
/// # Safety
/// `code` is a live code object.
#[cold]
pub(super) unsafe fn of_code(py: Python<'_>, code: *mut ffi::PyObject) -> Called {
    // SAFETY: by the caller.
    look_up(py, code as usize, || unsafe { describe_code(py, code) })
}

/// The name of a C function; `key` is its [`c_function_key`].
///
/// # Safety
/// `function` is a live object.
#[cold]
pub(super) unsafe fn of_c_function(
    py: Python<'_>,
    key: usize,
    function: *mut ffi::PyObject,
) -> Called {
    // SAFETY: by the caller.
    look_up(py, key, || unsafe { describe_c_function(py, function) })
}

fn look_up(py: Python<'_>, key: usize, describe: impl FnOnce() -> Entry) -> Called {
    let look = |names: &mut Option<Names>| {
        // Tracing has ended.
        let Some(names) = names else {
            return Some(Called::Not);
        };
        let known = match &names.functions.get(&key)?.known {
            FunctionName::Own => None,
            FunctionName::Number(number) => Some(*number),
            FunctionName::Text(text) => return Some(Called::Text(text.clone())),
        };
        names.recent[Names::place(key)] = (key, known);
        Some(known.map_or(Called::Not, Called::Number))
    };
    if let Some(called) = NAMES.with(py, look) {
        return called;
    }
    // Asks the interpreter: not inside of `with`.
    let entry = describe();
    let before = NAMES.with(py, |names| names.as_mut()?.functions.insert(key, entry));
    // It lets go of Python objects.
    drop(before);
    NAMES.with(py, look).unwrap_or(Called::Not)
}

fn entry(text: &str, own: bool, held: Option<Py<PyAny>>) -> Entry {
    let known = match NameNumber::intern(text) {
        _ if own => FunctionName::Own,
        Some(number) => FunctionName::Number(number),
        None => FunctionName::Text(text.to_owned()),
    };
    Entry { known, _held: held }
}

/// Whether code is the package's own.
///
/// # Safety
/// `code` is a live code object.
#[cold]
pub(super) unsafe fn is_own_code(py: Python<'_>, code: *mut ffi::PyObject) -> bool {
    // SAFETY: by the caller.
    matches!(unsafe { of_code(py, code) }, Called::Not)
}

unsafe fn describe_code(py: Python<'_>, code: *mut ffi::PyObject) -> Entry {
    // SAFETY: by the caller.
    let code = unsafe { Bound::from_borrowed_ptr(py, code) };
    let (text, file) = text_of_code(&code);
    let own = NAMES.with(py, |names| {
        names
            .as_ref()
            .is_some_and(|names| file.starts_with(&names.own_folder))
    });
    entry(&text, own, Some(code.unbind()))
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

unsafe fn describe_c_function(py: Python<'_>, function: *mut ffi::PyObject) -> Entry {
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
    let own = module == "stepscope._core" || is_method_of_ours(&function, &name);
    let text = format!("${module} {name}");
    // A bound method would keep its object alive.
    let held = of_module.then(|| function.unbind());
    entry(&text, own, held)
}

/// Whether the method, of this name, comes from a type of ours. Runs no Python code.
fn is_method_of_ours(function: &Bound<'_, PyAny>, name: &str) -> bool {
    let is_ours = |class: &Bound<'_, PyAny>| {
        let module = class.getattr("__module__").ok();
        let module = module.and_then(|module| module.cast_into::<PyString>().ok());
        module.is_some_and(|module| values::text(&module).starts_with("stepscope."))
    };
    if let Ok(class) = function.getattr("__objclass__") {
        return is_ours(&class);
    }
    let Ok(object) = function.getattr("__self__") else {
        return false;
    };
    // The class that defines it: the object's own may be one of the program's.
    let mro = object.get_type().mro();
    let defines = |class: &Bound<'_, PyAny>| {
        let own = class.getattr("__dict__");
        own.is_ok_and(|own| own.contains(name).unwrap_or(false))
    };
    mro.iter()
        .find(defines)
        .is_some_and(|class| is_ours(&class))
}

/// Whether the object is a C function or a method of a C type.
///
/// # Safety
/// `callable` is a live object.
#[inline]
pub(super) unsafe fn is_c_function(callable: *mut ffi::PyObject) -> bool {
    // SAFETY: by the caller; the types live for ever.
    unsafe {
        let kind = ffi::Py_TYPE(callable);
        ffi::PyCFunction_Check(callable) != 0
            || kind == &raw mut ffi::PyMethodDescr_Type
            || kind == &raw mut ffi::PyClassMethodDescr_Type
    }
}

/// Whether descriptions of C functions are where they are expected.
static DESCRIPTIONS_ARE_IN_PLACE: AtomicBool = AtomicBool::new(false);

/// Address of a C function's description, or of the object where that is not known.
///
/// # Safety
/// `function` is a live object for which [`is_c_function`] holds.
#[inline]
pub(crate) unsafe fn c_function_key(function: *mut ffi::PyObject) -> usize {
    // SAFETY: by the caller.
    unsafe {
        if DESCRIPTIONS_ARE_IN_PLACE.load(Ordering::Relaxed)
            && ffi::PyCFunction_Check(function) != 0
        {
            description(function) as usize
        } else {
            // A descriptor of a type.
            function as usize
        }
    }
}

/// # Safety
/// `function` is a C function, and the description is where it is expected.
unsafe fn description(function: *mut ffi::PyObject) -> *const *const c_char {
    // SAFETY: by the caller.
    unsafe { *function.add(1).cast::<*const *const c_char>() }
}

/// Checks, with `len`, that descriptions of C functions are where they are expected: before events come.
pub(crate) fn find_descriptions(py: Python<'_>) {
    DESCRIPTIONS_ARE_IN_PLACE.store(description_of_len_is_in_place(py), Ordering::Relaxed);
}

fn description_of_len_is_in_place(py: Python<'_>) -> bool {
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
