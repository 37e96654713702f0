//! Time of each device by activity: computation, communication, copies, or idle.
//!
//! A device is one accelerator of one file (of one rank). Its queues (streams, lines of operations) run
//! concurrently, so times are **unions** over all its queues: a timestamp counts once, whatever the number of
//! slices that cover it. With `C`, `M`, `Y` the sets of timestamps at which at least one slice of computation, of
//! communication, or of a copy (memset included) is open, and `R` the range:
//!
//! ```text
//! idle = |R| - |C ∪ M ∪ Y|         busy = |R| - idle - |D - C|
//! exposed communication = |M - C|   hidden communication = |M ∩ C|
//! exposed copy          = |Y - (C ∪ M)|
//! compute + exposed communication + exposed copy + idle = |R|
//! ```
//!
//! `D` is the set of timestamps at which an instruction waits for the end of an asynchronous copy or collective
//! (`copy-done`, `all-reduce-done`): exposed copies or communication, and not busy.
//!
//! Slices are classified by their category where the file has one (`kernel`, `gpu_memcpy`, `gpu_memset`, in all
//! versions of PyTorch), else by the row and the name; the names of kernels show whether they communicate
//! ([`communicates`](stepscope_model::vocabulary::collective::communicates)). Labels on device rows, waits and host calls are no device work. A loop or a branch of a
//! compiled program counts as computation where nothing inside it is recorded; an instruction communicates if its
//! opcode is that of a collective, whatever its name. Other tools differ: `TraceLens` counts memset as
//! computation and leaves out kernels without a CPU operator; HTA leaves out the last of several steps
//! (`stepscope_compat::hta`).
//!
//! Everything is computed from [`Times`]: for each set of kinds of work, the time in which exactly that set ran.
//! One parallel pass over the slices, without allocation per slice.

mod clock;
mod opcodes;
mod sweep;
mod work;

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, Time, TrackId};
use stepscope_store::{Trace, Track};

use crate::intervals::extend;
use crate::parallel::{self, Cancel};
use sweep::{AWAITS, Ends, NO_ENDS, NO_STARTS, Starts, earlier, later};
use work::{CLASSES, Class, Classes, Row};

pub(crate) use clock::{clip_clock, clock, is_clocked};
pub use work::Work;

/// One queue of a device with work on it.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Its row in the trace.
    pub track: TrackId,
    /// Number of slices of each kind of work, in the order of [`Work::ALL`].
    pub counts: [u64; 4],
    row: Row,
    /// For each block of slices, the latest end of all slices up to there, by class.
    ends: Vec<Ends>,
}

/// One accelerator of one file.
#[derive(Clone, Debug)]
pub struct Device {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Number of the device in the file; 0 if the file has none.
    pub ordinal: u32,
    /// Name for display: the name of its group of rows.
    pub name: String,
    /// Rows with work, in the order of the trace.
    pub queues: Vec<Queue>,
    /// Number of slices of each kind of work, in the order of [`Work::ALL`].
    pub counts: [u64; 4],
    /// From the start of the first work to the end of the last.
    pub span: Range<Time>,
    /// Whether only ranges of hardware counters are recorded: they count as its computation.
    counters: bool,
    /// Whether loops or branches of compiled programs are on its queues.
    loops: bool,
}

/// Devices of a trace with work on them, and the classification of their slices.
pub struct Devices<'a> {
    trace: &'a Trace,
    classes: Classes<'a>,
    /// Kind of each track's row, if it belongs to a device in the list.
    rows: Vec<Option<Row>>,
    /// Tracks of devices for which only ranges of counters are recorded.
    counters: Vec<bool>,
    /// Tracks that show operations in flight between instructions of another queue.
    in_flight: Vec<bool>,
    /// Devices in the order of files, then of ordinals.
    pub list: Vec<Device>,
}

/// Number of sets of kinds of work, with and without waiting.
const SETS: usize = 32;

/// Time of a device by activity in one range. See the [module](self) for the equations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Length of the range.
    pub range: Dur,
    /// Time in which exactly each set of kinds of work ran (bits as [`Work::bit`], and [`AWAITS`]), picoseconds.
    /// The entry of the empty set stays zero: it is the rest of the range.
    by_set: [i64; SETS],
}

