//! Texts that are read while they arrive: the same comes out as when they are read as a whole.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stepscope_formats::FormatError;
use stepscope_formats::arriving::Arriving;
use stepscope_formats::chrome::read_arriving;
use stepscope_formats::probe::Probe;
use stepscope_model::ReadContext;

use super::{content, read_with, shared};

/// A text of which more and more is shown.
struct Shown {
    all: Vec<u8>,
    len: AtomicUsize,
    ended: AtomicBool,
}

impl AsRef<[u8]> for Shown {
    fn as_ref(&self) -> &[u8] {
        &self.all[..self.len.load(Ordering::Acquire)]
    }
}

impl Arriving for Shown {
    fn wait_beyond(&self, len: usize) -> bool {
        while self.len.load(Ordering::Acquire) <= len && !self.ended.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        !self.ended.load(Ordering::Acquire)
    }
}

/// Shows the text in pieces; the reader may be ahead or behind.
fn read_pieces(
    text: &str,
    piece: usize,
    becomes_whole: bool,
    context: &ReadContext,
) -> Result<Option<Probe>, FormatError> {
    let shown = Arc::new(Shown {
        all: text.as_bytes().to_vec(),
        len: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
    });
    let fill = || {
        let all = shown.all.len();
        for end in (0..all).step_by(piece).skip(1).chain([all]) {
            shown.len.store(end, Ordering::Release);
            std::thread::yield_now();
        }
        shown.ended.store(true, Ordering::Release);
        becomes_whole
    };
    let mut probe = Probe::new();
    let early = read_arriving(&shown, fill, context, &mut probe)?;
    Ok(early.then_some(probe))
}

fn events(count: u32, odd: impl Fn(u32) -> Option<String>) -> String {
    let mut text = String::new();
    for number in 0..count {
        let tid = number % 7;
        let odd = odd(number).unwrap_or_else(|| {
            r#","args":{"External id":5,"Call stack":"a;b;c","Input Dims":[[1,2],[3]]}"#.to_owned()
        });
        let phase = ["X", "X", "X", "i", "B", "E"][number as usize % 6];
        let _ = write!(
            text,
            "  {{\"ph\":\"{phase}\",\"name\":\"op{}\",\"cat\":\"c{tid}\",\"pid\":1,\"tid\":{tid},\"ts\":{}.25,\"dur\":0.5{odd}}},\n{}",
            number % 500,
            number + 1_000,
            " ".repeat(60),
        );
    }
    text
}

fn is_the_same(text: &str, what: &str) {
    let whole = read_with(&shared(text), 1).map(|probe| content(&probe));
    for piece in [100_000, 3_000_000, text.len()] {
        let early = read_pieces(text, piece, true, &ReadContext::default());
        match (&whole, early) {
            (Ok(whole), Ok(Some(early))) => {
                assert!(*whole == content(&early), "{what}, {piece} bytes at a time");
            }
            (Ok(_), Ok(None)) => panic!("{what}, {piece} bytes at a time: not read early"),
            (Ok(_), Err(error)) => panic!("{what}: {error}"),
            (Err(whole), early) => {
                let early = early.map(|probe| probe.is_some());
                assert_eq!(early, Err(whole.clone()), "{what}");
            }
        }
    }
}

#[test]
fn a_text_that_arrives_is_read_as_one_that_is_there() {
    let plain = events(40_000, |_| None);
    assert!(plain.len() > 6 << 20);
    let closed = format!("{{\"traceEvents\":[\n{plain}  {{}}\n],\"baseTimeNanoseconds\":5000}}");
    is_the_same(&closed, "whole");
    is_the_same(&closed[..closed.len() - 3_000], "cut");
    is_the_same(&format!("[{plain}"), "a bare list without its end");
    is_the_same(
        &format!(
            "{{\"metadata\":\"{}\",{}",
            "x".repeat(3 << 20),
            &closed[1..]
        ),
        "a long head",
    );
    is_the_same(
        &format!(
            "{{\"traceEvents\":[{}],\"a\":{:?},\"traceEvents\":[{plain}{{}}]}}",
            events(10, |_| None).trim_end().trim_end_matches(','),
            "y".repeat(2 << 20)
        ),
        "two lists",
    );
}

#[test]
fn damage_and_long_entries_are_found_while_a_text_arrives() {
    let text = events(40_000, |number| {
        Some(match number % 1_000 {
            // What looks like the beginning of an entry, inside a string and inside a list.
            1 => r#","args":{"s":"},\n {\"ph\":\"X\"","l":[{"ph":"X"},{"ph":"X","ts":1}]}"#
                .to_owned(),
            2 => r#","args":{"path":"C:\dir\","x":1}"#.to_owned(),
            3 => r#","args":{"x":"5" disk"}"#.to_owned(),
            4 if number < 20_000 => format!(",\"args\":{{\"long\":\"{}\"}}", "z".repeat(200_000)),
            _ => return None,
        })
    });
    let text = format!("{{\"traceEvents\":[\n{text}  {{}}\n]}}");
    is_the_same(&text, "damaged");
}

#[test]
fn a_text_that_does_not_become_whole_is_not_read_early() {
    let text = format!(
        "{{\"traceEvents\":[\n{}  {{}}\n]}}",
        events(20_000, |_| None)
    );
    let context = ReadContext::default();
    assert!(
        read_pieces(&text, 100_000, false, &context)
            .unwrap()
            .is_none()
    );
    // Nothing in it tells a time, so it is not known what time zero is.
    assert!(
        read_pieces("{\"traceEvents\":[]}", 5, true, &context)
            .unwrap()
            .is_none()
    );
    let context = ReadContext::default();
    context.cancel();
    let cancelled = read_pieces(&text, 100_000, true, &context).map(|probe| probe.is_some());
    assert_eq!(cancelled, Err(FormatError::Cancelled));
}
