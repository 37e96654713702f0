//! The outline of a file: what stands beside the events, where they begin, who reads which part.
//!
//! ```text
//! head (keys before the list) ─ epoch ─ parts of the list, in parallel ─ tail (keys behind it)
//!                                         └ begins and ends paired, tracks described, counts told
//! ```
//!
//! Large lists are cut near equal parts at places that look like the beginning of an entry. A part
//! counts only if the part before it ended exactly where it began; otherwise that stretch is read
//! again from where the earlier part ended. So the result is the one of reading from front to end,
//! whatever the number of threads.

use rustc_hash::FxHashMap;
use stepscope_model::{ArgValue, Cancelled, Epoch, EventSink, ReadContext, SharedBytes, SourceId};

use super::args::Source;
use super::describe::Metadata;
use super::emit::{Emitted, Ended, EventEmitter, Mark, Plan, Steps};
use super::event::{Next, find_entry, next_element};
use super::number::ps_from_us_text;
use super::pairs::Pairing;
use super::read_issues::{Cut, Note};
use super::scan::{self, ScanError, skip_space};
use super::torch::{self, TopLevel};
use super::tracks::{Row, Rows};
use super::{event, extension, flows};
use crate::FormatError;
use crate::null_sink::NullSink;

/// Lists shorter than this are read by one thread.
const MIN_PART_BYTES: usize = 4 << 20;

/// Bytes at the end of a file in which a clock base is looked for before the events are read.
const TAIL_BYTES: usize = 4 << 20;

/// Times farther apart than this, in picoseconds, cannot be of one run (100 days).
const FAR_PS: i128 = 100 * 86_400 * 1_000_000_000_000;

/// Reads a whole file. See [`super::read`].
pub(super) fn read<S: EventSink>(
    shared: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let bytes: &[u8] = (**shared).as_ref();
    let mut outline = Outline::open(bytes)?;
    let origin = Origin::find(bytes, &outline);
    let source = Source::new(shared);
    let mut plan = Plan {
        bytes,
        context,
        origin_ps: origin.ps(),
        source: sink.source(source.clone()),
        steps: steps_of(bytes, &outline.top),
        splits_rows: false,
    };
    let first_list = outline.list;
    sink.epoch(origin.epoch);
    context.advance(first_list.min(bytes.len()) as u64)?;

    let mut emitted = Emitted::default();
    let mut list = Some(first_list);
    while let Some(at) = list {
        let (part, ended) = read_list(&mut plan, sink, at)?;
        emitted.append(sink, part);
        list = outline.go_on(bytes, ended, &mut emitted);
    }
    if emitted.entries == 0 && emitted.tally.unreadable() > 0 {
        return Err(FormatError::Malformed {
            reason: "no trace events in the list".to_owned(),
            offset: first_list as u64,
        });
    }
    if emitted.entries == 0 && outline.is_bare && first_list >= bytes.len() {
        return Err(FormatError::Malformed {
            reason: "the text ends before the first entry".to_owned(),
            offset: first_list as u64,
        });
    }
    finish(plan, sink, &outline, &origin, emitted, &source);
    Ok(())
}

fn steps_of(bytes: &[u8], top: &TopLevel) -> Steps {
    if extension::is_ours(bytes, top) {
        Steps::OwnOnly
    } else if torch::is_torch(bytes, top) {
        Steps::Names
    } else {
        Steps::NamesAndArgs
    }
}

/// Begin and end of the pairs of a file whose ends have arguments.
pub(super) fn ends_of(shared: &SharedBytes) -> Result<Vec<(u64, u64)>, FormatError> {
    let bytes: &[u8] = (**shared).as_ref();
    let context = ReadContext::default();
    let mut outline = Outline::open(bytes)?;
    let mut plan = Plan {
        bytes,
        context: &context,
        origin_ps: Origin::find(bytes, &outline).ps(),
        source: SourceId(0),
        steps: Steps::OwnOnly,
        splits_rows: false,
    };
    let mut sink = NullSink::default();
    let mut emitted = Emitted::default();
    let mut list = Some(outline.list);
    while let Some(at) = list {
        let (part, ended) = read_list(&mut plan, &mut sink, at)?;
        emitted.append(&mut sink, part);
        list = outline.go_on(bytes, ended, &mut emitted);
    }
    Ok(emit_pairs(plan, &mut sink, &mut emitted))
}

