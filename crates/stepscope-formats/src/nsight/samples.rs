//! Sampled stacks of threads: `COMPOSITE_EVENTS` with the frames of `SAMPLING_CALLCHAINS`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::sample::TRACK_ENDING;
use stepscope_model::{Cancelled, Dur, EventSink, NameId, Time, TrackId, TrackKind, TrackPatch};

use super::export::{Column, GlobalId, SAMPLE_STACKS, SAMPLES};
use super::part::{global_id, time_of};
use super::reading::Reading;
use super::sqlite::RowReader;
use super::strings::Names;
use crate::sampling::{self, SampleTable, SampledTrack, SliceBudget, sample_end};

/// One sample.
struct Sample {
    id: i64,
    at: Time,
    thread: GlobalId,
    /// Processor cycles since the last sample of the thread.
    cycles: i64,
    /// Its frames in [`Stacks::frames`].
    frames: (u32, u32),
}

/// A frame: its function and the file of its code, as numbers of texts.
type Frame = (i64, i64);

/// Emits the sampled stacks: a row for each thread, and the samples summed by stack.
pub(super) fn emit<S: EventSink>(
    reading: &mut Reading<'_, '_>,
    sink: &mut S,
) -> Result<(), Cancelled> {
    let mut samples = read_samples(reading)?;
    if samples.is_empty() {
        return Ok(());
    }
    let frames = read_stacks(reading, &mut samples)?;
    sink_samples(reading, &samples, &frames, sink)
}

fn read_samples(reading: &mut Reading<'_, '_>) -> Result<Vec<Sample>, Cancelled> {
    let export = reading.export;
    let mut samples = Vec::new();
    let Some(table) = export.table(SAMPLES) else {
        return Ok(samples);
    };
    let [id, start, thread, cycles] =
        ["id", "start", "globalTid", "cpuCycles"].map(|name| Column::new(table, name));
    let origin_ns = reading.origin_ns;
    let counts = &mut reading.counts;
    let seen = (&mut reading.pages, &mut reading.losses);
    export.scan_new(table, reading.context, seen, |fields| {
        let at = start.int(fields).and_then(|ns| time_of(ns, origin_ns));
        let (Some(id), Some(at)) = (id.int(fields), at) else {
            counts.no_time += 1;
            return;
        };
        samples.push(Sample {
            id,
            at,
            thread: global_id(thread, fields),
            cycles: cycles.int(fields).unwrap_or(0).max(0),
            frames: (0, 0),
        });
    })?;
    Ok(samples)
}

/// Reads the stacks of the samples. Returns their frames, innermost first, and sets the ranges of the samples.
fn read_stacks(
    reading: &mut Reading<'_, '_>,
    samples: &mut [Sample],
) -> Result<Vec<Frame>, Cancelled> {
    let export = reading.export;
    let Some(table) = export.table(SAMPLE_STACKS) else {
        return Ok(Vec::new());
    };
    let [id, symbol, module, depth] =
        ["id", "symbol", "module", "stackDepth"].map(|name| Column::new(table, name));
    // Sample, depth, frame.
    let mut rows: Vec<(i64, i64, Frame)> = Vec::new();
    let seen = (&mut reading.pages, &mut reading.losses);
    export.scan_new(table, reading.context, seen, |fields| {
        if let (Some(id), Some(symbol)) = (id.int(fields), symbol.int(fields)) {
            let frame = (symbol, module.int(fields).unwrap_or(-1));
            rows.push((id, depth.int(fields).unwrap_or(0), frame));
        }
    })?;
    rows.sort_by_key(|(id, depth, _)| (*id, *depth));
    let mut ranges: FxHashMap<i64, (u32, u32)> = FxHashMap::default();
    for (at, (id, ..)) in (0_u32..).zip(&rows) {
        ranges.entry(*id).or_insert((at, at)).1 = at + 1;
    }
    for sample in samples {
        sample.frames = ranges.get(&sample.id).copied().unwrap_or_default();
    }
    Ok(rows.into_iter().map(|(.., frame)| frame).collect())
}

