//! `get_potential_stragglers`: the ranks whose last long collective of a step starts last.
//!
//! HTA takes the collectives whose names start with `ncclKernel` (NCCL before 2.19) and that take at least 1 % of
//! a mean step, the last of each (rank, stream, step, name); of those, the (stream, name) whose durations differ
//! most among the ranks (mean over the steps of the standard deviation). In each step the two ranks at which it
//! starts last are potential stragglers. The result is the ranks with most such steps.
//!
//! ```text
//! mean step = (last end - first start of the events of the steps) / number of steps
//! ```
//! A call belongs to the step in which it starts, work to the step of its call. HTA leaves out the last step when
//! there are several, step 0, and stream 0. Ranks with equal counts are in their order here; HTA uses a sort that
//! is not stable.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId, TrackKind};
use stepscope_store::{EventId, Trace};

use super::{FileClock, Row, View, streams, whole_us};
use stepscope_analysis::device::Devices;
use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::{self, Cancel};

/// Number of ranks that HTA names.
const NAMED: usize = 2;

/// Fraction of a mean step below which a collective does not count.
const LEAST: f64 = 0.01;

/// Result of HTA's search.
#[derive(Clone, Debug, PartialEq)]
pub struct Stragglers {
    /// Steps that HTA reads, in order.
    pub steps: Vec<i64>,
    /// The collective that determines the stragglers.
    pub kernel: NameId,
    /// Stream of that collective.
    pub stream: i64,
    /// Number of steps at which a file is among the last, for each file that has the collective.
    pub counts: Vec<(usize, u64)>,
    /// `get_potential_stragglers()`: files, the most suspect first.
    pub named: Vec<usize>,
}

/// The last long collective of one rank at one step.
#[derive(Clone, Copy)]
struct Last {
    start: i64,
    length: i64,
}

/// A collective: its file, stream, step and name.
type Long = (usize, i64, i64, NameId, Last);

/// Steps of one file: number, start, end.
type Steps = Vec<(i64, i64, i64)>;

/// Computes HTA's stragglers; `None` if HTA finds no collective to compare.
pub fn stragglers(
    trace: &Trace,
    devices: &Devices<'_>,
    cancel: &Cancel,
) -> Result<Option<Stragglers>, Cancelled> {
    let is_nccl = |name: NameId| trace.name(name).starts_with("ncclKernel");
    if trace.files().len() < 2
        || trace
            .find_names(&mut |name| name.starts_with("ncclKernel"))
            .is_empty()
    {
        return Ok(None);
    }
    let view = View::from_trace(trace);
    let steps = steps_by_file(trace, &view);
    let numbers: BTreeSet<i64> = steps.iter().flatten().map(|step| step.0).collect();
    if numbers.is_empty() {
        return Ok(None);
    }
    let launches = Launches::from_trace(trace, devices, cancel)?;
    let called_in = |file: usize, call: Option<EventId>| -> Option<i64> {
        let (track, index) = call.and_then(|call| trace.place_of_slice(call))?;
        step_at(&steps[file], whole_us(trace, track, index).0)
    };
    let Some((first, mut last)) = host_span(trace, &steps, cancel)? else {
        return Ok(None);
    };
    // Collectives in the steps, and the end of all work in them.
    let files: Vec<usize> = (0..trace.files().len()).collect();
    let size = trace.event_count() as usize;
    let found = parallel::scan_items(&files, size, cancel, Vec::new, |out, file| {
        let file = *file;
        let mut long: Vec<Long> = Vec::new();
        let mut last = i64::MIN;
        let mut rows: FxHashMap<NameId, Row> = FxHashMap::default();
        for track in streams(trace, file) {
            let stream = trace.tracks().get(track.index()).and_then(|own| own.stream);
            let Some(stream) = stream.filter(|stream| *stream > 0) else {
                continue;
            };
            let slices = trace.slices(track);
            for index in 0..slices.len() {
                let category = slices.category.get(index);
                let row = rows
                    .entry(category)
                    .or_insert_with(|| Row::from_category(trace.name(category)));
                if *row == Row::None {
                    continue;
                }
                let call = launches.get(track, index);
                if !view.includes(trace, file, call) {
                    continue;
                }
                let Some(step) = called_in(file, call) else {
                    continue;
                };
                let (start, end) = whole_us(trace, track, index);
                last = last.max(end);
                let name = slices.name[index];
                if step > 0 && is_nccl(name) {
                    let length = end - start;
                    long.push((file, stream, step, name, Last { start, length }));
                }
            }
        }
        out.push((file, last, long));
    })?;
    let mut found: Vec<(usize, i64, Vec<Long>)> = found.into_iter().flatten().collect();
    found.sort_by_key(|(file, ..)| *file);
    let mut long: Vec<Long> = Vec::new();
    for (_, end, own) in found {
        last = last.max(end);
        long.extend(own);
    }
    let mean_step = (last - first) as f64 / numbers.len() as f64;
    long.retain(|one| one.4.length as f64 >= mean_step * LEAST);
    Ok(judge(&long, &numbers))
}

