//! rustc's self-profiles (`-Z self-profile`), as the crate `measureme` writes them. See
//! `docs/formats/rustc-self-profile.md`.
//!
//! Reading order: `streams` (events and texts of the file), then [`read`].

mod streams;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    ArgError, ArgRef, ArgSource, ArgValue, Diagnostic, Dur, Epoch, EventSink, InstantIn, NameId,
    ReadContext, SharedBytes, SliceIn, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use self::streams::{Event, Payload, Streams};
use crate::FormatError;
use crate::cprofile::truncated;
use crate::json::value::{key_of, whole};
use crate::json::walk;
use crate::losses;

/// Number of events between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Maximum number of different values without a time that become facts.
const MAX_FACTS: usize = 1_024;
/// Separates the label of an event from its arguments, and these from each other.
const SEPARATOR: char = '\x1e';

/// Counts of what was left out.
#[derive(Default)]
struct Losses {
    no_text: u64,
    negative: u64,
    too_many_facts: u64,
}

struct Emitter<'a, S> {
    streams: &'a Streams<'a>,
    source: SourceId,
    sink: &'a mut S,
    tracks: FxHashMap<u32, TrackId>,
    /// Name and category by the ids of their texts.
    kinds: FxHashMap<u64, NameId>,
    labels: FxHashMap<u64, (NameId, bool)>,
    /// Values without a time, summed by kind and label.
    values: BTreeMap<String, u64>,
    losses: Losses,
}

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] for another version than 8 and 9, or without events, and
/// [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let streams = Streams::split(file)?;
    if streams.event_count() == 0 {
        return Err(FormatError::Malformed {
            reason: "no events are in the profile".to_owned(),
            offset: 0,
        });
    }
    emit_metadata(&streams, sink);
    let source = sink.source(arg_source(bytes));
    let mut emitter = Emitter {
        streams: &streams,
        source,
        sink,
        tracks: FxHashMap::default(),
        kinds: FxHashMap::default(),
        labels: FxHashMap::default(),
        values: BTreeMap::new(),
        losses: Losses::default(),
    };
    for number in 0..streams.event_count() {
        if number % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        if let Some(event) = streams.event(number) {
            emitter.event(number, event);
        }
    }
    let Emitter { values, losses, .. } = emitter;
    for (key, value) in values {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        sink.fact(&key, ArgValue::Int(value));
    }
    streams.diagnose(sink);
    losses.diagnose(sink);
    context.advance(file.len() as u64)?;
    Ok(())
}

/// Emits when and how the compiler was started.
fn emit_metadata<S: EventSink>(streams: &Streams<'_>, sink: &mut S) {
    Producer::Rust.emit(sink);
    let text = streams.metadata();
    let bytes = text.as_bytes();
    let (mut start, mut pid, mut command) = (None, None, None);
    // Cut or missing metadata has no effect on events.
    let _ = walk::members(bytes, 0, &mut |key, value| match &*key_of(key) {
        "start_time" => start = whole(bytes, value),
        "process_id" => pid = whole(bytes, value),
        "cmd" => command = walk::text(bytes, value),
        _ => {}
    });
    sink.epoch(Epoch {
        origin_ns: 0,
        unix_ns: start.filter(|start| *start > 0),
    });
    if let Some(pid) = pid {
        sink.fact("pid", ArgValue::Int(pid));
    }
    if let Some(command) = command {
        sink.fact("command", ArgValue::Str(&truncated(&command)));
    }
}

