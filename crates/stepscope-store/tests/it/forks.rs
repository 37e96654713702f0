//! The result does not depend on the order of emitting, nor on forks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stepscope_model::EventSink;
use stepscope_store::{FileSpec, Trace, TraceBuilder};

use crate::random::{Emitted, build, describe, emit, events, everything};

/// Slices as a set of texts without ids: what is left when the order is taken away.
fn slices(trace: &Trace) -> Vec<String> {
    let mut all = Vec::new();
    for track in trace.tracks() {
        let slices = trace.slices(track.id);
        for index in 0..slices.len() {
            let Some(event) = trace.event(slices.id(index)) else {
                continue;
            };
            all.push(format!(
                "{} {:?} {:?} {} {} {} {:?} {:?} {:?} {}",
                track.key,
                event.start,
                event.dur,
                trace.name(event.name),
                event.depth,
                event.row,
                event.self_time,
                event.step,
                event.args,
                trace.name(event.category),
            ));
        }
    }
    all
}

/// Keeps the first of slices that begin and end together on one track: only these have an order
/// that emitting decides.
fn distinct(events: Vec<Emitted>) -> Vec<Emitted> {
    let mut seen = BTreeSet::new();
    events
        .into_iter()
        .filter(|event| match event {
            Emitted::Slice {
                track, start, dur, ..
            } => seen.insert((*track, *start, *dur)),
            _ => true,
        })
        .collect()
}

/// Pours through forks: `plan` says for each event which of four forks takes it (0: the parent,
/// before forking; 3: a fork of fork 2).
fn build_forked(events: &[Emitted], plan: &[u8]) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut parent = builder.file(FileSpec::default());
    describe(&mut parent);
    let of = |fork: u8| {
        let choice = plan.iter().cycle();
        events
            .iter()
            .zip(choice)
            .filter(move |(_, chosen)| **chosen == fork)
            .map(|(event, _)| event)
    };
    for event in of(0) {
        emit(event, &mut parent);
    }
    let mut first = parent.fork();
    let mut second = parent.fork();
    for event in of(2) {
        emit(event, &mut second);
    }
    let mut third = second.fork();
    for event in of(3) {
        emit(event, &mut third);
    }
    for event in of(1) {
        emit(event, &mut first);
    }
    second.merge(third);
    parent.merge(first);
    parent.merge(second);
    builder.add(parent);
    builder.finish()
}

/// As [`build_forked`], without forks: in the order in which the forks are merged.
fn build_in_merge_order(events: &[Emitted], plan: &[u8]) -> Trace {
    let ordered: Vec<_> = (0..4)
        .flat_map(|fork| {
            events
                .iter()
                .zip(plan.iter().cycle())
                .filter(move |(_, chosen)| **chosen == fork)
                .map(|(event, _)| event.clone())
        })
        .collect();
    build(&ordered)
}

proptest! {
    #[test]
    fn every_invariant_holds(events in events()) {
        build(&events).debug_validate().map_err(|found| TestCaseError::fail(found.join("\n")))?;
    }

    #[test]
    fn emit_order_does_not_matter(events in events(), seed in any::<u64>()) {
        let events = distinct(events);
        let mut shuffled = events.clone();
        // A cheap shuffle that the seed decides.
        let mut state = seed | 1;
        for index in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let other = usize::try_from(state >> 33).unwrap_or(0) % (index + 1);
            shuffled.swap(index, other);
        }
        let (a, b) = (build(&events), build(&shuffled));
        prop_assert_eq!(slices(&a), slices(&b));
        prop_assert_eq!(a.tracks(), b.tracks());
        prop_assert_eq!(a.flow_count(), b.flow_count());
    }

    #[test]
    fn forks_do_not_matter(events in events(), plan in prop::collection::vec(0_u8..4, 1..9)) {
        let forked = build_forked(&events, &plan);
        forked.debug_validate().map_err(|found| TestCaseError::fail(found.join("\n")))?;
        let plain = build_in_merge_order(&events, &plan);
        prop_assert_eq!(slices(&forked), slices(&plain));
        prop_assert_eq!(forked.tracks(), plain.tracks());
        prop_assert_eq!(everything(&forked), everything(&build_forked(&events, &plan)));
    }

    #[test]
    fn replaying_a_trace_keeps_it(events in events()) {
        let trace = build(&events);
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        trace.replay_into(&mut sink);
        builder.add(sink);
        let again = builder.finish();
        again.debug_validate().map_err(|found| TestCaseError::fail(found.join("\n")))?;
        prop_assert_eq!(slices(&trace), slices(&again));
        prop_assert_eq!(trace.tracks(), again.tracks());
        prop_assert_eq!(trace.flow_count(), again.flow_count());
        prop_assert_eq!(trace.flow_edge_count(), again.flow_edge_count());
        prop_assert_eq!(trace.step_marks(), again.step_marks());
    }
}

