//! The device timeline of typical and of outlying steps: busy with what, and idle for which cause.
//!
//! A gap between pieces of device work is explained by the work that ends it:
//!
//! ```text
//! launched after the gap began     what the host did from the begin of the gap to the launch: host side
//!                                  from the launch to the begin of the work, up to 50 us: launch
//! queued before the gap began      up to 30 us: dispatch
//! what is left                     another device of the process worked: other device
//!                                  nothing of this device was recorded before: backlog
//!                                  else: unknown
//! ```
//!
//! The host side is read off the launching thread, and where that does nothing, off the thread that
//! marks the steps. Without any event of the host, all of a gap is unknown.

use std::ops::Range;

use stepscope_model::{Cancelled, Dur, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::Trace;

use super::host::{Host, HostClass, Segment};
use super::launched::LaunchOf;
use super::losses::{AFTER_DRAIN, Account, Loss};
use super::windows::{Role, Window, Windows, sample};
use crate::device::{Device, Devices, Work};
use crate::idle::IN_A_ROW;
use crate::intervals::Moments;
use crate::parallel::Cancel;
use crate::survey::Survey;

/// From a launch to the begin of its work on an idle device, at most; longer ones have another cause.
const LAUNCH_LATENCY: Dur = Dur::from_ps(50_000_000);
/// One activity of the host that keeps it from launching for this long is no part of launching.
const LONG_ACTIVITY: Dur = Dur::from_ps(100_000_000);

/// What the devices of one file did.
#[derive(Clone, Debug, Default)]
pub(super) struct FileTime {
    pub(super) file: usize,
    pub(super) devices: usize,
    pub(super) steady: Account,
    pub(super) outlying: Account,
    /// Windows that were looked at.
    pub(super) sampled: Vec<Window>,
}

impl FileTime {
    /// How many outlying windows were looked at.
    pub(super) fn outliers(&self) -> usize {
        let sampled = self.sampled.iter();
        sampled.filter(|window| window.role == Role::Outlier).count()
    }
}

/// Breaks down the time of all devices, file by file.
pub(super) fn device_time(
    survey: &Survey<'_>,
    windows: &Windows,
    cancel: &Cancel,
) -> Result<Vec<FileTime>, Cancelled> {
    let trace = survey.trace;
    let mut files: Vec<usize> = survey.devices.list.iter().map(|device| device.file).collect();
    files.dedup();
    let mut host = Host::new(trace);
    let mut launch_of = LaunchOf::new(trace, &survey.devices, cancel)?;
    let count = files.len();
    let mut found = Vec::new();
    for file in files {
        cancel.check()?;
        let queues: Vec<TrackId> = of_file(&survey.devices, file)
            .flat_map(|device| device.queues.iter().map(|queue| queue.track))
            .collect();
        let sampled = sample(trace, windows.of_file(file), &queues, count);
        if sampled.is_empty() {
            continue;
        }
        let mut reader = Reader::new(trace, &survey.devices, file, &mut host, &mut launch_of);
        let mut time = FileTime {
            file,
            devices: of_file(&survey.devices, file).count(),
            sampled,
            ..FileTime::default()
        };
        for window in &time.sampled {
            cancel.check()?;
            let account = match window.role {
                Role::Outlier => &mut time.outlying,
                Role::Steady | Role::WarmUp => &mut time.steady,
            };
            reader.window(window, account, cancel)?;
        }
        let devices = time.devices.max(1) as f64;
        for account in [&mut time.steady, &mut time.outlying] {
            account.busy_ps /= devices;
            account.by.iter_mut().chain(&mut account.drained).for_each(|ps| *ps /= devices);
        }
        found.push(time);
    }
    Ok(found)
}

pub(super) fn of_file<'a>(
    devices: &'a Devices<'_>,
    file: usize,
) -> impl Iterator<Item = &'a Device> + Clone {
    devices.list.iter().filter(move |device| device.file == file)
}

/// Reads the windows of one file.
struct Reader<'a, 'b> {
    trace: &'a Trace,
    devices: &'b Devices<'a>,
    file: usize,
    host: &'b mut Host<'a>,
    launch_of: &'b mut LaunchOf<'a>,
    /// When the profiler itself worked.
    overhead: Moments,
    has_host: bool,
    /// The busiest thread.
    main: Option<TrackId>,
}

/// A gap in a device's work.
struct Gap {
    range: Range<Time>,
    thread: Option<TrackId>,
}

