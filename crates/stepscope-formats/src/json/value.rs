//! Conversion of JSON values to argument values of the model.

use std::borrow::Cow;

use stepscope_model::ArgValue;

use super::members::members;
use super::scan::{ByteRange, JsonType, ScanError, Value};
use super::text::{Text, lossy, unescape};

/// Members of the outermost object that are not lists of events, in the file's order.
pub(crate) type TopLevel = Vec<(ByteRange, Value)>;

/// Finds a member of the outermost object.
pub(crate) fn find(bytes: &[u8], top: &TopLevel, wanted: &[u8]) -> Option<Value> {
    top.iter()
        .find(|(key, _)| key.slice(bytes) == wanted)
        .map(|(_, value)| *value)
}

pub(crate) fn whole(bytes: &[u8], value: &Value) -> Option<i64> {
    let raw = value.raw(bytes)?;
    std::str::from_utf8(raw).ok()?.trim().parse().ok()
}

/// Returns the text of a value for a track key: strings decoded, numbers unchanged.
pub(crate) fn key_text<'a>(bytes: &'a [u8], value: &Value) -> Option<Text<'a>> {
    let raw = value.raw(bytes)?;
    let escaped = value.json_type == JsonType::Str { escaped: true };
    Some(unescape(raw, escaped))
}

/// Visits the members of the object at `at`; returns the offset after it.
pub(crate) fn visit_members(
    bytes: &[u8],
    at: usize,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<usize, ScanError> {
    members(bytes, at, |key, value| {
        with_value(bytes, &value, |value| visit(&key_of(key), value));
    })
}

pub(crate) fn key_of(raw: &[u8]) -> Cow<'_, str> {
    unescape(raw, memchr::memchr(b'\\', raw).is_some()).text
}

/// Calls `then` with a value converted to the model's type.
pub(crate) fn with_value(bytes: &[u8], value: &Value, then: impl FnOnce(ArgValue<'_>)) {
    let raw = value.span.slice(bytes);
    match value.json_type {
        JsonType::Str { escaped } => then(ArgValue::Str(&unescape(raw, escaped).text)),
        JsonType::Scalar => match digits(raw) {
            Some(whole) => then(ArgValue::Int(whole)),
            None => then(scalar(&lossy(raw))),
        },
        JsonType::Object | JsonType::Array => then(ArgValue::Json(&lossy(raw))),
        JsonType::Missing => {}
    }
}

/// Parses the common form of a scalar: a whole number that certainly fits.
fn digits(raw: &[u8]) -> Option<i64> {
    const SURELY: usize = 18;
    let (negative, digits) = match raw {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > SURELY {
        return None;
    }
    let number = digits.iter().try_fold(0, |number: i64, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + i64::from(digit))
    })?;
    Some(if negative { -number } else { number })
}

pub(crate) fn scalar(text: &str) -> ArgValue<'_> {
    match text {
        "true" => return ArgValue::Bool(true),
        "false" => return ArgValue::Bool(false),
        "null" => return ArgValue::Json("null"),
        "NaN" => return ArgValue::Double(f64::NAN),
        "Infinity" => return ArgValue::Double(f64::INFINITY),
        "-Infinity" => return ArgValue::Double(f64::NEG_INFINITY),
        _ => {}
    }
    if let Ok(whole) = text.parse() {
        return ArgValue::Int(whole);
    }
    if let Ok(whole) = text.parse() {
        return ArgValue::Uint(whole);
    }
    match text.parse() {
        Ok(number) if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            ArgValue::Double(number)
        }
        _ => ArgValue::Str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_to_a_number_gives_what_the_long_one_does() {
        for text in [
            "0",
            "7",
            "-1",
            "-0",
            "007",
            "-4096",
            "999999999999999999",
            "-999999999999999999",
        ] {
            let whole = digits(text.as_bytes()).map(ArgValue::Int);
            assert_eq!(whole, Some(scalar(text)), "{text}");
        }
        for text in [
            "",
            "-",
            "--1",
            "+1",
            "1e5",
            "1.5",
            "-1.5",
            "9999999999999999999",
            "true",
            "1-",
        ] {
            assert_eq!(digits(text.as_bytes()), None, "{text}");
        }
    }
}
