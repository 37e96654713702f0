//! Communication between ranks, split into waiting for the last rank and the transfer.
//!
//! A collective ends everywhere when the last rank has arrived and the data has been moved. The rank that spends
//! the least time in it therefore arrived last, and that time is the transfer. No clock of another rank is
//! needed:
//!
//! ```text
//! transfer = min over ranks of (end - start)      wait of a rank = its (end - start) - transfer
//! ```
//!
//! The file of one rank alone cannot separate the two.

use std::collections::BTreeMap;

use stepscope_model::Cancelled;
use stepscope_store::EventId;

use super::windows::Windows;
use crate::collectives::{Collectives, Participant, collectives};
use crate::launch::Launches;
use crate::parallel::Cancel;
use crate::run_profile::RunProfile;
use crate::steps::StepRank;

/// Exposed time of one participant in collectives, picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exposed {
    pub(super) wait_ps: f64,
    pub(super) transfer_ps: f64,
}

/// All collectives within steady steps.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) by_rank: BTreeMap<Participant, Exposed>,
    /// Time that others waited for each participant.
    pub(super) caused_ps: BTreeMap<Participant, f64>,
    /// Number of collectives that several participants have in common.
    pub(super) matched: usize,
    /// Number of steady steps of each rank.
    pub(super) steps: BTreeMap<StepRank, f64>,
    /// Exposed time of each kind of collective, and its first event.
    pub(super) names: BTreeMap<String, (f64, EventId)>,
    /// Largest difference between the clocks of two files, nanoseconds, where the collectives show one.
    pub(super) skew_ns: f64,
    /// Size of the job according to the files.
    pub(super) group_size: u32,
}

impl Exchange {
    pub(super) fn new(
        run_profile: &RunProfile<'_>,
        windows: &Windows,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let launches = Launches::from_trace(run_profile.trace, &run_profile.devices, cancel)?;
        let found = collectives(run_profile.trace, &run_profile.devices, &launches, cancel)?;
        let mut exchange = Self::default();
        for window in windows.list.iter().filter(|window| window.is_steady()) {
            *exchange.steps.entry(window.rank).or_default() += 1.0;
        }
        for collective in &found.collectives {
            exchange.add(&found, &collective.parts, windows);
        }
        exchange.group_size = found
            .parts
            .iter()
            .filter_map(|call| call.group_size)
            .max()
            .unwrap_or(0);
        let shifts = found.clocks.iter().map(|clock| clock.applied.as_ns_f64());
        let (low, high) = shifts.fold((0.0_f64, 0.0_f64), |(low, high), shift| {
            (low.min(shift), high.max(shift))
        });
        exchange.skew_ns = high - low;
        Ok(exchange)
    }

    fn add(&mut self, found: &Collectives, parts: &[usize], windows: &Windows) {
        let parts = || parts.iter().filter_map(|index| found.parts.get(*index));
        let waits_for_all = parts().all(|call| call.kind.waits_for_all());
        let several = parts()
            .map(|call| call.who)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
            > 1;
        let shortest = parts().min_by_key(|call| (call.dur(), call.who));
        let Some(last) = shortest else { return };
        let is_steady = |who: Participant, at| {
            windows.is_steady(windows.rank_of(who.file, Some(who.device)), at)
        };
        if !parts().all(|call| is_steady(call.who, call.start)) {
            return;
        }
        let matched = several && waits_for_all;
        self.matched += usize::from(matched);
        for call in parts() {
            let dur = call.dur().ps() as f64;
            let exposed = (dur - call.hidden.map_or(0.0, |hidden| hidden.ps() as f64)).max(0.0);
            let wait = if matched {
                dur - last.dur().ps() as f64
            } else {
                0.0
            };
            let wait = wait.clamp(0.0, exposed);
            let sums = self.by_rank.entry(call.who).or_default();
            sums.wait_ps += wait;
            sums.transfer_ps += exposed - wait;
            if wait > 0.0 {
                *self.caused_ps.entry(last.who).or_default() += wait;
            }
            let name = call.kind.as_str().to_owned();
            let named = self.names.entry(name).or_insert((0.0, call.event));
            named.0 += exposed;
        }
    }

    /// Computes the fraction of the exposed time of a rank's participants in which they wait for the last one.
    /// `devices`: ordinals of the rank's devices, in a file of several ranks.
    pub(super) fn wait_share(&self, rank: StepRank, devices: impl Iterator<Item = u32>) -> f64 {
        let file = rank.file;
        let participant = |device| Participant { file, device };
        let mut sum = Exposed::default();
        let mut add = |exposed: &Exposed| {
            sum.wait_ps += exposed.wait_ps;
            sum.transfer_ps += exposed.transfer_ps;
        };
        if rank.process.is_some() {
            devices
                .filter_map(|device| self.by_rank.get(&participant(device)))
                .for_each(&mut add);
        } else {
            let all = self.by_rank.range(participant(0)..=participant(u32::MAX));
            all.for_each(|(_, exposed)| add(exposed));
        }
        let all = sum.wait_ps + sum.transfer_ps;
        if all > 0.0 { sum.wait_ps / all } else { 0.0 }
    }

    /// Returns the collective with the most exposed time.
    pub(super) fn largest(&self) -> Option<(&str, EventId)> {
        let most = self.names.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        Some((most.0, most.1.1))
    }
}
