//! Share of each label in the steps; the [parent module](super) has the equations.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Dur, NameId, Time, TrackId, TrackKind};
use stepscope_store::Trace;

use super::marker::Marker;
use super::processes::FusedFiles;
use super::{LabelRow, LabelThread, StepNote, StepOptions, StepRank, StepReport, ThreadRows};
use crate::parallel::{self, Cancel};
use crate::python_calls;

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    total_ps: i128,
    self_ps: i128,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.self_ps += other.self_ps;
    }
}

/// Maximum number of names for which sums are in arrays: a slice then costs no hashing.
const MOST_DENSE_NAMES: usize = 1 << 18;

/// Sums by label and kind of thread.
enum Table {
    /// Sums by name id; one entry for each kind of thread.
    Dense(Vec<[Sums; 4]>),
    Sparse(FxHashMap<(NameId, LabelThread), Sums>),
}

impl Table {
    fn new(names: usize) -> Self {
        if names <= MOST_DENSE_NAMES {
            Self::Dense(vec![[Sums::default(); 4]; names])
        } else {
            Self::Sparse(FxHashMap::default())
        }
    }

    fn entry(&mut self, name: NameId, place: LabelThread) -> &mut Sums {
        match self {
            Self::Dense(sums) => &mut sums[name.index()][place as usize],
            Self::Sparse(sums) => sums.entry((name, place)).or_default(),
        }
    }

    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Dense(sums), Self::Dense(others)) => {
                for (sums, others) in sums.iter_mut().zip(others) {
                    for (sum, other) in sums.iter_mut().zip(others) {
                        sum.add(other);
                    }
                }
            }
            (sums, others) => {
                for (name, place, other) in others.entries() {
                    sums.entry(name, place).add(other);
                }
            }
        }
    }

    /// Returns the labels with slices. A parent that no step counts has no row of its own.
    fn rows(self) -> Vec<(NameId, LabelThread, Sums)> {
        let mut rows = self.entries();
        rows.retain(|(_, _, sums)| sums.count > 0);
        rows
    }

    fn entries(self) -> Vec<(NameId, LabelThread, Sums)> {
        match self {
            Self::Dense(sums) => {
                let places = [
                    LabelThread::StepThread,
                    LabelThread::OtherThread,
                    LabelThread::Device,
                    LabelThread::StepThreadElsewhere,
                ];
                let of_name = |(at, sums): (usize, [Sums; 4])| {
                    let name = NameId(u32::try_from(at).unwrap_or(u32::MAX));
                    places
                        .into_iter()
                        .zip(sums)
                        .map(move |(place, sums)| (name, place, sums))
                };
                sums.into_iter().enumerate().flat_map(of_name).collect()
            }
            Self::Sparse(sums) => sums
                .into_iter()
                .map(|((name, place), sums)| (name, place, sums))
                .collect(),
        }
    }
}

/// End of the time that is already counted for each label, on one track.
enum Covered {
    /// One timestamp per label, sufficient where steps do not overlap: the part of a slice in an earlier step
    /// ends before the next step starts. Each entry has the number of the job that wrote it, so that nothing has
    /// to be cleared between jobs; the first field is the number of the current job.
    Once(u32, Vec<(u32, Time)>),
    /// Timestamps by label and step.
    ByStep(FxHashMap<(NameId, usize), Time>),
}

impl Covered {
    fn entry(&mut self, name: NameId, step: usize) -> &mut Time {
        match self {
            Self::Once(job, counted_until) => {
                let (writer, until) = &mut counted_until[name.index()];
                if *writer != *job {
                    (*writer, *until) = (*job, Time::MIN);
                }
                until
            }
            Self::ByStep(counted_until) => counted_until.entry((name, step)).or_insert(Time::MIN),
        }
    }
}

/// Consecutive steps of a rank on one track: the unit of work of a thread.
struct Job {
    track: TrackId,
    rank: StepRank,
    /// Indexes of the steps.
    steps: Range<usize>,
    device: bool,
}

/// State of one worker thread.
struct Counter {
    sums: Table,
    /// See [`Covered::Once`].
    counted_until: Vec<(u32, Time)>,
}

/// Number of chunks of a long track. Each chunk reads the slices again that are open at its start.
const CHUNKS: usize = 4;

