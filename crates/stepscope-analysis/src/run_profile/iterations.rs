//! Steps as iterations of a loop: each lasts until the start of the next; warm-up and outliers are separate
//! roles.

use std::ops::Range;

use stepscope_model::{Dur, Time};

use super::profiled::ProfiledTimes;
use crate::steps::breakdown::AnalysisWindow;
use crate::steps::times::outlier_limit;

/// Role of a step among the others of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IterationRole {
    /// About as long as most steps.
    Steady,
    /// One of the first, and longer than most.
    WarmUp,
    /// Longer than most, later on.
    Outlier,
    /// The profilers of frameworks did not record all of it, but recorded others.
    Unprofiled,
}

impl IterationRole {
    /// Returns whether the figures of a run count such a step: warm-up does not represent the steps that follow, and
    /// what was not recorded would count as idle.
    pub const fn counts(self) -> bool {
        !matches!(self, Self::WarmUp | Self::Unprofiled)
    }
}

/// A step with the pause until the next one starts; or a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// From its start to the start of the next one, where the pause between them is part of the loop.
    pub range: Range<Time>,
    /// Role among the steps of the rank.
    pub role: IterationRole,
}

impl Iteration {
    /// Returns the length.
    pub fn dur(&self) -> Dur {
        self.range.end.since(self.range.start).max(Dur::ZERO)
    }

    /// Returns whether the figures of a run [count](IterationRole::counts) it.
    pub fn counts(&self) -> bool {
        self.role.counts()
    }
}

/// Mean over the median length of steps from which the median says little: the host runs ahead of the work that its
/// steps launch, and a few of them wait for all of it.
pub const RUNS_AHEAD: f64 = 2.0;

/// Builds the iterations of windows that are steps, in their order; `numbers` are those of the steps.
pub(super) fn step_iterations(
    analysis_windows: &[AnalysisWindow],
    numbers: &[i64],
    profiled: &ProfiledTimes,
) -> Vec<Iteration> {
    let mut found = recording_iterations(analysis_windows);
    let mut order: Vec<usize> = (0..analysis_windows.len()).collect();
    let key = |index: &usize| {
        (
            analysis_windows[*index].rank(),
            analysis_windows[*index].thread,
        )
    };
    order.sort_by_key(|index| (key(index), analysis_windows[*index].range.start));
    for rank in order.chunk_by(|a, b| key(a) == key(b)) {
        join_neighbours(rank, numbers, &mut found);
        let is_profiled = |index: &usize| {
            let window = &analysis_windows[*index];
            profiled.has(window.file, &window.range)
        };
        let (own, others): (Vec<usize>, Vec<usize>) =
            rank.iter().partition(|index| is_profiled(index));
        if own.is_empty() {
            assign_roles(&others, &mut found);
            continue;
        }
        assign_roles(&own, &mut found);
        for index in others {
            found[index].role = IterationRole::Unprofiled;
        }
    }
    found
}

/// Builds one iteration for each window that is no step.
pub(super) fn recording_iterations(analysis_windows: &[AnalysisWindow]) -> Vec<Iteration> {
    let alone = |analysis_window: &AnalysisWindow| Iteration {
        range: analysis_window.range.clone(),
        role: IterationRole::Steady,
    };
    analysis_windows.iter().map(alone).collect()
}

/// Extends each step to the start of the next one, so that the time between two markers counts. A pause longer
/// than a step, and than twice the third quartile of the pauses, is no part of the loop: an evaluation, a
/// recording that stopped for a while.
fn join_neighbours(rank: &[usize], numbers: &[i64], found: &mut [Iteration]) {
    let Some(typical) = median(rank.iter().map(|index| found[*index].dur())) else {
        return;
    };
    let pauses: Vec<(usize, Time, Dur)> = rank
        .windows(2)
        .filter(|pair| numbers[pair[0]].checked_add(1) == Some(numbers[pair[1]]))
        .map(|pair| {
            let next = found[pair[1]].range.start;
            (pair[0], next, next.since(found[pair[0]].range.end))
        })
        .collect();
    let mut sorted: Vec<Dur> = pauses.iter().map(|(_, _, pause)| *pause).collect();
    sorted.sort_unstable();
    let usual = sorted
        .get(sorted.len() * 3 / 4)
        .copied()
        .unwrap_or(Dur::ZERO);
    let longest = typical.max(usual.saturating_add(usual));
    for (index, next, pause) in pauses {
        if pause > Dur::ZERO && pause <= longest {
            found[index].range.end = next;
        }
    }
}

/// Fraction of the time of the steps below which the steps of usual length only launch work.
const MOST_AHEAD: f64 = 0.1;

fn assign_roles(rank: &[usize], found: &mut [Iteration]) {
    let mut sorted: Vec<Dur> = rank.iter().map(|index| found[*index].dur()).collect();
    sorted.sort_unstable();
    let limit = match (sorted.len(), outlier_limit(&sorted)) {
        (_, Some(limit)) => limit,
        // Too few to judge their scatter: only steps far above the median are outliers.
        (3.., None) => sorted[sorted.len() / 2].as_ns_f64() * 1.5,
        _ => return,
    };
    let is_long: Vec<bool> = rank
        .iter()
        .map(|index| found[*index].dur().as_ns_f64() > limit)
        .collect();
    // The host runs ahead of the device, so the first step may be short although the device is slow.
    let skipped = usize::from(!is_long[0]);
    let slow_start = is_long[skipped..].iter().take_while(|long| **long).count();
    let slow_start = if slow_start > 0 {
        skipped + slow_start
    } else {
        0
    };
    let slow_start = if slow_start * 2 > rank.len() {
        0
    } else {
        slow_start
    };
    let later = is_long[slow_start..].iter().filter(|long| **long).count();
    // Steps that launch work without waiting for it are short, and every n-th, which waits for all of it, is long:
    // together they are the pace of the loop. Long steps at other distances compile, or have another cause.
    let length = |position: usize| found[rank[position]].dur().as_ns_f64();
    let all: f64 = (slow_start..rank.len()).map(length).sum();
    let short: f64 = (slow_start..rank.len())
        .filter(|position| !is_long[*position])
        .map(length)
        .sum();
    let mean = all / (rank.len() - slow_start) as f64;
    let waiting: Vec<usize> = (slow_start..rank.len())
        .filter(|position| length(*position) > mean)
        .collect();
    let is_regular = waiting
        .windows(3)
        .all(|three| three[1] - three[0] == three[2] - three[1]);
    let runs_ahead = waiting.len() >= 3 && is_regular && short < MOST_AHEAD * all;
    let is_slow_start: Vec<bool> = (0..slow_start)
        .map(|position| !runs_ahead || length(position) > mean)
        .collect();
    // A length that most steps have is usual.
    let usual = runs_ahead || later * 5 > (rank.len() - slow_start) * 2;
    for (position, index) in rank.iter().enumerate() {
        let is_early = position < slow_start;
        found[*index].role =
            if is_early && is_slow_start[position] && (is_long[position] || position == 0) {
                IterationRole::WarmUp
            } else if !is_early && is_long[position] && !usual {
                IterationRole::Outlier
            } else {
                IterationRole::Steady
            };
    }
}

/// Returns the median, the longer of the two middle values.
pub(crate) fn median(durations: impl Iterator<Item = Dur>) -> Option<Dur> {
    let mut all: Vec<Dur> = durations.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}
