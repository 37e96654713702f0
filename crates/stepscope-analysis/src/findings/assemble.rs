//! Assembly of findings from the sums of the analyses.

use std::collections::BTreeMap;

use stepscope_model::{Cancelled, NameId};
use stepscope_store::{EventId, Trace};

use super::device_time::{RankTime, device_time};
use super::exchange::Exchange;
use super::kernels::{Kernels, heaviest, kernels};
use super::launched::LaunchOf;
use super::losses::{AFTER_DRAIN, Account, Loss, Named, cause_of};
use super::subjects::{without_address, words};
use super::windows::Windows;
use super::{
    Confidence, Detail, ExtraWork, Finding, FindingCause, LISTED, cpu, memory, outliers, recompiled,
};
use crate::collectives::Participant;
use crate::memory::Memory;
use crate::parallel::Cancel;
use crate::run_profile::RunProfile;
use crate::steps::StepRank;

/// Fraction of a rank's waits that one other rank must cause to be a straggler.
const STRAGGLES: f64 = 0.65;
/// Maximum number of functions of a compile log among the names of a finding.
const MAX_FUNCTIONS: usize = 3;
/// Fraction of a transfer that computation can hide: its last chunk ends after everything else.
const HIDEABLE: f64 = 0.9;

pub(super) fn findings(
    run_profile: &RunProfile<'_>,
    windows: &Windows,
    memory: &Memory,
    cancel: &Cancel,
) -> Result<Vec<Finding>, Cancelled> {
    let mut launch_of = LaunchOf::new(run_profile.trace, &run_profile.devices, cancel)?;
    let mut times = device_time(run_profile, windows, &mut launch_of, cancel)?;
    let on_device = !times.is_empty();
    if !on_device {
        times = cpu::cpu_time(run_profile, windows, cancel)?;
    }
    let mut whole = Account::default();
    for time in &times {
        whole.merge(&time.steady);
    }
    let waits = synchronization(&mut whole, &times);
    let mut found = Assembly {
        run_profile,
        windows,
        steady_ns: steady_ns(windows, times.len()),
        total_ns: windows.total() / times.len().max(1) as f64,
        found: Vec::new(),
    };
    found.exchange(&whole, &times, cancel)?;
    if on_device {
        let kernels = kernels(run_profile, &times, &mut launch_of, cancel)?;
        found.losses(&whole, waits, &kernels, memory, &times);
        found.kernels(&whole, &kernels);
    } else {
        found.cpu(&whole);
    }
    let mut all = found.found;
    add_outliers(
        &mut all,
        outliers::outliers(run_profile.trace, windows, &times, memory),
    );
    all.extend(outliers::warm_up(run_profile, windows));
    all.extend(memory::risks(run_profile.trace, windows, memory));
    limit_savings(&mut all);
    for finding in &mut all {
        if finding.cause == FindingCause::Compilation {
            finding.shapes = recompiled::shapes(run_profile.trace, &finding.subjects);
            let functions = recompiled::functions(run_profile.trace, windows, cancel)?;
            let names = functions.iter().map(|function| function.name.clone());
            let subjects = std::mem::take(&mut finding.subjects);
            finding.subjects = names.take(MAX_FUNCTIONS).chain(subjects).collect();
            let events = functions.iter().map(|function| function.longest);
            finding.evidence.extend(events.take(MAX_FUNCTIONS));
            finding.compiled_functions = functions;
        }
    }
    Ok(all)
}

/// Adds the cost of outliers: to the finding of the same cause, where steady steps have it too.
fn add_outliers(all: &mut Vec<Finding>, outliers: Option<Finding>) {
    let Some(outliers) = outliers else {
        return;
    };
    let same = all.iter_mut().find(|known| known.cause == outliers.cause);
    match same {
        Some(known) if known.cause == FindingCause::InputBound => {
            known.share += outliers.share;
            known.saving_ns = known.saving_ns.zip(outliers.saving_ns).map(|(a, b)| a + b);
            known.evidence = [&outliers.evidence[..], &known.evidence[..]].concat();
        }
        _ => all.push(outliers),
    }
}

