//! Breakdown of each step's time.
//!
//! All time of a step is charged to exactly one bucket, the first that applies. With devices this is done
//! separately for each device of the step's rank (a file, or a process of a file of several) that works in any of
//! its steps, and a bucket of the step is the mean over these devices:
//!
//! ```text
//! one device                                     without a device
//! 1. compute         it computes                 compile
//! 2. communication   it communicates             input
//! 3. copy            it copies                   compute, communication (on the host)
//! 4. compile         something is compiled       copy
//! 5. input           the step's thread fetches   host
//! 6. host            the step's thread works     idle
//! 7. idle            nothing is recorded
//!
//! step = compute + exposed communication + exposed copy + input + compile + host + idle
//! ```
//!
//! The sets of a device are unions over its queues, those of the host unions over the threads of the step's file,
//! clipped to the step, as in [`device`](crate::device): loops compute where nothing inside them is recorded.
//! `communication` and `copy` count the whole time, hidden or exposed. *The step's thread* is the one that marks
//! the steps; where a device marks them, all threads of the file; rows with the same process and thread number,
//! such as another profiler's in one recording, are the same thread. Inside a marker, every slice is host
//! activity; a marker without slices inside is idle.
//!
//! Cost: one parallel pass over the slices of the files with steps, a sort of the intervals that remain after
//! neighbours are united, and one pass over those for each device.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{Trace, Track};

use crate::device::{Devices, Work};
use crate::intervals::{IntervalSet, extend};
use crate::parallel::{self, Cancel};
use crate::slice_class::is_input;
use crate::slice_class::is_operator;
use crate::steps::{RankTracks, StepRank, StepRow, ThreadRows};

/// Time of one step by bucket. The first seven add up to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepParts {
    /// Computation on the device.
    pub compute: Dur,
    /// Communication without concurrent computation.
    pub exposed_communication: Dur,
    /// Copies without concurrent computation or communication.
    pub exposed_copy: Dur,
    /// The step's thread fetches its input.
    pub input: Dur,
    /// Compilation.
    pub compile: Dur,
    /// Other activity of the step's thread.
    pub host: Dur,
    /// Time without a recorded event.
    pub idle: Dur,
    /// All communication, hidden or not.
    pub communication: Dur,
    /// All copies, hidden or not.
    pub copy: Dur,
}

impl StepParts {
    /// Returns names and times of the buckets, in the order of the equation.
    pub const fn buckets(&self) -> [(&'static str, Dur); 7] {
        [
            ("compute", self.compute),
            ("exposed_communication", self.exposed_communication),
            ("exposed_copy", self.exposed_copy),
            ("input", self.input),
            ("compile", self.compile),
            ("host", self.host),
            ("idle", self.idle),
        ]
    }

    /// Returns the sum of the buckets: the step's length.
    pub fn sum(&self) -> Dur {
        let buckets = self.buckets();
        buckets
            .iter()
            .fold(Dur::ZERO, |sum, (_, dur)| sum.saturating_add(*dur))
    }

    /// Adds another step's times.
    pub fn add(&mut self, other: &Self) {
        for (sum, others) in [
            (&mut self.compute, other.compute),
            (&mut self.exposed_communication, other.exposed_communication),
            (&mut self.exposed_copy, other.exposed_copy),
            (&mut self.input, other.input),
            (&mut self.compile, other.compile),
            (&mut self.host, other.host),
            (&mut self.idle, other.idle),
            (&mut self.communication, other.communication),
            (&mut self.copy, other.copy),
        ] {
            *sum = sum.saturating_add(others);
        }
    }
}

/// A time range of one file that is broken down: a step, or the whole recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisWindow {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Process whose devices and threads count, in a file of several ranks.
    pub process: Option<i64>,
    /// Time range of the window.
    pub range: Range<Time>,
    /// Thread whose activity is the host bucket, `None` for all threads of the file.
    pub thread: Option<TrackId>,
    /// Index of the marker on that thread: slices before it enclose it. `None`: there is no marker.
    pub marker: Option<usize>,
    /// Whether the window lies between two steps: slices that enclose it do not explain it.
    pub is_pause: bool,
}

