//! Time of a device besides computation, summed by cause and by name.

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, TrackId};
use stepscope_store::EventId;

use super::cause::FindingCause;
use super::host::{Host, HostClass};

/// Reason for which a device does not compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Loss {
    /// The host fetches or prepares input, or the device waits for its infeed.
    Input,
    /// The host compiles.
    Compile,
    /// The host collects garbage.
    Collector,
    /// The host allocates memory from the driver, or frees it.
    Allocator,
    /// The profiler works.
    Overhead,
    /// A long operator runs on the host.
    HostOperator,
    /// The host communicates.
    HostCollective,
    /// The host has one other long activity.
    Host,
    /// The host launches, one short call after the other.
    Launch,
    /// Time from one kernel to the next that was already in the queue.
    Dispatch,
    /// Another device of the process works, and the next work of this one was already in the queue.
    OtherDevice,
    /// The trace does not show the cause.
    Unknown,
    /// Work that started before the recording occupies the queue: the device is busy.
    Backlog,
    /// Exposed copies.
    Copy,
    /// Exposed communication.
    Communication,
}

pub(super) const LOSSES: usize = 15;

/// Returns the cause that a loss is reported as.
pub(super) const fn cause_of(loss: Loss) -> Option<FindingCause> {
    Some(match loss {
        Loss::Input => FindingCause::InputBound,
        Loss::Compile => FindingCause::Compilation,
        Loss::Allocator => FindingCause::AllocatorThrash,
        Loss::Overhead => FindingCause::ProfilerOverhead,
        Loss::HostOperator => FindingCause::MisplacedOp,
        Loss::Collector | Loss::Host => FindingCause::HostBound,
        Loss::Launch => FindingCause::LaunchBound,
        Loss::Dispatch => FindingCause::SmallKernels,
        Loss::OtherDevice => FindingCause::PipelineBubble,
        Loss::Unknown => FindingCause::IdleUnknown,
        Loss::Copy => FindingCause::ExposedCopy,
        Loss::Communication | Loss::HostCollective => FindingCause::ExposedCommunication,
        Loss::Backlog => return None,
    })
}

/// Host activities for which a drained queue makes the device wait: without the wait for the device that drained
/// it, the host would have been ahead. Input is not among them: it has a remedy of its own.
pub(super) const AFTER_DRAIN: [Loss; 2] = [Loss::Host, Loss::Launch];

/// Sums of one name within one loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    /// Time in which slices of the name were open, picoseconds.
    pub(super) ps: f64,
    /// Sum of nesting level times time, which separates inner names from outer ones.
    depth_ps: f64,
    /// Number of slices.
    pub(super) count: u64,
    /// The slice of the name with the most time.
    pub(super) longest: EventId,
    longest_ps: f64,
}

/// Key that time is charged to: a loss, the waits that drained the queue, or operations of a program without a
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Charge {
    Loss(Loss),
    Wait,
    Operation,
}

/// Sums over the windows of one role of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// Length of the windows.
    pub(super) length_ps: f64,
    /// Time of computation and backlog.
    pub(super) busy_ps: f64,
    /// Time by [`Loss`], mean over the devices.
    pub(super) by: [f64; LOSSES],
    /// The part of each loss that followed a wait which drained the queue.
    pub(super) drained: [f64; LOSSES],
    /// Time in which the launching threads waited for the device; of programs without one, the threads of the steps
    /// for anything.
    pub(super) waited_ps: f64,
    names: FxHashMap<(Charge, NameId), Named>,
    /// Time by the innermost open slice, until [`Account::seal`] adds it up by name.
    innermost: Vec<(TrackId, Charge, OwnTime)>,
}

impl Account {
    pub(super) fn get(&self, loss: Loss) -> f64 {
        self.by[loss as usize]
    }

    pub(super) fn add(&mut self, loss: Loss, ps: f64) {
        self.by[loss as usize] += ps;
    }

