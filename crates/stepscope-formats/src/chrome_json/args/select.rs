//! Selected arguments of many events: one pass over the members of `args` that decodes only the
//! selected ones.
//!
//! [`find`] handles the entries that profilers write: `ph` is first, `args` is the first field
//! whose value is an object, no name in it has an escape, and no `stepscope` field follows it. For
//! other entries it returns `false`, and the caller reads the whole entry. The text between `ph`
//! and `args` is skipped: in JSON, `"args"` followed by a colon and without a backslash is always a
//! name, never part of a string.

use stepscope_model::ArgKeys;

use crate::chrome_json::dialect::stepscope::EXTENSION_FIELD;
use crate::json::scan::{self, ByteRange, JsonType, ScanError, Value, byte_at, skip_space};

/// Number of selected arguments of an entry that are held inline.
const FEW: usize = 4;

/// Maximum number of selected arguments of an entry; an entry with more is read completely.
const MORE: usize = 8;

/// Position of a selected argument, relative to the start of the entry.
#[derive(Clone, Copy)]
struct ValueRange {
    start: u32,
    end: u32,
    /// Index of the argument's name in the list of selected names.
    key: u8,
    json_type: JsonType,
}

const NO_VALUE: ValueRange = ValueRange {
    start: 0,
    end: 0,
    key: 0,
    json_type: JsonType::Missing,
};

/// Positions of the selected arguments of one entry, in its order.
pub(crate) struct SelectedArgs {
    few: [ValueRange; FEW],
    /// Initialized on demand: initialization takes as long as finding an argument.
    more: Option<[ValueRange; MORE]>,
    count: usize,
    at: usize,
    /// Phase, as in [`Entry::phase`](crate::chrome_json::entry::Entry::phase).
    pub(crate) phase: u8,
}

impl SelectedArgs {
    /// Creates an empty selection.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            few: [NO_VALUE; FEW],
            more: None,
            count: 0,
            at: 0,
            phase: 0,
        }
    }

    /// Adds an argument; returns `false` if there is no room for it.
    #[inline]
    fn put(&mut self, key: usize, value: Value) -> bool {
        let from_begin = |place: usize| u32::try_from(place - self.at);
        let (Ok(start), Ok(end), Ok(key)) = (
            from_begin(value.span.start),
            from_begin(value.span.end),
            u8::try_from(key),
        ) else {
            return false;
        };
        let place = match self.count.checked_sub(FEW) {
            None => self.few.get_mut(self.count),
            Some(at) => self.more.get_or_insert([NO_VALUE; MORE]).get_mut(at),
        };
        let Some(place) = place else {
            return false;
        };
        *place = ValueRange {
            start,
            end,
            key,
            json_type: value.json_type,
        };
        self.count += 1;
        true
    }

    /// Returns the arguments, each with the index of its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Value)> {
        let more = self.more.iter().flatten();
        self.few.iter().chain(more).take(self.count).map(|place| {
            let span = ByteRange {
                start: self.at + place.start as usize,
                end: self.at + place.end as usize,
            };
            let value = Value {
                json_type: place.json_type,
                span,
                ..Value::default()
            };
            (usize::from(place.key), value)
        })
    }
}

/// Iterates over the members of an object from `here`, the position after its brace or a comma.
/// `each` gets a key, whether the key has escapes, and the position of its value. It returns the
/// offset after the value, or `None` to stop. Returns the offset after the object.
#[allow(
    clippy::inline_always,
    reason = "as for `Members`: twice for each event"
)]
#[inline(always)]
fn walk(
    bytes: &[u8],
    mut here: usize,
    mut each: impl FnMut(ByteRange, bool, usize) -> Result<Option<usize>, ScanError>,
) -> Result<Option<usize>, ScanError> {
    loop {
        here = skip_space(bytes, here);
        match byte_at(bytes, here)? {
            b'"' => {}
            b'}' => return Ok(Some(here + 1)),
            _ => return Err(ScanError::Damaged(here)),
        }
        let (key, escaped) = scan::string(bytes, here + 1)?;
        let colon = skip_space(bytes, key.end + 1);
        if byte_at(bytes, colon)? != b':' {
            return Err(ScanError::Damaged(colon));
        }
        let Some(next) = each(key, escaped, skip_space(bytes, colon + 1))? else {
            return Ok(None);
        };
        let after = skip_space(bytes, next);
        match byte_at(bytes, after)? {
            b',' => here = after + 1,
            b'}' => return Ok(Some(after + 1)),
            _ => return Err(ScanError::Damaged(after)),
        }
    }
}

