//! Python values as arguments of events.
//!
//! Numbers, booleans and texts keep their types; everything else becomes its `str()`. What a value
//! does when it is turned into text is its own business: an exception there is swallowed, and the
//! text says so, since an annotation must not change what the program does. Ctrl-C is not swallowed.
#![allow(
    unsafe_code,
    reason = "reads dictionaries and texts without copying them"
)]

use std::borrow::Cow;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyType};
use stepscope::SpanArgValue;

/// The text of a `str`, without a copy where the interpreter has it as UTF-8.
pub(crate) fn text<'a>(string: &'a Bound<'_, PyString>) -> Cow<'a, str> {
    let mut len = 0;
    // SAFETY: a str; the result lives as long as the object.
    let at = unsafe { ffi::PyUnicode_AsUTF8AndSize(string.as_ptr(), &raw mut len) };
    if at.is_null() {
        // Lone surrogates.
        drop(PyErr::take(string.py()));
        return Cow::Owned(string.to_string_lossy().into_owned());
    }
    // SAFETY: `at` points to `len` bytes of UTF-8, which the interpreter keeps as long as the object lives.
    Cow::Borrowed(unsafe {
        std::str::from_utf8_unchecked(std::slice::from_raw_parts(
            at.cast(),
            usize::try_from(len).unwrap_or(0),
        ))
    })
}

/// A value that may own its text.
enum Value<'a> {
    Plain(SpanArgValue<'a>),
    Text(Cow<'a, str>),
}

/// Calls `work` with the entries of a dictionary of keyword arguments.
pub(crate) fn with_args<T>(
    metadata: Option<&Bound<'_, PyDict>>,
    work: impl FnOnce(&[(&str, SpanArgValue<'_>)]) -> T,
) -> T {
    let Some(metadata) = metadata else {
        return work(&[]);
    };
    // References of our own: `str()` of a value may run any code.
    let entries: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = metadata.iter().collect();
    let mut interrupted = false;
    let values: Vec<(Cow<'_, str>, Value<'_>)> = entries
        .iter()
        .map(|(key, value)| (key_of(key), value_of(key, value, &mut interrupted)))
        .collect();
    let args: Vec<(&str, SpanArgValue<'_>)> = values
        .iter()
        .map(|(key, value)| {
            let value = match value {
                Value::Plain(value) => *value,
                Value::Text(text) => SpanArgValue::Str(text),
            };
            (key.as_ref(), value)
        })
        .collect();
    let result = work(&args);
    if interrupted {
        // The program is to hear of it, at its next instruction.
        // SAFETY: with the lock; only marks the signal as having come.
        unsafe { ffi::PyErr_SetInterrupt() };
    }
    result
}

fn key_of<'a>(key: &'a Bound<'_, PyAny>) -> Cow<'a, str> {
    match key.cast::<PyString>() {
        Ok(key) => text(key),
        Err(_) => Cow::Borrowed("argument"),
    }
}

fn value_of<'a>(
    key: &Bound<'_, PyAny>,
    value: &'a Bound<'_, PyAny>,
    interrupted: &mut bool,
) -> Value<'a> {
    // Before `int`, of which it is a subclass.
    if let Ok(truth) = value.cast::<PyBool>() {
        return Value::Plain(SpanArgValue::Bool(truth.is_true()));
    }
    if let Ok(string) = value.cast::<PyString>() {
        return Value::Text(text(string));
    }
    if value.is_instance_of::<PyInt>()
        && let Some(number) = whole(value)
    {
        return Value::Plain(number);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Value::Plain(SpanArgValue::Double(number.value()));
    }
    if (is_numpy_scalar(value) || is_step_number(key))
        && let Some(number) = number_of(value)
    {
        return Value::Plain(number);
    }
    Value::Text(Cow::Owned(shown(value, interrupted)))
}

/// A whole number of at most 64 bits.
fn whole(value: &Bound<'_, PyAny>) -> Option<SpanArgValue<'static>> {
    if let Ok(number) = value.extract::<i64>() {
        return Some(SpanArgValue::Int(number));
    }
    value.extract::<u64>().ok().map(SpanArgValue::Uint)
}

fn is_step_number(key: &Bound<'_, PyAny>) -> bool {
    key.cast::<PyString>()
        .is_ok_and(|key| text(key) == "step_num")
}

/// `numpy.int64(3)` is no `int`. Arrays of accelerators are left alone: their values would have to be
/// waited for.
fn is_numpy_scalar(value: &Bound<'_, PyAny>) -> bool {
    let kind = value.get_type();
    kind.module().is_ok_and(|module| module == "numpy")
        && kind.name().is_ok_and(|name| {
            let name = name.to_string_lossy().into_owned();
            name.starts_with("int")
                || name.starts_with("uint")
                || name.starts_with("float")
                || name.starts_with("bool")
        })
}

fn number_of(value: &Bound<'_, PyAny>) -> Option<SpanArgValue<'static>> {
    let name = value.get_type().name().ok()?;
    if name.to_string_lossy().starts_with("bool") {
        return value.is_truthy().ok().map(SpanArgValue::Bool);
    }
    // SAFETY: a live object; the result is a new reference or null with an exception.
    let index =
        unsafe { Bound::from_owned_ptr_or_err(value.py(), ffi::PyNumber_Index(value.as_ptr())) };
    match index {
        Ok(index) => whole(&index),
        Err(_) => value.extract::<f64>().ok().map(SpanArgValue::Double),
    }
}

/// `str()`, and whether Ctrl-C was pressed during the call.
fn shown(value: &Bound<'_, PyAny>, interrupted: &mut bool) -> String {
    match value.str() {
        Ok(string) => text(&string).into_owned(),
        Err(error) => {
            let py = value.py();
            *interrupted |= error.is_instance_of::<PyKeyboardInterrupt>(py);
            let (kind, raised) = (value.get_type(), error.get_type(py));
            let (kind, raised) = (name_of(&kind), name_of(&raised));
            format!("<{kind}: its str() raised {raised}>")
        }
    }
}

/// A class's name. Without `str()`, which looks for signals and would swallow one.
fn name_of(class: &Bound<'_, PyType>) -> String {
    class
        .name()
        .map_or_else(|_| "?".to_owned(), |name| text(&name).into_owned())
}
