//! Charges every picosecond of a step to an owner.
//!
//! A moment of the buckets computation, communication and copy belongs to the pieces of work of that bucket that run
//! then, `1/k` to each of `k`. A moment of the buckets input, compilation and host belongs to the innermost slice of
//! the step's thread. Where there is none, and in idle time, the owner is [`Source::Nothing`].
//!
//! Shares are computed with 32 fractional bits: while `k` pieces are open, a running level grows by `1/k` of the time,
//! and a piece owns the growth between its start and its end. The picoseconds that are lost by rounding go to the
//! largest owner, so that the owners of a bucket add up to it.
//!
//! Cost: `n log n` in the slices of the windows.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Cancelled, NameId, Time, TrackId};
use stepscope_store::{EventId, Overlapping, Trace};

use crate::compare::owner::{DEFAULT_PHASE, Source, TraceOwner, phases_of};
use crate::device::Work;
use crate::intervals::IntervalSet;
use crate::launch::{Launches, RuntimeNames};
use crate::parallel::{self, Cancel};
use crate::run_profile::RunWindows;
use crate::steps::ThreadRows;
use crate::steps::breakdown::{Breakdown, ChargedWindows, host_bucket};
use crate::steps::bucket::StepBucket;
use crate::training_phase::TrainingPhase;

/// Number of fractional bits of a share.
const FRACTION: u32 = 32;

/// Sums of one owner in one window on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnerSums {
    /// Time that it owns, picoseconds.
    pub(super) own_ps: i64,
    /// Calls of its operation.
    pub(super) calls: u64,
    /// Executions of its device work.
    pub(super) executions: u64,
    /// Time of its device work, hidden or not, picoseconds.
    pub(super) device_ps: i64,
    /// One of its events.
    pub(super) example: EventId,
    /// The operation that launched it, or the slice itself.
    pub(super) operation: EventId,
}

/// Owners of some windows of a run on one device: those that one thread charged.
#[derive(Default)]
pub(super) struct ChargedOwners {
    /// All owners.
    pub(super) owners: Vec<TraceOwner>,
    /// For each window, its index in the run and a range of `sums`.
    pub(super) windows: Vec<(usize, Range<usize>)>,
    /// Sums by the index of their owner; in a window each owner is once.
    pub(super) sums: Vec<(u32, OwnerSums)>,
}

/// Reads what separates owners of equal names: a hash, given the operation's event.
pub(super) type DetailOf<'a> = &'a (dyn Fn(EventId) -> u64 + Sync);

/// Breaks down all windows of a run, and charges some of them, by their indexes. A charged window is once in the parts
/// of each device that takes part in it; those of a device come before those of the next one.
pub(super) fn break_down_and_charge(
    run: &RunWindows<'_>,
    windows: &[usize],
    detail: DetailOf<'_>,
    cancel: &Cancel,
) -> Result<(Breakdown, Vec<ChargedOwners>), Cancelled> {
    let trace = run.trace;
    let mut is_charged = vec![false; run.analysis_windows.len()];
    for window in windows {
        is_charged[*window] = true;
    }
    let scan = Scan {
        trace,
        run,
        launches: Launches::from_trace(trace, &run.devices, cancel)?,
        runtime_names: RuntimeNames::new(trace),
        rows: ThreadRows::new(trace),
        overlapping: trace.tracks().iter().map(|_| OnceLock::new()).collect(),
        phases: trace.tracks().iter().map(|_| OnceLock::new()).collect(),
        detail,
    };
    let mut found = Vec::new();
    let breakdown = run.break_down(cancel, &mut |charged| {
        let windows = charged.windows.iter().copied();
        // Pauses come after the windows.
        let windows = windows.filter(|window| is_charged.get(*window) == Some(&true));
        let windows: Vec<usize> = windows.collect();
        found.append(&mut scan.charge_windows(charged, &windows, cancel)?);
        Ok(())
    })?;
    Ok((breakdown, found))
}

struct Scan<'a> {
    trace: &'a Trace,
    run: &'a RunWindows<'a>,
    launches: Arc<Launches>,
    runtime_names: RuntimeNames,
    rows: ThreadRows,
    /// Slices of each track that do not nest.
    overlapping: Vec<OnceLock<Option<Overlapping>>>,
    /// Phases of the slices of each host thread.
    phases: Vec<OnceLock<Vec<TrainingPhase>>>,
    detail: DetailOf<'a>,
}