    /// Returns a loss as a fraction of the windows.
    pub(super) fn share(&self, loss: Loss) -> f64 {
        if self.length_ps > 0.0 {
            self.get(loss) / self.length_ps
        } else {
            0.0
        }
    }

    /// Returns the fraction of the windows in which the device computes.
    pub(super) fn busy_share(&self) -> f64 {
        if self.length_ps > 0.0 {
            self.busy_ps / self.length_ps
        } else {
            0.0
        }
    }

    /// Returns the fraction of the steps in which the thread of a program without a device surely waits while no other
    /// thread computes or communicates: the waits that cannot all lie in other buckets than the host's. In the idle
    /// ones, nothing is recorded.
    pub(super) fn waits_share(&self) -> f64 {
        let others = self.length_ps - self.get(Loss::Host) - self.get(Loss::Unknown);
        ((self.waited_ps - others) / self.length_ps.max(1.0)).max(0.0)
    }

    /// Charges time to a slice of a device queue.
    pub(super) fn add_name(&mut self, loss: Loss, name: NameId, event: EventId, dur: Dur) {
        let named = self.names.entry((Charge::Loss(loss), name)).or_default();
        named.add(dur.ps() as f64, 1, 0, event);
    }

    /// Charges self time to an operation of a thread.
    pub(super) fn add_operation(&mut self, name: NameId, event: EventId, dur: Dur) {
        let named = self.names.entry((Charge::Operation, name)).or_default();
        named.add(dur.ps() as f64, 1, 0, event);
    }

    /// Charges time to the innermost open slice of a thread, and thereby to all that enclose it.
    pub(super) fn add_slice(&mut self, loss: Loss, track: TrackId, index: usize, dur: Dur) {
        self.add_innermost(Charge::Loss(loss), track, index, dur);
    }

    /// Charges time to a wait that drained the queue.
    pub(super) fn add_wait(&mut self, track: TrackId, index: usize, dur: Dur) {
        self.add_innermost(Charge::Wait, track, index, dur);
    }

    fn add_innermost(&mut self, charge: Charge, track: TrackId, index: usize, dur: Dur) {
        let own = OwnTime {
            index,
            ps: dur.ps() as f64,
            count: 1,
        };
        self.innermost.push((track, charge, own));
    }

