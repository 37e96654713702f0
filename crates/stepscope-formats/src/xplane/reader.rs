//! Reads an `XSpace` into a sink.
//!
//! ```text
//! frame (planes, metadata, lines)  ->  scan (heads of lines)  ->  epoch, tracks, names
//!   ->  pour (stretches of lines, in batches)  ->  facts, modules, diagnostics
//! ```
//!
//! Lines are scanned and poured on several threads. A batch is a number of stretches that lie in
//! a row; batches are cut by bytes, not by the number of threads, each goes into a fork of
//! the sink, and the forks are merged in the order of the file.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgValue, Cancelled, Diagnostic, Epoch, EventSink, NameId, ReadContext, SharedBytes, SourceId,
    TrackId, TrackKind, TrackPatch,
};

use super::args::XSpaceArgs;
use super::facts::{Origin, module_name, plane_name, stream_number, text};
use super::index::{PlaneFrame, PlaneIndex, Space, Span, frame};
use super::lines::{
    self, LineHead, ReadyLine, ReadyMetadata, ReadyPlane, STRETCH_BYTES, Scratch, Tally,
};
use super::marks::{
    COUNTERS_LINE, METADATA_PLANE, Place, Role, TASK_ENVIRONMENT, TrackRecord, number_in_name,
};
use super::wire::{self, StatValue};
use crate::FormatError;
use crate::proto_wire::Fault;

/// Line times above this (nanoseconds) are Unix times, not times since the profile's start: it is
/// three years after the epoch, and no capture lasts three years.
const ABSOLUTE_NS: i64 = 100_000_000_000_000_000;

/// Most batches of one file.
const MAX_BATCHES: usize = 32;

/// Reads a whole file. See [`crate::read`] for what is promised.
///
/// A file without a byte is an empty `XSpace`.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file = (**bytes).as_ref();
    let mut space = frame(file);
    if space.indexes.is_empty()
        && space.hostnames.is_empty()
        && let Some((offset, fault)) = space.fault
    {
        return Err(FormatError::Malformed {
            reason: framing_fault(file, offset, fault).1,
            offset: offset as u64,
        });
    }
    let jobs: Vec<(usize, Span)> = space
        .frames
        .iter()
        .enumerate()
        .flat_map(|(plane, frame)| frame.lines.iter().map(move |line| (plane, *line)))
        .collect();
    let heads = scan_all(file, &jobs, context)?;

    let args = std::sync::Arc::new(XSpaceArgs::new(
        std::sync::Arc::clone(bytes),
        std::mem::take(&mut space.indexes),
    ));
    let mut reading = Reading {
        file,
        indexes: args.planes(),
        space: &space,
        jobs: &jobs,
        heads: &heads,
        bad_texts: 0,
        repeated_lines: 0,
        origin: Origin::default(),
    };
    let clock = reading.clock();
    sink.epoch(clock.epoch);
    let source = sink.source(args.clone());
    reading.facts(clock.epoch, sink);
    let (planes, lines) = reading.tracks(&clock, context, sink);
    let tally = pour_all(file, &heads, &planes, &lines, source, context, sink)?;
    reading.origin.conclude(sink);
    reading.problems(&clock, &tally, sink);
    Ok(())
}

/// Scans all lines for their heads.
fn scan_all(
    file: &[u8],
    jobs: &[(usize, Span)],
    context: &ReadContext,
) -> Result<Vec<LineHead>, Cancelled> {
    let total: usize = jobs.iter().map(|(_, span)| span.len()).sum();
    let groups = batches(jobs.iter().map(|(_, span)| span.len()), total);
    let scan = |group: std::ops::Range<usize>| -> Result<Vec<LineHead>, Cancelled> {
        let mut heads = Vec::with_capacity(group.len());
        for (_, span) in jobs.get(group).unwrap_or_default() {
            context.advance(0)?;
            heads.push(lines::scan(file, *span));
        }
        Ok(heads)
    };
    let mut heads = Vec::with_capacity(jobs.len());
    for group in in_parallel(context.threads, groups, &scan) {
        heads.append(&mut group?);
    }
    Ok(heads)
}

