//! Reads an `XSpace` into a sink.
//!
//! ```text
//! frame (planes, metadata, lines)  ->  scan (heads of lines)  ->  epoch, tracks, names
//!   ->  emit (segments of lines, in batches)  ->  facts, modules, diagnostics
//! ```
//!
//! Several threads scan and emit lines. A batch is a number of consecutive segments. Batches are
//! cut by size in bytes, independent of the number of threads; each goes into a fork of the sink,
//! and the forks are merged in the order of the file.

pub(crate) mod args;
mod batch;
mod event_framing;
pub(crate) mod facts;
pub(crate) mod index;
mod line_header;
mod lines;
mod problems;
pub(crate) mod span;
mod tracks;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashSet;
use stepscope_model::{
    ArgValue, Cancelled, Epoch, EventSink, ReadContext, SharedBytes, SourceId, TrackId,
};

use crate::FormatError;
use crate::xspace::well_known_stats::{METADATA_PLANE, Role, TASK_ENVIRONMENT};
use crate::xspace::wire::StatValue;
use args::XSpaceArgs;
use facts::{Origin, module_name, text};
use index::{PlaneFrame, PlaneIndex, Space, frame};
use line_header::{LineHead, STRETCH_BYTES};
use lines::{LineIssues, ReadyLine, ReadyPlane, Scratch};
use problems::framing_fault;
use span::Span;

/// Line times above this value (nanoseconds) are Unix times; smaller ones count from the profile's
/// start. The value is three years after the Unix epoch, longer than any capture.
pub(crate) const ABSOLUTE_NS: i64 = 100_000_000_000_000_000;

/// Maximum number of batches of one file.
const MAX_BATCHES: usize = 128;

/// Reads a whole file. See [`crate::read`] for the guarantees.
///
/// An empty file is an empty `XSpace`.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file = (**bytes).as_ref();
    let mut space = frame(file, context.limits.max_tracks as usize);
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
        described: FxHashSet::default(),
        origin: Origin::default(),
    };
    let clock = reading.clock();
    sink.epoch(clock.epoch);
    let source = sink.source(args.clone());
    reading.facts(clock.epoch, sink);
    let (planes, lines) = reading.tracks(&clock, context, sink);
    let issues = emit_all(file, &heads, &planes, &lines, source, context, sink)?;
    reading.origin.conclude(sink);
    reading.problems(&clock, &issues, sink);
    Ok(())
}

/// Scans the headers of all lines.
fn scan_all(
    file: &[u8],
    jobs: &[(usize, Span)],
    context: &ReadContext,
) -> Result<Vec<LineHead>, Cancelled> {
    let mut parts = Vec::with_capacity(jobs.len());
    let mut counts = Vec::with_capacity(jobs.len());
    for (_, line) in jobs {
        let before = parts.len();
        if context.threads > 1 {
            parts.extend(line_header::parts(file, *line));
        } else {
            parts.push(line_header::whole(*line));
        }
        counts.push(parts.len() - before);
    }
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let groups = batches(parts.iter().map(|part| part.len()), total);
    let walk = |group: Range<usize>| -> Result<Vec<line_header::Walked>, Cancelled> {
        let parts = parts.get(group).unwrap_or_default();
        let walked = parts.iter().map(|part| {
            context.advance(0)?;
            Ok(line_header::walk(file, *part))
        });
        walked.collect()
    };
    let mut walked = Vec::with_capacity(parts.len());
    for group in in_parallel(context.threads, groups, &walk) {
        walked.append(&mut group?);
    }
    let mut walked = parts.into_iter().zip(walked);
    let heads = counts
        .into_iter()
        .map(|count| line_header::join(file, walked.by_ref().take(count)));
    Ok(heads.collect())
}

/// Splits a list of items with these sizes into ranges of about equal size.
fn batches(sizes: impl Iterator<Item = usize>, total: usize) -> Vec<Range<usize>> {
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
    let mut results = Vec::with_capacity(items.len());
    in_order(threads, items, work, |result| results.push(result));
    results
}

/// Runs `work` on each item, on as many threads as are allowed, and `take` on each result in the
/// order of the items, as soon as the earlier results have been taken, on any of these threads.
fn in_order<I: Send, R: Send>(
    threads: usize,
    items: Vec<I>,
    work: &(impl Fn(I) -> R + Sync),
    mut take: impl FnMut(R) + Send,
) {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().for_each(|item| take(work(item)));
    }
    let slots: Vec<Slot<I, R>> = items
        .into_iter()
        .map(|item| Mutex::new((Some(item), None)))
        .collect();
    let next = AtomicUsize::new(0);
    let turn = Mutex::new((0, take));
    let run = || {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let item = slot.lock().ok().and_then(|mut slot| slot.0.take());
            let result = item.map(work);
            if let Ok(mut slot) = slot.lock() {
                slot.1 = result;
            }
            // If another thread holds the lock, it or a later one also takes this result.
            if let Ok(mut turn) = turn.try_lock() {
                let (place, take) = &mut *turn;
                take_ready(&slots, place, take);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A failure to create a thread is ignored: the other threads do its work.
            let _ = std::thread::Builder::new()
                .name("stepscope-xplane".to_owned())
                .spawn_scoped(scope, run);
        }
        run();
    });
    if let Ok(mut turn) = turn.lock() {
        let (place, take) = &mut *turn;
        take_ready(&slots, place, take);
    }
}

