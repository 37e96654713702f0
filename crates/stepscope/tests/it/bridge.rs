//! `tracing` spans and events appear without a change to the program.

use stepscope::tracing::{Recorder, RecorderLayer};
use stepscope::{HostTracerLevel, SessionOptions, StopReport, start_trace_with, stop_trace};
use tracing_subscriber::prelude::*;

use crate::{alone, names, read};

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
fn the_subscriber_records_what_the_level_asks_for() {
    let _alone = alone();
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
fn the_layer_records_the_same_beside_others() {
    let _alone = alone();
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
    let _alone = alone();
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
    let _alone = alone();
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
