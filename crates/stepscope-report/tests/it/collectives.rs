//! The report `collectives` of runs of several ranks.

use stepscope_analysis::parallel::Cancel;
use stepscope_model::{Dur, Epoch, EventSink as _, SliceIn, Time, TrackKind, TrackPatch};
use stepscope_report::report::Cell;
use stepscope_report::reports;
use stepscope_store::{FileSpec, Trace, TraceBuilder};

/// Builds a run from the starts and ends of each rank's all-reduces, microseconds.
pub(crate) fn run(ranks: &[&[(i64, i64)]]) -> Trace {
    let mut builder = TraceBuilder::new();
    for (rank, times) in (0..).zip(ranks) {
        let mut sink = builder.file(FileSpec {
            host: format!("rank {rank}"),
            rank: Some(rank),
            ..FileSpec::default()
        });
        sink.epoch(Epoch {
            origin_ns: 0,
            unix_ns: Some(1_000_000),
        });
        let track = sink.track("0/7");
        sink.describe(
            track,
            TrackPatch {
                kind: Some(TrackKind::DeviceQueue),
                device: Some(0),
                ..TrackPatch::default()
            },
        );
        let name = sink.name("ncclDevKernel_AllReduce_Sum_f32_RING_LL");
        let category = sink.name("kernel");
        for (start, end) in *times {
            let slice = SliceIn {
                start: Time::from_ps(start * 1_000_000),
                dur: Dur::from_ps((end - start) * 1_000_000),
                name,
                category,
                ..SliceIn::default()
            };
            sink.slice(track, slice);
        }
        builder.add(sink);
    }
    builder.finish()
}

/// Rank 1 begins 2 us after rank 0, while the error of the clocks is 8 us.
#[test]
fn arrivals_within_the_clock_error_have_no_delay() {
    let trace = run(&[&[(0, 10), (100, 110)], &[(2, 10), (102, 110)]]);
    let (options, cancel) = (reports::Options::default(), Cancel::default());
    let report = reports::make(&trace, "collectives", &options, &cancel).unwrap();
    let section = |name: &str| {
        let found = report.sections.iter().find(|section| section.name == name);
        &found.unwrap().table
    };
    assert_eq!(
        section("participants").rows[1][1..3],
        [Cell::Int(0), Cell::Empty]
    );
    let note = report.notes[0].to_string();
    assert!(note.ends_with("which rank came last is unknown."), "{note}");
    let sentence = report.sentence.to_string();
    assert!(!sentence.contains("caused"), "{sentence}");
}

/// A walk for each rank over all the others would take minutes here.
#[test]
fn thousands_of_ranks_are_compared_in_one_walk() {
    const RANKS: i64 = 1500;
    let times: Vec<Vec<(i64, i64)>> = (0..RANKS)
        .map(|rank| {
            let late = if rank == 700 { 15 } else { 0 };
            vec![(late, 20), (100 + late, 130)]
        })
        .collect();
    let ranks: Vec<&[(i64, i64)]> = times.iter().map(Vec::as_slice).collect();
    let trace = run(&ranks);
    let cancel = Cancel::default();
    let options = reports::Options {
        by: Some("collective".to_owned()),
        ..reports::Options::default()
    };
    let report = reports::make(&trace, "collectives", &options, &cancel).unwrap();
    let section = |name: &str| {
        let found = report.sections.iter().find(|section| section.name == name);
        &found.unwrap().table
    };
    let late = section("participants");
    assert_eq!(late.rows.len(), 1500);
    // 15 µs late in each of two, all others waiting for it; the clocks are off by 5 µs at most.
    let row = |count: i64, late: f64, kept: f64, waited: f64| {
        [
            Cell::Int(2),
            Cell::Int(count),
            Cell::Number(late),
            Cell::Number(kept),
            Cell::Number(waited),
        ]
    };
    assert_eq!(late.rows[700][1..], row(2, 15000.0, 30000.0, 0.0));
    assert_eq!(late.rows[701][1..], row(0, 0.0, 0.0, 30000.0));
    assert_eq!(section("clocks").rows.len(), 1499);
    assert_eq!(report.table.rows.len(), 2);
}
