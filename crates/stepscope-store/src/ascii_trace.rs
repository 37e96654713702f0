//! Traces drawn as text: one character is one microsecond.
//!
//! ```text
//! rank0/device0/compute  | matmul---------  matmul---
//! rank0/device0/comm     |        allreduce-----
//! rank0/steps            | step0-----------------------
//! python                 | forward------------ |
//!                        |    linear---        | nested: the line goes on with the same track
//! gpu/mem #counter       | 3    7   5
//! ```
//!
//! A line is `track | drawing`. A slice begins with its name and lasts as long as its name and the
//! dashes after it. A blank, the first letter of another name after a dash, or the end of the line
//! ends it. A line without a track continues the track above it, so that nesting and overlaps are
//! drawn one below the other. A name alone is as long as its letters. Marks after a name:
//!
//! * `!name` (one character wide with its name) is an instant at the mark;
//! * `name>7` starts flow 7, `name<7` ends it (these characters count for the length);
//! * a name `step0`, `step1`, ... is a step marker of that number.
//!
//! Words after the track's name set its kind: `#device`, `#async`, `#steps`, `#counter` (its
//! drawing holds numbers), `#derived`. The default is a thread. `#device=1` is a queue of device 1,
//! `#pid=7` a track of process 7, `#tid=8` one of thread 8. `a/b` lies in group `a`. Text after a
//! second `|` is a comment.
//!
//! The first character after `| ` is time zero.

use stepscope_model::{
    Dur, Epoch, EventSink, FlowDirection, FlowKey, InstantIn, SliceFlow, SliceIn, Time, TrackId,
    TrackKind, TrackPatch,
};

use crate::build::builder::TraceBuilder;
use crate::read::facts::FileSpec;
use crate::read::trace::Trace;

const US: i64 = 1_000_000;

/// Builds a trace of one file from the drawing.
///
/// # Panics
///
/// Panics if the drawing is invalid: this function is for tests.
pub fn trace(drawing: &str) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    emit(drawing, &mut sink);
    builder.add(sink);
    builder.finish()
}

/// Emits the events of a drawing into any sink.
///
/// # Panics
///
/// Panics if the drawing is invalid, as [`trace`] does.
pub fn emit<S: EventSink>(drawing: &str, sink: &mut S) {
    sink.epoch(Epoch::default());
    let mut current = None;
    for line in drawing.lines().filter(|line| line.contains('|')) {
        let mut columns = line.splitn(3, '|');
        let head = columns.next().unwrap_or("").trim();
        let body = columns.next().unwrap_or("");
        let body = body.strip_prefix(' ').unwrap_or(body);
        if !head.is_empty() {
            current = Some(make_track(head, sink));
        }
        let (track, kind) = current.expect("the first line names its track");
        emit_line(body, track, kind, sink);
    }
}

fn make_track<S: EventSink>(head: &str, sink: &mut S) -> (TrackId, TrackKind) {
    let mut words = head.split_whitespace();
    let key = words.next().unwrap_or("");
    let mut kind = TrackKind::Thread;
    let (mut derived, mut device, mut pid, mut tid) = (None, None, None, None);
    for word in words {
        if let Some(number) = word.strip_prefix("#device=") {
            kind = TrackKind::DeviceQueue;
            device = Some(number.parse().expect("a device has a number"));
            continue;
        }
        if let Some(number) = word.strip_prefix("#pid=") {
            pid = Some(number.parse().expect("a process has a number"));
            continue;
        }
        if let Some(number) = word.strip_prefix("#tid=") {
            tid = Some(number.parse().expect("a thread has a number"));
            continue;
        }
        match word {
            "#device" => kind = TrackKind::DeviceQueue,
            "#async" => kind = TrackKind::Async,
            "#steps" => kind = TrackKind::Steps,
            "#counter" => kind = TrackKind::Counter,
            "#derived" => derived = Some(true),
            other => panic!("{other} is no kind of track"),
        }
    }
    let parent = key.rsplit_once('/').map(|(group, _)| {
        let mut above = None;
        let ends = group.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([group.len()]) {
            let id = sink.track(&group[..end]);
            sink.describe(
                id,
                TrackPatch {
                    kind: Some(TrackKind::Group),
                    parent: above,
                    ..TrackPatch::default()
                },
            );
            above = Some(id);
        }
        above
    });
    let track = sink.track(key);
    sink.describe(
        track,
        TrackPatch {
            kind: Some(kind),
            parent: parent.flatten(),
            derived,
            device,
            pid,
            tid,
            ..TrackPatch::default()
        },
    );
    (track, kind)
}

