//! Lengths of the steps, and the breakdown of their time.
//!
//! **Steps** are the events that a program marked: `stepscope::step`, `ProfilerStep#N` of PyTorch,
//! `StepTraceAnnotation` of JAX, `StepTrace` of PyTorch/XLA, `Steps` lines of device planes. When one rank marks
//! the same number on several tracks, it is one step: the track with the most markers counts (threads before
//! device queues), other tracks add only the numbers that it lacks. A rank is a file, or, where threads of
//! several processes of one file mark the same numbers, a process ([`StepRank`]). The first and the last step are
//! steps like any other. A step that was still open when the recording ended is listed, but its length is
//! unknown, so no figure uses it.
//!
//! **Labels** are the names of slices of the same rank that lie in a step: on the step's own thread those inside
//! the marker, on other threads and on devices every slice that overlaps the step, except slices that enclose all
//! steps at once (a recording, an epoch). All figures are clipped to the step. For one label on one kind of
//! thread:
//!
//! ```text
//! total = sum over steps and tracks of the union of the label's slices in the step
//! self  = sum of its slices' time in the step - that of their direct children
//! share = total / sum of the lengths of the steps
//! ```
//! Recursion therefore counts once in `total`, and for the step's own thread
//!
//! ```text
//! sum of self over all labels + self time of the markers = sum of the lengths of the steps
//! ```
//! as long as no slices of that thread overlap without nesting. `share` of other threads and of devices can
//! exceed 1: there are several of them. The events that another profiler recorded of the step's own thread have
//! their own track; they count as events of other threads, and are named as events of this one.
//!
//! Where the program marked no steps, those that the recorder took from calls of a torch optimizer
//! (`stepscope run`) are offered as *derived* steps, else the most regular repetition (module
//! `derived`). [`StepReport::count`] is the number of steps of a run, wherever it is shown: the finished steps of
//! the rank that has the most. [`breakdown`] splits the time of the steps; [`times`] has the statistics of their
//! lengths; `stepscope_compat::xprof_steps` has the lengths as XProf computes them.
//!
//! Cost: one pass over the slices, `log(steps)` each.

pub mod breakdown;
pub mod bucket;
mod derived;
mod labels;
mod marker;
mod marks;
mod processes;
mod range;
mod roots;
mod step_markers;
mod thread_rows;
pub mod times;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::vocabulary::step::OPTIMIZER_STEP;
use stepscope_model::{Dur, Time, TrackKind};
use stepscope_store::{EventId, Trace};

use labels::labels;
use marker::Marker;
use marks::markers;
pub use processes::{FusedFiles, RankTracks};
pub use range::{NoSuchSteps, parse_numbers, range_of};
pub(crate) use step_markers::STEP_MARKER;
pub use thread_rows::ThreadRows;
pub use times::{StepStatistics, percentile};

/// Owner of a step: a file, or one process of a file whose processes each mark their own steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepRank {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// The process, in a file of several ranks.
    pub process: Option<i64>,
}

/// One marked step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Number given by the program.
    pub number: i64,
    /// Host or rank that marked it.
    pub host: String,
    /// Name of the track that holds the marker.
    pub track: String,
    /// Start on the run's clock.
    pub start: Time,
    /// Length; up to the end of the recording when `unfinished`.
    pub dur: Dur,
    /// Still open when the recording ended: no figure uses it.
    pub unfinished: bool,
    /// Index into [`Trace::files`].
    pub file: usize,
    /// The process that marked it, where the file holds several ranks.
    pub process: Option<i64>,
    /// The slice that marks the step, or that it was derived from.
    pub event: EventId,
    /// The longest marker of the same number on a device's line of steps: the step as XProf has it on TPUs.
    pub device: Option<Dur>,
}

impl StepRow {
    /// Returns the rank that the step belongs to.
    pub const fn rank(&self) -> StepRank {
        StepRank {
            file: self.file,
            process: self.process,
        }
    }

    /// Returns whether the step lies fully in a range.
    pub(crate) fn is_within(&self, range: &std::ops::Range<Time>) -> bool {
        self.start >= range.start && self.start.saturating_add(self.dur) <= range.end
    }
}

/// Location of a label relative to the thread that marks the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabelThread {
    /// On the thread (or device queue) that marks the steps, inside the marker.
    StepThread,
    /// On another thread of the same rank.
    OtherThread,
    /// On a device of the same rank.
    Device,
    /// On another track of the thread that marks the steps: recorded by another profiler, such as XLA's.
    StepThreadElsewhere,
}

impl LabelThread {
    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StepThread => "step thread",
            Self::OtherThread => "other thread",
            Self::Device => "device",
            Self::StepThreadElsewhere => "step thread (other track)",
        }
    }
}

/// Time of one label.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelRow {
    /// Name of the slices.
    pub label: String,
    /// Kind of thread of the slices.
    pub place: LabelThread,
    /// Slices that lie in a step, wholly or partly. One that crosses two steps counts in both.
    pub count: u64,
    /// Union per track and step, summed.
    pub total: Dur,
    /// Without direct children.
    pub self_time: Dur,
    /// `total` over the length of all steps.
    pub share: f64,
}