/// A stretch of time that belongs to an owner, by its number.
#[derive(Clone, Copy)]
struct WorkInterval {
    start: Time,
    end: Time,
    owner: u32,
}

/// Owners of windows while they are charged, one window after the other.
#[derive(Default)]
struct Charging {
    /// Index of each owner in `found`.
    indexes: FxHashMap<TraceOwner, u32>,
    /// For each owner, the last round in which it has sums, and their number there.
    numbers: Vec<(u32, u32)>,
    /// The windows so far, each a round, and the first sums of this one.
    round: u32,
    first: usize,
    found: ChargedOwners,
    /// Shares of the bucket that is being charged, by number.
    shares: Vec<u128>,
    /// Operations that were counted.
    counted: FxHashSet<EventId>,
    /// Starts (`true`) and ends of the pieces that are being charged, with their indexes.
    changes: Vec<(Time, bool, usize)>,
    /// The level at the start of each piece.
    begun: Vec<u128>,
}

/// What one thread keeps from window to window.
#[derive(Default)]
struct Worker {
    charging: Charging,
    work: [Vec<WorkInterval>; 3],
    /// Bucket of the slices of a thread with a name and category, where the host computes.
    buckets: FxHashMap<(TrackId, NameId, NameId), Option<usize>>,
    /// Host slices in a bucket, with the bucket.
    classed: Vec<(usize, usize)>,
}

impl Charging {
    /// Begins a window.
    fn begin(&mut self) {
        self.round += 1;
        self.first = self.found.sums.len();
        // To clear a set takes as long as it is large.
        if self.counted.capacity() > 4 * self.counted.len() + 1024 {
            self.counted = FxHashSet::default();
        }
        self.counted.clear();
    }

    /// Ends a window, given its index in the run.
    fn end(&mut self, window: usize) {
        let range = self.first..self.found.sums.len();
        self.found.windows.push((window, range));
    }

    /// Returns the sums of the window.
    fn sums(&mut self) -> &mut [(u32, OwnerSums)] {
        &mut self.found.sums[self.first..]
    }

    /// Returns the number of an owner in the window.
    fn number(&mut self, owner: TraceOwner, example: EventId, operation: EventId) -> u32 {
        let index = *self.indexes.entry(owner).or_insert_with(|| {
            self.found.owners.push(owner);
            self.numbers.push((0, 0));
            u32::try_from(self.numbers.len() - 1).unwrap_or(u32::MAX)
        });
        let known = &mut self.numbers[index as usize];
        if known.0 != self.round {
            let number = self.found.sums.len() - self.first;
            *known = (self.round, u32::try_from(number).unwrap_or(u32::MAX));
            let sums = OwnerSums {
                own_ps: 0,
                calls: 0,
                executions: 0,
                device_ps: 0,
                example,
                operation,
            };
            self.found.sums.push((index, sums));
        }
        known.1
    }

    /// Returns the sums of an owner, by its number.
    fn sums_of(&mut self, number: u32) -> Option<&mut OwnerSums> {
        let sums = self.sums().get_mut(number as usize);
        sums.map(|(_, sums)| sums)
    }