/// Length of the steady steps of one rank.
fn steady_ns(windows: &Windows, ranks: usize) -> f64 {
    let steady = windows.list.iter().filter(|window| window.is_steady());
    steady.map(|window| window.dur().as_ns_f64()).sum::<f64>() / ranks.max(1) as f64
}

/// Limits the sum of the savings to the steps: causes of different ranks may overlap.
fn limit_savings(found: &mut Vec<Finding>) {
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    let mut left = 1.0;
    for finding in found
        .iter_mut()
        .filter(|finding| finding.saving_ns.is_some())
    {
        if finding.share > left {
            let scale = if finding.share > 0.0 {
                left / finding.share
            } else {
                0.0
            };
            finding.saving_ns = finding.saving_ns.map(|ns| ns * scale);
            finding.share = left;
        }
        left -= finding.share;
    }
    for finding in found.iter_mut() {
        finding.share = finding.share.clamp(0.0, 1.0);
    }
    found.retain(|finding| finding.saving_ns.is_none_or(|saving| saving > 0.0));
}

/// Moves the cost of waits for the device out of the other losses; returns it, picoseconds.
fn synchronization(whole: &mut Account, times: &[RankTime]) -> f64 {
    let mut moved = 0.0;
    let mut scales = [0.0; AFTER_DRAIN.len()];
    let drained = |account: &Account, loss: Loss| account.drained[loss as usize];
    for time in times {
        let account = &time.steady;
        let after: f64 = AFTER_DRAIN.iter().map(|loss| drained(account, *loss)).sum();
        let host = account.length_ps - account.waited_ps;
        let possible = account.length_ps - host.max(account.busy_ps);
        let saved = after.min(possible).max(0.0);
        if after > 0.0 {
            moved += saved;
            for (scale, loss) in scales.iter_mut().zip(AFTER_DRAIN) {
                *scale += drained(account, loss) * saved / after;
            }
        }
    }
    for (ps, loss) in scales.into_iter().zip(AFTER_DRAIN) {
        whole.add(loss, -ps);
    }
    moved
}

fn events(names: &[(NameId, Named)]) -> Vec<EventId> {
    names
        .iter()
        .take(3)
        .map(|(_, named)| named.longest)
        .collect()
}

struct Assembly<'a, 'b> {
    run_profile: &'a RunProfile<'b>,
    windows: &'a Windows,
    steady_ns: f64,
    total_ns: f64,
    found: Vec<Finding>,
}

impl Assembly<'_, '_> {
    /// Adds a finding that takes `fraction` of the steady steps, if that is above the threshold.
    fn add(&mut self, fraction: f64, finding: Finding) {
        let saving = fraction * self.steady_ns;
        let share = if self.total_ns > 0.0 {
            saving / self.total_ns
        } else {
            0.0
        };
        if share >= LISTED {
            self.found.push(Finding {
                saving_ns: finding.saving_ns.or(Some(saving)),
                share,
                ..finding
            });
        }
    }

    /// Adds findings of communication: a straggler, load imbalance, or the transfer itself.
    fn exchange(
        &mut self,
        whole: &Account,
        times: &[RankTime],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let fraction = whole.share(Loss::Communication) + whole.share(Loss::HostCollective);
        let ranks = self.run_profile.trace.recordings().count();
        if fraction < LISTED && ranks < 2 {
            return Ok(());
        }
        let exchange = Exchange::new(self.run_profile, self.windows, cancel)?;
        self.clocks(&exchange);
        if fraction < LISTED {
            return Ok(());
        }
        let wait: f64 = times
            .iter()
            .map(|time| {
                let account = &time.steady;
                let exposed = account.get(Loss::Communication) + account.get(Loss::HostCollective);
                let devices = time.devices.iter().map(|device| device.ordinal);
                exposed * exchange.wait_share(time.rank, devices)
            })
            .sum::<f64>()
            / whole.length_ps.max(1.0);
        self.waits(&exchange, wait, times);
        let kind = exchange.largest();
        let mut names = whole.names_of(Loss::Communication);
        if names.is_empty() {
            names = whole.names_of(Loss::HostCollective);
        }
        let mut subjects: Vec<String> = kind.iter().map(|(kind, _)| (*kind).to_owned()).collect();
        subjects.extend(words(self.run_profile.trace, &names));
        let mut evidence = events(&names);
        if evidence.is_empty() {
            evidence.extend(kind.map(|(_, event)| event));
        }
        let alone = exchange.matched == 0 && exchange.group_size > 1;
        let finding = Finding {
            subjects,
            evidence,
            detail: if alone {
                Detail::OneRank {
                    of: exchange.group_size,
                }
            } else {
                Detail::None
            },
            ..Finding::new(
                FindingCause::ExposedCommunication,
                if alone {
                    Confidence::Low
                } else {
                    Confidence::High
                },
            )
        };
        self.add((fraction - wait) * HIDEABLE, finding);
        Ok(())
    }

