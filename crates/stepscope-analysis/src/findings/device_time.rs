//! Device timeline of typical and of outlying steps: what a device is busy with, and the causes of its idle time.
//!
//! The kernel or copy that ends a gap explains the gap:
//!
//! ```text
//! launched after the gap started    host activity from the start of the gap to the launch: host side
//!                                   from the launch to the start of the kernel, up to 50 us: launch
//! queued before the gap started     up to 30 us: dispatch
//! rest                              another device of the process worked: other device
//!                                   nothing of this device was recorded before: backlog
//!                                   else: unknown
//! ```
//!
//! The host side is read from the launching thread, and where that thread is idle, from the thread that marks the
//! steps. Without any host event, all of a gap is unknown.

use std::ops::Range;

use stepscope_model::{Cancelled, Dur, SliceKind, Time, TrackId};
use stepscope_store::Trace;

use super::host::{Host, HostClass, Segment};
use super::launched::LaunchOf;
use super::losses::{AFTER_DRAIN, Account, Loss};
use super::windows::{IterationRole, Window, Windows, sample};
use crate::device::{Device, Devices, Work};
use crate::idle::IN_A_ROW;
use crate::intervals::IntervalSet;
use crate::parallel::Cancel;
use crate::run_profile::{RunProfile, is_of_program};
use crate::steps::StepRank;

/// Maximum time from a launch to the start of its kernel on an idle device; longer ones have another cause.
const LAUNCH_LATENCY: Dur = Dur::from_ps(50_000_000);
/// One host activity that takes at least this long counts as its own cause instead of launching.
const LONG_ACTIVITY: Dur = Dur::from_ps(100_000_000);
/// Tolerated difference between the clocks of a host and its device.
const CLOCKS: Dur = Dur::from_ps(20_000_000);
/// Maximum number of slices that may start between a wait and the end of the kernel it waits for.
const MOST_AFTER_WAIT: usize = 64;
/// Maximum number of slices without device work (labels on a device's row) that a search for the next kernel
/// skips.
const MOST_NO_WORK: usize = 1_000;

/// Time of the devices of one rank.
#[derive(Clone, Debug)]
pub(super) struct RankTime {
    pub(super) rank: StepRank,
    /// Devices with work in the windows, or all where none has any.
    pub(super) devices: Vec<Device>,
    pub(super) steady: Account,
    pub(super) outlying: Account,
    /// Windows that were read.
    pub(super) sampled: Vec<Window>,
}

impl RankTime {
    /// Creates an empty record.
    pub(super) fn new(rank: StepRank, devices: Vec<Device>, sampled: Vec<Window>) -> Self {
        Self {
            rank,
            devices,
            steady: Account::default(),
            outlying: Account::default(),
            sampled,
        }
    }

    /// Returns how many outlying windows were read.
    pub(super) fn outliers(&self) -> usize {
        let sampled = self.sampled.iter();
        sampled
            .filter(|window| window.role == IterationRole::Outlier)
            .count()
    }
}

