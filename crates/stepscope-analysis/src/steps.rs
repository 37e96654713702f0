//! How long the steps took, and where their time went.
//!
//! **Steps** are the events that a program marked: `stepscope::step`, `ProfilerStep#N` of PyTorch,
//! `StepTraceAnnotation` of JAX, `StepTrace` of PyTorch/XLA, `Steps` lines of device planes. When
//! one file marks the same number on several tracks, it is one step: the track with the most marks
//! counts (threads before device queues), other tracks add only the numbers that it lacks. The
//! first and the last step are steps like any other. A step that was still open when the recording
//! ended is listed, but its length is not known, so no figure uses it.
//!
//! **Labels** are the names of slices in the same file that lie in a step: on the step's own
//! thread those inside the marker, on other threads and on devices whatever overlaps the step, but
//! not what encloses all steps at once (a recording, an epoch). All figures are cut to the step. For
//! one label in one place:
//!
//! ```text
//! total = sum over steps and tracks of the union of the label's slices in the step
//! self  = sum of its slices' time in the step - that of their direct children
//! share = total / sum of the lengths of the steps
//! ```
//! so that recursion counts once in `total`, and for the step's own thread
//!
//! ```text
//! sum of self over all labels + self time of the markers = sum of the lengths of the steps
//! ```
//! as long as no slices of that thread overlap without nesting. `share` of other threads and of
//! devices can exceed 1: there are several of them.
//!
//! Cost: one pass over the slices, `log(steps)` each.

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, SliceFlags, Time, TrackId, TrackKind};
use stepscope_store::{FactValue, Trace};

/// Times of a set of steps. `None` where there is no step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    /// How many steps the figures are made of.
    pub count: u64,
    /// Sum of their lengths over their number, nanoseconds.
    pub mean_ns: Option<f64>,
    /// See [`percentile`].
    pub p50_ns: Option<f64>,
    /// See [`percentile`].
    pub p90_ns: Option<f64>,
    /// See [`percentile`].
    pub p99_ns: Option<f64>,
    /// Shortest.
    pub min_ns: Option<f64>,
    /// Longest.
    pub max_ns: Option<f64>,
}

/// One marked step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// The number that the program gave it.
    pub number: i64,
    /// Host or rank that marked it.
    pub host: String,
    /// Name of the track that holds the marker.
    pub track: String,
    /// Begin on the run's clock.
    pub start: Time,
    /// Length; up to the end of the recording when `unfinished`.
    pub dur: Dur,
    /// Still open when the recording ended: no figure uses it.
    pub unfinished: bool,
}

/// Where a label was seen, relative to the thread that marks the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// On the thread (or device queue) that marks the steps, inside the marker.
    StepThread,
    /// On another thread of the same file.
    OtherThread,
    /// On a device of the same file.
    Device,
}

impl Place {
    /// The word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StepThread => "step thread",
            Self::OtherThread => "other thread",
            Self::Device => "device",
        }
    }
}

/// What one label took.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelRow {
    /// Name of the slices.
    pub label: String,
    /// Where they were.
    pub place: Place,
    /// Slices that lie in a step, wholly or in part. One that crosses two steps counts in both.
    pub count: u64,
    /// Union per track and step, summed.
    pub total: Dur,
    /// Without direct children.
    pub self_time: Dur,
    /// `total` over the length of all steps.
    pub share: f64,
}

/// What [`step_report`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepReport {
    /// In order of their begin.
    pub steps: Vec<StepRow>,
    /// Of the finished steps.
    pub times: StepTimes,
    /// By total, largest first.
    pub labels: Vec<LabelRow>,
    /// Labels beyond the number that was asked for.
    pub labels_left_out: usize,
    /// What a reader of the figures must know, one sentence each.
    pub notes: Vec<String>,
}

/// What to report.
#[derive(Clone, Copy, Debug)]
pub struct StepOptions {
    /// Most labels; the rest is counted in [`StepReport::labels_left_out`].
    pub top: usize,
}

/// One step in the making: its marker and its file.
#[derive(Clone, Copy)]
struct Marker {
    number: i64,
    file: usize,
    track: TrackId,
    /// Index within the track.
    index: usize,
    start: Time,
    end: Time,
    unfinished: bool,
}