impl AnalysisWindow {
    /// Returns the rank that the window belongs to.
    pub const fn rank(&self) -> StepRank {
        StepRank {
            file: self.file,
            process: self.process,
        }
    }

    /// Returns the window of a step.
    pub fn from_step(trace: &Trace, step: &StepRow) -> Self {
        let position = trace.place_of_slice(step.event).filter(|(track, _)| {
            let track = trace.tracks().get(track.index());
            track.is_some_and(|track| track.kind == TrackKind::Thread)
        });
        Self {
            file: step.file,
            process: step.process,
            range: step.start..step.start.saturating_add(step.dur),
            thread: position.map(|(track, _)| track),
            // A marker at the end of a step, as on Neuron devices, encloses none of it.
            marker: position
                .filter(|(track, index)| trace.slices(*track).start[*index] <= step.start)
                .map(|(_, index)| index),
            is_pause: false,
        }
    }

    /// Returns the window of the pause from a step's end to the start of the next one.
    #[must_use]
    pub fn pause(&self, range: Range<Time>) -> Self {
        Self {
            range,
            marker: None,
            is_pause: true,
            ..self.clone()
        }
    }

    /// Returns whether a slice of the step's thread explains the window: a slice that encloses the step, such as
    /// an epoch, does not.
    fn holds(&self, start: Time, end: Time) -> bool {
        let is_step = self.is_pause || self.marker.is_some();
        let encloses = start <= self.range.start
            && end >= self.range.end
            && (start, end) != (self.range.start, self.range.end);
        !(is_step && encloses)
    }
}

/// Breakdown of one step on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStep {
    /// Index into [`Devices::list`].
    pub device: usize,
    /// Its buckets, which add up to the step.
    pub parts: StepParts,
}

/// Result of [`breakdown`].
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// Breakdown of each step, in their order; the mean where there are several devices.
    pub parts: Vec<StepParts>,
    /// Devices of each step, one list per step; empty where the host computes.
    pub devices: Vec<Vec<DeviceStep>>,
    /// Whether a device took part in any step.
    pub on_device: bool,
}

/// Class of host activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
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
struct RankIntervals {
    /// Computation, communication and copies of each device (index into [`Devices::list`]).
    devices: Vec<(usize, [IntervalSet; 3])>,
    /// Intervals of all threads by [`Class`].
    host: [IntervalSet; CLASSES],
}

impl RankIntervals {
    fn host(&self, class: Class) -> &IntervalSet {
        &self.host[class as usize]
    }
}

/// Intervals that are charged to each bucket, for the windows of one rank and thread on one device.
pub(crate) struct ChargedWindows<'a> {
    /// Rank of the windows.
    pub(crate) rank: StepRank,
    /// Thread of the windows.
    pub(crate) thread: Option<TrackId>,
    /// Index into [`Devices::list`]; `None` where the host computes.
    pub(crate) device: Option<usize>,
    /// Indexes of the windows.
    pub(crate) windows: &'a [usize],
    /// Disjoint sets, in the order of [`StepParts::buckets`] without `idle`.
    pub(crate) buckets: [&'a IntervalSet; 6],
}

/// Breaks down steps or other windows.
pub fn breakdown(
    trace: &Trace,
    devices: &Devices<'_>,
    analysis_windows: &[AnalysisWindow],
    cancel: &Cancel,
) -> Result<Breakdown, Cancelled> {
    breakdown_with(trace, devices, analysis_windows, cancel, &mut |_| Ok(()))
}