    /// Charges the moments of a set to the pieces, and those without a piece to nothing.
    fn share(
        &mut self,
        bucket: StepBucket,
        set: &IntervalSet,
        window: &Range<Time>,
        pieces: &[WorkInterval],
    ) {
        let all = set.within(window).ps();
        if all <= 0 {
            return;
        }
        let mut changes = std::mem::take(&mut self.changes);
        for (index, piece) in pieces
            .iter()
            .enumerate()
            .filter(|(_, piece)| piece.end > piece.start)
        {
            changes.push((piece.start, true, index));
            changes.push((piece.end, false, index));
        }
        // Each queue is a sorted run: a stable sort merges them.
        changes.sort();
        self.shares.clear();
        self.shares.resize(self.found.sums.len() - self.first, 0);
        self.begun.clear();
        self.begun.resize(pieces.len(), 0);
        let (mut level, mut open, mut covered) = (0_u128, 0_u32, 0_i64);
        let mut at = window.start;
        let mut near = 0;
        for (time, starts, index) in changes.drain(..) {
            if time > at {
                let moments = if open > 0 {
                    set.within_near(&(at..time), &mut near).ps()
                } else {
                    0
                };
                if let Ok(moments) = u128::try_from(moments)
                    && open > 0
                {
                    covered = covered.saturating_add(i64::try_from(moments).unwrap_or(0));
                    let moments = moments << FRACTION;
                    // Mostly one piece: a division of 128 bits takes as long as all the rest.
                    level += if open == 1 {
                        moments
                    } else {
                        moments / u128::from(open)
                    };
                }
                at = time;
            }
            if starts {
                self.begun[index] = level;
                open += 1;
            } else {
                open = open.saturating_sub(1);
                if let Some(share) = self.shares.get_mut(pieces[index].owner as usize) {
                    *share += level - self.begun[index];
                }
            }
        }
        self.changes = changes;
        let mut rounded = 0_i64;
        let mut largest: Option<(u128, usize)> = None;
        let sums = &mut self.found.sums[self.first..];
        for ((number, share), (_, sums)) in self.shares.iter().enumerate().zip(&mut *sums) {
            let own = i64::try_from(share >> FRACTION).unwrap_or(i64::MAX);
            rounded = rounded.saturating_add(own);
            sums.own_ps = sums.own_ps.saturating_add(own);
            if *share > 0 && largest.is_none_or(|(most, _)| *share > most) {
                largest = Some((*share, number));
            }
        }
        if let Some((_, number)) = largest {
            let lost = covered.saturating_sub(rounded);
            sums[number].1.own_ps = sums[number].1.own_ps.saturating_add(lost);
        }
        self.nothing(bucket, all.saturating_sub(covered));
    }

    /// Charges time to no event.
    fn nothing(&mut self, bucket: StepBucket, ps: i64) {
        if ps <= 0 {
            return;
        }
        let owner = TraceOwner {
            bucket,
            phase: DEFAULT_PHASE,
            source: Source::Nothing,
            detail: 0,
        };
        let none = EventId(u32::MAX);
        let number = self.number(owner, none, none);
        if let Some(sums) = self.sums_of(number) {
            sums.own_ps = sums.own_ps.saturating_add(ps);
        }
    }
}