impl<'a, 'b> Reader<'a, 'b> {
    fn new(
        trace: &'a Trace,
        devices: &'b Devices<'a>,
        file: usize,
        host: &'b mut Host<'a>,
        launch_of: &'b mut LaunchOf<'a>,
    ) -> Self {
        let threads = trace
            .tracks()
            .iter()
            .filter(|track| track.file == file && track.kind == TrackKind::Thread)
            .filter(|track| track.slices > 0 && !track.derived);
        let main = threads.clone().max_by_key(|track| (track.busy, std::cmp::Reverse(track.id)));
        Self {
            trace,
            devices,
            file,
            host,
            launch_of,
            overhead: overhead(trace, threads.clone().map(|track| track.id)),
            has_host: threads.count() > 0,
            main: main.map(|track| track.id),
        }
    }

    fn window(
        &mut self,
        window: &Window,
        account: &mut Account,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        account.length_ps += window.dur().ps() as f64;
        let devices: Vec<Device> = of_file(self.devices, self.file).cloned().collect();
        let mut works = Vec::with_capacity(devices.len());
        for device in &devices {
            works.push(self.devices.stretches(device, &window.range, cancel)?);
        }
        let busy: Vec<Moments> = works.iter().map(|work| moments(work, |set| set != 0)).collect();
        let mut launching: Vec<TrackId> = Vec::new();
        for (place, device) in devices.iter().enumerate() {
            let others = others_busy(&busy, place);
            let infeed = self.infeed(device, &window.range);
            let exposed = |set: u8| {
                let idle_of_compute = set & Work::Compute.bit() == 0;
                (set != 0 && idle_of_compute).then(|| {
                    if set & Work::Communication.bit() != 0 {
                        Loss::Communication
                    } else {
                        Loss::Copy
                    }
                })
            };
            for (range, set) in &works[place] {
                let length = range.end.since(range.start);
                let waiting = if *set == 0 { Dur::ZERO } else { infeed.within(range) };
                account.add(Loss::Input, waiting.ps() as f64);
                let length = (length.ps() - waiting.ps()).max(0) as f64;
                match (set, exposed(*set)) {
                    (0, _) => {
                        let thread = self.gap(device, range, window, &others, account);
                        launching.extend(thread);
                    }
                    (_, Some(loss)) => account.add(loss, length),
                    (_, None) => account.busy_ps += length,
                }
            }
            self.name_exposed(device, &works[place], &infeed, &window.range, account);
        }
        launching.extend(window.thread);
        launching.sort_unstable();
        launching.dedup();
        account.waited_ps += self.waited(&launching, &window.range);
        Ok(())
    }

    /// Explains a gap; answers the thread that launched what ends it.
    fn gap(
        &mut self,
        device: &Device,
        range: &Range<Time>,
        window: &Window,
        others: &Moments,
        account: &mut Account,
    ) -> Option<TrackId> {
        if !self.has_host {
            account.add(Loss::Unknown, range.end.since(range.start).ps() as f64);
            return None;
        }
        let next = self.next_work(device, range.end);
        let launch = next.and_then(|(track, index)| self.launch_of.get(track, index));
        let call = launch.and_then(|launch| self.trace.place_of_slice(launch));
        let main = window.thread.or(self.main);
        let Some((thread, index)) = call else {
            // A window ends in the gap, or the trace links no launches: the loop's own thread tells.
            let gap = Gap {
                range: range.clone(),
                thread: main,
            };
            self.host_side(&gap, main, account);
            return None;
        };
        let slices = self.trace.slices(thread);
        let called = slices.start[index];
        if called > range.start {
            let called = called.min(range.end);
            let gap = Gap {
                range: range.start..called,
                thread: Some(thread),
            };
            self.host_side(&gap, main, account);
            let begun = called.saturating_add(LAUNCH_LATENCY).min(range.end);
            account.add(Loss::Launch, begun.since(called).ps() as f64);
            self.queued(device, begun..range.end, others, account);
        } else {
            let returned = slices.end(index).clamp(range.start, range.end);
            let left = range.end.since(returned);
            account.add(Loss::Launch, returned.since(range.start).ps() as f64);
            if left <= IN_A_ROW {
                account.add(Loss::Dispatch, left.ps() as f64);
            } else {
                self.queued(device, returned..range.end, others, account);
            }
        }
        Some(thread)
    }

    /// A device with something in its queue that does not begin.
    fn queued(&self, device: &Device, range: Range<Time>, others: &Moments, account: &mut Account) {
        let length = range.end.since(range.start).ps().max(0) as f64;
        if length == 0.0 {
            return;
        }
        if range.end <= device.span.start {
            account.busy_ps += length;
            account.add(Loss::Backlog, length);
            return;
        }
        let elsewhere = others.within(&range).ps() as f64;
        account.add(Loss::OtherDevice, elsewhere);
        account.add(Loss::Unknown, length - elsewhere);
    }