/// Breaks down windows as [`breakdown`] does, and passes the intervals of each bucket to `visit`.
pub(crate) fn breakdown_with(
    trace: &Trace,
    devices: &Devices<'_>,
    analysis_windows: &[AnalysisWindow],
    cancel: &Cancel,
    visit: &mut dyn FnMut(&ChargedWindows<'_>) -> Result<(), Cancelled>,
) -> Result<Breakdown, Cancelled> {
    let mut found = Breakdown {
        parts: vec![StepParts::default(); analysis_windows.len()],
        devices: vec![Vec::new(); analysis_windows.len()],
        on_device: false,
    };
    let mut by_position: FxHashMap<(StepRank, Option<TrackId>), Vec<usize>> = FxHashMap::default();
    for (index, analysis_window) in analysis_windows.iter().enumerate() {
        let position = (analysis_window.rank(), analysis_window.thread);
        by_position.entry(position).or_default().push(index);
    }
    let mut positions: Vec<_> = by_position.into_iter().collect();
    positions.sort_unstable_by_key(|(position, _)| *position);
    let tracks = RankTracks::new(trace, devices);
    let device_of = devices.by_track();
    let markers = markers_by_track(trace);
    let rows = ThreadRows::new(trace);
    let mut of_rank: Option<(StepRank, RankIntervals)> = None;
    for ((rank, track), indexes) in positions {
        cancel.check()?;
        if of_rank.as_ref().is_none_or(|(known, _)| *known != rank) {
            of_rank = Some((
                rank,
                shared(trace, devices, &device_of, &tracks, rank, cancel)?,
            ));
        }
        let Some((_, shared)) = &of_rank else {
            continue;
        };
        let own = track.map(|track| {
            let rows = rows.rows_of(track).map(|row| {
                let markers = markers.get(&row).map_or(&[][..], Vec::as_slice);
                (row, markers)
            });
            own(trace, rows, analysis_windows, &indexes)
        });
        let (input, host) = match &own {
            Some((input, host)) => (input, host),
            None => (shared.host(Class::Input), shared.host(Class::Host)),
        };
        if shared.devices.is_empty() {
            let charged = charge_host(shared, input, host);
            visit(&ChargedWindows {
                rank,
                thread: track,
                device: None,
                windows: &indexes,
                buckets: charged.buckets.each_ref(),
            })?;
            for index in indexes {
                found.parts[index] = charged.within(&analysis_windows[index].range);
            }
            continue;
        }
        found.on_device = true;
        // A device that the other devices of the rank do not use waits for nothing.
        let works = |intervals: &[IntervalSet; 3]| {
            let own = indexes.iter().map(|index| &analysis_windows[*index].range);
            own.clone()
                .any(|range| intervals.iter().any(|one| one.within(range) > Dur::ZERO))
        };
        let any = shared.devices.iter().any(|(_, intervals)| works(intervals));
        let taking_part = shared
            .devices
            .iter()
            .filter(|(_, intervals)| !any || works(intervals));
        let compile = shared.host(Class::Compile);
        let input = input.without(compile);
        let host = host.without(&compile.union(&input));
        for (device, intervals) in taking_part {
            cancel.check()?;
            let charged = charge_device(intervals, [compile, &input, &host]);
            visit(&ChargedWindows {
                rank,
                thread: track,
                device: Some(*device),
                windows: &indexes,
                buckets: charged.buckets.each_ref(),
            })?;
            for index in &indexes {
                found.devices[*index].push(DeviceStep {
                    device: *device,
                    parts: charged.within(&analysis_windows[*index].range),
                });
            }
        }
        for index in indexes {
            found.parts[index] = mean(&found.devices[index]);
        }
    }
    Ok(found)
}

/// Intervals by the bucket they are charged to, and communication and copies as a whole.
struct Charged<'a> {
    /// Intervals of computation, communication, copies, input, compilation, host.
    buckets: [IntervalSet; 6],
    communication: &'a IntervalSet,
    copy: &'a IntervalSet,
}

impl Charged<'_> {
    fn within(&self, range: &Range<Time>) -> StepParts {
        let times = self
            .buckets
            .each_ref()
            .map(|intervals| intervals.within(range));
        let used = times
            .iter()
            .map(|dur| dur.ps())
            .fold(0, i64::saturating_add);
        let length = range.end.since(range.start).ps().max(0);
        let [
            compute,
            exposed_communication,
            exposed_copy,
            input,
            compile,
            host,
        ] = times;
        StepParts {
            compute,
            exposed_communication,
            exposed_copy,
            input,
            compile,
            host,
            idle: Dur::from_ps(length.saturating_sub(used)),
            communication: self.communication.within(range),
            copy: self.copy.within(range),
        }
    }
}