    fn clocks(&mut self, exchange: &Exchange) {
        let step_ns = self.windows.mean_ns();
        if exchange.skew_ns > 1e6 && exchange.skew_ns > 0.05 * step_ns {
            self.found.push(Finding {
                detail: Detail::Clocks {
                    skew_ns: exchange.skew_ns,
                },
                ..Finding::new(FindingCause::ClockSkew, Confidence::High)
            });
        }
    }

    /// Adds a finding of waiting for the last rank: always the same one, or changing ones.
    fn waits(&mut self, exchange: &Exchange, mean_wait: f64, times: &[RankTime]) {
        let caused: f64 = exchange.caused_ps.values().sum();
        let worst = exchange.caused_ps.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let Some((late, most)) = worst.filter(|_| caused > 0.0) else {
            return;
        };
        let who = self.name_of(*late);
        let straggles = *most >= STRAGGLES * caused;
        let mut waits: Vec<f64> = exchange
            .by_rank
            .iter()
            .filter(|(participant, _)| **participant != *late)
            .map(|(participant, sums)| {
                sums.wait_ps
                    / exchange
                        .steps
                        .get(&self.rank_of(*participant))
                        .copied()
                        .unwrap_or(1.0)
                        .max(1.0)
            })
            .collect();
        waits.sort_by(f64::total_cmp);
        let typical_ps = waits.get(waits.len() / 2).copied().unwrap_or(0.0);
        let step_ps = self.windows.mean_ns() * 1_000.0;
        let (fraction, cause) = if straggles {
            (typical_ps / step_ps.max(1.0), FindingCause::Straggler)
        } else {
            (mean_wait, FindingCause::LoadImbalance)
        };
        let (extra_work, extra_ns) = extra_work(self.rank_of(*late), times);
        // A cause that explains little of the wait is not reported.
        let extra_work = extra_work.filter(|_| extra_ns * 1_000.0 >= 0.5 * typical_ps);
        let mut subjects = Vec::new();
        if straggles {
            subjects.push(who.clone());
        }
        subjects.extend(exchange.largest().map(|(kind, _)| kind.to_owned()));
        self.add(
            fraction,
            Finding {
                subjects,
                evidence: exchange
                    .largest()
                    .map(|(_, event)| event)
                    .into_iter()
                    .collect(),
                detail: Detail::Rank {
                    rank: self.rank_number(*late),
                    who,
                    extra_work,
                    extra_ns,
                },
                ..Finding::new(cause, Confidence::High)
            },
        );
    }

    fn rank_of(&self, who: Participant) -> StepRank {
        self.windows.rank_of(who.file, Some(who.device))
    }

    fn name_of(&self, who: Participant) -> String {
        let files = self.run_profile.trace.files();
        match (self.rank_number(who), files.get(who.file)) {
            (Some(rank), _) => format!("rank {rank}"),
            (None, Some(file)) if files.len() > 1 => format!("host {}", file.spec.host),
            _ => format!("device {}", who.device),
        }
    }

    /// The rank of a participant; `None` in a run of one file, whose participants are its devices.
    fn rank_number(&self, who: Participant) -> Option<u32> {
        let files = self.run_profile.trace.files();
        let file = files.get(who.file).filter(|_| files.len() > 1)?;
        file.spec.rank
    }

