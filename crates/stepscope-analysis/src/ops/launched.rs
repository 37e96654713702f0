//! Device time of host operators: that of the work they launched.
//!
//! A slice of a device queue belongs to the call that launched it ([`Launches`]), and through it to every
//! operator around the call. For one name
//!
//! ```text
//! device self  = sum of the device slices whose innermost operator has the name
//! device total = sum of the device slices that lie in an operator of the name (recursion counts once)
//! sum of device self over all names = sum of all device slices that have an operator
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId, TrackId};
use stepscope_store::{EventId, Trace};

use super::OpReport;
use crate::device::Devices;
use crate::launch::Launches;
use crate::parallel::{self, Cancel};
use crate::slice_class::is_operator;

/// Device time of one name, picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launched {
    pub(crate) total_ps: i128,
    pub(crate) self_ps: i128,
}

impl Launched {
    /// Adds the time of other slices.
    pub(super) fn add(&mut self, other: Self) {
        self.total_ps += other.total_ps;
        self.self_ps += other.self_ps;
    }
}

/// Device time that each slice of the host launched. The times of a track lie in a list as long as the
/// track's slices: millions of slices launch work, and a hash table of them is ten times slower.
#[derive(Debug, Default)]
pub(crate) struct LaunchedBySlice {
    /// By track; empty for tracks that launch nothing.
    tracks: Vec<Vec<SliceLaunched>>,
}

/// Device time that one slice launched, picoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct SliceLaunched {
    total_ps: i64,
    self_ps: i64,
}

impl LaunchedBySlice {
    /// Whether no slice launched anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.tracks.iter().all(Vec::is_empty)
    }

    /// Returns the device time that a slice of the class launched; zero for slices that launched nothing.
    pub(crate) fn get(&self, track: TrackId, index: usize) -> Launched {
        let slices = self.tracks.get(track.index());
        let slice = slices.and_then(|slices| slices.get(index)).copied();
        let slice = slice.unwrap_or_default();
        Launched {
            total_ps: slice.total_ps.into(),
            self_ps: slice.self_ps.into(),
        }
    }
}

/// Computes the device time of each slice with a category of the class: the sum over the device slices
/// that lie in it, and over those of which it is the innermost. Empty without devices or links.
pub(crate) fn by_slice(
    trace: &Trace,
    is_class: fn(&str) -> bool,
    cancel: &Cancel,
) -> Result<LaunchedBySlice, Cancelled> {
    let categories = categories(trace, is_class);
    if !categories.contains(&true) {
        return Ok(LaunchedBySlice::default());
    }
    let innermost: Vec<OnceLock<Vec<AtomicI64>>> =
        trace.tracks().iter().map(|_| OnceLock::new()).collect();
    scan(
        trace,
        cancel,
        || (),
        |(), ps, launch| {
            let Some((host, mut index)) = trace.place_of_slice(launch) else {
                return;
            };
            let slices = trace.slices(host);
            while index < slices.len() {
                if categories.get(slices.category.get(index).index()) == Some(&true) {
                    let times = innermost[host.index()].get_or_init(|| {
                        std::iter::repeat_with(AtomicI64::default)
                            .take(slices.len())
                            .collect()
                    });
                    times[index].fetch_add(ps, Ordering::Relaxed);
                    return;
                }
                index = slices.parent[index] as usize;
            }
        },
    )?;
    let tracks = trace.tracks().iter().zip(innermost);
    let tracks = tracks.map(|(track, times)| {
        let times = times.into_inner().unwrap_or_default().into_iter();
        let mut times: Vec<SliceLaunched> = times
            .map(AtomicI64::into_inner)
            .map(|ps| SliceLaunched {
                total_ps: ps,
                self_ps: ps,
            })
            .collect();
        // Parents come before their children.
        let parents = trace.slices(track.id).parent;
        for index in (0..times.len()).rev() {
            let (inside, parent) = (times[index].total_ps, parents[index] as usize);
            if inside != 0 && parent < index {
                times[parent].total_ps = times[parent].total_ps.saturating_add(inside);
            }
        }
        times
    });
    Ok(LaunchedBySlice {
        tracks: tracks.collect(),
    })
}

/// Adds the device time to the rows of operators.
pub(super) fn add(trace: &Trace, report: &mut OpReport, cancel: &Cancel) -> Result<(), Cancelled> {
    let operators = trace.by_category();
    let mut categories = operators.iter().map(|(category, _)| trace.name(*category));
    if !categories.any(is_operator) {
        return Ok(());
    }
    let found = launched(trace, cancel)?;
    if found.is_empty() {
        return Ok(());
    }
    let by_name: FxHashMap<&str, Launched> = found
        .into_iter()
        .map(|(name, sums)| (trace.name(name), sums))
        .collect();
    for row in report.rows.iter_mut().filter(|row| !row.on_device) {
        let sums = by_name.get(&*row.name).copied().unwrap_or_default();
        row.launched_ps = Some(sums.total_ps);
        row.launched_self_ps = Some(sums.self_ps);
    }
    Ok(())
}

