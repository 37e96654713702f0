//! Single occurrences of device work, with the figures that [`kernels`](super::kernels) sums up.

use std::ops::Range;

use stepscope_model::{Cancelled, Dur, Time, TrackId};
use stepscope_store::{EventId, Trace};

use crate::device::{Devices, Work, clock, is_clocked};
use crate::launch::Launches;
use crate::parallel::{CHUNK_LEN, Cancel};

/// One kernel, copy or memset on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOccurrence {
    /// Its queue.
    pub track: TrackId,
    /// Index among the slices of the queue.
    pub index: usize,
    /// The slice.
    pub event: EventId,
    /// Ordinal of the device in its file.
    pub device: u32,
    /// Kind of work.
    pub work: Work,
    /// Start on the run's clock.
    pub start: Time,
    /// Duration, by the device's own clock where the file has it.
    pub dur: Dur,
    /// The call that launched it.
    pub launch: Option<EventId>,
    /// Start and end of that call.
    pub call: Option<(Time, Time)>,
}

impl KernelOccurrence {
    /// Returns the time from the end of the launching call to the start of the work; 0 when it started before.
    pub fn delay(&self) -> Option<Dur> {
        let (_, end) = self.call?;
        Some(Dur::from_ps(self.start.since(end).ps().max(0)))
    }
}

/// Lists the work that [`kernels`](super::kernels) counts in `range`, in the order of queues, then of time. Work in
/// flight between two instructions of another queue is not part of it.
pub fn occurrences(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    range: &Range<Time>,
    cancel: &Cancel,
) -> Result<Vec<KernelOccurrence>, Cancelled> {
    let mut found = Vec::new();
    for device in &devices.list {
        for queue in &device.queues {
            let track = queue.track;
            if devices.is_in_flight(track) {
                continue;
            }
            let clocked = is_clocked(trace, track);
            let slices = trace.slices(track);
            for index in trace.candidates(track, range.clone()) {
                if index % CHUNK_LEN == 0 {
                    cancel.check()?;
                }
                let Some(work) = devices.work(track, index) else {
                    continue;
                };
                let (start, end) = (slices.start[index], slices.end(index));
                let overlaps = start.max(range.start) < end.min(range.end);
                if !(overlaps || start == end && range.contains(&start)) {
                    continue;
                }
                let event = slices.id(index);
                let own = if clocked { clock(trace, event) } else { None };
                let launch = launches.get(track, index);
                found.push(KernelOccurrence {
                    track,
                    index,
                    event,
                    device: device.ordinal,
                    work,
                    start,
                    dur: own.unwrap_or(slices.dur[index]),
                    launch,
                    call: launch.and_then(|launch| call(trace, launch)),
                });
            }
        }
    }
    Ok(found)
}

/// Returns start and end of a launching call.
fn call(trace: &Trace, launch: EventId) -> Option<(Time, Time)> {
    let (track, index) = trace.place_of_slice(launch)?;
    let slices = trace.slices(track);
    Some((*slices.start.get(index)?, slices.end(index)))
}
