//! The share of each label in the steps; the equations stand in the [module above](super).

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, Time, TrackId, TrackKind};
use stepscope_store::Trace;

use super::marks::Marker;
use super::{LabelRow, Place, StepOptions, StepReport};
use crate::calls;

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    total_ps: i128,
    self_ps: i128,
}

/// Up to this many names, figures lie in arrays: a slice then costs no hashing.
const MOST_DENSE_NAMES: usize = 1 << 18;

/// Figures by label and place.
enum Table {
    /// By the name's number; a place each.
    Dense(Vec<[Sums; 3]>),
    Sparse(FxHashMap<(NameId, Place), Sums>),
}

impl Table {
    fn new(names: usize) -> Self {
        if names <= MOST_DENSE_NAMES {
            Self::Dense(vec![[Sums::default(); 3]; names])
        } else {
            Self::Sparse(FxHashMap::default())
        }
    }

    fn of(&mut self, name: NameId, place: Place) -> &mut Sums {
        match self {
            Self::Dense(sums) => &mut sums[name.index()][place as usize],
            Self::Sparse(sums) => sums.entry((name, place)).or_default(),
        }
    }

    /// Labels that were seen. A parent that no step counts has no row of its own.
    fn rows(self) -> Vec<(NameId, Place, Sums)> {
        let mut rows: Vec<(NameId, Place, Sums)> = match self {
            Self::Dense(sums) => {
                let places = [Place::StepThread, Place::OtherThread, Place::Device];
                let of_name = |(at, sums): (usize, [Sums; 3])| {
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
        };
        rows.retain(|(_, _, sums)| sums.count > 0);
        rows
    }
}

/// Up to where each label is counted already, on one track.
enum Covered {
    /// Where steps do not overlap, one moment a label is enough: what a slice covers of an earlier
    /// step ends before the next begins. With the number of the track that wrote it, so that nothing
    /// has to be cleared between tracks.
    Once(Vec<(u32, Time)>),
    /// By label and step.
    ByStep(FxHashMap<(NameId, usize), Time>),
}

impl Covered {
    fn of(&mut self, name: NameId, step: usize, track: TrackId) -> &mut Time {
        match self {
            Self::Once(moments) => {
                let (writer, until) = &mut moments[name.index()];
                if *writer != track.0 {
                    (*writer, *until) = (track.0, Time::MIN);
                }
                until
            }
            Self::ByStep(moments) => moments.entry((name, step)).or_insert(Time::MIN),
        }
    }
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
    // Markers themselves are no labels, nor are repeated ones on other tracks.
    let mut marked: FxHashMap<TrackId, Vec<usize>> = FxHashMap::default();
    for mark in trace.step_marks() {
        if let Some((track, index)) = trace.place_of_slice(mark.event) {
            marked.entry(track).or_default().push(index);
        }
    }
    let names = trace.name_count();
    let mut sums = Table::new(names);
    // The number of no track.
    let mut moments = vec![(u32::MAX, Time::MIN); names.min(MOST_DENSE_NAMES)];
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
        let apart = own.windows(2).all(|pair| pair[0].end <= pair[1].start);
        let mut covered = if apart && moments.len() == names {
            Covered::Once(std::mem::take(&mut moments))
        } else {
            Covered::ByStep(FxHashMap::default())
        };
        label_track(trace, id, &own, &marks, device, &mut covered, &mut sums);
        if let Covered::Once(taken) = covered {
            moments = taken;
        }
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
    // Another thread that waits a whole step long does not explain the step: such rows come last.
    rows.sort_by(|a, b| {
        let key = |row: &LabelRow| {
            let elsewhere = row.place == Place::OtherThread;
            (elsewhere, std::cmp::Reverse(row.total), row.place)
        };
        key(a).cmp(&key(b)).then_with(|| a.label.cmp(&b.label))
    });
    report.labels_left_out = rows.len().saturating_sub(options.top);
    rows.truncate(options.top);
    report.labels = rows;
}

/// Takes out what tracers of Python functions wrote, unless there is nothing else: hundreds of functions
/// would hide the labels around them.
fn without_functions(rows: &mut Vec<LabelRow>, notes: &mut Vec<String>) {
    let all = rows.len();
    if rows.iter().all(|row| calls::is_function(&row.label)) {
        return;
    }
    rows.retain(|row| !calls::is_function(&row.label));
    let gone = all - rows.len();
    if gone > 0 {
        notes.push(format!(
            "{gone} Python functions are not among the labels: 'ops --by python' has them"
        ));
    }
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
    covered: &mut Covered,
    sums: &mut Table,
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
    for index in 0..slices.start.len() {
        let start = slices.start[index];
        let end = start.saturating_add(slices.dur[index]);
        let name = slices.name[index];
        let is_mark = !marks.is_empty() && marks.binary_search(&index).is_ok();
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
            let until = covered.of(name, number, row);
            let entry = sums.of(name, place);
            entry.count += 1;
            entry.self_ps += within_ps;
            entry.total_ps += i128::from(to.since(from.max(*until)).ps().max(0));
            *until = (*until).max(to);
            let Some(parent) = parent else {
                continue;
            };
            let counted = marks.binary_search(&parent).is_err() && !outside(parent);
            if counted {
                sums.of(slices.name[parent], place).self_ps -= within_ps;
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

    /// Figures of all labels, with either way to remember what is counted.
    fn figures(trace: &Trace, once: bool) -> Vec<(NameId, Place, u64, i128, i128)> {
        let (markers, _) = super::super::marks::markers(trace);
        let mut sums = Table::Sparse(FxHashMap::default());
        let mut covered = if once {
            sums = Table::new(trace.name_count());
            Covered::Once(vec![(u32::MAX, Time::MIN); trace.name_count()])
        } else {
            Covered::ByStep(FxHashMap::default())
        };
        for track in trace.tracks() {
            let mut marks: Vec<usize> = trace
                .step_marks()
                .iter()
                .filter_map(|mark| trace.place_of_slice(mark.event))
                .filter(|(on, _)| *on == track.id)
                .map(|(_, index)| index)
                .collect();
            marks.sort_unstable();
            if let Covered::ByStep(moments) = &mut covered {
                moments.clear();
            }
            label_track(
                trace,
                track.id,
                &markers,
                &marks,
                false,
                &mut covered,
                &mut sums,
            );
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
        /// Where steps lie apart, one moment a label says as much as one for each step.
        #[test]
        fn one_moment_a_label_is_enough(
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
            prop_assert_eq!(figures(&trace, true), figures(&trace, false));
        }
    }
}
