//! Lines: first their heads, then their events.
//!
//! A line's display name and duration come after its events in the file, so [`scan`] walks
//! a line once without decoding an event: it finds the head, counts the events and notes where
//! a long line may be split. [`pour`] then decodes one stretch of a line. Both run on several
//! threads; the stretches are cut by the file alone, so that the result does not depend on how
//! many threads there are.
//!
//! The hot path of an event: three numbers, one look-up of its metadata, and for every stat one
//! look-up of what the stat means. Nothing is allocated, no text is touched.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{
    ArgRef, Dur, EventSink, FlowBind, FlowKey, InstantIn, NameId, SliceFlags, SliceFlow, SliceIn,
    SourceId, StepNumber, Time, TrackId,
};

use super::index::{PlaneIndex, Span};
use super::marks::{EventKind, FlowCategory, MarkValue, Marks, Place};
use super::wire::{self, StatValue, event, line};
use crate::proto_wire::{Fault, Fields, Value, varint};

/// A line is split about every so many bytes.
pub(super) const STRETCH_BYTES: usize = 4 << 20;

/// The head of a line.
#[derive(Clone, Debug, Default)]
pub(super) struct LineHead {
    pub(super) id: i64,
    pub(super) display_id: i64,
    pub(super) name: Span,
    pub(super) display_name: Span,
    pub(super) timestamp_ns: i64,
    /// Number of its events.
    pub(super) events: u64,
    /// Stretches of its bytes, each beginning and ending at a field.
    pub(super) stretches: Vec<Span>,
    /// Where it could not be read any further, and why.
    pub(super) fault: Option<(usize, Fault)>,
}

impl LineHead {
    /// What users read.
    pub(super) fn shown_name(&self) -> Span {
        if self.display_name.len() == 0 {
            self.name
        } else {
            self.display_name
        }
    }

    /// Counts an event whose tag is at `at`; a stretch ends before it when it is long enough.
    #[inline]
    fn see_event(&mut self, file: &[u8], begin: &mut usize, at: usize) {
        self.events += 1;
        if at - *begin >= STRETCH_BYTES {
            let stretch = file.get(*begin..at).unwrap_or_default();
            self.stretches.push(Span::of(file, stretch));
            *begin = at;
        }
    }

    /// The id that viewers show: the display id if there is one.
    pub(super) fn shown_id(&self) -> i64 {
        if self.display_id == 0 {
            self.id
        } else {
            self.display_id
        }
    }
}

/// Finds a line's head.
pub(super) fn scan(file: &[u8], span: Span) -> LineHead {
    let mut head = LineHead::default();
    let mut begin = span.start();
    let mut at = begin;
    while at < span.end() {
        if file.get(at) == Some(&EVENT_TAG)
            && let Ok((_, next)) = delimited(file, at + 1, span.end())
        {
            head.see_event(file, &mut begin, at);
            at = next;
            continue;
        }
        let mut fields = Fields::new(file.get(at..span.end()).unwrap_or_default());
        let field = match fields.next() {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(fault) => {
                // Whole events before the fault are kept; the decoder ends at the same place.
                at += fields.at();
                head.fault = Some((at, fault));
                break;
            }
        };
        match (field.number, field.value) {
            (line::EVENTS, Value::Bytes(_)) => {
                head.see_event(file, &mut begin, at + fields.begin());
            }
            (line::ID, Value::Varint(id)) => head.id = id as i64,
            (line::DISPLAY_ID, Value::Varint(id)) => head.display_id = id as i64,
            (line::NAME, Value::Bytes(name)) => head.name = Span::of(file, name),
            (line::DISPLAY_NAME, Value::Bytes(name)) => head.display_name = Span::of(file, name),
            (line::TIMESTAMP_NS, Value::Varint(ns)) => head.timestamp_ns = ns as i64,
            _ => {}
        }
        at += fields.at();
    }
    let stretch = file.get(begin..at).unwrap_or_default();
    if head.events > 0 && !stretch.is_empty() {
        head.stretches.push(Span::of(file, stretch));
    }
    head
}

