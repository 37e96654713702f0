//! Emission of threads: samples with stacks, a track of sampled slices, a track of markers.

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgRef, ArgValue, Diagnostic, Dur, Epoch, EventSink, InstantIn, NameId, ReadContext,
    SliceFlags, SliceIn, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use super::File;
use super::tables::{NONE, Tables};
use super::thread::{Markers, Thread, WeightType};
use crate::FormatError;
use crate::cprofile::truncated;
use crate::losses;
use crate::sampling::{self, SampleTable, SampledTrack, SliceBudget, sample_end};
use stepscope_model::vocabulary::sample::TRACK_ENDING;

/// Number of samples or markers between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;

/// Phases of markers.
mod phase {
    pub(super) const INSTANT: i64 = 0;
    pub(super) const INTERVAL: i64 = 1;
    pub(super) const START: i64 = 2;
    pub(super) const END: i64 = 3;
}

/// Counts of what was left out.
#[derive(Default)]
struct Losses {
    no_stack: u64,
    no_name: u64,
    bad_weights: u64,
    bad_times: u64,
    old_markers: u64,
    bad_markers: u64,
    negative: u64,
    unmatched: u64,
    unfinished: u64,
}

struct Emitter<'a, S> {
    bytes: &'a [u8],
    file: &'a File,
    source: SourceId,
    context: &'a ReadContext,
    sink: &'a mut S,
    /// Samples and time.
    table: SampleTable,
    /// Samples of sizes.
    sizes: SampleTable,
    /// Factor from the unit of CPU times to nanoseconds; `None` without CPU times.
    cpu_ns: Option<i64>,
    budget: SliceBudget,
    losses: Losses,
}

/// Emits all threads.
pub(super) fn emit<S: EventSink>(
    bytes: &[u8],
    file: &File,
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let unix_ns = file.start_ps.map(|ps| ps.div_euclid(1_000));
    sink.epoch(Epoch {
        origin_ns: 0,
        unix_ns: unix_ns
            .and_then(|ns| i64::try_from(ns).ok())
            .filter(|ns| *ns > 0),
    });
    if !file.product.is_empty() {
        sink.fact("product", ArgValue::Str(&truncated(&file.product)));
    }
    if let Ok(interval_ns) = i64::try_from(file.interval_ps() / 1_000) {
        sink.fact("interval_ns", ArgValue::Int(interval_ns));
    }
    let cpu_ns = match &*file.cpu_unit {
        "ns" => Some(1),
        "µs" => Some(1_000),
        _ => None,
    };
    let types = [
        ("samples", "count"),
        ("time", "nanoseconds"),
        ("cpu", "nanoseconds"),
    ];
    let count = if cpu_ns.is_some() { 3 } else { 2 };
    let mut table = SampleTable::new(&types[..count], bytes.len());
    table.show_first(1);
    let mut sizes = SampleTable::new(&[("samples", "count"), ("memory", "bytes")], bytes.len());
    sizes.show_first(1);
    let mut emitter = Emitter {
        bytes,
        file,
        source,
        context,
        sink,
        table,
        sizes,
        cpu_ns,
        budget: SliceBudget::new(bytes.len()),
        losses: Losses::default(),
    };
    for (number, at) in file.threads.iter().enumerate() {
        context.advance(0)?;
        // A fault was found and counted when the offsets were collected.
        let (thread, _) = Thread::read(bytes, *at);
        emitter.thread(number, &thread)?;
    }
    let Emitter {
        table,
        sizes,
        budget,
        losses,
        ..
    } = emitter;
    let stacks_left_out = table.stacks_left_out() + sizes.stacks_left_out();
    for one in [table, sizes] {
        if !one.is_empty() {
            sink.profile(one.finish());
        }
    }
    losses.diagnose(sink, &budget, stacks_left_out);
    Ok(())
}

/// Values of the samples of one stack.
#[derive(Clone, Copy, Default)]
struct StackSums {
    samples: i64,
    value: i64,
    cpu: i64,
}

