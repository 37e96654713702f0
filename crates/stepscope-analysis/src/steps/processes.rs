//! Ranks within one file: processes that each mark their own steps, and the devices they use.
//!
//! Tools that merge the traces of several ranks write them into one file, one process per rank. Processes are
//! ranks where threads of at least two of them mark the same step number; the markers on other tracks belong to
//! the process that drives their device.
//!
//! Cost: one pass over the markers, and at most [`MAX_SLICES`] slices of each device queue.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{TrackId, TrackKind};
use stepscope_store::{Trace, Track};

use super::StepRank;
use super::marker::Marker;
use crate::device::Devices;

/// Maximum number of slices of a queue whose launches are read to find the process that drives it.
const MAX_SLICES: usize = 64;

/// Sets the process of each marker in the files whose processes are ranks.
pub(super) fn assign(trace: &Trace, by_track: &mut BTreeMap<TrackId, Vec<Marker>>) {
    let ranks = ranks(trace, by_track);
    if ranks.is_empty() {
        return;
    }
    for (track, markers) in by_track {
        let Some(track) = trace.tracks().get(track.index()) else {
            continue;
        };
        let Some(processes) = ranks.get(&track.file) else {
            continue;
        };
        // A marker of a process that is no rank repeats those of a rank: it adds none.
        let own = process(trace, track).filter(|pid| processes.binary_search(pid).is_ok());
        let process = own.or_else(|| processes.first().copied());
        for marker in markers {
            marker.process = process;
        }
    }
}

/// Returns, by file, the processes that are ranks, in order; files of one rank are not listed.
fn ranks(trace: &Trace, by_track: &BTreeMap<TrackId, Vec<Marker>>) -> FxHashMap<usize, Vec<i64>> {
    let mut owners: BTreeMap<usize, FxHashMap<i64, FxHashSet<i64>>> = BTreeMap::new();
    for (track, markers) in by_track {
        let track = trace.tracks().get(track.index());
        let Some(track) = track.filter(|track| track.kind == TrackKind::Thread) else {
            continue;
        };
        if let Some(pid) = track.pid {
            let of_file = owners.entry(track.file).or_default();
            let numbers = markers.iter().map(|marker| marker.number);
            of_file.entry(pid).or_default().extend(numbers);
        }
    }
    let mut found = FxHashMap::default();
    for (file, processes) in owners {
        let all: usize = processes.values().map(FxHashSet::len).sum();
        let distinct: FxHashSet<i64> = processes.values().flatten().copied().collect();
        if distinct.len() < all {
            let mut pids: Vec<i64> = processes.into_keys().collect();
            pids.sort_unstable();
            found.insert(file, pids);
        }
    }
    found
}

/// Returns the process that launched the work of a device queue, by the first slices with a link.
fn driver(trace: &Trace, queue: TrackId) -> Option<i64> {
    let slices = trace.slices(queue);
    let slices_read = (0..slices.len()).take(MAX_SLICES);
    slices_read
        .flat_map(|index| trace.flows_in(slices.id(index)))
        .filter_map(|edge| trace.track_of(edge.from))
        .filter_map(|track| trace.tracks().get(track.index()))
        .find(|track| track.kind == TrackKind::Thread)
        .and_then(|track| track.pid)
}

/// Files whose processes are ranks.
#[derive(Clone, Debug, Default)]
pub struct FusedFiles {
    files: FxHashSet<usize>,
    /// Process that drives each device (file, ordinal) in them.
    drivers: FxHashMap<(usize, u32), i64>,
}

impl FusedFiles {
    /// Finds these files among the ranks of a run.
    pub fn new(trace: &Trace, ranks: impl Iterator<Item = StepRank>) -> Self {
        let fused = ranks.filter(|rank| rank.process.is_some());
        let files: FxHashSet<usize> = fused.map(|rank| rank.file).collect();
        let mut drivers = FxHashMap::default();
        for track in trace.tracks() {
            let is_queue = track.kind == TrackKind::DeviceQueue && files.contains(&track.file);
            let device = (track.file, track.device.unwrap_or(0));
            if is_queue
                && !drivers.contains_key(&device)
                && let Some(process) = driver(trace, track.id)
            {
                drivers.insert(device, process);
            }
        }
        Self { files, drivers }
    }

    /// Returns the rank that a track belongs to; for a queue, that of its device.
    pub fn rank(&self, track: &Track) -> StepRank {
        let is_fused = self.files.contains(&track.file);
        let process = || match track.kind {
            TrackKind::Thread => track.pid,
            _ => self
                .drivers
                .get(&(track.file, track.device.unwrap_or(0)))
                .copied(),
        };
        StepRank {
            file: track.file,
            process: is_fused.then(process).flatten(),
        }
    }
}

/// Returns the process that a track belongs to: that of a thread, and the one that launched the work of a queue.
fn process(trace: &Trace, track: &Track) -> Option<i64> {
    match track.kind {
        TrackKind::Thread => track.pid,
        _ => driver(trace, track.id),
    }
}

/// Devices and threads of each rank. A rank that is a whole file has all devices and threads of that file; a rank
/// that is one process among several has the devices that it launched work on and its own threads.
#[derive(Clone, Debug, Default)]
pub struct RankTracks {
    devices: FxHashMap<StepRank, Vec<usize>>,
    threads: FxHashMap<StepRank, Vec<TrackId>>,
}

impl RankTracks {
    /// Groups devices and threads by rank: one pass over both, whatever the number of ranks.
    pub fn new(trace: &Trace, devices: &Devices<'_>) -> Self {
        let mut found = Self::default();
        for (index, device) in devices.list.iter().enumerate() {
            let mut queues = device.queues.iter();
            let process = queues.find_map(|queue| driver(trace, queue.track));
            for process in std::iter::once(None).chain(process.map(Some)) {
                let file = device.file;
                let rank = StepRank { file, process };
                found.devices.entry(rank).or_default().push(index);
            }
        }
        for track in trace.tracks() {
            if track.kind != TrackKind::Thread || track.derived || track.slices == 0 {
                continue;
            }
            for process in std::iter::once(None).chain(track.pid.map(Some)) {
                let file = track.file;
                let rank = StepRank { file, process };
                found.threads.entry(rank).or_default().push(track.id);
            }
        }
        found
    }

    /// Returns the devices of a rank: indexes into [`Devices::list`], ascending.
    pub fn devices(&self, rank: StepRank) -> &[usize] {
        self.devices.get(&rank).map_or(&[], Vec::as_slice)
    }

    /// Returns the threads of a rank that recorded slices, in the order of [`Trace::tracks`].
    pub fn threads(&self, rank: StepRank) -> &[TrackId] {
        self.threads.get(&rank).map_or(&[], Vec::as_slice)
    }
}
