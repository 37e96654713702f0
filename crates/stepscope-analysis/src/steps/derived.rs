//! Steps derived from the most regular repetition in each file, where the program marks none.
//!
//! Three sources are searched, in this order:
//!
//! 1. **Lines of programs** of a device: the program with the most time, if it ran at least
//!    [`FEWEST`] times.
//! 2. **Executions of programs** on the host (`jit_f:XLA GPU module`, else `PjitFunction(f)`), in files
//!    whose devices worked: the program with the most time there, if it ran at least [`FEWEST`] times
//!    and holds [`DOMINANCE`] of the time of all executions.
//! 3. **Threads** (the busiest first): the name with the most time among slices at most [`DEEPEST`] levels down
//!    that comes at least [`FEWEST`] times, covers at least [`COVERAGE`] of the time from its first start to its
//!    last end, and whose distances from start to start vary by less than [`UNEVENNESS`] of their mean.
//!
//! A program execution is a step from its start to the start of the next one, the last one to its own end; a
//! slice of a thread is a step itself. Operators, waits (`block_until_ready`, synchronisation), compilation and
//! runtime calls are no steps, nor is a repetition in only a short part of the run: from the first start to the
//! last end it must take [`EXTENT`] of the run, or include [`DEVICE_WORK`] of all work of the devices. Files in
//! which another name repeats have no derived steps.
//!
//! Derived steps are labelled as derived wherever they are shown.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::sample::is_sampled_track;
use stepscope_model::vocabulary::xla::DeviceLine;
use stepscope_model::{Dur, NameId, SliceFlags, SliceKind, Time, TrackKind};
use stepscope_store::{Trace, Track};

use super::marker::Marker;
use crate::slice_class::is_operator;

/// Minimum number of repetitions of a pattern.
const FEWEST: usize = 3;
/// Maximum nesting depth of a pattern.
const DEEPEST: u16 = 3;
/// Minimum fraction of the time that a pattern covers.
const COVERAGE: f64 = 0.5;
/// Maximum standard deviation of the distances between starts, over their mean.
const UNEVENNESS: f64 = 1.0;
/// Minimum fraction of the run from the first start to the last end.
const EXTENT: f64 = 0.1;
/// Minimum fraction of the time of all executions that one program takes.
const DOMINANCE: f64 = 0.5;
/// Minimum fraction of the devices' work in a pattern that is shorter than [`EXTENT`].
const DEVICE_WORK: f64 = 0.5;
/// Maximum number of threads that are searched.
const THREADS: usize = 8;

/// Derived steps, and the name that repeats.
pub(super) struct Derived {
    pub(super) markers: Vec<Marker>,
    pub(super) name: String,
}

pub(super) fn derive(trace: &Trace) -> Option<Derived> {
    let mut found: Option<Derived> = None;
    for file in 0..trace.files().len() {
        let own = by_programs(trace, file)
            .or_else(|| by_executions(trace, file))
            .or_else(|| by_labels(trace, file));
        let Some(own) = own else { continue };
        match &mut found {
            None => found = Some(own),
            Some(found) if found.name == own.name => found.markers.extend(own.markers),
            Some(_) => {}
        }
    }
    if let Some(found) = &mut found {
        found
            .markers
            .sort_by_key(|marker| (marker.start, marker.file, marker.track, marker.index));
    }
    found
}

/// Builds the marker of each run of a program: it lasts until the next one starts.
fn runs_of_program(trace: &Trace, track: &Track, runs: &[usize]) -> Vec<Marker> {
    let slices = trace.slices(track.id);
    let markers = runs.iter().enumerate().map(|(number, index)| Marker {
        number: i64::try_from(number).unwrap_or(i64::MAX),
        file: track.file,
        process: None,
        track: track.id,
        index: *index,
        start: slices.start[*index],
        end: match runs.get(number + 1) {
            Some(next) => slices.start[*next],
            None => slices.end(*index),
        },
        unfinished: false,
    });
    markers.collect()
}