/// Breaks down the time of all devices, rank by rank.
pub(super) fn device_time<'a>(
    run_profile: &RunProfile<'a>,
    windows: &Windows,
    launch_of: &mut LaunchOf<'a>,
    cancel: &Cancel,
) -> Result<Vec<RankTime>, Cancelled> {
    let trace = run_profile.trace;
    let mut ranks: Vec<StepRank> = windows.list.iter().map(|window| window.rank).collect();
    ranks.dedup();
    ranks.retain(|rank| !run_profile.ranks.devices(*rank).is_empty());
    let mut host = Host::new(trace);
    let count = ranks.len();
    let mut found = Vec::new();
    let mut of_file: Option<(usize, IntervalSet)> = None;
    for rank in ranks {
        cancel.check()?;
        let own = run_profile.ranks.devices(rank).iter();
        let own: Vec<&Device> = own
            .map(|device| &run_profile.devices.list[*device])
            .collect();
        let queues: Vec<TrackId> = own
            .iter()
            .flat_map(|device| device.queues.iter().map(|queue| queue.track))
            .collect();
        let threads = run_profile.ranks.threads(rank);
        let sampled = sample(trace, windows.rank_windows(rank), &queues, threads, count);
        if sampled.is_empty() {
            continue;
        }
        let overhead = match of_file.take() {
            Some((file, known)) if file == rank.file => known,
            _ => overhead(trace, rank.file),
        };
        let (_, overhead) = of_file.insert((rank.file, overhead));
        let mut reader = Reader::new(run_profile, threads, overhead, &mut host, launch_of);
        let devices = taking_part(&run_profile.devices, &own, &sampled, cancel)?;
        let mut time = RankTime::new(rank, devices, sampled);
        let sampled = std::mem::take(&mut time.sampled);
        for run in sampled.chunk_by(|a, b| a.range.end == b.range.start) {
            reader.run(run, &mut time, cancel)?;
        }
        time.sampled = sampled;
        time.steady.seal(&mut host);
        time.outlying.seal(&mut host);
        let devices = time.devices.len().max(1) as f64;
        for account in [&mut time.steady, &mut time.outlying] {
            account.busy_ps /= devices;
            account
                .by
                .iter_mut()
                .chain(&mut account.drained)
                .for_each(|ps| *ps /= devices);
        }
        found.push(time);
    }
    Ok(found)
}

/// Returns the devices of a rank that work in any of the windows; all of them where none does, or where the host
/// launches far ahead of them. A device that the other devices of the process do not use waits for nothing.
fn taking_part(
    devices: &Devices<'_>,
    own: &[&Device],
    windows: &[Window],
    cancel: &Cancel,
) -> Result<Vec<Device>, Cancelled> {
    let ranges: Vec<Range<Time>> = windows.iter().map(|window| window.range.clone()).collect();
    let mut working = Vec::new();
    for device in own {
        let times = devices.times(device, &ranges, cancel)?;
        if times.iter().any(|times| times.busy() > Dur::ZERO) {
            working.push((*device).clone());
        }
    }
    if working.is_empty() {
        working.extend(own.iter().map(|device| (*device).clone()));
    }
    Ok(working)
}

/// Reader of the windows of one rank.
struct Reader<'a, 'b> {
    trace: &'a Trace,
    devices: &'b Devices<'a>,
    host: &'b mut Host<'a>,
    launch_of: &'b mut LaunchOf<'a>,
    /// Intervals in which the profiler itself worked.
    overhead: &'b IntervalSet,
    has_host: bool,
    /// The busiest thread.
    main: Option<TrackId>,
}