    /// The work that begins at a moment.
    fn next_work(&self, device: &Device, at: Time) -> Option<(TrackId, usize)> {
        device.queues.iter().find_map(|queue| {
            let start = self.trace.slices(queue.track).start;
            let first = start.partition_point(|start| *start < at);
            (first..start.len())
                .take_while(|index| start[*index] == at)
                .find(|index| self.devices.work(queue.track, *index).is_some())
                .map(|index| (queue.track, index))
        })
    }

    /// Charges what the host did while the device waited.
    fn host_side(&mut self, gap: &Gap, main: Option<TrackId>, account: &mut Account) {
        let Some(thread) = gap.thread.or(main) else {
            account.add(Loss::Unknown, gap.range.end.since(gap.range.start).ps() as f64);
            return;
        };
        let drained = self.drain(&gap.range, thread, main, account);
        let mut run = Run::default();
        let Self { host, overhead, .. } = self;
        let mut unexplained = Vec::new();
        host.walk(thread, &gap.range, &mut |host, segment| {
            if segment.open.is_empty() && main.is_some_and(|main| main != thread) {
                unexplained.push(segment.range.clone());
            } else {
                run.add(host, thread, &segment, overhead, account, drained);
            }
        });
        for range in unexplained {
            let Some(main) = main else { continue };
            host.walk(main, &range, &mut |host, segment| {
                run.add(host, main, &segment, overhead, account, drained);
            });
        }
        run.close(account, drained);
    }

    /// Whether a wait for the device was open when the gap began, and notes what surrounds it.
    fn drain(
        &mut self,
        range: &Range<Time>,
        thread: TrackId,
        main: Option<TrackId>,
        account: &mut Account,
    ) -> bool {
        let threads = [Some(thread), main.filter(|main| *main != thread)];
        for thread in threads.into_iter().flatten() {
            let slices = self.trace.slices(thread);
            let open = self.host.open_at(thread, range.start);
            let (class, wait) = self.host.decide(thread, &open);
            let Some(wait) = wait.filter(|_| class == HostClass::Wait) else {
                continue;
            };
            if slices.start[wait] >= range.start {
                continue;
            }
            let length = range.end.since(range.start);
            for (depth, index) in open.iter().enumerate() {
                let within = *index <= wait && self.host.class(thread, *index) != HostClass::Step;
                if let Some(name) = self.host.name(thread, *index).filter(|_| within) {
                    account.add_wait(name, depth, slices.id(*index), length);
                }
            }
            return true;
        }
        false
    }

    /// When the device waits for its infeed, as TPUs record it.
    fn infeed(&self, device: &Device, range: &Range<Time>) -> Moments {
        let mut found = Vec::new();
        for queue in &device.queues {
            let slices = self.trace.slices(queue.track);
            for index in self.trace.candidates(queue.track, range.clone()) {
                let (name, category) = (slices.name[index], slices.category.get(index));
                if self.trace.kind(queue.track, name, category) == SliceKind::Input {
                    let start = slices.start[index].max(range.start);
                    found.push((start, slices.end(index).min(range.end)));
                }
            }
        }
        Moments::of(found)
    }

    /// Notes the names of copies and collectives while they are exposed, and of infeeds.
    fn name_exposed(
        &self,
        device: &Device,
        work: &[(Range<Time>, u8)],
        infeed: &Moments,
        range: &Range<Time>,
        account: &mut Account,
    ) {
        let compute = Work::Compute.bit();
        let exposed = moments(work, |set| set != 0 && set & compute == 0);
        if exposed.is_empty() && infeed.is_empty() {
            return;
        }
        for queue in &device.queues {
            let slices = self.trace.slices(queue.track);
            for index in self.trace.candidates(queue.track, range.clone()) {
                let span = slices.start[index].max(range.start)..slices.end(index).min(range.end);
                if span.start >= span.end {
                    continue;
                }
                let kind = self.trace.kind(queue.track, slices.name[index], slices.category.get(index));
                let (loss, dur) = match self.devices.work(queue.track, index) {
                    Some(_) if kind == SliceKind::Input => (Loss::Input, infeed.within(&span)),
                    Some(Work::Communication) => (Loss::Communication, exposed.within(&span)),
                    Some(Work::Memcpy | Work::Memset) => (Loss::Copy, exposed.within(&span)),
                    _ => continue,
                };
                if dur > Dur::ZERO {
                    account.add_name(loss, slices.name[index], 0, slices.id(index), dur);
                }
            }
        }
    }

