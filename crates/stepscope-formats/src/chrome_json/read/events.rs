//! Emission of entries to a sink, one after another.
//!
//! Complete events, instants, counters and flows go to the sink at once. Begins and ends, async
//! events and metadata need the whole file: only their positions are stored ([`Mark`], 24 bytes
//! each).

use memchr::memmem;
use stepscope_model::vocabulary::kineto::Executor;
use stepscope_model::{
    ArgRef, Cancelled, Dur, EventSink, FlowKey, InstantIn, NameId, SliceFlags, SliceFlow, SliceIn,
    Time, TrackId,
};

use super::emitted::{Emitted, Ended, Mark, Plan, Steps};
use super::flows::{attached_flows, flow_ends, flow_id};
use super::names::{Name, Names};
use super::read_issues::ReadIssue;
use super::tracks::{Row, RowKind, device_key};
use crate::chrome_json::dialect::stepscope::{self, Extension};
use crate::chrome_json::entry::{self, Entry, Next, find_entry, next_element, process_text};
use crate::json::members::members;
use crate::json::number::{NotTime, ps_from_us_text};
use crate::json::scan::{self, ByteRange, JsonType, ScanError, Value};
use crate::json::text::unescape;
use crate::json::value::key_text;

/// Emits the entries of one part of the text into one sink.
pub(crate) struct EventEmitter<'a, S: EventSink> {
    plan: Plan<'a>,
    sink: &'a mut S,
    names: Names<'a>,
    categories: Names<'a>,
    step_num: memmem::Finder<'static>,
    pub(crate) emitted: Emitted,
    last_thread: Option<(ByteRange, ByteRange, bool, usize)>,
    key: String,
    search_budget: usize,
}

impl<'a, S: EventSink> EventEmitter<'a, S> {
    pub(crate) fn new(plan: Plan<'a>, sink: &'a mut S) -> Self {
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

    /// Reads elements from `from` until one starts at or after `limit`.
    pub(crate) fn run(&mut self, from: usize, limit: usize) -> Result<Ended, Cancelled> {
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
                entry::read_entry(bytes, at, &mut entry).map(|()| entry.end)
            } else {
                scan::value(bytes, at).map(|(_, end)| end)
            };
            let next = end.and_then(|end| next_element(bytes, end));
            if end.is_ok() {
                if is_object {
                    self.emitted.entries += 1;
                    self.take(&entry);
                } else {
                    self.emitted.issues.note(ReadIssue::NotObject, at);
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
            // An entry that extends to the end of the text can lack a closing bracket: search for a
            // complete entry after its start.
            let search_from = after.unwrap_or(at + 1);
            let found = find_entry(bytes, search_from, bytes.len(), &mut self.search_budget);
            if let Some(found) = found {
                self.emitted
                    .issues
                    .notes(ReadIssue::Damaged, at, 1 + found.broken);
                at = found.at;
                continue;
            }
            self.emitted.gave_up |= self.search_budget == 0;
            if stop == ScanError::End {
                return Ok(Ended::CutInside(at));
            }
            self.emitted.issues.note(ReadIssue::DamagedToTheEnd, at);
            return Ok(Ended::Lost(at));
        }
    }

    fn take(&mut self, entry: &Entry) {
        let at = entry.at;
        if entry.depth > self.plan.context.limits.max_json_depth {
            self.emitted.issues.note(ReadIssue::TooDeep, at);
        }
        if entry.non_ascii && std::str::from_utf8(entry.args.span.slice(self.plan.bytes)).is_err() {
            self.emitted.issues.note(ReadIssue::BadText, at);
        }
        match entry.phase {
            b'X' => self.complete(entry),
            b'B' | b'E' => self.begin_or_end(entry),
            b'i' | b'I' | b'R' | b'P' => self.instant(entry),
            b'C' => self.counter(entry),
            b's' | b't' | b'f' => self.flow(entry),
            b'b' | b'n' | b'e' | b'S' | b'T' | b'p' | b'F' => self.async_event(entry),
            b'M' => self.emitted.metadata.push(at as u64),
            0 if entry.odd_phase => self.emitted.issues.note(ReadIssue::OddPhase, at),
            // JAX ends its list with an empty object.
            0 if entry.fields == 0 => {}
            0 => self.emitted.issues.note(ReadIssue::NoPhase, at),
            other => self.emitted.issues.note(ReadIssue::UnknownPhase(other), at),
        }
    }

    /// Returns the entry's time on the run's clock; counts invalid times.
    fn time(&mut self, entry: &Entry) -> Option<Time> {
        let text = self.number_text(&entry.ts, entry.at, ReadIssue::NoTime, ReadIssue::OddTime)?;
        let note = match ps_from_us_text(text) {
            Ok(ps) => match i64::try_from(ps - self.plan.origin_ps) {
                Ok(ps) => {
                    self.emitted.last_ps = self.emitted.last_ps.max(Some(ps));
                    return Some(Time::from_ps(ps));
                }
                Err(_out_of_range) => ReadIssue::FarTime,
            },
            Err(NotTime::TooLarge) => ReadIssue::FarTime,
            Err(NotTime::NotNumber) => ReadIssue::OddTime,
        };
        self.emitted.issues.note(note, entry.at);
        None
    }

    fn number_text(
        &mut self,
        value: &Value,
        at: usize,
        missing: ReadIssue,
        odd: ReadIssue,
    ) -> Option<&'a [u8]> {
        match value.json_type {
            JsonType::Scalar => Some(value.span.slice(self.plan.bytes)),
            JsonType::Str { .. } => {
                self.emitted.issues.note(ReadIssue::QuotedNumber, at);
                Some(value.span.slice(self.plan.bytes).trim_ascii())
            }
            JsonType::Missing => {
                self.emitted.issues.note(missing, at);
                None
            }
            JsonType::Object | JsonType::Array => {
                self.emitted.issues.note(odd, at);
                None
            }
        }
    }