/// A part of a gap in a device's work.
struct Gap<'a> {
    device: &'a Device,
    whole: Range<Time>,
    /// The part of the gap inside the window.
    part: Range<Time>,
    /// Intervals in which devices of the rank worked; within a gap of this device, others.
    working: &'a IntervalSet,
    /// The thread that marks the steps, or the busiest one.
    main: Option<TrackId>,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn new(
        run_profile: &'b RunProfile<'a>,
        threads: &[TrackId],
        overhead: &'b IntervalSet,
        host: &'b mut Host<'a>,
        launch_of: &'b mut LaunchOf<'a>,
    ) -> Self {
        let trace = run_profile.trace;
        let threads = threads
            .iter()
            .filter_map(|track| trace.tracks().get(track.index()))
            .filter(|track| is_of_program(trace, track));
        let main = threads
            .clone()
            .max_by_key(|track| (track.busy, std::cmp::Reverse(track.id)));
        Self {
            trace,
            devices: &run_profile.devices,
            host,
            launch_of,
            overhead,
            has_host: threads.count() > 0,
            main: main.map(|track| track.id),
        }
    }

    /// Reads windows that follow one another.
    fn run(
        &mut self,
        run: &[Window],
        time: &mut RankTime,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            return Ok(());
        };
        // A gap may start before the first window and end after the last one.
        let around = first.dur().max(last.dur());
        let from = first.range.start.saturating_sub(around);
        let range = from..last.range.end.saturating_add(around);
        let devices = time.devices.clone();
        let mut works = Vec::with_capacity(devices.len());
        for device in &devices {
            works.push(self.devices.segments(device, &range, cancel)?);
        }
        let busy = works.iter().flatten().filter(|(_, set)| *set != 0);
        let working =
            IntervalSet::from_intervals(busy.map(|(range, _)| (range.start, range.end)).collect());
        let mut launching: Vec<TrackId> = run.iter().filter_map(|window| window.thread).collect();
        for (position, device) in devices.iter().enumerate() {
            cancel.check()?;
            let infeed = self.infeed(device, &range);
            let mut next = 0;
            for (segment, set) in &works[position] {
                while run
                    .get(next)
                    .is_some_and(|window| window.range.end <= segment.start)
                {
                    next += 1;
                }
                let touched = run[next..]
                    .iter()
                    .take_while(|window| window.range.start < segment.end);
                for window in touched {
                    let part =
                        segment.start.max(window.range.start)..segment.end.min(window.range.end);
                    let account = account_of(time, window);
                    if *set == 0 {
                        let gap = Gap {
                            device,
                            whole: segment.clone(),
                            part,
                            working: &working,
                            main: window.thread.or(self.main),
                        };
                        launching.extend(self.gap(&gap, account));
                    } else {
                        busy_part(&part, *set, &infeed, account);
                    }
                }
            }
            for window in run {
                let account = account_of(time, window);
                self.name_exposed(device, &works[position], &infeed, &window.range, account);
            }
        }
        launching.sort_unstable();
        launching.dedup();
        for window in run {
            let account = account_of(time, window);
            account.length_ps += window.dur().ps() as f64;
            account.waited_ps += self.waited(&launching, &window.range);
        }
        Ok(())
    }

    /// Explains a part of a gap; returns the thread that launched the work that ends it.
    fn gap(&mut self, gap: &Gap<'_>, account: &mut Account) -> Option<TrackId> {
        let part = &gap.part;
        if !self.has_host {
            account.add(Loss::Unknown, part.end.since(part.start).ps() as f64);
            return None;
        }
        let next = self.next_work(gap.device, gap.whole.end);
        let launch = next.and_then(|(track, index)| self.launch_of.get(track, index));
        let call = launch.and_then(|launch| self.trace.place_of_slice(launch));
        let Some((thread, index)) = call else {
            // The recording ends in the gap, or has no launch links: read the loop's thread.
            self.host_side(gap, part.clone(), gap.main, account);
            return None;
        };
        let slices = self.trace.slices(thread);
        let called = slices.start[index];
        if called > gap.whole.start {
            let begun = called.saturating_add(LAUNCH_LATENCY);
            self.host_side(gap, cut(part, Time::MIN..called), Some(thread), account);
            self.launching(&cut(part, called..begun), account);
            self.queued(gap, &cut(part, begun..Time::MAX), account);
        } else {
            let returned = slices.end(index).max(gap.whole.start);
            self.launching(&cut(part, Time::MIN..returned), account);
            let left = cut(part, returned..Time::MAX);
            if gap.whole.end.since(returned) <= IN_A_ROW {
                account.add(Loss::Dispatch, length(&left));
            } else {
                self.queued(gap, &left, account);
            }
        }
        Some(thread)
    }

    /// Charges the time from a runtime call to the start of the work it launches.
    fn launching(&self, range: &Range<Time>, account: &mut Account) {
        let profiler = self.overhead.within(range).ps() as f64;
        account.add(Loss::Overhead, profiler);
        account.add(Loss::Launch, (length(range) - profiler).max(0.0));
    }

    /// Charges the time in which the queue of an idle device is not empty.
    fn queued(&self, gap: &Gap<'_>, range: &Range<Time>, account: &mut Account) {
        let waiting = length(range);
        if waiting <= 0.0 {
            return;
        }
        if range.end <= gap.device.span.start {
            account.busy_ps += waiting;
            account.add(Loss::Backlog, waiting);
            return;
        }
        let profiler = self.overhead.within(range).ps() as f64;
        let elsewhere = (gap.working.within(range).ps() as f64).min(waiting - profiler);
        account.add(Loss::Overhead, profiler);
        account.add(Loss::OtherDevice, elsewhere);
        account.add(Loss::Unknown, waiting - profiler - elsewhere);
    }

    /// Finds the first work that starts at or after a timestamp.
    fn next_work(&self, device: &Device, at: Time) -> Option<(TrackId, usize)> {
        let of_queue = |track: TrackId| {
            let start = self.trace.slices(track).start;
            let first = start.partition_point(|start| *start < at);
            let index = (first..start.len())
                .take(MOST_NO_WORK)
                .find(|index| self.devices.work(track, *index).is_some())?;
            Some((start[index], track, index))
        };
        let first = device
            .queues
            .iter()
            .filter_map(|queue| of_queue(queue.track))
            .min();
        first.map(|(_, track, index)| (track, index))
    }

    /// Charges the host activity while the device waited.
    fn host_side(
        &mut self,
        gap: &Gap<'_>,
        range: Range<Time>,
        thread: Option<TrackId>,
        account: &mut Account,
    ) {
        if range.start >= range.end {
            return;
        }
        let main = gap.main;
        let Some(thread) = thread.or(main) else {
            account.add(Loss::Unknown, length(&range));
            return;
        };
        let drained = self.drain(gap.whole.start, &range, thread, main, account);
        let mut run = Run::new(gap.working, drained);
        let Self { host, overhead, .. } = self;
        let mut unexplained = Vec::new();
        host.walk(thread, &range, &mut |_, segment| {
            if segment.innermost.is_none() && main.is_some_and(|main| main != thread) {
                unexplained.push(segment.range);
            } else {
                run.add(thread, &segment, overhead, account);
            }
        });
        for range in unexplained {
            let Some(main) = main else { continue };
            host.walk(main, &range, &mut |_, segment| {
                run.add(main, &segment, overhead, account);
            });
        }
        run.close(account);
    }

    /// Returns whether the host waited for the work that ended when a gap started, and records the slices around
    /// the wait.
    fn drain(
        &mut self,
        gap_start: Time,
        range: &Range<Time>,
        thread: TrackId,
        main: Option<TrackId>,
        account: &mut Account,
    ) -> bool {
        let threads = [Some(thread), main.filter(|main| *main != thread)];
        for thread in threads.into_iter().flatten() {
            let Some(wait) = self.wait_until(thread, gap_start) else {
                continue;
            };
            account.add_wait(thread, wait, range.end.since(range.start));
            return true;
        }
        false
    }

    /// Finds the last wait for a device that started before a timestamp and lasted until it. Clocks of hosts and
    /// devices agree to some microseconds, and durations to some percent.
    fn wait_until(&mut self, thread: TrackId, at: Time) -> Option<usize> {
        let slices = self.trace.slices(thread);
        let begun = slices.start.partition_point(|start| *start < at);
        (begun.saturating_sub(MOST_AFTER_WAIT)..begun)
            .rev()
            .find(|index| {
                let tolerance = CLOCKS.max(Dur::from_ps(slices.dur[*index].ps() / 20));
                slices.end(*index) >= at.saturating_sub(tolerance)
                    && self.host.class(thread, *index) == HostClass::Wait
            })
    }

    /// Returns the intervals in which the device waits for its infeed, as TPUs record it.
    fn infeed(&mut self, device: &Device, range: &Range<Time>) -> IntervalSet {
        let mut found = Vec::new();
        for queue in &device.queues {
            let slices = self.trace.slices(queue.track);
            for index in self.host.touching(queue.track, range) {
                let (name, category) = (slices.name[index], slices.category.get(index));
                if self.trace.kind(queue.track, name, category) == SliceKind::Input {
                    let start = slices.start[index].max(range.start);
                    found.push((start, slices.end(index).min(range.end)));
                }
            }
        }
        IntervalSet::from_intervals(found)
    }

    /// Records the names of exposed copies and collectives, and of infeeds.
    fn name_exposed(
        &mut self,
        device: &Device,
        work: &[(Range<Time>, u8)],
        infeed: &IntervalSet,
        range: &Range<Time>,
        account: &mut Account,
    ) {
        let compute = Work::Compute.bit();
        let exposed = intervals(work, |set| set != 0 && set & compute == 0);
        if exposed.is_empty() && infeed.is_empty() {
            return;
        }
        for queue in &device.queues {
            let slices = self.trace.slices(queue.track);
            for index in self.host.touching(queue.track, range) {
                let span = slices.start[index].max(range.start)..slices.end(index).min(range.end);
                if span.start >= span.end {
                    continue;
                }
                let kind =
                    self.trace
                        .kind(queue.track, slices.name[index], slices.category.get(index));
                let (loss, dur) = match self.devices.work(queue.track, index) {
                    Some(_) if kind == SliceKind::Input => (Loss::Input, infeed.within(&span)),
                    Some(Work::Communication) => (Loss::Communication, exposed.within(&span)),
                    Some(Work::Memcpy | Work::Memset) => (Loss::Copy, exposed.within(&span)),
                    _ => continue,
                };
                if dur > Dur::ZERO {
                    account.add_name(loss, slices.name[index], slices.id(index), dur);
                }
            }
        }
    }

    /// Returns the time in which any of these threads waited for the device.
    fn waited(&mut self, threads: &[TrackId], range: &Range<Time>) -> f64 {
        let mut waits = Vec::new();
        for thread in threads {
            let slices = self.trace.slices(*thread);
            for index in self.host.touching(*thread, range) {
                if self.host.class(*thread, index) == HostClass::Wait {
                    let start = slices.start[index].max(range.start);
                    waits.push((start, slices.end(index).min(range.end)));
                }
            }
        }
        IntervalSet::from_intervals(waits).within(range).ps() as f64
    }
}

