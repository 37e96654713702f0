//! Ranks within one file: processes that each mark steps of their own, and the devices they use.
//!
//! Tools that fuse the traces of several ranks write them into one file, a process each. Processes
//! are ranks where threads of at least two of them mark the same step number; the marks on other
//! tracks belong to the process whose device they lie on.
//!
//! Cost: one pass over the marks; of each queue of a device at most [`LOOKED_AT`] slices.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{TrackId, TrackKind};
use stepscope_store::{Trace, Track};

use super::StepRank;
use super::marks::Marker;
use crate::device::Devices;

/// Slices of a queue whose launches are looked at for the process that drives it.
const LOOKED_AT: usize = 64;

/// The other rows about the thread of a row: recordings of several profilers show each thread once for
/// each of them.
///
/// Rows of equal process and thread number are one thread. XLA numbers its rows on its own: a row of
/// its is called after the thread's number, or, of the main thread, like that thread (where just one is).
pub fn same_thread(trace: &Trace, track: TrackId) -> Vec<TrackId> {
    let Some(own) = trace.tracks().get(track.index()) else {
        return Vec::new();
    };
    let (Some(pid), Some(tid)) = (own.pid, own.tid) else {
        return Vec::new();
    };
    let of_process = || {
        trace.tracks().iter().filter(|other| {
            let is_thread = other.kind == TrackKind::Thread && !other.derived && other.slices > 0;
            is_thread && other.file == own.file && other.pid == Some(pid)
        })
    };
    let main = of_process().find(|row| row.tid == Some(pid));
    let named =
        |row: &&Track| row.tid != Some(pid) && main.is_some_and(|main| main.name == row.name);
    let of_xla = Some(
        of_process()
            .filter(named)
            .map(|row| row.id)
            .collect::<Vec<_>>(),
    );
    let of_xla = of_xla.filter(|rows| rows.len() == 1).unwrap_or_default();
    let is_main = tid == pid || of_xla.contains(&track);
    of_process()
        .filter(|other| {
            let is_called = |row: &Track, number: i64| row.name.parse() == Ok(number);
            let same = other.tid == Some(tid)
                || is_called(other, tid)
                || other.tid.is_some_and(|other| is_called(own, other));
            let both_main = is_main && (other.tid == Some(pid) || of_xla.contains(&other.id));
            other.id != track && (same || both_main)
        })
        .map(|other| other.id)
        .collect()
}

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
        let own = match track.kind {
            TrackKind::Thread => track.pid,
            _ => driver(trace, track.id),
        };
        // A mark of nobody's repeats those of a process: it adds no rank.
        let own = own.filter(|pid| processes.contains(pid));
        let process = own.or_else(|| processes.first().copied());
        for marker in markers {
            marker.process = process;
        }
    }
}

/// By file, the processes that are ranks, in order; files of one rank are not listed.
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

/// The process that launched what a queue of a device ran, by the first slices with a link.
fn driver(trace: &Trace, queue: TrackId) -> Option<i64> {
    let slices = trace.slices(queue);
    let looked_at = (0..slices.len()).take(LOOKED_AT);
    looked_at
        .flat_map(|index| trace.flows_in(slices.id(index)))
        .filter_map(|edge| trace.track_of(edge.from))
        .filter_map(|track| trace.tracks().get(track.index()))
        .find(|track| track.kind == TrackKind::Thread)
        .and_then(|track| track.pid)
}

/// The devices that a rank used: indexes into [`Devices::list`]. Of a file that is one rank, all of
/// its devices; of one process among several, those that it launched work on.
pub fn devices_of(trace: &Trace, devices: &Devices<'_>, rank: StepRank) -> Vec<usize> {
    let listed = devices.list.iter().enumerate();
    let of_file = listed.filter(|(_, device)| device.file == rank.file);
    let own = of_file.filter(|(_, device)| {
        rank.process.is_none_or(|process| {
            let queues = device.queues.iter();
            let mut drivers = queues.filter_map(|queue| driver(trace, queue.track));
            drivers.next() == Some(process)
        })
    });
    own.map(|(index, _)| index).collect()
}
