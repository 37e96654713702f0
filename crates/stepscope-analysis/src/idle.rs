//! Idle time of devices: the gaps between kernels and copies, by cause.
//!
//! A gap is a range in which no queue of a device runs anything, between its first and its last work (or the ends
//! of the requested range). It ends with the work that starts next; the call that launched that work, and the
//! activity of the calling thread before it, determine the cause:
//!
//! ```text
//! gap = [start, end)      call = [called, returned) of the work that ends the gap
//!
//! no next work, or no call known             unknown            all of it
//! called after start                         host side          [start, called)
//!                                            launch overhead    [called, end)
//! called before start, returned after it     launch overhead    [start, returned)
//! queued before start: gap <= 30 us          launch overhead    the rest
//!                      longer                unknown            the rest
//! idle time = sum of all causes
//! ```
//!
//! The host side is charged to the activity of the calling thread over time: waiting for the device
//! (*synchronisation*), fetching *input*, *communication*, and otherwise *host too slow* (the thread had not made
//! the call yet). Of nested slices, the first of these activities that is open counts. Thirty microseconds is
//! HTA's limit for the delay between two consecutive kernels. HTA's own breakdown is in `stepscope_compat::hta`.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Overlapping, Trace};

use crate::device::{Device, Devices};
use crate::launch::Launches;
use crate::parallel::{self, Cancel};
use crate::slice_class::is_input;

/// Delay between consecutive kernels that needs no other cause.
pub const IN_A_ROW: Dur = Dur::from_ps(30_000_000);

/// Cause of idle time of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdleCause {
    /// The launching thread was busy with something else.
    Host,
    /// Time from the call to the start of the work.
    Launch,
    /// The launching thread waited for the device.
    Synchronisation,
    /// The launching thread waited for input, or prepared it.
    Input,
    /// The launching thread communicated.
    Communication,
    /// The file does not show the cause.
    Unknown,
}

impl IdleCause {
    /// All causes, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Host,
        Self::Launch,
        Self::Synchronisation,
        Self::Input,
        Self::Communication,
        Self::Unknown,
    ];

    /// Returns the words used in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host too slow",
            Self::Launch => "launch overhead",
            Self::Synchronisation => "synchronisation",
            Self::Input => "input",
            Self::Communication => "communication",
            Self::Unknown => "unknown",
        }
    }
}

/// Time of each cause, in the order of [`IdleCause::ALL`].
pub type Causes = [Dur; 6];

/// One gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Index into [`Devices::list`].
    pub device: usize,
    /// Start of the gap.
    pub start: Time,
    /// Start of the next work, or end of the range.
    pub end: Time,
    /// The work that ended the gap.
    pub next: Option<EventId>,
    /// The call that launched that work.
    pub launch: Option<EventId>,
    /// Breakdown of its length.
    pub causes: Causes,
}

impl Gap {
    /// Returns the length of the gap.
    pub fn dur(&self) -> Dur {
        self.end.since(self.start)
    }

    /// Returns the cause of most of the gap (the first of several).
    pub fn cause(&self) -> IdleCause {
        let mut main = (IdleCause::Unknown, Dur::ZERO);
        for (cause, dur) in IdleCause::ALL.into_iter().zip(self.causes) {
            if dur > main.1 {
                main = (cause, dur);
            }
        }
        main.0
    }
}

/// Result of [`idle`].
#[derive(Clone, Debug, Default)]
pub struct Idle {
    /// All gaps, in the order of devices, then of time.
    pub gaps: Vec<Gap>,
    /// Analysed time, over all devices.
    pub range: Dur,
}

impl Idle {
    /// Returns the sum of all gaps by cause.
    pub fn causes(&self) -> Causes {
        let mut sums = Causes::default();
        for gap in &self.gaps {
            for (sum, dur) in sums.iter_mut().zip(gap.causes) {
                *sum = sum.saturating_add(dur);
            }
        }
        sums
    }
}