impl Times {
    /// Returns the time in which at least one of `works` ran and none of `without`.
    pub fn any_without(&self, works: &[Work], without: &[Work]) -> Dur {
        let bits = |works: &[Work]| works.iter().fold(0, |bits, work| bits | work.bit());
        let (with, without) = (bits(works), bits(without));
        let sum = (0_u8..)
            .zip(&self.by_set)
            .filter(|(set, _)| set & with != 0 && set & without == 0)
            .map(|(_, ps)| *ps)
            .fold(0, i64::saturating_add);
        Dur::from_ps(sum)
    }

    /// Returns the time in which at least one of `works` ran.
    pub fn any(&self, works: &[Work]) -> Dur {
        self.any_without(works, &[])
    }

    /// Returns the time without computation in which an instruction waits for the end of an asynchronous one.
    pub fn awaiting(&self) -> Dur {
        let sum = (0_u8..)
            .zip(&self.by_set)
            .filter(|(set, _)| set & AWAITS != 0 && set & Work::Compute.bit() == 0)
            .map(|(_, ps)| *ps)
            .fold(0, i64::saturating_add);
        Dur::from_ps(sum)
    }

    /// Returns the time that is neither idle nor waiting for the end of an asynchronous operation.
    pub fn busy(&self) -> Dur {
        let any = self.any(&Work::ALL);
        Dur::from_ps(any.ps().saturating_sub(self.awaiting().ps()))
    }

    /// Returns the time without an open slice on any queue.
    pub fn idle(&self) -> Dur {
        Dur::from_ps(self.range.ps().saturating_sub(self.any(&Work::ALL).ps()))
    }

    /// Returns the time of computation.
    pub fn compute(&self) -> Dur {
        self.any(&[Work::Compute])
    }

    /// Returns the time of communication, hidden or not.
    pub fn communication(&self) -> Dur {
        self.any(&[Work::Communication])
    }

    /// Returns the time of communication without concurrent computation.
    pub fn exposed_communication(&self) -> Dur {
        self.any_without(&[Work::Communication], &[Work::Compute])
    }

    /// Returns the time of communication with concurrent computation.
    pub fn hidden_communication(&self) -> Dur {
        let hidden = self.communication().ps() - self.exposed_communication().ps();
        Dur::from_ps(hidden)
    }

    /// Returns the time of copies and memset, hidden or not.
    pub fn copy(&self) -> Dur {
        self.any(&[Work::Memcpy, Work::Memset])
    }

    /// Returns the time of copies and memset without concurrent computation or communication.
    pub fn exposed_copy(&self) -> Dur {
        self.any_without(
            &[Work::Memcpy, Work::Memset],
            &[Work::Compute, Work::Communication],
        )
    }

    /// Adds the times of another range, or of another device.
    pub fn add(&mut self, other: &Self) {
        self.range = self.range.saturating_add(other.range);
        for (sum, ps) in self.by_set.iter_mut().zip(&other.by_set) {
            *sum = sum.saturating_add(*ps);
        }
    }
}

