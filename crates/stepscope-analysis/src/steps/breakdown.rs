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

mod activity;
mod charge;

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, Time, TrackId, TrackKind};
use stepscope_store::Trace;

pub(crate) use self::activity::host_bucket;
use self::activity::{Class, RankIntervals, rank_intervals, thread_intervals};
use self::charge::{charge_device, charge_host, mean};
use crate::device::Devices;
use crate::intervals::IntervalSet;
use crate::parallel::{self, Cancel};
use crate::slice_class::HostKinds;
use crate::steps::bucket::StepBucket;
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
    /// Returns the times of the buckets, in the order of [`StepBucket::ALL`].
    pub const fn buckets(&self) -> [(StepBucket, Dur); 7] {
        [
            (StepBucket::Compute, self.compute),
            (StepBucket::ExposedCommunication, self.exposed_communication),
            (StepBucket::ExposedCopy, self.exposed_copy),
            (StepBucket::Input, self.input),
            (StepBucket::Compile, self.compile),
            (StepBucket::Host, self.host),
            (StepBucket::Idle, self.idle),
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
    let mut kinds = HostKinds::new(trace);
    let mut of_rank: Option<(StepRank, RankIntervals)> = None;
    for ((rank, track), indexes) in positions {
        cancel.check()?;
        let mut of_thread = || {
            let track = track?;
            let rows = rows.rows_of(track).map(|row| {
                let markers = markers.get(&row).map_or(&[][..], Vec::as_slice);
                (row, markers)
            });
            Some(thread_intervals(
                trace,
                rows,
                analysis_windows,
                &indexes,
                &mut kinds,
            ))
        };
        let is_known = of_rank.as_ref().is_some_and(|(known, _)| *known == rank);
        let own = if is_known {
            of_thread()
        } else {
            let (shared, own) = parallel::both(
                || rank_intervals(trace, devices, &device_of, &tracks, rank, cancel),
                || Ok(of_thread()),
            )?;
            of_rank = Some((rank, shared));
            own
        };
        let Some((_, shared)) = &of_rank else {
            continue;
        };
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

#[cfg(test)]
mod tests;