/// Splits the steps on a track into chunks with about as many slices each.
fn chunks(start: &[Time], steps: &[Marker]) -> Vec<Range<usize>> {
    let chunks = if start.len() < parallel::CHUNK_LEN {
        1
    } else {
        CHUNKS
    };
    let mut cuts = vec![0];
    for chunk in 1..chunks {
        let at = start.get(start.len() / chunks * chunk).copied();
        let begun = |step: &Marker| at.is_some_and(|at| step.start < at);
        cuts.push(steps.partition_point(begun));
    }
    cuts.push(steps.len());
    cuts.dedup();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

pub(super) fn labels(
    trace: &Trace,
    markers: &[Marker],
    options: StepOptions,
    report: &mut StepReport,
) {
    let counted: Vec<Marker> = markers.iter().copied().filter(|m| !m.unfinished).collect();
    let all_ps: i128 = counted
        .iter()
        .map(|marker| i128::from(marker.end.since(marker.start).ps()))
        .sum();
    let mut steps: FxHashMap<StepRank, Vec<Marker>> = FxHashMap::default();
    for marker in &counted {
        let (file, process) = (marker.file, marker.process);
        steps
            .entry(StepRank { file, process })
            .or_default()
            .push(*marker);
    }
    let fused = FusedFiles::new(trace, steps.keys().copied());
    let marks = StepMarkers::from_trace(trace);
    let mut jobs = Vec::new();
    let mut size = 0;
    for track in trace.tracks() {
        if track.derived || track.slices == 0 {
            continue;
        }
        let rank = fused.rank(track);
        let Some(own) = steps.get(&rank) else {
            continue;
        };
        let slices = trace.slices(track.id);
        size += slices.len();
        let device = matches!(track.kind, TrackKind::DeviceQueue | TrackKind::Steps);
        jobs.extend(chunks(slices.start, own).into_iter().map(|steps| Job {
            track: track.id,
            rank,
            steps,
            device,
        }));
    }
    let apart: FxHashSet<StepRank> = steps
        .iter()
        .filter(|(_, own)| own.windows(2).all(|pair| pair[0].end <= pair[1].start))
        .map(|(rank, _)| *rank)
        .collect();
    let numbered: Vec<(u32, Job)> = (0..).zip(jobs).collect();
    let names = trace.name_count();
    let counters = parallel::scan_items(
        &numbered,
        size,
        &Cancel::default(),
        || Counter {
            sums: Table::new(names),
            // Initial value that is no job's number.
            counted_until: vec![(u32::MAX, Time::MIN); names.min(MOST_DENSE_NAMES)],
        },
        |counter, (number, job)| {
            let mut covered = if apart.contains(&job.rank) && counter.counted_until.len() == names {
                Covered::Once(*number, std::mem::take(&mut counter.counted_until))
            } else {
                Covered::ByStep(FxHashMap::default())
            };
            let own = &steps[&job.rank];
            label_track(trace, job, own, &marks, &mut covered, &mut counter.sums);
            if let Covered::Once(_, taken) = covered {
                counter.counted_until = taken;
            }
        },
    );
    let mut sums = Table::new(names);
    // The scan is never cancelled.
    for counter in counters.unwrap_or_default() {
        sums.add(counter.sums);
    }
    let mut rows: Vec<LabelRow> = sums
        .rows()
        .into_iter()
        .map(|(label, place, sums)| LabelRow {
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
    without_functions(&mut rows, &mut report.notes);
    // Another thread that waits for a whole step does not explain the step: such rows come last.
    rows.sort_by(|a, b| {
        let key = |row: &LabelRow| {
            let elsewhere = row.place == LabelThread::OtherThread;
            (elsewhere, std::cmp::Reverse(row.total), row.place)
        };
        key(a).cmp(&key(b)).then_with(|| a.label.cmp(&b.label))
    });
    report.labels_left_out = rows.len().saturating_sub(options.top);
    rows.truncate(options.top);
    report.labels = rows;
}

/// Removes the Python functions of tracers, unless there is nothing else: hundreds of functions would hide the
/// labels around them.
fn without_functions(rows: &mut Vec<LabelRow>, notes: &mut Vec<StepNote>) {
    let all = rows.len();
    if rows.iter().all(|row| python_calls::is_function(&row.label)) {
        return;
    }
    rows.retain(|row| !python_calls::is_function(&row.label));
    let removed = all - rows.len();
    if removed > 0 {
        notes.push(StepNote::FunctionsLeftOut { functions: removed });
    }
}

fn dur(ps: i128) -> Dur {
    Dur::from_ps(i64::try_from(ps).unwrap_or(if ps < 0 { i64::MIN } else { i64::MAX }))
}

/// Positions of the slices that mark steps: they are no labels, nor are repeated ones on other tracks.
struct StepMarkers {
    /// Indexes of the markers by track.
    of: FxHashMap<TrackId, Vec<usize>>,
    /// Whether any marker has the name, by name id.
    names: Vec<bool>,
    /// Tracks that show the same thread.
    rows: ThreadRows,
}

impl StepMarkers {
    fn from_trace(trace: &Trace) -> Self {
        let mut found = Self {
            of: FxHashMap::default(),
            names: vec![false; trace.name_count()],
            rows: ThreadRows::new(trace),
        };
        let mut places = Vec::new();
        for mark in trace.step_marks() {
            if let Some((track, index)) = trace.place_of_slice(mark.event) {
                places.push((track, index));
                if let Some(name) = trace.slices(track).name.get(index)
                    && let Some(known) = found.names.get_mut(name.index())
                {
                    *known = true;
                }
            }
        }
        places.sort_unstable();
        for (track, index) in places {
            found.of.entry(track).or_default().push(index);
        }
        found
    }
}

/// Adds the time of one track's slices in some steps of its rank.
fn label_track(
    trace: &Trace,
    job: &Job,
    steps: &[Marker],
    marks: &StepMarkers,
    covered: &mut Covered,
    sums: &mut Table,
) {
    // Steps may overlap (several threads mark them). The latest end of all steps that started before limits how
    // far a slice looks back.
    let mut reach: Vec<Time> = Vec::with_capacity(steps.len());
    for step in steps {
        let before = reach.last().copied().unwrap_or(Time::MIN);
        reach.push(before.max(step.end));
    }
    let own = &steps[job.steps.clone()];
    let (Some(begin), Some(until)) = (
        own.first().map(|step| step.start),
        own.iter().map(|step| step.end).max(),
    ) else {
        return;
    };
    let slices = trace.slices(job.track);
    let whole = steps
        .first()
        .zip(reach.last())
        .filter(|_| steps.len() > 1)
        .map(|(first, last)| (first.start, *last));
    let encloses_all = |index: usize| {
        whole.is_some_and(|(begin, last)| slices.start[index] <= begin && slices.end(index) >= last)
    };
    let on_track = marks.of.get(&job.track).map_or(&[][..], Vec::as_slice);
    let is_marker = |index: usize, name: NameId| {
        marks.names.get(name.index()) == Some(&true) && on_track.binary_search(&index).is_ok()
    };
    let same_thread = marks.rows.others(job.track);
    let mut first = job.steps.start;
    for index in trace.candidates(job.track, begin..until) {
        let start = slices.start[index];
        let end = start.saturating_add(slices.dur[index]);
        if start < begin && end <= begin {
            continue;
        }
        let name = slices.name[index];
        let parent = usize::try_from(slices.parent[index])
            .ok()
            .filter(|parent| *parent < slices.start.len());
        // A slice without length lies in the step that it starts in. Slices are in order of their start.
        while reach.get(first).is_some_and(|reached| *reached <= start) {
            first += 1;
        }
        if first >= job.steps.end {
            break;
        }
        for (number, step) in own.iter().enumerate().skip(first - job.steps.start) {
            if step.start >= end.max(start.saturating_add(Dur::from_ps(1))) {
                break;
            }
            if step.end <= start {
                continue;
            }
            let on_step_track = step.track == job.track;
            // Slices that enclose the marker come before it in the track's order.
            let outside = |index: usize| {
                if on_step_track {
                    index <= step.index
                } else {
                    encloses_all(index)
                }
            };
            if outside(index) || is_marker(index, name) {
                continue;
            }
            let place = match (on_step_track, job.device) {
                (true, _) => LabelThread::StepThread,
                (false, true) => LabelThread::Device,
                (false, false) if same_thread.contains(&step.track) => {
                    LabelThread::StepThreadElsewhere
                }
                (false, false) => LabelThread::OtherThread,
            };
            let (from, to) = (start.max(step.start), end.min(step.end));
            let within_ps = i128::from(to.since(from).ps().max(0));
            let until = covered.entry(name, number);
            let entry = sums.entry(name, place);
            entry.count += 1;
            entry.self_ps += within_ps;
            entry.total_ps += i128::from(to.since(from.max(*until)).ps().max(0));
            *until = (*until).max(to);
            let Some(parent) = parent else {
                continue;
            };
            let around = slices.name[parent];
            if !is_marker(parent, around) && !outside(parent) {
                sums.entry(around, place).self_ps -= within_ps;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_model::{EventSink as _, SliceIn};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    type Figure = (NameId, LabelThread, u64, i128, i128);

    /// Computes the figures of all labels, with either variant of [`Covered`], and with the steps in chunks of
    /// this many.
    fn figures(trace: &Trace, once: bool, chunk: usize) -> Vec<Figure> {
        let markers = super::super::marks::markers(trace).markers;
        let marks = StepMarkers::from_trace(trace);
        let mut sums = Table::Sparse(FxHashMap::default());
        let mut counted_until = vec![(u32::MAX, Time::MIN); trace.name_count()];
        let mut number = 0;
        for track in trace.tracks() {
            for from in (0..markers.len()).step_by(chunk) {
                let job = Job {
                    track: track.id,
                    rank: StepRank {
                        file: track.file,
                        process: None,
                    },
                    steps: from..markers.len().min(from + chunk),
                    device: false,
                };
                let mut covered = if once {
                    Covered::Once(number, std::mem::take(&mut counted_until))
                } else {
                    Covered::ByStep(FxHashMap::default())
                };
                number += 1;
                let mut part = if once {
                    Table::new(trace.name_count())
                } else {
                    Table::Sparse(FxHashMap::default())
                };
                label_track(trace, &job, &markers, &marks, &mut covered, &mut part);
                sums.add(part);
                if let Covered::Once(_, taken) = covered {
                    counted_until = taken;
                }
            }
        }
        let mut rows: Vec<_> = sums
            .rows()
            .into_iter()
            .map(|(name, place, sums)| (name, place, sums.count, sums.total_ps, sums.self_ps))
            .collect();
        rows.sort_unstable();
        rows
    }

    proptest! {
        /// Where steps do not overlap, one timestamp per label gives the same result as one for each step; and
        /// steps that are counted in chunks give the same sums.
        #[test]
        fn one_timestamp_per_label_is_sufficient(
            steps in prop::collection::vec((0..50_i64, 1..300_i64), 1..8),
            work in prop::collection::vec((0..3_usize, 0..1_500_i64, 0..700_i64, 0..4_u8), 0..60),
        ) {
            let mut builder = TraceBuilder::new();
            let mut sink = builder.file(FileSpec::default());
            sink.epoch(stepscope_model::Epoch::default());
            let tracks = ["main", "worker", "loader"].map(|key| sink.track(key));
            let mut now = 0;
            for (number, (gap, length)) in steps.into_iter().enumerate() {
                let name = sink.name("step");
                let (start, dur) = (Time::from_ps(now + gap), Dur::from_ps(length));
                let step = Some(number as i64);
                sink.slice(tracks[0], SliceIn { start, dur, name, step, ..SliceIn::default() });
                now += gap + length;
            }
            for (track, start, length, name) in work {
                let name = sink.name(&format!("n{name}"));
                let (start, dur) = (Time::from_ps(start), Dur::from_ps(length));
                sink.slice(tracks[track], SliceIn { start, dur, name, ..SliceIn::default() });
            }
            builder.add(sink);
            let trace = builder.finish();
            let all = figures(&trace, false, usize::MAX);
            prop_assert_eq!(&figures(&trace, true, usize::MAX), &all);
            prop_assert_eq!(&figures(&trace, true, 1), &all);
            prop_assert_eq!(&figures(&trace, false, 2), &all);
        }
    }
}