/// An event metadata, ready to be poured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadyMetadata {
    pub(super) name: NameId,
    pub(super) category: NameId,
    pub(super) kind: EventKind,
    /// The events have arguments even without stats of their own.
    pub(super) has_args: bool,
    /// Stats of the metadata have a meaning for each event.
    pub(super) has_marks: bool,
    /// The number at the end of its name, for lines of step markers.
    pub(super) step: Option<StepNumber>,
}

/// A plane, ready to be poured.
#[derive(Debug)]
pub(super) struct ReadyPlane<'a> {
    pub(super) index: &'a PlaneIndex,
    /// As many as the index has event metadata.
    pub(super) metadata: Vec<ReadyMetadata>,
    /// Whether stats of a metadata id have a meaning for events, by id.
    pub(super) marks: Vec<bool>,
    /// Tracks of the samples on lines of counters, by metadata id.
    pub(super) counters: FxHashMap<i64, TrackId>,
}

impl<'a> ReadyPlane<'a> {
    /// A plane without counters as yet.
    pub(super) fn new(index: &'a PlaneIndex, metadata: Vec<ReadyMetadata>) -> Self {
        let marks = index
            .stats
            .dense_ids()
            .map(|id| index.role(id).marks_events());
        Self {
            index,
            metadata,
            marks: marks.collect(),
            counters: FxHashMap::default(),
        }
    }

    #[inline]
    fn is_mark(&self, stat_metadata_id: i64) -> bool {
        match usize::try_from(stat_metadata_id).map(|id| self.marks.get(id)) {
            Ok(Some(known)) => *known,
            _ => self.index.stats.is_sparse() && self.index.role(stat_metadata_id).marks_events(),
        }
    }
}

/// A line, ready to be poured.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyLine {
    pub(super) track: TrackId,
    /// The line's own time zero, picoseconds from the epoch.
    pub(super) base_ps: i128,
    pub(super) place: Place,
    /// Its events are samples.
    pub(super) counters: bool,
}

/// What was odd, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) events: u64,
    pub(super) missing_metadata: u64,
    pub(super) negative_durations: u64,
    /// Slices whose end no time can tell.
    pub(super) endless: u64,
    pub(super) bad_times: u64,
    pub(super) unreadable: u64,
    /// Offset of the first unreadable event.
    pub(super) first_unreadable: Option<usize>,
    pub(super) unfinished: u64,
    pub(super) marked_impossible: u64,
    pub(super) bad_samples: u64,
    pub(super) empty_samples: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.missing_metadata += other.missing_metadata;
        self.negative_durations += other.negative_durations;
        self.endless += other.endless;
        self.bad_times += other.bad_times;
        self.unreadable += other.unreadable;
        self.first_unreadable = self.first_unreadable.or(other.first_unreadable);
        self.unfinished += other.unfinished;
        self.marked_impossible += other.marked_impossible;
        self.bad_samples += other.bad_samples;
        self.empty_samples += other.empty_samples;
    }
}

/// Ids of the event metadata that a line uses, in the order of first use.
pub(super) fn metadata_ids(file: &[u8], head: &LineHead) -> Vec<i64> {
    let mut seen = FxHashSet::default();
    let mut ids = Vec::new();
    for stretch in &head.stretches {
        let mut fields = Fields::new(stretch.get(file));
        while let Some(field) = fields.next_lenient() {
            let (line::EVENTS, Value::Bytes(message)) = (field.number, field.value) else {
                continue;
            };
            let mut id = 0;
            let mut fields = Fields::new(message);
            while let Some(field) = fields.next_lenient() {
                if let (event::METADATA_ID, Value::Varint(value)) = (field.number, field.value) {
                    id = value as i64;
                }
            }
            if seen.insert(id) {
                ids.push(id);
            }
        }
    }
    ids
}