impl<'a> Devices<'a> {
    /// Finds the devices: one pass over their rows.
    pub fn from_trace(trace: &'a Trace, cancel: &Cancel) -> Result<Self, Cancelled> {
        let candidates: Vec<(&Track, Row)> = trace
            .tracks()
            .iter()
            .map(|track| (track, Row::from_track(track)))
            .filter(|(track, row)| *row != Row::NoWork && track.slices > 0)
            .collect();
        let classes = Classes::new(trace, &candidates);
        let mut rows = vec![None; trace.tracks().len()];
        for (track, row) in &candidates {
            rows[track.id.index()] = Some(*row);
        }
        let chunks = parallel::track_chunks(
            candidates
                .iter()
                .map(|(track, _)| (track.id, 0..track.slices as usize)),
        );
        let parts = parallel::scan(&chunks, cancel, Vec::new, |found, chunk| {
            let Some(row) = rows.get(chunk.track.index()).copied().flatten() else {
                return;
            };
            let slices = trace.slices(chunk.track);
            let read = sweep::TrackChunk::read(&slices, row, &classes, chunk.indexes.clone());
            found.push((chunk.track, chunk.indexes.start, read));
        })?;
        let mut parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.sort_unstable_by_key(|(track, from, _)| (*track, *from));
        let mut parts = parts.into_iter().peekable();
        let mut by_device: BTreeMap<(usize, u32), Device> = BTreeMap::new();
        let mut seen: BTreeMap<(usize, u32), QueueCounts> = BTreeMap::new();
        for (track, row) in &candidates {
            let mut queue = Queue {
                track: track.id,
                counts: [0; 4],
                row: *row,
                ends: Vec::new(),
            };
            let mut counts = [0; CLASSES];
            let mut starts = NO_STARTS;
            let mut last = NO_ENDS;
            while let Some((_, _, chunk)) = parts.next_if(|part| part.0 == track.id) {
                earlier(&mut starts, &chunk.starts);
                for (sum, count) in counts.iter_mut().zip(&chunk.counts) {
                    *sum += count;
                }
                for ends in &chunk.ends {
                    later(&mut last, ends);
                    queue.ends.push(last);
                }
            }
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            queue.counts.copy_from_slice(&counts[..4]);
            queue.counts[Work::Communication as usize] += counts[work::AWAIT_COMMUNICATION];
            queue.counts[Work::Memcpy as usize] += counts[work::AWAIT_COPY];
            let ordinal = track.device.unwrap_or(0);
            let device = by_device
                .entry((track.file, ordinal))
                .or_insert_with(|| Device {
                    file: track.file,
                    ordinal,
                    name: device_name(trace, track, ordinal),
                    queues: Vec::new(),
                    counts: [0; 4],
                    span: Time::ZERO..Time::ZERO,
                    counters: false,
                    loops: false,
                });
            device.loops |= counts[work::AROUND] > 0;
            for (sum, count) in device.counts.iter_mut().zip(&queue.counts) {
                *sum += count;
            }
            let of_device = seen.entry((track.file, ordinal)).or_insert(QueueCounts {
                counters: 0,
                starts: NO_STARTS,
                ends: NO_ENDS,
            });
            of_device.counters += counts[work::COUNTERS];
            earlier(&mut of_device.starts, &starts);
            later(&mut of_device.ends, &last);
            device.queues.push(queue);
        }
        for (device, seen) in by_device.values_mut().zip(seen.into_values()) {
            if device.counts == [0; 4] && seen.counters > 0 {
                device.counters = true;
                device.counts[Work::Compute as usize] = seen.counters;
            }
            device.span = seen.span(device.counters);
        }
        let list: Vec<Device> = by_device.into_values().collect();
        let mut counters = vec![false; trace.tracks().len()];
        let mut in_flight = counters.clone();
        for device in &list {
            let any_line = device.queues.iter().any(|queue| queue.row != Row::Async);
            for queue in &device.queues {
                counters[queue.track.index()] = device.counters;
                in_flight[queue.track.index()] = any_line && queue.row == Row::Async;
            }
        }
        Ok(Self {
            trace,
            classes,
            rows,
            counters,
            in_flight,
            list,
        })
    }

    /// Maps each queue to its device: index into [`Devices::list`].
    pub(crate) fn by_track(&self) -> FxHashMap<TrackId, usize> {
        let devices = self.list.iter().enumerate();
        let queues = devices.flat_map(|(index, device)| {
            device.queues.iter().map(move |queue| (queue.track, index))
        });
        queues.collect()
    }

    /// Returns whether slices of this name are collectives by the opcode of their instruction.
    pub fn is_collective_name(&self, name: NameId) -> bool {
        self.classes.is_collective(name)
    }

    /// Returns whether the slices of this queue are in flight between two instructions of another one that start
    /// and await them: a copy on the line `Async XLA Ops`, in addition to `copy-start` and `copy-done`.
    pub fn is_in_flight(&self, track: TrackId) -> bool {
        self.in_flight.get(track.index()) == Some(&true)
    }

    /// Returns the kind of work of a slice; `None` if it is no device work.
    pub fn work(&self, track: TrackId, index: usize) -> Option<Work> {
        let row = self.rows.get(track.index()).copied().flatten()?;
        let slices = self.trace.slices(track);
        let name = *slices.name.get(index)?;
        match self.classes.class(row, slices.category.get(index), name) {
            Class::Work(work) | Class::Await(work) => Some(work),
            Class::Counters => self.counters.get(track.index())?.then_some(Work::Compute),
            Class::Around | Class::None => None,
        }
    }

    /// Returns whether a slice waits for the end of an asynchronous operation that another one started.
    pub(crate) fn is_await(&self, track: TrackId, index: usize) -> bool {
        let Some(row) = self.rows.get(track.index()).copied().flatten() else {
            return false;
        };
        let slices = self.trace.slices(track);
        let class = |name: &NameId| self.classes.class(row, slices.category.get(index), *name);
        slices
            .name
            .get(index)
            .map(class)
            .is_some_and(|class| matches!(class, Class::Await(_)))
    }

