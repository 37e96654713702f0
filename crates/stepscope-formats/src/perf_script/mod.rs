//! Text that `perf script` prints: sampled stacks with times. See `docs/formats/perf-script.md`.
//!
//! Reading order: `line` (one line of the text), then [`read`].

mod line;

use rustc_hash::FxHashMap;
use stepscope_model::{
    Diagnostic, Dur, Epoch, EventSink, NameId, ReadContext, SharedBytes, Time, TrackId, TrackKind,
    TrackPatch,
};

pub(crate) use self::line::is_perf_script;
use self::line::{Frame, Line, SampleHead};
use crate::FormatError;
use crate::json::number::ps_from_text;
use crate::losses;
use crate::sampling::{self, SampleTable, SampledTrack, SliceBudget, sample_end};
use stepscope_model::vocabulary::sample::TRACK_ENDING;

/// Number of lines between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Maximum number of events (`cycles`, `page-faults`) that samples are summed by; samples of
/// further ones are left out.
const MAX_EVENTS: usize = 256;
/// Number of picoseconds in a nanosecond.
const PS_PER_NS: i128 = 1_000;
/// Power of ten that converts seconds to picoseconds.
const SECONDS: i64 = 12;

/// Samples of one event.
struct EventSamples {
    event: String,
    /// Whether the text holds how much of the event each sample stands for.
    has_period: bool,
    table: SampleTable,
}

/// A sample of a thread: its time, and its functions as a range of [`Reader::stacks`].
struct ThreadSample {
    at: Time,
    stack: std::ops::Range<usize>,
}

struct Thread<'a> {
    command: &'a str,
    pid: Option<i64>,
    tid: i64,
    samples: Vec<ThreadSample>,
}

/// Counts of what was left out.
#[derive(Default)]
struct Losses {
    unreadable: u64,
    first_unreadable: usize,
    bad_times: u64,
    too_many_events: u64,
}

struct Reader<'a, 's, S> {
    sink: &'s mut S,
    file_bytes: usize,
    events: Vec<EventSamples>,
    threads: Vec<Thread<'a>>,
    thread_of: FxHashMap<(&'a str, Option<i64>, i64), usize>,
    /// Names of the functions of all samples, outermost first.
    stacks: Vec<NameId>,
    origin_ps: Option<i128>,
    losses: Losses,
}

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if no line is the head of a sample, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    let text = String::from_utf8_lossy(file);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        sink.diagnose(Diagnostic::BadText, 1, "");
    }
    let mut reader = Reader {
        sink,
        file_bytes: file.len(),
        events: Vec::new(),
        threads: Vec::new(),
        thread_of: FxHashMap::default(),
        stacks: Vec::new(),
        origin_ps: None,
        losses: Losses::default(),
    };
    let mut sample: Option<SampleHead<'_>> = None;
    // Innermost first.
    let mut frames: Vec<Frame<'_>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if number % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        // A sample with its function in its first line has no other lines.
        let may_have_frames = sample.is_some_and(|sample| sample.frame.is_none());
        match Line::parse(line, may_have_frames) {
            Line::Comment => {}
            Line::Blank => reader.add(sample.take(), &frames),
            Line::Head(head) => {
                reader.add(sample.replace(head), &frames);
                frames.clear();
                frames.extend(head.frame);
            }
            Line::Frame(frame) => frames.push(frame),
            Line::Unreadable => {
                if reader.losses.unreadable == 0 {
                    reader.losses.first_unreadable = number + 1;
                }
                reader.losses.unreadable += 1;
            }
        }
    }
    reader.add(sample, &frames);
    if reader.events.is_empty() {
        return Err(FormatError::Malformed {
            reason: "no line is the head of a sample".to_owned(),
            offset: 0,
        });
    }
    reader.finish(context)?;
    context.advance(file.len() as u64)?;
    Ok(())
}

