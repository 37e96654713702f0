//! Operations of drawn traces.

use stepscope_model::{Dur, Epoch, EventSink, SliceIn, TrackPatch};
use stepscope_store::{FileSpec, TraceBuilder, ascii_trace};

use super::*;

fn shown(drawing: &str, by: OpGrouping) -> Vec<String> {
    let trace = ascii_trace::trace(drawing);
    let query = OpsQuery {
        by,
        split: Split::None,
        range: None,
    };
    let report = ops(&trace, &query, &Cancel::default()).unwrap();
    report
        .rows
        .iter()
        .map(|row| {
            format!(
                "{}: {} x, {} us, self {}, p95 {:.2}, {:.2}",
                row.name,
                row.count,
                row.total_ps / 1_000_000,
                row.self_ps / 1_000_000,
                row.p95_ns / 1_000.0,
                row.share
            )
        })
        .collect()
}

#[test]
fn nested_calls_of_one_name_count_once_in_the_outermost_total() {
    let trace = ascii_trace::trace(
        "
        main | f-----------------  f---
             |  f--- g------
             |        f--
        ",
    );
    let query = OpsQuery {
        by: OpGrouping::Label,
        split: Split::None,
        range: None,
    };
    let report = ops(&trace, &query, &Cancel::default()).unwrap();
    let row = report.rows.iter().find(|row| row.name == "f").unwrap();
    let us = |ps: i128| ps / 1_000_000;
    assert_eq!(
        (row.count, us(row.outermost_ps), us(row.total_ps)),
        (4, 22, 29)
    );
}

#[test]
fn self_time_excludes_nested_operations_of_the_same_class() {
    let rows = shown(
        "
        main | load-----------------   Big------
             |  read-----  Decode---
             |    seek               |
        ",
        OpGrouping::Label,
    );
    assert_eq!(
        rows,
        [
            "load: 1 x, 21 us, self 12, p95 21.00, 0.57",
            "read: 1 x, 9 us, self 5, p95 9.00, 0.24",
            "seek: 1 x, 4 us, self 4, p95 4.00, 0.19",
        ]
    );
}

/// The trace moves the inner one to another row, because it overlaps a slice of another class.
#[test]
fn overlapping_another_class_keeps_nesting_within_the_class() {
    let rows = shown(
        "
        main | load-----------------
             |   Big------
             |       read------
        ",
        OpGrouping::Label,
    );
    assert_eq!(
        rows,
        [
            "load: 1 x, 21 us, self 11, p95 21.00, 0.52",
            "read: 1 x, 10 us, self 10, p95 10.00, 0.48",
        ]
    );
}

/// Builds a device with a line of programs and a line of operations: (name, start, length) in microseconds.
fn device(modules: &[(&str, i64, i64)], operations: &[(&str, i64, i64)]) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    for (line, slices) in [("XLA Modules", modules), ("XLA Ops", operations)] {
        let track = sink.track(line);
        sink.describe(
            track,
            TrackPatch {
                name: Some(line),
                kind: Some(TrackKind::DeviceQueue),
                ..TrackPatch::default()
            },
        );
        for (name, start, length) in slices {
            let name = sink.name(name);
            let (start, dur) = (
                Time::from_ps(start * 1_000_000),
                Dur::from_ps(length * 1_000_000),
            );
            sink.slice(
                track,
                SliceIn {
                    start,
                    dur,
                    name,
                    ..SliceIn::default()
                },
            );
        }
    }
    builder.add(sink);
    builder.finish()
}

