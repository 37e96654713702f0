//! Files that are cut, damaged, or odd.

use std::fmt::Write as _;

use stepscope_formats::FormatError;
use stepscope_formats::probe::Probe;
use stepscope_model::{Diagnostic, ReadContext};

use super::{content, open, read, read_with, shared};
use stepscope_test_data::Corpus;

fn fails(text: impl Into<Vec<u8>>) -> FormatError {
    match read_with(&shared(text), 1) {
        Ok(probe) => panic!("was read: {}", content(&probe)),
        Err(error) => error,
    }
}

fn event(name: &str, ts: u32) -> String {
    format!(r#"{{"ph":"X","name":"{name}","cat":"c","pid":1,"tid":2,"ts":{ts},"dur":1}}"#)
}

fn names(probe: &Probe) -> Vec<&str> {
    probe.slices.iter().map(|slice| &*slice.name).collect()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn the_folder_of_broken_files_gives_what_it_must() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let folder = folder.join("broken");
    let expected: serde_json::Value =
        serde_json::from_slice(&open(&folder.join("expected.json"))).unwrap();
    for (name, said) in expected["files"].as_object().unwrap() {
        if !name.contains(".json") || name == "expected.json" {
            continue;
        }
        let bytes = shared(open(&folder.join(name)));
        let outcome = read_with(&bytes, 2);
        if name == "empty.json" {
            assert_eq!(outcome.err(), Some(FormatError::Empty), "{name}");
            continue;
        }
        let probe = outcome.unwrap();
        if let Some(complete) = said["X_before_the_break"].as_u64() {
            assert_eq!(probe.slices.len() as u64, complete, "{name}");
            let truncated = u64::from(!name.starts_with("array"));
            assert_eq!(probe.count(Diagnostic::Truncated), truncated, "{name}");
            if truncated == 1 {
                let entries = said["entries_before_the_break"].as_u64().unwrap();
                let told = probe.diagnostics.iter().any(|(_, _, detail)| {
                    detail.contains(&format!("{entries} whole entries came before"))
                });
                assert!(told, "{name}: {:?}", probe.diagnostics);
            }
        }
    }
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn odd_numbers_are_read_or_counted() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let probe = read(open(&folder.join("broken/nan_infinity.json")));
    let found = |name: &str| probe.slices.iter().find(|slice| slice.name == name);
    assert!(found("nan").is_none());
    assert!(found("huge").is_none());
    // Its begin is 106 days from everything else: left out, and counted.
    assert!(found("inf").is_some());
    assert_eq!(found("neg").unwrap().dur_ps, 0);
    assert_eq!(found("str").unwrap().dur_ps, 3_000_000);
    assert_eq!(probe.count(Diagnostic::NegativeDuration), 1);
    assert_eq!(probe.count(Diagnostic::ImpossibleDuration), 1);
    assert_eq!(probe.count(Diagnostic::BadTime), 2);
    assert_eq!(probe.count(Diagnostic::QuotedNumber), 2);
}

#[test]
fn nothing_to_read_is_one_clear_error() {
    assert_eq!(fails(""), FormatError::Empty);
    assert_eq!(fails(" \n\t "), FormatError::Empty);
    for text in [
        "{",
        "[",
        "x",
        "{}",
        "{\"a\":1}",
        "[1,2]",
        "{\"traceEvents\":{}}",
        "{\"traceEvents\":3}",
    ] {
        assert!(
            matches!(fails(text), FormatError::Malformed { .. }),
            "{text}"
        );
    }
    let utf16: Vec<u8> = "\u{feff}{\"traceEvents\":[]}"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(fails(utf16).to_string().contains("UTF-16"));
    assert_eq!(
        fails("{\"rocprofiler-sdk-tool\":[{}]}").to_string(),
        "nothing readable: no traceEvents: not a Chrome trace at byte 0"
    );
    for value in ["{\"a\":[]}", "null", "\"[]\"", "7"] {
        assert_eq!(
            fails(&format!("{{\"traceEvents\":{value}}}")[..]).to_string(),
            "nothing readable: \"traceEvents\" is not a list at byte 15"
        );
    }
}

#[test]
fn odd_containers_open() {
    let one = event("a", 1);
    for text in [
        format!("[{one}]"),
        format!("[{one}"),
        format!("[{one},\n"),
        format!("[{one},]"),
        format!("\u{feff}{{\"traceEvents\":[{one}]}}"),
        format!("{{\"a\":[{{\"traceEvents\":[1]}}],\"traceEvents\":[{one}],\"z\":null}}"),
        format!("{{\"traceEvents\":[{one},{{}}]}}"),
    ] {
        let probe = read(text.clone());
        assert_eq!(names(&probe), ["a"], "{text}");
        assert_eq!(probe.diagnostics, [], "{text}");
    }
    // The rule for two lists: both are read, and it is said.
    let probe = read(format!(
        "{{\"traceEvents\":[{one}],\"x\":1,\"traceEvents\":[{}]}}",
        event("b", 2)
    ));
    assert_eq!(names(&probe), ["a", "b"]);
    assert_eq!(probe.count(Diagnostic::DuplicateId), 1);
    let probe = read("{\"traceEvents\":[]}");
    assert_eq!(probe.count(Diagnostic::EmptyTrace), 1);
}

#[test]
fn a_broken_entry_costs_itself_only() {
    let (first, last) = (event("first", 1), event("last", 9));
    for broken in [
        r#"{"ph":"X","name":"C:\dir\","pid":1,"tid":2,"ts":2,"dur":1}"#,
        r#"{"ph":"X","name":"a","pid":1,"tid":2,"ts":2,"dur":1,"args":{"path":"C:\dir\","x":1}}"#,
        r#"{"ph":"X","name":"5" disk","pid":1,"tid":2,"ts":2,"dur":1}"#,
        r#"{"ph":"X","name":"a","pid":1,"ts":2,"dur":1,"args":{"x":"5" disk"}}"#,
        r#"{"ph":"X","name":"a","pid":1,"ts":2,"dur":1,"args":{"x":[1,2}}"#,
        r#"{"ph":"X","name":"a" "pid":1,"ts":2,"dur":1}"#,
        r#"{"ph":"X",,"name":"a","pid":1,"ts":2,"dur":1}"#,
        r#"{"ph":"X","name":}"#,
    ] {
        let probe = read(format!("{{\"traceEvents\":[{first},{broken},{last}]}}"));
        assert_eq!(names(&probe), ["first", "last"], "{broken}");
        assert_eq!(probe.count(Diagnostic::Unreadable), 1, "{broken}");
        // Twice in a row, the two must not heal each other.
        let probe = read(format!(
            "[{first},\n{broken},\n{broken},\n{last},\n{broken},\n{last}]"
        ));
        assert_eq!(names(&probe), ["first", "last", "last"], "{broken}");
        assert_eq!(probe.count(Diagnostic::Unreadable), 3, "{broken}");
    }
}

#[test]
fn events_are_read_from_a_broken_surrounding_object() {
    let one = event("a", 1);
    for text in [
        format!("{{\"path\":\"C:\\dir\\\",\"traceEvents\":[{one}]}}"),
        format!("{{\"traceEvents\":[{one}]}} {{\"traceEvents\":[]}}"),
        format!("[{one}]\0\0\0"),
        format!("{{\"traceEvents\":[{one}],\"a\":\"x\" y}}"),
    ] {
        let probe = read(text.clone());
        assert_eq!(names(&probe), ["a"], "{text}");
        assert_eq!(probe.count(Diagnostic::Unreadable), 1, "{text}");
    }
}

#[test]
fn many_entries_without_a_bracket_cost_themselves_only() {
    let mut text = String::from("[");
    for number in 0..20_000 {
        let broken = if number % 10 == 5 { "[1,2" } else { "[1,2]" };
        let _ = writeln!(
            text,
            "{{\"ph\":\"X\",\"name\":\"n\",\"pid\":1,\"tid\":1,\"ts\":{number},\"dur\":1,\"args\":{{\"l\":{broken}}}}},"
        );
    }
    let probe = read(text);
    assert_eq!(probe.slices.len(), 18_000);
    assert_eq!(probe.count(Diagnostic::Unreadable), 2_000);
}

#[test]
fn a_bare_word_costs_only_its_field() {
    let probe = read(
        r#"[{"ph":"X","name":N/A,"pid":1,"tid":2,"ts":2,"dur":1},{"ph":"X","name":"b","pid":1,"tid":2,"ts":N/A,"dur":1}]"#,
    );
    assert_eq!(names(&probe), ["N/A"]);
    assert_eq!(probe.count(Diagnostic::BadTime), 1);
}

#[test]
fn missing_and_wrong_fields_are_counted_by_reason() {
    let probe = read(
        r#"[{"name":"no phase","ts":1},{"ph":"XX","ts":1},{"ph":7,"ts":1},{"ph":"X","ts":1,"dur":2},
        {"ph":"X","name":"a","pid":{},"tid":[],"ts":1,"dur":2},{"ph":"X","name":"b","ts":1,"dur":2},
        {"ph":"X","name":"c","pid":1,"tid":1,"dur":2},{"ph":"X","name":"d","pid":1,"tid":1,"ts":2},
        {"ph":"X","name":"e","pid":1,"tid":1,"ts":{},"dur":2},{"ph":"X","name":12,"pid":1,"tid":1,"ts":4,"dur":2,"args":[1]},
        {"ph":"?","ts":1}, 5, "x", null, {"ph":"N","name":"o","id":1,"ts":1}]"#,
    );
    assert_eq!(names(&probe), ["", "b", "12"]);
    assert_eq!(probe.slices[1].track, "None/None");
    assert_eq!(
        probe.args(probe.slices[2].args),
        [("args".to_owned(), "Json(\"[1]\")".to_owned())]
    );
    assert_eq!(probe.count(Diagnostic::UnknownEntry), 3);
    assert_eq!(probe.count(Diagnostic::Unreadable), 6);
    assert_eq!(probe.count(Diagnostic::MissingMetadata), 1);
    assert_eq!(probe.count(Diagnostic::BadTime), 3);
}

