//! Collectives of drawn traces.

use stepscope_model::{Epoch, EventSink as _, SliceIn, TrackKind, TrackPatch};
use stepscope_store::{FileSpec, TraceBuilder};

use super::*;

/// Builds a run of two ranks: starts and ends of the all-reduces of each, microseconds.
fn run(ranks: &[&[(i64, i64)]]) -> Trace {
    run_on(
        TrackKind::DeviceQueue,
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        ranks,
    )
}

/// Builds the same run with collectives of this name on such tracks.
fn run_on(kind: TrackKind, name: &str, ranks: &[&[(i64, i64)]]) -> Trace {
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
                kind: Some(kind),
                device: (kind == TrackKind::DeviceQueue).then_some(0),
                ..TrackPatch::default()
            },
        );
        let name = sink.name(name);
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

fn found(ranks: &[&[(i64, i64)]]) -> Collectives {
    found_in(&run(ranks))
}

fn found_in(trace: &Trace) -> Collectives {
    let cancel = Cancel::default();
    let devices = Devices::from_trace(trace, &cancel).unwrap();
    let launches = Launches::from_trace(trace, &devices, &cancel).unwrap();
    collectives(trace, &devices, &launches, &cancel).unwrap()
}

const US: i64 = 1_000_000;

#[test]
fn last_participant_to_start_is_late() {
    let found = found(&[&[(0, 20), (100, 130)], &[(15, 20), (90, 130)]]);
    assert_eq!(found.collectives.len(), 2);
    let late: Vec<_> = found
        .collectives
        .iter()
        .map(|one| (one.spread.unwrap().ps() / US, one.last.unwrap().file))
        .collect();
    assert_eq!(late, [(15, 1), (10, 0)]);
    let transfers: Vec<_> = found
        .collectives
        .iter()
        .map(|one| one.transfer.ps() / US)
        .collect();
    assert_eq!(transfers, [5, 30]);
    let clock = &found.clocks[0];
    assert_eq!((clock.applied, clock.estimate), (Dur::ZERO, Dur::ZERO));
    // From the first: start 0 and end 20 against start 15 and end 20.
    assert_eq!(clock.bounds.unwrap().1, Dur::from_ps(5 * US));
}

#[test]
fn impossible_clocks_are_shifted() {
    // The second file is 1,000 us late, and its rank starts last.
    let found = found(&[&[(0, 20), (100, 130)], &[(1_015, 1_020), (1_120, 1_130)]]);
    let clock = &found.clocks[0];
    assert_eq!(clock.applied, Dur::from_ps(-1_000 * US));
    assert_eq!(clock.shared, 2);
    assert!(clock.error().unwrap() <= Dur::from_ps(20 * US));
    let spreads: Vec<_> = found
        .collectives
        .iter()
        .map(|one| one.spread.unwrap().ps() / US)
        .collect();
    assert_eq!(spreads, [15, 20]);
}

#[test]
fn collectives_without_a_group_match_by_name() {
    let trace = run_on(
        TrackKind::Thread,
        "gloo:all_reduce",
        &[&[(0, 10)], &[(3, 10)]],
    );
    let found = found_in(&trace);
    assert_eq!(found.collectives.len(), 1);
    for part in &found.parts {
        assert_eq!(
            (part.group.as_str(), part.operation.as_str()),
            ("", "gloo:all_reduce")
        );
    }
}

#[test]
fn different_counts_are_not_matched() {
    let found = found(&[&[(0, 20), (100, 130)], &[(15, 20)]]);
    assert_eq!(found.unmatched, ["all-reduce"]);
    assert_eq!(found.collectives.len(), 3);
    assert!(found.collectives.iter().all(|one| one.last.is_none()));
}

#[test]
fn bandwidths_equal_nccl_tests() {
    for (kind, n, factor) in [
        (CollectiveOp::AllReduce, 4, 1.5),
        (CollectiveOp::AllGather, 4, 0.75),
        (CollectiveOp::AllToAll, 2, 0.5),
        (CollectiveOp::Broadcast, 8, 1.0),
        (CollectiveOp::AllReduce, 0, 0.0),
    ] {
        assert!((kind.bus_factor(n) - factor).abs() < 1e-12, "{kind:?}");
    }
    assert_eq!(CollectiveOp::AllGather.size(10, 40), 40);
    assert_eq!(CollectiveOp::ReduceScatter.size(40, 10), 40);
}

#[test]
fn kinds_are_read_from_names() {
    for (name, kind) in [
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
            CollectiveOp::ReduceScatter,
        ),
        ("nccl:all_to_all", CollectiveOp::AllToAll),
        ("all-gather-start.4", CollectiveOp::AllGather),
        ("_allgather_base", CollectiveOp::AllGather),
        (
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)",
            CollectiveOp::SendRecv,
        ),
        (
            "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
            CollectiveOp::Other,
        ),
        ("gloo:barrier", CollectiveOp::Barrier),
    ] {
        assert_eq!(CollectiveOp::from_name(name), kind, "{name}");
    }
}

/// Rank 1 starts 2 us after rank 0, and the clocks may differ by up to 8 us.
#[test]
fn arrivals_within_the_error_of_the_clocks_are_not_compared() {
    let found = found(&[&[(0, 10), (100, 110)], &[(2, 10), (102, 110)]]);
    assert_eq!(found.clocks[0].arrival_error(), Some(Dur::from_ps(8 * US)));
    assert!(!found.comparable(&found.collectives[0]));
}
