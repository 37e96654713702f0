//! Decoded text of JSON strings: escapes resolved, bytes that are not UTF-8 replaced.

use std::borrow::Cow;

/// A string's text, and whether any part of it was replaced or guessed.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) repaired: bool,
}

/// Decodes the content of a string.
pub(crate) fn unescape(raw: &[u8], escaped: bool) -> Text<'_> {
    if !escaped {
        return plain(Cow::Borrowed(raw));
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut repaired = false;
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        if *byte != b'\\' {
            out.push(*byte);
            at += 1;
            continue;
        }
        let code = raw.get(at + 1).copied();
        let simple = match code {
            Some(code @ (b'"' | b'\\' | b'/')) => Some(code),
            Some(b'b') => Some(8),
            Some(b'f') => Some(12),
            Some(b'n') => Some(b'\n'),
            Some(b'r') => Some(b'\r'),
            Some(b't') => Some(b'\t'),
            _ => None,
        };
        if let Some(simple) = simple {
            out.push(simple);
            at += 2;
        } else if let Some((found, used)) = (code == Some(b'u')).then(|| unicode(raw, at)).flatten()
        {
            repaired |= found == char::REPLACEMENT_CHARACTER && used == 6 && is_surrogate(raw, at);
            let mut buffer = [0; 4];
            out.extend_from_slice(found.encode_utf8(&mut buffer).as_bytes());
            at += used;
        } else {
            // JSON does not define this escape (a Windows path, for example): it stays unchanged.
            repaired = true;
            out.push(b'\\');
            at += 1;
        }
    }
    let text = plain(Cow::Owned(out));
    Text {
        repaired: repaired || text.repaired,
        ..text
    }
}

/// Converts bytes to text and replaces invalid UTF-8. Valid text, the common case, takes a third of
/// the time of `String::from_utf8_lossy`.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

fn plain(bytes: Cow<'_, [u8]>) -> Text<'_> {
    let text = match bytes {
        Cow::Borrowed(bytes) => lossy(bytes),
        Cow::Owned(bytes) => match String::from_utf8(bytes) {
            Ok(text) => {
                return Text {
                    text: Cow::Owned(text),
                    repaired: false,
                };
            }
            Err(error) => {
                return Text {
                    text: Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
                    repaired: true,
                };
            }
        },
    };
    let repaired = matches!(text, Cow::Owned(_));
    Text { text, repaired }
}

fn hex4(raw: &[u8], at: usize) -> Option<u32> {
    let digits = raw.get(at + 2..at + 6)?;
    digits.iter().try_fold(0, |code, digit| {
        Some(code * 16 + char::from(*digit).to_digit(16)?)
    })
}

fn is_surrogate(raw: &[u8], at: usize) -> bool {
    hex4(raw, at).is_some_and(|code| (0xd800..0xe000).contains(&code))
}

/// Decodes the `\u` escape at `at`. Returns the character and the escape's length in bytes: 12 for
/// a surrogate pair. A lone surrogate becomes U+FFFD.
fn unicode(raw: &[u8], at: usize) -> Option<(char, usize)> {
    let high = hex4(raw, at)?;
    if (0xd800..0xdc00).contains(&high)
        && raw.get(at + 6..at + 8) == Some(b"\\u")
        && let Some(low) = hex4(raw, at + 6)
        && (0xdc00..0xe000).contains(&low)
    {
        let code = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return Some((char::from_u32(code)?, 12));
    }
    let found = char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some((found, 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, text: &str, repaired: bool) {
        let found = unescape(raw.as_bytes(), true);
        assert_eq!((&*found.text, found.repaired), (text, repaired), "{raw}");
    }

    #[test]
    fn escapes_are_undone() {
        check(
            r#"a\"b\\c\/d\n\t\r\b\f"#,
            "a\"b\\c/d\n\t\r\u{8}\u{c}",
            false,
        );
        check(r"\u00e9\ud83d\ude00\ufffd", "é😀\u{fffd}", false);
    }

    #[test]
    fn invalid_escapes_are_kept_and_counted() {
        check(r"C:\users\Zoe", r"C:\users\Zoe", true);
        check(r"\ud83d", "\u{fffd}", true);
        check(r"\ud83dx\ude00", "\u{fffd}x\u{fffd}", true);
        check(r"tail\u12", r"tail\u12", true);
        check("tail\\", "tail\\", true);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let found = unescape(b"a\xffb", false);
        assert_eq!((&*found.text, found.repaired), ("a\u{fffd}b", true));
        let found = unescape(b"\\n\xff", true);
        assert_eq!((&*found.text, found.repaired), ("\n\u{fffd}", true));
    }
}
