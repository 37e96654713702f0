//! Tests of manual spans, as bindings to other languages use them.

use stepscope::manual_span::{ManualSpan, NameNumber, SpanKind, instant_with, name_thread};
use stepscope::{SessionOptions, SpanArgValue, start_trace, start_trace_with, stop_trace};

use crate::{exclusive, names, read};

#[test]
fn manual_spans_end_in_any_order() {
    let _exclusive = exclusive();
    assert!(!ManualSpan::begin("off", SpanKind::Span, &[]).was_begun());
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    let first = ManualSpan::begin("first", SpanKind::Span, &[("a", SpanArgValue::Int(1))]);
    let mut second = ManualSpan::begin("second", SpanKind::Span, &[]);
    let step = ManualSpan::begin(
        "train",
        SpanKind::Step,
        &[("step_num", SpanArgValue::Int(7))],
    );
    first.end().unwrap();
    second.add(&[("late", SpanArgValue::Bool(true))]);
    second.end().unwrap();
    step.end().unwrap();
    ManualSpan::begin_known(NameNumber::intern("known").unwrap())
        .end()
        .unwrap();
    let long = "x".repeat(3_000);
    ManualSpan::begin(&long, SpanKind::Span, &[]).end().unwrap();
    instant_with("point", &[("b", SpanArgValue::Str("c"))]);
    let forgotten = ManualSpan::begin("forgotten", SpanKind::Span, &[]);
    assert!(forgotten.is_open());
    let report = stop_trace().unwrap();
    assert!(!forgotten.is_open());
    assert!(forgotten.end().is_ok(), "of a session that has ended");
    assert_eq!(
        (report.spans, report.unfinished, report.instants),
        (6, 1, 1)
    );
    let probe = read(&report.path);
    let mut expected = vec!["first", "forgotten", "known", "second", "train", &long];
    expected.sort_unstable();
    let mut found = names(&probe);
    found.sort_unstable();
    found.retain(|name| *name != "point");
    assert_eq!(found, expected);
    let args = |name: &str| {
        let slice = probe.slices.iter().find(|slice| slice.name == name);
        probe.args(slice.unwrap().args)
    };
    assert_eq!(args("first"), [("a".to_owned(), "Int(1)".to_owned())]);
    assert_eq!(
        args("second"),
        [("late".to_owned(), "Bool(true)".to_owned())]
    );
    let step = probe.slices.iter().find_map(|slice| slice.step);
    assert_eq!(step, Some(7));
}

#[test]
fn step_watch_works_with_and_without_a_recording() {
    let _exclusive = exclusive();
    let step = || {
        ManualSpan::begin(
            "train",
            SpanKind::Step,
            &[("step_num", SpanArgValue::Int(7))],
        )
    };
    assert!(!step().was_begun());
    let watch = stepscope::StepWatch::start();
    let first = step();
    assert!(first.is_open());
    assert!(!ManualSpan::begin("no step", SpanKind::Span, &[]).was_begun());
    std::thread::sleep(std::time::Duration::from_millis(5));
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    first.end().unwrap();
    step().end().unwrap();
    let other = step();
    std::thread::spawn(move || {
        let other = other.end().unwrap_err();
        other.end_elsewhere("train", &[("step_num", SpanArgValue::Int(7))]);
    })
    .join()
    .unwrap();
    let times = watch.times();
    assert_eq!(times.count, 3);
    assert!(
        times.max >= std::time::Duration::from_millis(5),
        "{times:?}"
    );
    drop(watch);
    step().end().unwrap();
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (3, 0));
}

#[test]
fn span_ended_on_another_thread_is_recorded_once_there() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    let span = ManualSpan::begin("moved", SpanKind::Span, &[("rows", SpanArgValue::Int(3))]);
    let there = std::thread::Builder::new().name("there".to_owned());
    let thread = there.spawn(move || {
        name_thread("called otherwise");
        let span = span.end().unwrap_err();
        span.end_elsewhere("moved", &[("rows", SpanArgValue::Int(3))]);
    });
    thread.unwrap().join().unwrap();
    stepscope::Span::enter("here").is_recording();
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (2, 0));
    let probe = read(&report.path);
    let moved = probe
        .slices
        .iter()
        .find(|slice| slice.name == "moved")
        .unwrap();
    assert_eq!(
        probe.args(moved.args),
        [("rows".to_owned(), "Int(3)".to_owned())]
    );
    let track = probe.tracks.iter().find(|track| track.key == moved.track);
    assert_eq!(track.unwrap().name, "called otherwise");
}

#[test]
fn file_metadata_matches_the_options() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        facts: vec![("kind.Python".to_owned(), "true".to_owned())],
        warnings: vec!["something is missing".to_owned()],
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    let report = stop_trace().unwrap();
    assert_eq!(report.warnings, ["something is missing"]);
    let bytes = std::fs::read(&report.path).unwrap();
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(has("something is missing"));
    assert!(has("kind.Python"));
    assert!(!has("kind.Rust"));
}