/// Sums of one name.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: usize,
    total_ps: i128,
}

fn sums(trace: &Trace, track: &Track, deepest: u16) -> Vec<(NameId, Sum)> {
    let slices = trace.slices(track.id);
    let mut found: FxHashMap<NameId, Sum> = FxHashMap::default();
    for index in 0..slices.len() {
        if slices.depth[index] <= deepest {
            let sum = found.entry(slices.name[index]).or_default();
            sum.count += 1;
            sum.total_ps += i128::from(slices.dur[index].ps());
        }
    }
    let mut found: Vec<_> = found
        .into_iter()
        .filter(|(_, sum)| sum.count >= FEWEST && sum.total_ps > 0)
        .collect();
    found.sort_unstable_by_key(|(name, sum)| (std::cmp::Reverse(sum.total_ps), *name));
    found
}

fn by_programs(trace: &Trace, file: usize) -> Option<Derived> {
    // The first device with such a line represents all devices of the file.
    let track = trace.tracks().iter().find(|track| {
        track.file == file
            && track.kind == TrackKind::DeviceQueue
            && !track.derived
            && DeviceLine::from_name(&track.name) == DeviceLine::Modules
            && track.slices > 0
    })?;
    let (name, _) = sums(trace, track, 0).into_iter().next()?;
    let slices = trace.slices(track.id);
    let runs: Vec<usize> = (0..slices.len())
        .filter(|index| slices.name[*index] == name)
        .collect();
    Some(Derived {
        markers: runs_of_program(trace, track, &runs),
        name: trace.name(name).to_owned(),
    })
}

/// Kind of host slice that executes a compiled program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Execution {
    /// The runtime executes a compiled program.
    Module,
    /// Python calls a compiled function.
    Call,
}

fn execution(name: &str) -> Option<Execution> {
    if name.ends_with(":XLA GPU module") || name.starts_with("XlaModule:") {
        Some(Execution::Module)
    } else if name.starts_with("PjitFunction(") {
        Some(Execution::Call)
    } else {
        None
    }
}

fn by_executions(trace: &Trace, file: usize) -> Option<Derived> {
    let tracks = || {
        trace
            .tracks()
            .iter()
            .filter(move |track| track.file == file)
    };
    let worked = tracks()
        .any(|track| track.kind == TrackKind::DeviceQueue && !track.derived && track.slices > 0);
    if !worked {
        return None;
    }
    let known: FxHashMap<NameId, Execution> = trace
        .find_names(&mut |name| execution(name).is_some())
        .into_iter()
        .filter_map(|name| Some((name, execution(trace.name(name))?)))
        .collect();
    if known.is_empty() {
        return None;
    }
    let threads = || tracks().filter(|track| records_calls(track));
    [Execution::Module, Execution::Call]
        .into_iter()
        .find_map(|wanted| {
            let is = |name: NameId| known.get(&name) == Some(&wanted);
            threads().find_map(|track| executions_on(trace, track, is))
        })
}

/// Finds the program that a thread executes most, if it takes most of the time of all executions there.
fn executions_on(trace: &Trace, track: &Track, is: impl Fn(NameId) -> bool) -> Option<Derived> {
    let slices = trace.slices(track.id);
    let mut runs: FxHashMap<NameId, (i128, Vec<usize>)> = FxHashMap::default();
    let mut all_ps = 0_i128;
    let mut until = Time::MIN;
    for index in 0..slices.len() {
        // A call inside a call of another layer is the same execution.
        if !is(slices.name[index]) || slices.start[index] < until {
            continue;
        }
        until = slices.end(index);
        let dur = i128::from(slices.dur[index].ps());
        all_ps += dur;
        let (sum, runs) = runs.entry(slices.name[index]).or_default();
        *sum += dur;
        runs.push(index);
    }
    let (name, (sum, runs)) = runs
        .into_iter()
        .max_by_key(|(name, (sum, _))| (*sum, std::cmp::Reverse(*name)))?;
    if runs.len() < FEWEST || (sum as f64) < all_ps as f64 * DOMINANCE {
        return None;
    }
    let (first, last) = (*runs.first()?, *runs.last()?);
    matters(trace, slices.start[first]..slices.end(last)).then(|| Derived {
        markers: runs_of_program(trace, track, &runs),
        name: trace.name(name).to_owned(),
    })
}

