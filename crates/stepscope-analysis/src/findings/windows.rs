//! Analysis windows of the diagnosis: the iterations of the run.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, Time, TrackId};
use stepscope_store::{EventId, Trace};

pub(super) use crate::run_profile::IterationRole;
use crate::run_profile::{RUNS_AHEAD, RunProfile, median};
use crate::steps::StepRank;

/// One step, or a chunk of the recording where there are no steps.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) rank: StepRank,
    pub(super) range: Range<Time>,
    /// The thread that marks the step, or the busiest one.
    pub(super) thread: Option<TrackId>,
    /// Number and marker of the step.
    pub(super) step: Option<(i64, EventId)>,
    pub(super) role: IterationRole,
    /// Index into [`RunProfile::iterations`].
    pub(super) iteration: usize,
}

impl Window {
    pub(super) fn dur(&self) -> Dur {
        let length = self.range.end.since(self.range.start);
        length.max(Dur::ZERO)
    }

    pub(super) fn is_steady(&self) -> bool {
        self.role == IterationRole::Steady
    }
}

/// All windows of a run, in the order of ranks, threads and time.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    pub(super) list: Vec<Window>,
    /// Whether they are steps.
    pub(super) are_steps: bool,
    /// Process that uses each device (file, ordinal), in files of several ranks.
    processes: FxHashMap<(usize, u32), i64>,
}

impl Windows {
    /// Lists the steps of a run, or its recordings where it has none.
    pub(super) fn new(run_profile: &RunProfile<'_>) -> Self {
        let steps: FxHashMap<(StepRank, Time), (i64, EventId)> = run_profile
            .steps
            .steps
            .iter()
            .filter(|step| !step.unfinished)
            .map(|step| ((step.rank(), step.start), (step.number, step.event)))
            .collect();
        let are_steps = run_profile.has_steps();
        let analysis_windows = run_profile
            .analysis_windows
            .iter()
            .zip(&run_profile.iterations);
        let mut list: Vec<Window> = analysis_windows
            .enumerate()
            .map(|(iteration, (span, whole))| Window {
                rank: span.rank(),
                range: whole.range.clone(),
                thread: span.thread,
                step: steps.get(&(span.rank(), span.range.start)).copied(),
                role: whole.role,
                iteration,
            })
            .collect();
        list.sort_by_key(|window| (window.rank, window.thread, window.range.start));
        let mut processes = FxHashMap::default();
        for ranks in list.chunk_by(|a: &Window, b| a.rank == b.rank) {
            let Some(process) = ranks[0].rank.process else {
                continue;
            };
            for device in run_profile.ranks.devices(ranks[0].rank) {
                let device = &run_profile.devices.list[*device];
                processes.insert((device.file, device.ordinal), process);
            }
        }
        Self {
            list,
            are_steps,
            processes,
        }
    }

    /// The windows of one rank.
    pub(super) fn rank_windows(&self, rank: StepRank) -> &[Window] {
        let from = self.list.partition_point(|window| window.rank < rank);
        let to = self.list.partition_point(|window| window.rank <= rank);
        &self.list[from..to]
    }

    /// Returns the rank that uses a device of a file; in a file of several ranks, the first one where the device
    /// belongs to no rank.
    pub(super) fn rank_of(&self, file: usize, device: Option<u32>) -> StepRank {
        let own = device.and_then(|device| self.processes.get(&(file, device)).copied());
        let first = self.list.partition_point(|window| window.rank.file < file);
        let first = self.list.get(first).map(|window| window.rank);
        let process = own.or(first
            .filter(|rank| rank.file == file)
            .and_then(|rank| rank.process));
        StepRank { file, process }
    }

    /// Returns whether a timestamp lies in a steady step of a rank, or in none of its steps.
    pub(super) fn is_steady(&self, rank: StepRank, at: Time) -> bool {
        let threads = self
            .rank_windows(rank)
            .chunk_by(|a, b| a.thread == b.thread);
        let mut around = threads.filter_map(|own| {
            let begun = own.partition_point(|window| window.range.start <= at);
            own[..begun].last().filter(|window| at < window.range.end)
        });
        around.next().is_none_or(Window::is_steady)
    }