/// The value below which a share `p` (0 to 1) of the sorted values lies: linear interpolation
/// between the two values around position `p * (n - 1)`, as `numpy.percentile` does by default.
/// `None` of no values.
pub fn percentile(sorted: &[Dur], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the position lies between 0 and the index of the last value"
    )]
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let (low, high) = (sorted[below].as_ns_f64(), sorted[above].as_ns_f64());
    Some(low + (high - low) * (position - below as f64))
}

/// How many steps the run has: those of the file that marks most.
pub fn step_count(trace: &Trace) -> u64 {
    let mut by_file: FxHashMap<usize, u64> = FxHashMap::default();
    for marker in markers(trace).0 {
        *by_file.entry(marker.file).or_default() += 1;
    }
    by_file.into_values().max().unwrap_or(0)
}

/// Only the times of the steps: cheap, looks at no slice but the markers.
pub fn step_times(trace: &Trace) -> StepTimes {
    times_of(&markers(trace).0)
}

fn times_of(markers: &[Marker]) -> StepTimes {
    let mut lengths: Vec<Dur> = markers
        .iter()
        .filter(|marker| !marker.unfinished)
        .map(|marker| marker.end.since(marker.start))
        .collect();
    lengths.sort_unstable();
    let total_ps: i128 = lengths.iter().map(|dur| i128::from(dur.ps())).sum();
    let count = lengths.len() as u64;
    StepTimes {
        count,
        mean_ns: (count > 0).then(|| total_ps as f64 / 1_000.0 / count as f64),
        p50_ns: percentile(&lengths, 0.5),
        p90_ns: percentile(&lengths, 0.9),
        p99_ns: percentile(&lengths, 0.99),
        min_ns: percentile(&lengths, 0.0),
        max_ns: percentile(&lengths, 1.0),
    }
}

/// The markers that count, by begin, and tracks whose marks say the same again.
fn markers(trace: &Trace) -> (Vec<Marker>, Vec<TrackId>) {
    let mut by_track: FxHashMap<TrackId, Vec<Marker>> = FxHashMap::default();
    for mark in trace.step_marks() {
        let Some((on, index)) = trace.place_of_slice(mark.event) else {
            continue;
        };
        let slices = trace.slices(on);
        let (Some(file), Some(start)) = (
            trace.tracks().get(on.index()).map(|track| track.file),
            slices.start.get(index),
        ) else {
            continue;
        };
        by_track.entry(on).or_default().push(Marker {
            number: mark.number,
            file,
            track: on,
            index,
            start: *start,
            end: slices.end(index),
            unfinished: trace
                .slice_flags(on, index)
                .contains(SliceFlags::UNFINISHED),
        });
    }
    let mut groups: Vec<_> = by_track.into_iter().collect();
    let kind = |track: TrackId| trace.tracks().get(track.index()).map(|track| track.kind);
    groups.sort_by_key(|(track, marks)| {
        let thread_first = u8::from(kind(*track) != Some(TrackKind::Thread));
        (std::cmp::Reverse(marks.len()), thread_first, *track)
    });
    let mut taken: FxHashMap<(usize, i64), TrackId> = FxHashMap::default();
    let mut kept = Vec::new();
    let mut repeated = Vec::new();
    for (track, marks) in groups {
        let before = kept.len();
        let all = marks.len();
        for marker in marks {
            let owner = *taken.entry((marker.file, marker.number)).or_insert(track);
            if owner == track {
                kept.push(marker);
            }
        }
        if kept.len() - before < all {
            repeated.push(track);
        }
    }
    kept.sort_by_key(|marker| (marker.start, marker.file, marker.track, marker.index));
    (kept, repeated)
}

/// Steps, their times, and the share of each label.
pub fn step_report(trace: &Trace, options: StepOptions) -> StepReport {
    let (markers, repeated) = markers(trace);
    let mut report = StepReport {
        times: times_of(&markers),
        steps: markers.iter().map(|marker| row_of(trace, marker)).collect(),
        ..StepReport::default()
    };
    if markers.is_empty() {
        report.notes = how_to_mark(trace);
        return report;
    }
    let unfinished = markers.iter().filter(|marker| marker.unfinished).count();
    if unfinished > 0 {
        report.notes.push(format!(
            "{unfinished} of {} steps were still open when the recording ended; they are listed, but no figure uses them",
            markers.len()
        ));
    }
    for track in repeated {
        if let Some(track) = trace.tracks().get(track.index()) {
            report.notes.push(format!(
                "the same steps are also marked on the track {:?} ({}); they count once",
                track.name, track.key
            ));
        }
    }
    labels(trace, &markers, options, &mut report);
    report
}