    /// Returns the duration, and whether it was impossible.
    fn duration(&mut self, entry: &Entry) -> Option<(Dur, SliceFlags)> {
        let text = self.number_text(
            &entry.dur,
            entry.at,
            ReadIssue::NoDuration,
            ReadIssue::OddDuration,
        )?;
        let note = match ps_from_us_text(text) {
            Ok(ps) if ps < 0 => ReadIssue::NegativeDuration,
            Ok(ps) => match i64::try_from(ps) {
                Ok(ps) => return Some((Dur::from_ps(ps), SliceFlags::NONE)),
                Err(_out_of_range) => ReadIssue::FarDuration,
            },
            Err(NotTime::TooLarge) if text.starts_with(b"-") => ReadIssue::NegativeDuration,
            Err(NotTime::TooLarge) => ReadIssue::FarDuration,
            Err(NotTime::NotNumber) => {
                self.emitted.issues.note(ReadIssue::OddDuration, entry.at);
                return None;
            }
        };
        self.emitted.issues.note(note, entry.at);
        let flags = match note {
            ReadIssue::FarDuration => SliceFlags::IMPOSSIBLE,
            _ => SliceFlags::NONE,
        };
        Some((Dur::ZERO, flags))
    }

    fn name(&mut self, entry: &Entry) -> (NameId, Option<i64>) {
        match entry.name.json_type {
            JsonType::Str { .. } | JsonType::Scalar => {
                let found = self
                    .names
                    .get(self.sink, &entry.name, &mut self.emitted.hints);
                if found.repaired {
                    self.emitted.issues.note(ReadIssue::BadText, entry.at);
                }
                (found.id, found.step)
            }
            _ => {
                self.emitted.issues.note(ReadIssue::NoName, entry.at);
                (NameId::EMPTY, None)
            }
        }
    }