    /// Computes the times of the device in each of the ranges, which may touch or overlap: one parallel pass over
    /// the slices from the start of the first range to the end of the last.
    pub fn times(
        &self,
        device: &Device,
        ranges: &[Range<Time>],
        cancel: &Cancel,
    ) -> Result<Vec<Times>, Cancelled> {
        let boundaries = Boundaries::from_ranges(ranges);
        let (Some(first), Some(last)) = (boundaries.0.first(), boundaries.0.last()) else {
            return Ok(ranges.iter().map(|_| Times::default()).collect());
        };
        let parts = sweep::sweep_all(
            self.trace,
            &self.classes,
            device,
            &(*first..*last),
            cancel,
            |window| Sums::new(&boundaries, window.start),
            |sums, segment| sums.add(&boundaries, segment),
        )?;
        // Running sums up to each boundary.
        let mut before = vec![[0_i64; SETS]; boundaries.0.len()];
        for part in parts {
            for (position, by_set) in (part.first..).zip(&part.by_boundary) {
                if let Some(sums) = before.get_mut(position + 1) {
                    add_sets(sums, by_set);
                }
            }
        }
        for position in 1..before.len() {
            let so_far = before[position - 1];
            add_sets(&mut before[position], &so_far);
        }
        Ok(ranges
            .iter()
            .map(|range| {
                let length = range.end.since(range.start);
                let mut times = Times {
                    range: Dur::from_ps(length.ps().max(0)),
                    by_set: [0; SETS],
                };
                if length.ps() > 0 {
                    let (from, to) = (
                        boundaries.position(range.start),
                        boundaries.position(range.end),
                    );
                    let sums = before[from].iter().zip(&before[to]);
                    for (ps, (from, to)) in times.by_set.iter_mut().zip(sums) {
                        *ps = to.saturating_sub(*from);
                    }
                }
                times
            })
            .collect())
    }

    /// Returns the time in which one queue of the device was busy in a range.
    pub fn queue_busy(
        &self,
        device: &Device,
        track: TrackId,
        range: &Range<Time>,
        cancel: &Cancel,
    ) -> Result<Dur, Cancelled> {
        let times = self.times_of(device, &[track], range.clone(), cancel)?;
        Ok(times.busy())
    }

    /// Computes the times of some queues of the device in a range, as if it had no others.
    pub fn times_of(
        &self,
        device: &Device,
        tracks: &[TrackId],
        range: Range<Time>,
        cancel: &Cancel,
    ) -> Result<Times, Cancelled> {
        let alone = Device {
            queues: device
                .queues
                .iter()
                .filter(|queue| tracks.contains(&queue.track))
                .cloned()
                .collect(),
            name: String::new(),
            span: device.span.clone(),
            ..*device
        };
        self.times_in(&alone, range, cancel)
    }

    /// Returns the ranges within `range` in which the device was idle, in order of time.
    pub fn gaps(
        &self,
        device: &Device,
        range: &Range<Time>,
        cancel: &Cancel,
    ) -> Result<Vec<Range<Time>>, Cancelled> {
        let add = |gaps: &mut Vec<Range<Time>>, gap: Range<Time>| match gaps.last_mut() {
            Some(last) if last.end == gap.start => last.end = gap.end,
            _ => gaps.push(gap),
        };
        let parts = sweep::sweep_all(
            self.trace,
            &self.classes,
            device,
            range,
            cancel,
            |_| Vec::new(),
            |gaps, segment| {
                if segment.work == 0 {
                    add(gaps, segment.start..segment.end);
                }
            },
        )?;
        let mut all = Vec::new();
        for gap in parts.into_iter().flatten() {
            add(&mut all, gap);
        }
        Ok(all)
    }

    /// Visits the segments of time on the device within `range` in order, each with its set of kinds of work
    /// (bits as [`Work::bit`]), empty where the device is idle.
    pub(crate) fn segments(
        &self,
        device: &Device,
        range: &Range<Time>,
        cancel: &Cancel,
    ) -> Result<Vec<(Range<Time>, u8)>, Cancelled> {
        let add = |all: &mut Vec<(Range<Time>, u8)>, next: (Range<Time>, u8)| match all.last_mut() {
            Some((last, set)) if last.end == next.0.start && *set == next.1 => {
                last.end = next.0.end;
            }
            _ if next.0.start < next.0.end => all.push(next),
            _ => {}
        };
        let parts = sweep::sweep_all(
            self.trace,
            &self.classes,
            device,
            range,
            cancel,
            |_| Vec::new(),
            |all, segment| {
                add(all, (segment.start..segment.end, segment.work & !AWAITS));
            },
        )?;
        let mut all = Vec::new();
        for next in parts.into_iter().flatten() {
            add(&mut all, next);
        }
        Ok(all)
    }

