//! Arguments of an event as JSON text.

use serde_json::Value;
use stepscope_model::ArgValue;
use stepscope_store::{EventId, Trace};

/// Returns the arguments of an event as a JSON object; `None` without arguments, or if they cannot be read.
pub(crate) fn json_args(trace: &Trace, id: EventId) -> Option<String> {
    let mut object = serde_json::Map::new();
    let read = trace.args(id, &mut |key, value| {
        object.insert(key.to_owned(), json(value));
    });
    (read.is_ok() && !object.is_empty()).then(|| Value::Object(object).to_string())
}

fn json(value: ArgValue<'_>) -> Value {
    match value {
        ArgValue::Int(value) => value.into(),
        ArgValue::Uint(value) => value.into(),
        ArgValue::Double(value) => value.into(),
        ArgValue::Bool(value) => value.into(),
        ArgValue::Str(text) => text.into(),
        ArgValue::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        ArgValue::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}

/// Name of the type of an argument.
pub(crate) const fn type_of(value: &ArgValue<'_>) -> &'static str {
    match value {
        ArgValue::Int(_) => "int",
        ArgValue::Uint(_) => "uint",
        ArgValue::Double(_) => "double",
        ArgValue::Bool(_) => "bool",
        ArgValue::Str(_) => "text",
        ArgValue::Json(_) => "json",
        ArgValue::Bytes(_) => "bytes",
    }
}

/// Returns an argument as text.
pub(crate) fn text_of(value: &ArgValue<'_>) -> String {
    match value {
        ArgValue::Int(value) => value.to_string(),
        ArgValue::Uint(value) => value.to_string(),
        ArgValue::Double(value) => value.to_string(),
        ArgValue::Bool(value) => value.to_string(),
        ArgValue::Str(text) | ArgValue::Json(text) => (*text).to_owned(),
        ArgValue::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}
