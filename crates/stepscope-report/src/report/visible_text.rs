//! Text from untrusted files as visible text: nothing in it controls a terminal, hides, or becomes markup.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns whether a character can control a terminal, or hide or reverse text: controls, bidirectional
/// marks, characters without width, and tags, which repeat ASCII invisibly.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns whether the text is printable ASCII, as nearly all texts are: a fast test.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Escapes control characters: a line break becomes `\n`, an escape `\x1b`, a mark `\u{202e}`.
pub fn clean(text: &str) -> Cow<'_, str> {
    if is_plain(text) || !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if acts(letter) && u32::from(letter) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", u32::from(letter));
            }
            letter if acts(letter) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// Escapes the text and truncates it to `most` characters.
pub fn short(text: &str, most: usize) -> String {
    // Only the start is escaped: names can have ten million characters.
    let head: String = text.chars().take(most + 1).collect();
    let cleaned = clean(&head);
    if cleaned.chars().count() <= most {
        return cleaned.into_owned();
    }
    let mut cut: String = cleaned.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Escapes the text and shortens it in the middle to `most` characters: kernel names differ at
/// their ends.
pub fn short_within(text: &str, most: usize) -> String {
    let count = text.chars().take(most + 1).count();
    if count <= most || most < 8 {
        return short(text, most);
    }
    let tail = (most - 1) * 2 / 5;
    let head = short(text, most - tail);
    let end = text.char_indices().nth_back(tail.saturating_sub(1));
    let end = clean(end.map_or("", |(at, _)| &text[at..]));
    // Escaping may have made the end longer.
    let skip = end.chars().count().saturating_sub(tail);
    head.chars().chain(end.chars().skip(skip)).collect()
}

/// Escapes characters that control a terminal in JSON text. They occur only inside strings, where
/// `\u` has the same meaning.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    let acting = |letter: char| acts(letter) && letter != '\n';
    if json.lines().all(is_plain) || !json.contains(acting) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 8);
    for letter in json.chars() {
        if acting(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

/// Escapes a cell of a Markdown table.
pub fn markdown_cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in clean(text).chars() {
        if matches!(
            letter,
            '\\' | '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '&'
        ) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_act() {
        assert_eq!(clean("plain é 漢"), "plain é 漢");
        assert_eq!(
            clean("a\x1b[31mb\nc\u{9b}d\u{202e}e"),
            "a\\x1b[31mb\\nc\\x9bd\\u{202e}e"
        );
        assert_eq!(clean("tag \u{e0041}"), "tag \\u{e0041}");
        assert_eq!(
            clean_json("{\"a\":\"\u{9b}\u{7f}\u{e0041}\"}\n"),
            "{\"a\":\"\\u009b\\u007f\\udb40\\udc41\"}\n"
        );
        assert_eq!(markdown_cell("a|<b>"), "a\\|\\<b\\>");
        assert_eq!(short(&"x".repeat(10_000_000), 5), "xxxx…");
        assert_eq!(short_within("void kernel<float, 4>", 12), "void ke…, 4>");
        assert_eq!(short_within("abc\n", 12), "abc\\n");
        assert_eq!(
            short_within(&format!("{}\u{1b}", "é".repeat(20)), 10),
            "éééééé…x1b"
        );
    }
}