/// Cuts a row of things of these sizes into ranges of about the same size.
fn batches(sizes: impl Iterator<Item = usize>, total: usize) -> Vec<std::ops::Range<usize>> {
    let target = STRETCH_BYTES.max(total / MAX_BATCHES);
    let mut found = Vec::new();
    let (mut begin, mut end, mut held) = (0, 0, 0);
    for size in sizes {
        end += 1;
        held += size;
        if held >= target {
            found.push(begin..end);
            (begin, held) = (end, 0);
        }
    }
    if begin < end {
        found.push(begin..end);
    }
    found
}

/// Runs `work` on each item, on as many threads as are allowed; the results keep the order.
fn in_parallel<I: Send, R: Send>(
    threads: usize,
    items: Vec<I>,
    work: &(impl Fn(I) -> R + Sync),
) -> Vec<R> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let slots: Vec<_> = items
        .into_iter()
        .map(|item| Mutex::new((Some(item), None)))
        .collect();
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let item = slot.lock().ok().and_then(|mut slot| slot.0.take());
            let result = item.map(work);
            if let Ok(mut slot) = slot.lock() {
                slot.1 = result;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that cannot be had is done without: the others take its share.
            let _ = std::thread::Builder::new()
                .name("stepscope-xplane".to_owned())
                .spawn_scoped(scope, run);
        }
        run();
    });
    slots
        .into_iter()
        .filter_map(|slot| slot.into_inner().ok()?.1)
        .collect()
}

/// Pours all events.
fn pour_all<S: EventSink>(
    file: &[u8],
    heads: &[LineHead],
    planes: &[Option<ReadyPlane<'_>>],
    lines: &[Option<(usize, ReadyLine)>],
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<Tally, Cancelled> {
    let stretches: Vec<_> = lines
        .iter()
        .zip(heads)
        .filter_map(|(line, head)| {
            let (plane, line) = line.as_ref()?;
            Some((planes.get(*plane)?.as_ref()?, line, head))
        })
        .flat_map(|(plane, line, head)| {
            head.stretches
                .iter()
                .map(move |stretch| (plane, line, *stretch))
        })
        .collect();
    let total = stretches.iter().map(|(_, _, span)| span.len()).sum();
    let groups = batches(stretches.iter().map(|(_, _, span)| span.len()), total);
    let pour = |group: std::ops::Range<usize>, sink: &mut S| -> Result<Tally, Cancelled> {
        let mut tally = Tally::default();
        let mut scratch = Scratch::default();
        for (plane, line, span) in stretches.get(group).unwrap_or_default() {
            context.advance(span.len() as u64)?;
            tally.add(&lines::pour(
                file,
                *span,
                plane,
                line,
                source,
                sink,
                &mut scratch,
            ));
        }
        Ok(tally)
    };
    if context.threads <= 1 || groups.len() <= 1 {
        let mut tally = Tally::default();
        for group in groups {
            tally.add(&pour(group, sink)?);
        }
        return Ok(tally);
    }
    let forks: Vec<_> = groups
        .into_iter()
        .map(|group| (group, sink.fork()))
        .collect();
    let poured = in_parallel(context.threads, forks, &|(group, mut fork)| {
        let tally = pour(group, &mut fork);
        (fork, tally)
    });
    let mut sum = Tally::default();
    let mut cancelled = Ok(());
    for (fork, tally) in poured {
        match tally {
            Ok(tally) => {
                sum.add(&tally);
                sink.merge(fork);
            }
            Err(stop) => cancelled = Err(stop),
        }
    }
    cancelled.map(|()| sum)
}

/// How the file's times become ours.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    epoch: Epoch,
    /// What is taken from line times that are Unix times, nanoseconds.
    absolute_ns: i64,
    /// Some lines hold Unix times, others times since a start that the file does not tell.
    unaligned: bool,
}

/// What the steps of one reading share.
struct Reading<'a> {
    file: &'a [u8],
    indexes: &'a [PlaneIndex],
    space: &'a Space,
    jobs: &'a [(usize, Span)],
    heads: &'a [LineHead],
    bad_texts: u64,
    repeated_lines: u64,
    origin: Origin,
}

