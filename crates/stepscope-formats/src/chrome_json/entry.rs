//! One entry of `traceEvents`: the byte range of each of its fields.

use super::dialect::stepscope::EXTENSION_FIELD;
use crate::json::members::Members;
use crate::json::scan::{self, ByteRange, JsonType, ScanError, Value, byte_at, skip_space};
use crate::json::value::key_text;

/// The fields of one entry, not yet decoded.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says one thing about the entry's text"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// Offset of the opening brace.
    pub(crate) at: usize,
    /// Offset after the closing brace.
    pub(crate) end: usize,
    /// The phase; 0 when missing or not a one-letter string.
    pub(crate) phase: u8,
    /// Whether there is a `ph` that is not a one-letter string.
    pub(crate) odd_phase: bool,
    pub(crate) name: Value,
    pub(crate) category: Value,
    pub(crate) pid: Value,
    pub(crate) tid: Value,
    pub(crate) ts: Value,
    pub(crate) dur: Value,
    pub(crate) args: Value,
    pub(crate) id: Value,
    pub(crate) id2: Value,
    pub(crate) scope: Value,
    pub(crate) bp: Value,
    pub(crate) bind_id: Value,
    pub(crate) flow_in: bool,
    pub(crate) flow_out: bool,
    /// The extensions that our writer adds.
    pub(crate) extension: Value,
    /// Number of fields.
    pub(crate) fields: u32,
    /// Whether there are fields that are shown as arguments.
    pub(crate) extra: bool,
    /// Deepest nesting of any value.
    pub(crate) depth: u32,
    /// Whether a nested value holds bytes above 127.
    pub(crate) non_ascii: bool,
}

/// Returns whether a field is a standard field of an event, as opposed to an argument.
pub(crate) fn is_standard(key: &[u8]) -> bool {
    matches!(
        key,
        b"ph" | b"ts" | b"dur" | b"name" | b"cat" | b"pid" | b"tid" | b"args" | EXTENSION_FIELD
    )
}

/// Reads the entry whose brace opens at `at`.
pub(crate) fn entry(bytes: &[u8], at: usize) -> Result<Entry, ScanError> {
    let mut found = Entry::default();
    read_entry(bytes, at, &mut found)?;
    Ok(found)
}

/// Reads the entry whose brace opens at `at` into `found`; overwrites its content.
pub(crate) fn read_entry(bytes: &[u8], at: usize, found: &mut Entry) -> Result<(), ScanError> {
    *found = Entry {
        at,
        ..Entry::default()
    };
    let mut fields = Members::open(bytes, at)?;
    while let Some((key, value)) = fields.next()? {
        found.fields += 1;
        found.depth = found.depth.max(value.depth);
        found.non_ascii |= value.non_ascii;
        match key.slice(bytes) {
            b"ph" => match (value.json_type, value.span.slice(bytes)) {
                (JsonType::Str { .. }, [phase]) => found.phase = *phase,
                _ => found.odd_phase = true,
            },
            b"name" => found.name = value,
            b"cat" => found.category = value,
            b"pid" => found.pid = value,
            b"tid" => found.tid = value,
            b"ts" => found.ts = value,
            b"dur" => found.dur = value,
            b"args" => found.args = value,
            EXTENSION_FIELD => found.extension = value,
            other => found.take_rare(bytes, other, value),
        }
    }
    found.end = fields.end();
    // Our own writer keeps every argument in `args`.
    found.extra &= found.extension.json_type == JsonType::Missing;
    Ok(())
}

impl Entry {
    #[inline(never)]
    fn take_rare(&mut self, bytes: &[u8], key: &[u8], value: Value) {
        self.extra = true;
        match key {
            b"id" => self.id = value,
            b"id2" => self.id2 = value,
            b"scope" => self.scope = value,
            b"bp" => self.bp = value,
            b"bind_id" => self.bind_id = value,
            b"flow_in" => self.flow_in = value.span.slice(bytes) == b"true",
            b"flow_out" => self.flow_out = value.span.slice(bytes) == b"true",
            _ => {}
        }
    }
}

