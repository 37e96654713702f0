//! Tests of `steps`.

use proptest::prelude::*;
use stepscope_model::{Epoch, EventSink, SliceIn, TrackPatch};
use stepscope_store::{FileSpec, TraceBuilder, ascii_trace};

use super::*;

const ALL: StepOptions = StepOptions {
    range: None,
    top: usize::MAX,
    marked_only: false,
};

fn shown(report: &StepReport) -> Vec<String> {
    let us = |dur: Dur| dur.ps() / 1_000_000;
    report
        .labels
        .iter()
        .map(|row| {
            format!(
                "{} ({}): {} x, {} us, self {}, {:.2}",
                row.label,
                row.place.as_str(),
                row.count,
                us(row.total),
                us(row.self_time),
                row.share
            )
        })
        .collect()
}

/// Returns the time of the steps' own thread in labels and in the markers themselves, and the sum of the
/// lengths of the steps.
fn both_sides(trace: &Trace) -> (i64, i64) {
    let report = step_report(trace, ALL);
    let labels: i64 = report
        .labels
        .iter()
        .filter(|row| row.place == LabelThread::StepThread)
        .map(|row| row.self_time.ps())
        .sum();
    let marks = trace
        .step_marks()
        .iter()
        .filter_map(|mark| trace.event(mark.event));
    let markers: i64 = marks.map(|event| event.self_time.ps()).sum();
    let steps: i64 = report.steps.iter().map(|step| step.dur.ps()).sum();
    (labels + markers, steps)
}

#[test]
fn labels_of_a_range_are_those_of_its_steps() {
    let trace = ascii_trace::trace(
        "
        main | step0-----  step1---------  step2---
             |   load--      work--load-     load--
        ",
    );
    let us = |us: i64| Time::from_ps(us * 1_000_000);
    let within = |from: i64, to: i64| {
        let options = StepOptions {
            range: Some((us(from), us(to))),
            ..ALL
        };
        let report = step_report(&trace, options);
        let labels = report.labels.iter();
        labels
            .map(|row| (row.label.clone(), row.count, row.total.ps() / 1_000_000))
            .collect::<Vec<_>>()
    };
    let row = |label: &str, count: u64, us: i64| (label.to_owned(), count, us);
    assert_eq!(
        within(0, 60),
        [row("load", 3, 17), row("work", 1, 6)],
        "all steps"
    );
    assert_eq!(
        within(11, 28),
        [row("work", 1, 6), row("load", 1, 5)],
        "the second step"
    );
    assert_eq!(within(13, 28), [], "no whole step");
}

#[test]
fn labels_are_clipped_to_the_steps_and_recursion_counts_once() {
    let trace = ascii_trace::trace(
        "
        main   | epoch----------------------------
               |  step0-----  step1---------
               |    fwd--bwd     rec-----fwd
               |                  rec--
        loader | load------------------
        gpu/7 #device | k-----------------------------------
        ",
    );
    let report = step_report(&trace, ALL);
    assert_eq!(
        shown(&report),
        [
            "fwd (step thread): 2 x, 8 us, self 8, 0.33",
            "rec (step thread): 2 x, 8 us, self 8, 0.33",
            "bwd (step thread): 1 x, 3 us, self 3, 0.12",
            "load (other thread): 2 x, 19 us, self 19, 0.79",
        ]
    );
    assert_eq!(report.times.mean_ns, Some(12_000.0));
    let (found, expected) = both_sides(&trace);
    assert_eq!(found, expected);
}

#[test]
fn rows_of_another_profiler_belong_to_the_step_thread() {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    let mut track = |key: &str, name: &str, pid: i64, tid: i64| {
        let track = sink.track(key);
        let patch = TrackPatch {
            name: Some(name),
            pid: Some(pid),
            tid: Some(tid),
            ..TrackPatch::default()
        };
        sink.describe(track, patch);
        track
    };
    let main = track("main", "python", 7, 42);
    let places = [
        // XLA names the line of a thread after its number, and gives the line another number.
        (track("xla", "42", 7, 1_760_077_957), "named after it"),
        (track("same", "more", 7, 42), "same number"),
        (track("pool", "pool/9", 7, 9), "pool"),
        (track("another process", "python", 8, 42), "another process"),
    ];
    let mut slice = |track, name: &str, start: i64, step| {
        let name = sink.name(name);
        let (start, dur) = (Time::from_ps(start), Dur::from_ps(100));
        let slice = SliceIn {
            start,
            dur,
            name,
            step,
            ..SliceIn::default()
        };
        sink.slice(track, slice);
    };
    for number in 0..3 {
        slice(main, "step", number * 100, Some(number));
        for (track, name) in places {
            slice(track, name, number * 100, None);
        }
    }
    builder.add(sink);
    let report = step_report(&builder.finish(), ALL);
    let mut found: Vec<_> = report
        .labels
        .iter()
        .map(|row| (row.label.as_str(), row.place.as_str()))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("another process", "other thread"),
            ("named after it", "step thread (other track)"),
            ("pool", "other thread"),
            ("same number", "step thread (other track)"),
        ]
    );
}