/// Finds all gaps of all devices, within `range` or between a device's first and last work.
pub fn idle(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<Idle, Cancelled> {
    let mut found = Idle::default();
    let threads = trace.tracks().iter();
    let threads = threads.filter(|track| track.kind == TrackKind::Thread);
    let overlapping: FxHashMap<TrackId, Overlapping> = threads
        .filter_map(|track| Some((track.id, trace.overlapping(track.id)?)))
        .collect();
    for (device_index, device) in devices.list.iter().enumerate() {
        let range = range.unwrap_or(&device.span);
        let length = range.end.since(range.start).ps().max(0);
        found.range = found.range.saturating_add(Dur::from_ps(length));
        let empty = devices.gaps(device, range, cancel)?;
        let jobs: Vec<_> = empty.chunks(1_024).enumerate().collect();
        let explainer = Explainer {
            trace,
            devices,
            launches,
            device,
            device_index,
            overlapping: &overlapping,
        };
        let parts = parallel::scan_items(
            &jobs,
            empty.len().saturating_mul(64),
            cancel,
            Vec::new,
            |out, (number, gaps)| {
                let gaps: Vec<Gap> = gaps.iter().map(|gap| explainer.explain(gap)).collect();
                out.push((*number, gaps));
            },
        )?;
        let mut parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.sort_unstable_by_key(|(number, _)| *number);
        found
            .gaps
            .extend(parts.into_iter().flat_map(|(_, gaps)| gaps));
    }
    Ok(found)
}

struct Explainer<'a> {
    trace: &'a Trace,
    devices: &'a Devices<'a>,
    launches: &'a Launches,
    device: &'a Device,
    device_index: usize,
    /// Overlapping slices of threads.
    overlapping: &'a FxHashMap<TrackId, Overlapping>,
}

impl Explainer<'_> {
    fn explain(&self, gap: &Range<Time>) -> Gap {
        let next = self.next(gap.end);
        let launch = next.and_then(|(track, index)| self.launches.get(track, index));
        let mut found = Gap {
            device: self.device_index,
            start: gap.start,
            end: gap.end,
            next: next.map(|(track, index)| self.trace.slices(track).id(index)),
            launch,
            causes: Causes::default(),
        };
        let length = found.dur();
        let call = launch.and_then(|launch| self.trace.place_of_slice(launch));
        let Some((track, index)) = call else {
            add(&mut found.causes, IdleCause::Unknown, length);
            return found;
        };
        let slices = self.trace.slices(track);
        let called = slices.start.get(index).copied().unwrap_or(gap.start);
        if called > gap.start {
            // An inaccurate clock may put the call after the work.
            let called = called.min(gap.end);
            self.host_side(track, gap.start..called, &mut found.causes);
            add(&mut found.causes, IdleCause::Launch, gap.end.since(called));
            return found;
        }
        let returned = slices.end(index).clamp(gap.start, gap.end);
        add(
            &mut found.causes,
            IdleCause::Launch,
            returned.since(gap.start),
        );
        let left = gap.end.since(returned);
        let in_a_row = length <= IN_A_ROW;
        let cause = if in_a_row {
            IdleCause::Launch
        } else {
            IdleCause::Unknown
        };
        add(&mut found.causes, cause, left);
        found
    }

    /// Finds the work that starts at this time.
    fn next(&self, at: Time) -> Option<(TrackId, usize)> {
        self.device.queues.iter().find_map(|queue| {
            let start = self.trace.slices(queue.track).start;
            let first = start.partition_point(|start| *start < at);
            (first..start.len())
                .take_while(|index| start.get(*index) == Some(&at))
                .find(|index| self.devices.work(queue.track, *index).is_some())
                .map(|index| (queue.track, index))
        })
    }

    /// Charges a range to the activities of the thread.
    fn host_side(&self, track: TrackId, range: Range<Time>, causes: &mut Causes) {
        let slices = self.trace.slices(track);
        let begun = slices.start.partition_point(|start| *start < range.start);
        let others = self.overlapping.get(&track);
        let open = self.trace.around(track, range.start, others);
        let open = open.filter(|index| *index < begun);
        let inside = begun..slices.start.partition_point(|start| *start < range.end);
        let mut charged: [Vec<(Time, Time)>; 3] = Default::default();
        for index in open.chain(inside) {
            let (Some(name), Some(start)) = (slices.name.get(index), slices.start.get(index))
            else {
                continue;
            };
            let kind = self.trace.kind(track, *name, slices.category.get(index));
            let list = match kind {
                SliceKind::Wait => &mut charged[0],
                SliceKind::Collective => &mut charged[2],
                _ if is_input(kind, self.trace.name(*name)) => &mut charged[1],
                _ => continue,
            };
            let (start, end) = ((*start).max(range.start), slices.end(index).min(range.end));
            if start < end {
                list.push((start, end));
            }
        }
        let mut taken: Vec<(Time, Time)> = Vec::new();
        let mut before = Dur::ZERO;
        let order = [
            IdleCause::Synchronisation,
            IdleCause::Input,
            IdleCause::Communication,
        ];
        for (cause, list) in order.into_iter().zip(charged) {
            if list.is_empty() {
                continue;
            }
            taken.extend(list);
            let covered = union(&mut taken);
            add(causes, cause, Dur::from_ps(covered.ps() - before.ps()));
            before = covered;
        }
        let left = range.end.since(range.start).ps() - before.ps();
        add(causes, IdleCause::Host, Dur::from_ps(left));
    }
}