impl<'a, S: EventSink> Reader<'a, '_, S> {
    /// Adds a sample and its stack, innermost function first.
    fn add(&mut self, sample: Option<SampleHead<'a>>, frames: &[Frame<'a>]) {
        let Some(sample) = sample else {
            return;
        };
        let Some(at) = self.events_of(&sample) else {
            self.losses.too_many_events += 1;
            return;
        };
        let EventSamples {
            has_period, table, ..
        } = &mut self.events[at];
        let tid = sample.tid.to_string();
        let pid = sample.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let labels = table.labels(&[("process", &pid), ("thread", &tid)]);
        let frames_of_stack = frames.iter();
        let mut stack: Vec<u32> = frames_of_stack
            .map(|frame| table.location(frame.name, frame.file, 0, 0))
            .collect();
        stack.push(table.location(sample.command, "", 0, 0));
        let values = [1, sample.period.unwrap_or(0)];
        let count = if *has_period { 2 } else { 1 };
        table.add(&stack, &values[..count], labels);
        self.add_to_thread(&sample, frames);
    }

    /// Returns the index of the samples of this sample's event.
    fn events_of(&mut self, sample: &SampleHead<'_>) -> Option<usize> {
        let known = self.events.iter();
        let known = known
            .map(|one| &*one.event)
            .position(|one| one == sample.event);
        if known.is_some() {
            return known;
        }
        if self.events.len() >= MAX_EVENTS {
            return None;
        }
        let has_period = sample.period.is_some();
        let period_type = (sample.event, period_unit(sample.event));
        let types = [("samples", "count"), period_type];
        let count = if has_period { 2 } else { 1 };
        let mut table = SampleTable::new(&types[..count], self.file_bytes);
        table.show_first(u32::from(has_period));
        self.events.push(EventSamples {
            event: sample.event.to_owned(),
            has_period,
            table,
        });
        Some(self.events.len() - 1)
    }

    /// Stores time and stack of a sample for the timeline of its thread.
    fn add_to_thread(&mut self, sample: &SampleHead<'a>, frames: &[Frame<'a>]) {
        let ps = ps_from_text(sample.time.as_bytes(), SECONDS).ok();
        let relative = ps.and_then(|ps| {
            let origin = *self
                .origin_ps
                .get_or_insert(ps.div_euclid(PS_PER_NS) * PS_PER_NS);
            i64::try_from(ps.saturating_sub(origin)).ok()
        });
        let Some(relative) = relative else {
            self.losses.bad_times += 1;
            return;
        };
        let start = self.stacks.len();
        for frame in frames.iter().rev() {
            let name = self.sink.name(&crate::cprofile::truncated(frame.name));
            self.stacks.push(name);
        }
        let key = (sample.command, sample.pid, sample.tid);
        let threads = &mut self.threads;
        let at = *self.thread_of.entry(key).or_insert_with(|| {
            threads.push(Thread {
                command: sample.command,
                pid: sample.pid,
                tid: sample.tid,
                samples: Vec::new(),
            });
            threads.len() - 1
        });
        self.threads[at].samples.push(ThreadSample {
            at: Time::from_ps(relative),
            stack: start..self.stacks.len(),
        });
    }

    fn finish(mut self, context: &ReadContext) -> Result<(), FormatError> {
        self.sink.epoch(Epoch {
            origin_ns: self
                .origin_ps
                .and_then(|ps| i64::try_from(ps / PS_PER_NS).ok())
                .unwrap_or(0),
            unix_ns: None,
        });
        for thread in &mut self.threads {
            thread.samples.sort_by_key(|sample| sample.at);
        }
        let interval = interval(&self.threads);
        let mut budget = SliceBudget::new(self.file_bytes);
        for thread in &self.threads {
            context.advance(0)?;
            let track = describe(thread, self.sink);
            let mut sampled = SampledTrack::new(track);
            for (at, sample) in thread.samples.iter().enumerate() {
                let next = thread.samples.get(at + 1).map(|next| next.at);
                let names = self.stacks.get(sample.stack.clone()).unwrap_or_default();
                let names = names.iter().map(|name| (*name, NameId::EMPTY));
                let end = sample_end(sample.at, next, interval);
                sampled.add(names, sample.at, end, &mut budget, self.sink);
            }
            sampled.finish(&mut budget, self.sink);
        }
        let mut stacks_left_out = 0;
        for one in self.events {
            stacks_left_out += one.table.stacks_left_out();
            self.sink.profile(one.table.finish());
        }
        self.losses.diagnose(self.sink, &budget, stacks_left_out);
        Ok(())
    }
}

/// Describes the track of a thread.
fn describe<S: EventSink>(thread: &Thread<'_>, sink: &mut S) -> TrackId {
    let command = crate::cprofile::truncated(thread.command);
    let (pid, tid) = (thread.pid.unwrap_or(0), thread.tid);
    let track = sink.track(&format!("{pid}/{tid}/{command}"));
    let name = format!("{command} {tid}{TRACK_ENDING}");
    let patch = TrackPatch {
        name: Some(&name),
        kind: Some(TrackKind::Thread),
        pid: thread.pid,
        tid: Some(tid),
        ..TrackPatch::default()
    };
    sink.describe(track, patch);
    track
}

/// Returns the unit of the period of an event, in pprof's words: the clocks count nanoseconds.
fn period_unit(event: &str) -> &'static str {
    match event.split(':').next() {
        Some("cpu-clock" | "task-clock") => "nanoseconds",
        _ => "count",
    }
}

/// Returns the median time between two samples of one thread; zero without any.
fn interval(threads: &[Thread<'_>]) -> Dur {
    let mut gaps: Vec<Dur> = Vec::new();
    for thread in threads {
        let pairs = thread.samples.windows(2);
        gaps.extend(pairs.map(|pair| pair[1].at.since(pair[0].at)));
    }
    let middle = gaps.len() / 2;
    if gaps.is_empty() {
        return Dur::ZERO;
    }
    *gaps.select_nth_unstable(middle).1
}

impl Losses {
    fn diagnose<S: EventSink>(&self, sink: &mut S, budget: &SliceBudget, stacks_left_out: u64) {
        let first = self.first_unreadable;
        let lines =
            format!("lines that are neither samples nor functions; the first is line {first}");
        let events = format!("samples of events beyond the first {MAX_EVENTS}");
        let losses = [
            (Diagnostic::Unreadable, self.unreadable, lines.as_str()),
            (
                Diagnostic::BadTime,
                self.bad_times,
                "samples without a usable time, left out of the timeline",
            ),
            (Diagnostic::LimitReached, self.too_many_events, &events),
        ];
        losses::diagnose(sink, &losses);
        sampling::diagnose_limits(sink, budget, stacks_left_out);
    }
}