/// What is known of a file before and after its list of events.
pub(super) struct Outline {
    /// Members of the outermost object, except lists of events.
    pub(super) top: TopLevel,
    /// First byte behind the opening bracket of the list.
    pub(super) list: usize,
    /// Whether the file is a bare list.
    is_bare: bool,
    /// Said of a text that ends early.
    cut: Option<(Cut, usize)>,
    /// Where the members before the list are no JSON; the list was then found by its name.
    pub(super) damaged_head: Option<usize>,
}

/// What comes after members of the outermost object.
enum After {
    /// A list of events; its first byte behind the bracket.
    List(usize),
    /// The end of the object; the byte behind it.
    Closed(usize),
}

/// Notes text behind the end of the trace.
fn note_rest(bytes: &[u8], behind: usize, emitted: &mut Emitted) {
    let at = skip_space(bytes, behind);
    if at < bytes.len() {
        emitted.tally.note(Note::Rest, at);
    }
}

fn malformed(reason: &str, offset: usize) -> FormatError {
    FormatError::Malformed {
        reason: reason.to_owned(),
        offset: offset as u64,
    }
}

impl Outline {
    pub(super) fn open(bytes: &[u8]) -> Result<Self, FormatError> {
        let text = match bytes {
            [0xef, 0xbb, 0xbf, ..] => 3,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b'{' | b'[', 0, ..] | [0, b'{' | b'[', ..] => {
                return Err(malformed("the text is UTF-16; save it as UTF-8", 0));
            }
            _ => 0,
        };
        let start = skip_space(bytes, text);
        let mut outline = Self {
            top: TopLevel::new(),
            list: start + 1,
            is_bare: false,
            cut: None,
            damaged_head: None,
        };
        match bytes.get(start) {
            None => Err(FormatError::Empty),
            Some(b'[') => {
                outline.is_bare = true;
                outline.list = skip_space(bytes, start + 1);
                Ok(outline)
            }
            Some(b'{') => {
                let mut no_list = None;
                let members = skip_space(bytes, start + 1);
                let found = outline.members(bytes, members, &mut |at| no_list = Some(at));
                match found {
                    Ok(After::List(list)) => outline.list = list,
                    Ok(After::Closed(_)) => {
                        return Err(match no_list {
                            Some(at) => malformed("\"traceEvents\" is not a list", at),
                            None => malformed("no traceEvents: not a Chrome trace", start),
                        });
                    }
                    // Something beside the events is broken: they may still be found by their name.
                    Err(stop) => {
                        let found = list_by_name(bytes, start);
                        outline.list = found.ok_or_else(|| stop_error(stop, bytes))?;
                        outline.damaged_head = Some(match stop {
                            ScanError::Damaged(at) => at,
                            ScanError::End => start,
                        });
                    }
                }
                Ok(outline)
            }
            Some(_) => Err(malformed("neither an object nor a list", start)),
        }
    }

    /// Reads members of the outermost object from `at` up to the next list of events, or the end of
    /// the object.
    fn members(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        not_a_list: &mut dyn FnMut(usize),
    ) -> Result<After, ScanError> {
        loop {
            match scan::byte_at(bytes, at)? {
                b'"' => {}
                b'}' => return Ok(After::Closed(at + 1)),
                _ => return Err(ScanError::Damaged(at)),
            }
            let (key, _) = scan::string(bytes, at + 1)?;
            at = skip_space(bytes, key.end + 1);
            if scan::byte_at(bytes, at)? != b':' {
                return Err(ScanError::Damaged(at));
            }
            at = skip_space(bytes, at + 1);
            let is_events = key.of(bytes) == b"traceEvents";
            if is_events && scan::byte_at(bytes, at)? == b'[' {
                return Ok(After::List(skip_space(bytes, at + 1)));
            }
            let (value, next) = scan::value(bytes, at)?;
            if is_events {
                not_a_list(at);
            } else {
                self.top.push((key, value));
            }
            at = skip_space(bytes, next);
            match scan::byte_at(bytes, at)? {
                b',' => at = skip_space(bytes, at + 1),
                b'}' => return Ok(After::Closed(at + 1)),
                _ => return Err(ScanError::Damaged(at)),
            }
        }
    }

    /// Looks at what follows a list that has been read; the next list, if there is another.
    fn go_on(&mut self, bytes: &[u8], ended: Ended, emitted: &mut Emitted) -> Option<usize> {
        let behind = match ended {
            Ended::Closed(behind) => behind,
            Ended::CutInside(at) => {
                self.cut = Some((Cut::InsideEntry, at));
                return None;
            }
            Ended::CutBetween(at) | Ended::Handed(at) => {
                // A bare list may end without its bracket: Chrome's own rule.
                if !self.is_bare {
                    self.cut = Some((Cut::BetweenEntries, at));
                }
                return None;
            }
            Ended::Lost(_) => return None,
        };
        if self.is_bare {
            note_rest(bytes, behind, emitted);
            return None;
        }
        let at = skip_space(bytes, behind);
        match bytes.get(at) {
            Some(b'}') => {
                note_rest(bytes, at + 1, emitted);
                return None;
            }
            Some(b',') => {}
            None => {
                self.cut = Some((Cut::AfterTheList, at));
                return None;
            }
            Some(_) => {
                emitted.tally.note(Note::DamagedToTheEnd, at);
                return None;
            }
        }
        let tally = &mut emitted.tally;
        let found = self.members(bytes, skip_space(bytes, at + 1), &mut |at| {
            tally.note(Note::NotAList, at);
        });
        match found {
            Ok(After::List(list)) => {
                emitted.tally.note(Note::ListTwice, list);
                Some(list)
            }
            Ok(After::Closed(behind)) => {
                note_rest(bytes, behind, emitted);
                None
            }
            Err(ScanError::End) => {
                self.cut = Some((Cut::AfterTheList, bytes.len()));
                None
            }
            Err(ScanError::Damaged(at)) => {
                emitted.tally.note(Note::DamagedToTheEnd, at);
                None
            }
        }
    }
}