/// The first number among an event's stats: the value of counters whose stat has another name.
#[cold]
fn first_number(message: &[u8]) -> Option<f64> {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        let (event::STATS, Value::Bytes(stat)) = (field.number, field.value) else {
            continue;
        };
        match wire::stat(stat).ok()?.value {
            StatValue::Double(value) => return Some(value),
            StatValue::Uint(value) => return Some(value as f64),
            StatValue::Int(value) => return Some(value as f64),
            _ => {}
        }
    }
    None
}

/// The numbers of one event.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    metadata_id: i64,
    offset_ps: i64,
    duration_ps: i64,
}

/// What one thread keeps between stretches.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Names of links, interned in the sink at hand.
    categories: FxHashMap<FlowCategory<'static>, NameId>,
    /// Numbers that stand for missing metadata, interned in the sink at hand.
    numbers: FxHashMap<i64, NameId>,
    flows: Vec<SliceFlow>,
}

/// Decodes one stretch of a line into `sink`.
pub(super) fn pour<S: EventSink>(
    file: &[u8],
    stretch: Span,
    plane: &ReadyPlane<'_>,
    line: &ReadyLine,
    source: SourceId,
    sink: &mut S,
    scratch: &mut Scratch,
) -> Tally {
    let mut tally = Tally::default();
    let mut marks = Marks::default();
    let mut next = stretch.start();
    let end = stretch.end();
    // The scan has said why a line ends early.
    while let Ok(Some((at, message))) = next_event(file, next..end) {
        next = message.end;
        let own = message.clone();
        marks.clear();
        let Ok((numbers, has_stats)) = decode(file, own, plane, line.place, &mut marks) else {
            tally.unreadable += 1;
            tally.first_unreadable = tally.first_unreadable.or(Some(at));
            continue;
        };
        let known = plane
            .index
            .events
            .index(numbers.metadata_id)
            .and_then(|index| plane.metadata.get(index));
        let metadata = known.copied().unwrap_or_else(|| {
            tally.missing_metadata += 1;
            let name = *scratch
                .numbers
                .entry(numbers.metadata_id)
                .or_insert_with(|| sink.name(&numbers.metadata_id.to_string()));
            ReadyMetadata {
                name,
                ..ReadyMetadata::default()
            }
        });
        let start = line.base_ps + i128::from(numbers.offset_ps);
        // The ends of the range are what writers put where they overflowed, no times.
        let Some(start) = i64::try_from(start)
            .ok()
            .filter(|start| i64::MIN < *start && *start < i64::MAX)
        else {
            tally.bad_times += 1;
            continue;
        };
        let has_end = start.checked_add(numbers.duration_ps.max(0)).is_some();
        let start = Time::from_ps(start);
        let args = if has_stats || metadata.has_args {
            ArgRef::new(source, at as u64)
        } else {
            ArgRef::NONE
        };
        if metadata.has_marks
            && let Some(found) = plane.index.events.get(numbers.metadata_id)
        {
            for stat in plane.index.stats_of(found) {
                take(file, stat.get(file), plane.index, line.place, &mut marks);
            }
        }
        marks.finish();
        if line.counters {
            let Some(track) = plane.counters.get(&numbers.metadata_id) else {
                tally.empty_samples += 1;
                continue;
            };
            match marks
                .value
                .or_else(|| first_number(file.get(message.clone()).unwrap_or_default()))
            {
                Some(value) if value.is_finite() => {
                    tally.events += 1;
                    sink.counter(*track, start, value);
                }
                Some(_) => tally.bad_samples += 1,
                None => tally.empty_samples += 1,
            }
            continue;
        }
        tally.events += 1;
        scratch.flows.clear();
        for (category, id, direction) in marks.flows.iter().copied() {
            let category = scratch.category(category, sink);
            scratch.flows.push(SliceFlow {
                key: FlowKey { category, id },
                direction,
            });
        }
        match metadata.kind {
            EventKind::Slice => {
                if numbers.duration_ps < 0 {
                    tally.negative_durations += 1;
                }
                tally.endless += u64::from(!has_end);
                let dur = if has_end {
                    Dur::from_ps(numbers.duration_ps.max(0))
                } else {
                    Dur::ZERO
                };
                let mut flags = marks.flags;
                tally.unfinished += u64::from(flags.contains(SliceFlags::UNFINISHED));
                tally.marked_impossible += u64::from(flags.contains(SliceFlags::IMPOSSIBLE));
                if !has_end {
                    flags = flags | SliceFlags::IMPOSSIBLE;
                }
                sink.slice(
                    line.track,
                    SliceIn {
                        start,
                        dur,
                        name: metadata.name,
                        category: metadata.category,
                        args,
                        step: marks.step_number(line.place, metadata.step, tally.events - 1),
                        flags,
                        flows: &scratch.flows,
                    },
                );
            }
            EventKind::Instant => sink.instant(
                line.track,
                InstantIn {
                    at: start,
                    name: metadata.name,
                    category: metadata.category,
                    args,
                },
            ),
            EventKind::FlowEnclosing | EventKind::FlowNext => {
                let bind = if metadata.kind == EventKind::FlowNext {
                    FlowBind::Next
                } else {
                    FlowBind::Enclosing
                };
                for flow in &scratch.flows {
                    sink.flow(line.track, start, *flow, bind);
                }
            }
        }
    }
    tally
}

