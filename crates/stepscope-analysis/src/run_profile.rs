//! Common base of several reports: devices, steps, and the breakdown of the steps' time.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

mod iterations;
mod profiled;

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use stepscope_model::{Cancelled, Dur, SliceFlags, Time, TrackKind};
use stepscope_store::{Trace, Track};

use crate::device::{Devices, Times};
use crate::parallel::Cancel;
use crate::steps::breakdown::{
    AnalysisWindow, Breakdown, ChargedWindows, StepParts, breakdown_with,
};
use crate::steps::{NoSuchSteps, RankTracks, StepNote, StepRank, StepReport, steps_of};
pub(crate) use iterations::median;
pub use iterations::{Iteration, IterationRole, RUNS_AHEAD};
pub(crate) use profiled::ProfiledTimes;

/// Scope of an analysis. Default: the whole run, with derived steps where none are marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnalysisScope {
    /// Range that events are clipped to.
    pub range: Option<Range<Time>>,
    /// Whether only steps that the program marked count, no derived ones.
    pub marked_only: bool,
    /// Rank whose steps count, by the number of its files; `None` for all ranks.
    pub rank: Option<u32>,
    /// Numbers of the steps that count.
    pub numbers: Option<RangeInclusive<i64>>,
}

impl AnalysisScope {
    /// Returns the scope of steps by their numbers, and by their rank, which must have finished steps of these numbers.
    pub fn of_steps(
        trace: &Trace,
        numbers: Option<RangeInclusive<i64>>,
        rank: Option<u32>,
    ) -> Result<Self, NoSuchSteps> {
        let mut scope = Self {
            rank,
            ..Self::default()
        };
        if let Some(requested) = numbers {
            let steps = scope.steps(trace).steps;
            // Without a finished step, the whole recording would stand for those that were asked for.
            let finished = || steps.iter().filter(|step| !step.unfinished);
            let known = || finished().map(|step| step.number);
            if !known().any(|number| requested.contains(&number)) {
                let available = known().min().zip(known().max());
                return Err(NoSuchSteps {
                    requested,
                    available,
                });
            }
            scope.numbers = Some(requested);
        }
        Ok(scope)
    }

    /// Returns whether the steps of a file, by its index, count.
    pub fn has_file(&self, trace: &Trace, file: usize) -> bool {
        let rank = trace.files().get(file).and_then(|file| file.spec.rank);
        self.rank.is_none() || rank == self.rank
    }

    /// Returns the steps of the scope, with the number of those outside.
    pub(crate) fn steps(&self, trace: &Trace) -> StepReport {
        let mut steps = steps_of(trace, self.marked_only);
        if *self != Self::default() {
            steps.limit(|step| {
                let (range, numbers) = (self.range.as_ref(), self.numbers.as_ref());
                self.has_file(trace, step.file)
                    && range.is_none_or(|range| step.is_within(range))
                    && numbers.is_none_or(|numbers| numbers.contains(&step.number))
            });
        }
        steps
    }
}

/// Devices and steps of a run, and the buckets of the steps' time.
pub struct RunProfile<'a> {
    /// The run.
    pub trace: &'a Trace,
    /// Its devices.
    pub devices: Devices<'a>,
    /// Marked or derived steps.
    pub steps: StepReport,
    /// Windows of the breakdown: the finished steps; where there is none, each file's recording.
    pub analysis_windows: Vec<AnalysisWindow>,
    /// Breakdown of the windows, in their order.
    pub breakdown: Breakdown,
    /// Iterations of the loop that the windows belong to, in their order.
    pub iterations: Vec<Iteration>,
    /// Breakdown of the pause at the end of each iteration, in their order.
    pub pauses: Vec<StepParts>,
    /// Times of each device in the [counted](Iteration::counts) iterations of its file, in the order of the
    /// devices, without idle ones. A device of a file without counted iterations has none.
    pub times: Vec<Times>,
    /// Devices and threads of each rank.
    pub ranks: RankTracks,
    /// What was asked for.
    pub scope: AnalysisScope,
}

/// Devices, steps and windows of a run, before their time is broken down.
pub(crate) struct RunWindows<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) devices: Devices<'a>,
    pub(crate) steps: StepReport,
    pub(crate) analysis_windows: Vec<AnalysisWindow>,
    pub(crate) iterations: Vec<Iteration>,
    pub(crate) ranks: RankTracks,
    scope: AnalysisScope,
}

