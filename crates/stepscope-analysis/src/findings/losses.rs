//! Where a device's time goes besides computation, summed by cause and by name.

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId};
use stepscope_store::EventId;

/// Time of a device in which it does not compute, by what keeps it from computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Loss {
    /// The host fetches or prepares input, or the device waits for its infeed.
    Input,
    /// The host compiles.
    Compile,
    /// The host collects garbage.
    Collector,
    /// The host takes memory from the driver, or gives it back.
    Allocator,
    /// The profiler works.
    Overhead,
    /// An operator runs on the host for long.
    HostOperator,
    /// The host communicates.
    HostCollective,
    /// The host does one other thing for long.
    Host,
    /// The host launches, one short call after the other.
    Launch,
    /// From one kernel to the next that was in the queue already.
    Dispatch,
    /// Another device of the process works, and the next work here was in the queue already.
    OtherDevice,
    /// The trace does not tell.
    Unknown,
    /// Work that began before the recording holds the queue: the device is busy.
    Backlog,
    /// Copies that nothing hides.
    Copy,
    /// Communication that nothing hides.
    Communication,
}

pub(super) const LOSSES: usize = 15;

/// Host activities for which a drained queue makes the device wait: without the wait for the device that
/// drained it, the host would have been ahead. Input stays what it is: it has a remedy of its own.
pub(super) const AFTER_DRAIN: [Loss; 2] = [Loss::Host, Loss::Launch];

/// What is known of one name within one loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    /// Time in which slices of the name were open, picoseconds.
    pub(super) ps: f64,
    /// Sum of nesting level times time, to tell inner names from outer ones.
    depth_ps: f64,
    /// How often.
    pub(super) count: u64,
    /// The slice of the name that cost most.
    pub(super) longest: EventId,
    longest_dur: Dur,
}

/// Sums over the windows of one role of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// Length of the windows.
    pub(super) length_ps: f64,
    /// Computation, and backlog.
    pub(super) busy_ps: f64,
    /// By [`Loss`], mean over the devices.
    pub(super) by: [f64; LOSSES],
    /// The part of each loss that followed a wait which drained the queue.
    pub(super) drained: [f64; LOSSES],
    /// Time in which the launching threads waited for the device.
    pub(super) waited_ps: f64,
    names: FxHashMap<(Loss, NameId), Named>,
    /// Slices around the waits that drained the queue.
    waits: FxHashMap<NameId, Named>,
}

impl Account {
    pub(super) fn get(&self, loss: Loss) -> f64 {
        self.by[loss as usize]
    }

    pub(super) fn add(&mut self, loss: Loss, ps: f64) {
        self.by[loss as usize] += ps;
    }

    /// Part of the windows.
    pub(super) fn share(&self, loss: Loss) -> f64 {
        if self.length_ps > 0.0 {
            self.get(loss) / self.length_ps
        } else {
            0.0
        }
    }

    /// Part of the windows in which the device computes.
    pub(super) fn busy_share(&self) -> f64 {
        if self.length_ps > 0.0 {
            self.busy_ps / self.length_ps
        } else {
            0.0
        }
    }

    pub(super) fn add_name(&mut self, loss: Loss, name: NameId, depth: usize, event: EventId, dur: Dur) {
        add(self.names.entry((loss, name)).or_default(), depth, event, dur);
    }

    pub(super) fn add_wait(&mut self, name: NameId, depth: usize, event: EventId, dur: Dur) {
        add(self.waits.entry(name).or_default(), depth, event, dur);
    }

    /// Adds what another file lost.
    pub(super) fn merge(&mut self, other: &Self) {
        self.length_ps += other.length_ps;
        self.busy_ps += other.busy_ps;
        self.waited_ps += other.waited_ps;
        for (sums, others) in [(&mut self.by, &other.by), (&mut self.drained, &other.drained)] {
            for (sum, ps) in sums.iter_mut().zip(others) {
                *sum += ps;
            }
        }
        // Sums by name do not depend on the order in which they are added up.
        other.names.iter().for_each(|(key, named)| {
            join(self.names.entry(*key).or_default(), named);
        });
        other.waits.iter().for_each(|(key, named)| {
            join(self.waits.entry(*key).or_default(), named);
        });
    }

    /// Names that explain a loss, the innermost that covers half of it first, then what encloses it.
    pub(super) fn names_of(&self, loss: Loss) -> Vec<(NameId, Named)> {
        let all = self.names.iter().filter(|((of, _), _)| *of == loss);
        rank(all.map(|((_, name), named)| (*name, *named)).collect(), self.get(loss))
    }

    /// Names around the waits that drained the queue.
    pub(super) fn names_of_waits(&self) -> Vec<(NameId, Named)> {
        let all: Vec<(NameId, Named)> = self.waits.iter().map(|(name, named)| (*name, *named)).collect();
        let most = all.iter().map(|(_, named)| named.ps).fold(0.0, f64::max);
        rank(all, most)
    }
}

fn add(named: &mut Named, depth: usize, event: EventId, dur: Dur) {
    let ps = dur.ps() as f64;
    named.ps += ps;
    named.depth_ps += depth as f64 * ps;
    named.count += 1;
    if dur > named.longest_dur || named.count == 1 {
        named.longest = event;
        named.longest_dur = dur;
    }
}

fn join(named: &mut Named, other: &Named) {
    if other.longest_dur > named.longest_dur || named.count == 0 {
        named.longest = other.longest;
        named.longest_dur = other.longest_dur;
    }
    named.ps += other.ps;
    named.depth_ps += other.depth_ps;
    named.count += other.count;
}

/// Part of a loss that a name must cover to explain it.
const EXPLAINS: f64 = 0.45;

fn rank(mut names: Vec<(NameId, Named)>, whole_ps: f64) -> Vec<(NameId, Named)> {
    names.retain(|(_, named)| named.ps > 0.0);
    let depth = |named: &Named| named.depth_ps / named.ps;
    let explains = |named: &Named| named.ps >= EXPLAINS * whole_ps;
    names.sort_by(|(a_name, a), (b_name, b)| {
        explains(b)
            .cmp(&explains(a))
            .then_with(|| match explains(a) {
                true => depth(b).total_cmp(&depth(a)),
                false => b.ps.total_cmp(&a.ps),
            })
            .then_with(|| a_name.index().cmp(&b_name.index()))
    });
    names
}