fn stop_error(stop: ScanError, bytes: &[u8]) -> FormatError {
    match stop {
        ScanError::End => malformed("the text ends before any trace event", bytes.len()),
        ScanError::Damaged(at) => malformed("not JSON, and no traceEvents behind it", at),
    }
}

fn list_by_name(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    memchr::memmem::find_iter(rest, b"\"traceEvents\"").find_map(|place| {
        let colon = skip_space(bytes, from + place + b"\"traceEvents\"".len());
        let bracket = skip_space(bytes, colon + 1);
        let is_list = bytes.get(colon) == Some(&b':') && bytes.get(bracket) == Some(&b'[');
        is_list.then(|| skip_space(bytes, bracket + 1))
    })
}

/// What `Time::ZERO` stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) epoch: Epoch,
}

impl Origin {
    pub(super) fn ps(self) -> i128 {
        i128::from(self.epoch.origin_ns) * 1_000
    }

    pub(super) fn find(bytes: &[u8], outline: &Outline) -> Self {
        if let Some(epoch) = extension::epoch(bytes, &outline.top) {
            return Self { epoch };
        }
        let origin_ns = first_time_ns(bytes, outline.list).unwrap_or(0);
        let base = torch::unix_base_ns(bytes, &outline.top)
            .or_else(|| torch::unix_base_ns(bytes, &tail_members(bytes, outline.list)));
        // Before 2024 kineto's clock was the Unix clock itself: microseconds above 10^15.
        let is_unix = origin_ns > 1_000_000_000_000_000_000;
        let unix_ns = match base {
            Some(base) => base.checked_add(origin_ns),
            None => is_unix.then_some(origin_ns),
        };
        Self {
            epoch: Epoch { origin_ns, unix_ns },
        }
    }
}