/// Returns the phase of an entry whose first field is `ph`, and the offset after it.
fn phase(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = bytes.get(skip_space(bytes, at + 1)..)?;
    let rest = rest.strip_prefix(b"\"ph\"")?;
    let colon = skip_space(rest, 0);
    let value = skip_space(rest, colon + 1);
    match (rest.get(colon)?, rest.get(value..value + 3)?) {
        (b':', [b'"', phase @ (b'A'..=b'Z' | b'a'..=b'z'), b'"']) => {
            let after = bytes.len() - rest.len() + value + 3;
            Some((*phase, after))
        }
        _ => None,
    }
}

/// Returns the brace of `args`, if `args` is the first object after `from`. Skips braces inside
/// strings, such as names of C++ functions, if no escape precedes them.
fn args_brace(bytes: &[u8], from: usize) -> Option<usize> {
    let mut passed = from;
    let mut in_text = false;
    loop {
        let brace = passed + memchr::memchr(b'{', bytes.get(passed..)?)?;
        if is_of_args(bytes, from, brace) {
            return is_open(bytes.get(from..brace)?).then_some(brace);
        }
        // The loop only adds bytes, so that the compiler can vectorize it.
        let (mut odd_quotes, mut escapes) = (0_u8, 0_u8);
        for byte in bytes.get(passed..brace)? {
            odd_quotes ^= u8::from(*byte == b'"');
            escapes |= u8::from(*byte == b'\\');
        }
        in_text ^= odd_quotes == 1;
        if escapes != 0 || !in_text {
            return None;
        }
        passed = brace + 1;
    }
}

/// Returns whether no object ends in this part of an entry, which starts outside strings. An `args`
/// after the end of an entry can belong to another entry.
fn is_open(part: &[u8]) -> bool {
    if memchr::memchr(b'}', part).is_none() {
        return true;
    }
    let mut in_text = false;
    let mut bytes = part.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => in_text = !in_text,
            b'}' if !in_text => return false,
            _ => {}
        }
    }
    !in_text
}

/// Returns whether `"args":` precedes a brace.
fn is_of_args(bytes: &[u8], from: usize, brace: usize) -> bool {
    let before = |mut at: usize| {
        while at > from && scan::is_space(bytes[at - 1]) {
            at -= 1;
        }
        at
    };
    let name = || {
        let colon = before(brace).checked_sub(1).filter(|at| *at > from)?;
        let name = before(colon).checked_sub(6).filter(|at| *at > from)?;
        (bytes.get(colon) == Some(&b':')).then_some(name)
    };
    name().is_some_and(|name| {
        bytes.get(name..name + 6) == Some(b"\"args\"") && bytes.get(name - 1) != Some(&b'\\')
    })
}

