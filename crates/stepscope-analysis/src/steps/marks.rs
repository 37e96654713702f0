//! Step markers of the program, and the selection of those that count.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::step::OPTIMIZER_STEP;
use stepscope_model::{SliceFlags, TrackId, TrackKind};
use stepscope_store::Trace;

use super::StepRank;
use super::marker::Marker;
use super::processes;
use super::roots::roots;
use super::step_markers::step_markers;

/// The markers that count.
pub(super) struct Marks {
    /// In order of their start.
    pub(super) markers: Vec<Marker>,
    /// Tracks whose markers repeat them.
    pub(super) repeated: Vec<TrackId>,
    /// The recorder has derived these markers from calls of an optimizer: the program marks none.
    pub(super) from_optimizer: bool,
}

/// Lists the markers that count.
pub(super) fn markers(trace: &Trace) -> Marks {
    let mut by_track: BTreeMap<TrackId, Vec<Marker>> = BTreeMap::new();
    let mut from_optimizer: BTreeMap<TrackId, Vec<Marker>> = BTreeMap::new();
    for step_marker in trace.step_marks() {
        let Some((on, index)) = trace.place_of_slice(step_marker.event) else {
            continue;
        };
        let slices = trace.slices(on);
        let (Some(file), Some(start)) = (
            trace.tracks().get(on.index()).map(|track| track.file),
            slices.start.get(index),
        ) else {
            continue;
        };
        let is_derived = slices
            .name
            .get(index)
            .is_some_and(|name| trace.name(*name) == OPTIMIZER_STEP);
        let list = if is_derived {
            &mut from_optimizer
        } else {
            &mut by_track
        };
        list.entry(on).or_default().push(Marker {
            number: step_marker.number,
            file,
            process: None,
            track: on,
            index,
            start: *start,
            end: slices.end(index),
            unfinished: trace
                .slice_flags(on, index)
                .contains(SliceFlags::UNFINISHED),
        });
    }
    // An optimizer's steps are no unnumbered marks of the program.
    let numbered: Vec<usize> = by_track
        .values()
        .chain(from_optimizer.values())
        .filter_map(|marks| marks.first().map(|step_marker| step_marker.file))
        .collect();
    let has_numbers = |file: usize| numbered.contains(&file);
    let unnumbered_marks = roots(trace, has_numbers)
        .into_iter()
        .chain(step_markers(trace, has_numbers));
    for marker in unnumbered_marks {
        by_track.entry(marker.track).or_default().push(marker);
    }
    let is_derived = by_track.is_empty() && !from_optimizer.is_empty();
    if is_derived {
        by_track = from_optimizer;
    }
    processes::assign(trace, &mut by_track);
    let mut groups: Vec<_> = by_track.into_iter().collect();
    let kind = |track: TrackId| trace.tracks().get(track.index()).map(|track| track.kind);
    groups.sort_by_key(|(track, marks)| {
        let thread_first = u8::from(kind(*track) != Some(TrackKind::Thread));
        (std::cmp::Reverse(marks.len()), thread_first, *track)
    });
    let mut taken: FxHashMap<(StepRank, i64), TrackId> = FxHashMap::default();
    let mut retained = Vec::new();
    let mut repeated = Vec::new();
    for (track, marks) in groups {
        let before = retained.len();
        let all = marks.len();
        for marker in marks {
            let owner = *taken.entry((marker.rank(), marker.number)).or_insert(track);
            if owner == track {
                retained.push(marker);
            }
        }
        if retained.len() - before < all {
            repeated.push(track);
        }
    }
    retained.sort_by_key(|marker| (marker.start, marker.file, marker.track, marker.index));
    Marks {
        markers: retained,
        repeated,
        from_optimizer: is_derived,
    }
}