/// Charges time to the device's activity, else to the host's: compilation, input and other activity, which do not
/// overlap.
fn charge_device<'a>(device: &'a [IntervalSet; 3], host: [&IntervalSet; 3]) -> Charged<'a> {
    let [compute, communication, copy] = device;
    let engines = compute.union(communication);
    let busy = engines.union(copy);
    let [compile, input, host] = host.map(|intervals| intervals.without(&busy));
    Charged {
        buckets: [
            compute.clone(),
            communication.without(compute),
            copy.without(&engines),
            input,
            compile,
            host,
        ],
        communication,
        copy,
    }
}

/// Charges the time of a file without devices to the host's activity.
fn charge_host<'a>(
    file: &'a RankIntervals,
    input: &IntervalSet,
    host: &IntervalSet,
) -> Charged<'a> {
    let communication = file.host(Class::HostCommunication);
    let copy = file.host(Class::HostCopy);
    let order = [
        file.host(Class::Compile),
        input,
        file.host(Class::HostCompute),
        communication,
        copy,
        host,
    ];
    let mut taken = IntervalSet::default();
    let [
        compile,
        input,
        compute,
        exposed_communication,
        exposed_copy,
        host,
    ] = order.map(|intervals| {
        let rest = intervals.without(&taken);
        taken = taken.union(intervals);
        rest
    });
    Charged {
        buckets: [
            compute,
            exposed_communication,
            exposed_copy,
            input,
            compile,
            host,
        ],
        communication,
        copy,
    }
}

/// Computes the mean over the devices of a step. Cumulative sums are divided one after the other, so that the
/// buckets still add up to the step to the picosecond.
fn mean(devices: &[DeviceStep]) -> StepParts {
    if let [one] = devices {
        return one.parts;
    }
    let count = i128::try_from(devices.len()).unwrap_or(1).max(1);
    let total = |of: &dyn Fn(&StepParts) -> Dur| -> i128 {
        devices
            .iter()
            .map(|one| i128::from(of(&one.parts).ps()))
            .sum()
    };
    let dur = |ps: i128| Dur::from_ps(i64::try_from(ps).unwrap_or(i64::MAX));
    let mut so_far = 0;
    let mut share = |of: &dyn Fn(&StepParts) -> Dur| {
        let before = so_far;
        so_far += total(of);
        dur(so_far / count - before / count)
    };
    let mut parts = StepParts {
        compute: share(&|parts| parts.compute),
        exposed_communication: share(&|parts| parts.exposed_communication),
        exposed_copy: share(&|parts| parts.exposed_copy),
        input: share(&|parts| parts.input),
        compile: share(&|parts| parts.compile),
        host: share(&|parts| parts.host),
        idle: share(&|parts| parts.idle),
        ..StepParts::default()
    };
    let hidden = |all: &dyn Fn(&StepParts) -> Dur, exposed: &dyn Fn(&StepParts) -> Dur| {
        dur((total(all) - total(exposed)) / count)
    };
    let communication = hidden(&|of| of.communication, &|of| of.exposed_communication);
    let copy = hidden(&|of| of.copy, &|of| of.exposed_copy);
    parts.communication = parts.exposed_communication.saturating_add(communication);
    parts.copy = parts.exposed_copy.saturating_add(copy);
    parts
}

/// Lists the positions of the step markers on each track, ascending.
fn markers_by_track(trace: &Trace) -> BTreeMap<TrackId, Vec<usize>> {
    let mut found: BTreeMap<TrackId, Vec<usize>> = BTreeMap::new();
    for mark in trace.step_marks() {
        if let Some((track, index)) = trace.place_of_slice(mark.event) {
            found.entry(track).or_default().push(index);
        }
    }
    for markers in found.values_mut() {
        markers.sort_unstable();
    }
    found
}

/// Collects the intervals of each class on all tracks of a rank. `Input` and `Host` cover all threads.
fn shared(
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
fn own<'a>(
    trace: &Trace,
    rows: impl Iterator<Item = (TrackId, &'a [usize])>,
    analysis_windows: &[AnalysisWindow],
    indexes: &[usize],
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
        // Whether slices of a name and category fetch input; mostly the same as for the previous slice.
        let mut last = (None, false);
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
                let key = (slices.name[index], slices.category.get(index));
                if last.0 != Some(key) {
                    let kind = trace.kind(on, key.0, key.1);
                    last = (Some(key), is_input(kind, trace.name(key.0)));
                }
                if last.1 {
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

#[cfg(test)]
mod tests;