    /// Time in which any of these threads waited for the device.
    fn waited(&mut self, threads: &[TrackId], range: &Range<Time>) -> f64 {
        let mut waits = Vec::new();
        for thread in threads {
            let slices = self.trace.slices(*thread);
            for index in self.trace.candidates(*thread, range.clone()) {
                if self.host.class(*thread, index) == HostClass::Wait {
                    let start = slices.start[index].max(range.start);
                    waits.push((start, slices.end(index).min(range.end)));
                }
            }
        }
        Moments::of(waits).within(range).ps() as f64
    }
}

/// Consecutive segments of a gap in which the host does the same one thing.
#[derive(Default)]
struct Run {
    /// Thread and innermost slice; `None` inside: nothing is open.
    what: Option<(TrackId, Option<usize>)>,
    class: Option<HostClass>,
    dur: Dur,
    names: Vec<(usize, stepscope_model::NameId, stepscope_store::EventId)>,
}

impl Run {
    fn add(
        &mut self,
        host: &mut Host<'_>,
        thread: TrackId,
        segment: &Segment<'_>,
        overhead: &Moments,
        account: &mut Account,
        drained: bool,
    ) {
        let length = segment.range.end.since(segment.range.start);
        let profiler = overhead.within(&segment.range);
        let length = Dur::from_ps((length.ps() - profiler.ps()).max(0));
        account.add(Loss::Overhead, profiler.ps() as f64);
        let (class, _) = host.decide(thread, segment.open);
        let innermost = (thread, segment.open.last().copied());
        if self.what != Some(innermost) || self.class != Some(class) {
            self.close(account, drained);
            self.what = Some(innermost);
            self.class = Some(class);
            let slices = host.trace.slices(thread);
            for (depth, index) in segment.open.iter().enumerate() {
                if host.class(thread, *index) != HostClass::Step
                    && let Some(name) = host.name(thread, *index)
                {
                    self.names.push((depth, name, slices.id(*index)));
                }
            }
        }
        self.dur = self.dur.saturating_add(length);
    }

    /// Charges what was gathered.
    fn close(&mut self, account: &mut Account, drained: bool) {
        let (Some(class), dur) = (self.class.take(), std::mem::take(&mut self.dur)) else {
            return;
        };
        let is_long = dur >= LONG_ACTIVITY;
        let loss = match class {
            HostClass::Compile => Loss::Compile,
            HostClass::Input => Loss::Input,
            HostClass::Collector => Loss::Collector,
            HostClass::Allocator => Loss::Allocator,
            HostClass::Overhead => Loss::Overhead,
            HostClass::Collective => Loss::HostCollective,
            HostClass::Operator if is_long => Loss::HostOperator,
            // The host waits for a device that has nothing to do: something else is under way.
            HostClass::Wait if is_long => Loss::Unknown,
            HostClass::Wait => Loss::Launch,
            _ if is_long => Loss::Host,
            _ => Loss::Launch,
        };
        let ps = dur.ps() as f64;
        account.add(loss, ps);
        if drained && AFTER_DRAIN.contains(&loss) {
            account.drained[loss as usize] += ps;
        }
        for (depth, name, event) in self.names.drain(..) {
            account.add_name(loss, name, depth, event, dur);
        }
        self.what = None;
    }
}

fn moments(work: &[(Range<Time>, u8)], wanted: impl Fn(u8) -> bool) -> Moments {
    let parts = work.iter().filter(|(_, set)| wanted(*set));
    Moments::of(parts.map(|(range, _)| (range.start, range.end)).collect())
}

fn others_busy(busy: &[Moments], device: usize) -> Moments {
    let others = busy.iter().enumerate().filter(|(place, _)| *place != device);
    others.fold(Moments::default(), |all, (_, one)| all.union(one))
}

/// When the profiler itself worked, as kineto records it in the category `overhead`.
fn overhead(trace: &Trace, threads: impl Iterator<Item = TrackId>) -> Moments {
    let categories = trace.by_category();
    let mut known = categories.iter().filter(|(_, count)| *count > 0);
    let Some((overhead, _)) =
        known.find(|(category, _)| trace.name(*category).eq_ignore_ascii_case("overhead"))
    else {
        return Moments::default();
    };
    let mut found = Vec::new();
    for track in threads {
        let slices = trace.slices(track);
        let of_profiler = (0..slices.len()).filter(|index| slices.category.get(*index) == *overhead);
        found.extend(of_profiler.map(|index| (slices.start[index], slices.end(index))));
    }
    Moments::of(found)
}
