//! Writer of strict JSON text, which every parser accepts.

use stepscope_model::ArgValue;

/// Appends `text` in quotes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut plain = 0;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..0x20 | 0x7f => b"",
            _ => continue,
        };
        out.extend_from_slice(bytes.get(plain..at).unwrap_or_default());
        plain = at + 1;
        if escape.is_empty() {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            out.extend_from_slice(escape);
        }
    }
    out.extend_from_slice(bytes.get(plain..).unwrap_or_default());
    out.push(b'"');
}

/// Appends a whole number.
pub(crate) fn whole(out: &mut Vec<u8>, number: i128) {
    let mut digits = [0_u8; 40];
    let mut first = digits.len();
    let mut left = number.unsigned_abs();
    loop {
        let digit = u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        first -= 1;
        if let Some(place) = digits.get_mut(first) {
            *place = b'0' + digit;
        }
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Appends picoseconds as microseconds, with up to six decimals and no trailing zeros.
pub(crate) fn microseconds(out: &mut Vec<u8>, ps: i128) {
    let magnitude = ps.unsigned_abs();
    if ps < 0 {
        out.push(b'-');
    }
    let (us, mut rest) = (magnitude / 1_000_000, magnitude % 1_000_000);
    match u64::try_from(us) {
        Ok(us) => small(out, us),
        Err(_too_large) => whole(out, i128::try_from(us).unwrap_or(i128::MAX)),
    }
    if rest == 0 {
        return;
    }
    out.push(b'.');
    let mut unit = 100_000;
    while rest != 0 {
        out.push(b'0' + u8::try_from(rest / unit).unwrap_or_default());
        rest %= unit;
        unit /= 10;
    }
}

fn small(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut length = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        length += 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - length..).unwrap_or_default());
}

/// Appends a finite number so that a parser reads the same float, and reads it as a float.
pub(crate) fn float(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(format!("{number:?}").as_bytes());
}

/// Longest chunk of text that is looked at for being strict JSON.
const MAX_NESTED_DEPTH: usize = 512;

/// Replacement form of a value that JSON cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disguise {
    /// No replacement.
    None,
    /// Bytes: hexadecimal digits in a string.
    Bytes,
    /// NaN or an infinity: its name in a string.
    Float,
    /// A nested value that is not strict JSON: a string.
    Json,
}

impl Disguise {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bytes => "bytes",
            Self::Float => "float",
            Self::Json => "json",
        }
    }
}

/// Appends a value.
pub(crate) fn value(out: &mut Vec<u8>, value: ArgValue<'_>) -> Disguise {
    match value {
        ArgValue::Int(number) => whole(out, number.into()),
        ArgValue::Uint(number) => whole(out, number.into()),
        ArgValue::Double(number) if number.is_finite() => float(out, number),
        ArgValue::Double(number) => {
            let word = match (number.is_nan(), number > 0.0) {
                (true, _) => "NaN",
                (_, true) => "Infinity",
                _ => "-Infinity",
            };
            string(out, word);
            return Disguise::Float;
        }
        ArgValue::Bool(true) => out.extend_from_slice(b"true"),
        ArgValue::Bool(false) => out.extend_from_slice(b"false"),
        ArgValue::Str(text) => string(out, text),
        ArgValue::Json(text) if is_strict_json(text.as_bytes()) => {
            out.extend_from_slice(text.as_bytes());
        }
        ArgValue::Json(text) => {
            string(out, text);
            return Disguise::Json;
        }
        ArgValue::Bytes(bytes) => {
            out.push(b'"');
            for byte in bytes {
                out.extend_from_slice(format!("{byte:02x}").as_bytes());
            }
            out.push(b'"');
            return Disguise::Bytes;
        }
    }
    Disguise::None
}

/// Returns whether a text is one JSON value, strictly by RFC 8259, nested at most 512 deep.
pub(crate) fn is_strict_json(text: &[u8]) -> bool {
    strict(text) == Some(text.len())
}

/// State of the checker: which token can come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    CommaOrEnd,
}

