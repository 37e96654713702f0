//! The window of a path, its steps, and the limit on its slices.

use std::collections::BTreeMap;
use std::ops::Range;

use stepscope_model::{Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace};

use super::queues::PathQueue;
use crate::launch::Launches;
use crate::run_profile::{AnalysisScope, ProfiledTimes, whole_file_windows};
use crate::steps::breakdown::AnalysisWindow;
use crate::steps::{StepRank, StepReport, StepRow};

/// Maximum number of slices that begin in the window of a path.
pub const MAX_SLICES: usize = 1 << 25;

/// A step of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Number given by the program.
    pub number: i64,
    /// Start on the clock of the first file, picoseconds.
    pub begin: i64,
    /// End, picoseconds.
    pub end: i64,
    /// The slice that marks it.
    pub event: EventId,
}

/// Where the window of a path ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WindowEnd {
    /// At the end of the last step.
    #[default]
    LastStep,
    /// At the end of the device work that the steps launch, if that is later.
    DeviceWork,
}

impl WindowEnd {
    /// The words of options.
    pub const WORDS: &[(&str, Self)] =
        &[("last-step", Self::LastStep), ("device", Self::DeviceWork)];
}

/// What a path does not cover because its window has too many slices: the time before its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathLeftOut {
    /// Number of steps.
    pub steps: usize,
    /// Length of the time, picoseconds.
    pub ps: i64,
}

/// The window of the path.
pub(super) struct PathWindow {
    /// Start and end on the clock of the first file, picoseconds.
    pub(super) range: Range<i64>,
    /// Index into [`Trace::files`].
    pub(super) file: usize,
    /// The thread at the end of the window.
    pub(super) thread: Option<TrackId>,
    /// Finished steps of the thread; empty if the window is a recording.
    pub(super) steps: Vec<PathStep>,
    /// What [`limit`](Self::limit) left out.
    pub(super) left_out: PathLeftOut,
}

impl PathWindow {
    /// Finds the window of the steps in a scope; without steps, that of the recording with the latest end.
    pub(super) fn find(
        trace: &Trace,
        scope: &AnalysisScope,
        steps: &StepReport,
        shift: &impl Fn(usize) -> i64,
    ) -> Option<Self> {
        let mut finished: Vec<_> = steps.steps.iter().filter(|step| !step.unfinished).collect();
        let profiled = ProfiledTimes::find(trace);
        let is_profiled = |step: &&StepRow| {
            let end = step.start.saturating_add(step.dur);
            profiled.has(step.file, &(step.start..end))
        };
        // What was not recorded binds nothing.
        if finished.iter().any(is_profiled) {
            finished.retain(is_profiled);
        }
        // The rank whose last step ends last; the first of several.
        let last = finished.iter().max_by_key(|step| {
            let end = step.start.saturating_add(step.dur).ps();
            (
                end.saturating_add(shift(step.file)),
                std::cmp::Reverse(step.rank()),
            )
        });
        if let Some(last) = last {
            let shift = shift(last.file);
            let on_clock = |time: Time| time.ps().saturating_add(shift);
            let own = finished.iter().filter(|step| step.rank() == last.rank());
            let own: Vec<PathStep> = own
                .map(|step| PathStep {
                    number: step.number,
                    begin: on_clock(step.start),
                    end: on_clock(step.start.saturating_add(step.dur)),
                    event: step.event,
                })
                .collect();
            let begin = own.iter().map(|step| step.begin).min()?;
            let end = own.iter().map(|step| step.end).max()?;
            let thread = AnalysisWindow::from_step(trace, last).thread;
            return (begin < end).then_some(Self {
                range: begin..end,
                file: last.file,
                thread,
                steps: own,
                left_out: PathLeftOut::default(),
            });
        }
        let recordings = whole_file_windows(trace, scope);
        let longest = recordings.into_iter().max_by_key(|window| {
            let end = window.range.end.ps().saturating_add(shift(window.file));
            (end, std::cmp::Reverse(window.file))
        })?;
        let shift = shift(longest.file);
        let on_clock = |time: Time| time.ps().saturating_add(shift);
        Some(Self {
            range: on_clock(longest.range.start)..on_clock(longest.range.end),
            file: longest.file,
            thread: longest.thread,
            steps: Vec::new(),
            left_out: PathLeftOut::default(),
        })
    }