    /// Returns the intervals in which a device with loops computes, including the loops themselves where nothing
    /// inside them is recorded. Empty for other devices: [`work`](Self::work) of their slices is sufficient.
    pub(crate) fn computing(
        &self,
        device: &Device,
        cancel: &Cancel,
    ) -> Result<Vec<(Time, Time)>, Cancelled> {
        if !device.loops {
            return Ok(Vec::new());
        }
        let parts = sweep::sweep_all(
            self.trace,
            &self.classes,
            device,
            &device.span,
            cancel,
            |_| Vec::new(),
            |parts, segment| {
                if segment.work & Work::Compute.bit() != 0 {
                    extend(parts, (segment.start, segment.end));
                }
            },
        )?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// Computes the times of the device in one range.
    pub fn times_in(
        &self,
        device: &Device,
        range: Range<Time>,
        cancel: &Cancel,
    ) -> Result<Times, Cancelled> {
        let times = self.times(device, std::slice::from_ref(&range), cancel)?;
        Ok(times.first().copied().unwrap_or_default())
    }
}

/// Counts of the queues of one device.
struct QueueCounts {
    /// Number of ranges of hardware counters.
    counters: u64,
    starts: Starts,
    ends: Ends,
}

impl QueueCounts {
    /// Returns the range from the first start to the last end of work; ranges of counters are work only if
    /// `counters`.
    fn span(&self, counters: bool) -> Range<Time> {
        let counts = |class: &usize| counters || *class != work::COUNTERS;
        let start = (0..CLASSES).filter(counts).map(|class| self.starts[class]);
        let end = (0..CLASSES).filter(counts).map(|class| self.ends[class]);
        let (start, end) = (start.min(), end.max());
        start.unwrap_or(Time::ZERO)..end.unwrap_or(Time::ZERO)
    }
}

fn device_name(trace: &Trace, queue: &Track, ordinal: u32) -> String {
    queue
        .parent
        .and_then(|group| trace.tracks().get(group.index()))
        .filter(|group| group.device.is_some())
        .map_or_else(|| format!("device {ordinal}"), |group| group.name.clone())
}

fn add_sets(sums: &mut [i64; SETS], others: &[i64; SETS]) {
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum = sum.saturating_add(*other);
    }
}

/// Starts and ends of ranges, sorted and without duplicates.
struct Boundaries(Vec<Time>);

impl Boundaries {
    fn from_ranges(ranges: &[Range<Time>]) -> Self {
        let mut boundaries: Vec<Time> = ranges
            .iter()
            .filter(|range| range.start < range.end)
            .flat_map(|range| [range.start, range.end])
            .collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        Self(boundaries)
    }

    /// Returns the position of a boundary.
    fn position(&self, boundary: Time) -> usize {
        self.0
            .partition_point(|here| *here < boundary)
            .min(self.0.len() - 1)
    }
}

/// Time by activity between neighbouring boundaries, from the one before a window on.
struct Sums {
    first: usize,
    by_boundary: Vec<[i64; SETS]>,
}

impl Sums {
    fn new(boundaries: &Boundaries, start: Time) -> Self {
        let first = boundaries.0.partition_point(|boundary| *boundary <= start);
        Self {
            first: first.saturating_sub(1),
            by_boundary: vec![[0; SETS]],
        }
    }

    fn add(&mut self, boundaries: &Boundaries, segment: sweep::WorkSegment) {
        let mut start = segment.start;
        while start < segment.end {
            let here = self.first + self.by_boundary.len() - 1;
            let until = boundaries.0.get(here + 1).copied().unwrap_or(Time::MAX);
            let end = segment.end.min(until);
            if segment.work != 0
                && let Some(by_set) = self.by_boundary.last_mut()
            {
                let sum = &mut by_set[usize::from(segment.work)];
                *sum = sum.saturating_add(end.since(start).ps());
            }
            start = end;
            if end == until {
                self.by_boundary.push([0; SETS]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
