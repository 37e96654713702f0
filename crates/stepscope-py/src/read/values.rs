//! Values of traces as Python objects.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stepscope_model::{ArgValue, TrackKind};
use stepscope_store::FactValue;

/// An argument. Nested values, which traces hold as JSON text, are lists and dictionaries.
pub(super) fn argument<'py>(py: Python<'py>, value: ArgValue<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        ArgValue::Int(value) => value.into_pyobject(py)?.into_any(),
        ArgValue::Uint(value) => value.into_pyobject(py)?.into_any(),
        ArgValue::Double(value) => value.into_pyobject(py)?.into_any(),
        ArgValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        ArgValue::Str(text) => text.into_pyobject(py)?.into_any(),
        ArgValue::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        ArgValue::Json(text) => match py.import("json")?.call_method1("loads", (text,)) {
            Ok(value) => value,
            // Not quite JSON: NaN in another spelling, or nested past the interpreter's limit.
            Err(_) => text.into_pyobject(py)?.into_any(),
        },
    })
}

/// A fact.
pub(super) fn fact<'py>(py: Python<'py>, value: &FactValue) -> PyResult<Bound<'py, PyAny>> {
    argument(py, value.into())
}

/// Facts in their order.
pub(super) fn facts<'py>(
    py: Python<'py>,
    facts: &[(String, FactValue)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in facts {
        dict.set_item(key, fact(py, value)?)?;
    }
    Ok(dict)
}

/// The word for a kind of track.
pub(super) fn track_kind(kind: TrackKind) -> &'static str {
    match kind {
        TrackKind::Group => "group",
        TrackKind::Thread => "thread",
        TrackKind::DeviceQueue => "device queue",
        TrackKind::Async => "async",
        TrackKind::Counter => "counter",
        TrackKind::Steps => "steps",
        _ => "other",
    }
}