    /// Moves the end of the window to the end of the last device work that is launched before it, if that is later;
    /// returns the queue of that work.
    pub(super) fn extend_to_device(
        &mut self,
        trace: &Trace,
        launches: &Launches,
        queues: &[PathQueue],
    ) -> Option<TrackId> {
        let own = queues
            .iter()
            .filter(|queue| queue.device.is_some() && queue.file == self.file && !queue.in_flight);
        let last_end = |queue: &PathQueue| {
            let track = queue.track();
            let slices = trace.slices(track);
            let end = self.range.end.saturating_sub(queue.shift);
            let is_launched = |slice: usize| {
                let launch = launches.get(track, slice);
                let call = launch.and_then(|launch| trace.place_of_slice(launch));
                let at = call.map_or(slices.start[slice], |(track, call)| {
                    trace.slices(track).start[call]
                });
                at.ps() < end
            };
            // Work is in the order of its launches.
            let (mut low, mut high) = (0, slices.len());
            while low < high {
                let middle = usize::midpoint(low, high);
                if is_launched(middle) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            let last = slices.end(low.checked_sub(1)?).ps();
            Some((last.saturating_add(queue.shift), track))
        };
        let (end, track) = own.filter_map(last_end).max()?;
        (end > self.range.end).then(|| {
            self.range.end = end;
            track
        })
    }

    /// Moves the start of the window to the first step from which on at most `max_slices` slices of the queues begin;
    /// into the last step or the recording if it has more.
    pub(super) fn limit(&mut self, trace: &Trace, queues: &[PathQueue], max_slices: usize) {
        let Range { start, end } = self.range;
        let has_too_many = |from: i64| {
            let rows = queues
                .iter()
                .flat_map(|queue| queue.tracks().map(|track| (track, queue.shift)));
            let counts = rows.map(|(track, shift)| {
                let starts = trace.slices(track).start;
                let before = |at: i64| {
                    let at = Time::from_ps(at.saturating_sub(shift));
                    starts.partition_point(|start| *start < at)
                };
                before(end).saturating_sub(before(from))
            });
            counts.sum::<usize>() > max_slices
        };
        if !has_too_many(start) {
            return;
        }
        let mut begins: Vec<i64> = self.steps.iter().map(|step| step.begin).collect();
        begins.sort_unstable();
        let first = begins.partition_point(|begin| has_too_many(*begin));
        let from = begins.get(first).copied().unwrap_or_else(|| {
            let (mut low, mut high) = (start, end.saturating_sub(1));
            while low < high {
                let middle = i64::midpoint(low, high);
                if has_too_many(middle) {
                    low = middle.saturating_add(1);
                } else {
                    high = middle;
                }
            }
            low
        });
        let all = self.steps.len();
        self.steps.retain(|step| step.end > from);
        for step in &mut self.steps {
            step.begin = step.begin.max(from);
        }
        self.left_out = PathLeftOut {
            steps: all - self.steps.len(),
            ps: from.saturating_sub(start),
        };
        self.range.start = from;
    }
}

/// Start of a step, and what identifies the step in every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepStart {
    /// Start on the clock of the first file, picoseconds.
    pub(super) begin: i64,
    /// Number given by the program, and how many steps of the rank had this number before.
    pub(super) key: (i64, usize),
}

/// Lists the steps of each file in order of their start; of a file with several ranks, those of the first.
pub(super) fn step_starts(
    steps: &StepReport,
    shift: &impl Fn(usize) -> i64,
) -> BTreeMap<usize, Vec<StepStart>> {
    let mut by_rank: BTreeMap<StepRank, Vec<StepStart>> = BTreeMap::new();
    let mut counts: BTreeMap<(StepRank, i64), usize> = BTreeMap::new();
    for step in &steps.steps {
        let count = counts.entry((step.rank(), step.number)).or_default();
        by_rank.entry(step.rank()).or_default().push(StepStart {
            begin: step.start.ps().saturating_add(shift(step.file)),
            key: (step.number, *count),
        });
        *count += 1;
    }
    let mut found = BTreeMap::new();
    for (rank, steps) in by_rank {
        found.entry(rank.file).or_insert(steps);
    }
    found
}

/// Lists the threads whose time without a slice is host time: those that mark the steps, one for each rank.
pub(super) fn step_threads(
    trace: &Trace,
    steps: &StepReport,
    thread: Option<TrackId>,
) -> Vec<TrackId> {
    let mut threads: Vec<TrackId> = steps
        .steps
        .iter()
        .filter_map(|step| trace.place_of_slice(step.event))
        .map(|(track, _)| track)
        .filter(|track| {
            trace
                .tracks()
                .get(track.index())
                .is_some_and(|track| track.kind == TrackKind::Thread)
        })
        .chain(thread)
        .collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;
    use crate::critical_path::{PathGraph, PathScope};
    use crate::parallel::Cancel;

    const US: i64 = 1_000_000;

    /// Returns the start of the window of at most so many slices, microseconds, its steps, and what is left out.
    fn limited(trace: &Trace, max_slices: usize) -> (i64, Vec<i64>, PathLeftOut) {
        let scope = PathScope::default();
        let path = PathGraph::compute(trace, &scope, max_slices, &Cancel::default());
        let path = path.unwrap().unwrap();
        let sum: i64 = path.path.iter().map(|row| row.end - row.begin).sum();
        assert_eq!(sum, path.length(), "{max_slices}");
        let numbers = path.steps.iter().map(|step| step.number).collect();
        (path.window.start / US, numbers, path.left_out)
    }

    #[test]
    fn window_with_too_many_slices_covers_the_last_ones() {
        let trace = ascii_trace::trace(
            "
            main | step0-----  step1-----  step2-----
                 |   a--b--      a--b--      a--b--
            ",
        );
        let left_out = |steps, us: i64| PathLeftOut { steps, ps: us * US };
        assert_eq!(limited(&trace, 9), (0, vec![0, 1, 2], left_out(0, 0)));
        assert_eq!(limited(&trace, 8), (12, vec![1, 2], left_out(1, 12)));
        assert_eq!(limited(&trace, 3), (24, vec![2], left_out(2, 24)));
        let (start, steps, left_out) = limited(&trace, 1);
        assert_eq!(
            (start, steps, left_out.steps),
            (26, vec![2], 2),
            "within a step"
        );
    }

    #[test]
    fn recording_with_too_many_slices_is_cut_in_time() {
        let trace = ascii_trace::trace("main | a--b--c--d--e----");
        let (start, steps, left_out) = limited(&trace, 2);
        assert_eq!((start, steps, left_out.steps), (6, vec![], 0));
        assert!(left_out.ps > 6 * US && left_out.ps < 7 * US);
    }
}