/// The token after an entry in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another element starts at this offset.
    Element(usize),
    /// The list is closed; this is the offset after the bracket.
    Closed(usize),
}

/// Skips the comma after an element that ended before `at`.
pub(crate) fn next_element(bytes: &[u8], at: usize) -> Result<Next, ScanError> {
    let mut here = skip_space(bytes, at);
    match byte_at(bytes, here)? {
        b']' => Ok(Next::Closed(here + 1)),
        b',' => {
            // Several commas in a row count as one; a comma before the bracket is accepted.
            while bytes.get(here) == Some(&b',') {
                here = skip_space(bytes, here + 1);
            }
            match byte_at(bytes, here)? {
                b']' => Ok(Next::Closed(here + 1)),
                _ => Ok(Next::Element(here)),
            }
        }
        // Concatenated JSON lines: the next entry follows without a comma.
        b'{' => Ok(Next::Element(here)),
        _ => Err(ScanError::Damaged(here)),
    }
}

/// Finds the next complete entry at or after `from`: an object with a phase, followed by a comma, a
/// bracket or the end of the text. Returns `None` if there is none before `limit`.
///
/// Candidates are braces after a comma or a bracket. Valid nested objects that are not entries are
/// skipped completely, so the search is linear unless the damage itself is nested. `budget`, the
/// number of bytes that failed candidates can cost, bounds that case; it is zero after it ran out.
pub(crate) fn find_entry(
    bytes: &[u8],
    from: usize,
    limit: usize,
    budget: &mut usize,
) -> Option<Found> {
    let mut here = from;
    let mut broken: u64 = 0;
    let alike = first_key(bytes, from.saturating_sub(1));
    while here < limit {
        let within = bytes.get(here..limit)?;
        here += memchr::memchr(b'{', within)?;
        if !follows_separator(bytes, here) {
            here += 1;
            continue;
        }
        let (looked_at, next) = match entry(bytes, here) {
            Ok(found) => {
                let sound = matches!(next_element(bytes, found.end), Ok(_) | Err(ScanError::End));
                if sound && found.phase != 0 {
                    return Some(Found { at: here, broken });
                }
                let next = if sound { found.end } else { here + 1 };
                (found.end - here, next)
            }
            Err(ScanError::Damaged(at)) => (at.saturating_sub(here), here + 1),
            Err(ScanError::End) => (bytes.len() - here, here + 1),
        };
        broken += u64::from(alike.is_some() && next == here + 1 && first_key(bytes, here) == alike);
        *budget = budget.saturating_sub(looked_at);
        if *budget == 0 {
            return None;
        }
        here = next;
    }
    None
}

/// A complete entry after damaged text.
pub(crate) struct Found {
    /// Offset of its opening brace.
    pub(crate) at: usize,
    /// Number of skipped positions that start like the damaged entry and are also incomplete.
    pub(crate) broken: u64,
}

/// Returns the first key of the object that opens at `at`.
fn first_key(bytes: &[u8], at: usize) -> Option<&[u8]> {
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    let quote = skip_space(bytes, at + 1);
    if bytes.get(quote) != Some(&b'"') {
        return None;
    }
    let (key, _) = scan::string(bytes, quote + 1).ok()?;
    (key.len() <= 64).then(|| key.slice(bytes))
}

fn follows_separator(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    before
        .iter()
        .rev()
        .find(|byte| !scan::is_space(**byte))
        .is_some_and(|byte| matches!(byte, b',' | b'[' | b'}'))
}

/// Returns whether two ranges contain the same bytes.
pub(crate) fn same_bytes(bytes: &[u8], a: ByteRange, b: ByteRange) -> bool {
    a.slice(bytes) == b.slice(bytes)
}

/// Returns the text of a `pid` or `tid`: numbers unchanged, strings decoded, `None` if the field is
/// missing or its value cannot be an id.
pub(crate) fn process_text<'a>(
    bytes: &'a [u8],
    value: &Value,
) -> Option<std::borrow::Cow<'a, str>> {
    if value.is_null(bytes) {
        return Some("None".into());
    }
    key_text(bytes, value).map(|text| text.text)
}
