//! What each step's time went into.
//!
//! Every moment of a step is charged to exactly one bucket, the first that applies:
//!
//! ```text
//! with a device in the step's file               without one
//! 1. compute         a device computes           compile
//! 2. communication   a device communicates       input
//! 3. copy            a device copies             compute, communication (on the host)
//! 4. compile         something is compiled       copy
//! 5. input           the step's thread fetches   host
//! 6. host            the step's thread works     idle
//! 7. idle            nothing is recorded
//!
//! step = compute + exposed communication + exposed copy + input + compile + host + idle
//! ```
//!
//! Sets are unions over all devices (and threads) of the step's file, cut to the step, as in
//! [`device`](crate::device): loops compute where nothing inside them is recorded. `communication` and
//! `copy` as a whole (hidden behind computation or not) stand beside the buckets. *The step's thread* is the one that marks the steps; where a
//! device marks them, all threads of the file. Inside a marker, whatever it holds is work of the
//! host; a marker with nothing inside is idle.
//!
//! Cost: one pass over the slices of the files with steps, in parallel, and a sort of what remains
//! after neighbours were united.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{Trace, Track};

use crate::device::{Devices, Work};
use crate::input::is_input;
use crate::intervals::{Moments, extend};
use crate::ops::is_operator;
use crate::parallel::{self, Cancel};
use crate::steps::StepRow;

/// One step's time, by bucket. The first seven add up to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepParts {
    /// Computation.
    pub compute: Dur,
    /// Communication while nothing was computed.
    pub exposed_communication: Dur,
    /// Copies while nothing was computed or communicated.
    pub exposed_copy: Dur,
    /// The step's thread fetches its input.
    pub input: Dur,
    /// Compilation.
    pub compile: Dur,
    /// Other work of the step's thread.
    pub host: Dur,
    /// Nothing was recorded.
    pub idle: Dur,
    /// All communication, hidden or not.
    pub communication: Dur,
    /// All copies, hidden or not.
    pub copy: Dur,
}

impl StepParts {
    /// Names and times of the buckets, in the order of the equation.
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

    /// Sum of the buckets: the step's length.
    pub fn sum(&self) -> Dur {
        let buckets = self.buckets();
        buckets
            .iter()
            .fold(Dur::ZERO, |sum, (_, dur)| sum.saturating_add(*dur))
    }

    /// Adds another step's times.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in [
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
            *mine = mine.saturating_add(others);
        }
    }
}

/// A stretch of one file's time that is broken down: a step, or the whole recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// When.
    pub range: Range<Time>,
    /// The thread whose work is the host's share, `None` for all threads of the file.
    pub thread: Option<TrackId>,
    /// Index of the marker on that thread: what comes before it encloses it. `None`: there is none.
    pub marker: Option<usize>,
}

impl Stretch {
    /// A step.
    pub fn of_step(trace: &Trace, step: &StepRow) -> Self {
        let place = trace.place_of_slice(step.event).filter(|(track, _)| {
            let track = trace.tracks().get(track.index());
            track.is_some_and(|track| track.kind == TrackKind::Thread)
        });
        Self {
            file: step.file,
            range: step.start..step.start.saturating_add(step.dur),
            thread: place.map(|(track, _)| track),
            marker: place.map(|(_, index)| index),
        }
    }
}

/// What [`breakdown`] found.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// As many as there are steps, in their order.
    pub parts: Vec<StepParts>,
    /// Whether a device took part in any of them.
    pub on_device: bool,
}

/// A class of moments.
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