impl<'a> RunWindows<'a> {
    pub(crate) fn find(
        trace: &'a Trace,
        scope: &AnalysisScope,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let devices = Devices::from_trace(trace, cancel)?;
        let mut steps = scope.steps(trace);
        cancel.check()?;
        let finished: Vec<_> = steps.steps.iter().filter(|step| !step.unfinished).collect();
        let mut analysis_windows: Vec<AnalysisWindow> = finished
            .iter()
            .map(|step| AnalysisWindow::from_step(trace, step))
            .collect();
        let iterations = if analysis_windows.is_empty() {
            analysis_windows = whole_file_windows(trace, scope);
            iterations::recording_iterations(&analysis_windows)
        } else {
            let numbers: Vec<i64> = finished.iter().map(|step| step.number).collect();
            let profiled = ProfiledTimes::find(trace);
            iterations::step_iterations(&analysis_windows, &numbers, &profiled)
        };
        let is_unprofiled = |whole: &&Iteration| whole.role == IterationRole::Unprofiled;
        let unprofiled = iterations.iter().filter(is_unprofiled).count();
        if unprofiled > 0 {
            steps.notes.push(StepNote::Unprofiled {
                unprofiled,
                steps: iterations.len(),
            });
        }
        let ranks = RankTracks::new(trace, &devices);
        Ok(Self {
            trace,
            devices,
            steps,
            analysis_windows,
            iterations,
            ranks,
            scope: scope.clone(),
        })
    }

    /// Breaks down the windows, then the pauses after them, and passes the intervals of each bucket to `visit`.
    pub(crate) fn break_down(
        &self,
        cancel: &Cancel,
        visit: &mut dyn FnMut(&ChargedWindows<'_>) -> Result<(), Cancelled>,
    ) -> Result<Breakdown, Cancelled> {
        let windows = self.analysis_windows.iter();
        // Most pauses are empty, and cost nothing.
        let pauses = windows
            .clone()
            .zip(&self.iterations)
            .map(|(window, whole)| window.pause(window.range.end..whole.range.end));
        let all: Vec<AnalysisWindow> = windows.clone().cloned().chain(pauses).collect();
        breakdown_with(self.trace, &self.devices, &all, cancel, visit)
    }

    /// Returns whether the windows are steps.
    pub(crate) fn has_steps(&self) -> bool {
        self.steps.steps.iter().any(|step| !step.unfinished)
    }

    /// Adds the times of the devices.
    pub(crate) fn profile(
        self,
        mut breakdown: Breakdown,
        cancel: &Cancel,
    ) -> Result<RunProfile<'a>, Cancelled> {
        let Self {
            trace,
            devices,
            steps,
            analysis_windows,
            iterations,
            ranks,
            scope,
        } = self;
        let pauses = breakdown.parts.split_off(analysis_windows.len());
        breakdown.devices.truncate(analysis_windows.len());
        let mut of_rank: BTreeMap<StepRank, Vec<Range<Time>>> = BTreeMap::new();
        for (analysis_window, whole) in analysis_windows.iter().zip(&iterations) {
            let ranges = of_rank.entry(analysis_window.rank()).or_default();
            ranges.extend(whole.counts().then(|| whole.range.clone()));
        }
        let mut owners: Vec<&[Range<Time>]> = vec![&[]; devices.list.len()];
        for (rank, ranges) in &of_rank {
            for device in ranks.devices(*rank) {
                owners[*device] = ranges;
            }
        }
        let mut times = Vec::with_capacity(devices.list.len());
        for (device, ranges) in devices.list.iter().zip(owners) {
            let mut sum = Times::default();
            for part in devices.times(device, ranges, cancel)? {
                sum.add(&part);
            }
            times.push(sum);
        }
        // As in the breakdown: a device that the other devices do not use waits for nothing.
        let works = |times: &Times| times.idle() < times.range;
        if times.iter().any(works) {
            times.retain(works);
        }
        Ok(RunProfile {
            trace,
            devices,
            steps,
            analysis_windows,
            breakdown,
            iterations,
            pauses,
            times,
            ranks,
            scope,
        })
    }
}

