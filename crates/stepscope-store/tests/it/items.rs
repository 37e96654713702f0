//! Levels of detail: nothing is missed, at any zoom.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stepscope_model::{Dur, EventSink, SliceIn, Time};
use stepscope_store::{FileSpec, Items, Trace, TraceBuilder};

use crate::random::{build, events};

fn t(ps: i64) -> Time {
    Time::from_ps(ps)
}

/// Slices of a track that intersect the window, by row.
fn expected(
    trace: &Trace,
    track: stepscope_model::TrackId,
    window: &std::ops::Range<Time>,
) -> BTreeMap<u16, u32> {
    let slices = trace.slices(track);
    let mut rows = BTreeMap::new();
    for index in 0..slices.len() {
        let (start, end) = (slices.start[index], slices.end(index));
        let within = start < window.end && (end > window.start || start >= window.start);
        if within {
            let row = trace.event(slices.id(index)).map_or(0, |event| event.row);
            *rows.entry(row).or_insert(0) += 1;
        }
    }
    rows
}

fn counts(items: &Items) -> BTreeMap<u16, u32> {
    let mut rows = BTreeMap::new();
    for (row, count) in items.row.iter().zip(&items.count) {
        *rows.entry(*row).or_insert(0) += count;
    }
    rows
}

proptest! {
    #[test]
    fn no_slice_is_missed(
        events in events(),
        begin in -10_000_i64..210_000,
        length in 1_i64..250_000,
        bins in 1_u32..300,
    ) {
        let trace = build(&events);
        let window = t(begin)..t(begin + length);
        for track in trace.tracks() {
            let items = trace.items(track.id, window.clone(), bins);
            prop_assert_eq!(counts(&items), expected(&trace, track.id, &window));
            let width = (length + i64::from(bins) - 1) / i64::from(bins);
            for index in 0..items.len() {
                let event = trace.event(items.id[index]).expect("an item names an event");
                prop_assert_eq!(event.row, items.row[index]);
                prop_assert_eq!(event.name, items.name[index]);
                prop_assert_eq!(event.kind, items.kind[index]);
                let end = event.start.saturating_add(event.dur);
                prop_assert!(items.t0[index] <= event.start && end <= items.t1[index]);
                if items.count[index] == 1 {
                    prop_assert_eq!((items.t0[index], items.t1[index]), (event.start, end));
                } else {
                    // Merged events begin in one bin and are shorter than a bin.
                    let bin = items.t0[index].ps().div_euclid(width);
                    prop_assert!(event.dur < Dur::from_ps(width));
                    prop_assert_eq!(event.start.ps().div_euclid(width), bin);
                }
            }
            for index in 1..items.len() {
                let place = |index: usize| (items.row[index], items.t0[index]);
                prop_assert!(place(index - 1) <= place(index));
            }
        }
    }

    #[test]
    fn bins_stay_where_they_are_while_panning(events in events(), shift in 0_i64..50) {
        let trace = build(&events);
        let width = 4_000;
        let (a, b) = (t(0)..t(50 * width), t(shift * width)..t((shift + 50) * width));
        for track in trace.tracks() {
            let (a, b) = (
                trace.items(track.id, a.clone(), 50),
                trace.items(track.id, b.clone(), 50),
            );
            // Merged items that lie inside both windows are the same.
            let inside = |items: &Items| -> Vec<_> {
                (0..items.len())
                    .filter(|i| {
                        items.t0[*i] >= t(shift * width) && items.t0[*i] < t(50 * width)
                    })
                    .map(|i| (items.row[i], items.t0[i], items.t1[i], items.id[i], items.count[i], items.busy[i]))
                    .collect()
            };
            prop_assert_eq!(inside(&a), inside(&b));
        }
    }

    #[test]
    fn busy_is_the_union(
        events in events(),
        begin in -10_000_i64..210_000,
        length in 1_i64..250_000,
    ) {
        let trace = build(&events);
        let window = t(begin)..t(begin + length);
        let mut all = Vec::new();
        for track in trace.tracks() {
            let slices = trace.slices(track.id);
            let candidates = trace.candidates(track.id, window.clone());
            let mut covered: Vec<(i64, i64)> = Vec::new();
            for index in 0..slices.len() {
                let from = slices.start[index].max(window.start);
                let to = slices.end(index).min(window.end);
                if to > from {
                    covered.push((from.ps(), to.ps()));
                    prop_assert!(candidates.contains(&index));
                }
            }
            all.extend(covered.iter().copied());
            prop_assert_eq!(trace.busy(track.id, window.clone()).ps(), union(covered));
        }
        let tracks: Vec<_> = trace.tracks().iter().map(|track| track.id).collect();
        let strip = trace.busy_strip(&tracks, window, 1);
        let share = union(all) as f64 / length as f64 * 255.0;
        prop_assert!((f64::from(strip[0]) - share).abs() <= 1.0, "{:?} is not {}", strip, share);
    }
}

fn union(mut covered: Vec<(i64, i64)>) -> i64 {
    covered.sort_unstable();
    let mut reached = i64::MIN;
    let mut sum = 0;
    for (from, to) in covered {
        sum += (to - from.max(reached)).max(0);
        reached = reached.max(to);
    }
    sum
}

#[test]
fn counters_keep_their_extremes() {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    let track = sink.track("c");
    for (at, value) in [
        (5, 1.0),
        (10, 3.0),
        (12, -2.0),
        (14, 4.0),
        (29, 0.5),
        (60, 9.0),
    ] {
        sink.counter(track, t(at), value);
    }
    builder.add(sink);
    let trace = builder.finish();
    let bins = trace.counter_bins(trace.tracks()[0].id, t(10)..t(50), 4);
    assert_eq!(bins.t, [t(5), t(10), t(29)]);
    assert_eq!(bins.min, [1.0, -2.0, 0.5]);
    assert_eq!(bins.max, [1.0, 4.0, 0.5]);
    assert_eq!(bins.last, [1.0, 4.0, 0.5]);
}

#[test]
fn idle_gaps_show_in_merged_items() {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    let track = sink.track("t");
    for index in 0..1_000 {
        sink.slice(
            track,
            SliceIn {
                start: t(index * 100),
                dur: Dur::from_ps(if index % 10 == 3 { 50 } else { 25 }),
                ..SliceIn::default()
            },
        );
    }
    builder.add(sink);
    let trace = builder.finish();
    let items = trace.items(trace.tracks()[0].id, t(0)..t(100_000), 100);
    assert_eq!(items.len(), 100);
    assert!(items.count.iter().all(|count| *count == 10));
    // 275 of 925 ps.
    assert!(
        items.busy.iter().all(|busy| *busy == 76),
        "{:?}",
        items.busy
    );
    assert_eq!(items.id[2].0, 23);
    let strip = trace.busy_strip(&[trace.tracks()[0].id], t(0)..t(200_000), 2);
    assert_eq!(strip, [70, 0]);
}
