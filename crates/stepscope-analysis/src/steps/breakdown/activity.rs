//! Intervals of each class of activity: of a rank's devices and threads, and of the thread that marks the steps.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{Trace, Track};

use super::AnalysisWindow;
use crate::device::{Devices, Work};
use crate::intervals::{IntervalSet, extend};
use crate::parallel::{self, Cancel};
use crate::slice_class::{FETCHES_INPUT, HostKinds, is_input, is_operator};
use crate::steps::{RankTracks, StepRank};

/// Class of host activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Class {
    DeviceCompute,
    DeviceCommunication,
    DeviceCopy,
    HostCompute,
    HostCommunication,
    HostCopy,
    Input,
    Compile,
    Host,
}

const CLASSES: usize = 9;

/// Intervals of each class.
type Lists = [Vec<(Time, Time)>; CLASSES];

/// Intervals of one rank: of a file, or of a process in a file of several ranks.
pub(super) struct RankIntervals {
    /// Computation, communication and copies of each device (index into [`Devices::list`]).
    pub(super) devices: Vec<(usize, [IntervalSet; 3])>,
    /// Intervals of all threads by [`Class`].
    host: [IntervalSet; CLASSES],
}

impl RankIntervals {
    /// Returns the intervals of a class on all threads.
    pub(super) fn host(&self, class: Class) -> &IntervalSet {
        &self.host[class as usize]
    }
}

/// Collects the intervals of each class on all tracks of a rank. `Input` and `Host` cover all threads.
pub(super) fn rank_intervals(
    trace: &Trace,
    devices: &Devices<'_>,
    device_of: &FxHashMap<TrackId, usize>,
    tracks: &RankTracks,
    rank: StepRank,
    cancel: &Cancel,
) -> Result<RankIntervals, Cancelled> {
    // In the order of the trace's tracks.
    let own = tracks.devices(rank).iter();
    let queues = own.flat_map(|device| &devices.list[*device].queues);
    let threads = tracks.threads(rank).iter().copied();
    let mut own: Vec<TrackId> = threads.chain(queues.map(|queue| queue.track)).collect();
    own.sort_unstable();
    let chunks = own
        .into_iter()
        .map(|track| (track, 0..trace.slices(track).len()));
    let chunks = parallel::track_chunks(chunks);
    let parts = parallel::scan(&chunks, cancel, Vec::new, |found, chunk| {
        let Some(track) = trace.tracks().get(chunk.track.index()) else {
            return;
        };
        let mut lists = Lists::default();
        collect(trace, devices, track, chunk.indexes.clone(), &mut lists);
        found.push((chunk.track, chunk.indexes.start, lists));
    })?;
    let mut parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.sort_unstable_by_key(|(track, from, _)| (*track, *from));
    let mut of_device: BTreeMap<usize, Lists> = BTreeMap::new();
    let mut host = Lists::default();
    for (track, _, mut part) in parts {
        let lists = match device_of.get(&track) {
            Some(device) => of_device.entry(*device).or_default(),
            None => &mut host,
        };
        for (all, part) in lists.iter_mut().zip(&mut part) {
            all.append(part);
        }
    }
    let mut found = Vec::new();
    for (device, mut lists) in of_device {
        let computing = devices.computing(&devices.list[device], cancel)?;
        lists[Class::DeviceCompute as usize].extend(computing);
        let [compute, communication, copy, ..] = lists;
        let intervals = [compute, communication, copy].map(IntervalSet::from_intervals);
        if intervals.iter().any(|intervals| !intervals.is_empty()) {
            found.push((device, intervals));
        }
    }
    Ok(RankIntervals {
        devices: found,
        host: host.map(IntervalSet::from_intervals),
    })
}

fn collect(
    trace: &Trace,
    devices: &Devices<'_>,
    track: &Track,
    indexes: Range<usize>,
    lists: &mut Lists,
) {
    let slices = trace.slices(track.id);
    let on_device = track.kind == TrackKind::DeviceQueue;
    // Classes of a name and category, which mostly equal those of the previous slice.
    let mut known: FxHashMap<_, [bool; CLASSES]> = FxHashMap::default();
    let mut last = (None, [false; CLASSES]);
    for index in indexes {
        let (start, end) = (slices.start[index], slices.end(index));
        if end <= start {
            continue;
        }
        if on_device {
            let class = match devices.work(track.id, index) {
                Some(Work::Compute) => Class::DeviceCompute,
                Some(Work::Communication) => Class::DeviceCommunication,
                Some(Work::Memcpy | Work::Memset) => Class::DeviceCopy,
                None => continue,
            };
            extend(&mut lists[class as usize], (start, end));
            continue;
        }
        let key = (slices.name[index], slices.category.get(index));
        if last.0 != Some(key) {
            let classes = known
                .entry(key)
                .or_insert_with(|| host_classes(trace, devices, track, key));
            last = (Some(key), *classes);
        }
        for (list, is) in lists.iter_mut().zip(&last.1) {
            if *is {
                extend(list, (start, end));
            }
        }
    }
}

