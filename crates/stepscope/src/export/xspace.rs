//! Encodes events as one `XSpace`.
//!
//! It works thread by thread within each window of the recording, so that the events being sorted
//! and encoded stay in cache, and the buffers are reused. A table maps name ids to ids of the
//! plane.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use stepscope_formats::xspace::{
    COUNTERS_LINE, EventKind, EventMetadataId, HOST_PLANE, LineWriter, PlaneWriter, StatId,
    TrackRecord, WrittenStat, WrittenStatValue, XSpaceWriter,
};

use crate::export::decode::{Arg, Batch, Decoder, Event, Kind, ThreadState, Value, WINDOW_RECORDS};
use crate::export::limits::ExportLimits;
use crate::export::merge_external::{ExternalPlanes, ExternalProfiles, MergedProfile, spaces};
use crate::journal::index::{Index, Thread};
use crate::platform::clock::Cursor;
use crate::ring::names;

/// Prefix of metadata keys that describe the kind of the recorded program.
const KIND_FACT: &str = "kind.";

/// Id of the counters' line; no thread has it.
const COUNTERS_ID: i64 = -1;

/// Metadata of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileMetadata {
    /// Name of the machine.
    pub(crate) host: String,
    /// Plane stats: key and value.
    pub(crate) stats: Vec<(String, String)>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
    /// Whether the recording was recovered from a killed program's journal.
    pub(crate) recovered: bool,
}

/// Statistics of a written file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportStats {
    /// Spans and steps, including unfinished ones.
    pub(crate) spans: u64,
    /// Spans and steps that were open when the recording ended.
    pub(crate) unfinished: u64,
    /// Instants.
    pub(crate) instants: u64,
    /// Samples of counters.
    pub(crate) samples: u64,
    /// Events dropped because of `max_events`.
    pub(crate) cut: u64,
    /// Events whose arguments were removed with an older part of the recording.
    pub(crate) lost_args: u64,
    /// Size of the file, bytes.
    pub(crate) bytes: u64,
    /// Merged profiles of other profilers.
    pub(crate) added: Vec<MergedProfile>,
    /// Warnings about them.
    pub(crate) added_warnings: Vec<String>,
}

/// Source of the texts of name ids.
pub(crate) enum Names<'a> {
    /// The name table of this process.
    ThisProcess,
    /// A name table that another process left.
    Table(HashMap<u32, &'a [u8]>),
}

impl Names<'_> {
    fn text(&self, id: u32) -> std::borrow::Cow<'_, str> {
        let text = match self {
            Self::ThisProcess => names::text(id).map(Into::into),
            Self::Table(table) => table.get(&id).map(|text| String::from_utf8_lossy(text)),
        };
        text.unwrap_or_else(|| format!("name {id}").into())
    }
}

/// Writes a recording.
pub(crate) fn write(
    out: &mut dyn Write,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &FileMetadata,
    cut: &ExportLimits,
    external: &ExternalProfiles,
) -> io::Result<ExportStats> {
    write_in_windows(out, index, names, facts, cut, external, WINDOW_RECORDS)
}