fn add(causes: &mut Causes, cause: IdleCause, dur: Dur) {
    let sum = &mut causes[cause as usize];
    *sum = sum.saturating_add(dur);
}

/// Returns the time that at least one of the intervals covers. Leaves them sorted.
fn union(intervals: &mut [(Time, Time)]) -> Dur {
    intervals.sort_unstable();
    let mut total = Dur::ZERO;
    let mut until = Time::MIN;
    for (start, end) in intervals.iter() {
        let start = (*start).max(until);
        if *end > start {
            total = total.saturating_add(end.since(start));
            until = *end;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;

    fn found(drawing: &str) -> Idle {
        let trace = ascii_trace::trace(drawing);
        let cancel = Cancel::default();
        let devices = Devices::from_trace(&trace, &cancel).unwrap();
        let launches = Launches::from_trace(&trace, &devices, &cancel).unwrap();
        let found = idle(&trace, &devices, &launches, None, &cancel).unwrap();
        let whole: i64 = found.causes().iter().map(|dur| dur.ps()).sum();
        let gaps: i64 = found.gaps.iter().map(|gap| gap.dur().ps()).sum();
        assert_eq!(whole, gaps);
        for (device_index, device) in devices.list.iter().enumerate() {
            let times = devices.times_in(device, device.span.clone(), &cancel);
            let gaps = found.gaps.iter().filter(|gap| gap.device == device_index);
            let idle: i64 = gaps.map(|gap| gap.dur().ps()).sum();
            assert_eq!(times.unwrap().idle().ps(), idle);
        }
        found
    }

    fn us(causes: &Causes) -> [i64; 6] {
        causes.map(|dur| dur.ps() / 1_000_000)
    }

    #[test]
    fn causes_add_up_to_the_gaps() {
        let found = found(
            "python        | l>1    cudaDeviceSynchronize--- other--- l>2-- l>3
             gpu/7 #device |    a<1-----                                 b<2---- c<3--",
        );
        assert_eq!(found.gaps.len(), 2);
        let first = &found.gaps[0];
        assert_eq!(first.dur().ps() / 1_000_000, 33);
        assert_eq!(first.cause(), IdleCause::Synchronisation);
        // The wait continues for 20 us after the work ended; the rest until the call is the host's.
        assert_eq!(us(&first.causes), [10, 3, 20, 0, 0, 0]);
        assert_eq!(us(&found.gaps[1].causes), [0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn gaps_without_a_launch_have_an_unknown_cause() {
        let found = found("gpu/7 #device | a---    b---");
        assert_eq!(us(&found.causes()), [0, 0, 0, 0, 0, 4]);
        assert_eq!(found.gaps[0].cause(), IdleCause::Unknown);
    }
}