/// Returns whether the slices of a track are what a thread did: one slice of samples may be many calls, or a part of
/// one.
fn records_calls(track: &Track) -> bool {
    track.kind == TrackKind::Thread && !track.derived && !is_sampled_track(&track.name)
}

fn by_labels(trace: &Trace, file: usize) -> Option<Derived> {
    let mut threads: Vec<&Track> = trace
        .tracks()
        .iter()
        .filter(|track| track.file == file && records_calls(track) && track.slices > 0)
        .collect();
    threads.sort_by_key(|track| (std::cmp::Reverse(track.busy), track.id));
    threads.truncate(THREADS);
    threads.into_iter().find_map(|track| by_label(trace, track))
}

fn by_label(trace: &Trace, track: &Track) -> Option<Derived> {
    let slices = trace.slices(track.id);
    for (name, sum) in sums(trace, track, DEEPEST).into_iter().take(16) {
        let runs: Vec<usize> = (0..slices.len())
            .filter(|index| slices.name[*index] == name && slices.depth[*index] <= DEEPEST)
            .collect();
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            continue;
        };
        let kind = trace.kind(track.id, name, slices.category.get(*first));
        let operator = is_operator(trace.name(slices.category.get(*first)));
        if operator
            || is_wait(trace.name(name))
            || !matches!(
                kind,
                SliceKind::Host | SliceKind::UserLabel | SliceKind::Other
            )
        {
            continue;
        }
        let span = slices.end(*last).since(slices.start[*first]).ps();
        let covered = sum.total_ps as f64 / (span as f64).max(1.0);
        let nested = runs
            .windows(2)
            .any(|pair| slices.end(pair[0]) > slices.start[pair[1]]);
        let gaps: Vec<Dur> = runs
            .windows(2)
            .map(|pair| slices.start[pair[1]].since(slices.start[pair[0]]))
            .collect();
        if nested || covered < COVERAGE || unevenness(&gaps) > UNEVENNESS {
            continue;
        }
        if !matters(trace, slices.start[*first]..slices.end(*last)) {
            continue;
        }
        let markers = (0..).zip(&runs).map(|(number, index)| Marker {
            number,
            file: track.file,
            process: None,
            track: track.id,
            index: *index,
            start: slices.start[*index],
            end: slices.end(*index),
            unfinished: trace
                .slice_flags(track.id, *index)
                .contains(SliceFlags::UNFINISHED),
        });
        return Some(Derived {
            markers: markers.collect(),
            name: trace.name(name).to_owned(),
        });
    }
    None
}

/// Returns whether a function of this name waits for other activity.
fn is_wait(name: &str) -> bool {
    const WAITS: [&str; 6] = [
        "block_until_ready",
        "blockhostuntil",
        "synchronize",
        "await",
        "wait",
        "join",
    ];
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.any(|word| {
        WAITS
            .iter()
            .any(|wait| word == *wait || word.trim_matches('_') == *wait)
            || word.contains(WAITS[0])
            || word.contains(WAITS[1])
            || word.ends_with(WAITS[2])
    })
}

