//! Steps that nobody marked: what repeats most regularly.
//!
//! Two places are looked at. On **lines of programs** of a device, the program with the most time,
//! if it ran at least [`FEWEST`] times: a step lasts from one begin to the next, the last one to the
//! program's end. Failing that, on **threads** (the busiest first), the name with the most time
//! among slices at most [`DEEPEST`] levels down that comes at least [`FEWEST`] times, covers at
//! least [`COVERAGE`] of the time from its first begin to its last end, and whose distances from
//! begin to begin vary by less than [`UNEVENNESS`] of their mean: each slice of that name is a step.
//! Operators, waits, compilation and runtime calls are no steps, nor is what repeats for a moment of
//! the run only: from the first begin to the last end it takes [`EXTENT`] of the run, or
//! [`DEVICE_WORK`] of all work of the devices is done in that time.
//!
//! Derived steps are an offer and are marked as derived wherever they are shown.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, SliceFlags, SliceKind, Time, TrackKind};
use stepscope_store::{Trace, Track};

use super::marks::Marker;
use crate::ops::is_operator;

/// Fewer repetitions make no pattern.
const FEWEST: usize = 3;
/// How deep in the nesting a pattern may lie.
const DEEPEST: u16 = 3;
/// Least part of the time that a pattern covers.
const COVERAGE: f64 = 0.5;
/// Largest deviation of the distances between begins, over their mean.
const UNEVENNESS: f64 = 1.0;
/// Least part of the run from the first begin to the last end.
const EXTENT: f64 = 0.1;
/// Least part of the devices' work in that time, where it is a shorter one.
const DEVICE_WORK: f64 = 0.5;
/// Threads that are looked at.
const THREADS: usize = 8;

/// Steps that were found, and the name that repeats.
pub(super) struct Derived {
    pub(super) markers: Vec<Marker>,
    pub(super) name: String,
}

pub(super) fn derive(trace: &Trace) -> Option<Derived> {
    by_programs(trace).or_else(|| by_labels(trace))
}

/// Sums of one name.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: usize,
    total_ps: i128,
}

fn sums(trace: &Trace, track: &Track, deepest: u16) -> Vec<(NameId, Sum)> {
    let slices = trace.slices(track.id);
    let mut found: FxHashMap<NameId, Sum> = FxHashMap::default();
    for index in 0..slices.len() {
        if slices.depth[index] <= deepest {
            let sum = found.entry(slices.name[index]).or_default();
            sum.count += 1;
            sum.total_ps += i128::from(slices.dur[index].ps());
        }
    }
    let mut found: Vec<_> = found
        .into_iter()
        .filter(|(_, sum)| sum.count >= FEWEST && sum.total_ps > 0)
        .collect();
    found.sort_unstable_by_key(|(name, sum)| (std::cmp::Reverse(sum.total_ps), *name));
    found
}

fn by_programs(trace: &Trace) -> Option<Derived> {
    // The first device of the first file that has such a line stands for all.
    let track = trace.tracks().iter().find(|track| {
        track.kind == TrackKind::DeviceQueue
            && !track.derived
            && track.name == "XLA Modules"
            && track.slices > 0
    })?;
    let (name, _) = sums(trace, track, 0).into_iter().next()?;
    let slices = trace.slices(track.id);
    let runs: Vec<usize> = (0..slices.len())
        .filter(|index| slices.name[*index] == name)
        .collect();
    let markers = runs.iter().enumerate().map(|(number, index)| Marker {
        number: i64::try_from(number).unwrap_or(i64::MAX),
        file: track.file,
        track: track.id,
        index: *index,
        start: slices.start[*index],
        end: match runs.get(number + 1) {
            Some(next) => slices.start[*next],
            None => slices.end(*index),
        },
        unfinished: false,
    });
    Some(Derived {
        markers: markers.collect(),
        name: trace.name(name).to_owned(),
    })
}

fn by_labels(trace: &Trace) -> Option<Derived> {
    let mut threads: Vec<&Track> = trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::Thread && !track.derived && track.slices > 0)
        .collect();
    threads.sort_by_key(|track| (std::cmp::Reverse(track.busy), track.id));
    threads.truncate(THREADS);
    threads.into_iter().find_map(|track| by_label(trace, track))
}

fn by_label(trace: &Trace, track: &Track) -> Option<Derived> {
    let slices = trace.slices(track.id);
    for (name, sum) in sums(trace, track, DEEPEST).into_iter().take(16) {
        let runs: Vec<usize> = (0..slices.len())
            .filter(|index| slices.name[*index] == name && slices.depth[*index] <= DEEPEST)
            .collect();
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            continue;
        };
        let kind = trace.kind(track.id, name, slices.category.get(*first));
        let operator = is_operator(trace.name(slices.category.get(*first)));
        if operator
            || !matches!(
                kind,
                SliceKind::Host | SliceKind::UserLabel | SliceKind::Other
            )
        {
            continue;
        }
        let span = slices.end(*last).since(slices.start[*first]).ps();
        let covered = sum.total_ps as f64 / (span as f64).max(1.0);
        let nested = runs
            .windows(2)
            .any(|pair| slices.end(pair[0]) > slices.start[pair[1]]);
        let gaps: Vec<Dur> = runs
            .windows(2)
            .map(|pair| slices.start[pair[1]].since(slices.start[pair[0]]))
            .collect();
        if nested || covered < COVERAGE || unevenness(&gaps) > UNEVENNESS {
            continue;
        }
        if !matters(trace, slices.start[*first]..slices.end(*last)) {
            continue;
        }
        let markers = (0..).zip(&runs).map(|(number, index)| Marker {
            number,
            file: track.file,
            track: track.id,
            index: *index,
            start: slices.start[*index],
            end: slices.end(*index),
            unfinished: trace
                .slice_flags(track.id, *index)
                .contains(SliceFlags::UNFINISHED),
        });
        return Some(Derived {
            markers: markers.collect(),
            name: trace.name(name).to_owned(),
        });
    }
    None
}

/// Whether what repeats in this time says something of the run.
fn matters(trace: &Trace, range: Range<Time>) -> bool {
    let part = |of: i128, whole: i128| of as f64 / (whole as f64).max(1.0);
    let whole = trace.span();
    let length = range.end.since(range.start).ps().into();
    if part(length, whole.end.since(whole.start).ps().into()) >= EXTENT {
        return true;
    }
    let queues = trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::DeviceQueue && !track.derived);
    let (mut inside, mut all) = (0_i128, 0_i128);
    for queue in queues {
        let slices = trace.slices(queue.id);
        let sum = |durs: &[Dur]| durs.iter().map(|dur| i128::from(dur.ps())).sum::<i128>();
        let from = slices.start.partition_point(|start| *start < range.start);
        let to = slices.start.partition_point(|start| *start < range.end);
        inside += sum(&slices.dur[from..to.max(from)]);
        all += sum(slices.dur);
    }
    all > 0 && part(inside, all) >= DEVICE_WORK
}

/// Standard deviation over mean.
fn unevenness(gaps: &[Dur]) -> f64 {
    let count = gaps.len().max(1) as f64;
    let mean = gaps.iter().map(|gap| gap.as_ns_f64()).sum::<f64>() / count;
    let squares = gaps.iter().map(|gap| (gap.as_ns_f64() - mean).powi(2));
    if mean > 0.0 {
        (squares.sum::<f64>() / count).sqrt() / mean
    } else {
        f64::MAX
    }
}