fn strict(text: &[u8]) -> Option<usize> {
    let space = |mut at: usize| {
        while text
            .get(at)
            .is_some_and(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t'))
        {
            at += 1;
        }
        at
    };
    let mut open: Vec<u8> = Vec::new();
    let mut expect = Expect::Value;
    let mut at = space(0);
    loop {
        let byte = *text.get(at)?;
        let is_end = open.last() == Some(&byte);
        match expect {
            Expect::ValueOrEnd | Expect::KeyOrEnd | Expect::CommaOrEnd if is_end => {
                open.pop();
                at += 1;
                expect = Expect::CommaOrEnd;
            }
            Expect::CommaOrEnd if byte == b',' => {
                at += 1;
                expect = if open.last() == Some(&b'}') {
                    Expect::Key
                } else {
                    Expect::Value
                };
                at = space(at);
                continue;
            }
            Expect::Key | Expect::KeyOrEnd => {
                at = space(strict_string(text, at)?);
                if text.get(at) != Some(&b':') {
                    return None;
                }
                at = space(at + 1);
                expect = Expect::Value;
                continue;
            }
            Expect::Value | Expect::ValueOrEnd => match byte {
                b'{' | b'[' => {
                    if open.len() >= MAX_NESTED_DEPTH {
                        return None;
                    }
                    let is_object = byte == b'{';
                    open.push(if is_object { b'}' } else { b']' });
                    expect = if is_object {
                        Expect::KeyOrEnd
                    } else {
                        Expect::ValueOrEnd
                    };
                    at = space(at + 1);
                    continue;
                }
                b'"' => {
                    at = strict_string(text, at)?;
                    expect = Expect::CommaOrEnd;
                }
                _ => {
                    at = strict_scalar(text, at)?;
                    expect = Expect::CommaOrEnd;
                }
            },
            Expect::CommaOrEnd => return None,
        }
        at = space(at);
        if open.is_empty() {
            return Some(at);
        }
    }
}

fn strict_string(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        match *text.get(at)? {
            b'"' => return Some(at + 1),
            0..0x20 => return None,
            b'\\' => match *text.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' => {
                    let digits = text.get(at + 2..at + 6)?;
                    let code = std::str::from_utf8(digits).ok()?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    // Strict parsers reject lone surrogates and accept pairs.
                    let code = u32::from_str_radix(code, 16).ok()?;
                    at += 6;
                    if (0xdc00..0xe000).contains(&code) {
                        return None;
                    }
                    if (0xd800..0xdc00).contains(&code) {
                        let low = text.get(at..at + 6)?;
                        let low = std::str::from_utf8(low.strip_prefix(b"\\u")?).ok()?;
                        let low = u32::from_str_radix(low, 16).ok()?;
                        if !(0xdc00..0xe000).contains(&low) {
                            return None;
                        }
                        at += 6;
                    }
                }
                _ => return None,
            },
            _ => at += 1,
        }
    }
}

fn strict_scalar(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    for word in [&b"true"[..], b"false", b"null"] {
        if rest.starts_with(word) {
            return Some(at + word.len());
        }
    }
    let digits = |mut at: usize| {
        let first = at;
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at > first).then_some(at)
    };
    let mut at = at + usize::from(rest.first() == Some(&b'-'));
    at = if text.get(at) == Some(&b'0') {
        at + 1
    } else {
        digits(at)?
    };
    if text.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        at += usize::from(matches!(text.get(at), Some(b'+' | b'-')));
        at = digits(at)?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(print: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        print(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn microseconds_keep_every_picosecond() {
        let cases = [
            (0, "0"),
            (1, "0.000001"),
            (-1, "-0.000001"),
            (1_500_000, "1.5"),
            (1_694_128_201_435_418_000_001, "1694128201435418.000001"),
            (-2_000_000, "-2"),
        ];
        for (ps, text) in cases {
            assert_eq!(printed(|out| microseconds(out, ps)), text);
        }
    }

    proptest! {
        #[test]
        fn times_come_back(ps in any::<i64>(), origin in -4_000_000_000_000_000_000_i64..4_000_000_000_000_000_000) {
            let all = i128::from(ps) + i128::from(origin) * 1_000;
            let text = printed(|out| microseconds(out, all));
            prop_assert_eq!(super::super::number::ps_from_us_text(text.as_bytes()), Ok(all));
        }

        #[test]
        fn strings_are_strict(text in any::<String>()) {
            let made = printed(|out| string(out, &text));
            prop_assert!(is_strict_json(made.as_bytes()));
            prop_assert_eq!(serde_json::from_str::<String>(&made).unwrap(), text);
        }

        #[test]
        fn strictness_is_that_of_a_strict_parser(text in r#"[\[\]{}:, 0-9.eE+\-"a-c\\utrlsfn]{0,14}"#) {
            prop_assert_eq!(
                is_strict_json(text.as_bytes()),
                serde_json::from_str::<Box<serde_json::value::Value>>(&text).is_ok() || overflows(&text),
                "{}", text
            );
        }
    }

    /// Numbers that a strict parser refuses for their size, not for their form.
    fn overflows(text: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(text)
            .is_err_and(|error| error.to_string().contains("out of range"))
            && is_strict_json(text.as_bytes())
    }

    #[test]
    fn lenient_json_is_recognized() {
        for text in [
            "",
            "[",
            "NaN",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "1.",
            "\"\n\"",
            "[1] x",
        ] {
            assert!(!is_strict_json(text.as_bytes()), "{text}");
        }
        for text in [
            " [1, {\"a\": [] , \"b\": {}}] ",
            "-0.5e+3",
            "\"\\ud83d\\ude00\"",
        ] {
            assert!(is_strict_json(text.as_bytes()), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert!(!is_strict_json(deep.as_bytes()));
    }
}
