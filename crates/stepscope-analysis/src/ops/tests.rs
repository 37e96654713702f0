//! Operations of drawn traces.

use stepscope_model::{Dur, Epoch, EventSink, SliceIn, TrackPatch};
use stepscope_store::{FileSpec, TraceBuilder, drawing};

use super::*;

fn shown(drawing: &str, by: By) -> Vec<String> {
    let trace = drawing::trace(drawing);
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
fn self_time_leaves_out_what_is_inside_of_the_same_class() {
    let rows = shown(
        "
        main | load-----------------   Big------
             |  read-----  Decode---
             |    seek               |
        ",
        By::Label,
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

/// A device with a line of programs and a line of operations: (name, start, length) in microseconds.
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
fn operations_belong_to_the_program_that_runs_and_loops_to_what_they_repeat() {
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
    assert_eq!(by, By::Hlo);
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
fn nothing_is_nothing() {
    assert!(shown("main | Step", By::Framework).is_empty());
    let trace = drawing::trace("main | Step");
    let (_, found) = first_look(&trace, Split::None, None, &Cancel::default()).unwrap();
    assert_eq!((found.rows.len(), found.self_ps), (0, 0));
}