/// Writes a recording in windows of this many records.
fn write_in_windows(
    out: &mut dyn Write,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &FileMetadata,
    cut: &ExportLimits,
    external: &ExternalProfiles,
    records: usize,
) -> io::Result<ExportStats> {
    let mut counted = Counted { out, bytes: 0 };
    let mut space = XSpaceWriter::new(&mut counted);
    let mut timeline = index.timeline();
    let mut written = ExportStats::default();
    let decoder = Decoder::new(index, cut);
    if let Some(origin) = decoder.filter.origin {
        timeline = timeline.from(origin);
    }
    let mut unreadable = Vec::new();
    let spaces = spaces(external, &mut unreadable);
    let mut all_merged = ExternalPlanes::new(&spaces, timeline.unix_ns());
    let ids = line_ids(index);
    let mut states: HashMap<u32, ThreadState<'_>> = HashMap::new();
    let mut batch = Batch::default();
    let mut last_ticks = index.last_reading();
    for (number, window) in decoder.windows(records).iter().enumerate() {
        let mut plane = PlaneWriter::new(HOST_PLANE).with_id(1);
        if number == 0 {
            describe(&mut plane, facts);
        } else {
            plane.continues();
        }
        let mut filler = PlaneFiller::new(&mut plane, index.process_id(), names, timeline.cursor());
        for serial in window.threads.keys() {
            let state = states.entry(*serial).or_default();
            decoder.batch(window, *serial, state, &mut batch);
            last_ticks = last_ticks.max(batch.last_ticks);
            written.cut += batch.cut;
            written.lost_args += batch.lost_args;
            let unknown = Thread::default();
            let thread = index.threads.get(serial).unwrap_or(&unknown);
            let id = ids.get(serial).copied().unwrap_or(i64::from(*serial));
            filler.thread(*serial, id, thread, &batch, &mut written);
        }
        filler.finish();
        if number == 0 {
            all_merged.fill_host(&mut plane);
        }
        space.plane(&plane)?;
    }
    all_merged.write(&mut space)?;
    let start = timeline.unix_ns();
    let stop = start.saturating_add(timeline.ps(last_ticks).max(0) / 1_000);
    let stop = stop.max(all_merged.stop_unix_ns);
    space.task_environment(start.max(0).cast_unsigned(), stop.max(0).cast_unsigned())?;
    space.hostname(&facts.host)?;
    written.added = all_merged.added;
    written.added_warnings.clone_from(&external.warnings);
    written.added_warnings.append(&mut unreadable);
    written.added_warnings.append(&mut all_merged.warnings);
    for warning in facts.warnings.iter().chain(&warnings(&written, cut)) {
        space.warning(warning)?;
    }
    space.finish()?;
    written.bytes = counted.bytes;
    Ok(written)
}

/// Lists the warnings that are known only after everything has been written.
pub(crate) fn warnings(written: &ExportStats, cut: &ExportLimits) -> Vec<String> {
    let mut warnings = written.added_warnings.clone();
    if written.cut > 0 {
        let all = written.spans + written.instants + written.samples + written.cut;
        warnings.push(format!(
            "{} of {all} events were cut: max_events is {}, and the earliest are kept; raise it, or record for a shorter time",
            written.cut,
            cut.max_events.unwrap_or(0),
        ));
    }
    if written.lost_args > 0 {
        let (events, have) = match written.lost_args {
            1 => ("event", "has"),
            _ => ("events", "have"),
        };
        warnings.push(format!(
            "{} {events} {have} lost their arguments: they were in a part of the recording that was dropped",
            written.lost_args
        ));
    }
    warnings
}

/// A writer that counts bytes.
struct Counted<'w> {
    out: &'w mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn describe(plane: &mut PlaneWriter, facts: &FileMetadata) {
    let mut kinds = 0;
    for (key, value) in &facts.stats {
        if key.starts_with(KIND_FACT) {
            let id = plane.bool_argument(key);
            plane.add_stat(id, WrittenStatValue::Int(1));
            kinds += 1;
            continue;
        }
        let id = plane.stat(key);
        match value.parse::<i64>() {
            Ok(number) => plane.add_stat(id, WrittenStatValue::Int(number)),
            Err(_) => plane.add_stat(id, WrittenStatValue::Str(value)),
        }
    }
    if kinds == 0 {
        let id = plane.bool_argument("kind.Rust");
        plane.add_stat(id, WrittenStatValue::Int(1));
    }
    if facts.recovered {
        let id = plane.bool_argument("stepscope.recovered");
        plane.add_stat(id, WrittenStatValue::Int(1));
    }
}

/// Converts batches to lines of one plane.
struct PlaneFiller<'p> {
    plane: &'p mut PlaneWriter,
    process_id: Option<u32>,
    names: &'p Names<'p>,
    cursor: Cursor<'p>,
    counters_line: LineWriter,
    /// By name id.
    slices: Ids,
    instants: Ids,
    counters: Ids,
    /// Counters whose names have no id.
    named_counters: HashMap<String, EventMetadataId>,
    /// Arguments by name id, whether they are boolean, and whether they belong to a step.
    args: FxHashMap<(u32, bool, bool), StatId>,
    value_stat: StatId,
    root_stat: StatId,
    unfinished_stat: StatId,
}

