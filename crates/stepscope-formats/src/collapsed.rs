//! Collapsed stacks: the text that `FlameGraph`'s `stackcollapse-*` scripts, `inferno-collapse-*`,
//! `py-spy record --format raw` and async-profiler write. See `docs/formats/collapsed-stacks.md`.
//!
//! Each line is a stack, outermost function first, and a number: `main;load;read 12`.

use stepscope_model::{Diagnostic, EventSink, ReadContext, SharedBytes};

use crate::FormatError;
use crate::sampling::SampleTable;

/// Number of lines between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if no line is a stack with a number, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    let mut table = SampleTable::new(&[("samples", "count")], file.len());
    let mut stack = Vec::new();
    let (mut unreadable, mut first_unreadable, mut bad_texts) = (0, None, 0);
    for (number, line) in file.split(|byte| *byte == b'\n').enumerate() {
        if number % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        let line = without_mark(line, number).trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let Some((frames, value)) = split_line(line) else {
            unreadable += 1;
            first_unreadable.get_or_insert(number + 1);
            continue;
        };
        let text = String::from_utf8_lossy(frames);
        bad_texts += u64::from(matches!(text, std::borrow::Cow::Owned(_)));
        stack.clear();
        let frames = text.rsplit(';').filter(|frame| !frame.is_empty());
        for frame in frames {
            let (name, source_file, line) = split_frame(frame);
            stack.push(table.location(name, source_file, 0, line));
        }
        table.add(&stack, &[value], 0);
    }
    if table.is_empty() {
        return Err(FormatError::Malformed {
            reason: "no line is a stack with a number".to_owned(),
            offset: 0,
        });
    }
    if let Some(line) = first_unreadable {
        let detail = format!("lines without a whole number at their end, the first is line {line}");
        sink.diagnose(Diagnostic::Unreadable, unreadable, &detail);
    }
    if bad_texts > 0 {
        sink.diagnose(Diagnostic::BadText, bad_texts, "");
    }
    sink.profile(table.finish());
    context.advance(file.len() as u64)?;
    Ok(())
}

/// Strips the byte order mark of the first line.
fn without_mark(line: &[u8], number: usize) -> &[u8] {
    let mark: &[u8] = if number == 0 { b"\xef\xbb\xbf" } else { b"" };
    line.strip_prefix(mark).unwrap_or(line)
}

/// Splits a line into its frames and its number. py-spy also writes samples without frames.
fn split_line(line: &[u8]) -> Option<(&[u8], i64)> {
    let space = memchr::memrchr2(b' ', b'\t', line)?;
    let value = std::str::from_utf8(line.get(space + 1..)?).ok()?;
    let value: i64 = value.parse().ok().filter(|value| *value >= 0)?;
    Some((line.get(..space)?.trim_ascii(), value))
}

/// Splits a frame as py-spy writes it, `load (train.py:12)`, into function, file and line. Other
/// frames are function names.
fn split_frame(frame: &str) -> (&str, &str, u32) {
    let found = frame.strip_suffix(')').and_then(|inner| {
        let (name, place) = inner.rsplit_once(" (")?;
        let (file, line) = place.rsplit_once(':')?;
        Some((name, file, line.parse().ok()?))
    });
    found.unwrap_or((frame, "", 0))
}

/// Returns whether a file begins with lines of collapsed stacks, with at least two functions in one
/// of them.
pub(crate) fn is_collapsed(prefix: &[u8]) -> bool {
    /// Number of lines to look at.
    const LINES: usize = 64;
    let mut has_stack = false;
    let mut lines = prefix.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if number >= LINES {
            break;
        }
        let line = without_mark(line, number).trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match split_line(line) {
            Some((frames, _)) if is_text(frames) => has_stack |= frames.contains(&b';'),
            // The last line may be cut.
            _ if has_stack && lines.peek().is_none() => {}
            _ => return false,
        }
    }
    has_stack
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte >= b' ' || *byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_py_spy_have_files_and_lines() {
        let cases = [
            ("main", ("main", "", 0)),
            ("<module> (train.py:12)", ("<module>", "train.py", 12)),
            ("f (a (b).py:3)", ("f (a", "b).py", 3)),
            ("std::fn(int)", ("std::fn(int)", "", 0)),
            ("thread (0x7f)", ("thread (0x7f)", "", 0)),
            ("f (C:\\a.py:9)", ("f", "C:\\a.py", 9)),
        ];
        for (frame, expected) in cases {
            assert_eq!(split_frame(frame), expected, "{frame}");
        }
    }

    #[test]
    fn content_tells_collapsed_stacks_from_other_text() {
        for text in [
            "a;b 1\n",
            "# a comment\na;b;c 1\r\n\r\nd 4\n 1\n",
            "\u{feff}main;operator new(unsigned long) 3\nmain;f",
            "python;<module> (a.py:1) 7",
        ] {
            assert!(is_collapsed(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "main 4\nload 3\n",
            "a;b\nc;d\n",
            "a;b 1\nsome words\nc;d 2\n",
            "a;b -1\n",
            "a;b\x00c 1\n",
            "x = [1; 2];\n",
        ] {
            assert!(!is_collapsed(text.as_bytes()), "{text}");
        }
    }
}