impl Scratch {
    fn category<S: EventSink>(&mut self, category: FlowCategory<'_>, sink: &mut S) -> NameId {
        let known = match category {
            FlowCategory::Text(text) => return sink.name(text),
            FlowCategory::Context(number) => FlowCategory::Context(number),
            FlowCategory::Flow(number) => FlowCategory::Flow(number),
            FlowCategory::Correlation => FlowCategory::Correlation,
        };
        *self
            .categories
            .entry(known)
            .or_insert_with(|| sink.name(&category.text()))
    }
}

/// Decodes one event: its numbers, whether it has stats of its own, and what they mean.
///
/// The fields that every event has are told by their whole tag byte, and numbers are read from
/// `file` rather than from the message alone: eight bytes can then be loaded at once right up to
/// the message's end.
#[inline]
fn decode<'a>(
    file: &'a [u8],
    message: Range<usize>,
    metadata: &ReadyPlane<'_>,
    place: Place,
    marks: &mut Marks<'a>,
) -> Result<(Numbers, bool), Fault> {
    let mut numbers = Numbers::default();
    let mut has_stats = false;
    let mut at = message.start;
    while at < message.end {
        match file.get(at) {
            Some(&METADATA_ID_TAG) => {
                let (id, next) = varint(file, at + 1)?;
                (numbers.metadata_id, at) = (id as i64, next);
            }
            Some(&OFFSET_TAG) => {
                let (ps, next) = varint(file, at + 1)?;
                (numbers.offset_ps, at) = (ps as i64, next);
            }
            Some(&DURATION_TAG) => {
                let (ps, next) = varint(file, at + 1)?;
                (numbers.duration_ps, at) = (ps as i64, next);
            }
            Some(&STAT_TAG) => {
                let (stat, next) = delimited(file, at + 1, message.end)?;
                at = next;
                has_stats = true;
                if may_be_mark(stat, metadata) {
                    take(file, stat, metadata.index, place, marks);
                }
            }
            _ => at = other_field(file, at..message.end)?,
        }
    }
    if at > message.end {
        return Err(Fault::Ends);
    }
    Ok((numbers, has_stats))
}

/// Tag bytes of the fields that make up nearly every event and line.
const METADATA_ID_TAG: u8 = tag_byte(event::METADATA_ID, 0);
const OFFSET_TAG: u8 = tag_byte(event::OFFSET_PS, 0);
const DURATION_TAG: u8 = tag_byte(event::DURATION_PS, 0);
const STAT_TAG: u8 = tag_byte(event::STATS, 2);
const EVENT_TAG: u8 = tag_byte(line::EVENTS, 2);