impl<'a> Reading<'a> {
    /// A text, with what is not UTF-8 counted.
    fn text(&mut self, span: Span) -> std::borrow::Cow<'a, str> {
        let (text, bad) = text(self.file, span);
        self.bad_texts += u64::from(bad);
        text
    }

    fn planes(&self) -> impl Iterator<Item = (&'a PlaneIndex, &'a PlaneFrame)> + use<'a> {
        self.indexes.iter().zip(&self.space.frames)
    }

    /// A whole number among the stats of a plane.
    fn plane_number(&self, index: &PlaneIndex, frame: &PlaneFrame, role: Role) -> Option<i64> {
        index
            .find_stat(self.file, &frame.stats, role)
            .and_then(StatValue::bits)
            .map(|bits| bits as i64)
    }

    /// Finds out what the file's times mean.
    fn clock(&self) -> Clock {
        let environment = self
            .planes()
            .find(|(_, frame)| frame.name.get(self.file) == TASK_ENVIRONMENT.as_bytes());
        let number =
            |role| environment.and_then(|(index, frame)| self.plane_number(index, frame, role));
        let start_ns = number(Role::ProfileStart);
        let origin_ns = number(Role::Origin).unwrap_or(0);
        let times = || {
            self.heads
                .iter()
                .filter(|head| head.events > 0)
                .map(|head| head.timestamp_ns)
        };
        let first_absolute = times().filter(|ns| *ns > ABSOLUTE_NS).min();
        let relative = times().any(|ns| ns <= ABSOLUTE_NS);
        match (first_absolute, relative) {
            (Some(first), false) => Clock {
                epoch: Epoch {
                    origin_ns: first,
                    unix_ns: Some(first),
                },
                absolute_ns: first,
                unaligned: false,
            },
            (first, _) => Clock {
                epoch: Epoch {
                    origin_ns,
                    unix_ns: start_ns,
                },
                absolute_ns: start_ns.or(first).unwrap_or(0),
                unaligned: first.is_some() && start_ns.is_none(),
            },
        }
    }

    /// Hostnames, what planes say of themselves, and compiled programs.
    fn facts<S: EventSink>(&mut self, epoch: Epoch, sink: &mut S) {
        for host in &self.space.hostnames {
            let host = self.text(*host);
            sink.fact("host", ArgValue::Str(&host));
        }
        if let Some(unix_ns) = epoch.unix_ns {
            sink.fact("unix_start_ns", ArgValue::Int(unix_ns));
        }
        for (index, frame) in self.planes() {
            let name = self.text(frame.name);
            self.origin.see_plane(self.file, &name, index, frame, sink);
            if name != METADATA_PLANE {
                continue;
            }
            for metadata in index.events.items() {
                let text = self.text(metadata.name);
                let (module, number) = module_name(&text);
                let program = index
                    .find_stat(self.file, index.stats_of(metadata), Role::ProgramId)
                    .and_then(StatValue::bits);
                sink.module(module, program.or(number));
            }
        }
    }

    /// Makes the tracks, and readies planes and lines for pouring.
    #[allow(clippy::type_complexity, reason = "two columns, used in one place")]
    fn tracks<S: EventSink>(
        &mut self,
        clock: &Clock,
        context: &ReadContext,
        sink: &mut S,
    ) -> (Vec<Option<ReadyPlane<'a>>>, Vec<Option<(usize, ReadyLine)>>) {
        let mut room = context.limits.max_tracks as usize;
        let mut left_out = 0_u64;
        let mut plane_names = FxHashMap::<String, u64>::default();
        let mut planes = Vec::with_capacity(self.indexes.len());
        let mut lines = Vec::with_capacity(self.jobs.len());
        let mut first_line = 0;
        for (ordinal, (index, frame)) in self.planes().enumerate() {
            let range = first_line..first_line + frame.lines.len();
            first_line = range.end;
            let heads = self.heads.get(range).unwrap_or_default();
            if heads.is_empty() {
                planes.push(None);
                continue;
            }
            if room == 0 {
                left_out += heads.iter().map(|head| head.events).sum::<u64>();
                planes.push(None);
                lines.extend(heads.iter().map(|_| None));
                continue;
            }
            let mut plane = self.plane(ordinal, index, frame, &mut plane_names, sink);
            room -= 1;
            for (position, head) in heads.iter().enumerate() {
                if room == 0 {
                    left_out += head.events;
                    lines.push(None);
                    continue;
                }
                room -= 1;
                let line = self.line(&mut plane, position, head, clock, sink);
                lines.push(Some((ordinal, line)));
            }
            planes.push(Some(plane.ready));
        }
        if left_out > 0 {
            sink.diagnose(
                Diagnostic::LimitReached,
                left_out,
                &format!(
                    "max_tracks: only the first {} planes and lines are shown",
                    context.limits.max_tracks
                ),
            );
        }
        (planes, lines)
    }

    /// Makes a plane's group and interns the names of its events.
    fn plane<S: EventSink>(
        &mut self,
        ordinal: usize,
        index: &'a PlaneIndex,
        frame: &PlaneFrame,
        plane_names: &mut FxHashMap<String, u64>,
        sink: &mut S,
    ) -> Plane<'a> {
        let name = self.text(frame.name).into_owned();
        let kind = plane_name(&name);
        let mut records = Vec::new();
        let mut group_record = TrackRecord::default();
        let mut continues = false;
        for stat in &frame.stats {
            let Ok(stat) = wire::stat(stat.get(self.file)) else {
                continue;
            };
            match (index.role(stat.metadata_id), stat.value) {
                (Role::Track, StatValue::Bytes(bytes)) => {
                    let record = TrackRecord::decode(bytes);
                    match record.line {
                        Some(line) => records.push((line, record)),
                        None => group_record = record,
                    }
                }
                (Role::Continues, value) => continues = value.bits() != Some(0),
                _ => {}
            }
        }
        let seen = plane_names.entry(name.clone()).or_insert(0);
        // The lines of a plane that continues have the keys of the one before it.
        *seen += u64::from(*seen == 0 || !continues);
        let key = numbered(&name, *seen);
        let pid = group_record
            .pid
            .or_else(|| self.plane_number(index, frame, Role::ProcessId));
        let device = group_record.device.or(kind.device);
        let group = (!group_record.ungrouped).then(|| {
            let group = sink.track(&key);
            sink.describe(
                group,
                TrackPatch {
                    name: Some(group_record.name.as_deref().unwrap_or(&name)),
                    kind: Some(TrackKind::Group),
                    pid,
                    device,
                    sort_index: Some(
                        group_record
                            .sort_index
                            .unwrap_or(kind.rank << 32 | ordinal as i64),
                    ),
                    derived: group_record.derived.then_some(true),
                    ..TrackPatch::default()
                },
            );
            group
        });
        let is_host = !kind.is_device;
        let metadata = index
            .events
            .items()
            .iter()
            .map(|event| {
                let text = self.text(event.shown_name());
                if is_host {
                    self.origin.see_event(&text);
                }
                let stats = index.stats_of(event);
                let category = index
                    .find_stat(self.file, stats, Role::Category)
                    .map_or(NameId::EMPTY, |value| {
                        sink.name(&index.text(self.file, value))
                    });
                ReadyMetadata {
                    name: sink.name(&text),
                    category,
                    kind: index.kind(self.file, stats),
                    has_args: index.has_args(self.file, event),
                    has_marks: stats.iter().any(|stat| {
                        wire::stat(stat.get(self.file))
                            .is_ok_and(|stat| index.role(stat.metadata_id).marks_events())
                    }),
                    step: number_in_name(&text),
                }
            })
            .collect();
        Plane {
            key,
            group,
            pid,
            device,
            is_device: kind.is_device,
            records: records.into_iter().collect(),
            line_ids: FxHashMap::default(),
            counter_names: FxHashMap::default(),
            ready: ReadyPlane::new(index, metadata),
        }
    }

    /// Makes a line's track.
    fn line<S: EventSink>(
        &mut self,
        plane: &mut Plane<'a>,
        position: usize,
        head: &LineHead,
        clock: &Clock,
        sink: &mut S,
    ) -> ReadyLine {
        let name = self.text(head.shown_name());
        self.origin.see_line(&name);
        let record = plane.records.get(&head.id).cloned().unwrap_or_default();
        let steps = name == "Steps" || name == "Sparse Core Steps";
        let counters = name == COUNTERS_LINE;
        let kind = record.kind.unwrap_or({
            if counters {
                TrackKind::Group
            } else if steps {
                TrackKind::Steps
            } else if plane.is_device {
                TrackKind::DeviceQueue
            } else {
                TrackKind::Thread
            }
        });
        let track = if counters {
            self.counters(plane, head, sink);
            None
        } else if let (true, Some(group)) = (record.on_group, plane.group) {
            Some(group)
        } else {
            let seen = plane.line_ids.entry(head.id).or_insert(0);
            *seen += 1;
            self.repeated_lines += u64::from(*seen > 1);
            let track = sink.track(&numbered(&format!("{}/{}", plane.key, head.id), *seen));
            let parent = record
                .parent
                .map(|parent| sink.track(&format!("{}/{parent}", plane.key)))
                .or(plane.group);
            let stream = record.stream.or_else(|| stream_number(&name));
            sink.describe(
                track,
                TrackPatch {
                    name: Some(record.name.as_deref().unwrap_or(&name)),
                    kind: Some(kind),
                    parent,
                    pid: record.pid.or(plane.pid),
                    tid: record
                        .tid
                        .or_else(|| (!plane.is_device).then_some(head.shown_id() & 0xffff_ffff)),
                    device: record.device.or(plane.device),
                    stream,
                    sort_index: Some(record.sort_index.unwrap_or_else(|| {
                        line_rank(&name, plane.is_device) << 32
                            | stream.unwrap_or(position as i64) & 0xffff_ffff
                    })),
                    unit: record.unit.as_deref(),
                    derived: record.derived.then_some(true),
                    ..TrackPatch::default()
                },
            );
            Some(track)
        };
        let shift_ns = if head.timestamp_ns > ABSOLUTE_NS {
            clock.absolute_ns
        } else {
            0
        };
        let line_ns = i128::from(head.timestamp_ns) - i128::from(shift_ns);
        ReadyLine {
            track: track.or(plane.group).unwrap_or(TrackId(0)),
            base_ps: line_ns * 1_000,
            place: Place {
                device: plane.is_device,
                steps: steps && record.kind.is_none_or(|kind| kind == TrackKind::Steps),
            },
            counters,
        }
    }

    /// Makes a track for each counter of a line of samples.
    fn counters<S: EventSink>(&mut self, plane: &mut Plane<'a>, head: &LineHead, sink: &mut S) {
        for id in lines::metadata_ids(self.file, head) {
            if plane.ready.counters.contains_key(&id) {
                continue;
            }
            let index = plane.ready.index;
            let metadata = index.events.get(id);
            let record = metadata.and_then(|metadata| {
                let stats = index.stats_of(metadata);
                match index.find_stat(self.file, stats, Role::Track) {
                    Some(StatValue::Bytes(bytes)) => Some(TrackRecord::decode(bytes)),
                    _ => None,
                }
            });
            let name = match metadata {
                Some(metadata) => self.text(metadata.shown_name()).into_owned(),
                None => id.to_string(),
            };
            // Equal names are one counter, unless the writer says that they are tracks of their own.
            let seen = plane.counter_names.entry(name.clone()).or_insert(0);
            *seen += u64::from(*seen == 0 || record.is_some());
            let track = sink.track(&numbered(&format!("{}/counter/{name}", plane.key), *seen));
            let record = record.unwrap_or_default();
            sink.describe(
                track,
                TrackPatch {
                    name: Some(record.name.as_deref().unwrap_or(&name)),
                    kind: Some(TrackKind::Counter),
                    parent: plane.group,
                    pid: record.pid.or(plane.pid),
                    tid: record.tid,
                    device: record.device.or(plane.device),
                    stream: record.stream,
                    sort_index: record.sort_index,
                    unit: record.unit.as_deref(),
                    derived: record.derived.then_some(true),
                    ..TrackPatch::default()
                },
            );
            plane.ready.counters.insert(id, track);
        }
    }

    /// Says what was wrong.
    fn problems<S: EventSink>(&mut self, clock: &Clock, tally: &Tally, sink: &mut S) {
        for (spans, word) in [
            (&self.space.errors, "error"),
            (&self.space.warnings, "warning"),
        ] {
            for span in spans {
                let text = text(self.file, *span).0;
                sink.diagnose(Diagnostic::WriterError, 1, &format!("{word}: {text}"));
            }
        }
        if let Some((offset, fault)) = self.space.fault {
            let (what, detail) = framing_fault(self.file, offset, fault);
            sink.diagnose(what, 1, &detail);
        }
        for problem in &self.space.problems {
            sink.diagnose(problem.what, 1, &problem.detail);
        }
        for (job, head) in self.heads.iter().enumerate() {
            // The last line of a cut file ends with the file, which has been said.
            if let Some((offset, fault)) = head.fault
                && !(self.space.cut && job + 1 == self.heads.len())
            {
                let name = text(self.file, head.shown_name()).0;
                sink.diagnose(
                    Diagnostic::Unreadable,
                    1,
                    &format!(
                        "line {name:?}: {} at byte {offset}; the events before it are shown",
                        fault.text()
                    ),
                );
            }
        }
        let mut say = |what, count, detail: &str| {
            if count > 0 {
                sink.diagnose(what, count, detail);
            }
        };
        let first = tally.first_unreadable.unwrap_or(0);
        say(
            Diagnostic::Unreadable,
            tally.unreadable,
            &format!("events that are not protobuf; the first at byte {first}"),
        );
        say(Diagnostic::BadText, self.bad_texts, "names");
        say(
            Diagnostic::MissingMetadata,
            tally.missing_metadata,
            "event metadata",
        );
        say(
            Diagnostic::NegativeDuration,
            tally.negative_durations,
            "duration_ps below zero",
        );
        say(
            Diagnostic::BadTime,
            tally.bad_times,
            "more than 106 days from the start of the profile",
        );
        say(
            Diagnostic::UnfinishedSlice,
            tally.unfinished,
            "marked by the recorder",
        );
        say(Diagnostic::BadCounterValue, tally.bad_samples, "");
        say(
            Diagnostic::BadCounterValue,
            tally.empty_samples,
            "samples without a number",
        );
        say(
            Diagnostic::DuplicateId,
            self.repeated_lines,
            "lines of one plane with the same id",
        );
        say(
            Diagnostic::UnalignedClock,
            u64::from(clock.unaligned),
            "some lines hold Unix times and the start of the profile is not in the file",
        );
        say(Diagnostic::EmptyTrace, u64::from(tally.events == 0), "");
    }
}