impl Scan<'_> {
    fn charge_windows(
        &self,
        charged: &ChargedWindows<'_>,
        windows: &[usize],
        cancel: &Cancel,
    ) -> Result<Vec<ChargedOwners>, Cancelled> {
        let slices = charged.device.map_or(0, |device| {
            let queues = self.run.devices.list[device].queues.iter();
            queues
                .map(|queue| self.trace.slices(queue.track).len())
                .sum()
        });
        let workers = parallel::scan_items(
            windows,
            slices.max(parallel::CHUNK_LEN),
            cancel,
            Worker::default,
            |worker, window| self.charge_window(charged, *window, worker),
        )?;
        let found = workers.into_iter().map(|worker| worker.charging.found);
        Ok(found.collect())
    }

    fn charge_window(&self, charged: &ChargedWindows<'_>, window: usize, worker: &mut Worker) {
        let range = &self.run.analysis_windows[window].range;
        worker.charging.begin();
        worker.work.iter_mut().for_each(Vec::clear);
        match charged.device {
            Some(device) => self.device_pieces(device, range, worker),
            None => self.host_work(charged, range, worker),
        }
        let Worker { charging, work, .. } = worker;
        for (bucket, pieces) in StepBucket::ALL.into_iter().zip(&*work) {
            charging.share(bucket, charged.buckets[bucket as usize], range, pieces);
        }
        let of_thread = [StepBucket::Input, StepBucket::Compile, StepBucket::Host];
        let mut left = of_thread.map(|bucket| charged.buckets[bucket as usize].clipped(range));
        // The first row of a thread, or the first thread, owns what several cover.
        let rows: Vec<TrackId> = match charged.thread {
            Some(thread) => self.rows.rows_of(thread).collect(),
            None => self.run.ranks.threads(charged.rank).to_vec(),
        };
        for row in rows {
            self.thread_time(row, range, charging, &mut left);
        }
        for (bucket, left) in of_thread.into_iter().zip(&left) {
            charging.nothing(bucket, left.within(range).ps());
        }
        let length = range.end.since(range.start).ps().max(0);
        let used = charging.sums().iter().map(|(_, sums)| sums.own_ps);
        let used = used.fold(0, i64::saturating_add);
        charging.nothing(StepBucket::Idle, length.saturating_sub(used));
        charging.end(window);
    }

    /// Charges the segments of one row of a thread, and removes their time from what is left.
    fn thread_time(
        &self,
        row: TrackId,
        range: &Range<Time>,
        charging: &mut Charging,
        left: &mut [IntervalSet; 3],
    ) {
        let segments = innermost_segments(self.trace, row, range, self.indexes(row, range));
        let slices = self.trace.slices(row);
        let phases = self.phases[row.index()].get_or_init(|| phases_of(self.trace, row));
        let encloses =
            |index: usize| slices.start[index] <= range.start && slices.end(index) >= range.end;
        let mut near = [0; 3];
        for segment in &segments {
            let event = slices.id(segment.index);
            for ((set, near), bucket) in left.iter().zip(&mut near).zip([
                StepBucket::Input,
                StepBucket::Compile,
                StepBucket::Host,
            ]) {
                let own = set.within_near(&(segment.start..segment.end), near).ps();
                let begins =
                    segment.begins && bucket == StepBucket::Host && !encloses(segment.index);
                if own <= 0 && !begins {
                    continue;
                }
                let owner = TraceOwner {
                    bucket,
                    phase: phases.get(segment.index).copied().unwrap_or(DEFAULT_PHASE),
                    source: Source::Host(slices.name[segment.index]),
                    detail: 0,
                };
                let number = charging.number(owner, event, event);
                if let Some(sums) = charging.sums_of(number) {
                    sums.own_ps = sums.own_ps.saturating_add(own.max(0));
                    sums.calls += u64::from(begins);
                    sums.executions += u64::from(begins);
                }
            }
        }
        let parts = segments
            .iter()
            .map(|segment| (segment.start, segment.end))
            .collect();
        let covered = IntervalSet::from_intervals(parts);
        for set in left {
            *set = set.without(&covered);
        }
    }

    /// Collects the work of a device in a range, by bucket.
    fn device_pieces(&self, device: usize, range: &Range<Time>, worker: &mut Worker) {
        let Worker { charging, work, .. } = worker;
        for queue in &self.run.devices.list[device].queues {
            let track = queue.track;
            let slices = self.trace.slices(track);
            for index in self.indexes(track, range) {
                let bucket = match self.run.devices.work(track, index) {
                    Some(Work::Compute) => StepBucket::Compute,
                    Some(Work::Communication) => StepBucket::ExposedCommunication,
                    Some(Work::Memcpy | Work::Memset) => StepBucket::ExposedCopy,
                    None => continue,
                };
                let (begin, end) = (slices.start[index], slices.end(index));
                let event = slices.id(index);
                let called = self
                    .launches
                    .get(track, index)
                    .and_then(|launch| self.runtime_names.operation(self.trace, launch));
                let owner = self.device_owner(bucket, track, slices.name[index], called);
                let called = called.unwrap_or(event);
                let number = charging.number(owner, event, called);
                let is_new = charging.counted.insert(called);
                if let Some(sums) = charging.sums_of(number) {
                    let inside = end.min(range.end).since(begin.max(range.start)).ps();
                    sums.device_ps = sums.device_ps.saturating_add(inside.max(0));
                    sums.executions += 1;
                    sums.calls += u64::from(is_new);
                }
                work[bucket as usize].push(WorkInterval {
                    start: begin.max(range.start),
                    end: end.min(range.end),
                    owner: number,
                });
            }
        }
    }

    fn device_owner(
        &self,
        bucket: StepBucket,
        track: TrackId,
        kernel: NameId,
        called: Option<EventId>,
    ) -> TraceOwner {
        let place = called.and_then(|event| self.trace.place_of_slice(event));
        let Some(((host, index), event)) = place.zip(called) else {
            return TraceOwner {
                bucket,
                phase: DEFAULT_PHASE,
                source: Source::Device(track, kernel),
                detail: 0,
            };
        };
        let phases = self.phases[host.index()].get_or_init(|| phases_of(self.trace, host));
        TraceOwner {
            bucket,
            phase: phases.get(index).copied().unwrap_or(DEFAULT_PHASE),
            source: Source::Launched {
                operation: self.trace.slices(host).name[index],
                kernel,
            },
            detail: (self.detail)(event),
        }
    }

    /// Collects the operations of all threads of a rank whose host computes: on each thread the innermost of its bucket.
    fn host_work(&self, charged: &ChargedWindows<'_>, range: &Range<Time>, worker: &mut Worker) {
        let Worker {
            charging,
            work,
            buckets,
            classed,
            ..
        } = worker;
        for track in self.run.ranks.threads(charged.rank) {
            let Some(facts) = self.trace.tracks().get(track.index()) else {
                continue;
            };
            let slices = self.trace.slices(*track);
            let phases = self.phases[track.index()].get_or_init(|| phases_of(self.trace, *track));
            let mut bucket_of = |index: usize| {
                let (name, category) = (slices.name[index], slices.category.get(index));
                *buckets.entry((*track, name, category)).or_insert_with(|| {
                    host_bucket(self.trace, &self.run.devices, facts, (name, category))
                })
            };
            classed.clear();
            let indexes = self.indexes(*track, range);
            classed.extend(indexes.filter_map(|index| Some((index, bucket_of(index)?))));
            for (position, pieces) in work.iter_mut().enumerate() {
                let of_bucket = classed.iter().filter(|(_, bucket)| *bucket == position);
                let indexes = of_bucket.map(|(index, _)| *index);
                for segment in innermost_segments(self.trace, *track, range, indexes) {
                    let event = slices.id(segment.index);
                    let owner = TraceOwner {
                        bucket: StepBucket::ALL[position],
                        phase: phases.get(segment.index).copied().unwrap_or(DEFAULT_PHASE),
                        source: Source::Host(slices.name[segment.index]),
                        detail: (self.detail)(event),
                    };
                    let number = charging.number(owner, event, event);
                    if let Some(sums) = charging.sums_of(number) {
                        sums.calls += u64::from(segment.begins);
                        sums.executions += u64::from(segment.begins);
                    }
                    pieces.push(WorkInterval {
                        start: segment.start,
                        end: segment.end,
                        owner: number,
                    });
                }
            }
        }
    }

    /// Returns the slices of a track that overlap a range, parents before children.
    fn indexes(
        &self,
        track: TrackId,
        range: &Range<Time>,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let slices = self.trace.slices(track);
        let overlapping =
            self.overlapping[track.index()].get_or_init(|| self.trace.overlapping(track));
        let mut open: Vec<usize> = self
            .trace
            .around(track, range.start, overlapping.as_ref())
            .filter(|index| slices.end(*index) > range.start)
            .collect();
        open.reverse();
        let first = slices.start.partition_point(|start| *start <= range.start);
        let last = slices.start.partition_point(|start| *start < range.end);
        open.into_iter().chain(first..last.max(first))
    }
}

