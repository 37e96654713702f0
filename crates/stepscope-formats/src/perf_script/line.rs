//! One line of the text.

/// A line, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Ends a sample.
    Blank,
    /// A line of the header that `perf script --header` prints.
    Comment,
    /// Begins a sample.
    Head(SampleHead<'a>),
    /// A function of the sample's stack; the innermost one comes first.
    Frame(Frame<'a>),
    /// Neither.
    Unreadable,
}

/// A function and the file that holds its code; empty if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) name: &'a str,
    pub(super) file: &'a str,
}

/// The first line of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleHead<'a> {
    pub(super) command: &'a str,
    pub(super) pid: Option<i64>,
    pub(super) tid: i64,
    /// Seconds, as text.
    pub(super) time: &'a str,
    /// How much of the event the sample stands for.
    pub(super) period: Option<i64>,
    pub(super) event: &'a str,
    /// The sampled function, if the text has no stacks.
    pub(super) frame: Option<Frame<'a>>,
}

impl<'a> Line<'a> {
    /// Parses a line. Only lines after the head of a sample can be frames.
    pub(super) fn parse(line: &'a str, in_sample: bool) -> Self {
        let text = line.trim();
        if text.is_empty() {
            return Self::Blank;
        }
        if text.starts_with('#') {
            return Self::Comment;
        }
        let is_indented = line.starts_with([' ', '\t']);
        if in_sample
            && is_indented
            && let Some(frame) = parse_frame(text)
        {
            return Self::Frame(frame);
        }
        SampleHead::parse(text).map_or(Self::Unreadable, Self::Head)
    }
}

impl<'a> SampleHead<'a> {
    /// Parses `COMMAND [PID/]TID [CPU] TIME: [PERIOD] EVENT: [FRAME]`. Commands may have spaces.
    fn parse(text: &'a str) -> Option<Self> {
        let (before, time, after) = split_at_time(text)?;
        let mut command = before.trim_end();
        let (pid, tid) = loop {
            let (rest, last) = command.rsplit_once(char::is_whitespace)?;
            command = rest.trim_end();
            if let Some(ids) = parse_ids(last) {
                break ids;
            }
            // The processor in brackets, or flags of its state.
        };
        let (first, rest) = split_word(after);
        let (period, first, rest) = match first.parse::<u64>() {
            Ok(period) => {
                let (event, rest) = split_word(rest);
                (i64::try_from(period).ok(), event, rest)
            }
            Err(_) => (None, first, rest),
        };
        Some(Self {
            command,
            pid,
            tid,
            time,
            period,
            event: first.strip_suffix(':')?,
            frame: parse_frame(rest),
        })
    }
}

/// Finds the word that is a time, `198789.478194:`; returns the text before it, the time and the
/// text after it.
fn split_at_time(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(found) = text.get(from..)?.find(':') {
        let colon = from + found;
        let before = text.get(..colon)?;
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = before.get(start..)?;
        let is_time = word.split_once('.').is_some_and(|(seconds, fraction)| {
            let is_digits =
                |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            is_digits(seconds) && is_digits(fraction)
        });
        if is_time {
            return Some((before.get(..start)?, word, text.get(colon + 1..)?));
        }
        from = colon + 1;
    }
    None
}

/// Parses `TID` or `PID/TID`.
fn parse_ids(word: &str) -> Option<(Option<i64>, i64)> {
    match word.split_once('/') {
        Some((pid, tid)) => Some((Some(pid.parse().ok()?), tid.parse().ok()?)),
        None => Some((None, word.parse().ok()?)),
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

/// Parses `ADDRESS SYMBOL[+OFFSET] (FILE)`.
fn parse_frame(text: &str) -> Option<Frame<'_>> {
    let (address, rest) = split_word(text.trim_end());
    let is_address =
        (1..=16).contains(&address.len()) && address.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_address {
        return None;
    }
    let (symbol, file) = split_file(rest.trim());
    let name = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    };
    let name = if name.is_empty() { "[unknown]" } else { name };
    let file = match file {
        "[unknown]" | "inlined" => "",
        file => file,
    };
    Some(Frame { name, file })
}

