//! Repair of JSON text that other parsers reject.
//!
//! kineto copies the names of Python functions from memory. With Python 3.11 some of these names
//! point to freed code objects, and the file is then neither UTF-8 nor JSON. Our reader accepts
//! such files; `json.load`, Perfetto and TensorBoard reject them.

use std::borrow::Cow;

/// Result of a repair.
#[derive(Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The whole text.
    pub text: Vec<u8>,
    /// Number of changed strings.
    pub strings: u64,
}

/// Makes the strings of a JSON text valid: replaces bytes that are not UTF-8 with U+FFFD, and
/// escapes control characters, unknown escapes and quotes inside a string. A quote counts as inside
/// a string if the text after it cannot follow a string.
///
/// Text between strings is unchanged. Returns `None` if every string is valid.
#[must_use]
pub fn repair(text: &[u8]) -> Option<Repaired> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut strings = 0;
    let mut at = 0;
    while let Some(quote) = find(text, at, b'"') {
        let start = quote + 1;
        let end = end_of_string(text, start);
        if let Cow::Owned(repaired) = repair_string(&text[start..end]) {
            out.extend_from_slice(&text[copied..start]);
            out.extend_from_slice(&repaired);
            copied = end;
            strings += 1;
        }
        at = end + 1;
    }
    (strings > 0).then(|| {
        out.extend_from_slice(&text[copied..]);
        Repaired { text: out, strings }
    })
}

fn find(text: &[u8], from: usize, wanted: u8) -> Option<usize> {
    let rest = text.get(from..)?;
    Some(from + memchr::memchr(wanted, rest)?)
}

/// Returns the index of the quote that ends the string starting at `start`, or the text's length.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(found) = text
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if text[at] == b'\\' {
            at += 2;
        } else if ends_a_string(&text[at + 1..]) {
            return at;
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns whether the text after a quote can follow a string.
fn ends_a_string(rest: &[u8]) -> bool {
    let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(next, None | Some(b',' | b':' | b']' | b'}'))
}

/// Returns the content of a string with invalid parts repaired.
fn repair_string(raw: &[u8]) -> Cow<'_, [u8]> {
    let suspect = |byte: &u8| *byte < b' ' || matches!(byte, b'\\' | b'"') || *byte >= 0x80;
    if !raw.iter().any(suspect) {
        return Cow::Borrowed(raw);
    }
    let text = String::from_utf8_lossy(raw);
    let mut out = Vec::with_capacity(text.len() + 8);
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => {
                let used = escape_length(&bytes[at..]);
                if used == 0 {
                    out.extend_from_slice(br"\\");
                    at += 1;
                } else {
                    out.extend_from_slice(&bytes[at..at + used]);
                    at += used;
                }
                continue;
            }
            b'"' => out.extend_from_slice(br#"\""#),
            control @ ..b' ' => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
            other => out.push(other),
        }
        at += 1;
    }
    if out == raw {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(out)
    }
}

/// Returns the length of the escape at the start of the text; 0 if JSON does not define it.
fn escape_length(text: &[u8]) -> usize {
    match text.get(1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
        Some(b'u') if text.len() >= 6 && text[2..6].iter().all(u8::is_ascii_hexdigit) => 6,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(text: &[u8]) -> (String, u64) {
        let repaired = repair(text).expect("a fault");
        (
            String::from_utf8(repaired.text).expect("UTF-8"),
            repaired.strings,
        )
    }

    #[test]
    fn valid_text_is_left_alone() {
        for text in [
            r#"{"a": "b\n\"c\" é \u00e9 \ud83d\ude00", "d": [1, "e"], "": ""}"#,
            "[]",
            "",
            "  {\n\t\"tabs between\" : 1\r\n}",
        ] {
            assert_eq!(repair(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn invalid_utf8_becomes_replacement_characters() {
        let (text, strings) =
            repaired(b"{\"name\": \"\xb0\xe8x(0): ok\", \"ts\": 1, \"n\": \"\x80\"}");
        assert_eq!(
            text,
            "{\"name\": \"\u{fffd}\u{fffd}x(0): ok\", \"ts\": 1, \"n\": \"\u{fffd}\"}"
        );
        assert_eq!(strings, 2);
    }

    #[test]
    fn control_characters_bad_escapes_and_stray_quotes_are_escaped() {
        let (text, strings) =
            repaired(b"[\"a\x01\n\", \"C:\\path\\u12\", \"say \"hi\" now\", \"fine\"]");
        assert_eq!(
            text,
            r#"["a\u0001\u000a", "C:\\path\\u12", "say \"hi\" now", "fine"]"#
        );
        assert_eq!(strings, 3);
    }

    #[test]
    fn text_that_ends_within_a_string_is_kept() {
        assert_eq!(repair(br#"{"a": "b"#), None);
        assert_eq!(repaired(b"{\"a\": \"b\xff\\").0, "{\"a\": \"b\u{fffd}\\\\");
    }
}