/// Consecutive segments of a gap in which the host has one activity.
struct Run<'a> {
    /// Intervals in which other devices of the rank worked.
    others: &'a IntervalSet,
    /// Whether the gap started while the host waited for the device.
    drained: bool,
    /// Thread and innermost slice; the inner `None`: no slice is open.
    innermost: Option<(TrackId, Option<usize>)>,
    class: Option<HostClass>,
    dur: Dur,
    /// The part of it in which another device worked.
    elsewhere: Dur,
}

impl<'a> Run<'a> {
    const fn new(others: &'a IntervalSet, drained: bool) -> Self {
        Self {
            others,
            drained,
            innermost: None,
            class: None,
            dur: Dur::ZERO,
            elsewhere: Dur::ZERO,
        }
    }

    fn add(
        &mut self,
        thread: TrackId,
        segment: &Segment,
        overhead: &IntervalSet,
        account: &mut Account,
    ) {
        let whole = segment.range.end.since(segment.range.start);
        let profiler = overhead.within(&segment.range);
        account.add(Loss::Overhead, profiler.ps() as f64);
        let class = segment.class;
        let innermost = (thread, segment.innermost);
        if self.innermost != Some(innermost) || self.class != Some(class) {
            self.close(account);
            self.innermost = Some(innermost);
            self.class = Some(class);
        }
        let own = Dur::from_ps((whole.ps() - profiler.ps()).max(0));
        self.dur = self.dur.saturating_add(own);
        if class == HostClass::Wait {
            let elsewhere = self.others.within(&segment.range).min(own);
            self.elsewhere = self.elsewhere.saturating_add(elsewhere);
        }
    }

