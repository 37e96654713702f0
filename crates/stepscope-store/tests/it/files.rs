//! Several files of one run.

use stepscope_model::{
    Diagnostic, Dur, Epoch, EventSink, FlowDirection, FlowKey, NameId, SliceFlow, SliceIn, Time,
    TrackKind, TrackPatch,
};
use stepscope_store::{FileSpec, Trace, TraceBuilder};

struct File {
    host: &'static str,
    rank: Option<u32>,
    epoch: Epoch,
    first_ns: i64,
}

fn run(files: &[File]) -> Trace {
    let mut builder = TraceBuilder::new();
    for file in files {
        let mut sink = builder.file(FileSpec {
            host: file.host.to_owned(),
            rank: file.rank,
            ..FileSpec::default()
        });
        sink.epoch(file.epoch);
        let process = sink.track("1");
        sink.describe(
            process,
            TrackPatch {
                name: Some("python"),
                kind: Some(TrackKind::Group),
                ..TrackPatch::default()
            },
        );
        let thread = sink.track("1/2");
        sink.describe(
            thread,
            TrackPatch {
                parent: Some(process),
                ..TrackPatch::default()
            },
        );
        let name = sink.name(&format!("work of {}", file.host));
        let shared = sink.name("shared");
        for (place, name) in [name, shared].into_iter().enumerate() {
            sink.slice(
                thread,
                SliceIn {
                    start: Time::from_ps(file.first_ns * 1_000 + place as i64 * 10),
                    dur: Dur::from_ps(5),
                    name,
                    category: NameId::EMPTY,
                    ..SliceIn::default()
                },
            );
        }
        builder.add(sink);
    }
    let trace = builder.finish();
    trace.debug_validate().expect("every invariant holds");
    trace
}

fn keys(trace: &Trace) -> Vec<&str> {
    trace
        .tracks()
        .iter()
        .map(|track| track.key.as_str())
        .collect()
}

#[test]
fn hosts_share_one_clock() {
    let epoch = |origin_ns, unix_ns| Epoch {
        origin_ns,
        unix_ns: Some(unix_ns),
    };
    let trace = run(&[
        File {
            host: "b",
            rank: None,
            epoch: epoch(7_000, 1_000_000_500),
            first_ns: 1,
        },
        File {
            host: "a",
            rank: None,
            epoch: epoch(9_000, 1_000_000_000),
            first_ns: 2,
        },
    ]);
    assert_eq!(keys(&trace), ["b", "b/1", "b/1/2", "a", "a/1", "a/1/2"]);
    let start = |key: &str| {
        let thread = trace.track_by_key(key).expect("a key of the run");
        trace.slices(thread).start[0].ps()
    };
    assert_eq!(start("b/1/2"), 501_000);
    assert_eq!(start("a/1/2"), 2_000);
    assert_eq!(trace.files()[0].shift, Dur::from_ps(500_000));
    assert_eq!(trace.epoch(), epoch(9_000, 1_000_000_000));
    assert!(trace.diagnostics().is_empty());
    let thread = &trace.tracks()[2];
    assert_eq!((thread.name.as_str(), thread.file), ("1/2", 0));
    assert_eq!(trace.name_count(), 4, "equal names are one name");
}

#[test]
fn without_a_common_clock_beginnings_are_lined_up() {
    let file = |rank, unix_ns, first_ns| File {
        host: "same",
        rank: Some(rank),
        epoch: Epoch {
            origin_ns: 0,
            unix_ns,
        },
        first_ns,
    };
    let trace = run(&[file(1, None, 40), file(0, Some(5), 3)]);
    assert_eq!(
        keys(&trace),
        [
            "rank 1",
            "rank 1/1",
            "rank 1/1/2",
            "rank 0",
            "rank 0/1",
            "rank 0/1/2"
        ]
    );
    for key in ["rank 1/1/2", "rank 0/1/2"] {
        let thread = trace.track_by_key(key).expect("a key of the run");
        assert_eq!(trace.slices(thread).start[0].ps(), 40_000);
    }
    assert_eq!(trace.diagnostics()[0].what, Diagnostic::UnalignedClock);
}

#[test]
fn files_of_equal_hosts_get_distinct_keys() {
    let file = || File {
        host: "h",
        rank: None,
        epoch: Epoch {
            origin_ns: 0,
            unix_ns: Some(0),
        },
        first_ns: 0,
    };
    let trace = run(&[file(), file(), file()]);
    let groups: Vec<_> = keys(&trace)
        .into_iter()
        .filter(|key| !key.contains('/'))
        .collect();
    assert_eq!(groups, ["h", "h #2", "h #3"]);
}

#[test]
fn an_empty_run_says_so() {
    let trace = run(&[]);
    assert_eq!(trace.diagnostics()[0].what, Diagnostic::EmptyTrace);
    assert!(trace.span().is_empty());
    assert_eq!(trace.slice_span(), None);
    assert!(trace.tracks().is_empty());
}

#[test]
fn the_same_number_in_two_files_is_no_link_between_them() {
    let mut builder = TraceBuilder::new();
    for (host, direction) in [("a", FlowDirection::Out), ("b", FlowDirection::In)] {
        let mut sink = builder.file(FileSpec {
            host: host.to_owned(),
            ..FileSpec::default()
        });
        sink.epoch(Epoch::default());
        let track = sink.track("1/2");
        let (name, category) = (sink.name("work"), sink.name("ac2g"));
        let key = FlowKey { category, id: 7 };
        sink.slice(
            track,
            SliceIn {
                dur: Dur::from_ps(5),
                name,
                flows: &[SliceFlow { key, direction }],
                ..SliceIn::default()
            },
        );
        builder.add(sink);
    }
    let trace = builder.finish();
    assert_eq!((trace.flow_edge_count(), trace.flow_count()), (0, 0));
}