/// Finds the selected arguments of the entry at `at`. Returns whether the result is complete; if
/// not, the caller must read the whole entry.
pub(crate) fn find(
    bytes: &[u8],
    at: usize,
    keys: ArgKeys,
    wanted: &mut SelectedArgs,
) -> Result<bool, ScanError> {
    if byte_at(bytes, at)? != b'{' {
        return Ok(false);
    }
    let Some((phase, after)) = phase(bytes, at) else {
        return Ok(false);
    };
    wanted.phase = phase;
    wanted.at = at;
    let Some(brace) = args_brace(bytes, after) else {
        return Ok(false);
    };
    let args = walk(bytes, brace + 1, |key, escaped, value_at| {
        let (value, next) = scan::value(bytes, value_at)?;
        let fits = !escaped
            && keys
                .position(key.slice(bytes))
                .is_none_or(|key| wanted.put(key, value));
        Ok(fits.then_some(next))
    })?;
    let Some(end) = args else {
        return Ok(false);
    };
    let end = skip_space(bytes, end);
    if bytes.get(end) == Some(&b'}') {
        return Ok(true);
    }
    if byte_at(bytes, end)? != b',' {
        return Ok(false);
    }
    let whole = walk(bytes, end + 1, |key, escaped, value_at| {
        let name = key.slice(bytes);
        if escaped || name == b"args" || name == b"ph" || name == EXTENSION_FIELD {
            return Ok(None);
        }
        let (_, next) = scan::value(bytes, value_at)?;
        Ok(Some(next))
    })?;
    Ok(whole.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chrome_json::args::{visit_event, visit_some_of_event};

    const KEYS: ArgKeys = ArgKeys::new(&["External id", "Input Dims", "a"]);

    type Seen = (Option<u8>, Vec<(String, String)>);

    fn whole(text: &str) -> Seen {
        let mut seen = Vec::new();
        let phase = visit_event(text.as_bytes(), 0, &mut |key, value| {
            if KEYS.find(key.as_bytes()).is_some() {
                seen.push((key.to_owned(), format!("{value:?}")));
            }
        });
        (phase.ok(), seen)
    }

    fn some(text: &str) -> Seen {
        let mut seen = Vec::new();
        let phase = visit_some_of_event(text.as_bytes(), 0, KEYS, &mut |key, value| {
            seen.push((key.to_owned(), format!("{value:?}")));
        });
        (phase.ok(), seen)
    }

    #[test]
    fn a_few_arguments_are_those_of_the_whole_entry() {
        let many = format!(
            "{{\"ph\":\"X\",\"args\":{{{}}}}}",
            vec!["\"a\":1"; 40].join(",")
        );
        let texts = [
            (
                true,
                r#"{"ph":"X","cat":"c","args":{"External id": 7, "x": {"a": 1}, "Input Dims": [[2, 3], []]},"ts":1}"#,
            ),
            (
                true,
                "{ \"ph\" : \"X\",\n \"name\": \"a\\\"args\\\":b\", \"args\" :\n { \"a\": 1 } }",
            ),
            (
                false,
                r#"{"ph":"X","name":"a\"args\":{\"a\":1}","args":{"a":1}}"#,
            ),
            (true, r#"{"ph":"X","name":"{","args":{"a":1}}"#),
            (
                true,
                r#"{"ph":"X","name":"f<{lambda()#1}>::{x}","args":{"a":1}}"#,
            ),
            (false, r#"{"ph":"X","x":{"args":{"a":1}},"args":{"a":2}}"#),
            (
                false,
                r#"{"ph":"X","name":"\"{","x":{"args":{"a":1}},"args":{"a":2}}"#,
            ),
            (
                false,
                r#"{"ph":"B","args":{"a":"x\n","\u0061":2,"a":null,"a":true,"a":-1.5}}"#,
            ),
            (false, r#"{"ph":"X","args":{"a":1},"args":{"a":2}}"#),
            (false, r#"{"ph":"X","args":null}"#),
            (false, r#"{"ph":"X","args":[1],"b":3}"#),
            (false, r#"{"ph":"XY","args":{}}"#),
            (
                false,
                r#"{"ph":"X","args":{"a":"NaN"},"stepscope":{"types":{"a":"float"}}}"#,
            ),
            (false, r#"{"\u0070h":"X","args":{"a":1}}"#),
            // Of the file, not of the entry.
            (false, r#"{"ph":"X","cat":"c"}],"args":{"a":1}}"#),
            (false, r#"{"ph":"X","cat":"}"}],"args":{"a":1}}"#),
            (true, r#"{"ph":"X","cat":"}","args":{"a":{"b":1}}}"#),
            (false, "{ }"),
            (false, many.as_str()),
        ];
        for (direct, text) in texts {
            assert_eq!(some(text), whole(text), "{text}");
            let found = find(text.as_bytes(), 0, KEYS, &mut SelectedArgs::new());
            assert_eq!(found == Ok(true), direct, "{text}");
            // Cut anywhere: the same answer, whatever it is.
            for cut in 0..text.len() {
                let cut = text.get(..cut).unwrap_or_default();
                assert_eq!(some(cut), whole(cut), "{cut}");
            }
        }
    }
}