/// Returns the position of the bucket, in the order of [`StepParts::buckets`], to which slices of a name and category
/// on a thread are charged in runs whose host computes; `None` where they do not compute, communicate or copy.
pub(crate) fn host_bucket(
    trace: &Trace,
    devices: &Devices<'_>,
    track: &Track,
    key: (NameId, NameId),
) -> Option<usize> {
    let classes = host_classes(trace, devices, track, key);
    let of_bucket = [
        Class::HostCompute,
        Class::HostCommunication,
        Class::HostCopy,
    ];
    of_bucket.iter().position(|class| classes[*class as usize])
}

fn host_classes(
    trace: &Trace,
    devices: &Devices<'_>,
    track: &Track,
    (name, category): (NameId, NameId),
) -> [bool; CLASSES] {
    let kind = trace.kind(track.id, name, category);
    let mut classes = [false; CLASSES];
    let mut set = |class: Class| classes[class as usize] = true;
    set(Class::Host);
    let operator = is_operator(trace.name(category));
    match kind {
        _ if is_input(kind, trace.name(name)) => set(Class::Input),
        SliceKind::Compile => set(Class::Compile),
        SliceKind::Collective => set(Class::HostCommunication),
        _ if devices.is_collective_name(name) => set(Class::HostCommunication),
        SliceKind::Copy => set(Class::HostCopy),
        SliceKind::MatMul
        | SliceKind::Attention
        | SliceKind::Fusion
        | SliceKind::Elementwise
        | SliceKind::Other => set(Class::HostCompute),
        _ if operator => set(Class::HostCompute),
        _ => {}
    }
    classes
}

/// Collects input and host activity inside the markers, on the thread that marks these windows. `rows`: the rows
/// of the thread, the one with the markers first, and all markers on each, ascending.
pub(super) fn thread_intervals<'a>(
    trace: &Trace,
    rows: impl Iterator<Item = (TrackId, &'a [usize])>,
    analysis_windows: &[AnalysisWindow],
    indexes: &[usize],
    kinds: &mut HostKinds<'_>,
) -> (IntervalSet, IntervalSet) {
    let (mut all_input, mut all_host) = (Vec::new(), Vec::new());
    let own = indexes
        .iter()
        .filter_map(|index| analysis_windows.get(*index));
    let mut own: Vec<&AnalysisWindow> = own.collect();
    own.sort_by_key(|analysis_window| (analysis_window.range.start, analysis_window.marker));
    for (position, (on, markers)) in rows.enumerate() {
        let slices = trace.slices(on);
        let is_marked = position == 0;
        let overlapping = trace.overlapping(on);
        // In the order of time.
        let (mut input, mut host) = (Vec::new(), Vec::new());
        // Slices inside a nested marker were already visited with the outer one.
        let mut outer: Option<&AnalysisWindow> = None;
        for analysis_window in &own {
            let Range { start, end } = analysis_window.range;
            let is_inside = |outer: &AnalysisWindow| {
                let both = outer.marker.is_some() && analysis_window.marker.is_some();
                both && outer.range.start <= start && end <= outer.range.end
            };
            if start >= end || outer.is_some_and(is_inside) {
                continue;
            }
            if analysis_window.marker.is_some() {
                outer = Some(analysis_window);
            }
            // Slices that enclose the marker come before it in the track's order. A slice around the whole
            // recording costs no more than any other.
            let (open, first) = match analysis_window.marker {
                Some(marker) if is_marked => (Vec::new(), marker + 1),
                _ => (
                    trace.around(on, start, overlapping.as_ref()).collect(),
                    slices.start.partition_point(|begin| *begin <= start),
                ),
            };
            let until = slices.start.partition_point(|begin| *begin < end);
            let open = open.into_iter();
            let open = open.map(|index| (index, markers.binary_search(&index).is_ok()));
            let mut next = markers.partition_point(|marker| *marker < first);
            let inside = (first..until.max(first)).map(|index| {
                let is_marker = markers.get(next) == Some(&index);
                next += usize::from(is_marker);
                (index, is_marker)
            });
            for (index, is_marker) in open.chain(inside) {
                let (begin, until) = (slices.start[index], slices.end(index));
                let is_other = is_marker || until <= start;
                let encloses = (!is_marked || analysis_window.is_pause)
                    && !analysis_window.holds(begin, until);
                if is_other || encloses {
                    continue;
                }
                let part = (begin.max(start), until.min(end));
                extend(&mut host, part);
                let (name, category) = (slices.name[index], slices.category.get(index));
                if kinds.get(on, name, category) & FETCHES_INPUT != 0 {
                    extend(&mut input, part);
                }
            }
        }
        all_input.append(&mut input);
        all_host.append(&mut host);
    }
    // Other rows cover the same time; sorting is cheap where there are none.
    (
        IntervalSet::from_intervals(all_input),
        IntervalSet::from_intervals(all_host),
    )
}