/// Returns whether a repetition in this range represents the run.
fn matters(trace: &Trace, range: Range<Time>) -> bool {
    let fraction = |of: i128, whole: i128| of as f64 / (whole as f64).max(1.0);
    let whole = trace.span();
    let length = range.end.since(range.start).ps().into();
    if fraction(length, whole.end.since(whole.start).ps().into()) >= EXTENT {
        return true;
    }
    let queues = trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::DeviceQueue && !track.derived);
    let (mut inside, mut all) = (0_i128, 0_i128);
    for queue in queues {
        let slices = trace.slices(queue.id);
        let sum = |durs: &[Dur]| durs.iter().map(|dur| i128::from(dur.ps())).sum::<i128>();
        let from = slices.start.partition_point(|start| *start < range.start);
        let to = slices.start.partition_point(|start| *start < range.end);
        inside += sum(&slices.dur[from..to.max(from)]);
        all += sum(slices.dur);
    }
    all > 0 && fraction(inside, all) >= DEVICE_WORK
}

/// Computes the standard deviation over the mean.
fn unevenness(gaps: &[Dur]) -> f64 {
    let count = gaps.len().max(1) as f64;
    let mean = gaps.iter().map(|gap| gap.as_ns_f64()).sum::<f64>() / count;
    let squares = gaps.iter().map(|gap| (gap.as_ns_f64() - mean).powi(2));
    if mean > 0.0 {
        (squares.sum::<f64>() / count).sqrt() / mean
    } else {
        f64::MAX
    }
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;

    #[test]
    fn waits_are_no_steps() {
        for (name, expected) in [
            ("$api.py:3105 block_until_ready", true),
            ("jax/_src/array.py(630): _block_until_ready", true),
            ("torch/cuda/__init__.py(954): synchronize", true),
            ("threading.py(1016): join", true),
            ("train_step", false),
            ("waiting_room_model", false),
        ] {
            assert_eq!(is_wait(name), expected, "{name}");
        }
        let trace =
            ascii_trace::trace("main | block_until_ready- block_until_ready- block_until_ready-");
        assert!(derive(&trace).is_none());
    }

    #[test]
    fn executions_of_the_dominant_program_are_steps_until_the_next() {
        let found = |drawing: &str| {
            let derived = derive(&ascii_trace::trace(drawing))?;
            let us = |marker: &Marker| marker.end.since(marker.start).ps() / 1_000_000;
            Some((
                derived.name,
                derived.markers.iter().map(us).collect::<Vec<_>>(),
            ))
        };
        let drawing = "
            main      | PjitFunction(f)- other---  PjitFunction(f)-   PjitFunction(f)-
                      |  PjitFunction(f)            PjitFunction(f)    PjitFunction(f)
            gpu/7 #device |        fusion---              fusion---             fusion---
            ";
        assert_eq!(
            found(drawing),
            Some(("PjitFunction(f)".to_owned(), vec![27, 19, 16]))
        );
        // Many small programs are no steps.
        let drawing = "
            main      | PjitFunction(f) PjitFunction(g) PjitFunction(h) PjitFunction(f) PjitFunction(g) PjitFunction(f)
            gpu/7 #device |        fusion---              fusion---             fusion---
            ";
        assert_eq!(found(drawing).map(|found| found.1.len()), Some(3));
        let drawing = "
            main      | PjitFunction(f) PjitFunction(g) PjitFunction(h) PjitFunction(f) PjitFunction(g) PjitFunction(h) PjitFunction(f)
            gpu/7 #device |        fusion---              fusion---             fusion---
            ";
        assert_eq!(found(drawing), None);
    }

    #[test]
    fn samples_are_no_steps() {
        use stepscope_model::{EventSink, TrackPatch};
        let found = |name: Option<&str>| {
            let mut builder = stepscope_store::TraceBuilder::new();
            let mut sink = builder.file(stepscope_store::FileSpec::default());
            ascii_trace::emit("main | f---- f---- f---- f---- f---- f----", &mut sink);
            let track = sink.track("main");
            let patch = TrackPatch {
                name,
                ..TrackPatch::default()
            };
            sink.describe(track, patch);
            builder.add(sink);
            derive(&builder.finish()).is_some()
        };
        assert!(found(None));
        assert!(!found(Some("main (sampled)")));
    }
}
