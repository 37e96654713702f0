//! The share of each label in the steps; the equations stand in the [module above](super).

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, Time, TrackId, TrackKind};
use stepscope_store::Trace;

use super::marks::Marker;
use super::{LabelRow, Place, StepOptions, StepReport};

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    total_ps: i128,
    self_ps: i128,
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