    /// Adds up by name the time that was charged to innermost slices: each slice once, whatever its number of
    /// children.
    pub(super) fn seal(&mut self, host: &mut Host<'_>) {
        let mut all = std::mem::take(&mut self.innermost);
        all.sort_by_key(|(track, charge, own)| (*track, *charge, own.index));
        for of_charge in all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (track, charge, _) = of_charge[0];
            self.add_up(host, charge, track, of_charge);
        }
    }

    /// Passes the time of each slice to the one that encloses it, which comes before it in the track's order.
    fn add_up(
        &mut self,
        host: &mut Host<'_>,
        charge: Charge,
        track: TrackId,
        mut innermost: &[(TrackId, Charge, OwnTime)],
    ) {
        let slices = host.trace.slices(track);
        // Enclosing slices with the time that was passed to them, the last one on top.
        let mut around: Vec<OwnTime> = Vec::new();
        loop {
            let next = innermost.last().map(|(_, _, own)| own.index);
            let Some(index) = next.max(around.last().map(|own| own.index)) else {
                break;
            };
            let (mut ps, mut count) = (0.0, 0);
            while let Some(((_, _, own), before)) = innermost.split_last()
                && own.index == index
            {
                innermost = before;
                ps += own.ps;
                count += own.count;
            }
            if let Some(own) = around.pop_if(|own| own.index == index) {
                ps += own.ps;
                count += own.count;
            }
            let parent = slices.parent.get(index).map(|parent| *parent as usize);
            let parent = parent.filter(|parent| *parent < index);
            let is_step = host.class(track, index) == HostClass::Step;
            // Recursion counts once.
            let repeats = parent.is_some_and(|parent| slices.name[parent] == slices.name[index]);
            if !is_step && !repeats {
                let depth = slices.depth.get(index).copied().unwrap_or(0);
                let named = self.names.entry((charge, slices.name[index])).or_default();
                named.add(ps, count, depth, slices.id(index));
            }
            // A slice that encloses the step marker, such as the loop, does not explain the step.
            let Some(parent) = parent.filter(|_| !is_step) else {
                continue;
            };
            // On top, where slices nest.
            let before = around.iter().rposition(|own| own.index <= parent);
            match before.map(|at| (at, around[at].index)) {
                Some((at, known)) if known == parent => {
                    around[at].ps += ps;
                    around[at].count += count;
                }
                _ => around.insert(
                    before.map_or(0, |at| at + 1),
                    OwnTime {
                        index: parent,
                        ps,
                        count,
                    },
                ),
            }
        }
    }

    /// Adds the losses of another file.
    pub(super) fn merge(&mut self, other: &Self) {
        self.length_ps += other.length_ps;
        self.busy_ps += other.busy_ps;
        self.waited_ps += other.waited_ps;
        for (sums, others) in [
            (&mut self.by, &other.by),
            (&mut self.drained, &other.drained),
        ] {
            for (sum, ps) in sums.iter_mut().zip(others) {
                *sum += ps;
            }
        }
        // Sums by name do not depend on the order in which they are added up.
        other.names.iter().for_each(|(key, named)| {
            self.names.entry(*key).or_default().join(named);
        });
    }

    /// Names that explain a loss: the innermost that covers much of it first, then the enclosing ones.
    pub(super) fn names_of(&self, loss: Loss) -> Vec<(NameId, Named)> {
        rank(self.named(Charge::Loss(loss)), self.get(loss))
    }

    /// Names of the waits that drained the queue, and of the slices that enclose them.
    pub(super) fn names_of_waits(&self) -> Vec<(NameId, Named)> {
        let all = self.named(Charge::Wait);
        let most = all.iter().map(|(_, named)| named.ps).fold(0.0, f64::max);
        rank(all, most)
    }

    /// Lists operations of threads, by self time.
    pub(super) fn operations(&self) -> Vec<(NameId, Named)> {
        rank(self.named(Charge::Operation), f64::MAX)
    }

    fn named(&self, charge: Charge) -> Vec<(NameId, Named)> {
        let all = self.names.iter().filter(|((of, _), _)| *of == charge);
        all.map(|((_, name), named)| (*name, *named)).collect()
    }
}

/// Time in which a slice is the innermost open one.
#[derive(Clone, Copy, Debug)]
struct OwnTime {
    index: usize,
    ps: f64,
    count: u64,
}

impl Named {
    fn add(&mut self, ps: f64, count: u64, depth: u16, event: EventId) {
        self.ps += ps;
        self.depth_ps += f64::from(depth) * ps;
        if ps > self.longest_ps || self.count == 0 {
            self.longest = event;
            self.longest_ps = ps;
        }
        self.count += count;
    }

    fn join(&mut self, other: &Self) {
        if other.longest_ps > self.longest_ps || self.count == 0 {
            self.longest = other.longest;
            self.longest_ps = other.longest_ps;
        }
        self.ps += other.ps;
        self.depth_ps += other.depth_ps;
        self.count += other.count;
    }
}

/// Fraction of a loss that a name must cover to explain it.
const EXPLAINS: f64 = 0.45;

fn rank(mut names: Vec<(NameId, Named)>, whole_ps: f64) -> Vec<(NameId, Named)> {
    names.retain(|(_, named)| named.ps > 0.0);
    let depth = |named: &Named| named.depth_ps / named.ps;
    let explains = |named: &Named| named.ps >= EXPLAINS * whole_ps;
    names.sort_by(|(a_name, a), (b_name, b)| {
        explains(b)
            .cmp(&explains(a))
            .then_with(|| {
                if explains(a) {
                    depth(b).total_cmp(&depth(a))
                } else {
                    b.ps.total_cmp(&a.ps)
                }
            })
            .then_with(|| b.ps.total_cmp(&a.ps))
            .then_with(|| a_name.index().cmp(&b_name.index()))
    });
    names
}