impl<S: EventSink> Emitter<'_, S> {
    fn thread(&mut self, number: usize, thread: &Thread) -> Result<(), FormatError> {
        let tables = if thread.tables.has_stacks() {
            &thread.tables
        } else {
            &self.file.shared
        };
        self.samples(thread, tables)?;
        if !self.file.is_size_profile {
            self.timeline(number, thread, tables)?;
        }
        self.markers(number, thread)
    }

    /// Adds the samples of a thread to the table, one entry for each stack.
    fn samples(&mut self, thread: &Thread, tables: &Tables) -> Result<(), FormatError> {
        let samples = &thread.samples;
        let interval_ns = i64::try_from(self.file.interval_ps() / 1_000).unwrap_or(i64::MAX);
        let mut sums: FxHashMap<i64, StackSums> = FxHashMap::default();
        let mut order: Vec<i64> = Vec::new();
        for (at, stack) in samples.stack.iter().enumerate() {
            let Some(weight) = samples.weight(self.bytes, at) else {
                self.losses.bad_weights += 1;
                continue;
            };
            let (count, value) = match samples.weight_type {
                WeightType::Samples => (weight, weight.saturating_mul(interval_ns)),
                WeightType::Time | WeightType::Bytes => (1, weight),
            };
            let cpu = Markers::number(&samples.cpu, at).max(0);
            let sum = sums.entry(*stack).or_insert_with(|| {
                order.push(*stack);
                StackSums::default()
            });
            sum.samples = sum.samples.saturating_add(count);
            sum.value = sum.value.saturating_add(value);
            sum.cpu = sum
                .cpu
                .saturating_add(cpu.saturating_mul(self.cpu_ns.unwrap_or(0)));
        }
        let is_sizes = samples.weight_type == WeightType::Bytes;
        let table = if is_sizes {
            &mut self.sizes
        } else {
            &mut self.table
        };
        let process = process_label(thread);
        let labels = table.labels(&[("process", &process), ("thread", &thread.name)]);
        let mut locations: FxHashMap<usize, u32> = FxHashMap::default();
        let (mut frames, mut stack) = (Vec::new(), Vec::new());
        for (number, id) in order.into_iter().enumerate() {
            if number % LOOK_EVERY == 0 {
                self.context.advance(0)?;
            }
            self.losses.no_stack += u64::from(!tables.frames_of(id, &mut frames));
            stack.clear();
            for frame in &frames {
                stack.push(*locations.entry(*frame).or_insert_with(|| {
                    let found = tables.frame(&self.file.shared, *frame);
                    self.losses.no_name += u64::from(found.name.is_none());
                    let name = found.name.unwrap_or("(unknown)");
                    table.location(name, found.file, found.first_line, found.line)
                }));
            }
            let sum = sums.get(&id).copied().unwrap_or_default();
            let values = [sum.samples, sum.value, sum.cpu];
            let count = if is_sizes || self.cpu_ns.is_none() {
                2
            } else {
                3
            };
            table.add(&stack, &values[..count], labels);
        }
        Ok(())
    }

    /// Emits the samples of a thread as slices on a track of their own.
    fn timeline(
        &mut self,
        number: usize,
        thread: &Thread,
        tables: &Tables,
    ) -> Result<(), FormatError> {
        let samples = &thread.samples;
        let interval = i64::try_from(self.file.interval_ps()).unwrap_or(i64::MAX);
        let interval = Dur::from_ps(interval);
        let mut times: Vec<(Time, Time, i64)> = Vec::with_capacity(samples.stack.len());
        for (at, stack) in samples.stack.iter().enumerate() {
            let Some(time) = samples.time.get(at).copied().flatten().and_then(to_time) else {
                self.losses.bad_times += 1;
                continue;
            };
            // Equal samples that follow each other may be one, at the time of the last.
            let weight = samples.weight(self.bytes, at).unwrap_or(0);
            let more = match samples.weight_type {
                WeightType::Samples => weight.saturating_sub(1).max(0),
                WeightType::Time | WeightType::Bytes => 0,
            };
            let before = Dur::from_ps(interval.ps().saturating_mul(more));
            times.push((time.saturating_sub(before), time, *stack));
        }
        if times.is_empty() {
            return Ok(());
        }
        times.sort_by_key(|(_, time, _)| *time);
        let track = self.track(number, thread, TRACK_ENDING);
        let mut slices = SampledTrack::new(track);
        let mut names: FxHashMap<usize, (NameId, NameId)> = FxHashMap::default();
        let mut frames = Vec::new();
        for (at, (start, time, stack)) in times.iter().enumerate() {
            if at % LOOK_EVERY == 0 {
                self.context.advance(0)?;
            }
            tables.frames_of(*stack, &mut frames);
            let mut of_sample = Vec::with_capacity(frames.len());
            for frame in frames.iter().rev() {
                let name = names.entry(*frame).or_insert_with(|| {
                    let found = tables.frame(&self.file.shared, *frame);
                    let name = truncated(found.name.unwrap_or("(unknown)"));
                    (
                        self.sink.name(&name),
                        category(self.file, found.category, self.sink),
                    )
                });
                of_sample.push(*name);
            }
            let next = times.get(at + 1).map(|next| next.0.max(*time));
            let end = sample_end(*time, next, interval);
            let frames = of_sample.into_iter();
            slices.add(frames, *start, end, &mut self.budget, self.sink);
        }
        slices.finish(&mut self.budget, self.sink);
        Ok(())
    }

    /// Emits the markers of a thread as slices and instants.
    fn markers(&mut self, number: usize, thread: &Thread) -> Result<(), FormatError> {
        let markers = &thread.markers;
        if markers.start.is_empty() {
            self.losses.old_markers += markers.of_old_form;
            return Ok(());
        }
        if markers.name.is_empty() {
            return Ok(());
        }
        let track = self.track(number, thread, "");
        let mut open: FxHashMap<i64, Vec<SliceIn<'static>>> = FxHashMap::default();
        let mut last = Time::MIN;
        for (at, name) in markers.name.iter().enumerate() {
            if at % LOOK_EVERY == 0 {
                self.context.advance(0)?;
            }
            let text = thread.tables.string(&self.file.shared, *name);
            self.losses.no_name += u64::from(text.is_none());
            let category_index = Markers::number(&markers.category, at);
            let data = markers.data.get(at).copied().flatten();
            let mut slice = SliceIn {
                name: self.sink.name(&truncated(text.unwrap_or("(unknown)"))),
                category: category(self.file, category_index, self.sink),
                args: data.map_or(ArgRef::NONE, |at| ArgRef::new(self.source, at as u64)),
                ..SliceIn::default()
            };
            let start = markers.start.get(at).copied().flatten().and_then(to_time);
            let end = markers.end.get(at).copied().flatten().and_then(to_time);
            match (Markers::number(&markers.phase, at), start, end) {
                (phase::INSTANT, Some(start), _) => {
                    last = last.max(start);
                    if !self.budget.take() {
                        continue;
                    }
                    let instant = InstantIn {
                        at: start,
                        name: slice.name,
                        category: slice.category,
                        args: slice.args,
                    };
                    self.sink.instant(track, instant);
                }
                (phase::INTERVAL, Some(start), Some(end)) => {
                    last = last.max(end).max(start);
                    slice.start = start;
                    self.slice(track, slice, end);
                }
                (phase::START, Some(start), _) => {
                    last = last.max(start);
                    slice.start = start;
                    open.entry(*name).or_default().push(slice);
                }
                (phase::END, _, Some(end)) => {
                    last = last.max(end);
                    match open.get_mut(name).and_then(Vec::pop) {
                        Some(begun) => self.slice(track, begun, end),
                        None => self.losses.unmatched += 1,
                    }
                }
                (phase::INSTANT | phase::INTERVAL | phase::START | phase::END, ..) => {
                    self.losses.bad_times += 1;
                }
                _ => self.losses.bad_markers += 1,
            }
        }
        let open = open.into_iter();
        let mut left: Vec<(i64, SliceIn<'static>)> = open
            .flat_map(|(name, slices)| slices.into_iter().map(move |slice| (name, slice)))
            .collect();
        left.sort_by_key(|(name, slice)| (slice.start, *name));
        self.losses.unfinished += left.len() as u64;
        for (_, mut slice) in left {
            slice.flags = SliceFlags::UNFINISHED;
            self.slice(track, slice, last);
        }
        Ok(())
    }

    fn slice(&mut self, track: TrackId, mut slice: SliceIn<'_>, end: Time) {
        if !self.budget.take() {
            return;
        }
        let dur = end.since(slice.start);
        self.losses.negative += u64::from(dur < Dur::ZERO);
        slice.dur = dur.max(Dur::ZERO);
        self.sink.slice(track, slice);
    }

    /// Returns a track of a thread, in the group of its process.
    fn track(&mut self, number: usize, thread: &Thread, ending: &str) -> TrackId {
        let process = process_label(thread);
        let pid: Option<i64> = thread.pid.parse().ok();
        let tid: Option<i64> = thread.tid.parse().ok();
        let group = self
            .sink
            .track(&format!("process/{}", truncated(&thread.pid)));
        let group_patch = TrackPatch {
            name: Some(&process),
            kind: Some(TrackKind::Group),
            pid,
            ..TrackPatch::default()
        };
        self.sink.describe(group, group_patch);
        let track = self.sink.track(&format!("thread/{number}{ending}"));
        let name = format!("{}{ending}", truncated(&thread.name));
        let patch = TrackPatch {
            name: Some(&name),
            kind: Some(TrackKind::Thread),
            parent: Some(group),
            pid,
            tid,
            sort_index: i64::try_from(number).ok(),
            ..TrackPatch::default()
        };
        self.sink.describe(track, patch);
        track
    }
}