#[test]
fn operations_belong_to_the_running_program_and_loop_bodies_count_once() {
    let trace = device(
        &[("jit_f(7)", 0, 20), ("jit_g(8)", 30, 10)],
        &[
            ("%while.1 = (f32[]) while(%t)", 0, 12),
            ("%dot.2 = f32[8,4]{1,0} dot(%a, %b)", 1, 4),
            ("%dot.2 = f32[8,4]{1,0} dot(%a, %b)", 6, 4),
            ("%dot.2 = f32[8,4]{1,0} dot(%a, %b)", 31, 5),
            ("%dot.2 = f32[8,4]{1,0} dot(%a, %b)", 50, 1),
        ],
    );
    let (by, report) = first_look(&trace, Split::None, None, &Cancel::default()).unwrap();
    assert_eq!(by, OpGrouping::Hlo);
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| {
            let program = row.program.as_deref().unwrap_or("-");
            let own = row.self_ps / 1_000_000;
            (&*row.name, program, &*row.category, row.count, own)
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("dot.2", "jit_f(7)", "dot", 2, 8),
            ("dot.2", "jit_g(8)", "dot", 1, 5),
            ("while.1", "jit_f(7)", "while", 1, 4),
            ("dot.2", "-", "dot", 1, 1),
        ]
    );
    assert_eq!(report.rows[0].shapes.as_deref(), Some("f32[8,4]"));
}

#[test]
fn empty_trace_has_no_operations() {
    assert!(shown("main | Step", OpGrouping::Framework).is_empty());
    let trace = ascii_trace::trace("main | Step");
    let (_, found) = first_look(&trace, Split::None, None, &Cancel::default()).unwrap();
    assert_eq!((found.rows.len(), found.self_ps), (0, 0));
}

proptest::proptest! {
    /// The rows are the same to the last digit, however tracks are split into chunks.
    #[test]
    fn chunk_size_does_not_change_the_rows(
        moves in proptest::collection::vec((proptest::bool::ANY, 0..6_usize, 0..50_i64), 1..120),
        part in 1..40_usize,
        window in proptest::option::of((0..1_000_i64, 1..1_000_i64)),
    ) {
        // Python functions, modules and labels inside each other.
        const NAMES: [(&str, &str); 6] = [
            ("a.py(1): f", "python_function"),
            ("nn.Module: Net_0", "python_function"),
            ("nn.Module: Linear_0", "python_function"),
            ("aten::mm", "cpu_op"),
            ("aten::add", "cpu_op"),
            ("forward", "user_annotation"),
        ];
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        let track = sink.track("main");
        let mut open: Vec<(i64, usize)> = Vec::new();
        let mut now = 0;
        let mut close = |begun: i64, now: i64, name: usize| {
            let (name, category) = NAMES[name];
            let (name, category) = (sink.name(name), sink.name(category));
            let (start, dur) = (Time::from_ps(begun), Dur::from_ps(now - begun));
            sink.slice(track, SliceIn { start, dur, name, category, ..SliceIn::default() });
        };
        for (down, name, length) in moves {
            if down && open.len() < 9 {
                open.push((now, name));
            } else if let Some((begun, name)) = open.pop() {
                close(begun, now, name);
            }
            now += length;
        }
        while let Some((begun, name)) = open.pop() {
            close(begun, now, name);
        }
        builder.add(sink);
        let trace = builder.finish();
        let range = window.map(|(from, length)| Time::from_ps(from)..Time::from_ps(from + length));
        for (by, split) in [
            (OpGrouping::Framework, Split::None),
            (OpGrouping::Framework, Split::Shapes),
            (OpGrouping::Framework, Split::Stack),
            (OpGrouping::Module, Split::None),
            (OpGrouping::Label, Split::Stack),
            (OpGrouping::Python, Split::None),
        ] {
            let query = OpsQuery { by, split, range: range.clone() };
            let rows = |part: usize| {
                let catalogue = hlo::Catalogue::default();
                let cancel = Cancel::default();
                let launched = launched::LaunchedBySlice::default();
                let known = (&catalogue, &launched);
                let found = collect::collect(&trace, &query, known, part, &cancel).unwrap();
                rows::finish(&trace, &query, &catalogue, found, false)
            };
            proptest::prop_assert_eq!(rows(part), rows(usize::MAX), "{:?} {:?}", by, split);
        }
    }
}