/// Ids of the plane by name id; name ids count from 1 and are dense.
#[derive(Default)]
struct Ids(Vec<Option<EventMetadataId>>);

/// A larger name id is invalid.
const MAX_IDS: usize = 1 << 20;

impl Ids {
    #[inline]
    fn get(&self, name: u32) -> Option<EventMetadataId> {
        self.0.get(name as usize).copied().flatten()
    }

    fn set(&mut self, name: u32, id: EventMetadataId) {
        let index = name as usize;
        if name == 0 || index >= MAX_IDS {
            return;
        }
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(id);
    }
}

impl<'p> PlaneFiller<'p> {
    fn new(
        plane: &'p mut PlaneWriter,
        process_id: Option<u32>,
        names: &'p Names<'p>,
        cursor: Cursor<'p>,
    ) -> Self {
        Self {
            value_stat: plane.stat("counter_value"),
            root_stat: plane.stat("_r"),
            unfinished_stat: plane.unfinished(),
            plane,
            process_id,
            names,
            cursor,
            counters_line: LineWriter::new(COUNTERS_ID, COUNTERS_LINE, 0),
            slices: Ids::default(),
            instants: Ids::default(),
            counters: Ids::default(),
            named_counters: HashMap::new(),
            args: FxHashMap::default(),
        }
    }

    fn thread(
        &mut self,
        serial: u32,
        id: i64,
        thread: &Thread,
        batch: &Batch<'_>,
        written: &mut ExportStats,
    ) {
        let mut line = LineWriter::new(id, &line_name(thread), 0);
        let mut rows: BTreeMap<u16, LineWriter> = BTreeMap::new();
        for event in &batch.events {
            let line = match event.row {
                0 => &mut line,
                row => rows.entry(row).or_insert_with(|| {
                    let name = format!("{} (tasks {row})", line_name(thread));
                    LineWriter::new(row_line_id(serial, row), &name, 0)
                }),
            };
            self.event(batch, event, line, written);
        }
        self.line(id, thread, line);
        for (row, line) in rows {
            self.line(row_line_id(serial, row), thread, line);
        }
    }

    fn line(&mut self, id: i64, thread: &Thread, line: LineWriter) {
        if line.is_empty() {
            return;
        }
        let record = TrackRecord {
            line: Some(id),
            pid: self.process_id.map(i64::from),
            tid: Some(thread.tid.cast_signed()),
            ..TrackRecord::default()
        };
        self.plane.describe(&record);
        self.plane.add_line(line);
    }

    fn finish(self) {
        if !self.counters_line.is_empty() {
            self.plane.add_line(self.counters_line);
        }
    }

    #[inline]
    fn event(
        &mut self,
        batch: &Batch<'_>,
        event: &Event,
        line: &mut LineWriter,
        written: &mut ExportStats,
    ) {
        let begin = self.cursor.ps(event.begin);
        let args = batch.args(event);
        match event.kind {
            Kind::Span if args.is_empty() && !event.unfinished => {
                let name = self.event_id(event, args);
                let length = self.cursor.ps(event.end).saturating_sub(begin).max(0);
                line.span(name, begin, length, &[]);
                written.spans += 1;
            }
            Kind::Span | Kind::Step => {
                let name = self.event_id(event, args);
                let length = self.cursor.ps(event.end).saturating_sub(begin).max(0);
                let stats = self.stats(event, args);
                line.span(name, begin, length, &stats);
                written.spans += 1;
                written.unfinished += u64::from(event.unfinished);
            }
            Kind::Counter => {
                let counter = self.counter(event, args);
                let value = f64::from_bits(event.end);
                self.counters_line
                    .sample(counter, begin, self.value_stat, value);
                written.samples += 1;
            }
            Kind::Instant => {
                let name = self.event_id(event, args);
                let stats = self.stats(event, args);
                line.point(name, begin, &stats);
                written.instants += 1;
            }
        }
    }