#[test]
fn a_hundred_thousand_forks_over_many_tracks_are_cheap() {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    let tracks: Vec<_> = (0..50_000).map(|i| sink.track(&format!("1/{i}"))).collect();
    let forks: Vec<_> = tracks
        .iter()
        .map(|track| {
            let mut fork = sink.fork();
            let name = fork.name(&format!("name {}", track.0 % 7));
            let slice = stepscope_model::SliceIn {
                name,
                ..stepscope_model::SliceIn::default()
            };
            fork.slice(*track, slice);
            fork
        })
        .collect();
    for fork in forks {
        sink.merge(fork);
    }
    builder.add(sink);
    let trace = builder.finish();
    assert_eq!(trace.slice_count(), 50_000);
    assert_eq!(trace.name_count(), 8);
}

/// Slices of one track in four stretches, each by a fork of its own: with and without saying how
/// many are coming, one by one and in columns.
fn stretches(expect: bool, columns: bool) -> String {
    use stepscope_model::{ArgRef, Dur, NameId, SliceColumns, SliceIn, SourceId, Time};
    const EACH: i64 = 5_000;
    let mut builder = TraceBuilder::new();
    let mut parent = builder.file(FileSpec::default());
    let track = parent.track("1/1");
    let shared = parent.name("shared");
    if expect {
        parent.expect_slices(track, 4 * 5_000);
    }
    let mut forks: Vec<_> = (0..4).map(|_| parent.fork()).collect();
    for (number, fork) in (0..).zip(&mut forks) {
        if expect {
            fork.expect_slices(track, 5_000);
        }
        let own = fork.name(&format!("of fork {number}"));
        let first = number * EACH;
        let start: Vec<_> = (first..first + EACH)
            .map(|at| Time::from_ps(at * 10))
            .collect();
        let dur: Vec<_> = (0..EACH).map(|at| Dur::from_ps(at % 13 - 1)).collect();
        let name: Vec<_> = (0..EACH)
            .map(|at| if at % 3 == 0 { own } else { shared })
            .collect();
        let category: Vec<_> = (0..EACH)
            .map(|at| {
                if number == 2 && at > 4_000 {
                    shared
                } else {
                    NameId::EMPTY
                }
            })
            .collect();
        // None at first, near ones, and one that lies far from all others.
        let args: Vec<_> = (0..EACH)
            .map(|at| match (number, at) {
                (0, _) => ArgRef::NONE,
                (3, 4_321) => ArgRef::new(SourceId(0), 1 << 40),
                (_, at) if at % 4 == 0 => ArgRef::new(SourceId(0), (first + at) as u64),
                _ => ArgRef::NONE,
            })
            .collect();
        let all = SliceColumns {
            start: &start,
            dur: &dur,
            name: &name,
            category: &category,
            args: &args,
        };
        let marked = SliceIn {
            start: Time::from_ps((first + EACH) * 10 - 1),
            name: own,
            step: Some(number),
            ..SliceIn::default()
        };
        if columns {
            fork.slices(track, all);
        } else {
            all.iter().for_each(|slice| fork.slice(track, slice));
        }
        fork.slice(track, marked);
    }
    for fork in forks {
        parent.merge(fork);
    }
    builder.add(parent);
    let trace = builder.finish();
    assert_eq!(trace.debug_validate(), Ok(()));
    assert_eq!(trace.slice_count(), 20_004);
    format!("{:?} {}", slices(&trace), everything(&trace))
}

#[test]
fn room_and_columns_change_nothing() {
    let plain = stretches(false, false);
    assert!(plain.contains("of fork 3"));
    for (expect, columns) in [(true, false), (false, true), (true, true)] {
        assert!(stretches(expect, columns) == plain, "{expect} {columns}");
    }
}
