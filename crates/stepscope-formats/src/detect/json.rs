//! Classification of JSON traces by their keys.
//!
//! The text is the beginning of a file and can be truncated, badly escaped or badly quoted, so it
//! is not parsed. Counting brackets and strings is enough to find the keys of one depth.

use std::ops::ControlFlow;

use crate::format::Format;

/// Result of the classification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A trace of this format.
    Is(Format),
    /// The text ends before a key that identifies a format.
    Cut,
    /// Complete JSON that is not a trace, and the reason.
    Other(String),
}

/// Keys that torch, JAX and Chrome, and few other programs, put before `traceEvents`.
const CHROME_KEYS: [&[u8]; 10] = [
    b"schemaVersion",
    b"deviceProperties",
    b"distributedInfo",
    b"displayTimeUnit",
    b"baseTimeNanoseconds",
    b"systemTraceEvents",
    b"stackFrames",
    b"otherData",
    b"controllerTraceDataKey",
    b"traceName",
];

/// The schema that a speedscope file names.
const SPEEDSCOPE_SCHEMA: &[u8] = b"speedscope.app/file-format-schema.json";

/// Number of keys named in the reason of [`Verdict::Other`].
const KEYS_SHOWN: usize = 5;
/// Maximum number of objects of a bare array to check.
const ELEMENTS_SEEN: u32 = 16;