#[test]
fn text_that_is_no_text_is_replaced_and_counted() {
    let mut text = b"[{\"ph\":\"X\",\"name\":\"a\xff\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1,\"args\":{\"k\":\"\xfe\"}},".to_vec();
    text.extend_from_slice(br#"{"ph":"X","name":"\ud800","pid":1,"tid":1,"ts":2,"dur":1},"#);
    text.extend_from_slice(
        br#"{"ph":"X","name":"C:\users\u00e9","pid":1,"tid":1,"ts":3,"dur":1},"#,
    );
    text.extend_from_slice(
        b"{\"ph\":\"X\",\"name\":\"a\x01\n\tb\",\"pid\":1,\"tid\":1,\"ts\":4,\"dur\":1}]",
    );
    let probe = read(text);
    assert_eq!(
        names(&probe),
        ["a\u{fffd}", "\u{fffd}", "C:\\users\u{e9}", "a\u{1}\n\tb"]
    );
    assert_eq!(probe.count(Diagnostic::BadText), 4);
    assert_eq!(probe.args(probe.slices[0].args)[0].1, "Str(\"\u{fffd}\")");
}

#[test]
fn depth_and_size_are_bounded() {
    let deep = format!(
        r#"[{},{{"ph":"X","name":"deep","pid":1,"tid":2,"ts":2,"dur":1,"args":{{"a":{}{}}}}},{}]"#,
        event("first", 1),
        "[".repeat(1_000_000),
        "]".repeat(1_000_000),
        event("last", 3)
    );
    let probe = read(deep.clone());
    assert_eq!(names(&probe), ["first", "deep", "last"]);
    assert!(probe.slices[1].args.is_none());
    let limit = probe
        .diagnostics
        .iter()
        .find(|row| row.0 == Diagnostic::LimitReached);
    assert!(limit.unwrap().2.starts_with("max_json_depth"));
    // The same, cut in the middle of the nest.
    let probe = read(&deep.as_bytes()[..1_200_000]);
    assert_eq!(names(&probe), ["first"]);
    assert_eq!(probe.count(Diagnostic::Truncated), 1);
    let probe = read(format!(
        "[{},{}",
        event("first", 1),
        "{\"a\":[".repeat(100_000)
    ));
    assert_eq!(names(&probe), ["first"]);

    let long = "n".repeat(10 << 20);
    let mut args = String::new();
    for number in 0..500_000 {
        let _ = write!(args, "\"key{number}\":{number},");
    }
    args.pop();
    let probe = read(format!(
        r#"[{{"ph":"X","name":"{long}","pid":1,"tid":2,"ts":2,"dur":1,"args":{{{args}}}}}]"#
    ));
    assert_eq!(probe.slices[0].name.len(), 10 << 20);
    assert_eq!(probe.args(probe.slices[0].args).len(), 500_000);
}

#[test]
fn more_tracks_than_the_limit_are_counted_whatever_the_threads() {
    let mut text = String::from("[");
    for number in 0..60_000 {
        let pad = " ".repeat(200);
        let _ = write!(
            text,
            r#"{{"ph":"X","name":"a","pid":1,"tid":{},"ts":{number},"dur":1}},{pad}"#,
            number % 50
        );
    }
    let bytes = shared(text);
    let mut contents = Vec::new();
    for threads in [1, 3] {
        let mut context = ReadContext::default();
        context.threads = threads;
        context.limits.max_tracks = 40;
        let mut probe = Probe::new();
        stepscope_formats::chrome_json::read(&bytes, &context, &mut probe).unwrap();
        assert_eq!(probe.count(Diagnostic::LimitReached), 12_000);
        contents.push(content(&probe));
    }
    assert!(contents[0] == contents[1]);
}

#[test]
fn reading_can_be_cancelled() {
    let context = ReadContext::default();
    context.cancel();
    let mut probe = Probe::new();
    let bytes = shared(format!("[{}]", event("a", 1)));
    let outcome = stepscope_formats::chrome_json::read(&bytes, &context, &mut probe);
    assert_eq!(outcome, Err(FormatError::Cancelled));
}