    /// Adds findings of idle time of devices by cause, and of copies.
    fn losses(
        &mut self,
        whole: &Account,
        waits_ps: f64,
        kernels: &Kernels,
        memory: &Memory,
        times: &[RankTime],
    ) {
        let trace = self.run_profile.trace;
        let steps = (whole.length_ps / (self.windows.mean_ns() * 1_000.0).max(1.0)).max(1.0);
        for loss in [
            Loss::Input,
            Loss::Compile,
            Loss::Allocator,
            Loss::Overhead,
            Loss::HostOperator,
            Loss::Collector,
            Loss::Host,
            Loss::OtherDevice,
            Loss::Unknown,
            Loss::Copy,
        ] {
            let Some(mut cause) = cause_of(loss) else {
                continue;
            };
            let names = whole.names_of(loss);
            let subjects = words(trace, &names);
            if loss == Loss::Allocator
                && !subjects.iter().any(|name| name.contains("empty_cache"))
                && times
                    .iter()
                    .any(|time| memory::is_fragmented(memory, time.rank.file))
            {
                cause = FindingCause::Fragmentation;
            }
            let calls = names
                .first()
                .map_or(0.0, |(_, named)| named.count as f64 / steps);
            let mut fraction = whole.share(loss);
            if loss == Loss::OtherDevice {
                fraction -= remaining_bubble(whole, times);
            }
            self.add(
                fraction,
                Finding {
                    subjects,
                    evidence: events(&names),
                    detail: match loss {
                        Loss::Input => input_detail(trace, &names),
                        _ => Detail::Calls { per_step: calls },
                    },
                    ..Finding::new(cause, confidence(loss))
                },
            );
        }
        let names = whole.names_of_waits();
        let calls = names
            .first()
            .map_or(0.0, |(_, named)| named.count as f64 / steps);
        self.add(
            waits_ps / whole.length_ps.max(1.0),
            Finding {
                subjects: words(trace, &names),
                evidence: events(&names),
                detail: Detail::Calls { per_step: calls },
                ..Finding::new(FindingCause::Synchronization, Confidence::High)
            },
        );
        self.launches(whole, kernels, steps);
    }

    /// Adds findings of launching: one label of the program made of tiny kernels, or all of it.
    fn launches(&mut self, whole: &Account, kernels: &Kernels, steps: f64) {
        let trace = self.run_profile.trace;
        let (launch, dispatch) = (whole.share(Loss::Launch), whole.share(Loss::Dispatch));
        let mostly_small = kernels.small * 2 >= kernels.count && kernels.small > 0;
        let names = whole.names_of(Loss::Launch);
        let hot_label = names.iter().find(|(name, named)| {
            is_optimizer(trace.name(*name)) && named.ps >= 0.4 * whole.get(Loss::Launch)
        });
        let detail = Detail::Kernels {
            small: kernels.small as f64 / steps,
            all: kernels.count as f64 / steps,
        };
        let evidence = events(&names);
        if mostly_small && (hot_label.is_some() || dispatch > launch) {
            let subjects = hot_label.map(|(name, _)| trace.name(*name).to_owned());
            self.add(
                launch + dispatch,
                Finding {
                    subjects: subjects.into_iter().collect(),
                    evidence,
                    detail,
                    ..Finding::new(FindingCause::SmallKernels, Confidence::High)
                },
            );
        } else {
            self.add(
                launch,
                Finding {
                    subjects: words(trace, &names),
                    evidence,
                    detail,
                    ..Finding::new(
                        FindingCause::LaunchBound,
                        if mostly_small {
                            Confidence::High
                        } else {
                            Confidence::Medium
                        },
                    )
                },
            );
        }
    }