/// Returns the text from its first bracket on, if it looks like JSON; skips a byte order mark and
/// blanks before it. Strict in the first few bytes, because protobuf often starts with a line feed
/// and a length that equals a bracket.
pub(super) fn start(prefix: &[u8]) -> Option<&[u8]> {
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix);
    let text = text.trim_ascii_start();
    let inner = match text {
        [b'{', inner @ ..] => inner.trim_ascii_start(),
        [b'[', inner @ ..] => {
            let inner = inner.trim_ascii_start();
            match inner {
                [] => return Some(text),
                [b']', rest @ ..] => return rest.trim_ascii().is_empty().then_some(text),
                [b'{', inner @ ..] => inner.trim_ascii_start(),
                [b'"' | b'-' | b'0'..=b'9' | b'[' | b't' | b'f' | b'n', ..] => {
                    return is_printable(inner).then_some(text);
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    match inner {
        [] => Some(text),
        [b'}', rest @ ..] => is_printable(rest).then_some(text),
        [b'"', key @ ..] => {
            let Some(end) = memchr::memchr(b'"', key.get(..key.len().min(4096))?) else {
                return is_printable(key).then_some(text);
            };
            let (key, rest) = (key.get(..end)?, key.get(end + 1..)?.trim_ascii_start());
            let colon = rest.first().is_none_or(|byte| *byte == b':');
            (colon && is_printable(key)).then_some(text)
        }
        _ => None,
    }
}

fn is_printable(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .take(64)
        .all(|byte| *byte >= b' ' || byte.is_ascii_whitespace())
}

/// Classifies `text`, which starts with a bracket, by its keys.
pub(super) fn sort_out(text: &[u8]) -> Verdict {
    let verdict = if text.first() == Some(&b'[') {
        array(text)
    } else {
        object(text)
    };
    if matches!(verdict, Verdict::Is(_)) {
        return verdict;
    }
    // speedscope names its schema; either of its two large members may come first.
    if memchr::memmem::find(text, SPEEDSCOPE_SCHEMA).is_some() {
        return Verdict::Is(Format::Speedscope);
    }
    // Other large members may precede the threads of a Firefox profile.
    if memchr::memmem::find(text, b"\"preprocessedProfileVersion\"").is_some() {
        return Verdict::Is(Format::FirefoxProfile);
    }
    // Unescaped quotes hide keys from a scan that counts quotes.
    if memchr::memmem::find(text, b"\"traceEvents\"").is_some() {
        return Verdict::Is(Format::ChromeJson);
    }
    verdict
}

fn object(text: &[u8]) -> Verdict {
    let mut found = None;
    let (mut schema, mut nodes, mut chrome) = (false, false, false);
    let (mut shared, mut profiles) = (false, false);
    let (mut meta, mut threads) = (false, false);
    let mut shown: Vec<String> = Vec::new();
    let closed = keys(text, 1, |key, _, first| {
        match key {
            b"traceEvents" => found = Some(Format::ChromeJson),
            b"rocprofiler-sdk-tool" => found = Some(Format::RocprofJson),
            b"trace_events" => found = Some(Format::NeuronSystemProfile),
            b"shared" => shared = true,
            b"profiles" => profiles = true,
            b"meta" => meta = true,
            b"threads" => threads = true,
            b"pg_config" => found = Some(Format::NcclFlightRecorder),
            b"schema" => schema = true,
            b"nodes" => nodes |= first == Some(b'['),
            b"start_ts" => nodes = true,
            _ => chrome |= CHROME_KEYS.contains(&key),
        }
        if schema && nodes {
            found = Some(Format::ExecutionTraceJson);
        }
        if shared && profiles {
            found = Some(Format::Speedscope);
        } else if meta && threads {
            found = Some(Format::FirefoxProfile);
        }
        if shown.len() < KEYS_SHOWN {
            let key = key.get(..key.len().min(40)).unwrap_or(key);
            shown.push(String::from_utf8_lossy(key).escape_debug().collect());
        }
        if found.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    match found {
        Some(format) => Verdict::Is(format),
        None if closed && shown.is_empty() => {
            Verdict::Other("JSON without any keys, so without traceEvents".to_owned())
        }
        None if closed => Verdict::Other(format!(
            "JSON without traceEvents; its keys are {}",
            shown.join(", ")
        )),
        None if chrome => Verdict::Is(Format::ChromeJson),
        None => Verdict::Cut,
    }
}

fn array(text: &[u8]) -> Verdict {
    let mut found = false;
    let mut stopped = false;
    let closed = keys(text, 2, |key, element, _| {
        found |= key == b"ph";
        stopped |= element > ELEMENTS_SEEN;
        if found || stopped {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let empty = text
        .get(1..)
        .unwrap_or_default()
        .trim_ascii_start()
        .starts_with(b"]");
    if found || (closed && empty) {
        Verdict::Is(Format::ChromeJson)
    } else if closed || stopped {
        Verdict::Other("a JSON array whose entries have no ph, so no events".to_owned())
    } else {
        Verdict::Cut
    }
}

/// Calls `visit` for every key at `depth` (1: of the outermost object) with the number of the
/// enclosing bracket pair at that depth, until `visit` stops the search. Returns whether the
/// outermost bracket was closed.
fn keys(
    text: &[u8],
    depth: u32,
    mut visit: impl FnMut(&[u8], u32, Option<u8>) -> ControlFlow<()>,
) -> bool {
    let mut open = 0_u32;
    let mut pair = 0_u32;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                open += 1;
                pair += u32::from(open == depth);
            }
            b'}' | b']' => {
                open = open.saturating_sub(1);
                if open == 0 {
                    return true;
                }
            }
            b'"' => {
                let begin = at;
                let Some(end) = string_end(text, begin) else {
                    return false;
                };
                at = end + 1;
                if open == depth {
                    let after = text.get(at..).unwrap_or_default().trim_ascii_start();
                    let key = text.get(begin..end).unwrap_or_default();
                    if let Some(value) = after.strip_prefix(b":") {
                        let first = value.trim_ascii_start().first().copied();
                        if visit(key, pair, first).is_break() {
                            return false;
                        }
                    }
                }
            }
            _ => {}
        }
    }
    false
}

/// Returns the offset of the quote that ends the string whose first character is at `at`.
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(found) == Some(&b'"') {
            return Some(found);
        }
        at = found + 2;
    }
}