/// Splits the last group of parentheses off: `(/usr/lib/libc.so.6 (deleted))` is one.
fn split_file(text: &str) -> (&str, &str) {
    let Some(inner) = text.strip_suffix(')') else {
        return (text, "");
    };
    let mut depth = 1_usize;
    for (at, letter) in inner.char_indices().rev() {
        match letter {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let (symbol, file) = (inner.get(..at), inner.get(at + 1..));
            return (symbol.unwrap_or(text).trim_end(), file.unwrap_or(""));
        }
    }
    (text, "")
}

/// Returns whether a file begins with a sample of `perf script`: a head, and a frame in it or below
/// it.
pub(crate) fn is_perf_script(prefix: &[u8]) -> bool {
    /// Number of lines to look at; `perf script --header` prints some tens of lines first.
    const LINES: usize = 256;
    let text = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        // The last character may be cut.
        Err(error) if error.error_len().is_none() => {
            let whole = prefix.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(whole).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let mut in_sample = false;
    for line in text.lines().take(LINES) {
        match Line::parse(line, in_sample) {
            Line::Blank => in_sample = false,
            Line::Comment => {}
            Line::Head(head) => {
                if head.frame.is_some() {
                    return true;
                }
                in_sample = true;
            }
            Line::Frame(_) => return true,
            Line::Unreadable => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> SampleHead<'_> {
        match Line::parse(text, false) {
            Line::Head(head) => head,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn heads_of_samples() {
        let plain = SampleHead {
            command: "V8 WorkerThread",
            pid: None,
            tid: 25_607,
            time: "4794564.109216",
            period: None,
            event: "cycles",
            frame: None,
        };
        assert_eq!(
            head("V8 WorkerThread 25607 4794564.109216: cycles: "),
            plain
        );
        let all = "swapper     0/7 [001] d.h. 202513.231817123:    1001001 cpu-clock:ppp: ";
        let expected = SampleHead {
            command: "swapper",
            pid: Some(0),
            tid: 7,
            time: "202513.231817123",
            period: Some(1_001_001),
            event: "cpu-clock:ppp",
            frame: None,
        };
        assert_eq!(head(all), expected);
        let without_stacks =
            "   python3  9 10.5: 1 page-faults:u:  7f00ab read+0x1c (/lib/libc.so)";
        let frame = Frame {
            name: "read",
            file: "/lib/libc.so",
        };
        assert_eq!(head(without_stacks).frame, Some(frame));
        let tracepoint = "a:1.5: 9 [000] 10.5: sched:sched_switch: prev_comm=b";
        assert_eq!(head(tracepoint).command, "a:1.5:");
        for other in [
            "",
            "a b c",
            "a 1.5: x:",
            "a 9 1.5: x",
            "12.5:",
            "a x 1.5: b:",
        ] {
            assert!(
                !matches!(Line::parse(other, true), Line::Head(_)),
                "{other}"
            );
        }
    }

    #[test]
    fn frames_of_stacks() {
        let cases = [
            ("\t  63c _Z4betav (/opt/a)", ("_Z4betav", "/opt/a")),
            (" 1f [unknown] ([unknown])", ("[unknown]", "")),
            (
                " 1f f(int, g (*)())+0x1c (/a (deleted))",
                ("f(int, g (*)())", "/a (deleted)"),
            ),
            (" 1f core::ops (inlined)", ("core::ops", "")),
            (" 1f f", ("f", "")),
            (" 1f  (/lib/a.so)", ("[unknown]", "/lib/a.so")),
            (" ffffffffad135f6f 9) (", ("9) (", "")),
        ];
        for (line, (name, file)) in cases {
            let found = Line::parse(line, true);
            assert_eq!(found, Line::Frame(Frame { name, file }), "{line}");
            assert_ne!(Line::parse(line, false), found);
        }
    }

    #[test]
    fn content_tells_samples_from_other_text() {
        let sample = "a 9 1.5: cycles: \n\t1f f (/a)\n";
        assert!(is_perf_script(sample.as_bytes()));
        let header = format!("# ========\n# captured on: today\n#\n{sample}");
        assert!(is_perf_script(header.as_bytes()));
        assert!(is_perf_script(b" a 9 1.5: cycles: 1f f (/a)"));
        for other in [
            "",
            "# a\n",
            "a;b 1\n",
            "a 9 1.5: cycles: \n\nb\n",
            "\t1f f (/a)\n",
        ] {
            assert!(!is_perf_script(other.as_bytes()), "{other}");
        }
    }
}
