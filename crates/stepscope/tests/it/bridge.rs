//! Tests of the bridge from `tracing`: spans and events are recorded without a change to the
//! program.

use stepscope::tracing::{Recorder, RecorderLayer};
use stepscope::{HostTracerLevel, SessionOptions, StopReport, start_trace_with, stop_trace};
use tracing_subscriber::prelude::*;

use crate::{exclusive, names, read};

fn record(
    level: HostTracerLevel,
    work: impl FnOnce(),
) -> (StopReport, stepscope_formats::probe::Probe) {
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        host_tracer_level: level,
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    work();
    let report = stop_trace().unwrap();
    let probe = read(&report.path);
    (report, probe)
}

fn program() {
    let _forward =
        tracing::info_span!("forward", layer = 3, path = "a.b", shape = ?[1, 2]).entered();
    {
        let late = tracing::info_span!("late", loss = tracing::field::Empty);
        let entered = late.enter();
        late.record("loss", 0.25);
        drop(entered);
    }
    tracing::debug_span!("detail").in_scope(|| {});
    tracing::info!(step = 7, "loss is {}", 0.5);
    tracing::warn!("plain");
    tracing::trace!("noise");
    let _own = stepscope::span!("own");
}

fn check(probe: &stepscope_formats::probe::Probe, verbose: bool) {
    let mut expected = vec!["forward", "late", "own"];
    if verbose {
        expected.insert(0, "detail");
    }
    assert_eq!(names(probe), expected);
    let args = |name: &str| {
        let slice = probe
            .slices
            .iter()
            .find(|slice| slice.name == name)
            .unwrap();
        probe.args(slice.args)
    };
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        args("forward"),
        [
            text("layer", "Int(3)"),
            text("path", "Str(\"a.b\")"),
            text("shape", "Str(\"[1, 2]\")")
        ]
    );
    assert_eq!(args("late"), [text("loss", "Double(0.25)")]);
    let mut events: Vec<_> = probe
        .instants
        .iter()
        .map(|event| event.name.as_str())
        .collect();
    events.sort_unstable();
    let expected: &[&str] = if verbose {
        &["loss is 0.5", "noise", "plain"]
    } else {
        &["loss is 0.5", "plain"]
    };
    assert_eq!(events, expected);
    let loss = probe
        .instants
        .iter()
        .find(|event| event.name == "loss is 0.5")
        .unwrap();
    assert_eq!(probe.args(loss.args), [text("step", "Int(7)")]);
}

#[test]
fn subscriber_records_events_of_the_selected_level() {
    let _exclusive = exclusive();
    tracing::subscriber::with_default(Recorder::new(), || {
        program();
        let (_, probe) = record(HostTracerLevel::Library, program);
        check(&probe, false);
        let (_, probe) = record(HostTracerLevel::Verbose, program);
        check(&probe, true);
        let (_, probe) = record(HostTracerLevel::User, program);
        assert_eq!(names(&probe), ["own"]);
        assert!(probe.instants.is_empty());
    });
}

#[test]
fn layer_records_the_same_with_other_layers() {
    let _exclusive = exclusive();
    let subscriber = tracing_subscriber::registry().with(RecorderLayer::new());
    tracing::subscriber::with_default(subscriber, || {
        let (_, probe) = record(HostTracerLevel::Library, program);
        check(&probe, false);
        let (_, probe) = record(HostTracerLevel::Verbose, program);
        check(&probe, true);
    });
}

#[test]
fn a_span_may_be_entered_often_anywhere_and_left_in_any_order() {
    let _exclusive = exclusive();
    let recorder = tracing::Dispatch::new(Recorder::new());
    tracing::dispatcher::with_default(&recorder, || {
        let (report, probe) = record(HostTracerLevel::Library, || {
            let first = tracing::info_span!("first", id = 1);
            let second = tracing::info_span!("second", id = 2);
            let in_first = first.enter();
            let in_second = second.enter();
            assert_eq!(
                tracing::Span::current().metadata().unwrap().name(),
                "second"
            );
            drop(in_first);
            drop(in_second);
            assert!(tracing::Span::current().is_none());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&recorder, || {
                        for _ in 0..3 {
                            let _again = first.enter();
                        }
                    });
                });
            });
        });
        assert_eq!((report.spans, report.unfinished, report.dropped), (5, 0, 0));
        assert_eq!(
            names(&probe),
            ["first", "first", "first", "first", "second"]
        );
        for slice in &probe.slices {
            assert_eq!(probe.args(slice.args).len(), 1, "{}", slice.name);
        }
    });
}

#[test]
fn recursion_deeper_than_the_slots_is_counted_not_confused() {
    fn down(depth: u32) {
        if depth > 0 {
            tracing::info_span!("down").in_scope(|| down(depth - 1));
        }
    }
    let _exclusive = exclusive();
    tracing::subscriber::with_default(Recorder::new(), || {
        let (report, _) = record(HostTracerLevel::Library, || {
            down(600);
            tracing::info_span!("after").in_scope(|| {});
        });
        assert_eq!(
            (report.spans, report.dropped, report.unfinished),
            (513, 88, 0)
        );
    });
}

