//! Second pass: samples and events.
//!
//! | Profile | Values in time | Other values |
//! |---|---|---|
//! | sampled | samples with stacks, and a track of slices | samples with stacks |
//! | evented | a track of slices | samples with stacks: what each stack adds |

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgValue, Diagnostic, Dur, Epoch, EventSink, NameId, ReadContext, SliceFlags, SliceIn, Time,
    TrackId, TrackKind, TrackPatch,
};

use super::profile_heads::{File, Head, ValueUnit};
use crate::FormatError;
use crate::json::number::ps_from_text;
use crate::json::scan::{JsonType, Value};
use crate::json::walk::{self, Elements};
use crate::losses;
use crate::sampling::{self, SampleTable, SampledTrack, SliceBudget};
use stepscope_model::vocabulary::sample::TRACK_ENDING;

/// Number of samples or events between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Picoseconds in a nanosecond.
const PS_PER_NS: i128 = 1_000;

/// Counts of what was left out or corrected.
#[derive(Default)]
struct Losses {
    /// Samples and events that could not be understood.
    unreadable: u64,
    /// Values that are no numbers, or are negative.
    bad_values: u64,
    /// Values with a fraction in a profile that counts whole things.
    rounded: u64,
    /// Samples without a weight.
    no_weight: u64,
    /// References to frames that the file does not have.
    no_frame: u64,
    /// Events that close a frame that is not open.
    unmatched: u64,
    /// Frames that are open at the end.
    unfinished: u64,
    /// Events earlier than the one before.
    backward: u64,
}

/// The functions of the file as names of slices and as locations of one kind of profile.
struct Frames<'a> {
    file: &'a File,
    names: Vec<Option<NameId>>,
}

impl Frames<'_> {
    /// Returns the name of the function at this index.
    fn name<S: EventSink>(&mut self, index: u64, losses: &mut Losses, sink: &mut S) -> NameId {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let (Some(frame), Some(known)) = (self.file.frames.get(at), self.names.get_mut(at)) else {
            losses.no_frame += 1;
            return sink.name(&format!("frame {index}"));
        };
        *known.get_or_insert_with(|| sink.name(crate::cprofile::truncated(&frame.name).as_str()))
    }
}

/// A table of samples with values of one unit.
struct UnitTable {
    unit: ValueUnit,
    table: SampleTable,
    /// Location of each frame of the file.
    locations: Vec<Option<u32>>,
}

impl UnitTable {
    fn location(&mut self, index: u64, file: &File, losses: &mut Losses) -> u32 {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let (Some(frame), Some(known)) = (file.frames.get(at), self.locations.get_mut(at)) else {
            losses.no_frame += 1;
            return self.table.location(&format!("frame {index}"), "", 0, 0);
        };
        let table = &mut self.table;
        *known.get_or_insert_with(|| table.location(&frame.name, &frame.file, 0, frame.line))
    }
}

struct Emitter<'a, S> {
    bytes: &'a [u8],
    file: &'a File,
    context: &'a ReadContext,
    sink: &'a mut S,
    origin_ps: i128,
    frames: Frames<'a>,
    tables: Vec<UnitTable>,
    budget: SliceBudget,
    losses: Losses,
}

/// Emits the samples and events of all profiles. Profiles end at the first byte that is no JSON.
pub(super) fn emit<S: EventSink>(
    bytes: &[u8],
    file: &File,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let starts = file.heads.iter().filter_map(|head| head.start_ps(bytes));
    let origin_ns = starts.min().unwrap_or(0).div_euclid(PS_PER_NS);
    sink.epoch(Epoch {
        origin_ns: i64::try_from(origin_ns).unwrap_or(0),
        unix_ns: None,
    });
    for (key, text) in [("profile_name", &file.name), ("exporter", &file.exporter)] {
        if !text.is_empty() {
            sink.fact(key, ArgValue::Str(&crate::cprofile::truncated(text)));
        }
    }
    let mut emitter = Emitter {
        bytes,
        file,
        context,
        sink,
        origin_ps: origin_ns * PS_PER_NS,
        frames: Frames {
            file,
            names: vec![None; file.frames.len()],
        },
        tables: Vec::new(),
        budget: SliceBudget::new(bytes.len()),
        losses: Losses::default(),
    };
    for (number, head) in file.heads.iter().enumerate() {
        if head.samples.is_some() {
            emitter.sampled(number, head)?;
        } else if head.events.is_some() {
            match head.unit {
                ValueUnit::Time { power } => emitter.evented(number, head, power)?,
                ValueUnit::None | ValueUnit::Bytes => emitter.evented_values(head)?,
            }
        } else {
            emitter.losses.unreadable += 1;
        }
    }
    let stacks_left_out = emitter.tables.iter().map(|one| one.table.stacks_left_out());
    let stacks_left_out: u64 = stacks_left_out.sum();
    let Emitter {
        tables,
        budget,
        losses,
        ..
    } = emitter;
    for one in tables {
        if !one.table.is_empty() {
            sink.profile(one.table.finish());
        }
    }
    losses.diagnose(sink, &budget, stacks_left_out);
    Ok(())
}

