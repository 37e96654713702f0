//! Device time of host operators: that of the work they launched.
//!
//! A slice of a device queue belongs to the call that launched it ([`Launches`]), and through it to
//! every operator that the call lies in. For one name
//!
//! ```text
//! device self  = sum of the device slices whose innermost operator has the name
//! device total = sum of the device slices that lie in an operator of the name (recursion counts once)
//! sum of device self over all names = sum of all device slices that have an operator
//! ```

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId};
use stepscope_store::{EventId, Trace};

use super::OpReport;
use super::class::is_operator;
use crate::device::Devices;
use crate::launch::Launches;
use crate::parallel::{self, Cancel};

/// Device time of one name, picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Launched {
    pub(super) total_ps: i128,
    pub(super) self_ps: i128,
}

impl Launched {
    /// Adds that of other slices.
    pub(super) fn add(&mut self, other: Self) {
        self.total_ps += other.total_ps;
        self.self_ps += other.self_ps;
    }
}

/// Device time of each host slice that launched any.
pub(super) type LaunchedBySlice = FxHashMap<EventId, Launched>;

/// Device time of each slice with a category of the class: the sum over the device slices that lie in
/// it, and over those of which it is the innermost. Empty without devices or links.
pub(super) fn by_slice(
    trace: &Trace,
    is_class: fn(&str) -> bool,
    cancel: &Cancel,
) -> Result<LaunchedBySlice, Cancelled> {
    let categories = categories(trace, is_class);
    if !categories.contains(&true) {
        return Ok(LaunchedBySlice::default());
    }
    let parts = scan(
        trace,
        &categories,
        cancel,
        |sums: &mut LaunchedBySlice, ps, around| {
            for (place, (event, _)) in around.iter().enumerate() {
                let sum = sums.entry(*event).or_default();
                sum.total_ps += ps;
                sum.self_ps += if place == 0 { ps } else { 0 };
            }
        },
    )?;
    let mut sums = LaunchedBySlice::default();
    for (event, part) in parts.into_iter().flatten() {
        sums.entry(event).or_default().add(part);
    }
    Ok(sums)
}

/// Puts the device time beside the rows of operators.
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

/// Device time by operator name; empty without devices or links.
pub(super) fn launched(
    trace: &Trace,
    cancel: &Cancel,
) -> Result<FxHashMap<NameId, Launched>, Cancelled> {
    let operators = categories(trace, is_operator);
    let parts = scan(
        trace,
        &operators,
        cancel,
        |sums: &mut FxHashMap<NameId, Launched>, ps, around| {
            for (place, (_, name)) in around.iter().enumerate() {
                let sum = sums.entry(*name).or_default();
                if place == 0 {
                    sum.self_ps += ps;
                }
                if !around[..place].iter().any(|(_, inner)| inner == name) {
                    sum.total_ps += ps;
                }
            }
        },
    )?;
    let mut sums: FxHashMap<NameId, Launched> = FxHashMap::default();
    for (name, part) in parts.into_iter().flatten() {
        sums.entry(name).or_default().add(part);
    }
    Ok(sums)
}

/// Calls `add` with the time of each device slice that has a launch, and the slices of the categories
/// around that, innermost first.
fn scan<A: Default + Send>(
    trace: &Trace,
    categories: &[bool],
    cancel: &Cancel,
    add: impl Fn(&mut A, i128, &[(EventId, NameId)]) + Sync,
) -> Result<Vec<A>, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    let launches = Launches::from_trace(trace, &devices, cancel)?;
    let queues = devices.list.iter().flat_map(|device| &device.queues);
    let pieces = parallel::track_chunks(
        queues.map(|queue| (queue.track, 0..trace.slices(queue.track).len())),
    );
    parallel::scan(&pieces, cancel, A::default, |sums, piece| {
        let slices = trace.slices(piece.track);
        let mut found = Vec::new();
        for index in piece.indexes.clone() {
            if devices.work(piece.track, index).is_none() {
                continue;
            }
            let Some(launch) = launches.get(piece.track, index) else {
                continue;
            };
            around(trace, categories, launch, &mut found);
            add(sums, i128::from(slices.dur[index].ps()), &found);
        }
    })
}

/// By the number of a text: whether it is a category of the class.
fn categories(trace: &Trace, is_class: fn(&str) -> bool) -> Vec<bool> {
    let mut found = vec![false; trace.name_count()];
    for (category, _) in trace.by_category() {
        if let Some(slot) = found.get_mut(category.index()) {
            *slot = is_class(trace.name(category));
        }
    }
    found
}

/// Slices of the categories around a host call, innermost first.
fn around(trace: &Trace, categories: &[bool], launch: EventId, found: &mut Vec<(EventId, NameId)>) {
    found.clear();
    let Some((on, mut index)) = trace.place_of_slice(launch) else {
        return;
    };
    let slices = trace.slices(on);
    while index < slices.len() {
        if categories.get(slices.category.get(index).index()) == Some(&true) {
            found.push((slices.id(index), slices.name[index]));
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
