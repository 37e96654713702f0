//! One entry of `traceEvents`: where each of its fields stands.

use super::scan::{self, ByteRange, JsonType, ScanError, Value, byte_at, skip_space};

/// The fields of one entry, not yet understood.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each says one thing about the entry's text"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// First byte, the opening brace.
    pub(super) at: usize,
    /// Byte after the closing brace.
    pub(super) end: usize,
    /// The phase; 0 when missing or not a one-letter string.
    pub(super) phase: u8,
    /// Whether there is a `ph` that is not a one-letter string.
    pub(super) odd_phase: bool,
    pub(super) name: Value,
    pub(super) category: Value,
    pub(super) pid: Value,
    pub(super) tid: Value,
    pub(super) ts: Value,
    pub(super) dur: Value,
    pub(super) args: Value,
    pub(super) id: Value,
    pub(super) id2: Value,
    pub(super) scope: Value,
    pub(super) bp: Value,
    pub(super) bind_id: Value,
    pub(super) flow_in: bool,
    pub(super) flow_out: bool,
    /// What our own writer adds.
    pub(super) own: Value,
    /// How many fields there are.
    pub(super) fields: u32,
    /// Whether there are fields that are shown as arguments.
    pub(super) extra: bool,
    /// Deepest nesting of any value.
    pub(super) depth: u32,
    /// Whether a nested value holds bytes above 127.
    pub(super) non_ascii: bool,
}

/// Name of the field that holds what Chrome JSON has no word for; not shown as an argument.
pub(super) const OWN: &[u8] = b"stepscope";

/// Whether a field is part of what an event *is*, and not one of its arguments.
pub(super) fn is_standard(key: &[u8]) -> bool {
    matches!(
        key,
        b"ph" | b"ts" | b"dur" | b"name" | b"cat" | b"pid" | b"tid" | b"args" | OWN
    )
}

/// Reads the entry whose brace opens at `at`.
pub(super) fn entry(bytes: &[u8], at: usize) -> Result<Entry, ScanError> {
    let mut found = Entry::default();
    read_entry(bytes, at, &mut found)?;
    Ok(found)
}

/// Reads the entry whose brace opens at `at` into `found`, whatever was in it.
pub(super) fn read_entry(bytes: &[u8], at: usize, found: &mut Entry) -> Result<(), ScanError> {
    *found = Entry {
        at,
        ..Entry::default()
    };
    let mut fields = Members::open(bytes, at)?;
    while let Some((key, value)) = fields.next()? {
        found.fields += 1;
        found.depth = found.depth.max(value.depth);
        found.non_ascii |= value.non_ascii;
        match key.of(bytes) {
            b"ph" => match (value.sort, value.span.of(bytes)) {
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
            OWN => found.own = value,
            other => found.take_rare(bytes, other, value),
        }
    }
    found.end = fields.at;
    // Our own writer keeps every argument in `args`.
    found.extra &= found.own.sort == JsonType::Missing;
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
            b"flow_in" => self.flow_in = value.span.of(bytes) == b"true",
            b"flow_out" => self.flow_out = value.span.of(bytes) == b"true",
            _ => {}
        }
    }
}

/// Walks the members of one object.
pub(super) struct Members<'a> {
    bytes: &'a [u8],
    /// The next byte to look at; after the last member, the byte behind the object.
    at: usize,
    closed: bool,
}

impl<'a> Members<'a> {
    /// The object that opens at `at`.
    #[allow(
        clippy::inline_always,
        reason = "measured: a call per field costs a fifth of the reading"
    )]
    #[inline(always)]
    pub(super) fn open(bytes: &'a [u8], at: usize) -> Result<Self, ScanError> {
        if byte_at(bytes, at)? != b'{' {
            return Err(ScanError::Damaged(at));
        }
        Ok(Self {
            bytes,
            at: skip_space(bytes, at + 1),
            closed: false,
        })
    }

    /// The next member: where its key stands, and its value.
    #[allow(
        clippy::inline_always,
        reason = "measured: a call per field costs a fifth of the reading"
    )]
    #[inline(always)]
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator would end at the first error; here the error is the result"
    )]
    pub(super) fn next(&mut self) -> Result<Option<(ByteRange, Value)>, ScanError> {
        if self.closed {
            return Ok(None);
        }
        let bytes = self.bytes;
        match byte_at(bytes, self.at)? {
            b'"' => {}
            b'}' => {
                self.at += 1;
                self.closed = true;
                return Ok(None);
            }
            _ => return Err(ScanError::Damaged(self.at)),
        }
        let (key, _) = scan::string(bytes, self.at + 1)?;
        let colon = skip_space(bytes, key.end + 1);
        if byte_at(bytes, colon)? != b':' {
            return Err(ScanError::Damaged(colon));
        }
        let (value, next) = scan::value(bytes, skip_space(bytes, colon + 1))?;
        let after = skip_space(bytes, next);
        match byte_at(bytes, after)? {
            b',' => self.at = skip_space(bytes, after + 1),
            b'}' => {
                self.at = after + 1;
                self.closed = true;
            }
            _ => return Err(ScanError::Damaged(after)),
        }
        Ok(Some((key, value)))
    }
}

