//! Histories of the allocators in a run's memory snapshots, kept for the next requests.

use std::sync::{Arc, Mutex, PoisonError};

use stepscope_analysis::memory::history::AllocatorHistory;
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::Run;
use stepscope_model::{Cancelled, Time, TrackId};
use stepscope_store::Trace;

use crate::run_cache::Cached;

/// Maximum number of runs whose histories are cached.
const MAX_RUNS: usize = 2;

/// The allocator of one device in one file.
pub(crate) struct SnapshotAllocator {
    /// Index of the file.
    pub(crate) file: usize,
    /// `CUDA 0`, or `device 0` in a converted profile.
    pub(crate) name: String,
    pub(crate) history: AllocatorHistory,
    /// The track of its events; `None` without events.
    track: Option<TrackId>,
}

impl SnapshotAllocator {
    /// Returns the time of an event; `None` if the snapshot has no times.
    pub(crate) fn time_of(&self, trace: &Trace, number: usize) -> Option<Time> {
        let track = self.track.filter(|_| self.history.snapshot().is_timed)?;
        trace.instants(track).at.get(number).copied()
    }
}

/// The histories of the runs that were asked for last.
#[derive(Default)]
pub(crate) struct SnapshotCache(Mutex<Vec<Cached<Vec<SnapshotAllocator>>>>);

impl SnapshotCache {
    /// Returns the allocators of a run's snapshots by file and device, read on first use.
    pub(crate) fn allocators(
        &self,
        run: &Arc<Run>,
        cancel: &Cancel,
    ) -> Result<Arc<Vec<SnapshotAllocator>>, Cancelled> {
        {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = known.iter().find(|known| known.is_of(run)) {
                return Ok(Arc::clone(&found.value));
            }
        }
        let found = Arc::new(read(&run.trace, cancel)?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Cached::insert(&mut known, run, Arc::clone(&found), MAX_RUNS);
        Ok(found)
    }
}

fn read(trace: &Trace, cancel: &Cancel) -> Result<Vec<SnapshotAllocator>, Cancelled> {
    let mut found = Vec::new();
    for file in 0..trace.files().len() {
        // A file that has changed since it was opened has no snapshot any more.
        let Ok(Some(snapshot)) = trace.memory_snapshot(file) else {
            continue;
        };
        for device in snapshot.devices() {
            let key = format!("allocator/{device}");
            let mut tracks = trace.tracks().iter();
            let track = tracks.find(|track| track.file == file && track.key.ends_with(&key));
            let kind = if snapshot.from_profile {
                "device"
            } else {
                "CUDA"
            };
            found.push(SnapshotAllocator {
                file,
                name: format!("{kind} {device}"),
                history: AllocatorHistory::new(&snapshot, device, cancel)?,
                track: track.map(|track| track.id),
            });
        }
    }
    Ok(found)
}