impl<S: EventSink> Emitter<'_, S> {
    fn event(&mut self, number: usize, event: Event) {
        match event.payload {
            Payload::Value(value) => self.value(&event, value),
            Payload::Instant(at) => {
                let (name, args) = self.label(number, event.label);
                let instant = InstantIn {
                    at: time(at),
                    name,
                    category: self.kind(event.kind),
                    args,
                };
                let track = self.track(event.thread);
                self.sink.instant(track, instant);
            }
            Payload::Interval(start, end) => {
                let (name, args) = self.label(number, event.label);
                let (start, end) = (time(start), time(end));
                self.losses.negative += u64::from(end < start);
                let slice = SliceIn {
                    start,
                    dur: end.since(start).max(Dur::ZERO),
                    name,
                    category: self.kind(event.kind),
                    args,
                    ..SliceIn::default()
                };
                let track = self.track(event.thread);
                self.sink.slice(track, slice);
            }
        }
    }

    /// Adds a value without a time, such as the size of an artifact.
    fn value(&mut self, event: &Event, value: u64) {
        let kind = self.text(event.kind);
        let label = self.text(event.label);
        let key = format!("{kind}.{}", label.replace(SEPARATOR, "."));
        if let Some(sum) = self.values.get_mut(&key) {
            *sum = sum.saturating_add(value);
        } else if self.values.len() < MAX_FACTS {
            self.values.insert(key, value);
        } else {
            self.losses.too_many_facts += 1;
        }
    }

    fn text(&mut self, id: u64) -> String {
        let found = self.streams.text(id);
        self.losses.no_text += u64::from(found.is_none());
        found.unwrap_or_else(|| format!("text {id}"))
    }

    fn kind(&mut self, id: u64) -> NameId {
        if let Some(known) = self.kinds.get(&id) {
            return *known;
        }
        let text = self.text(id);
        let name = self.sink.name(&text);
        self.kinds.insert(id, name);
        name
    }

    /// Returns the name of an event, and a reference to its arguments if it has any.
    fn label(&mut self, number: usize, id: u64) -> (NameId, ArgRef) {
        let (name, has_args) = if let Some(known) = self.labels.get(&id) {
            *known
        } else {
            let text = self.text(id);
            let (label, has_args) = match text.split_once(SEPARATOR) {
                Some((label, _)) => (label, true),
                None => (text.as_str(), false),
            };
            let found = (self.sink.name(label), has_args);
            self.labels.insert(id, found);
            found
        };
        let args = if has_args {
            ArgRef::new(self.source, number as u64)
        } else {
            ArgRef::NONE
        };
        (name, args)
    }

    fn track(&mut self, thread: u32) -> TrackId {
        if let Some(known) = self.tracks.get(&thread) {
            return *known;
        }
        let track = self.sink.track(&format!("thread/{thread}"));
        let name = format!("thread {thread}");
        let patch = TrackPatch {
            name: Some(&name),
            kind: Some(TrackKind::Thread),
            tid: Some(i64::from(thread)),
            ..TrackPatch::default()
        };
        self.sink.describe(track, patch);
        self.tracks.insert(thread, track);
        track
    }
}

/// Converts nanoseconds of at most 48 bits.
fn time(ns: u64) -> Time {
    let ns = i64::try_from(ns).ok();
    ns.and_then(Time::from_ns).unwrap_or(Time::MAX)
}

impl Losses {
    fn diagnose<S: EventSink>(&self, sink: &mut S) {
        let losses = [
            (
                Diagnostic::MissingMetadata,
                self.no_text,
                "references to texts that the file does not have",
            ),
            (Diagnostic::NegativeDuration, self.negative, ""),
            (
                Diagnostic::LimitReached,
                self.too_many_facts,
                "values without a time beyond the first 1,024 names",
            ),
        ];
        losses::diagnose(sink, &losses);
    }
}

/// Arguments of events. A token is the number of the event.
struct Source {
    bytes: SharedBytes,
    /// Owned copies of the texts, made at the first request.
    streams: OnceLock<Option<Streams<'static>>>,
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let streams = self.streams.get_or_init(|| {
            let file: &[u8] = (*self.bytes).as_ref();
            Streams::split(file).ok().map(Streams::into_owned)
        });
        let streams = streams.as_ref().ok_or(ArgError::Damaged)?;
        let number = usize::try_from(token).unwrap_or(usize::MAX);
        let event = streams.event(number).ok_or(ArgError::BadToken)?;
        let text = streams.text(event.label).ok_or(ArgError::Damaged)?;
        for (at, argument) in text.split(SEPARATOR).skip(1).enumerate() {
            visit(&format!("argument {}", at + 1), ArgValue::Str(argument));
        }
        Ok(())
    }
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(Source {
        bytes: Arc::clone(bytes),
        streams: OnceLock::new(),
    })
}