impl<S: EventSink> Emitter<'_, S> {
    /// Returns the index of the table for values of this unit.
    fn table(&mut self, unit: ValueUnit) -> usize {
        let types = unit.sample_types();
        let mut known = self.tables.iter().map(|one| one.unit.sample_types());
        if let Some(at) = known.position(|one| one == types) {
            return at;
        }
        let mut table = SampleTable::new(types, self.bytes.len());
        table.show_first(u32::try_from(types.len() - 1).unwrap_or(0));
        self.tables.push(UnitTable {
            unit,
            table,
            locations: vec![None; self.file.frames.len()],
        });
        self.tables.len() - 1
    }

    /// Returns the label set of the samples of a profile, if the file has several.
    fn labels(&mut self, table: usize, head: &Head) -> u32 {
        if self.file.heads.len() < 2 {
            return 0;
        }
        let table = &mut self.tables[table].table;
        table.labels(&[("profile", &head.name)])
    }

    fn track(&mut self, number: usize, head: &Head, ending: &str) -> TrackId {
        let track = self.sink.track(&format!("profile/{number}"));
        let name = match &*head.name {
            "" => format!("profile {number}{ending}"),
            name => format!("{}{ending}", crate::cprofile::truncated(name)),
        };
        let patch = TrackPatch {
            name: Some(&name),
            kind: Some(TrackKind::Thread),
            sort_index: i64::try_from(number).ok(),
            ..TrackPatch::default()
        };
        self.sink.describe(track, patch);
        track
    }

    fn time(&self, ps: i128) -> Option<Time> {
        let relative = ps.saturating_sub(self.origin_ps);
        i64::try_from(relative).ok().map(Time::from_ps)
    }

    fn sampled(&mut self, number: usize, head: &Head) -> Result<(), FormatError> {
        let Some(Ok(mut samples)) = head.samples.map(|at| Elements::open(self.bytes, at)) else {
            self.losses.unreadable += 1;
            return Ok(());
        };
        let mut weights = head
            .weights
            .and_then(|at| Elements::open(self.bytes, at).ok());
        // Without weights, each sample counts once, and nothing tells its length.
        let unit = if weights.is_some() {
            head.unit
        } else {
            ValueUnit::None
        };
        let table = self.table(unit);
        let labels = self.labels(table, head);
        let mut track = match unit {
            ValueUnit::Time { .. } => {
                Some(SampledTrack::new(self.track(number, head, TRACK_ENDING)))
            }
            ValueUnit::None | ValueUnit::Bytes => None,
        };
        let mut at_ps = head.start_ps(self.bytes).unwrap_or(0);
        let mut count = 0;
        let mut indexes: Vec<u64> = Vec::new();
        let mut stack: Vec<u32> = Vec::new();
        while let Ok(Some(sample)) = samples.next() {
            if count % LOOK_EVERY == 0 {
                self.context.advance(0)?;
            }
            count += 1;
            let weight = match &mut weights {
                None => None,
                Some(weights) => weights.next().ok().flatten(),
            };
            if !self.indexes(&sample, &mut indexes) {
                continue;
            }
            let value = match (weight, unit) {
                (Some(weight), unit) => self.value(&weight, unit),
                (None, ValueUnit::None) if weights.is_none() => 1,
                (None, _) => {
                    self.losses.no_weight += 1;
                    0
                }
            };
            stack.clear();
            for index in indexes.iter().rev() {
                let table = &mut self.tables[table];
                stack.push(table.location(*index, self.file, &mut self.losses));
            }
            self.add(table, &stack, value, labels);
            let Some(track) = &mut track else {
                continue;
            };
            let end_ps = at_ps.saturating_add(value);
            let (start, end) = (self.time(at_ps), self.time(end_ps));
            at_ps = end_ps;
            let Some((start, end)) = start.zip(end) else {
                self.losses.bad_values += 1;
                continue;
            };
            let mut names = Vec::with_capacity(indexes.len());
            for index in &indexes {
                let name = self.frames.name(*index, &mut self.losses, self.sink);
                names.push((name, NameId::EMPTY));
            }
            track.add(names.into_iter(), start, end, &mut self.budget, self.sink);
        }
        if let Some(track) = track {
            track.finish(&mut self.budget, self.sink);
        }
        Ok(())
    }

    /// Adds a value to a stack, innermost location first; picoseconds become nanoseconds.
    fn add(&mut self, table: usize, stack: &[u32], value: i128, labels: u32) {
        let one = &mut self.tables[table];
        let clamped = |value: i128| i64::try_from(value).unwrap_or(i64::MAX);
        match one.unit {
            ValueUnit::None => one.table.add(stack, &[clamped(value)], labels),
            ValueUnit::Bytes => one.table.add(stack, &[1, clamped(value)], labels),
            ValueUnit::Time { .. } => {
                let ns = (value + PS_PER_NS / 2).div_euclid(PS_PER_NS);
                one.table.add(stack, &[1, clamped(ns)], labels);
            }
        }
    }

    /// Reads the frames of a sample, outermost first. Returns whether it is a list of numbers.
    fn indexes(&mut self, sample: &Value, into: &mut Vec<u64>) -> bool {
        into.clear();
        if sample.json_type != JsonType::Array {
            self.losses.unreadable += 1;
            return false;
        }
        let mut is_sound = true;
        crate::json::members::elements(self.bytes, sample, |index| {
            match walk::whole(self.bytes, index) {
                Some(index) => into.push(index),
                None => is_sound = false,
            }
        });
        self.losses.unreadable += u64::from(!is_sound);
        is_sound
    }

    /// Reads a value that is not negative: picoseconds, bytes or a count.
    fn value(&mut self, value: &Value, unit: ValueUnit) -> i128 {
        let Some(found) = self.signed(value, unit) else {
            return 0;
        };
        self.losses.bad_values += u64::from(found < 0);
        found.max(0)
    }

    fn signed(&mut self, value: &Value, unit: ValueUnit) -> Option<i128> {
        let raw = value.raw(self.bytes).unwrap_or_default();
        let found = match unit {
            ValueUnit::Time { power } => ps_from_text(raw, power).ok(),
            ValueUnit::None | ValueUnit::Bytes => {
                // With a power of 3: thousandths, to see fractions.
                let thousandths = ps_from_text(raw, 3).ok();
                thousandths.map(|found| {
                    self.losses.rounded += u64::from(found % 1_000 != 0);
                    (found + 500).div_euclid(1_000)
                })
            }
        };
        self.losses.bad_values += u64::from(found.is_none());
        found
    }

    /// Emits the events of a profile in time as slices.
    fn evented(&mut self, number: usize, head: &Head, power: i64) -> Result<(), FormatError> {
        let track = self.track(number, head, "");
        let mut open: OpenFrames<Time> = OpenFrames::new();
        let mut last = Time::MIN;
        let unit = ValueUnit::Time { power };
        self.each_event(head, unit, |emitter, event| {
            let Some(at) = emitter.time(event.at) else {
                emitter.losses.bad_values += 1;
                return;
            };
            emitter.losses.backward += u64::from(at < last);
            last = last.max(at);
            if event.opens {
                open.push(event.frame, last);
                return;
            }
            let closed = open.close(event.frame);
            emitter.losses.count_unmatched(closed.len());
            for (frame, start) in closed {
                emitter.slice(track, frame, start, last, SliceFlags::NONE);
            }
        })?;
        let end = head.end.and_then(|end| self.signed(&end, unit));
        let end = end.and_then(|end| self.time(end)).unwrap_or(last).max(last);
        self.losses.unfinished += open.open.len() as u64;
        for (frame, start) in open.open {
            self.slice(track, frame, start, end, SliceFlags::UNFINISHED);
        }
        Ok(())
    }

    fn slice(&mut self, track: TrackId, frame: u64, start: Time, end: Time, flags: SliceFlags) {
        let name = self.frames.name(frame, &mut self.losses, self.sink);
        let dur = Dur::from_ps(end.since(start).ps().max(0));
        let slice = SliceIn {
            start,
            dur,
            name,
            flags,
            ..SliceIn::default()
        };
        self.sink.slice(track, slice);
    }

    /// Adds what each stack of an evented profile adds to a value that is no time.
    fn evented_values(&mut self, head: &Head) -> Result<(), FormatError> {
        let table = self.table(head.unit);
        let labels = self.labels(table, head);
        let mut open: OpenFrames<u32> = OpenFrames::new();
        let mut last: Option<i128> = None;
        let mut stack = Vec::new();
        self.each_event(head, head.unit, |emitter, event| {
            let before = last.unwrap_or(event.at);
            emitter.losses.backward += u64::from(event.at < before);
            let at = event.at.max(before);
            last = Some(at);
            if at > before {
                stack.clear();
                stack.extend(open.open.iter().rev().map(|(_, location)| *location));
                emitter.add(table, &stack, at.saturating_sub(before), labels);
            }
            if event.opens {
                let (file, losses) = (emitter.file, &mut emitter.losses);
                let location = emitter.tables[table].location(event.frame, file, losses);
                open.push(event.frame, location);
                return;
            }
            let closed = open.close(event.frame);
            emitter.losses.count_unmatched(closed.len());
        })?;
        self.losses.unfinished += open.open.len() as u64;
        Ok(())
    }

    /// Visits the readable events of a profile in the file's order.
    fn each_event(
        &mut self,
        head: &Head,
        unit: ValueUnit,
        mut visit: impl FnMut(&mut Self, Event),
    ) -> Result<(), FormatError> {
        let Some(Ok(mut events)) = head.events.map(|at| Elements::open(self.bytes, at)) else {
            self.losses.unreadable += 1;
            return Ok(());
        };
        let mut count = 0;
        while let Ok(Some(value)) = events.next() {
            if count % LOOK_EVERY == 0 {
                self.context.advance(0)?;
            }
            count += 1;
            if let Some(event) = self.event(&value, unit) {
                visit(self, event);
            }
        }
        Ok(())
    }

    /// Reads an event; counts one that cannot be read.
    fn event(&mut self, value: &Value, unit: ValueUnit) -> Option<Event> {
        let (mut opens, mut frame, mut at) = (None, None, None);
        if value.json_type != JsonType::Object {
            self.losses.unreadable += 1;
            return None;
        }
        let read = walk::members(self.bytes, value.span.start, &mut |key, value| match key {
            b"type" => {
                opens = match value.raw(self.bytes) {
                    Some(b"O") => Some(true),
                    Some(b"C") => Some(false),
                    _ => None,
                };
            }
            b"frame" => frame = walk::whole(self.bytes, value),
            b"at" => at = Some(*value),
            _ => {}
        });
        let (Ok(_), Some(opens), Some(frame), Some(at)) = (read, opens, frame, at) else {
            self.losses.unreadable += 1;
            return None;
        };
        // A value that is no number is counted there.
        let at = self.signed(&at, unit)?;
        Some(Event { opens, frame, at })
    }
}

