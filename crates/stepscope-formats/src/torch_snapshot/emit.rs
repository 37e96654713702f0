//! Events of a snapshot as instants, and their arguments. The names and arguments of allocations
//! and frees are those of torch's profiler.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    AllocatorAction, AllocatorEvent, ArgRef, ArgValue, Cancelled, Epoch, EventSink, InstantIn,
    MemorySnapshot, NameId, ReadContext, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

/// Length of an event without a time on the time axis.
const EVENT_PS: i64 = 1_000_000;
/// torch's number of the device type CUDA, which HIP shares.
const CUDA: i64 = 1;
/// Number of events between two checks for cancellation.
const OFTEN: usize = 4_096;

/// Emits an instant for each event, on one track per device.
pub(super) fn emit<S: EventSink>(
    snapshot: &MemorySnapshot,
    source: SourceId,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), Cancelled> {
    let times = snapshot.events.iter().map(|event| event.time_us);
    let first_us = times.filter(|time| *time > 0).min().unwrap_or(0);
    let origin_ns = first_us.saturating_mul(1_000);
    sink.epoch(Epoch {
        origin_ns,
        unix_ns: snapshot.is_timed.then_some(origin_ns),
    });
    sink.fact("kind", ArgValue::Str(Producer::PyTorch.name()));
    let axis = if snapshot.is_timed {
        "time"
    } else {
        "event number"
    };
    sink.fact("time_axis", ArgValue::Str(axis));
    for (name, value) in &snapshot.settings {
        sink.fact(&format!("allocator.{name}"), ArgValue::Str(value));
    }
    let mut tracks: FxHashMap<u32, (TrackId, i64, i64)> = FxHashMap::default();
    let mut names: FxHashMap<&'static str, NameId> = FxHashMap::default();
    for (index, event) in snapshot.events.iter().enumerate() {
        if index.is_multiple_of(OFTEN) {
            context.advance(0)?;
        }
        let (track, number, latest) = tracks.entry(event.device).or_insert_with(|| {
            let track = sink.track(&format!("allocator/{}", event.device));
            sink.describe(
                track,
                TrackPatch {
                    name: Some(&format!("Allocator of device {}", event.device)),
                    kind: Some(TrackKind::Async),
                    sort_index: Some(i64::from(event.device)),
                    ..TrackPatch::default()
                },
            );
            (track, 0, 0)
        });
        let ps = if snapshot.is_timed {
            event.time_us.saturating_sub(first_us).max(0)
        } else {
            *number
        };
        // The order of the events is certain, their times are approximate.
        *latest = (*latest).max(ps.saturating_mul(EVENT_PS));
        *number += 1;
        let name = name_of(event.action);
        let name = *names.entry(name).or_insert_with(|| sink.name(name));
        sink.instant(
            *track,
            InstantIn {
                at: Time::from_ps(*latest),
                name,
                category: NameId::EMPTY,
                args: ArgRef::new(source, index as u64),
            },
        );
    }
    Ok(())
}

/// Returns the name of an instant. Memory is in use until its free is completed.
const fn name_of(action: AllocatorAction) -> &'static str {
    match action {
        AllocatorAction::Alloc | AllocatorAction::FreeCompleted => kineto::MEMORY,
        other => other.code(),
    }
}

/// Visits the arguments of an event.
pub(super) fn arguments(
    snapshot: &MemorySnapshot,
    event: &AllocatorEvent,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) {
    let size = i64::try_from(event.size).unwrap_or(i64::MAX);
    let is_free = event.action == AllocatorAction::FreeCompleted;
    visit("Bytes", ArgValue::Int(if is_free { -size } else { size }));
    if let AllocatorAction::OutOfMemory { device_free } = event.action {
        visit("Device Free", ArgValue::Uint(device_free));
    } else {
        visit("Addr", ArgValue::Uint(event.address));
    }
    visit("Total Allocated", ArgValue::Int(event.active));
    visit("Total Reserved", ArgValue::Int(event.reserved));
    if snapshot.from_profile {
        visit(
            "allocator_name",
            ArgValue::Str(&format!("device {}", event.device)),
        );
    } else {
        visit("Device Type", ArgValue::Int(CUDA));
    }
    visit("Device Id", ArgValue::Int(i64::from(event.device)));
    visit("Stream", ArgValue::Uint(event.stream));
    if let Some(category) = snapshot.categories.get(event.category as usize)
        && !category.is_empty()
    {
        visit("Category", ArgValue::Str(category));
    }
    for (name, note) in [
        ("User metadata", event.user_metadata),
        ("Compile context", event.compile_context),
    ] {
        if let Some(text) = snapshot
            .notes
            .get(note as usize)
            .filter(|text| !text.is_empty())
        {
            visit(name, ArgValue::Str(text));
        }
    }
    if event.stack > 0 {
        visit(
            "Call stack",
            ArgValue::Str(&snapshot.stack_text(event.stack)),
        );
    }
}