/// The first time in the list, floored to nanoseconds. A first one that lies far from the others
/// (broken, or zero) is passed over, or every sound event would be out of range.
fn first_time_ns(bytes: &[u8], list: usize) -> Option<i64> {
    let mut times: Vec<i128> = Vec::new();
    let mut at = list;
    let mut seen = 0;
    let mut budget = 64 << 20;
    while times.len() < 64 && (times.is_empty() || seen < 4_096) {
        seen += 1;
        let after = match event::entry(bytes, at) {
            Ok(entry) => {
                let is_event = !matches!(entry.phase, 0 | b'M');
                let ps = entry
                    .ts
                    .raw(bytes)
                    .filter(|_| is_event)
                    .and_then(|raw| ps_from_us_text(raw.trim_ascii()).ok())
                    .filter(|ps| i64::try_from(ps.div_euclid(1_000)).is_ok());
                times.extend(ps);
                next_element(bytes, entry.end)
            }
            Err(stop) => Err(stop),
        };
        at = match after {
            Ok(Next::Element(next)) => next,
            Ok(Next::Closed(_)) => break,
            Err(_) => match find_entry(bytes, at + 1, bytes.len(), &mut budget) {
                Some(found) => found.at,
                None => break,
            },
        };
    }
    let mut sorted = times.clone();
    sorted.sort_unstable();
    let median = *sorted.get(sorted.len() / 2)?;
    let first = times
        .into_iter()
        .find(|time| (time - median).abs() < FAR_PS)?;
    i64::try_from(first.div_euclid(1_000)).ok()
}

/// Members of the outermost object behind the list, if they lie near the end of the file: found by
/// the name of a clock base, and believed only if what follows closes the object and the file.
fn tail_members(bytes: &[u8], list: usize) -> TopLevel {
    let from = bytes.len().saturating_sub(TAIL_BYTES).max(list);
    let tail = bytes.get(from..).unwrap_or_default();
    for name in torch::UNIX_BASES {
        let quoted = format!("\"{name}\"");
        let Some(place) = memchr::memmem::find_iter(tail, quoted.as_bytes()).last() else {
            continue;
        };
        let mut found = TopLevel::new();
        if closes_the_file(bytes, from + place, &mut found) {
            return found;
        }
    }
    TopLevel::new()
}

fn closes_the_file(bytes: &[u8], mut at: usize, found: &mut TopLevel) -> bool {
    loop {
        if bytes.get(at) != Some(&b'"') {
            return false;
        }
        let Ok((key, _)) = scan::string(bytes, at + 1) else {
            return false;
        };
        let colon = skip_space(bytes, key.end + 1);
        if bytes.get(colon) != Some(&b':') {
            return false;
        }
        let Ok((value, next)) = scan::value(bytes, skip_space(bytes, colon + 1)) else {
            return false;
        };
        found.push((key, value));
        at = skip_space(bytes, next);
        match bytes.get(at) {
            Some(b',') => at = skip_space(bytes, at + 1),
            Some(b'}') => return skip_space(bytes, at + 1) == bytes.len(),
            _ => return false,
        }
    }
}

/// What came of reading a list into forks.
enum Reading {
    /// All of it is in the sink.
    Whole(Box<(Emitted, Ended)>),
    /// The result would depend on where the parts begin; nothing is in the sink.
    ByParts,
    /// Host and device share a row; nothing is in the sink.
    SharedRows,
}

/// Reads one list of events; several threads if it is long. Where a thread of the host and a queue
/// of a device turn out to have the same `pid` and `tid`, the list is read again with rows split.
fn read_list<S: EventSink>(
    plan: &mut Plan<'_>,
    sink: &mut S,
    at: usize,
) -> Result<(Emitted, Ended), Cancelled> {
    if plan.bytes.get(at) == Some(&b']') {
        return Ok((Emitted::default(), Ended::Closed(at + 1)));
    }
    if at >= plan.bytes.len() {
        return Ok((Emitted::default(), Ended::CutBetween(at)));
    }
    let region = plan.bytes.len() - at;
    let threads = plan.context.threads.min(region / MIN_PART_BYTES);
    if threads > 1 {
        let reading = match emit_parts(*plan, sink, at, threads)? {
            Reading::SharedRows => {
                plan.splits_rows = true;
                emit_parts(*plan, sink, at, threads)?
            }
            reading => reading,
        };
        if let Reading::Whole(done) = reading {
            return Ok(*done);
        }
    }
    let mut part = Part::read(*plan, (at, usize::MAX), sink.fork())?;
    if plan.must_split(&part.emitted.rows) {
        plan.splits_rows = true;
        drop(part);
        part = Part::read(*plan, (at, usize::MAX), sink.fork())?;
    }
    sink.merge(part.fork);
    let mut all = Emitted::default();
    all.append(sink, part.emitted);
    Ok((all, part.ended))
}