impl<'a> RunProfile<'a> {
    /// Computes the profile of a part of a run.
    pub fn compute(
        trace: &'a Trace,
        scope: &AnalysisScope,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let windows = RunWindows::find(trace, scope, cancel)?;
        let breakdown = windows.break_down(cancel, &mut |_| Ok(()))?;
        windows.profile(breakdown, cancel)
    }

    /// Returns whether the windows are steps.
    pub fn has_steps(&self) -> bool {
        self.steps.steps.iter().any(|step| !step.unfinished)
    }

    /// Returns the iterations that figures count: indexes into [`iterations`](Self::iterations).
    pub fn counted(&self) -> impl Iterator<Item = usize> + Clone {
        let all = self.iterations.iter().enumerate();
        all.filter(|(_, iteration)| iteration.counts())
            .map(|(position, _)| position)
    }

    /// Returns the number of counted iterations, at least one: the divisor of figures "per step".
    pub fn count(&self) -> f64 {
        self.counted().count().max(1) as f64
    }

    /// Returns the mean length of the counted iterations, nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        let lengths = self
            .counted()
            .map(|position| self.iterations[position].dur());
        lengths.map(Dur::as_ns_f64).sum::<f64>() / self.count()
    }

    /// Returns the breakdown of an iteration: its step, and the pause after it.
    pub fn parts(&self, position: usize) -> StepParts {
        let mut parts = self
            .breakdown
            .parts
            .get(position)
            .copied()
            .unwrap_or_default();
        parts.add(&self.pauses.get(position).copied().unwrap_or_default());
        parts
    }

    /// Returns the sum of the buckets of all counted iterations.
    pub fn sum(&self) -> StepParts {
        let mut sum = StepParts::default();
        for position in self.counted() {
            sum.add(&self.parts(position));
        }
        sum
    }

    /// Returns the fraction of the counted iterations in which devices were busy, mean over the devices; `None`
    /// without any.
    pub fn device_busy(&self) -> Option<f64> {
        self.device_share(Times::busy)
    }

    /// Returns the fraction of the counted iterations that `such` selects, mean over the devices; `None` without
    /// any.
    pub fn device_share(&self, such: impl Fn(&Times) -> Dur) -> Option<f64> {
        let (mut sum, mut all) = (0.0, 0.0);
        for times in &self.times {
            sum += such(times).as_ns_f64();
            all += times.range.as_ns_f64();
        }
        (all > 0.0).then(|| sum / all)
    }
}

/// Returns whether a thread belongs to the program; rows on which the profiler shows its own recording do not.
pub(crate) fn is_of_program(trace: &Trace, track: &Track) -> bool {
    let slices = trace.slices(track.id);
    (0..slices.len()).take(8).any(|index| {
        let category = trace.name(slices.category.get(index));
        !category.eq_ignore_ascii_case("trace") && !category.eq_ignore_ascii_case("overhead")
    })
}

/// Returns each file's recording as one window: from the first slice to the last end on threads and device
/// queues.
pub(crate) fn whole_file_windows(trace: &Trace, scope: &AnalysisScope) -> Vec<AnalysisWindow> {
    let mut found = Vec::new();
    for file in (0..trace.files().len()).filter(|file| scope.has_file(trace, *file)) {
        let tracks = || {
            trace.tracks().iter().filter(move |track| {
                track.file == file
                    && !track.derived
                    && track.slices > 0
                    && matches!(track.kind, TrackKind::Thread | TrackKind::DeviceQueue)
            })
        };
        // Events that the profiler records about itself are no program.
        let works =
            |track: &Track| track.kind == TrackKind::DeviceQueue || is_of_program(trace, track);
        if !tracks().any(works) {
            continue;
        }
        let Some(mut whole) = tracks()
            .filter_map(|track| extent(trace, track))
            .reduce(join)
        else {
            continue;
        };
        if let Some(range) = &scope.range {
            whole = whole.start.max(range.start)..whole.end.min(range.end);
        }
        if whole.start >= whole.end {
            continue;
        }
        let thread = tracks()
            .filter(|track| track.kind == TrackKind::Thread && is_of_program(trace, track))
            .max_by_key(|track| (track.busy, std::cmp::Reverse(track.id)));
        found.push(AnalysisWindow {
            file,
            process: None,
            range: whole,
            thread: thread.map(|track| track.id),
            marker: None,
            is_pause: false,
        });
    }
    found
}

