//! From entries to a sink, one after the other.
//!
//! Complete events, instants, counters and flows go to the sink at once. Begins and ends, async
//! events and metadata need the whole file: only their places are kept ([`Mark`], 24 bytes each).

use memchr::memmem;
use stepscope_model::{
    ArgRef, Cancelled, Dur, EventSink, FlowKey, InstantIn, NameId, ReadContext, SliceFlags,
    SliceFlow, SliceIn, SourceId, Time, TrackId,
};

use super::event::{self, Entry, Next, find_entry, next_element};
use super::extension::{self, Own};
use super::flows::{attached_flows, flow_ends, flow_id};
use super::names::Names;
use super::number::{NotTime, ps_from_us_text};
use super::read_issues::{Note, Tally};
use super::scan::{self, ByteRange, JsonType, ScanError, Value};
use super::torch::Executor;
use super::tracks::{Row, RowSort, Rows, device_key};

/// What is fixed before the first event is emitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) context: &'a ReadContext,
    /// The file's clock at `Time::ZERO`, in picoseconds.
    pub(super) origin_ps: i128,
    pub(super) source: SourceId,
    pub(super) steps: Steps,
    /// Whether events of devices have rows of their own even where a host thread has the same `pid`
    /// and `tid`. Flows then wait for the whole file.
    pub(super) splits_rows: bool,
}

/// Where the numbers of steps stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// Our own writer says each.
    OwnOnly,
    /// PyTorch: in names (`ProfilerStep#7`).
    Names,
    /// XLA and all others: also in the argument `step_num`.
    NamesAndArgs,
}

/// Place of an entry that waits for the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Byte of its opening brace.
    pub(super) at: u64,
    pub(super) time_ps: i64,
    /// Row of a begin or end; unused for async events.
    pub(super) row: u32,
    pub(super) phase: u8,
    /// Whether it has a name (an end may do without).
    pub(super) named: bool,
    /// Whether it has something to show as arguments.
    pub(super) args: bool,
}

/// Why a part was not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The next element begins here, at or behind the limit.
    Handed(usize),
    /// The list was closed before this byte.
    Closed(usize),
    /// The text ended inside the entry at this byte.
    CutInside(usize),
    /// The text ended after a whole entry, here.
    CutBetween(usize),
    /// Nothing more can be made sense of from here.
    Lost(usize),
}

/// What a part left behind, besides what is in the sink.
#[derive(Debug, Default)]
pub(super) struct Emitted {
    pub(super) tally: Tally,
    pub(super) rows: Rows,
    pub(super) begins_and_ends: Vec<Mark>,
    pub(super) asyncs: Vec<Mark>,
    /// Flow ends that wait, where rows are split.
    pub(super) flows: Vec<Mark>,
    /// Row and start of each event of a device, where rows are split.
    pub(super) device_starts: Vec<(u32, i64)>,
    pub(super) metadata: Vec<u64>,
    /// Whole entries, whatever they are.
    pub(super) entries: u64,
    /// The latest moment of any event.
    pub(super) last_ps: Option<i64>,
    pub(super) hints: Hints,
    /// Whether a limit was met that depends on where parts begin.
    pub(super) gave_up: bool,
}

/// Words seen in names that tell who wrote the file.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each stands for one family of programs"
)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    pub(super) jax: bool,
    pub(super) torch_xla: bool,
    pub(super) neuron: bool,
    pub(super) chrome: bool,
}

/// Pours entries of one part of the text into one sink.
pub(super) struct EventEmitter<'a, S: EventSink> {
    plan: Plan<'a>,
    sink: &'a mut S,
    names: Names<'a>,
    categories: Names<'a>,
    step_num: memmem::Finder<'static>,
    pub(super) emitted: Emitted,
    last_thread: Option<(ByteRange, ByteRange, bool, usize)>,
    key: String,
    search_budget: usize,
}

impl<'a, S: EventSink> EventEmitter<'a, S> {
    pub(super) fn new(plan: Plan<'a>, sink: &'a mut S) -> Self {
        Self {
            plan,
            sink,
            names: Names::new(plan.bytes, 12),
            categories: Names::new(plan.bytes, 6),
            step_num: memmem::Finder::new(b"\"step_num\""),
            emitted: Emitted::default(),
            last_thread: None,
            key: String::new(),
            search_budget: search_budget(plan.bytes),
        }
    }

