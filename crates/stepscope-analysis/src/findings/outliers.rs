//! Steps that are longer than the others: warm-up, and the causes of later ones.

use stepscope_model::Dur;
use stepscope_store::Trace;

use super::device_time::RankTime;
use super::losses::{Loss, cause_of};
use super::memory::is_fragmented;
use super::subjects::words;
use super::windows::{IterationRole, Window, Windows};
use super::{Confidence, Detail, Finding, FindingCause};
use crate::memory::Memory;
use crate::run_profile::{RunProfile, median};
use crate::steps::STEP_MARKER;

/// Losses that may make a step long.
const LOSSES: [Loss; 11] = [
    Loss::Compile,
    Loss::Input,
    Loss::Collector,
    Loss::Allocator,
    Loss::HostOperator,
    Loss::HostCollective,
    Loss::Host,
    Loss::Launch,
    Loss::Unknown,
    Loss::Communication,
    Loss::Copy,
];

/// Explains the outlying steps of each rank; returns the rank that loses most.
pub(super) fn outliers(
    trace: &Trace,
    windows: &Windows,
    times: &[RankTime],
    memory: &Memory,
) -> Option<Finding> {
    let of_ranks = times
        .iter()
        .filter_map(|time| explain_rank(trace, windows, time, memory));
    of_ranks.max_by(|a, b| a.share.total_cmp(&b.share))
}

fn explain_rank(
    trace: &Trace,
    windows: &Windows,
    time: &RankTime,
    memory: &Memory,
) -> Option<Finding> {
    let all = windows.rank_windows(time.rank);
    let mut long: Vec<&Window> = all
        .iter()
        .filter(|window| window.role == IterationRole::Outlier)
        .collect();
    if long.is_empty() || time.outliers() == 0 {
        return None;
    }
    let lost_ps = excess(all)?;
    name_the_longest(all, &mut long);
    let total: f64 = counted(all).map(|window| window.dur().ps() as f64).sum();
    let share = lost_ps / total;
    if share < super::LISTED {
        return None;
    }
    let (loss, part) = explain(time);
    let loss = match (loss, is_periodic(&long)) {
        // Longer steps at a regular pace are part of the program, as when gradients are accumulated.
        (None, true) => return None,
        (loss, _) => loss,
    };
    let cause = match loss {
        Some(Loss::Compile) => FindingCause::Compilation,
        Some(Loss::Allocator) if is_fragmented(memory, time.rank.file) => {
            FindingCause::Fragmentation
        }
        Some(Loss::Allocator) => FindingCause::AllocatorThrash,
        // Parallel workers that make batches let the loop wait once every few batches.
        Some(Loss::Input) if is_periodic(&long) => FindingCause::InputBound,
        _ => FindingCause::OutlierSteps,
    };
    let names = loss
        .map(|loss| time.outlying.names_of(loss))
        .unwrap_or_default();
    let mut evidence: Vec<_> = names
        .iter()
        .take(2)
        .map(|(_, named)| named.longest)
        .collect();
    evidence.extend(
        long.iter()
            .filter_map(|window| window.step)
            .take(3)
            .map(|(_, event)| event),
    );
    let mut subjects = words(trace, &names);
    let numbers = long.iter().filter_map(|window| window.step).take(3);
    subjects.extend(numbers.map(|(number, _)| format!("step {number}")));
    Some(Finding {
        subjects,
        saving_ns: Some(lost_ps / 1_000.0),
        share,
        evidence,
        detail: Detail::Steps {
            numbers: long
                .iter()
                .filter_map(|window| window.step)
                .map(|(number, _)| number)
                .collect(),
            of: all.len(),
        },
        ..Finding::new(
            cause,
            match loss {
                Some(loss) if part >= 0.8 && cause_of(loss).is_some() => Confidence::High,
                Some(_) => Confidence::Medium,
                None => Confidence::Low,
            },
        )
    })
}

fn counted(windows: &[Window]) -> impl Iterator<Item = &Window> + Clone {
    windows.iter().filter(|window| window.role.counts())
}

/// Sums up by how much the steps of a rank exceed the median, picoseconds. A step after a long one is often
/// shorter, since the device no longer delays the host: that counts too.
fn excess(windows: &[Window]) -> Option<f64> {
    let usual = median(
        windows
            .iter()
            .filter(|window| window.is_steady())
            .map(Window::dur),
    )?;
    let beyond = |window: &Window| (window.dur().ps() - usual.ps()) as f64;
    let long = counted(windows)
        .filter(|window| window.role == IterationRole::Outlier)
        .map(beyond);
    let all = counted(windows).map(beyond).sum::<f64>();
    Some(all.clamp(0.0, long.sum::<f64>().max(0.0)))
}