fn join(a: Range<Time>, b: Range<Time>) -> Range<Time> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// Returns the range from the first slice to the last end of a track.
fn extent(trace: &Trace, track: &Track) -> Option<Range<Time>> {
    let slices = trace.slices(track.id);
    let first = *slices.start.first()?;
    let open = |index| {
        let flags = trace.slice_flags(track.id, index);
        flags.contains(SliceFlags::UNFINISHED)
    };
    // The first slice on the outermost level need not end last: read that level only, and the children of slices
    // that were still open there.
    let outermost = |index: &usize| slices.depth[*index] == 0;
    let is_open = (0..slices.len()).filter(outermost).any(open);
    let last = (0..slices.len())
        .filter(|index| (is_open || outermost(index)) && !open(*index))
        .map(|index| slices.end(index))
        .fold(first, Time::max);
    (last > first).then_some(first..last.max(first.saturating_add(Dur::ZERO)))
}

#[cfg(test)]
mod tests {
    use stepscope_model::{EventSink, SliceIn};
    use stepscope_store::{FileSpec, TraceBuilder, ascii_trace};

    use super::*;
    use crate::steps::StepNote;

    const US: i64 = 1_000_000;

    /// Draws a step that is open when the recording ends, 90 us after its start, and its slices.
    fn unfinished_step() -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(stepscope_model::Epoch::default());
        let track = sink.track("main");
        for (name, start, dur, open) in [("step", 0, 90, true), ("work", 10, 50, false)] {
            let name = sink.name(name);
            sink.slice(
                track,
                SliceIn {
                    start: Time::from_ps(start * US),
                    dur: Dur::from_ps(dur * US),
                    name,
                    step: open.then_some(0),
                    flags: if open {
                        SliceFlags::UNFINISHED
                    } else {
                        SliceFlags::NONE
                    },
                    ..SliceIn::default()
                },
            );
        }
        builder.add(sink);
        builder.finish()
    }

    #[test]
    fn open_slice_extends_to_its_last_child() {
        let trace = unfinished_step();
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        assert!(!run_profile.has_steps());
        assert_eq!(
            run_profile.analysis_windows[0].range,
            Time::ZERO..Time::from_ps(60 * US)
        );
    }

    #[test]
    fn recording_of_only_the_profiler_has_no_windows() {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(stepscope_model::Epoch::default());
        let track = sink.track("Spans/PyTorch Profiler");
        let (name, category) = (sink.name("PyTorch Profiler (0)"), sink.name("Trace"));
        sink.slice(
            track,
            SliceIn {
                dur: Dur::from_ps(90 * US),
                name,
                category,
                ..SliceIn::default()
            },
        );
        builder.add(sink);
        let trace = builder.finish();
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        assert!(run_profile.analysis_windows.is_empty());
    }

    #[test]
    fn repetition_gives_derived_steps_unless_marked_only() {
        let trace = ascii_trace::trace(
            "
            main | batch-----  batch-----  batch-----  batch-----
            ",
        );
        let profile_with = |marked_only| {
            let scope = AnalysisScope {
                marked_only,
                ..AnalysisScope::default()
            };
            let run_profile = RunProfile::compute(&trace, &scope, &Cancel::default()).unwrap();
            (
                run_profile.steps.steps.len(),
                run_profile.steps.derived,
                run_profile.steps.pattern,
            )
        };
        let name = || Some("batch".to_owned());
        assert_eq!(profile_with(false), (4, name(), None));
        assert_eq!(profile_with(true), (0, None, name()));
    }

    #[test]
    fn notes_count_the_steps_of_the_range() {
        let mut builder = TraceBuilder::new();
        for rank in 0..2 {
            let mut sink = builder.file(FileSpec {
                rank: Some(rank),
                ..FileSpec::default()
            });
            ascii_trace::emit("main | step0-----  step1-----  step2-----", &mut sink);
            builder.add(sink);
        }
        let trace = builder.finish();
        let notes = |range| {
            let scope = AnalysisScope {
                range,
                ..AnalysisScope::default()
            };
            let run_profile = RunProfile::compute(&trace, &scope, &Cancel::default());
            run_profile.unwrap().steps.notes
        };
        let expected = |steps| StepNote::SeveralRanks { steps, ranks: 2 };
        assert_eq!(notes(None), [expected(6)]);
        let range = Time::from_ps(5 * US)..Time::from_ps(23 * US);
        assert_eq!(notes(Some(range)), [expected(2)]);
    }
}