/// A fact that qualifies the figures of a [`StepReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepNote {
    /// No steps are marked, and none are derived.
    NotMarked,
    /// No steps are marked; every execution of the slices of this name counts as one.
    Derived {
        /// The name that repeats most regularly.
        name: String,
    },
    /// The figures cover several ranks or hosts, each with its own steps.
    SeveralRanks {
        /// Steps of all ranks.
        steps: usize,
        /// Ranks or hosts.
        ranks: usize,
    },
    /// Some steps were open when the recording ended; no figure uses them.
    Unfinished {
        /// Steps without an end.
        unfinished: usize,
        /// All steps.
        steps: usize,
    },
    /// The profilers of frameworks did not record all of some steps; only the others tell where the time goes.
    Unprofiled {
        /// Steps that they did not record as a whole.
        unprofiled: usize,
        /// All finished steps.
        steps: usize,
    },
    /// Another track marks steps of the same numbers, which count once.
    AlsoMarkedOn {
        /// The name of the track.
        track: String,
        /// The name of the track's group.
        group: Option<String>,
    },
    /// Python functions are left out of the labels.
    FunctionsLeftOut {
        /// Number of rows that were left out.
        functions: usize,
    },
}

/// Result of [`step_report`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Steps in order of their start.
    pub steps: Vec<StepRow>,
    /// Statistics of the finished steps of all ranks together.
    pub times: StepStatistics,
    /// Statistics of the finished steps of each rank.
    pub of_each: BTreeMap<StepRank, StepStatistics>,
    /// The repeated name that is offered as steps; set when none are marked.
    pub derived: Option<String>,
    /// The repeated name that could be used as steps; set when none are marked and derived ones were not
    /// requested.
    pub pattern: Option<String>,
    /// Labels by total, largest first.
    pub labels: Vec<LabelRow>,
    /// Number of labels beyond the requested maximum.
    pub labels_left_out: usize,
    /// Facts that qualify the figures.
    pub notes: Vec<StepNote>,
    /// Number of steps that a range cut or left out.
    pub outside: usize,
}

impl StepReport {
    /// Returns the number of steps of the run: the finished steps of the rank that has the most. Ranks of a job
    /// do the same steps together, so their steps are not summed.
    pub fn count(&self) -> u64 {
        let counts = self.of_each.values().map(|times| times.count);
        counts.max().unwrap_or(0)
    }

    /// Returns the number of ranks with finished steps.
    pub fn ranks(&self) -> usize {
        self.of_each.len()
    }

    /// Removes the steps outside a scope.
    pub(crate) fn limit(&mut self, is_inside: impl Fn(&StepRow) -> bool) {
        let (before, said) = (self.steps.len(), self.counted());
        self.steps.retain(is_inside);
        self.outside = before - self.steps.len();
        self.notes.retain(|note| !said.contains(note));
        let now = self.counted();
        self.notes.extend(now);
        let finished = self.steps.iter().filter(|step| !step.unfinished);
        (self.times, self.of_each) = times_of(finished.map(|step| (step.rank(), step.dur)));
    }

    /// Returns whether a step is an outlier among the steps of its own rank ([`times::outlier_limit`]); an
    /// unfinished one never is.
    pub fn is_outlier(&self, step: &StepRow) -> bool {
        let limit = self.of_each.get(&step.rank()).and_then(|of| of.outlier_ns);
        !step.unfinished && limit.is_some_and(|limit| step.dur.as_ns_f64() >= limit)
    }

    /// Builds the notes that count steps and ranks.
    fn counted(&self) -> Vec<StepNote> {
        let mut notes = Vec::new();
        let count = self.steps.len();
        let ranks: FxHashSet<StepRank> = self.steps.iter().map(StepRow::rank).collect();
        if ranks.len() > 1 {
            notes.push(StepNote::SeveralRanks {
                steps: count,
                ranks: ranks.len(),
            });
        }
        let unfinished = self.steps.iter().filter(|step| step.unfinished).count();
        if unfinished > 0 {
            notes.push(StepNote::Unfinished {
                unfinished,
                steps: count,
            });
        }
        notes
    }
}

/// Options of [`step_report`].
#[derive(Clone, Copy, Debug)]
pub struct StepOptions {
    /// Maximum number of labels; the rest is counted in [`StepReport::labels_left_out`].
    pub top: usize,
    /// See [`steps_of`].
    pub marked_only: bool,
    /// Range that a step must lie in fully.
    pub range: Option<(Time, Time)>,
}

/// Lists rank and length of the finished steps, in order.
fn finished(markers: &[Marker]) -> impl Iterator<Item = (StepRank, Dur)> {
    let finished = markers.iter().filter(|marker| !marker.unfinished);
    finished.map(|marker| (marker.rank(), marker.end.since(marker.start)))
}