    fn stats<'a>(&mut self, event: &Event, args: &'a [Arg<'_>]) -> Vec<WrittenStat<'a>> {
        let mut stats = Vec::with_capacity(args.len() + 1);
        for arg in args.iter().filter(|arg| arg.name != 0) {
            let is_bool = matches!(arg.value, Value::Bool(_));
            let of_step = event.kind == Kind::Step;
            let id = match self.args.get(&(arg.name, is_bool, of_step)) {
                Some(id) => *id,
                None => self.argument(arg.name, is_bool, of_step),
            };
            let value = match &arg.value {
                Value::Int(value) => WrittenStatValue::Int(*value),
                Value::Uint(value) => WrittenStatValue::Uint(*value),
                Value::Double(value) => WrittenStatValue::Double(*value),
                Value::Bool(value) => WrittenStatValue::Int(i64::from(*value)),
                Value::Text(text) if text.len() > 64 => WrittenStatValue::Str(text),
                Value::Text(text) => WrittenStatValue::Text(self.plane.text(text)),
            };
            stats.push(WrittenStat { id, value });
        }
        if event.kind == Kind::Step {
            stats.push(WrittenStat {
                id: self.root_stat,
                value: WrittenStatValue::Int(1),
            });
        }
        if event.unfinished {
            stats.push(WrittenStat {
                id: self.unfinished_stat,
                value: WrittenStatValue::Int(1),
            });
        }
        stats
    }

    /// A user's argument has no defined meaning for readers, whatever its name; a step's number
    /// has.
    fn argument(&mut self, name: u32, is_bool: bool, of_step: bool) -> StatId {
        let text = self.names.text(name).into_owned();
        let id = if of_step && text == "step_num" {
            self.plane.stat(&text)
        } else if is_bool {
            self.plane.bool_argument(&text)
        } else {
            self.plane.argument(&text)
        };
        self.args.insert((name, is_bool, of_step), id);
        id
    }

    #[inline]
    fn event_id(&mut self, event: &Event, args: &[Arg<'_>]) -> EventMetadataId {
        let known = match event.kind {
            Kind::Instant => self.instants.get(event.name),
            _ => self.slices.get(event.name),
        };
        known.unwrap_or_else(|| self.new_event_id(event, args))
    }

    #[cold]
    fn new_event_id(&mut self, event: &Event, args: &[Arg<'_>]) -> EventMetadataId {
        let (ids, kind) = match event.kind {
            Kind::Instant => (&mut self.instants, EventKind::Instant),
            _ => (&mut self.slices, EventKind::Slice),
        };
        let id = self
            .plane
            .event_of(&name(self.names, event, args), "", kind);
        ids.set(event.name, id);
        id
    }

    fn counter(&mut self, event: &Event, args: &[Arg<'_>]) -> EventMetadataId {
        if let Some(id) = self.counters.get(event.name) {
            return id;
        }
        let name = name(self.names, event, args);
        let id = match self.named_counters.get(&name) {
            Some(id) => *id,
            None => self.plane.counter(&name, &TrackRecord::default()),
        };
        self.named_counters.insert(name, id);
        self.counters.set(event.name, id);
        id
    }
}

fn name(names: &Names<'_>, event: &Event, args: &[Arg<'_>]) -> String {
    if event.name != 0 {
        return names.text(event.name).into_owned();
    }
    args.iter()
        .find_map(|arg| match &arg.value {
            Value::Text(text) if arg.name == 0 => Some(text.to_string()),
            _ => None,
        })
        .unwrap_or_else(|| "unnamed".to_owned())
}

/// Assigns one id to each thread: its thread id, unless the system reused that from an earlier
/// thread.
fn line_ids(index: &Index<'_>) -> HashMap<u32, i64> {
    let mut ids = HashMap::new();
    let mut taken = HashSet::new();
    for (serial, thread) in &index.threads {
        let tid = thread.tid.cast_signed();
        let id = if tid == 0 || taken.contains(&tid) {
            i64::from(*serial) << 32 | tid
        } else {
            tid
        };
        taken.insert(id);
        ids.insert(*serial, id);
    }
    ids
}

/// Returns the id of a row other than row 0, distinct from those of [`line_ids`].
fn row_line_id(serial: u32, row: u16) -> i64 {
    1 << 62 | i64::from(serial) << 16 | i64::from(row)
}

fn line_name(thread: &Thread) -> String {
    if thread.name.is_empty() {
        return format!("thread {}", thread.tid);
    }
    thread.name.clone()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stepscope_formats::probe::Probe;
    use stepscope_formats::xspace::read;
    use stepscope_model::{ReadContext, SharedBytes};

    use super::*;
    use crate::journal::append::Journal;
    use crate::ring::layout::{
        ARG_INT, BLOCK_DATA, BlockHead, FLAG_ARGS, KIND_ARG, KIND_SPAN, meta,
    };

    /// A block of one thread's records.
    fn block(serial: u32, sequence: u32, records: &[[u64; 3]]) -> Vec<u8> {
        let mut journal = Journal::in_memory(1 << 20);
        let head = BlockHead {
            kind: BLOCK_DATA,
            serial,
            sequence,
            ..BlockHead::default()
        };
        let words = records.iter().flatten();
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        journal.put(head, &bytes);
        journal.memory().flatten().copied().collect()
    }

    fn written_in_windows(index: &Index<'_>, records: usize) -> Probe {
        let mut bytes = Vec::new();
        write_in_windows(
            &mut bytes,
            index,
            &Names::Table(HashMap::from([
                (1, &b"outer"[..]),
                (2, b"inner"),
                (3, b"other"),
            ])),
            &FileMetadata::default(),
            &ExportLimits::default(),
            &ExternalProfiles::default(),
            records,
        )
        .unwrap();
        let bytes: SharedBytes = Arc::new(bytes);
        let mut probe = Probe::new();
        read(&bytes, &ReadContext::default(), &mut probe).unwrap();
        probe
    }

    /// A long recording is written in several windows; a thread may first appear in any of them.
    #[test]
    fn later_windows_continue_the_first_one() {
        let mut all = block(
            1,
            1,
            &[
                [10, 7, meta(4, KIND_ARG, ARG_INT, 0)],
                [20, 30, meta(2, KIND_SPAN, 0, 0)],
            ],
        );
        all.extend(block(2, 1, &[[15, 25, meta(3, KIND_SPAN, 0, 0)]]));
        // Its argument is in the first window.
        all.extend(block(1, 2, &[[10, 40, meta(1, KIND_SPAN, FLAG_ARGS, 0)]]));
        let mut index = Index::default();
        index.add(&all);
        index.facts.insert("process_id".to_owned(), "77".to_owned());
        for (serial, tid) in [(1, 77), (2, 78)] {
            let thread = Thread {
                tid,
                ..Thread::default()
            };
            index.threads.insert(serial, thread);
        }
        assert_eq!(
            Decoder::new(&index, &ExportLimits::default())
                .windows(1)
                .len(),
            3
        );
        let (whole, parts) = [usize::MAX, 1]
            .map(|records| written_in_windows(&index, records))
            .into();
        let rows = |probe: &Probe| {
            let rows = probe.tracks.iter().filter(|track| track.tid.is_some());
            let mut rows: Vec<_> = rows.map(|row| (row.pid, row.tid)).collect();
            rows.sort_unstable();
            rows
        };
        let slices = |probe: &Probe| {
            let slices = probe.slices.iter().map(|slice| {
                let args = probe.args(slice.args);
                (slice.start_ps, slice.dur_ps, slice.name.clone(), args)
            });
            let mut slices: Vec<_> = slices.collect();
            slices.sort_unstable();
            slices
        };
        assert_eq!(rows(&parts), [(Some(77), Some(77)), (Some(77), Some(78))]);
        assert_eq!(rows(&parts), rows(&whole));
        assert_eq!(slices(&parts), slices(&whole));
        assert_eq!(slices(&parts).len(), 3);
        assert!(
            parts
                .slices
                .iter()
                .any(|slice| !parts.args(slice.args).is_empty())
        );
    }
}