/// Enters spans without fields, for both bridges, whose id alone describes them. One is created
/// before the session; it is recorded only where a registry stores it.
fn plain_spans(created_before: u64) {
    let before = tracing::info_span!("made before");
    let (report, probe) = record(HostTracerLevel::Library, || {
        // Entered again, cloned, exited by a clone, closed before its clone.
        let often = tracing::info_span!("often");
        let clone = often.clone();
        for _ in 0..3 {
            often.in_scope(|| clone.in_scope(|| {}));
        }
        let entered = clone.enter();
        drop(often);
        // Exited in another order, twice, and with a span of this crate in between.
        let outer = tracing::info_span!("outer").entered();
        let native = stepscope::span!("own");
        let inner = tracing::info_span!("inner").entered();
        drop(outer);
        drop(native);
        drop(inner);
        drop(entered);
        before.in_scope(|| {});
        // On other threads, at the same time.
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || {
                        for _ in 0..500 {
                            clone.in_scope(|| {
                                tracing::info_span!("made there").in_scope(|| {});
                            });
                        }
                    });
                });
            }
        });
        let cause = tracing::info_span!("cause");
        clone.follows_from(&cause);
    });
    assert_eq!(
        (report.spans, report.dropped, report.unfinished),
        (2010 + created_before, 0, 0)
    );
    let mut counts = std::collections::BTreeMap::new();
    for name in names(&probe) {
        *counts.entry(name).or_insert(0) += 1;
    }
    assert_eq!(counts.remove("made before").unwrap_or(0), created_before);
    assert_eq!(
        Vec::from_iter(counts),
        [
            ("inner", 1),
            ("made there", 1_000),
            ("often", 1_007),
            ("outer", 1),
            ("own", 1)
        ]
    );
    let time = |name: &str| {
        let slice = probe.slices.iter().find(|slice| slice.name == name);
        let slice = slice.unwrap();
        (slice.start_ps, slice.start_ps + slice.dur_ps)
    };
    let (outer, inner) = (time("outer"), time("inner"));
    assert!(outer.0 < inner.0 && inner.0 < outer.1 && outer.1 < inner.1);
}

#[test]
fn plain_spans_by_the_subscriber() {
    let _exclusive = exclusive();
    tracing::subscriber::with_default(Recorder::new(), || plain_spans(0));
}

#[test]
fn plain_spans_by_the_layer() {
    let _exclusive = exclusive();
    let subscriber = tracing_subscriber::registry().with(RecorderLayer::new());
    tracing::subscriber::with_default(subscriber, || plain_spans(1));
}

#[test]
fn two_layers_with_separate_registries_do_not_mix_their_ids() {
    let _exclusive = exclusive();
    let make = || tracing::Dispatch::new(tracing_subscriber::registry().with(RecorderLayer::new()));
    let (one, other) = (make(), make());
    let (_, probe) = record(HostTracerLevel::Library, || {
        // Both are the first of their registry.
        let a = tracing::dispatcher::with_default(&one, || tracing::info_span!("a"));
        let b = tracing::dispatcher::with_default(&other, || tracing::info_span!("b"));
        assert_eq!(
            a.id().map(|id| id.into_u64()),
            b.id().map(|id| id.into_u64())
        );
        a.in_scope(|| b.in_scope(|| {}));
    });
    assert_eq!(names(&probe), ["a", "b"]);
}

#[test]
fn layer_handles_more_spans_than_its_table_has_slots() {
    let _exclusive = exclusive();
    let subscriber = tracing_subscriber::registry().with(RecorderLayer::new());
    tracing::subscriber::with_default(subscriber, || {
        let spans: Vec<_> = (0..70_000)
            .map(|n| {
                if n % 2 == 0 {
                    tracing::info_span!("even")
                } else {
                    tracing::info_span!("odd")
                }
            })
            .collect();
        let (_, probe) = record(HostTracerLevel::Library, || {
            for span in &spans[..1_000] {
                span.in_scope(|| {});
            }
        });
        let names = names(&probe);
        assert_eq!(names.len(), 1_000);
        assert_eq!(names.iter().filter(|name| **name == "even").count(), 500);
    });
}

#[test]
fn a_name_too_long_for_a_number_is_written_whole() {
    const LONG: &str = match std::str::from_utf8(&[b'n'; 1_500]) {
        Ok(text) => text,
        Err(_) => "",
    };
    let _exclusive = exclusive();
    let check = || {
        let (_, probe) = record(HostTracerLevel::Library, || {
            tracing::info_span!(LONG).in_scope(|| {});
            tracing::info_span!(LONG, n = 1).in_scope(|| {});
        });
        assert_eq!(names(&probe), [LONG, LONG]);
        let args: Vec<_> = probe.slices.iter().map(|s| probe.args(s.args)).collect();
        assert_eq!(args[0], []);
        assert_eq!(args[1], [("n".to_owned(), "Int(1)".to_owned())]);
    };
    tracing::subscriber::with_default(Recorder::new(), check);
    let subscriber = tracing_subscriber::registry().with(RecorderLayer::new());
    tracing::subscriber::with_default(subscriber, check);
}
