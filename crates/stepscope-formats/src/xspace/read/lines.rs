//! The events of lines: [`emit`] decodes one segment of a line; `line_header` explains segments.
//! Several threads decode segments; the segments depend only on the file, so that the result is
//! independent of the number of threads.
//!
//! The hot path of an event: three numbers and one look-up of its metadata, collected in columns
//! that go to the sink in batches ([`Batch`]). Events with stats take a second path, with one
//! look-up of each stat's meaning. Neither path allocates memory or reads text.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{
    ArgRef, Dur, EventSink, FlowBind, FlowKey, InstantIn, NameId, SliceFlags, SliceFlow, SliceIn,
    SourceId, StepNumber, Time, TrackId,
};

use super::batch::{self, Batch, Numbers};
use super::event_framing::{EVENT_TAG, delimited, tag_byte};
use super::index::PlaneIndex;
use super::line_header::LineHead;
use super::span::Span;
use crate::protobuf::wire::{Fault, Fields, Value, varint};
use crate::xspace::well_known_stats::{
    EventKind, EventPlacement, EventStats, FlowCategory, MarkValue,
};
use crate::xspace::wire::{self, StatValue, event, line};

/// Limit of plausible offsets and durations (53 days). Writers with overflows emit larger numbers,
/// and one of them would stretch the view to months.
const ABSURD_PS: u64 = 1 << 62;

/// An event metadata, ready to be emitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadyMetadata {
    pub(crate) name: NameId,
    pub(crate) category: NameId,
    pub(crate) kind: EventKind,
    /// Whether the events have arguments even without stats of their own.
    pub(crate) has_args: bool,
    /// Whether stats of the metadata have a meaning for each event.
    pub(crate) has_marks: bool,
    /// The number at the end of its name, for lines of step markers.
    pub(crate) step: Option<StepNumber>,
}

/// A plane, ready to be emitted.
#[derive(Debug)]
pub(crate) struct ReadyPlane<'a> {
    pub(crate) index: &'a PlaneIndex,
    /// Event metadata, parallel to those of the index.
    pub(crate) metadata: Vec<ReadyMetadata>,
    /// Whether stats of a metadata id have a meaning for events, indexed by id.
    pub(crate) marks: Vec<bool>,
    /// Tracks of the samples on lines of counters, by metadata id.
    pub(crate) counters: FxHashMap<i64, TrackId>,
    /// Slice properties of plain events, by metadata id; empty if the ids are sparse.
    plain: Vec<Option<Plain>>,
}

/// An event metadata whose events are only slices.
#[derive(Clone, Copy, Debug)]
struct Plain {
    name: NameId,
    category: NameId,
    has_args: bool,
}

impl Plain {
    fn new(metadata: &ReadyMetadata) -> Option<Self> {
        let plain = metadata.kind == EventKind::Slice && !metadata.has_marks;
        plain.then_some(Self {
            name: metadata.name,
            category: metadata.category,
            has_args: metadata.has_args,
        })
    }
}

impl<'a> ReadyPlane<'a> {
    /// Creates a plane without counters.
    pub(crate) fn new(index: &'a PlaneIndex, metadata: Vec<ReadyMetadata>) -> Self {
        let marks = index
            .stats
            .dense_ids()
            .map(|id| index.role(id).marks_events());
        let plain = index
            .events
            .dense_ids()
            .map(|id| Plain::new(metadata.get(index.events.index(id)?)?));
        Self {
            plain: plain.collect(),
            index,
            metadata,
            marks: marks.collect(),
            counters: FxHashMap::default(),
        }
    }

    #[inline]
    fn plain(&self, metadata_id: i64) -> Option<Plain> {
        let id = usize::try_from(metadata_id).ok()?;
        self.plain.get(id).copied().flatten()
    }

    #[inline]
    fn is_mark(&self, stat_metadata_id: i64) -> bool {
        match usize::try_from(stat_metadata_id).map(|id| self.marks.get(id)) {
            Ok(Some(known)) => *known,
            _ => self.index.stats.is_sparse() && self.index.role(stat_metadata_id).marks_events(),
        }
    }
}