/// Calls `visit` for each member of the object that opens at `at`; returns the byte after it.
pub(super) fn members<'a>(
    bytes: &'a [u8],
    at: usize,
    mut visit: impl FnMut(&'a [u8], Value),
) -> Result<usize, ScanError> {
    let mut members = Members::open(bytes, at)?;
    while let Some((key, value)) = members.next()? {
        visit(key.of(bytes), value);
    }
    Ok(members.at)
}

/// What follows an entry in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another element begins here.
    Element(usize),
    /// The list is closed; this is the byte after the bracket.
    Closed(usize),
}

/// Looks past the comma after an element that ended before `at`.
pub(super) fn next_element(bytes: &[u8], at: usize) -> Result<Next, ScanError> {
    let mut here = skip_space(bytes, at);
    match byte_at(bytes, here)? {
        b']' => Ok(Next::Closed(here + 1)),
        b',' => {
            // Several commas in a row are as good as one; so is one before the bracket.
            while bytes.get(here) == Some(&b',') {
                here = skip_space(bytes, here + 1);
            }
            match byte_at(bytes, here)? {
                b']' => Ok(Next::Closed(here + 1)),
                _ => Ok(Next::Element(here)),
            }
        }
        // JSON lines glued together: no comma, but plainly the next entry.
        b'{' => Ok(Next::Element(here)),
        _ => Err(ScanError::Damaged(here)),
    }
}

/// The next place at or after `from` where a whole entry begins: an object with a phase, with a
/// comma, a bracket or the end of the text behind it. `None` when there is none before `limit`.
///
/// Candidates are braces behind a comma or a bracket. Nested objects that are sound but no entries
/// are stepped over whole, so the search is linear unless the damage is nested itself; `budget`,
/// the bytes that may be looked at in vain, bounds that. It is zero afterwards when it ran out.
pub(super) fn find_entry(
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

/// A whole entry behind damaged text.
pub(super) struct Found {
    /// Its opening brace.
    pub(super) at: usize,
    /// Places on the way that begin like the damaged entry, and are no whole entries either.
    pub(super) broken: u64,
}

/// The first key of the object that opens at `at`.
fn first_key(bytes: &[u8], at: usize) -> Option<&[u8]> {
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    let quote = skip_space(bytes, at + 1);
    if bytes.get(quote) != Some(&b'"') {
        return None;
    }
    let (key, _) = scan::string(bytes, quote + 1).ok()?;
    (key.len() <= 64).then(|| key.of(bytes))
}

fn follows_separator(bytes: &[u8], at: usize) -> bool {
    let before = bytes.get(..at).unwrap_or_default();
    before
        .iter()
        .rev()
        .find(|byte| !scan::is_space(**byte))
        .is_some_and(|byte| matches!(byte, b',' | b'[' | b'}'))
}

/// The text of a value as a track key wants it: strings unescaped, numbers as they stand.
pub(super) fn key_text<'a>(bytes: &'a [u8], value: &Value) -> Option<super::text::Text<'a>> {
    let raw = value.raw(bytes)?;
    let escaped = value.sort == JsonType::Str { escaped: true };
    Some(super::text::unescape(raw, escaped))
}

/// Where a value stands, for comparing two of them by their bytes.
pub(super) fn same_bytes(bytes: &[u8], a: ByteRange, b: ByteRange) -> bool {
    a.of(bytes) == b.of(bytes)
}