/// An item until it is taken, then its result until that is taken.
type Slot<I, R> = Mutex<(Option<I>, Option<R>)>;

/// Takes the available results from index `place` on.
fn take_ready<I, R>(slots: &[Slot<I, R>], place: &mut usize, take: &mut impl FnMut(R)) {
    while let Some(slot) = slots.get(*place)
        && let Some(result) = slot.lock().ok().and_then(|mut slot| slot.1.take())
    {
        *place += 1;
        take(result);
    }
}

/// Emits all events.
fn emit_all<S: EventSink>(
    file: &[u8],
    heads: &[LineHead],
    planes: &[Option<ReadyPlane<'_>>],
    lines: &[Option<(usize, ReadyLine)>],
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<LineIssues, Cancelled> {
    let mut segments = Vec::new();
    for (line, head) in lines.iter().zip(heads) {
        let Some((plane, line)) = line else { continue };
        let Some(Some(plane)) = planes.get(*plane) else {
            continue;
        };
        if !line.counters {
            let events = usize::try_from(head.events).unwrap_or(usize::MAX);
            sink.expect_slices(line.track, events);
        }
        segments.extend(head.segments.iter().map(|stretch| (plane, line, *stretch)));
    }
    let sizes = || segments.iter().map(|(_, _, stretch)| stretch.span.len());
    let groups = batches(sizes(), sizes().sum());
    let emit = |group: Range<usize>, sink: &mut S| -> Result<LineIssues, Cancelled> {
        let mut issues = LineIssues::default();
        let mut scratch = Scratch::default();
        for (plane, line, stretch) in segments.get(group).unwrap_or_default() {
            let span = stretch.span;
            context.advance(span.len() as u64)?;
            issues.add(&lines::emit(
                file,
                span,
                plane,
                line,
                source,
                sink,
                &mut scratch,
            ));
        }
        Ok(issues)
    };
    if context.threads <= 1 || groups.len() <= 1 {
        let mut issues = LineIssues::default();
        for group in groups {
            issues.add(&emit(group, sink)?);
        }
        return Ok(issues);
    }
    let forks: Vec<_> = groups
        .into_iter()
        .map(|group| (group, sink.fork()))
        .collect();
    let mut sum = LineIssues::default();
    let mut cancelled = Ok(());
    let work = |(group, mut fork): (Range<usize>, S)| {
        let mine = segments.get(group.clone()).unwrap_or_default();
        for row in mine.chunk_by(|a, b| a.1.track == b.1.track) {
            if let Some((_, line, _)) = row.first().filter(|(_, line, _)| !line.counters) {
                let events = row.iter().map(|(_, _, stretch)| stretch.events).sum();
                fork.expect_slices(line.track, events);
            }
        }
        let issues = emit(group, &mut fork);
        (fork, issues)
    };
    in_order(
        context.threads,
        forks,
        &work,
        |(fork, issues)| match issues {
            Ok(issues) => {
                sum.add(&issues);
                sink.merge(fork);
            }
            Err(stop) => cancelled = Err(stop),
        },
    );
    cancelled.map(|()| sum)
}

/// Conversion from the file's times to the run's times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    pub(crate) epoch: Epoch,
    /// Offset to subtract from line times that are Unix times, nanoseconds.
    pub(crate) absolute_ns: i64,
    /// Whether some lines hold Unix times and others times since a start that the file does not
    /// contain.
    pub(crate) unaligned: bool,
}

/// State that the steps of one read share.
pub(crate) struct Reading<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) indexes: &'a [PlaneIndex],
    pub(crate) space: &'a Space,
    pub(crate) jobs: &'a [(usize, Span)],
    pub(crate) heads: &'a [LineHead],
    pub(crate) bad_texts: u64,
    pub(crate) repeated_lines: u64,
    /// Tracks of lines that have a description.
    pub(crate) described: FxHashSet<TrackId>,
    pub(crate) origin: Origin,
}

impl<'a> Reading<'a> {
    /// Decodes a text; counts invalid UTF-8.
    pub(crate) fn text(&mut self, span: Span) -> std::borrow::Cow<'a, str> {
        let (text, bad) = text(self.file, span);
        self.bad_texts += u64::from(bad);
        text
    }

    pub(crate) fn planes(
        &self,
    ) -> impl Iterator<Item = (&'a PlaneIndex, &'a PlaneFrame)> + use<'a> {
        self.indexes.iter().zip(&self.space.frames)
    }

    /// Returns an integer from the stats of a plane.
    pub(crate) fn plane_number(
        &self,
        index: &PlaneIndex,
        frame: &PlaneFrame,
        role: Role,
    ) -> Option<i64> {
        index
            .find_stat(self.file, &frame.stats, role)
            .and_then(StatValue::bits)
            .map(|bits| bits as i64)
    }

    /// Determines the meaning of the file's times.
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

    /// Emits hostnames, stats of planes, and compiled programs.
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
}
