//! Steps of programs that mark them without numbers: slices with the argument `_r`, with which JAX and TensorFlow
//! mark *the start of a step*, as on each request of a server. They are numbered in the order of their start, as
//! XProf does.
//!
//! Slices of one name are alike: the argument of the first decides.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use rustc_hash::FxHashSet;
use stepscope_model::{ArgKeys, NameId, SliceFlags, TrackKind};
use stepscope_store::{Trace, Track};

use super::marker::Marker;

/// Maximum depth of a root.
const DEEPEST: u16 = 2;
/// Maximum number of names of a thread that are checked.
const MOST_NAMES: usize = 4_096;

/// Returns the roots of the files that mark no numbered step, in order of their start.
pub(super) fn roots(trace: &Trace, has_steps: impl Fn(usize) -> bool) -> Vec<Marker> {
    let mut found = Vec::new();
    for (number, file) in trace.files().iter().enumerate() {
        if has_steps(number) || file.spec.format != "xspace" {
            continue;
        }
        let mut of_file = Vec::new();
        for track in trace.tracks() {
            if track.file == number && track.kind == TrackKind::Thread && !track.derived {
                on_thread(trace, track, &mut of_file);
            }
        }
        of_file.sort_by_key(|marker| (marker.start, marker.track, marker.index));
        for (number, marker) in (0..).zip(&mut of_file) {
            marker.number = number;
        }
        found.append(&mut of_file);
    }
    found
}

fn on_thread(trace: &Trace, track: &Track, found: &mut Vec<Marker>) {
    let slices = trace.slices(track.id);
    let mut seen: FxHashSet<NameId> = FxHashSet::default();
    let mut roots: FxHashSet<NameId> = FxHashSet::default();
    for index in 0..slices.len() {
        if slices.depth[index] > DEEPEST {
            continue;
        }
        let name = slices.name[index];
        if seen.len() < MOST_NAMES && seen.insert(name) && is_root(trace, slices.id(index), name) {
            roots.insert(name);
        }
        if roots.contains(&name) {
            found.push(Marker {
                number: 0,
                file: track.file,
                process: None,
                track: track.id,
                index,
                start: slices.start[index],
                end: slices.end(index),
                unfinished: trace
                    .slice_flags(track.id, index)
                    .contains(SliceFlags::UNFINISHED),
            });
        }
    }
}

fn is_root(trace: &Trace, event: stepscope_store::EventId, name: NameId) -> bool {
    if trace.name(name).starts_with('$') {
        return false;
    }
    let mut root = false;
    // Unreadable arguments mark nothing.
    let _ = trace.args_of(event, ArgKeys::new(&["_r"]), &mut |_, _| root = true);
    root
}