    /// Charges the collected time.
    fn close(&mut self, account: &mut Account) {
        let dur = std::mem::take(&mut self.dur);
        let elsewhere = std::mem::take(&mut self.elsewhere);
        let Some(class) = self.class.take() else {
            return;
        };
        let innermost = self.innermost.take();
        // The host waits for another device, and so does this one.
        account.add(Loss::OtherDevice, elsewhere.ps() as f64);
        let dur = Dur::from_ps((dur.ps() - elsewhere.ps()).max(0));
        let loss = loss_of(class, dur >= LONG_ACTIVITY);
        let ps = dur.ps() as f64;
        account.add(loss, ps);
        if self.drained && AFTER_DRAIN.contains(&loss) {
            account.drained[loss as usize] += ps;
        }
        if let Some((thread, Some(index))) = innermost {
            account.add_slice(loss, thread, index, dur);
        }
    }
}

/// Returns the loss of a device that waits for a host activity.
const fn loss_of(class: HostClass, is_long: bool) -> Loss {
    match class {
        HostClass::Compile => Loss::Compile,
        HostClass::Input => Loss::Input,
        HostClass::Collector => Loss::Collector,
        HostClass::Allocator => Loss::Allocator,
        HostClass::Overhead => Loss::Overhead,
        HostClass::Collective => Loss::HostCollective,
        HostClass::Operator if is_long => Loss::HostOperator,
        // The host waits for an idle device: the cause is unknown.
        HostClass::Wait if is_long => Loss::Unknown,
        HostClass::Wait => Loss::Launch,
        _ if is_long => Loss::Host,
        _ => Loss::Launch,
    }
}

