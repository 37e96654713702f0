//! Arguments of an event, read when somebody asks.
//!
//! A token is the byte offset of the event's opening brace; the members of `args` come first, then
//! the event's fields that are no standard ones. A slice made of a begin and an end has the token
//! of its begin; what the end holds follows the begin's arguments. Which end belongs to a begin
//! is kept only for ends that have arguments (16 bytes each); a source made without reading the
//! file finds the pairs when it is first asked for a begin.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use stepscope_model::{ArgError, ArgKeys, ArgSource, ArgValue, ReadContext, SharedBytes};

use super::event::{entry, is_standard, members};
use super::extension;
use super::scan::{JsonType, ScanError, Value};
use super::some_args;
use super::text::{lossy, unescape};

/// See the module's text.
pub(super) struct Source {
    bytes: SharedBytes,
    /// Begin and end of pairs whose end has arguments, sorted by begin.
    ends: OnceLock<Vec<(u64, u64)>>,
}

impl Source {
    pub(super) fn new(bytes: &SharedBytes) -> Arc<Self> {
        Arc::new(Self {
            bytes: Arc::clone(bytes),
            ends: OnceLock::new(),
        })
    }

    /// Tells the pairs that reading has found.
    pub(super) fn set_ends(&self, mut ends: Vec<(u64, u64)>) {
        ends.sort_unstable();
        let _ = self.ends.set(ends);
    }

    fn end_of(&self, begin: u64) -> Option<u64> {
        let ends = self.ends.get_or_init(|| {
            let mut ends = super::reader::ends_of(&self.bytes).unwrap_or_default();
            ends.sort_unstable();
            ends
        });
        let place = ends.binary_search_by_key(&begin, |pair| pair.0).ok()?;
        ends.get(place).map(|pair| pair.1)
    }
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let bytes: &[u8] = (*self.bytes).as_ref();
        let phase = visit_event(bytes, token, visit)?;
        if matches!(phase, b'B' | b'b' | b'S')
            && let Some(end) = self.end_of(token)
        {
            visit_event(bytes, end, visit)?;
        }
        Ok(())
    }

    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let bytes: &[u8] = (*self.bytes).as_ref();
        let phase = visit_some_of_event(bytes, token, keys, visit)?;
        if matches!(phase, b'B' | b'b' | b'S')
            && let Some(end) = self.end_of(token)
        {
            visit_some_of_event(bytes, end, keys, visit)?;
        }
        Ok(())
    }
}

/// As [`visit_event`], for arguments of these names only.
pub(super) fn visit_some_of_event(
    bytes: &[u8],
    token: u64,
    keys: ArgKeys,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<u8, ArgError> {
    let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
    let mut wanted = some_args::Wanted::new();
    if some_args::find(bytes, at, keys, &mut wanted) == Ok(true) {
        for (key, value) in wanted.iter() {
            with_value(bytes, &value, |value| visit(keys.get(key), value));
        }
        return Ok(wanted.phase);
    }
    visit_event(bytes, token, &mut |key, value| {
        if keys.find(key.as_bytes()).is_some() {
            visit(key, value);
        }
    })
}

/// Visits the arguments of the event at `token`; returns its phase.
pub(super) fn visit_event(
    bytes: &[u8],
    token: u64,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<u8, ArgError> {
    let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
    if bytes.get(at) != Some(&b'{') {
        return Err(ArgError::Damaged);
    }
    let found = entry(bytes, at).map_err(|_stop| ArgError::Damaged)?;
    let types = if found.own.sort == JsonType::Object {
        extension::disguises_of_event(bytes, found.own.span.start)
    } else {
        Vec::new()
    };
    match found.args.sort {
        JsonType::Object => {
            visit_members(bytes, found.args.span.start, &mut |key, value| {
                undisguised(&types, key, value, visit);
            })
            .map_err(|_stop| ArgError::Damaged)?;
        }
        _ if found.args.is_null(bytes) => {}
        _ => with_value(bytes, &found.args, |value| visit("args", value)),
    }
    if found.extra {
        let _ = members(bytes, at, |key, value| {
            if !is_standard(key) {
                with_value(bytes, &value, |value| visit(&key_of(key), value));
            }
        });
    }
    Ok(found.phase)
}

/// Visits the members of the object at `at`; returns the byte after it.
pub(super) fn visit_members(
    bytes: &[u8],
    at: usize,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<usize, ScanError> {
    members(bytes, at, |key, value| {
        with_value(bytes, &value, |value| visit(&key_of(key), value));
    })
}

/// Visits a value as what it was before our own writer had to write it as something else.
pub(super) fn undisguised(
    types: &[(String, String)],
    key: &str,
    value: ArgValue<'_>,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) {
    let word = types
        .iter()
        .find(|(name, _)| name == key)
        .map(|(_, word)| word.as_str());
    match (word, value) {
        (Some("float"), ArgValue::Str(text @ ("NaN" | "Infinity" | "-Infinity"))) => {
            visit(key, scalar(text));
        }
        (Some("json"), ArgValue::Str(text)) => visit(key, ArgValue::Json(text)),
        (Some("bytes"), ArgValue::Str(text)) => match from_hex(text) {
            Some(bytes) => visit(key, ArgValue::Bytes(&bytes)),
            None => visit(key, value),
        },
        _ => visit(key, value),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs
        .iter()
        .map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok())
        .collect()
}

fn key_of(raw: &[u8]) -> Cow<'_, str> {
    unescape(raw, memchr::memchr(b'\\', raw).is_some()).text
}

/// Calls `then` with a value as the words of the model say it.
pub(super) fn with_value(bytes: &[u8], value: &Value, then: impl FnOnce(ArgValue<'_>)) {
    let raw = value.span.of(bytes);
    match value.sort {
        JsonType::Str { escaped } => then(ArgValue::Str(&unescape(raw, escaped).text)),
        JsonType::Scalar => match digits(raw) {
            Some(whole) => then(ArgValue::Int(whole)),
            None => then(scalar(&lossy(raw))),
        },
        JsonType::Object | JsonType::Array => then(ArgValue::Json(&lossy(raw))),
        JsonType::Missing => {}
    }
}

/// What most scalars are: a whole number that surely fits.
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

fn scalar(text: &str) -> ArgValue<'_> {
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

/// The argument source of a file whose pairs are not known yet.
pub(super) fn unread(bytes: &SharedBytes, _context: &ReadContext) -> Arc<dyn ArgSource> {
    Source::new(bytes)
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