/// A line, ready to be emitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyLine {
    pub(crate) track: TrackId,
    /// The line's own time zero, picoseconds from the epoch.
    pub(crate) base_ps: i128,
    pub(crate) place: EventPlacement,
    /// Whether its events are samples.
    pub(crate) counters: bool,
}

/// Counts of problems.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineIssues {
    pub(crate) events: u64,
    pub(crate) missing_metadata: u64,
    pub(crate) negative_durations: u64,
    /// Number of slices whose end is out of range.
    pub(crate) endless: u64,
    pub(crate) bad_times: u64,
    pub(crate) unreadable: u64,
    /// Offset of the first unreadable event.
    pub(crate) first_unreadable: Option<usize>,
    pub(crate) unfinished: u64,
    pub(crate) marked_impossible: u64,
    pub(crate) bad_samples: u64,
    pub(crate) empty_samples: u64,
}

impl LineIssues {
    pub(crate) fn add(&mut self, other: &Self) {
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

/// Returns the ids of the event metadata that a line uses, in the order of first use.
pub(crate) fn metadata_ids(file: &[u8], head: &LineHead) -> Vec<i64> {
    let mut seen = FxHashSet::default();
    let mut ids = Vec::new();
    for stretch in &head.segments {
        let mut fields = Fields::new(stretch.span.get(file));
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

/// Returns the first number among an event's stats: the value of counters whose stat has another
/// name.
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

/// State that one thread keeps between segments.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Names of flow categories, interned in the thread's sink.
    categories: FxHashMap<FlowCategory<'static>, NameId>,
    /// Names for missing metadata, interned in the thread's sink.
    numbers: FxHashMap<i64, NameId>,
    flows: Vec<SliceFlow>,
    batch: Box<Batch>,
}

/// Decodes one segment of a line into `sink`.
pub(crate) fn emit<S: EventSink>(
    file: &[u8],
    stretch: Span,
    plane: &ReadyPlane<'_>,
    line: &ReadyLine,
    source: SourceId,
    sink: &mut S,
    scratch: &mut Scratch,
) -> LineIssues {
    let mut issues = LineIssues::default();
    let mut marks = EventStats::default();
    let mut next = stretch.start();
    let end = stretch.end();
    // Samples and step markers need more than their numbers.
    let plain_base = i64::try_from(line.base_ps)
        .ok()
        .filter(|_| !(line.counters || line.place.steps));
    // The scan has already reported why a line ends early.
    while let Ok(Some((at, message))) = next_event(file, next..end) {
        next = message.end;
        if let Some(base_ps) = plain_base
            && let Some(numbers) = batch::numbers(file, message.start, message.len())
            && let Some(plain) = plane.plain(numbers.metadata_id)
            && let Some(times) = plain_times(base_ps, &numbers)
        {
            let args = if plain.has_args {
                ArgRef::new(source, at as u64)
            } else {
                ArgRef::NONE
            };
            let texts = (plain.name, plain.category);
            issues.events += 1;
            scratch.batch.push(times, texts, args, line.track, sink);
            continue;
        }
        let own = message.clone();
        marks.clear();
        let Ok((numbers, has_stats)) = decode(file, own, plane, line.place, &mut marks) else {
            issues.unreadable += 1;
            issues.first_unreadable = issues.first_unreadable.or(Some(at));
            continue;
        };
        let known = plane
            .index
            .events
            .index(numbers.metadata_id)
            .and_then(|index| plane.metadata.get(index));
        let metadata = known.copied().unwrap_or_else(|| {
            issues.missing_metadata += 1;
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
        // The limits of the range come from overflows in the writer.
        let Some(start) = i64::try_from(start)
            .ok()
            .filter(|start| i64::MIN < *start && *start < i64::MAX)
            .filter(|_| numbers.offset_ps.unsigned_abs() < ABSURD_PS)
        else {
            issues.bad_times += 1;
            continue;
        };
        let length = numbers.duration_ps.max(0);
        let has_end = length.unsigned_abs() < ABSURD_PS && start.checked_add(length).is_some();
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
                issues.empty_samples += 1;
                continue;
            };
            match marks
                .value
                .or_else(|| first_number(file.get(message.clone()).unwrap_or_default()))
            {
                Some(value) if value.is_finite() => {
                    issues.events += 1;
                    sink.counter(*track, start, value);
                }
                Some(_) => issues.bad_samples += 1,
                None => issues.empty_samples += 1,
            }
            continue;
        }
        issues.events += 1;
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
                    issues.negative_durations += 1;
                }
                issues.endless += u64::from(!has_end);
                let dur = if has_end {
                    Dur::from_ps(numbers.duration_ps.max(0))
                } else {
                    Dur::ZERO
                };
                let mut flags = marks.flags;
                issues.unfinished += u64::from(flags.contains(SliceFlags::UNFINISHED));
                issues.marked_impossible += u64::from(flags.contains(SliceFlags::IMPOSSIBLE));
                if !has_end {
                    flags = flags | SliceFlags::IMPOSSIBLE;
                }
                scratch.batch.emit(line.track, sink);
                sink.slice(
                    line.track,
                    SliceIn {
                        start,
                        dur,
                        name: metadata.name,
                        category: metadata.category,
                        args,
                        step: marks.step_number(line.place, metadata.step, issues.events - 1),
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
    scratch.batch.emit(line.track, sink);
    issues
}

/// Returns the start and duration of a plain event; `None` if there is a problem to count.
#[inline]
fn plain_times(base_ps: i64, numbers: &Numbers) -> Option<(Time, Dur)> {
    let start = base_ps.checked_add(numbers.offset_ps)?;
    let dur = numbers.duration_ps;
    let plain = start != i64::MIN
        && start != i64::MAX
        && numbers.offset_ps.unsigned_abs() < ABSURD_PS
        && (0..ABSURD_PS.cast_signed()).contains(&dur);
    (plain && start.checked_add(dur).is_some()).then(|| (Time::from_ps(start), Dur::from_ps(dur)))
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

/// Decodes one event: its numbers, whether it has stats of its own, and their meaning.
///
/// The fields that every event has are recognized by their whole tag byte. Numbers are read from
/// `file` instead of the message: this allows eight-byte loads up to the message's end.
#[inline]
fn decode<'a>(
    file: &'a [u8],
    message: Range<usize>,
    metadata: &ReadyPlane<'_>,
    place: EventPlacement,
    marks: &mut EventStats<'a>,
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

/// Tag bytes of the fields that make up nearly every event.
const METADATA_ID_TAG: u8 = tag_byte(event::METADATA_ID, 0);
const OFFSET_TAG: u8 = tag_byte(event::OFFSET_PS, 0);
const DURATION_TAG: u8 = tag_byte(event::DURATION_PS, 0);
const STAT_TAG: u8 = tag_byte(event::STATS, 2);

/// Returns the next event in `rest`: the offset of its tag, and its message.
#[inline]
fn next_event(file: &[u8], rest: Range<usize>) -> Result<Option<(usize, Range<usize>)>, Fault> {
    if file.get(rest.start) == Some(&EVENT_TAG) {
        let (message, next) = delimited(file, rest.start + 1, rest.end)?;
        return Ok(Some((rest.start, next - message.len()..next)));
    }
    next_event_after(file, rest)
}

/// Returns the next event like [`next_event`], after fields of the line's header or in an unusual
/// encoding.
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

/// Skips a field that no single tag byte identifies.
#[cold]
fn other_field(file: &[u8], rest: Range<usize>) -> Result<usize, Fault> {
    let mut fields = Fields::new(file.get(rest.clone()).unwrap_or_default());
    fields.next()?;
    Ok(rest.start + fields.at())
}

/// Returns a stat's metadata id, which every known writer puts first.
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

/// Applies one stat's meaning.
#[cold]
fn take<'a>(
    file: &'a [u8],
    stat: &'a [u8],
    index: &PlaneIndex,
    place: EventPlacement,
    marks: &mut EventStats<'a>,
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