/// An event of an evented profile.
#[derive(Clone, Copy)]
struct Event {
    opens: bool,
    frame: u64,
    at: i128,
}

/// The frames that are open, with what the reader knows about each.
struct OpenFrames<T> {
    open: Vec<(u64, T)>,
    count_of: FxHashMap<u64, u64>,
}

impl<T> OpenFrames<T> {
    fn new() -> Self {
        Self {
            open: Vec::new(),
            count_of: FxHashMap::default(),
        }
    }

    fn push(&mut self, frame: u64, entry: T) {
        self.open.push((frame, entry));
        *self.count_of.entry(frame).or_default() += 1;
    }

    /// Closes the innermost frame of this number, and the frames above it; returns them, innermost
    /// first. Returns nothing if no such frame is open.
    fn close(&mut self, frame: u64) -> Vec<(u64, T)> {
        let mut closed = Vec::new();
        if self.count_of.get(&frame).is_none_or(|count| *count == 0) {
            return closed;
        }
        while let Some(entry) = self.open.pop() {
            let found = entry.0;
            closed.push(entry);
            if let Some(count) = self.count_of.get_mut(&found) {
                *count = count.saturating_sub(1);
            }
            if found == frame {
                break;
            }
        }
        closed
    }
}

impl Head {
    /// Returns where a profile in time starts.
    fn start_ps(&self, bytes: &[u8]) -> Option<i128> {
        let ValueUnit::Time { power } = self.unit else {
            return None;
        };
        let raw = self.start.as_ref()?.raw(bytes)?;
        ps_from_text(raw, power).ok()
    }
}