fn row_of(trace: &Trace, marker: &Marker) -> StepRow {
    let place = trace.tracks().get(marker.track.index());
    let host = trace.files().get(marker.file).map(|file| &file.spec.host);
    StepRow {
        number: marker.number,
        host: host.cloned().unwrap_or_default(),
        track: place.map(|track| track.name.clone()).unwrap_or_default(),
        start: marker.start,
        dur: marker.end.since(marker.start),
        unfinished: marker.unfinished,
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    total_ps: i128,
    self_ps: i128,
}

fn labels(trace: &Trace, markers: &[Marker], options: StepOptions, report: &mut StepReport) {
    let counted: Vec<Marker> = markers.iter().copied().filter(|m| !m.unfinished).collect();
    let all_ps: i128 = counted
        .iter()
        .map(|marker| i128::from(marker.end.since(marker.start).ps()))
        .sum();
    // Markers themselves are no labels, nor are repeated ones on other tracks.
    let mut marked: FxHashMap<TrackId, Vec<usize>> = FxHashMap::default();
    for mark in trace.step_marks() {
        if let Some((track, index)) = trace.place_of_slice(mark.event) {
            marked.entry(track).or_default().push(index);
        }
    }
    let mut sums: FxHashMap<(NameId, Place), Sums> = FxHashMap::default();
    for (at, track) in trace.tracks().iter().enumerate() {
        if track.derived || track.slices == 0 {
            continue;
        }
        let id = TrackId(u32::try_from(at).unwrap_or(u32::MAX));
        let own: Vec<Marker> = counted
            .iter()
            .copied()
            .filter(|m| m.file == track.file)
            .collect();
        let mut marks = marked.remove(&id).unwrap_or_default();
        marks.sort_unstable();
        let device = matches!(track.kind, TrackKind::DeviceQueue | TrackKind::Steps);
        label_track(trace, id, &own, &marks, device, &mut sums);
    }
    let mut rows: Vec<LabelRow> = sums
        .into_iter()
        .map(|((label, place), sums)| LabelRow {
            label: trace.name(label).to_owned(),
            place,
            count: sums.count,
            total: dur(sums.total_ps),
            self_time: dur(sums.self_ps),
            share: if all_ps > 0 {
                sums.total_ps as f64 / all_ps as f64
            } else {
                0.0
            },
        })
        .collect();
    rows.sort_by(|a, b| {
        (std::cmp::Reverse(a.total), a.place, &a.label).cmp(&(
            std::cmp::Reverse(b.total),
            b.place,
            &b.label,
        ))
    });
    report.labels_left_out = rows.len().saturating_sub(options.top);
    rows.truncate(options.top);
    report.labels = rows;
}

fn dur(ps: i128) -> Dur {
    Dur::from_ps(i64::try_from(ps).unwrap_or(if ps < 0 { i64::MIN } else { i64::MAX }))
}

/// Adds what one track's slices spent in the steps of its file.
fn label_track(
    trace: &Trace,
    row: TrackId,
    steps: &[Marker],
    marks: &[usize],
    device: bool,
    sums: &mut FxHashMap<(NameId, Place), Sums>,
) {
    // Steps may overlap (several threads mark): the latest end of all that began before, so that a
    // slice looks back no further than it must.
    let mut reach: Vec<Time> = Vec::with_capacity(steps.len());
    for step in steps {
        let before = reach.last().copied().unwrap_or(Time::MIN);
        reach.push(before.max(step.end));
    }
    let slices = trace.slices(row);
    let whole = steps
        .first()
        .zip(reach.last())
        .filter(|_| steps.len() > 1)
        .map(|(first, last)| (first.start, *last));
    let encloses_all = |index: usize| {
        whole.is_some_and(|(begin, last)| slices.start[index] <= begin && slices.end(index) >= last)
    };
    // Per label and step: up to where it is counted already.
    let mut covered: FxHashMap<(NameId, usize), Time> = FxHashMap::default();
    for index in 0..slices.start.len() {
        let start = slices.start[index];
        let end = start.saturating_add(slices.dur[index]);
        let name = slices.name[index];
        let is_mark = marks.binary_search(&index).is_ok();
        let parent = usize::try_from(slices.parent[index])
            .ok()
            .filter(|parent| *parent < slices.start.len());
        // A slice without length lies in the step that it begins in.
        let first = reach.partition_point(|reached| *reached <= start);
        for (number, step) in steps.iter().enumerate().skip(first) {
            if step.start >= end.max(start.saturating_add(Dur::from_ps(1))) {
                break;
            }
            if step.end <= start {
                continue;
            }
            let on_step_track = step.track == row;
            // What encloses the marker comes before it in the track's order.
            let outside = |index: usize| {
                if on_step_track {
                    index <= step.index
                } else {
                    encloses_all(index)
                }
            };
            if is_mark || outside(index) {
                continue;
            }
            let place = match (on_step_track, device) {
                (true, _) => Place::StepThread,
                (false, true) => Place::Device,
                (false, false) => Place::OtherThread,
            };
            let (from, to) = (start.max(step.start), end.min(step.end));
            let within_ps = i128::from(to.since(from).ps().max(0));
            let until = covered.entry((name, number)).or_insert(Time::MIN);
            let entry = sums.entry((name, place)).or_default();
            entry.count += 1;
            entry.self_ps += within_ps;
            entry.total_ps += i128::from(to.since(from.max(*until)).ps().max(0));
            *until = (*until).max(to);
            let Some(parent) = parent else {
                continue;
            };
            let counted = marks.binary_search(&parent).is_err() && !outside(parent);
            if counted {
                sums.entry((slices.name[parent], place))
                    .or_default()
                    .self_ps -= within_ps;
            }
        }
    }
}

/// Says which line of code would mark steps.
fn how_to_mark(trace: &Trace) -> Vec<String> {
    const LINES: &[(&str, &str)] = &[
        ("Rust", "let _step = stepscope::step(n);"),
        (
            "PyTorch",
            "profiler.step()  # at the end of each iteration, with torch.profiler.profile(...) as profiler",
        ),
        (
            "JAX",
            "with jax.profiler.StepTraceAnnotation(\"train\", step_num=n):",
        ),
        (
            "XLA",
            "with torch_xla.debug.profiler.StepTrace(\"train\", step_num=n):",
        ),
    ];
    let said = |kind: &str| {
        trace
            .files()
            .iter()
            .flat_map(|file| &file.facts)
            .any(|(key, value)| {
                let named = key == "kind" && *value == FactValue::Text(kind.to_owned());
                named
                    || (key.strip_prefix("kind.") == Some(kind) && *value == FactValue::Bool(true))
            })
    };
    let known = LINES.iter().any(|(kind, _)| said(kind));
    let mut notes = vec![
        "no steps are marked in this run; this line, around the body of the loop, marks them:"
            .to_owned(),
    ];
    for (kind, line) in LINES {
        if !known || said(kind) {
            notes.push(format!("{kind}: {line}"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_model::{Epoch, EventSink, SliceIn};
    use stepscope_store::{FileSpec, TraceBuilder, drawing};

    use super::*;

    const ALL: StepOptions = StepOptions { top: usize::MAX };

    fn shown(report: &StepReport) -> Vec<String> {
        let us = |dur: Dur| dur.ps() / 1_000_000;
        report
            .labels
            .iter()
            .map(|row| {
                format!(
                    "{} ({}): {} x, {} us, self {}, {:.2}",
                    row.label,
                    row.place.as_str(),
                    row.count,
                    us(row.total),
                    us(row.self_time),
                    row.share
                )
            })
            .collect()
    }

    /// What the steps' own thread spent in labels and in the markers themselves, and how long the
    /// steps were.
    fn both_sides(trace: &Trace) -> (i64, i64) {
        let report = step_report(trace, ALL);
        let labels: i64 = report
            .labels
            .iter()
            .filter(|row| row.place == Place::StepThread)
            .map(|row| row.self_time.ps())
            .sum();
        let marks = trace
            .step_marks()
            .iter()
            .filter_map(|mark| trace.event(mark.event));
        let markers: i64 = marks.map(|event| event.self_time.ps()).sum();
        let steps: i64 = report.steps.iter().map(|step| step.dur.ps()).sum();
        (labels + markers, steps)
    }

    #[test]
    fn labels_are_cut_to_the_steps_and_recursion_counts_once() {
        let trace = drawing::trace(
            "
            main   | epoch----------------------------
                   |  step0-----  step1---------
                   |    fwd--bwd     rec-----fwd
                   |                  rec--
            loader | load------------------
            gpu/7 #device | k-----------------------------------
            ",
        );
        let report = step_report(&trace, ALL);
        assert_eq!(
            shown(&report),
            [
                "load (other thread): 2 x, 19 us, self 19, 0.79",
                "fwd (step thread): 2 x, 8 us, self 8, 0.33",
                "rec (step thread): 2 x, 8 us, self 8, 0.33",
                "bwd (step thread): 1 x, 3 us, self 3, 0.12",
            ]
        );
        assert_eq!(report.times.mean_ns, Some(12_000.0));
        let (found, expected) = both_sides(&trace);
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_and_the_last_step_count_and_percentiles_interpolate() {
        let trace = drawing::trace("main | step0-step1---step2-----step3-------");
        let times = step_times(&trace);
        assert_eq!((times.count, step_count(&trace)), (4, 4));
        assert_eq!(
            (times.min_ns, times.max_ns),
            (Some(6_000.0), Some(12_000.0))
        );
        assert_eq!(
            (times.mean_ns, times.p50_ns),
            (Some(9_000.0), Some(9_000.0))
        );
        let p90 = times.p90_ns.unwrap_or_default();
        assert!((p90 - 11_400.0).abs() < 1e-6, "{p90}");
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn steps_that_several_tracks_mark_count_once() {
        let trace = drawing::trace(
            "
            main          | step0--- step1--- step2---
            gpu/s #steps  |   step1-----
            ",
        );
        let report = step_report(&trace, ALL);
        assert_eq!(report.times.count, 3);
        let told = report.notes.iter().any(|note| note.contains("count once"));
        assert!(told, "{:?}", report.notes);
    }

    #[test]
    fn without_markers_the_line_that_makes_them_is_told() {
        let report = step_report(&drawing::trace("main | work----"), ALL);
        assert!(report.steps.is_empty() && report.labels.is_empty());
        assert!(
            report
                .notes
                .iter()
                .any(|note| note.contains("stepscope::step(n)"))
        );
        assert_eq!(report.times, StepTimes::default());
    }

    proptest! {
        /// Every picosecond of a step is charged to exactly one label, or to the marker.
        #[test]
        fn self_times_and_markers_add_up_to_the_steps(
            moves in prop::collection::vec((any::<bool>(), 0..5_u8, 1..1_000_i64), 0..200)
        ) {
            let mut builder = TraceBuilder::new();
            let mut sink = builder.file(FileSpec::default());
            sink.epoch(Epoch::default());
            let track = sink.track("main");
            let mut now = 0;
            let mut open: Vec<(i64, u8)> = Vec::new();
            let mut number = 0;
            let mut close = |begun: i64, now: i64, name: u8, outermost: bool| {
                number += i64::from(outermost);
                let text = if outermost { "step".to_owned() } else { format!("n{name}") };
                let name = sink.name(&text);
                let (start, dur) = (Time::from_ps(begun), Dur::from_ps(now - begun));
                let step = outermost.then_some(number);
                sink.slice(track, SliceIn { start, dur, name, step, ..SliceIn::default() });
            };
            for (down, name, length) in moves {
                if down && open.len() < 6 {
                    open.push((now, name));
                } else if let Some((begun, name)) = open.pop() {
                    close(begun, now, name, open.is_empty());
                }
                now += length;
            }
            while let Some((begun, name)) = open.pop() {
                close(begun, now, name, open.is_empty());
            }
            builder.add(sink);
            let trace = builder.finish();
            let (found, expected) = both_sides(&trace);
            prop_assert_eq!(found, expected);
        }
    }
}
