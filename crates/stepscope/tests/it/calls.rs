//! Tests of function calls, as tracers of interpreters report them.

use stepscope::calls::{CallStatus, begin_call, end_call, end_call_below, mark_thread_described};
use stepscope::manual_span::{ManualSpan, NameNumber, SpanKind};
use stepscope::{start_trace, stop_trace};

use crate::{exclusive, names, read};

fn begin(function: usize) -> CallStatus {
    let name = NameNumber::intern(&format!("function {function}"));
    begin_call(function, name.unwrap())
}

#[test]
fn calls_pair_by_function() {
    let _exclusive = exclusive();
    assert_eq!(begin(1), CallStatus::Recorded, "nothing is recorded");
    assert!(end_call(1));
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    assert_eq!(begin(1), CallStatus::ThreadNotDescribed);
    mark_thread_described();
    assert_eq!(begin(2), CallStatus::Recorded);
    assert_eq!(begin(2), CallStatus::Recorded);
    assert!(!end_call(1), "it is not innermost");
    assert!(end_call(2));
    assert!(end_call(2));
    assert!(!end_call(2), "it is not open any more");
    end_call_below(2);
    assert!(end_call(1));
    assert!(!end_call(1));
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (3, 0));
    let probe = read(&report.path);
    let mut found = names(&probe);
    found.sort_unstable();
    assert_eq!(found, ["function 1", "function 2", "function 2"]);
}

#[test]
fn ending_a_call_ends_inner_calls_but_not_spans() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    begin(1);
    begin(2);
    let span = ManualSpan::begin("span", SpanKind::Span, &[]);
    begin(3);
    assert!(!end_call(2));
    end_call_below(2);
    assert!(span.is_open());
    assert!(!end_call(3), "it was ended with its caller");
    begin(4);
    assert!(end_call(4));
    span.end().unwrap();
    assert!(end_call(1), "the span above it has ended");
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (5, 0));
    let probe = read(&report.path);
    let end = |name: &str| {
        let slice = probe.slices.iter().find(|slice| slice.name == name);
        let slice = slice.unwrap();
        (slice.start_ps, slice.start_ps + slice.dur_ps)
    };
    assert_eq!(end("function 2").1, end("function 3").1);
    assert!(end("span").1 >= end("function 4").1);
}

#[test]
fn calls_beyond_the_open_slots_are_too_deep() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    let mut slots = 0;
    while begin(slots) != CallStatus::TooDeep {
        slots += 1;
    }
    assert_eq!(slots, 512);
    let deeper = ManualSpan::begin("deeper", SpanKind::Span, &[]);
    assert!(!end_call(slots), "the innermost span is not a call");
    deeper.end().unwrap();
    for function in (0..slots).rev() {
        assert!(end_call(function), "{function}");
    }
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (513, 0));
    assert_eq!(report.dropped, 0);
}

#[test]
fn calls_fill_more_than_a_chunk() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    for _ in 0..10_000 {
        begin(1);
        begin(2);
        assert!(end_call(2));
        assert!(end_call(1));
    }
    begin(3);
    let report = stop_trace().unwrap();
    assert_eq!((report.spans, report.unfinished), (20_001, 1));
}