/// Computes device time by operator name; empty without devices or links.
pub(super) fn launched(
    trace: &Trace,
    cancel: &Cancel,
) -> Result<FxHashMap<NameId, Launched>, Cancelled> {
    let operators = categories(trace, is_operator);
    let parts = scan(
        trace,
        cancel,
        || (FxHashMap::<NameId, Launched>::default(), Vec::new()),
        |(sums, around), ps, launch| {
            names_around(trace, &operators, launch, around);
            for (depth, name) in around.iter().enumerate() {
                let sum = sums.entry(*name).or_default();
                if depth == 0 {
                    sum.self_ps += i128::from(ps);
                }
                if !around[..depth].contains(name) {
                    sum.total_ps += i128::from(ps);
                }
            }
        },
    )?;
    let mut sums: FxHashMap<NameId, Launched> = FxHashMap::default();
    for (name, part) in parts.into_iter().flat_map(|(sums, _)| sums) {
        sums.entry(name).or_default().add(part);
    }
    Ok(sums)
}

/// Calls `add` with the time of each device slice that has a launch, picoseconds, and the launch.
fn scan<A: Send>(
    trace: &Trace,
    cancel: &Cancel,
    make: impl Fn() -> A + Sync,
    add: impl Fn(&mut A, i64, EventId) + Sync,
) -> Result<Vec<A>, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    let launches = Launches::from_trace(trace, &devices, cancel)?;
    let queues = devices.list.iter().flat_map(|device| &device.queues);
    let chunks = parallel::track_chunks(
        queues.map(|queue| (queue.track, 0..trace.slices(queue.track).len())),
    );
    parallel::scan(&chunks, cancel, make, |sums, chunk| {
        let slices = trace.slices(chunk.track);
        for index in chunk.indexes.clone() {
            if devices.work(chunk.track, index).is_some()
                && let Some(launch) = launches.get(chunk.track, index)
            {
                add(sums, slices.dur[index].ps(), launch);
            }
        }
    })
}

/// Returns whether each text, by its number, is a category of the class.
fn categories(trace: &Trace, is_class: fn(&str) -> bool) -> Vec<bool> {
    let mut found = vec![false; trace.name_count()];
    for (category, _) in trace.by_category() {
        if let Some(slot) = found.get_mut(category.index()) {
            *slot = is_class(trace.name(category));
        }
    }
    found
}

/// Collects the names of the slices of the categories around a host call, innermost first.
fn names_around(trace: &Trace, categories: &[bool], launch: EventId, found: &mut Vec<NameId>) {
    found.clear();
    let Some((host, mut index)) = trace.place_of_slice(launch) else {
        return;
    };
    let slices = trace.slices(host);
    while index < slices.len() {
        if categories.get(slices.category.get(index).index()) == Some(&true) {
            found.push(slices.name[index]);
        }
        index = slices.parent[index] as usize;
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{
        Dur, Epoch, EventSink, FlowDirection, FlowKey, SliceFlow, SliceIn, Time, TrackKind,
        TrackPatch,
    };
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    #[test]
    fn kernels_count_for_the_operators_around_their_launch() {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        let (main, queue) = (sink.track("main"), sink.track("queue"));
        sink.describe(
            queue,
            TrackPatch {
                kind: Some(TrackKind::DeviceQueue),
                ..TrackPatch::default()
            },
        );
        let us = |us: i64| Time::from_ps(us * 1_000_000);
        let slices = [
            (main, "aten::linear", "cpu_op", 0, 10, None),
            (main, "aten::addmm", "cpu_op", 1, 8, None),
            (
                main,
                "launch",
                "cuda_runtime",
                2,
                1,
                Some((7, FlowDirection::Out)),
            ),
            (queue, "gemm", "kernel", 20, 6, Some((7, FlowDirection::In))),
            (queue, "lost", "kernel", 30, 3, None),
        ];
        for (on, name, category, start, length, flow) in slices {
            let (name, category) = (sink.name(name), sink.name(category));
            let flows: Vec<SliceFlow> = flow
                .into_iter()
                .map(|(id, direction)| SliceFlow {
                    key: FlowKey {
                        id,
                        category: NameId::EMPTY,
                    },
                    direction,
                })
                .collect();
            sink.slice(
                on,
                SliceIn {
                    start: us(start),
                    dur: Dur::from_ps(length * 1_000_000),
                    name,
                    category,
                    flows: &flows,
                    ..SliceIn::default()
                },
            );
        }
        builder.add(sink);
        let trace = builder.finish();
        let by_slice = by_slice(&trace, is_operator, &Cancel::default()).unwrap();
        let of_slice = |index| {
            let launched = by_slice.get(main, index);
            (launched.total_ps / 1_000_000, launched.self_ps / 1_000_000)
        };
        assert_eq!([0, 1].map(of_slice), [(6, 0), (6, 6)]);
        let found = launched(&trace, &Cancel::default()).unwrap();
        let mut shown: Vec<_> = found
            .iter()
            .map(|(name, sum)| {
                let us = |ps: i128| ps / 1_000_000;
                (trace.name(*name), us(sum.total_ps), us(sum.self_ps))
            })
            .collect();
        shown.sort_unstable();
        assert_eq!(shown, [("aten::addmm", 6, 6), ("aten::linear", 6, 0)]);
    }
}