fn sink_samples<S: EventSink>(
    reading: &mut Reading<'_, '_>,
    samples: &[Sample],
    frames: &[Frame],
    sink: &mut S,
) -> Result<(), Cancelled> {
    let file_bytes = reading.export.database.byte_count();
    let mut reader = RowReader::new(&reading.export.database);
    let mut table = SampleTable::new(&[("samples", "count"), ("cpu cycles", "count")], file_bytes);
    let mut locations: FxHashMap<Frame, u32> = FxHashMap::default();
    let mut threads: BTreeMap<GlobalId, Vec<usize>> = BTreeMap::new();
    let mut stack = Vec::new();
    for (number, sample) in samples.iter().enumerate() {
        if number % 4_096 == 0 {
            reading.context.advance(0)?;
        }
        stack.clear();
        for frame in frames_of(sample, frames) {
            let location = locations.entry(*frame).or_insert_with(|| {
                let text = |id: i64, reader: &mut RowReader<'_, '_>| {
                    reading.strings.get(reader, id).unwrap_or_default()
                };
                let (symbol, module) = (text(frame.0, &mut reader), text(frame.1, &mut reader));
                table.location(&symbol, &module, 0, 0)
            });
            stack.push(*location);
        }
        let GlobalId { pid, tid } = sample.thread;
        let labels = table.labels(&[("process", &pid.to_string()), ("thread", &tid.to_string())]);
        table.add(&stack, &[1, sample.cycles], labels);
        threads.entry(sample.thread).or_default().push(number);
    }
    for numbers in threads.values_mut() {
        numbers.sort_by_key(|number| samples[*number].at);
    }
    let interval = interval(threads.values(), samples);
    // A frame takes more than two bytes, so that half of the file's size is room for all of an undamaged file.
    let mut budget = SliceBudget::new(file_bytes / 2);
    let mut names = Names::default();
    let max_tracks = reading.context.limits.max_tracks as usize;
    for (thread, numbers) in &threads {
        reading.context.advance(0)?;
        if reading.rows.len() >= max_tracks {
            reading.counts.too_many_rows += numbers.len() as u64;
            continue;
        }
        let mut timeline = SampledTrack::new(track(*thread, reading, &mut reader, sink));
        for (at, number) in numbers.iter().enumerate() {
            let sample = &samples[*number];
            let next = numbers.get(at + 1).map(|next| samples[*next].at);
            let end = sample_end(sample.at, next, interval);
            let stack: Vec<NameId> = frames_of(sample, frames)
                .iter()
                .rev()
                .map(|(symbol, _)| {
                    let known = names.get(*symbol, reading.strings, &mut reader, sink);
                    known.unwrap_or_else(|| sink.name("[Unknown]"))
                })
                .collect();
            let stack = stack.into_iter().map(|name| (name, NameId::EMPTY));
            timeline.add(stack, sample.at, end, &mut budget, sink);
        }
        timeline.finish(&mut budget, sink);
    }
    sampling::diagnose_limits(sink, &budget, table.stacks_left_out());
    sink.profile(table.finish());
    Ok(())
}

/// Returns the frames of a sample, innermost first.
fn frames_of<'f>(sample: &Sample, frames: &'f [Frame]) -> &'f [Frame] {
    let (start, end) = sample.frames;
    frames.get(start as usize..end as usize).unwrap_or_default()
}

/// Returns the median time between two samples of a thread.
fn interval<'n>(threads: impl Iterator<Item = &'n Vec<usize>>, samples: &[Sample]) -> Dur {
    let mut gaps: Vec<Dur> = threads
        .flat_map(|numbers| numbers.windows(2))
        .map(|pair| samples[pair[1]].at.since(samples[pair[0]].at))
        .collect();
    let middle = gaps.len() / 2;
    if gaps.is_empty() {
        return Dur::ZERO;
    }
    *gaps.select_nth_unstable(middle).1
}

/// Describes the row of the samples of a thread.
fn track<S: EventSink>(
    thread: GlobalId,
    reading: &Reading<'_, '_>,
    reader: &mut RowReader<'_, '_>,
    sink: &mut S,
) -> TrackId {
    let GlobalId { pid, tid } = thread;
    let number = reading.target.threads.get(&thread);
    let name = number.and_then(|number| reading.strings.get(reader, *number));
    let name = name.map_or_else(
        || format!("thread {tid}{TRACK_ENDING}"),
        |name| format!("{name} {tid}{TRACK_ENDING}"),
    );
    let track = sink.track(&format!("{pid}/{tid}/sampled"));
    sink.describe(
        track,
        TrackPatch {
            name: Some(&name),
            kind: Some(TrackKind::Thread),
            pid: Some(i64::from(pid)),
            tid: Some(i64::from(tid)),
            ..TrackPatch::default()
        },
    );
    track
}