/// Returns the name and the number of the process of a thread.
fn process_label(thread: &Thread) -> String {
    let label = format!("{} {}", thread.process_name, thread.pid);
    truncated(label.trim())
}

fn category<S: EventSink>(file: &File, index: i64, sink: &mut S) -> NameId {
    if index == NONE {
        return NameId::EMPTY;
    }
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    match file.categories.get(index) {
        Some(name) => sink.name(&truncated(name)),
        None => NameId::EMPTY,
    }
}

fn to_time(ps: i128) -> Option<Time> {
    i64::try_from(ps).ok().map(Time::from_ps)
}

impl Losses {
    fn diagnose<S: EventSink>(&self, sink: &mut S, budget: &SliceBudget, stacks_left_out: u64) {
        let losses = [
            (
                Diagnostic::Unreadable,
                self.no_stack,
                "stacks with entries that the file does not have, or deeper than 1,024 functions",
            ),
            (
                Diagnostic::MissingMetadata,
                self.no_name,
                "functions and markers without a name",
            ),
            (
                Diagnostic::Unreadable,
                self.bad_weights,
                "samples whose weight is no number or negative",
            ),
            (
                Diagnostic::BadTime,
                self.bad_times,
                "samples and markers without a usable time, left out of the timeline",
            ),
            (
                Diagnostic::UnknownEntry,
                self.old_markers,
                "markers in the form of versions before 24",
            ),
            (
                Diagnostic::UnknownEntry,
                self.bad_markers,
                "markers of an unknown phase",
            ),
            (Diagnostic::NegativeDuration, self.negative, "markers"),
            (Diagnostic::UnmatchedEnd, self.unmatched, "markers"),
            (Diagnostic::UnfinishedSlice, self.unfinished, "markers"),
        ];
        losses::diagnose(sink, &losses);
        sampling::diagnose_limits(sink, budget, stacks_left_out);
    }
}
