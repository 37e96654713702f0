//! Sequential traversal of JSON text that decodes only the requested values.

use stepscope_model::{Cancelled, Diagnostic};

use super::scan::{self, JsonType, ScanError, Value, byte_at, skip_space};
use super::text::unescape;

/// Reason why the traversal stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Invalid text.
    ScanError(ScanError),
    /// Cancelled by the user.
    Cancelled,
}

impl From<ScanError> for Fault {
    fn from(stop: ScanError) -> Self {
        Self::ScanError(stop)
    }
}

impl From<Cancelled> for Fault {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Returns the offset at which the read stopped.
pub(crate) fn place(stop: Option<ScanError>, bytes: &[u8]) -> u64 {
    match stop {
        Some(ScanError::Damaged(at)) => at as u64,
        _ => bytes.len() as u64,
    }
}

/// Returns the loss of a read that stopped before the end, and its detail.
pub(crate) fn loss(stop: ScanError, bytes: &[u8]) -> (Diagnostic, String) {
    let what = match stop {
        ScanError::End => Diagnostic::Truncated,
        ScanError::Damaged(_) => Diagnostic::Unreadable,
    };
    let at = place(Some(stop), bytes);
    (what, format!("reading ended at byte {at}"))
}

/// End offset of a value, or the reason why it is unknown.
pub(crate) type End = Result<usize, Fault>;

/// Calls `visit` with the key and the value's offset for each member of the object at `at`; `visit`
/// returns the end of the value. Returns the end of the object.
pub(crate) fn object(bytes: &[u8], at: usize, visit: &mut dyn FnMut(&[u8], usize) -> End) -> End {
    if byte_at(bytes, at)? != b'{' {
        return Err(ScanError::Damaged(at).into());
    }
    let mut here = skip_space(bytes, at + 1);
    loop {
        match byte_at(bytes, here)? {
            b'}' => return Ok(here + 1),
            b',' => here = skip_space(bytes, here + 1),
            b'"' => {
                let (key, _) = scan::string(bytes, here + 1)?;
                let colon = skip_space(bytes, key.end + 1);
                if byte_at(bytes, colon)? != b':' {
                    return Err(ScanError::Damaged(colon).into());
                }
                let end = visit(key.slice(bytes), skip_space(bytes, colon + 1))?;
                here = skip_space(bytes, end);
            }
            _ => return Err(ScanError::Damaged(here).into()),
        }
    }
}

/// Calls `visit` for the elements of the list at `at`, like [`object`]. Skips other values.
pub(crate) fn list(bytes: &[u8], at: usize, visit: &mut dyn FnMut(usize) -> End) -> End {
    if byte_at(bytes, at)? != b'[' {
        return skip(bytes, at);
    }
    let mut here = skip_space(bytes, at + 1);
    loop {
        match byte_at(bytes, here)? {
            b']' => return Ok(here + 1),
            b',' => here = skip_space(bytes, here + 1),
            _ => here = skip_space(bytes, visit(here)?),
        }
    }
}

/// Cursor over the elements of a list, for lists that are read side by side.
pub(crate) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Elements<'a> {
    /// Starts at the list whose opening bracket is at `at`.
    pub(crate) fn open(bytes: &'a [u8], at: usize) -> Result<Self, ScanError> {
        if byte_at(bytes, at)? != b'[' {
            return Err(ScanError::Damaged(at));
        }
        Ok(Self { bytes, at: at + 1 })
    }

    /// Returns the next element; `None` after the last one.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator would end at the first error; here the error is the result"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<Value>, ScanError> {
        loop {
            self.at = skip_space(self.bytes, self.at);
            match byte_at(self.bytes, self.at)? {
                b']' => return Ok(None),
                b',' => self.at += 1,
                _ => {
                    let (value, end) = scan::value(self.bytes, self.at)?;
                    self.at = end;
                    return Ok(Some(value));
                }
            }
        }
    }
}

/// Skips a value; returns its end.
pub(crate) fn skip(bytes: &[u8], at: usize) -> End {
    Ok(value(bytes, at)?.1)
}

/// Scans a whole value; returns it and the offset after it.
pub(crate) fn value(bytes: &[u8], at: usize) -> Result<(Value, usize), Fault> {
    Ok(scan::value(bytes, at)?)
}

/// Visits the decoded members of a small object. Other values have no members.
pub(crate) fn members(bytes: &[u8], at: usize, visit: &mut dyn FnMut(&[u8], &Value)) -> End {
    if byte_at(bytes, at)? != b'{' {
        return skip(bytes, at);
    }
    object(bytes, at, &mut |key, at| {
        let (value, end) = value(bytes, at)?;
        visit(key, &value);
        Ok(end)
    })
}

/// Parses an unsigned integer.
pub(crate) fn whole(bytes: &[u8], value: &Value) -> Option<u64> {
    let digits = std::str::from_utf8(value.raw(bytes)?).ok()?;
    digits.parse().ok()
}

/// Decodes a string.
pub(crate) fn text(bytes: &[u8], value: &Value) -> Option<String> {
    match value.json_type {
        JsonType::Str { escaped } => {
            Some(unescape(value.span.slice(bytes), escaped).text.into_owned())
        }
        _ => None,
    }
}

/// Returns the number under `key` in an object, such as `handle` in `{"handle":16}`.
pub(crate) fn inner(bytes: &[u8], value: &Value, key: &[u8]) -> Option<u64> {
    if value.json_type != JsonType::Object {
        return None;
    }
    let mut found = None;
    // The value was scanned completely before.
    let _ = members(bytes, value.span.start, &mut |own, value| {
        if own == key {
            found = whole(bytes, value);
        }
    });
    found
}