/// Computes the statistics of steps by rank and length, in the order of their start: of all, and of each rank.
fn times_of(
    steps: impl Iterator<Item = (StepRank, Dur)>,
) -> (StepStatistics, BTreeMap<StepRank, StepStatistics>) {
    let mut ranks: BTreeMap<StepRank, Vec<Dur>> = BTreeMap::new();
    for (rank, dur) in steps {
        ranks.entry(rank).or_default().push(dur);
    }
    StepStatistics::from_ranks(&ranks)
}

/// Steps of a run, marked or derived.
struct Found {
    markers: Vec<Marker>,
    /// Tracks whose markers repeat other tracks.
    repeated: Vec<stepscope_model::TrackId>,
    /// The repeated name, where no steps are marked.
    derived: Option<String>,
    /// The repeated name, where it was not requested as steps.
    pattern: Option<String>,
}

fn find(trace: &Trace, marked_only: bool) -> Found {
    let marks = markers(trace);
    let mut found = Found {
        markers: marks.markers,
        repeated: marks.repeated,
        derived: None,
        pattern: None,
    };
    if marks.from_optimizer {
        let name = Some(OPTIMIZER_STEP.to_owned());
        if marked_only {
            found.markers.clear();
            found.repeated.clear();
            found.pattern = name;
        } else {
            found.derived = name;
        }
    } else if found.markers.is_empty()
        && let Some(derived) = derived::derive(trace)
    {
        if marked_only {
            found.pattern = Some(derived.name);
        } else {
            found.markers = derived.markers;
            found.derived = Some(derived.name);
        }
    }
    found
}

/// Computes steps and their times, without labels.
pub fn steps(trace: &Trace) -> StepReport {
    steps_of(trace, false)
}

/// Computes steps and their times; with `marked_only` a repetition is only named.
pub fn steps_of(trace: &Trace, marked_only: bool) -> StepReport {
    report_of(trace, &find(trace, marked_only))
}

/// Computes steps, their times, and the share of each label.
pub fn step_report(trace: &Trace, options: StepOptions) -> StepReport {
    let mut found = find(trace, options.marked_only);
    let mut report = report_of(trace, &found);
    if let Some((start, end)) = options.range {
        report.limit(|step| step.is_within(&(start..end)));
        let markers = &mut found.markers;
        markers.retain(|marker| marker.start >= start && marker.end <= end);
    }
    if !found.markers.is_empty() {
        labels(trace, &found.markers, options, &mut report);
    }
    report
}

fn report_of(trace: &Trace, found: &Found) -> StepReport {
    let markers = &found.markers;
    let device = on_devices(trace);
    let rows = markers.iter().map(|marker| row_of(trace, marker, &device));
    let (times, of_each) = times_of(finished(markers));
    let mut report = StepReport {
        times,
        of_each,
        steps: rows.collect(),
        derived: found.derived.clone(),
        pattern: found.pattern.clone(),
        ..StepReport::default()
    };
    if markers.is_empty() {
        report.notes.push(StepNote::NotMarked);
        return report;
    }
    if let Some(name) = &found.derived {
        report.notes.push(StepNote::Derived { name: name.clone() });
    }
    let counted = report.counted();
    report.notes.extend(counted);
    for track in &found.repeated {
        if let Some(track) = trace.tracks().get(track.index()) {
            let group = track
                .parent
                .and_then(|group| trace.tracks().get(group.index()));
            report.notes.push(StepNote::AlsoMarkedOn {
                track: track.name.clone(),
                group: group.map(|group| group.name.clone()),
            });
        }
    }
    report
}

fn row_of(trace: &Trace, marker: &Marker, device: &FxHashMap<(usize, i64), Dur>) -> StepRow {
    let place = trace.tracks().get(marker.track.index());
    let host = trace.files().get(marker.file).map(|file| &file.spec.host);
    StepRow {
        number: marker.number,
        host: host.cloned().unwrap_or_default(),
        track: place.map(|track| track.name.clone()).unwrap_or_default(),
        start: marker.start,
        dur: marker.end.since(marker.start),
        unfinished: marker.unfinished,
        file: marker.file,
        process: marker.process,
        event: trace.slices(marker.track).id(marker.index),
        device: device.get(&(marker.file, marker.number)).copied(),
    }
}

/// Finds the longest marker of each file and number on device lines of steps.
fn on_devices(trace: &Trace) -> FxHashMap<(usize, i64), Dur> {
    let mut found: FxHashMap<(usize, i64), Dur> = FxHashMap::default();
    for mark in trace.step_marks() {
        let Some((on, index)) = trace.place_of_slice(mark.event) else {
            continue;
        };
        let place = trace.tracks().get(on.index());
        let Some(place) = place.filter(|place| place.kind == TrackKind::Steps) else {
            continue;
        };
        let longest = found.entry((place.file, mark.number)).or_default();
        let dur = trace.slices(on).dur.get(index).copied();
        *longest = (*longest).max(dur.unwrap_or_default());
    }
    found
}

#[cfg(test)]
mod tests;