/// Selects the collective, and the ranks at which it starts last.
fn judge(long: &[Long], numbers: &BTreeSet<i64>) -> Option<Stragglers> {
    // Last call of each file, by (stream, name) and step.
    let mut kinds: BTreeMap<(i64, NameId), BTreeMap<i64, BTreeMap<usize, Last>>> = BTreeMap::new();
    for (file, stream, step, name, one) in long {
        let of_step = kinds.entry((*stream, *name)).or_default();
        let last = of_step
            .entry(*step)
            .or_default()
            .entry(*file)
            .or_insert(*one);
        if one.start >= last.start {
            *last = *one;
        }
    }
    let mut best: Option<((i64, NameId), f64)> = None;
    for (kind, steps) in &kinds {
        let deviations: Vec<f64> = steps
            .values()
            .filter_map(|ranks| deviation(ranks.values().map(|one| one.length as f64)))
            .collect();
        if deviations.is_empty() {
            continue;
        }
        let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
        if best.is_none_or(|(_, most)| mean > most) {
            best = Some((*kind, mean));
        }
    }
    let ((stream, kernel), _) = best?;
    let steps = kinds.get(&(stream, kernel))?;
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for ranks in steps.values() {
        let mut starts: Vec<i64> = ranks.values().map(|one| one.start).collect();
        starts.sort_unstable_by_key(|start| std::cmp::Reverse(*start));
        let limit = starts.get(NAMED - 1).or(starts.last()).copied();
        for (file, one) in ranks {
            *counts.entry(*file).or_default() +=
                u64::from(limit.is_some_and(|limit| one.start >= limit));
        }
    }
    let counts: Vec<(usize, u64)> = counts.into_iter().collect();
    let mut order = counts.clone();
    order.sort_by_key(|(file, count)| (std::cmp::Reverse(*count), *file));
    Some(Stragglers {
        steps: numbers.iter().copied().collect(),
        kernel,
        stream,
        named: order.iter().take(NAMED).map(|(file, _)| *file).collect(),
        counts,
    })
}

/// Computes the sample's standard deviation; `None` with fewer than two values.
fn deviation(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count();
    if count < 2 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / count as f64;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1) as f64).sqrt())
}

/// Lists the profiler's steps of each file, in order, without those that HTA leaves out.
fn steps_by_file(trace: &Trace, view: &View) -> Vec<Steps> {
    let mut steps: Vec<Steps> = vec![Vec::new(); trace.files().len()];
    for mark in trace.step_marks() {
        let Some((track, index)) = trace.place_of_slice(mark.event) else {
            continue;
        };
        let slices = trace.slices(track);
        let own = trace.tracks().get(track.index());
        let Some(own) = own.filter(|own| own.kind == TrackKind::Thread) else {
            continue;
        };
        if !trace.name(slices.name[index]).starts_with("ProfilerStep") {
            continue;
        }
        let (start, end) = whole_us(trace, track, index);
        if view.last_step[own.file].is_none_or(|last| start < last) {
            steps[own.file].push((mark.number, start, end));
        }
    }
    for own in &mut steps {
        own.sort_by_key(|step| step.1);
    }
    steps
}