    /// Sums up the lengths, warm-up left out.
    pub(super) fn total(&self) -> f64 {
        let counted = self.list.iter().filter(|window| window.role.counts());
        counted.map(|window| window.dur().as_ns_f64()).sum()
    }

    /// Counts the windows, warm-up left out; at least one.
    pub(super) fn count(&self) -> f64 {
        let counted = self.list.iter().filter(|window| window.role.counts());
        counted.count().max(1) as f64
    }

    /// Returns the mean number of windows per rank.
    pub(super) fn count_per_rank(&self) -> f64 {
        let mut ranks: Vec<_> = self
            .list
            .iter()
            .map(|window| (window.rank, window.thread))
            .collect();
        ranks.dedup();
        (self.count() / ranks.len().max(1) as f64).max(1.0)
    }

    /// Returns the mean length, warm-up left out.
    pub(super) fn mean_ns(&self) -> f64 {
        self.total() / self.count()
    }
}

/// Maximum number of slices that are read, over all ranks: a sample shows typical steps.
const MOST_SLICES: usize = 60_000;
/// Number of slices of threads that count as one of a device queue.
const THREAD_SLICES: usize = 8;
/// Number of samples taken from a long recording without steps.
const PARTS: u32 = 16;

/// Chooses the windows of a rank that are read in detail: those of each role that are nearest to the median (in the
/// middle of the loop, where the steps run ahead), as many as the budget allows and at least one of each role. A window
/// that is too long itself is replaced by chunks spread evenly over it.
pub(super) fn sample(
    trace: &Trace,
    windows: &[Window],
    queues: &[TrackId],
    threads: &[TrackId],
    ranks: usize,
) -> Vec<Window> {
    let budget = (MOST_SLICES / ranks.max(1)).max(2_000);
    let mut chosen = Vec::new();
    for role in [IterationRole::Steady, IterationRole::Outlier] {
        let mut ranked: Vec<&Window> = windows
            .iter()
            .filter(|window| window.role == role)
            .collect();
        let Some(typical) = median(ranked.iter().map(|window| window.dur())) else {
            continue;
        };
        let all: f64 = ranked.iter().map(|window| window.dur().ps() as f64).sum();
        if all > RUNS_AHEAD * typical.ps() as f64 * ranked.len() as f64 {
            // Short steps launch what long ones wait for: a part of the loop shows both.
            let middle = ranked[ranked.len() / 2].range.start;
            ranked.sort_by_key(|window| window.range.start.since(middle).ps().abs());
        } else {
            ranked.sort_by_key(|window| {
                ((window.dur().ps() - typical.ps()).abs(), window.range.start)
            });
        }
        let mut used = 0_usize;
        for window in ranked {
            let slices = slices_within(trace, queues, &window.range)
                + slices_within(trace, threads, &window.range) / THREAD_SLICES;
            if used > 0 && used.saturating_add(slices) > budget {
                break;
            }
            used = used.saturating_add(slices);
            if slices > budget * 2 {
                chosen.extend(parts(window, slices / budget));
            } else {
                chosen.push(window.clone());
            }
        }
    }
    chosen.sort_by_key(|window| window.range.start);
    chosen
}

fn slices_within(trace: &Trace, tracks: &[TrackId], range: &Range<Time>) -> usize {
    let count = |track: &TrackId| {
        let start = trace.slices(*track).start;
        let before = |at: Time| start.partition_point(|start| *start < at);
        before(range.end).saturating_sub(before(range.start))
    };
    tracks.iter().map(count).sum()
}

/// Splits a window into chunks that together are one `divisor`th of it.
fn parts(window: &Window, divisor: usize) -> Vec<Window> {
    let divisor = i64::try_from(divisor.max(1)).unwrap_or(i64::MAX);
    let pitch = window.dur().ps() / i64::from(PARTS);
    let length = (pitch / divisor).max(1);
    (0..i64::from(PARTS))
        .map(|index| {
            let start = window
                .range
                .start
                .saturating_add(Dur::from_ps(index * pitch));
            Window {
                range: start..start.saturating_add(Dur::from_ps(length)),
                ..window.clone()
            }
        })
        .collect()
}