/// Breaks steps down, or other stretches.
pub fn breakdown(
    trace: &Trace,
    devices: &Devices<'_>,
    stretches: &[Stretch],
    cancel: &Cancel,
) -> Result<Breakdown, Cancelled> {
    let mut found = Breakdown {
        parts: vec![StepParts::default(); stretches.len()],
        on_device: false,
    };
    let mut by_place: FxHashMap<(usize, Option<TrackId>), Vec<usize>> = FxHashMap::default();
    for (index, stretch) in stretches.iter().enumerate() {
        let place = (stretch.file, stretch.thread);
        by_place.entry(place).or_default().push(index);
    }
    let mut places: Vec<_> = by_place.into_iter().collect();
    places.sort_unstable_by_key(|(place, _)| *place);
    let mut of_file: Option<(usize, [Moments; CLASSES])> = None;
    for ((file, track), indexes) in places {
        cancel.check()?;
        if of_file.as_ref().is_none_or(|(known, _)| *known != file) {
            of_file = Some((file, shared(trace, devices, file, cancel)?));
        }
        let Some((_, shared)) = &of_file else {
            continue;
        };
        let own = track.map(|track| own(trace, track, stretches, &indexes));
        let (input, host) = match &own {
            Some((input, host)) => (input, host),
            None => (
                &shared[Class::Input as usize],
                &shared[Class::Host as usize],
            ),
        };
        let of = |class: Class| &shared[class as usize];
        let device = [
            Class::DeviceCompute,
            Class::DeviceCommunication,
            Class::DeviceCopy,
        ];
        let on_device = device.iter().any(|class| !of(*class).is_empty());
        found.on_device |= on_device;
        let order = if on_device {
            [
                of(Class::DeviceCompute),
                of(Class::DeviceCommunication),
                of(Class::DeviceCopy),
                of(Class::Compile),
                input,
                host,
            ]
        } else {
            [
                of(Class::Compile),
                input,
                of(Class::HostCompute),
                of(Class::HostCommunication),
                of(Class::HostCopy),
                host,
            ]
        };
        let mut taken = Moments::default();
        let charged = order.map(|moments| {
            let rest = moments.without(&taken);
            taken = taken.union(moments);
            rest
        });
        let (communication, copy) = if on_device {
            (order[1], order[2])
        } else {
            (order[3], order[4])
        };
        for index in indexes {
            let range = stretches[index].range.clone();
            let length = range.end.since(range.start).ps().max(0);
            let times = charged.each_ref().map(|moments| moments.within(&range));
            let used: i64 = times.iter().map(|dur| dur.ps()).sum();
            let idle = Dur::from_ps(length.saturating_sub(used));
            let [first, second, third, fourth, fifth, host] = times;
            let [compute, exposed_communication, exposed_copy, compile, input] = if on_device {
                [first, second, third, fourth, fifth]
            } else {
                [third, fourth, fifth, first, second]
            };
            found.parts[index] = StepParts {
                compute,
                exposed_communication,
                exposed_copy,
                input,
                compile,
                host,
                idle,
                communication: communication.within(&range),
                copy: copy.within(&range),
            };
        }
    }
    Ok(found)
}

/// Moments of each class on all tracks of a file. `Input` and `Host` are those of all threads.
fn shared(
    trace: &Trace,
    devices: &Devices<'_>,
    file: usize,
    cancel: &Cancel,
) -> Result<[Moments; CLASSES], Cancelled> {
    let tracks = trace
        .tracks()
        .iter()
        .filter(|track| track.file == file && !track.derived && track.slices > 0);
    let pieces = parallel::pieces(
        tracks
            .filter(|track| matches!(track.kind, TrackKind::Thread | TrackKind::DeviceQueue))
            .map(|track| (track.id, 0..track.slices as usize)),
    );
    let parts = parallel::scan(&pieces, cancel, Vec::new, |found, piece| {
        let Some(track) = trace.tracks().get(piece.track.index()) else {
            return;
        };
        let mut lists = Lists::default();
        collect(trace, devices, track, piece.indexes.clone(), &mut lists);
        found.push((piece.track, piece.indexes.start, lists));
    })?;
    let mut parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.sort_unstable_by_key(|(track, from, _)| (*track, *from));
    let mut lists = Lists::default();
    for (_, _, mut part) in parts {
        for (all, part) in lists.iter_mut().zip(&mut part) {
            all.append(part);
        }
    }
    for device in devices.list.iter().filter(|device| device.file == file) {
        let computing = devices.computing(device, cancel)?;
        lists[Class::DeviceCompute as usize].extend(computing);
    }
    Ok(lists.map(Moments::of))
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
    // Classes of a name and category: mostly those of the slice before.
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
                .or_insert_with(|| host_classes(trace, track, key.0, key.1));
            last = (Some(key), *classes);
        }
        for (list, is) in lists.iter_mut().zip(&last.1) {
            if *is {
                extend(list, (start, end));
            }
        }
    }
}

fn host_classes(
    trace: &Trace,
    track: &Track,
    name: stepscope_model::NameId,
    category: stepscope_model::NameId,
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

/// Input and work of the thread that marks these stretches: what lies inside the markers.
fn own(
    trace: &Trace,
    track: TrackId,
    stretches: &[Stretch],
    indexes: &[usize],
) -> (Moments, Moments) {
    let slices = trace.slices(track);
    let (mut input, mut host) = (Vec::new(), Vec::new());
    let mut marks: Vec<usize> = trace
        .step_marks()
        .iter()
        .filter_map(|mark| trace.place_of_slice(mark.event))
        .filter(|(on, _)| *on == track)
        .map(|(_, index)| index)
        .collect();
    marks.sort_unstable();
    for stretch in indexes.iter().filter_map(|index| stretches.get(*index)) {
        let Range { start, end } = stretch.range;
        // What encloses the marker comes before it in the track's order.
        let first = match stretch.marker {
            Some(marker) => marker + 1,
            None => trace.candidates(track, start..end).start,
        };
        for index in first..slices.len() {
            let begin = slices.start[index];
            if begin >= end {
                break;
            }
            if marks.binary_search(&index).is_ok() {
                continue;
            }
            let part = (begin.max(start), slices.end(index).min(end));
            extend(&mut host, part);
            let kind = trace.kind(track, slices.name[index], slices.category.get(index));
            if is_input(kind, trace.name(slices.name[index])) {
                extend(&mut input, part);
            }
        }
    }
    // Steps of one thread may nest; sorting is cheap where they do not.
    (Moments::of(input), Moments::of(host))
}

#[cfg(test)]
mod tests;