/// Returns the step that contains this time.
fn step_at(steps: &Steps, at: i64) -> Option<i64> {
    let after = steps.partition_point(|step| step.1 <= at);
    let (number, _, end) = steps.get(after.checked_sub(1)?)?;
    (at < *end).then_some(*number)
}

/// Returns the first start and the last end of the host events that started in the steps, over all files.
fn host_span(
    trace: &Trace,
    steps: &[Steps],
    cancel: &Cancel,
) -> Result<Option<(i64, i64)>, Cancelled> {
    let tracks = trace.tracks().iter();
    let chunks = parallel::track_chunks(
        tracks
            .filter(|track| track.kind == TrackKind::Thread && !track.derived && track.slices > 0)
            .map(|track| (track.id, 0..track.slices as usize)),
    );
    let found = parallel::scan(
        &chunks,
        cancel,
        || None,
        |span: &mut Option<(i64, i64)>, chunk| {
            let Some(own) = trace.tracks().get(chunk.track.index()) else {
                return;
            };
            let steps = &steps[own.file];
            let slices = trace.slices(chunk.track);
            let clock = FileClock::from_track(trace, chunk.track);
            let mut is_row = (None, false);
            // Slices are in order of their starts, and so are the steps that contain them.
            let mut at = 0;
            for index in chunk.indexes.clone() {
                let (start, end) = clock.whole_us(slices.start[index], slices.dur[index]);
                while steps.get(at).is_some_and(|step| step.2 <= start) {
                    at += 1;
                }
                if steps.get(at).is_none_or(|step| start < step.1) {
                    continue;
                }
                let category = slices.category.get(index);
                if is_row.0 != Some(category) {
                    is_row = (
                        Some(category),
                        !matches!(trace.name(category), "" | "Trace"),
                    );
                }
                if !is_row.1 {
                    continue;
                }
                *span = Some(span.map_or((start, end), |(first, last)| {
                    (first.min(start), last.max(end))
                }));
            }
        },
    )?;
    Ok(found
        .into_iter()
        .flatten()
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(file: usize, step: i64, start: i64, length: i64) -> (usize, i64, i64, NameId, Last) {
        (file, 7, step, NameId(1), Last { start, length })
    }

    #[test]
    fn two_most_frequent_last_ranks_are_named() {
        let numbers = BTreeSet::from([1, 2]);
        let long = [
            one(0, 1, 10, 90),
            one(1, 1, 40, 60),
            one(2, 1, 80, 20),
            one(0, 2, 110, 90),
            one(1, 2, 190, 10),
            one(2, 2, 170, 30),
            // Not the last call of its rank and step.
            one(0, 1, 9, 99),
        ];
        let found = judge(&long, &numbers).unwrap();
        assert_eq!(found.counts, [(0, 0), (1, 2), (2, 2)]);
        assert_eq!((found.named, found.stream), (vec![1, 2], 7));
        assert_eq!(
            judge(&[one(0, 1, 10, 90)], &numbers),
            None,
            "nobody to compare with"
        );
    }

    #[test]
    fn timestamp_lies_in_one_step() {
        let steps = vec![(3, 0, 10), (4, 10, 20)];
        assert_eq!(step_at(&steps, 9), Some(3));
        assert_eq!(step_at(&steps, 10), Some(4));
        assert_eq!(step_at(&steps, 20), None);
        assert_eq!(step_at(&steps, -1), None);
    }
}