impl Plan<'_> {
    /// Whether rows have to be split, and are not.
    fn must_split(&self, rows: &Rows) -> bool {
        let may_split = !self.splits_rows && self.steps != Steps::OwnOnly;
        may_split && rows.all.iter().any(Row::is_shared)
    }
}

/// One part that was read into a fork.
struct Part<S> {
    from: usize,
    /// The next part was begun here.
    limit: usize,
    fork: S,
    emitted: Emitted,
    ended: Ended,
}

impl<S: EventSink> Part<S> {
    /// Reads elements from `from` until one begins at or behind `limit`.
    fn read(plan: Plan<'_>, (from, limit): (usize, usize), mut fork: S) -> Result<Self, Cancelled> {
        let mut part = EventEmitter::new(plan, &mut fork);
        let ended = part.run(from, limit)?;
        let emitted = part.emitted;
        Ok(Self {
            from,
            limit,
            fork,
            emitted,
            ended,
        })
    }
}

/// Reads parts in parallel.
fn emit_parts<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    at: usize,
    threads: usize,
) -> Result<Reading, Cancelled> {
    let end = plan.bytes.len();
    let size = (end - at) / threads;
    let mut starts = vec![at];
    for part in 1..threads {
        let from = at + part * size;
        let found = find_entry(plan.bytes, from, from + size, &mut (16 << 20));
        starts.extend(found.map(|found| found.at));
    }
    let limits = starts.iter().skip(1).copied().chain([usize::MAX]);
    let jobs: Vec<_> = starts.iter().copied().zip(limits).collect();
    let results: Vec<Result<Part<S>, Cancelled>> = std::thread::scope(|scope| {
        let running: Vec<_> = jobs
            .iter()
            .map(|job| {
                let fork = sink.fork();
                let job = *job;
                std::thread::Builder::new()
                    .name("chrome-reader".to_owned())
                    .spawn_scoped(scope, move || Part::read(plan, job, fork))
            })
            .collect();
        running
            .into_iter()
            .zip(&jobs)
            .map(
                |(thread, job)| match thread.map(std::thread::ScopedJoinHandle::join) {
                    Ok(Ok(result)) => result,
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    // No thread to be had: this one does it.
                    Err(_no_thread) => Part::read(plan, *job, sink.fork()),
                },
            )
            .collect()
    });

    let parts = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    chain(plan, sink, at, parts)
}

/// Puts together what was read in parts, the first of them from `at`: only a chain of parts that
/// begin where the one before ended is a reading of this text. A part that does not is read again.
fn chain<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    at: usize,
    parts: Vec<Part<S>>,
) -> Result<Reading, Cancelled> {
    let mut chain: Vec<Part<S>> = Vec::new();
    let mut ended = Ended::Handed(at);
    for part in parts {
        let Ended::Handed(expected) = ended else {
            break;
        };
        let limit = part.limit;
        if expected >= limit {
            continue;
        }
        let part = if part.from == expected {
            part
        } else {
            drop(part);
            Part::read(plan, (expected, limit), sink.fork())?
        };
        ended = part.ended;
        chain.push(part);
    }
    let mut executors: FxHashMap<&str, (bool, bool)> = FxHashMap::default();
    for row in chain.iter().flat_map(|part| &part.emitted.rows.all) {
        let (host, device) = executors.entry(&row.key).or_default();
        *host |= row.has_host_event;
        *device |= row.device_event.is_some();
    }
    let too_many = executors.len() > plan.context.limits.max_tracks as usize;
    let is_shared = executors.values().any(|(host, device)| *host && *device);
    if is_shared && !plan.splits_rows && plan.steps != Steps::OwnOnly {
        return Ok(Reading::SharedRows);
    }
    if too_many || chain.iter().any(|part| part.emitted.gave_up) {
        return Ok(Reading::ByParts);
    }
    drop(executors);
    let mut all = Emitted::default();
    for part in chain {
        sink.merge(part.fork);
        all.append(sink, part.emitted);
    }
    Ok(Reading::Whole(Box::new((all, ended))))
}