    /// Reads elements from `from` until one begins at or behind `limit`.
    pub(super) fn run(&mut self, from: usize, limit: usize) -> Result<Ended, Cancelled> {
        let bytes: &'a [u8] = self.plan.bytes;
        let mut at = from;
        let mut told = from;
        let mut entry = Entry::default();
        loop {
            if at >= limit {
                self.plan.context.advance((at - told) as u64)?;
                return Ok(Ended::Handed(at));
            }
            if at - told >= 1 << 20 {
                self.plan.context.advance((at - told) as u64)?;
                told = at;
            }
            let is_object = bytes.get(at) == Some(&b'{');
            let end = if is_object {
                event::read_entry(bytes, at, &mut entry).map(|()| entry.end)
            } else {
                scan::value(bytes, at).map(|(_, end)| end)
            };
            let next = end.and_then(|end| next_element(bytes, end));
            if end.is_ok() {
                if is_object {
                    self.emitted.entries += 1;
                    self.take(&entry);
                } else {
                    self.emitted.tally.note(Note::NotObject, at);
                }
            }
            let stop = match next {
                Ok(Next::Element(next)) => {
                    at = next;
                    continue;
                }
                Ok(Next::Closed(end)) => {
                    self.plan.context.advance((end - told) as u64)?;
                    return Ok(Ended::Closed(end));
                }
                Err(stop) => stop,
            };
            let after = end.ok();
            if let (ScanError::End, Some(end)) = (stop, after) {
                return Ok(Ended::CutBetween(end));
            }
            // An entry that swallows the rest of the text may lack a bracket: is there a whole one
            // behind its beginning?
            let search_from = after.unwrap_or(at + 1);
            let found = find_entry(bytes, search_from, bytes.len(), &mut self.search_budget);
            if let Some(found) = found {
                self.emitted
                    .tally
                    .notes(Note::Damaged, at, 1 + found.broken);
                at = found.at;
                continue;
            }
            self.emitted.gave_up |= self.search_budget == 0;
            if stop == ScanError::End {
                return Ok(Ended::CutInside(at));
            }
            self.emitted.tally.note(Note::DamagedToTheEnd, at);
            return Ok(Ended::Lost(at));
        }
    }

    fn take(&mut self, entry: &Entry) {
        let at = entry.at;
        if entry.depth > self.plan.context.limits.max_json_depth {
            self.emitted.tally.note(Note::TooDeep, at);
        }
        if entry.non_ascii && std::str::from_utf8(entry.args.span.of(self.plan.bytes)).is_err() {
            self.emitted.tally.note(Note::BadText, at);
        }
        match entry.phase {
            b'X' => self.complete(entry),
            b'B' | b'E' => self.begin_or_end(entry),
            b'i' | b'I' | b'R' | b'P' => self.instant(entry),
            b'C' => self.counter(entry),
            b's' | b't' | b'f' => self.flow(entry),
            b'b' | b'n' | b'e' | b'S' | b'T' | b'p' | b'F' => self.async_event(entry),
            b'M' => self.emitted.metadata.push(at as u64),
            0 if entry.odd_phase => self.emitted.tally.note(Note::OddPhase, at),
            // JAX ends its list with an empty object.
            0 if entry.fields == 0 => {}
            0 => self.emitted.tally.note(Note::NoPhase, at),
            other => self.emitted.tally.note(Note::UnknownPhase(other), at),
        }
    }

    /// A time on the run's clock; what is no time is counted.
    fn time(&mut self, entry: &Entry) -> Option<Time> {
        let text = self.number_text(&entry.ts, entry.at, Note::NoTime, Note::OddTime)?;
        let note = match ps_from_us_text(text) {
            Ok(ps) => match i64::try_from(ps - self.plan.origin_ps) {
                Ok(ps) => {
                    self.emitted.last_ps = self.emitted.last_ps.max(Some(ps));
                    return Some(Time::from_ps(ps));
                }
                Err(_out_of_range) => Note::FarTime,
            },
            Err(NotTime::TooLarge) => Note::FarTime,
            Err(NotTime::NotNumber) => Note::OddTime,
        };
        self.emitted.tally.note(note, entry.at);
        None
    }