    fn category(&mut self, entry: &Entry) -> Name {
        if entry.category.raw(self.plan.bytes).is_none() {
            return Name {
                may_mark_steps: true,
                ..Name::default()
            };
        }
        let found = self
            .categories
            .get(self.sink, &entry.category, &mut self.emitted.hints);
        if found.repaired {
            self.emitted.issues.note(ReadIssue::BadText, entry.at);
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

    fn own(&self, entry: &Entry) -> Extension {
        if entry.extension.json_type == JsonType::Object {
            stepscope::read(self.plan.bytes, entry.extension.span.start)
        } else {
            Extension::default()
        }
    }

    /// Returns the row of an entry's `pid` and `tid`.
    fn thread(&mut self, entry: &Entry, own: &Extension) -> Option<usize> {
        self.thread_or_queue(entry, own, false)
    }

    /// Returns the row of an entry's `pid` and `tid`; the device's row if `is_device` and rows are
    /// split.
    fn thread_or_queue(
        &mut self,
        entry: &Entry,
        own: &Extension,
        is_device: bool,
    ) -> Option<usize> {
        let bytes = self.plan.bytes;
        let is_split = is_device && self.plan.splits_rows && own.key.is_none();
        if let Some((pid, tid, split, row)) = self.last_thread
            && own.key.is_none()
            && split == is_split
            && entry::same_bytes(bytes, pid, entry.pid.span)
            && entry::same_bytes(bytes, tid, entry.tid.span)
        {
            return Some(row);
        }
        let (Some(pid), Some(tid)) = (
            process_text(bytes, &entry.pid),
            process_text(bytes, &entry.tid),
        ) else {
            self.emitted.issues.note(ReadIssue::OddPid, entry.at);
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
        let row = self.row(entry.at, RowKind::Thread, &pid, &tid)?;
        let plain = |value: &Value| {
            matches!(
                value.json_type,
                JsonType::Scalar | JsonType::Str { escaped: false }
            )
        };
        if own.key.is_none() && plain(&entry.pid) && plain(&entry.tid) {
            self.last_thread = Some((entry.pid.span, entry.tid.span, is_split, row));
        }
        Some(row)
    }

    /// Returns the row with the key `self.key`.
    fn row(&mut self, at: usize, kind: RowKind, pid: &str, label: &str) -> Option<usize> {
        let limit = self.plan.context.limits.max_tracks;
        let key = &self.key;
        let row = self
            .emitted
            .rows
            .get(self.sink, key, limit, || Row::new(key, kind, pid, label));
        if row.is_none() {
            self.emitted.gave_up = true;
            self.emitted.issues.note(ReadIssue::TooManyTracks, at);
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
            .or(named_step
                .filter(|_| category.may_mark_steps && self.plan.steps != Steps::ExtensionOnly))
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

    /// Records whether the host or a device executed an event of this row.
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
        if self.plan.steps != Steps::NamesAndArgs || entry.args.json_type != JsonType::Object {
            return None;
        }
        let args = entry.args.span.slice(self.plan.bytes);
        self.step_num.find(args)?;
        let mut step = None;
        let _ = members(self.plan.bytes, entry.args.span.start, |key, value| {
            if key == b"step_num" {
                step = value
                    .raw(self.plan.bytes)
                    .and_then(|raw| std::str::from_utf8(raw).ok())
                    .and_then(|text| text.trim().parse().ok());
            }
        });
        step
    }

    fn attached_flows(&mut self, entry: &Entry, own: &Extension, flows: &mut Vec<SliceFlow>) {
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
            named: entry.name.json_type != JsonType::Missing,
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
            // The slice itself holds this flow end, with more detail.
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
            self.emitted.issues.note(ReadIssue::OddPid, entry.at);
            return;
        };
        if entry.args.json_type != JsonType::Object || entry.args.is_empty_container(bytes) {
            self.emitted
                .issues
                .note(ReadIssue::CounterWithoutArgs, entry.at);
            return;
        }
        let mut name = key_text(bytes, &entry.name)
            .map(|name| name.text.into_owned())
            .unwrap_or_default();
        if let Some(id) = key_text(bytes, &entry.id).filter(|id| !id.text.is_empty()) {
            name = format!("{name}[{}]", id.text);
        }
        let mut samples = Vec::new();
        let _ = members(bytes, entry.args.span.start, |series, value| {
            samples.push((series, value));
        });
        for (series, value) in samples {
            let number = value
                .raw(bytes)
                .and_then(|raw| std::str::from_utf8(raw).ok())
                .and_then(|text| text.trim().parse::<f64>().ok())
                .filter(|number| number.is_finite());
            let Some(number) = number else {
                self.emitted
                    .issues
                    .note(ReadIssue::BadCounterValue, entry.at);
                continue;
            };
            let series = unescape(series, true).text;
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
            if let Some(row) = self.row(entry.at, RowKind::Counter, &pid, &label) {
                self.sink.counter(self.track(row), at, number);
            }
        }
    }
}

/// Maximum number of bytes that the search for complete entries in damaged text can waste.
const fn search_budget(bytes: &[u8]) -> usize {
    (256 << 20) + bytes.len().saturating_mul(8)
}