impl Losses {
    /// Counts the frames that one event closed in the wrong order: none of this number, or others
    /// with it.
    fn count_unmatched(&mut self, closed: usize) {
        self.unmatched += closed.abs_diff(1) as u64;
    }

    fn diagnose<S: EventSink>(&self, sink: &mut S, budget: &SliceBudget, stacks_left_out: u64) {
        let losses = [
            (
                Diagnostic::Unreadable,
                self.unreadable,
                "profiles, samples and events that are not as the format says",
            ),
            (
                Diagnostic::BadTime,
                self.bad_values,
                "values that are no number, negative or too large: read as 0, their events left out",
            ),
            (
                Diagnostic::Unreadable,
                self.rounded,
                "values with a fraction, rounded to whole numbers",
            ),
            (
                Diagnostic::Unreadable,
                self.no_weight,
                "samples without a weight, read as 0",
            ),
            (
                Diagnostic::MissingMetadata,
                self.no_frame,
                "references to frames that the file does not have",
            ),
            (
                Diagnostic::UnmatchedEnd,
                self.unmatched,
                "frames that were closed in another order than they were opened",
            ),
            (Diagnostic::UnfinishedSlice, self.unfinished, ""),
            (
                Diagnostic::NegativeDuration,
                self.backward,
                "events before the one that precedes them, moved to its time",
            ),
        ];
        losses::diagnose(sink, &losses);
        sampling::diagnose_limits(sink, budget, stacks_left_out);
    }
}