/// Charges the time in which a device is active.
fn busy_part(part: &Range<Time>, set: u8, infeed: &IntervalSet, account: &mut Account) {
    let waiting = infeed.within(part).ps() as f64;
    account.add(Loss::Input, waiting);
    let left = (length(part) - waiting).max(0.0);
    if set & Work::Compute.bit() != 0 {
        account.busy_ps += left;
    } else if set & Work::Communication.bit() != 0 {
        account.add(Loss::Communication, left);
    } else {
        account.add(Loss::Copy, left);
    }
}

fn account_of<'t>(time: &'t mut RankTime, window: &Window) -> &'t mut Account {
    match window.role {
        IterationRole::Outlier => &mut time.outlying,
        IterationRole::Steady | IterationRole::WarmUp | IterationRole::Unprofiled => {
            &mut time.steady
        }
    }
}

/// Intersects two ranges; an empty result ends at or before its start.
fn cut(range: &Range<Time>, other: Range<Time>) -> Range<Time> {
    range.start.max(other.start)..range.end.min(other.end)
}

fn length(range: &Range<Time>) -> f64 {
    range.end.since(range.start).ps().max(0) as f64
}

fn intervals(work: &[(Range<Time>, u8)], includes: impl Fn(u8) -> bool) -> IntervalSet {
    let parts = work.iter().filter(|(_, set)| includes(*set));
    IntervalSet::from_intervals(parts.map(|(range, _)| (range.start, range.end)).collect())
}

/// Returns the intervals in which the profiler itself worked, which kineto records in the category `overhead`.
fn overhead(trace: &Trace, file: usize) -> IntervalSet {
    let categories = trace.by_category();
    let mut known = categories.iter().filter(|(_, count)| *count > 0);
    let Some((overhead, _)) =
        known.find(|(category, _)| trace.name(*category).eq_ignore_ascii_case("overhead"))
    else {
        return IntervalSet::default();
    };
    let mut found = Vec::new();
    for track in trace
        .tracks()
        .iter()
        .filter(|track| track.file == file && track.slices > 0)
    {
        let slices = trace.slices(track.id);
        let of_profiler =
            (0..slices.len()).filter(|index| slices.category.get(*index) == *overhead);
        found.extend(of_profiler.map(|index| (slices.start[index], slices.end(index))));
    }
    IntervalSet::from_intervals(found)
}