/// The tag of a field with a number below 16.
const fn tag_byte(number: u32, wire_type: u32) -> u8 {
    (number << 3 | wire_type).to_le_bytes()[0]
}

/// The length-delimited value whose length is at `at`, and the offset after it, at most `end`.
#[inline]
fn delimited(file: &[u8], at: usize, end: usize) -> Result<(&[u8], usize), Fault> {
    let (length, begin) = varint(file, at)?;
    let stop = usize::try_from(length)
        .ok()
        .and_then(|length| begin.checked_add(length))
        .filter(|stop| *stop <= end)
        .ok_or(Fault::Ends)?;
    Ok((file.get(begin..stop).unwrap_or_default(), stop))
}

/// The next event in `rest`: where its tag is, and its message.
#[inline]
fn next_event(file: &[u8], rest: Range<usize>) -> Result<Option<(usize, Range<usize>)>, Fault> {
    if file.get(rest.start) == Some(&EVENT_TAG) {
        let (message, next) = delimited(file, rest.start + 1, rest.end)?;
        return Ok(Some((rest.start, next - message.len()..next)));
    }
    next_event_after(file, rest)
}

/// As [`next_event`], after fields of the line's head or in an unusual encoding.
#[cold]
fn next_event_after(
    file: &[u8],
    rest: Range<usize>,
) -> Result<Option<(usize, Range<usize>)>, Fault> {
    let mut fields = Fields::new(file.get(rest.clone()).unwrap_or_default());
    while let Some(field) = fields.next()? {
        if let (line::EVENTS, Value::Bytes(message)) = (field.number, field.value) {
            let next = rest.start + fields.at();
            return Ok(Some((
                rest.start + fields.begin(),
                next - message.len()..next,
            )));
        }
    }
    Ok(None)
}

/// Steps over a field that is told by no single byte.
#[cold]
fn other_field(file: &[u8], rest: Range<usize>) -> Result<usize, Fault> {
    let mut fields = Fields::new(file.get(rest.clone()).unwrap_or_default());
    fields.next()?;
    Ok(rest.start + fields.at())
}

/// Looks at a stat's metadata id, which every known writer puts first.
#[inline]
fn may_be_mark(stat: &[u8], plane: &ReadyPlane<'_>) -> bool {
    match stat {
        [0x08, id @ 0..0x80, ..] => plane.is_mark(i64::from(*id)),
        [0x08, low @ 0x80..=0xff, high @ 0..0x80, ..] => {
            plane.is_mark(i64::from(*low & 0x7f) | i64::from(*high) << 7)
        }
        _ => wire::stat(stat).is_ok_and(|stat| plane.is_mark(stat.metadata_id)),
    }
}

/// Takes one stat's meaning.
#[cold]
fn take<'a>(
    file: &'a [u8],
    stat: &'a [u8],
    index: &PlaneIndex,
    place: Place,
    marks: &mut Marks<'a>,
) {
    let Ok(stat) = wire::stat(stat) else {
        return;
    };
    let role = index.role(stat.metadata_id);
    if !role.marks_events() {
        return;
    }
    let value = match stat.value {
        StatValue::Int(value) => MarkValue::Number(value as u64),
        StatValue::Uint(value) => MarkValue::Number(value),
        StatValue::Double(value) => MarkValue::Double(value),
        StatValue::Str(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => MarkValue::Text(text),
            Err(_) => return,
        },
        StatValue::Ref(id) => {
            let name = index.stats.get(id).map(|metadata| metadata.name.get(file));
            match name.map(std::str::from_utf8) {
                Some(Ok(text)) => MarkValue::Text(text),
                _ => return,
            }
        }
        StatValue::Bytes(_) | StatValue::None => return,
    };
    marks.take(role, value, place);
}