#[test]
fn the_first_and_the_last_step_count_and_percentiles_interpolate() {
    let trace = ascii_trace::trace("main | step0-step1---step2-----step3-------");
    let found = steps(&trace);
    let times = found.times;
    assert_eq!((times.count, found.count()), (4, 4));
    assert_eq!(
        (times.min_ns, times.max_ns),
        (Some(6_000.0), Some(12_000.0))
    );
    assert_eq!(
        (times.mean_ns, times.p50_ns),
        (Some(9_000.0), Some(9_000.0))
    );
    assert_eq!((times.p90_ns, times.p99_ns), (None, None), "four steps");
    let ten: Vec<Dur> = (1..=10).map(|us| Dur::from_ps(us * 1_000_000)).collect();
    let p90 = StepStatistics::from_durations(&ten)
        .p90_ns
        .unwrap_or_default();
    assert!((p90 - 9_100.0).abs() < 1e-6, "{p90}");
    assert_eq!(percentile(&[], 0.5), None);
}

#[test]
fn steps_that_several_tracks_mark_count_once() {
    let trace = ascii_trace::trace(
        "
        main          | step0--- step1--- step2---
        gpu/s #steps  |   step1-----
        ",
    );
    let report = step_report(&trace, ALL);
    assert_eq!(report.times.count, 3);
    assert!(
        matches!(report.notes[..], [StepNote::AlsoMarkedOn { .. }]),
        "{:?}",
        report.notes
    );
}

#[test]
fn processes_that_mark_the_same_numbers_are_ranks() {
    let trace = ascii_trace::trace(
        "
        a #pid=1          | step0--- step1---
        b #pid=2          | step0----- step1-----
        s0 #device=0      | stepless>1-
        c #pid=2          |   step1---
        ",
    );
    let found = steps(&trace);
    assert_eq!((found.count(), found.ranks()), (2, 2));
    assert_eq!(found.times.count, 4, "{:?}", found.steps);
    let of = |process| {
        let rank = StepRank {
            file: 0,
            process: Some(process),
        };
        found.of_each[&rank].p50_ns
    };
    assert_eq!((of(1), of(2)), (Some(8_000.0), Some(10_000.0)));
}

#[test]
fn processes_that_mark_different_numbers_are_one_rank() {
    let trace = ascii_trace::trace(
        "
        a #pid=1          | step0---
        b #pid=2          |          step1---
        ",
    );
    let found = steps(&trace);
    assert_eq!((found.count(), found.ranks()), (2, 1));
}

/// A thread with numbered steps of 10 ps each.
fn trace_with_steps(names: &[(&str, i64)]) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    for (name, number) in names {
        let thread = sink.track(name);
        let slice = SliceIn {
            start: Time::from_ps(10 * number),
            dur: Dur::from_ps(10),
            name: sink.name(name),
            step: Some(*number),
            ..SliceIn::default()
        };
        sink.slice(thread, slice);
    }
    builder.add(sink);
    builder.finish()
}

#[test]
fn steps_of_an_optimizer_are_derived_and_marked_ones_take_precedence() {
    let numbers = |report: &StepReport| {
        report
            .steps
            .iter()
            .map(|step| step.number)
            .collect::<Vec<_>>()
    };
    let alone = trace_with_steps(&[(OPTIMIZER_STEP, 1), (OPTIMIZER_STEP, 2)]);
    let found = steps(&alone);
    assert_eq!(numbers(&found), [1, 2]);
    assert_eq!(found.derived.as_deref(), Some(OPTIMIZER_STEP));
    let marked_only = steps_of(&alone, true);
    assert!(marked_only.steps.is_empty());
    assert_eq!(marked_only.pattern.as_deref(), Some(OPTIMIZER_STEP));
    let both = trace_with_steps(&[(OPTIMIZER_STEP, 1), ("train", 7)]);
    let found = steps(&both);
    assert_eq!((numbers(&found), found.derived), (vec![7], None));
}

#[test]
fn run_without_steps_has_the_note_that_none_are_marked() {
    let report = step_report(&ascii_trace::trace("main | work----"), ALL);
    assert!(report.steps.is_empty() && report.labels.is_empty());
    assert_eq!(report.notes, [StepNote::NotMarked]);
    assert_eq!(report.times, StepStatistics::default());
}

proptest! {
    /// Every picosecond of a step is charged to exactly one label, or to the marker.
    #[test]
    fn self_times_and_markers_add_up_to_the_steps(
        moves in prop::collection::vec((any::<bool>(), 0..5_u8, 1..1_000_i64), 0..200)
    ) {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        let track = sink.track("main");
        let mut now = 0;
        let mut open: Vec<(i64, u8)> = Vec::new();
        let mut number = 0;
        let mut close = |begun: i64, now: i64, name: u8, outermost: bool| {
            number += i64::from(outermost);
            let text = if outermost { "step".to_owned() } else { format!("n{name}") };
            let name = sink.name(&text);
            let (start, dur) = (Time::from_ps(begun), Dur::from_ps(now - begun));
            let step = outermost.then_some(number);
            sink.slice(track, SliceIn { start, dur, name, step, ..SliceIn::default() });
        };
        for (down, name, length) in moves {
            if down && open.len() < 6 {
                open.push((now, name));
            } else if let Some((begun, name)) = open.pop() {
                close(begun, now, name, open.is_empty());
            }
            now += length;
        }
        while let Some((begun, name)) = open.pop() {
            close(begun, now, name, open.is_empty());
        }
        builder.add(sink);
        let trace = builder.finish();
        let (found, expected) = both_sides(&trace);
        prop_assert_eq!(found, expected);
    }
}