fn emit_line<S: EventSink>(body: &str, track: TrackId, kind: TrackKind, sink: &mut S) {
    let letters: Vec<char> = body.chars().collect();
    let mut at = 0;
    while at < letters.len() {
        if letters[at] == ' ' {
            at += 1;
            continue;
        }
        let begin = at;
        while at < letters.len() && !matches!(letters[at], ' ' | '-') {
            at += 1;
        }
        let word: String = letters[begin..at].iter().collect();
        while letters.get(at) == Some(&'-') {
            at += 1;
        }
        let start = Time::from_ps(length(begin) * US);
        if kind == TrackKind::Counter {
            let value = word.parse().expect("a counter's drawing holds numbers");
            sink.counter(track, start, value);
        } else if let Some(name) = word.strip_prefix('!') {
            let name = sink.name(name);
            sink.instant(
                track,
                InstantIn {
                    at: start,
                    name,
                    ..InstantIn::default()
                },
            );
        } else {
            emit_slice(
                &word,
                start,
                Dur::from_ps(length(at - begin) * US),
                track,
                sink,
            );
        }
    }
}

fn emit_slice<S: EventSink>(word: &str, start: Time, dur: Dur, track: TrackId, sink: &mut S) {
    let end = word.find(['<', '>']).unwrap_or(word.len());
    let (text, marks) = word.split_at(end);
    let mut flows = Vec::new();
    for mark in marks
        .split_inclusive(char::is_numeric)
        .filter(|m| m.len() > 1)
    {
        let (way, number) = mark.split_at(1);
        let category = sink.name("flow");
        flows.push(SliceFlow {
            key: FlowKey {
                category,
                id: number.parse().expect("a flow has a number of one digit"),
            },
            direction: if way == ">" {
                FlowDirection::Out
            } else {
                FlowDirection::In
            },
        });
    }
    let name = sink.name(text);
    sink.slice(
        track,
        SliceIn {
            start,
            dur,
            name,
            step: text
                .strip_prefix("step")
                .and_then(|number| number.parse().ok()),
            flows: &flows,
            ..SliceIn::default()
        },
    );
}

fn length(letters: usize) -> i64 {
    i64::try_from(letters).unwrap_or(i64::MAX)
}

/// Lists the slices of a trace, one per line, to compare them with what a test expects.
pub fn listing(trace: &Trace) -> String {
    let mut lines = Vec::new();
    for track in trace.tracks().iter().filter(|track| track.slices > 0) {
        lines.push(match track.overflow_rows {
            0 => track.key.clone(),
            rows => format!("{} ({rows} overflow rows)", track.key),
        });
        let slices = trace.slices(track.id);
        let events = (0..slices.len()).filter_map(|index| trace.event(slices.id(index)));
        lines.extend(events.map(|event| {
            format!(
                "{}{} {}..{} row {} self {}",
                "  ".repeat(usize::from(event.depth) + 1),
                trace.name(event.name),
                event.start.ps() / US,
                event.start.saturating_add(event.dur).ps() / US,
                event.row,
                event.self_time.ps() / US,
            )
        }));
    }
    lines.push(String::new());
    lines.join("\n")
}
