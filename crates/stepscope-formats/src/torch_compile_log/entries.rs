//! Lines of a log: entries with a header as `glog` writes it, and their payloads.

use crate::json::scan::ByteRange;

/// Maximum length of the header of an entry.
const MAX_HEADER_BYTES: usize = 1_024;
/// `MMDD HH:MM:SS.ffffff` after the letter of the level; `0` stands for a digit.
const DATE_AND_TIME: &[u8] = b"0000 00:00:00.000000 ";

/// One entry: a line with a JSON object, and the lines of its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Id of the process that wrote the entry.
    pub(super) pid: u64,
    /// The JSON object, from its opening brace to the end of the line.
    pub(super) json: ByteRange,
    /// The lines of the payload. Each begins with a tab that is not part of the payload.
    pub(super) payload: ByteRange,
}

/// Result of one step over the lines.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line {
    Entry(Entry),
    /// A line that is neither an entry nor part of a payload.
    Unreadable,
}

/// Iterator over the entries of a file.
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Entries<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the offset of the next line.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Returns the next line without its end, and the offset after it.
    fn line(&self, at: usize) -> Option<(&'a [u8], usize)> {
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let end = memchr::memchr(b'\n', rest);
        let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        Some((line, at + end.map_or(rest.len(), |end| end + 1)))
    }
}

impl Iterator for Entries<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            let start = self.at;
            let (line, next) = self.line(start)?;
            self.at = next;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let Some((pid, json)) = header(line) else {
                return Some(Line::Unreadable);
            };
            // Copies of a log can have empty lines between those of a payload.
            let mut payload_end = next;
            while let Some((line, next)) = self.line(self.at)
                && (line.first() == Some(&b'\t') || line.is_empty())
            {
                self.at = next;
                payload_end = next;
            }
            return Some(Line::Entry(Entry {
                pid,
                json: ByteRange {
                    start: start + json,
                    end: start + line.len(),
                },
                payload: ByteRange {
                    start: next,
                    end: payload_end,
                },
            }));
        }
    }
}

/// Parses `V1127 21:12:44.822000 12121 torch/_dynamo/guards.py:4185] {…`. Returns the process id and the
/// offset of the brace.
pub(super) fn header(line: &[u8]) -> Option<(u64, usize)> {
    let (level, rest) = line.split_first()?;
    if !b"VIWEC".contains(level) {
        return None;
    }
    let shape = rest.get(..DATE_AND_TIME.len())?.iter().zip(DATE_AND_TIME);
    let is_time = shape
        .clone()
        .all(|(byte, expected)| byte == expected || *expected == b'0' && byte.is_ascii_digit());
    if !is_time {
        return None;
    }
    let head = line.get(..line.len().min(MAX_HEADER_BYTES))?;
    let json = memchr::memmem::find(head, b"] {")? + 2;
    let process = head.get(1 + DATE_AND_TIME.len()..json)?;
    let digits = process.iter().take_while(|byte| byte.is_ascii_digit());
    let digits = process.get(..digits.count())?;
    let pid = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((pid, json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_gives_process_and_object() {
        let line = b"V1127 21:12:44.822000 12121 torch/_dynamo/guards.py:4185] {\"str\": []}";
        let (pid, json) = header(line).unwrap_or_default();
        assert_eq!((pid, line[json]), (12_121, b'{'));
        for other in [
            &b""[..],
            b"V1127 21:12:44.822000 12121 torch/a.py:1] [0/1] [__recompiles] text",
            b"X1127 21:12:44.822000 12121 torch/a.py:1] {}",
            b"V1127 21:12:44,822000 12121 torch/a.py:1] {}",
            b"V1127 21:12:44.822000 none torch/a.py:1] {}",
            b"V1127 21:12:44.8",
        ] {
            assert_eq!(header(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn payload_is_the_lines_that_begin_with_a_tab() {
        let text = b"nothing\n\nV1127 21:12:44.822000 7 a.py:1] {}\n\t[\n\n\t]\nV1127 21:12:44.822000 8 a.py:2] {}";
        let lines: Vec<Line> = Entries::new(text).collect();
        assert!(matches!(lines[0], Line::Unreadable));
        let payload = |line: &Line| match line {
            Line::Entry(entry) => (entry.pid, entry.payload.slice(text).to_vec()),
            Line::Unreadable => (0, Vec::new()),
        };
        assert_eq!(payload(&lines[1]), (7, b"\t[\n\n\t]\n".to_vec()));
        assert_eq!(payload(&lines[2]), (8, Vec::new()));
        assert_eq!(lines.len(), 3);
    }
}