    fn number_text(
        &mut self,
        value: &Value,
        at: usize,
        missing: Note,
        odd: Note,
    ) -> Option<&'a [u8]> {
        match value.sort {
            JsonType::Scalar => Some(value.span.of(self.plan.bytes)),
            JsonType::Str { .. } => {
                self.emitted.tally.note(Note::QuotedNumber, at);
                Some(value.span.of(self.plan.bytes).trim_ascii())
            }
            JsonType::Missing => {
                self.emitted.tally.note(missing, at);
                None
            }
            JsonType::Object | JsonType::Array => {
                self.emitted.tally.note(odd, at);
                None
            }
        }
    }

    /// The length, and whether it could not be true.
    fn duration(&mut self, entry: &Entry) -> Option<(Dur, SliceFlags)> {
        let text = self.number_text(&entry.dur, entry.at, Note::NoDuration, Note::OddDuration)?;
        let note = match ps_from_us_text(text) {
            Ok(ps) if ps < 0 => Note::NegativeDuration,
            Ok(ps) => match i64::try_from(ps) {
                Ok(ps) => return Some((Dur::from_ps(ps), SliceFlags::NONE)),
                Err(_out_of_range) => Note::FarDuration,
            },
            Err(NotTime::TooLarge) if text.starts_with(b"-") => Note::NegativeDuration,
            Err(NotTime::TooLarge) => Note::FarDuration,
            Err(NotTime::NotNumber) => {
                self.emitted.tally.note(Note::OddDuration, entry.at);
                return None;
            }
        };
        self.emitted.tally.note(note, entry.at);
        let flags = match note {
            Note::FarDuration => SliceFlags::IMPOSSIBLE,
            _ => SliceFlags::NONE,
        };
        Some((Dur::ZERO, flags))
    }

    fn name(&mut self, entry: &Entry) -> (NameId, Option<i64>) {
        match entry.name.sort {
            JsonType::Str { .. } | JsonType::Scalar => {
                let found = self
                    .names
                    .get(self.sink, &entry.name, &mut self.emitted.hints);
                if found.repaired {
                    self.emitted.tally.note(Note::BadText, entry.at);
                }
                (found.id, found.step)
            }
            _ => {
                self.emitted.tally.note(Note::NoName, entry.at);
                (NameId::EMPTY, None)
            }
        }
    }

    fn category(&mut self, entry: &Entry) -> super::names::Name {
        if entry.category.raw(self.plan.bytes).is_none() {
            return super::names::Name {
                may_mark_steps: true,
                ..super::names::Name::default()
            };
        }
        let found = self
            .categories
            .get(self.sink, &entry.category, &mut self.emitted.hints);
        if found.repaired {
            self.emitted.tally.note(Note::BadText, entry.at);
        }
        found
    }

    fn has_args(&self, entry: &Entry) -> bool {
        let bytes = self.plan.bytes;
        let args = &entry.args;
        entry.extra || !(args.is_null(bytes) || args.is_empty_container(bytes))
    }

    fn args(&self, entry: &Entry) -> ArgRef {
        if entry.depth <= self.plan.context.limits.max_json_depth && self.has_args(entry) {
            ArgRef::new(self.plan.source, entry.at as u64)
        } else {
            ArgRef::NONE
        }
    }

    fn own(&self, entry: &Entry) -> Own {
        if entry.own.sort == JsonType::Object {
            extension::read(self.plan.bytes, entry.own.span.start)
        } else {
            Own::default()
        }
    }

    /// The row of an entry's `pid` and `tid`.
    fn thread(&mut self, entry: &Entry, own: &Own) -> Option<usize> {
        self.thread_or_queue(entry, own, false)
    }

    /// The row of an entry's `pid` and `tid`; the device's where it `is_device` and rows are split.
    fn thread_or_queue(&mut self, entry: &Entry, own: &Own, is_device: bool) -> Option<usize> {
        let bytes = self.plan.bytes;
        let is_split = is_device && self.plan.splits_rows && own.key.is_none();
        if let Some((pid, tid, split, row)) = self.last_thread
            && own.key.is_none()
            && split == is_split
            && event::same_bytes(bytes, pid, entry.pid.span)
            && event::same_bytes(bytes, tid, entry.tid.span)
        {
            return Some(row);
        }
        let (Some(pid), Some(tid)) = (
            process_text(bytes, &entry.pid),
            process_text(bytes, &entry.tid),
        ) else {
            self.emitted.tally.note(Note::OddPid, entry.at);
            return None;
        };
        self.key.clear();
        if let Some(key) = &own.key {
            self.key.push_str(key);
        } else {
            self.key.push_str(&pid);
            self.key.push('/');
            self.key.push_str(&tid);
            if is_split {
                self.key = device_key(&self.key);
            }
        }
        let row = self.row(entry.at, RowSort::Thread, &pid, &tid)?;
        let plain = |value: &Value| {
            matches!(
                value.sort,
                JsonType::Scalar | JsonType::Str { escaped: false }
            )
        };
        if own.key.is_none() && plain(&entry.pid) && plain(&entry.tid) {
            self.last_thread = Some((entry.pid.span, entry.tid.span, is_split, row));
        }
        Some(row)
    }

    /// The row named by `self.key`.
    fn row(&mut self, at: usize, sort: RowSort, pid: &str, label: &str) -> Option<usize> {
        let limit = self.plan.context.limits.max_tracks;
        let key = &self.key;
        let row = self
            .emitted
            .rows
            .get(self.sink, key, limit, || Row::new(key, sort, pid, label));
        if row.is_none() {
            self.emitted.gave_up = true;
            self.emitted.tally.note(Note::TooManyTracks, at);
        }
        row
    }

    fn track(&self, row: usize) -> TrackId {
        self.emitted.rows.id(row)
    }

    fn complete(&mut self, entry: &Entry) {
        let own = self.own(entry);
        let Some(start) = self.time(entry) else {
            return;
        };
        let Some((dur, found)) = self.duration(entry) else {
            return;
        };
        let category = self.category(entry);
        let is_device = category.executor == Executor::Device;
        let Some(row) = self.thread_or_queue(entry, &own, is_device) else {
            return;
        };
        let end_ps = start.saturating_add(dur).ps();
        self.emitted.last_ps = self.emitted.last_ps.max(Some(end_ps));
        let (name, named_step) = self.name(entry);
        self.note_executor(category.executor, row, entry.at, start);
        let step = own
            .step
            .or(named_step.filter(|_| category.may_mark_steps && self.plan.steps != Steps::OwnOnly))
            .or_else(|| self.step_from_args(entry));
        let mut flows = Vec::new();
        self.attached_flows(entry, &own, &mut flows);
        let slice = SliceIn {
            start,
            dur,
            name,
            category: category.id,
            args: self.args(entry),
            step,
            flags: found | SliceFlags(own.flags),
            flows: &flows,
        };
        self.sink.slice(self.track(row), slice);
    }

    /// Notes who did an event of this row.
    fn note_executor(&mut self, executor: Executor, row: usize, at: usize, start: Time) {
        if executor == Executor::Unknown {
            return;
        }
        if self.plan.splits_rows && executor == Executor::Device {
            let number = u32::try_from(row).unwrap_or(u32::MAX);
            self.emitted.device_starts.push((number, start.ps()));
        }
        if let Some(row) = self.emitted.rows.all.get_mut(row) {
            match executor {
                Executor::Device => row.add(Some(at), false),
                _ => row.add(None, true),
            }
        }
    }

    fn step_from_args(&self, entry: &Entry) -> Option<i64> {
        if self.plan.steps != Steps::NamesAndArgs || entry.args.sort != JsonType::Object {
            return None;
        }
        let args = entry.args.span.of(self.plan.bytes);
        self.step_num.find(args)?;
        let mut step = None;
        let _ = event::members(self.plan.bytes, entry.args.span.start, |key, value| {
            if key == b"step_num" {
                step = value
                    .raw(self.plan.bytes)
                    .and_then(|raw| std::str::from_utf8(raw).ok())
                    .and_then(|text| text.trim().parse().ok());
            }
        });
        step
    }

    fn attached_flows(&mut self, entry: &Entry, own: &Own, flows: &mut Vec<SliceFlow>) {
        attached_flows(self.plan.bytes, self.sink, entry, own, flows);
    }

    fn begin_or_end(&mut self, entry: &Entry) {
        let own = self.own(entry);
        let Some(time) = self.time(entry) else {
            return;
        };
        let Some(row) = self.thread(entry, &own) else {
            return;
        };
        let mark = self.mark(entry, time, row);
        self.emitted.begins_and_ends.push(mark);
    }

    fn mark(&self, entry: &Entry, time: Time, row: usize) -> Mark {
        Mark {
            at: entry.at as u64,
            time_ps: time.ps(),
            row: u32::try_from(row).unwrap_or(u32::MAX),
            phase: entry.phase,
            named: entry.name.sort != JsonType::Missing,
            args: !self.args(entry).is_none(),
        }
    }

    fn async_event(&mut self, entry: &Entry) {
        let Some(time) = self.time(entry) else {
            return;
        };
        let mark = self.mark(entry, time, usize::MAX);
        self.emitted.asyncs.push(mark);
    }

    fn instant(&mut self, entry: &Entry) {
        let own = self.own(entry);
        let Some(at) = self.time(entry) else {
            return;
        };
        let Some(row) = self.thread(entry, &own) else {
            return;
        };
        let (name, _) = self.name(entry);
        let instant = InstantIn {
            at,
            name,
            category: self.category(entry).id,
            args: self.args(entry),
        };
        self.sink.instant(self.track(row), instant);
    }

    fn flow(&mut self, entry: &Entry) {
        let own = self.own(entry);
        if own.attached {
            // The slice itself says so, more exactly.
            return;
        }
        let Some(at) = self.time(entry) else {
            return;
        };
        let Some(row) = self.thread(entry, &own) else {
            return;
        };
        if self.plan.splits_rows {
            let mark = self.mark(entry, at, row);
            self.emitted.flows.push(mark);
            return;
        }
        let category = if entry.category.raw(self.plan.bytes).is_some() {
            self.category(entry).id
        } else {
            self.name(entry).0
        };
        let (direction, bind) = flow_ends(self.plan.bytes, entry);
        let id = flow_id(self.plan.bytes, &entry.id, &entry.scope);
        let key = FlowKey { category, id };
        self.sink
            .flow(self.track(row), at, SliceFlow { key, direction }, bind);
    }

    fn counter(&mut self, entry: &Entry) {
        let own = self.own(entry);
        let Some(at) = self.time(entry) else {
            return;
        };
        let bytes = self.plan.bytes;
        let Some(pid) = process_text(bytes, &entry.pid) else {
            self.emitted.tally.note(Note::OddPid, entry.at);
            return;
        };
        if entry.args.sort != JsonType::Object || entry.args.is_empty_container(bytes) {
            self.emitted.tally.note(Note::CounterWithoutArgs, entry.at);
            return;
        }
        let mut name = event::key_text(bytes, &entry.name)
            .map(|name| name.text.into_owned())
            .unwrap_or_default();
        if let Some(id) = event::key_text(bytes, &entry.id).filter(|id| !id.text.is_empty()) {
            name = format!("{name}[{}]", id.text);
        }
        let mut samples = Vec::new();
        let _ = event::members(bytes, entry.args.span.start, |series, value| {
            samples.push((series, value));
        });
        for (series, value) in samples {
            let number = value
                .raw(bytes)
                .and_then(|raw| std::str::from_utf8(raw).ok())
                .and_then(|text| text.trim().parse::<f64>().ok())
                .filter(|number| number.is_finite());
            let Some(number) = number else {
                self.emitted.tally.note(Note::BadCounterValue, entry.at);
                continue;
            };
            let series = super::text::unescape(series, true).text;
            self.key.clear();
            if let Some(key) = &own.key {
                self.key.push_str(key);
            } else {
                for part in [&*pid, "/counter/", &name, "/", &series] {
                    self.key.push_str(part);
                }
            }
            let label = if series.is_empty() || series == "value" || *series == *name {
                name.clone()
            } else {
                format!("{name} {series}")
            };
            if let Some(row) = self.row(entry.at, RowSort::Counter, &pid, &label) {
                self.sink.counter(self.track(row), at, number);
            }
        }
    }
}

/// Bytes that may be looked at in vain while whole entries are looked for in damaged text.
const fn search_budget(bytes: &[u8]) -> usize {
    (256 << 20) + bytes.len().saturating_mul(8)
}

/// The text of a `pid` or `tid`: numbers as they stand, strings unescaped, `None` for a missing
/// one. No text for what cannot be one.
pub(super) fn process_text<'a>(
    bytes: &'a [u8],
    value: &Value,
) -> Option<std::borrow::Cow<'a, str>> {
    if value.is_null(bytes) {
        return Some("None".into());
    }
    event::key_text(bytes, value).map(|text| text.text)
}
