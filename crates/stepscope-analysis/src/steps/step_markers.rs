//! Steps of programs on Neuron devices, of which the runtime records the ends: `StepMarker` is the
//! call that compiles, loads and runs what the program has traced since the one before. A step
//! therefore lasts from the end of one marker to the end of the next; the first one begins with the
//! first slice of its thread. They are numbered from 0 in the order of time.

use rustc_hash::FxHashSet;
use stepscope_model::{NameId, SliceFlags, TrackKind};
use stepscope_store::{Trace, Track};

use super::marks::Marker;

const NAME: &str = "StepMarker";

/// Steps of the files of Neuron devices that mark no numbered step, by begin.
pub(super) fn step_markers(trace: &Trace, has_steps: impl Fn(usize) -> bool) -> Vec<Marker> {
    let mut found = Vec::new();
    for (number, file) in trace.files().iter().enumerate() {
        if has_steps(number) || file.fact("kind.NEURON").is_none() {
            continue;
        }
        let of_thread = |track: &&Track| {
            track.file == number && track.kind == TrackKind::Thread && !track.derived
        };
        let threads = trace.tracks().iter().filter(of_thread);
        // The thread with the most markers runs the steps.
        let longest = threads
            .map(|thread| on_thread(trace, thread))
            .max_by_key(Vec::len);
        found.extend(longest.into_iter().flatten());
    }
    found
}

fn on_thread(trace: &Trace, thread: &Track) -> Vec<Marker> {
    let slices = trace.slices(thread.id);
    let mut names: FxHashSet<NameId> = slices.name.iter().copied().collect();
    names.retain(|name| trace.name(*name) == NAME);
    let mut found: Vec<Marker> = Vec::new();
    let Some(mut start) = slices.start.first().copied() else {
        return found;
    };
    for index in 0..slices.len() {
        let end = slices.end(index);
        if !names.contains(&slices.name[index]) || end <= start {
            continue;
        }
        let unfinished = trace.slice_flags(thread.id, index);
        found.push(Marker {
            number: i64::try_from(found.len()).unwrap_or(i64::MAX),
            file: thread.file,
            process: None,
            track: thread.id,
            index,
            start,
            end,
            unfinished: unfinished.contains(SliceFlags::UNFINISHED),
        });
        start = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgValue, Dur, Epoch, EventSink, SliceIn, Time};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    fn steps(kind: &str) -> Vec<(i64, i64, i64)> {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        sink.fact(&format!("kind.{kind}"), ArgValue::Bool(true));
        let thread = sink.track("python3");
        for (name, start, length) in [
            ("model_build", 10, 5),
            (NAME, 16, 4),
            ("model_build", 21, 5),
            (NAME, 27, 4),
        ] {
            let slice = SliceIn {
                start: Time::from_ps(start),
                dur: Dur::from_ps(length),
                name: sink.name(name),
                ..SliceIn::default()
            };
            sink.slice(thread, slice);
        }
        builder.add(sink);
        let found = step_markers(&builder.finish(), |_| false);
        let shown = found
            .iter()
            .map(|step| (step.number, step.start.ps(), step.end.ps()));
        shown.collect()
    }

    #[test]
    fn a_step_lasts_from_one_marker_to_the_next() {
        assert_eq!(steps("NEURON"), [(0, 10, 20), (1, 20, 31)]);
        assert_eq!(steps("XLA"), []);
    }
}