/// A plane while its lines are made.
struct Plane<'a> {
    key: String,
    group: Option<TrackId>,
    pid: Option<i64>,
    device: Option<u32>,
    is_device: bool,
    records: FxHashMap<i64, TrackRecord>,
    /// How often each line id was seen.
    line_ids: FxHashMap<i64, u64>,
    /// How many counters have each name.
    counter_names: FxHashMap<String, u64>,
    ready: ReadyPlane<'a>,
}

/// The key of the `number`th thing that would have this key.
fn numbered(key: &str, number: u64) -> String {
    if number <= 1 {
        key.to_owned()
    } else {
        format!("{key}#{number}")
    }
}

/// Position of a line among those of its plane.
fn line_rank(name: &str, is_device: bool) -> i64 {
    if is_device {
        match name {
            "Steps" => 0,
            "XLA Modules" => 1,
            "XLA Ops" => 2,
            "Async XLA Ops" => 3,
            _ if name.starts_with("Stream #") => 4,
            _ => 5,
        }
    } else {
        i64::from(!(name.starts_with("python") || name.starts_with("main")))
    }
}

/// What the user is told when the file could not be framed to its end.
fn framing_fault(file: &[u8], offset: usize, fault: Fault) -> (Diagnostic, String) {
    let left = file.len().saturating_sub(offset);
    let rest = file.get(offset..).unwrap_or_default();
    let replaced = memchr::memmem::find_iter(file, "\u{fffd}".as_bytes())
        .take(file.len() / 1_000 + 16)
        .count();
    if replaced >= file.len() / 1_000 + 16 {
        return (
            Diagnostic::Unreadable,
            format!(
                "a program that takes files for text has replaced bytes by U+FFFD; copy the \
                 original again, as binary: nothing after byte {offset} can be read"
            ),
        );
    }
    if let Fault::Cut { missing, .. } = fault
        && missing <= 1 << 40
    {
        return (
            Diagnostic::Truncated,
            format!(
                "{missing} bytes are missing at the end, of {}",
                file.len() as u64 + missing
            ),
        );
    }
    if rest.iter().all(|byte| *byte == 0) {
        return (
            Diagnostic::Truncated,
            format!("the last {left} bytes are zeros: the file was never written to its end"),
        );
    }
    (
        Diagnostic::Unreadable,
        format!(
            "{} at byte {offset}: the last {left} bytes were left out",
            fault.text()
        ),
    )
}