/// Time in which a slice is the innermost open one of its track.
struct Segment {
    start: Time,
    end: Time,
    index: usize,
    /// Whether the slice begins here.
    begins: bool,
}

/// Returns the segments of slices, which come in the order of their start, parents before children.
fn innermost_segments(
    trace: &Trace,
    track: TrackId,
    range: &Range<Time>,
    indexes: impl Iterator<Item = usize>,
) -> Vec<Segment> {
    let slices = trace.slices(track);
    let mut out: Vec<Segment> = Vec::new();
    // Slice, its end, and whether it had a segment.
    let mut open: Vec<(usize, Time, bool)> = Vec::new();
    let mut at = range.start;
    let mut emit = |open: &mut Vec<(usize, Time, bool)>, at: &mut Time, until: Time| {
        while let Some((index, end, had)) = open.last_mut() {
            let stop = (*end).min(until);
            if stop > *at || !*had {
                out.push(Segment {
                    start: *at,
                    end: stop.max(*at),
                    index: *index,
                    begins: !*had && slices.start[*index] >= range.start,
                });
                *had = true;
                *at = stop.max(*at);
            }
            if *end > until {
                break;
            }
            open.pop();
        }
        *at = (*at).max(until);
    };
    for index in indexes {
        emit(&mut open, &mut at, slices.start[index].max(range.start));
        open.push((index, slices.end(index).min(range.end), false));
    }
    emit(&mut open, &mut at, range.end);
    out
}
