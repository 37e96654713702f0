//! Emission of collectives: a track per process group, a slice from the call until PyTorch found
//! the collective complete.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    ArgRef, ArgValue, Diagnostic, Dur, Epoch, EventSink, NameId, ReadContext, SliceFlags, SliceIn,
    SourceId, Time, TrackId, TrackKind, TrackPatch,
};

use super::values::Dump;
use crate::FormatError;
use crate::cprofile::truncated;
use crate::losses;
use crate::pickle::{Pickle, Value};

/// Number of entries between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;
/// Maximum number of process groups whose state becomes facts.
const MAX_GROUPS: usize = 256;

/// Counts of what was left out or corrected.
#[derive(Default)]
struct Losses {
    no_time: u64,
    negative: u64,
    unfinished: u64,
}

/// Emits the entries of a dump.
pub(super) fn emit<S: EventSink>(
    dump: &Dump<'_>,
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let values = &dump.values;
    let time = |entry: Value, key: &str| Pickle::whole(values.get(entry, key)).filter(|ns| *ns > 0);
    let entries = dump.entries();
    let first = entries
        .iter()
        .filter_map(|one| time(*one, "time_created_ns"));
    let first = first.min().unwrap_or(0);
    let last = entries.iter().flat_map(|one| {
        let keys = [
            "time_created_ns",
            "time_discovered_started_ns",
            "time_discovered_completed_ns",
        ];
        keys.map(|key| time(*one, key))
    });
    let last = last.flatten().max().unwrap_or(0);
    sink.epoch(Epoch {
        origin_ns: 0,
        unix_ns: i64::try_from(first).ok().filter(|first| *first > 0),
    });
    Producer::PyTorch.emit(sink);
    emit_facts(dump, sink);
    let relative = |ns: u64| {
        let relative = i64::try_from(ns.saturating_sub(first)).ok();
        relative.and_then(Time::from_ns)
    };
    let mut tracks: FxHashMap<String, TrackId> = FxHashMap::default();
    let mut names: FxHashMap<String, NameId> = FxHashMap::default();
    let category = sink.name("collective");
    let mut losses = Losses::default();
    for (number, entry) in entries.iter().enumerate() {
        if number % LOOK_EVERY == 0 {
            context.advance(0)?;
        }
        let created = time(*entry, "time_created_ns");
        let Some((created, start)) = created.and_then(|ns| Some((ns, relative(ns)?))) else {
            losses.no_time += 1;
            continue;
        };
        let completed = time(*entry, "time_discovered_completed_ns");
        losses.unfinished += u64::from(completed.is_none());
        losses.negative += u64::from(completed.is_some_and(|completed| completed < created));
        let end = relative(completed.unwrap_or(last)).unwrap_or(start);
        let operation = dump.shown(values.get(*entry, "profiling_name"));
        let operation = if operation.is_empty() {
            "(unknown)".to_owned()
        } else {
            operation
        };
        let (group, description) = dump.group(*entry);
        let track = *tracks.entry(group).or_insert_with_key(|group| {
            let order = i64::try_from(number).unwrap_or(i64::MAX);
            describe(group, &description, order, sink)
        });
        let name = *names
            .entry(operation)
            .or_insert_with_key(|operation| sink.name(operation));
        let slice = SliceIn {
            start,
            dur: end.since(start).max(Dur::ZERO),
            name,
            category,
            args: ArgRef::new(source, number as u64),
            flags: if completed.is_none() {
                SliceFlags::UNFINISHED
            } else {
                SliceFlags::NONE
            },
            ..SliceIn::default()
        };
        sink.slice(track, slice);
    }
    losses.diagnose(sink);
    Ok(())
}

/// Describes the track of a process group. Groups are in the order of their first collective.
fn describe<S: EventSink>(group: &str, description: &str, order: i64, sink: &mut S) -> TrackId {
    let track = sink.track(&format!("group/{group}"));
    let name = if description.is_empty() || description == group {
        format!("process group {group}")
    } else {
        format!("process group {group} ({description})")
    };
    let patch = TrackPatch {
        name: Some(&name),
        kind: Some(TrackKind::Thread),
        sort_index: Some(order),
        ..TrackPatch::default()
    };
    sink.describe(track, patch);
    track
}

/// Emits versions, the rank, and the last collectives of each process group.
fn emit_facts<S: EventSink>(dump: &Dump<'_>, sink: &mut S) {
    let values = &dump.values;
    for (key, name) in [
        ("version", "flight_recorder_version"),
        ("comm_lib_version", "nccl_version"),
        ("nccl_version", "nccl_version"),
        ("host_name", "host"),
    ] {
        let text = dump.shown(values.get(dump.root, key));
        if !text.is_empty() {
            sink.fact(name, ArgValue::Str(&text));
        }
    }
    if let Some(rank) = Pickle::whole(values.get(dump.root, "rank")) {
        sink.fact(
            "rank",
            ArgValue::Int(i64::try_from(rank).unwrap_or(i64::MAX)),
        );
    }
    let states = values.pairs(values.get(dump.root, "pg_status"));
    for (group, state) in states.take(MAX_GROUPS) {
        let group = dump.shown(group);
        for key in [
            "last_enqueued_collective",
            "last_started_collective",
            "last_completed_collective",
        ] {
            // The JSON form holds numbers as texts.
            if let Ok(number) = dump.shown(values.get(state, key)).parse() {
                let key = truncated(&format!("process_group.{group}.{key}"));
                sink.fact(&key, ArgValue::Int(number));
            }
        }
    }
}

impl Losses {
    fn diagnose<S: EventSink>(&self, sink: &mut S) {
        let losses = [
            (Diagnostic::BadTime, self.no_time, "collectives"),
            (Diagnostic::NegativeDuration, self.negative, "collectives"),
            (
                Diagnostic::UnfinishedSlice,
                self.unfinished,
                "collectives that were not complete",
            ),
        ];
        losses::diagnose(sink, &losses);
    }
}