    /// Adds findings of the device's computation: potential savings, and its heaviest operations.
    fn kernels(&mut self, whole: &Account, kernels: &Kernels) {
        let trace = self.run_profile.trace;
        let length = kernels.length_ps.max(1.0);
        let name = |sums: &[(NameId, super::kernels::Heavy)]| -> Vec<String> {
            sums.iter()
                .take(4)
                .map(|(name, _)| trace.name(*name).to_owned())
                .collect()
        };
        let shown = |sums: &[(NameId, super::kernels::Heavy)]| -> Vec<EventId> {
            sums.iter()
                .take(3)
                .map(|(_, heavy)| heavy.longest)
                .collect()
        };
        if let Some(unit) = kernels.faster_unit {
            let sums = heaviest(&kernels.single_precision);
            self.add(
                kernels.single_precision_saving_ps / length,
                Finding {
                    subjects: name(&sums),
                    evidence: shown(&sums),
                    detail: Detail::Precision { unit },
                    ..Finding::new(FindingCause::LowPrecisionOpportunity, Confidence::High)
                },
            );
        }
        let sums = heaviest(&kernels.chains);
        self.add(
            kernels.chains_saving_ps / length,
            Finding {
                subjects: name(&sums),
                evidence: shown(&sums),
                detail: Detail::Chains {
                    attention: kernels.attention,
                },
                ..Finding::new(FindingCause::MemoryBoundKernels, Confidence::Medium)
            },
        );
        let busy = whole.busy_share();
        if busy < 0.5 {
            return;
        }
        let sums = heaviest(&kernels.operations);
        let compute = kernels.compute_ps.max(1.0);
        let heaviest: Vec<(String, f64)> = sums
            .iter()
            .take(3)
            .map(|(name, heavy)| (trace.name(*name).to_owned(), heavy.ps / compute))
            .collect();
        self.found.push(Finding {
            subjects: name(&sums),
            share: busy,
            evidence: shown(&sums),
            detail: Detail::Busy {
                device: Some(busy),
                heaviest,
            },
            ..Finding::new(FindingCause::DeviceBound, Confidence::High)
        });
    }

    /// Adds findings of a program without a device.
    fn cpu(&mut self, whole: &Account) {
        let trace = self.run_profile.trace;
        for loss in [Loss::Input, Loss::Compile, Loss::Collector, Loss::Overhead] {
            let Some(cause) = cause_of(loss) else {
                continue;
            };
            let names = whole.names_of(loss);
            self.add(
                whole.share(loss),
                Finding {
                    subjects: words(trace, &names),
                    evidence: events(&names),
                    detail: match loss {
                        Loss::Input => input_detail(trace, &names),
                        _ => Detail::None,
                    },
                    ..Finding::new(cause, Confidence::High)
                },
            );
        }
        let waits = whole.waits_share();
        let names = whole.names_of_waits();
        self.add(
            waits,
            Finding {
                subjects: words(trace, &names),
                evidence: events(&names),
                detail: Detail::Waits,
                ..Finding::new(FindingCause::HostBound, Confidence::Medium)
            },
        );
        let mut sums: BTreeMap<NameId, Named> = BTreeMap::new();
        for loss in [Loss::HostOperator, Loss::Host] {
            for (name, named) in whole.names_of(loss) {
                let sum = sums.entry(name).or_default();
                if named.ps > sum.ps {
                    *sum = named;
                }
            }
        }
        let mut sums: Vec<(NameId, Named)> = sums.into_iter().collect();
        sums.sort_by(|a, b| {
            b.1.ps
                .total_cmp(&a.1.ps)
                .then_with(|| a.0.index().cmp(&b.0.index()))
        });
        // A name that encloses nearly all time is not specific; frames of Python are less specific than labels
        // and operators.
        let length = whole.length_ps.max(1.0);
        let is_single_process = |name: &NameId, named: &Named| {
            let name = trace.name(*name);
            let is_frame = name.contains(".py(") || name.starts_with(['$', '<']);
            named.ps < 0.9 * length && !is_frame
        };
        if sums
            .iter()
            .any(|(name, named)| is_single_process(name, named))
        {
            sums.retain(|(name, named)| is_single_process(name, named));
        }
        // Garbage collection, the profiler and waits have findings of their own, but count in the host's bucket.
        let reported_elsewhere = whole.share(Loss::Collector) + whole.share(Loss::Overhead) + waits;
        let share = whole.busy_share() + (whole.share(Loss::Host) - reported_elsewhere).max(0.0);
        // Operations are more specific than their callers where they take most of the time.
        let mut all_ps = length;
        let operations = whole.operations();
        if whole.busy_share() > whole.share(Loss::Host) && !operations.is_empty() {
            all_ps = operations.iter().map(|(_, named)| named.ps).sum();
            sums = operations;
        }
        if sums.is_empty() || share < 0.3 {
            return;
        }
        let fraction = |named: &Named| (named.ps / all_ps).min(1.0);
        let heaviest: Vec<(String, f64)> = sums
            .iter()
            .filter(|(_, named)| fraction(named) >= LISTED)
            .take(3)
            .map(|(name, named)| (without_address(trace.name(*name)), fraction(named)))
            .collect();
        self.found.push(Finding {
            subjects: words(trace, &sums),
            share,
            evidence: events(&sums),
            detail: Detail::Busy {
                device: None,
                heaviest,
            },
            ..Finding::new(FindingCause::DeviceBound, Confidence::Medium)
        });
    }
}