impl Emitted {
    /// Takes over what a later part left behind; its fork has been merged.
    fn append<S: EventSink>(&mut self, sink: &mut S, part: Self) {
        self.tally.append(&part.tally);
        let mut places = Vec::with_capacity(part.rows.len());
        for row in part.rows.all {
            let key = row.key.clone();
            let (device_event, has_host_event) = (row.device_event, row.has_host_event);
            let place = self.rows.get(sink, &key, u32::MAX, || row);
            if let Some(known) = place.and_then(|place| self.rows.all.get_mut(place)) {
                known.add(device_event, has_host_event);
            }
            places.push(place.and_then(|place| u32::try_from(place).ok()));
        }
        let row_of = |row: u32| places.get(row as usize).copied().flatten();
        let moved = |mut mark: Mark| {
            mark.row = row_of(mark.row).unwrap_or(u32::MAX);
            mark
        };
        self.begins_and_ends
            .extend(part.begins_and_ends.into_iter().map(moved));
        self.flows.extend(part.flows.into_iter().map(moved));
        let starts = part.device_starts.into_iter();
        self.device_starts
            .extend(starts.filter_map(|(row, start)| Some((row_of(row)?, start))));
        self.asyncs.extend(part.asyncs);
        self.metadata.extend(part.metadata);
        self.entries += part.entries;
        self.last_ps = self.last_ps.max(part.last_ps);
        self.hints.add(part.hints);
        self.gave_up |= part.gave_up;
    }
}

/// Pours what waited for the whole list; returns begin and end of pairs whose end has arguments.
fn emit_pairs<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    emitted: &mut Emitted,
) -> Vec<(u64, u64)> {
    let mut pairing = Pairing {
        bytes: plan.bytes,
        source: plan.source,
        last_ps: emitted.last_ps.unwrap_or(0),
        max_tracks: plan.context.limits.max_tracks,
        steps: plan.steps,
        ends: Vec::new(),
    };
    let threads = std::mem::take(&mut emitted.begins_and_ends);
    pairing.emit_threads(sink, &emitted.rows, threads, &mut emitted.tally);
    let asyncs = std::mem::take(&mut emitted.asyncs);
    pairing.emit_asyncs(sink, &mut emitted.rows, asyncs, &mut emitted.tally);
    pairing.ends
}

fn finish<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    outline: &Outline,
    origin: &Origin,
    mut emitted: Emitted,
    source: &Source,
) {
    let bytes = plan.bytes;
    let ends = emit_pairs(plan, sink, &mut emitted);
    source.set_ends(ends);
    flows::emit_waiting(bytes, &mut emitted, sink);
    let metadata = Metadata::read(bytes, &emitted.metadata, sink);
    metadata.describe(bytes, &emitted.rows, sink);

    let is_ours = extension::is_ours(bytes, &outline.top);
    if is_ours {
        extension::emit_end(bytes, &outline.top, sink);
    } else {
        torch::emit_facts(bytes, &outline.top, sink);
        let is_xla = metadata
            .any_process_named(|name| name.starts_with("/host:") || name.starts_with("/device:"));
        torch::emit_badges(bytes, &outline.top, emitted.hints, is_xla, sink);
        if let Some(pid) = metadata.host_pid(&emitted.rows) {
            sink.fact("pid", ArgValue::Int(pid));
        }
        if let Some(unix_ns) = origin.epoch.unix_ns {
            sink.fact("unix_start_ns", ArgValue::Int(unix_ns));
        }
    }

    if let Some(at) = outline.damaged_head {
        emitted.tally.note(Note::DamagedHead, at);
    }
    if let Some((cut, at)) = outline.cut {
        emitted.tally.note(Note::Top(cut), at);
    }
    let whole = emitted.entries;
    let missing = outline
        .cut
        .map_or(0, |(_, at)| bytes.len() - at.min(bytes.len()));
    let tail = format!(
        "{whole} whole entries came before, {missing} bytes behind them were left out, and what was never written is missing"
    );
    emitted.tally.emit(sink, &tail);
    if emitted.rows.len() == 0 {
        let detail = format!("{whole} entries, none of them an event");
        sink.diagnose(stepscope_model::Diagnostic::EmptyTrace, 1, &detail);
    }
}
