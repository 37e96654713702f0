//! Steps of PyTorch/XLA programs, on Neuron devices too, for which the runtime records only the ends:
//! `StepMarker` is the call that compiles, loads and runs the graph that the program has traced since the
//! previous one. A step therefore lasts from the end of one marker to the end of the next; the first one starts
//! with the first slice of its thread. Markers with nothing between them end one step, and markers before all
//! other slices end none. Where the file shows which markers run a graph, one that runs none belongs to the step
//! before it: `torch_xla.step()` marks where its block begins, too. Steps are numbered from 0 in the order of time.

use rustc_hash::FxHashSet;
use stepscope_model::{NameId, SliceFlags, Time, TrackKind};
use stepscope_store::{Trace, Track};

use super::marker::Marker;

/// The name that PyTorch/XLA gives it.
pub(crate) const STEP_MARKER: &str = "StepMarker";
/// The call inside that runs the graph.
const RUNS_GRAPH: &str = "ScheduleSyncTensorsGraph";

/// Returns the steps of the files that mark no numbered step, in order of their start.
pub(super) fn step_markers(trace: &Trace, has_steps: impl Fn(usize) -> bool) -> Vec<Marker> {
    let mut found = Vec::new();
    for number in 0..trace.files().len() {
        if has_steps(number) {
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
    let known: FxHashSet<NameId> = slices.name.iter().copied().collect();
    let called = |text: &str| -> FxHashSet<NameId> {
        let names = known.iter().copied();
        names.filter(|name| trace.name(*name) == text).collect()
    };
    let (names, runs) = (called(STEP_MARKER), called(RUNS_GRAPH));
    let mut found: Vec<Marker> = Vec::new();
    let Some(mut start) = slices.start.first().copied() else {
        return found;
    };
    if names.is_empty() {
        return found;
    }
    let starts = slices.name.iter().zip(slices.start);
    let runs: Vec<Time> = starts
        .filter_map(|(name, start)| runs.contains(name).then_some(*start))
        .collect();
    let runs_graph = |index: usize| {
        let later = runs.partition_point(|run| *run < slices.start[index]);
        runs.is_empty() || runs.get(later).is_some_and(|run| *run < slices.end(index))
    };
    let mut any_work = false;
    for index in 0..slices.len() {
        let end = slices.end(index);
        if !names.contains(&slices.name[index]) || end <= start {
            any_work |= slices.start[index] >= start;
            continue;
        }
        if !std::mem::take(&mut any_work) || !runs_graph(index) {
            if let Some(last) = found.last_mut() {
                last.end = end;
            }
            start = end;
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
    use stepscope_model::{Dur, Epoch, EventSink, SliceIn, Time};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    fn steps(slices: &[(&str, i64, i64)]) -> Vec<(i64, i64, i64)> {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        let thread = sink.track("python3");
        for (name, start, length) in slices {
            let slice = SliceIn {
                start: Time::from_ps(*start),
                dur: Dur::from_ps(*length),
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
        let slices = [
            ("model_build", 10, 5),
            (STEP_MARKER, 16, 4),
            ("model_build", 21, 5),
            (STEP_MARKER, 27, 4),
        ];
        assert_eq!(steps(&slices), [(0, 10, 20), (1, 20, 31)]);
        assert_eq!(steps(&slices[..1]), []);
    }

    #[test]
    fn markers_that_run_no_graph_belong_to_the_step_before() {
        let mut slices = vec![("initialise", 0, 5), (STEP_MARKER, 6, 2)];
        for step in 1..3 {
            let at = 100 * step;
            slices.extend([
                ("forward", at, 20),
                (STEP_MARKER, at + 30, 10),
                (RUNS_GRAPH, at + 32, 5),
                ("wait", at + 42, 1),
                (STEP_MARKER, at + 50, 4),
            ]);
        }
        assert_eq!(steps(&slices), [(0, 8, 154), (1, 154, 254)]);
    }

    #[test]
    fn markers_in_a_row_end_one_step_and_those_before_all_else_none() {
        let slices = [
            (STEP_MARKER, 0, 5),
            ("forward", 10, 5),
            (STEP_MARKER, 16, 4),
            ("inside", 17, 1),
            (STEP_MARKER, 21, 4),
            ("forward", 30, 5),
            (STEP_MARKER, 35, 4),
        ];
        assert_eq!(steps(&slices), [(0, 5, 25), (1, 25, 39)]);
    }
}