/// Returns whether torch's `DataLoader` makes the batches itself (`num_workers=0`): the name of its iterator
/// shows it, and so does fetching on this thread, which workers do otherwise.
fn input_detail(trace: &Trace, names: &[(NameId, Named)]) -> Detail {
    let is_single_process = |name: &str| {
        let fetches = name.contains("fetch.py") && name.ends_with(" fetch");
        fetches || name.contains("_SingleProcessDataLoaderIter")
    };
    Detail::Input {
        in_process: names
            .iter()
            .any(|(name, _)| is_single_process(trace.name(*name))),
    }
}

const fn confidence(loss: Loss) -> Confidence {
    match loss {
        Loss::HostOperator | Loss::Host | Loss::OtherDevice => Confidence::Medium,
        _ => Confidence::High,
    }
}

fn is_optimizer(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("optim") || name.contains("adam") || name.contains("sgd")
}

/// Computes the fraction of the steps that a well-filled pipeline still leaves empty: with four micro-batches for
/// each of `p` stages `(p - 1) / 4p` of the work of a stage (the bubble of `GPipe`, Huang et al. 2019).
fn remaining_bubble(whole: &Account, times: &[RankTime]) -> f64 {
    let stages = times
        .iter()
        .map(|time| time.devices.len())
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let bubble = (stages - 1.0) / (4.0 * stages);
    (whole.busy_share() * bubble).min(whole.share(Loss::OtherDevice))
}

/// A kind of extra work, and its time in an account.
type Kind<'a> = (ExtraWork, &'a dyn Fn(&Account) -> f64);

/// Finds the kind of work that a rank does more of than the median rank, and the additional time per step.
fn extra_work(rank: StepRank, times: &[RankTime]) -> (Option<ExtraWork>, f64) {
    let step = |time: &RankTime| {
        let steady = time
            .sampled
            .iter()
            .filter(|window| window.is_steady())
            .count();
        steady.max(1) as f64
    };
    let Some(late) = times.iter().find(|time| time.rank == rank) else {
        return (None, 0.0);
    };
    let kinds: [Kind<'_>; 4] = [
        (ExtraWork::Compute, &|account| account.busy_ps),
        (ExtraWork::Input, &|account| account.get(Loss::Input)),
        (ExtraWork::Host, &|account| account.get(Loss::Host)),
        (ExtraWork::Copy, &|account| account.get(Loss::Copy)),
    ];
    let mut most: (Option<ExtraWork>, f64) = (None, 0.0);
    for (kind, of) in kinds {
        let mut others: Vec<f64> = times
            .iter()
            .filter(|time| time.rank != rank)
            .map(|time| of(&time.steady) / step(time))
            .collect();
        others.sort_by(f64::total_cmp);
        let Some(median) = others.get(others.len() / 2) else {
            continue;
        };
        let more = (of(&late.steady) / step(late) - median) / 1_000.0;
        if more > most.1 {
            most = (Some(kind), more);
        }
    }
    most
}