/// Retains the steps that lose at least a fifth of the loss of the worst one: the others are barely outliers.
fn name_the_longest(all: &[Window], long: &mut Vec<&Window>) {
    let usual = median(
        all.iter()
            .filter(|window| window.is_steady())
            .map(Window::dur),
    );
    let usual = usual.unwrap_or(Dur::ZERO).ps();
    let worst = long
        .iter()
        .map(|window| window.dur().ps() - usual)
        .max()
        .unwrap_or(0);
    long.retain(|window| (window.dur().ps() - usual).saturating_mul(5) >= worst);
}

/// Finds the loss that outlying steps have more of than steady ones, and its fraction of all their additional
/// losses.
fn explain(time: &RankTime) -> (Option<Loss>, f64) {
    let steady = time
        .sampled
        .iter()
        .filter(|window| window.is_steady())
        .count()
        .max(1) as f64;
    let outlying = time.outliers().max(1) as f64;
    let more = |of: &dyn Fn(&super::losses::Account) -> f64| {
        (of(&time.outlying) / outlying - of(&time.steady) / steady).max(0.0)
    };
    let mut all: Vec<(Option<Loss>, f64)> = LOSSES
        .iter()
        .map(|loss| (Some(*loss), more(&|account| account.get(*loss))))
        .collect();
    all.push((None, more(&|account| account.busy_ps)));
    let sum: f64 = all.iter().map(|(_, ps)| ps).sum();
    let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    match most {
        Some((loss, ps)) if ps > 0.0 => {
            (loss.filter(|loss| *loss != Loss::Communication), ps / sum)
        }
        _ => (None, 0.0),
    }
}

/// Returns whether at least two long steps come at a regular pace.
fn is_periodic(long: &[&Window]) -> bool {
    let numbers: Vec<i64> = long
        .iter()
        .filter_map(|window| window.step)
        .map(|step| step.0)
        .collect();
    let mut paces = numbers
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]));
    let Some(first) = paces.next() else {
        return false;
    };
    first > 1 && paces.all(|pace| pace == first)
}

/// Reports slow first steps, where there are any.
pub(super) fn warm_up(run_profile: &RunProfile<'_>, windows: &Windows) -> Option<Finding> {
    let slow: Vec<&Window> = windows
        .list
        .iter()
        .filter(|window| window.role == IterationRole::WarmUp)
        .collect();
    let first = slow.first()?;
    let rank_windows = windows.rank_windows(first.rank);
    let usual = median(
        rank_windows
            .iter()
            .filter(|window| window.is_steady())
            .map(Window::dur),
    )?;
    let rank_outliers: Vec<&&Window> = slow
        .iter()
        .filter(|window| window.rank == first.rank)
        .collect();
    let compiles = rank_outliers
        .iter()
        .map(|window| run_profile.parts(window.iteration).compile.as_ns_f64());
    let loading_ns = loading_ns(run_profile.trace, rank_windows, &rank_outliers);
    let lost = rank_outliers
        .iter()
        .map(|window| (window.dur().ps() - usual.ps()).max(0));
    let lost = Dur::from_ps(lost.fold(0, i64::saturating_add));
    let total: f64 = rank_windows
        .iter()
        .map(|window| window.dur().as_ns_f64())
        .sum();
    Some(Finding {
        share: lost.as_ns_f64() / total,
        evidence: rank_outliers
            .iter()
            .filter_map(|window| window.step)
            .take(3)
            .map(|step| step.1)
            .collect(),
        detail: Detail::WarmUp {
            numbers: rank_outliers
                .iter()
                .filter_map(|window| window.step)
                .map(|step| step.0)
                .collect(),
            compile_ns: compiles.sum(),
            loading_ns,
        },
        ..Finding::new(FindingCause::WarmUpOnly, Confidence::High)
    })
}

/// Computes how much longer the slow steps' `StepMarker`s are than usual: the call runs the graph that a
/// program traced, and first compiles and loads it if it is new. 0 where other events mark the steps.
fn loading_ns(trace: &Trace, rank_windows: &[Window], slow: &[&&Window]) -> f64 {
    let marker = |window: &Window| {
        let (_, event) = window.step?;
        let (row, index) = trace.place_of_slice(event)?;
        let slices = trace.slices(row);
        let name = slices.name.get(index)?;
        (trace.name(*name) == STEP_MARKER).then(|| slices.dur[index])
    };
    let steady = rank_windows.iter().filter(|window| window.is_steady());
    let Some(usual) = median(steady.filter_map(marker)) else {
        return 0.0;
    };
    let more = slow.iter().filter_map(|window| marker(window));
    more.map(|dur| (dur.ps() - usual.ps()).max(0) as f64 / 1e3)
        .sum()
}
