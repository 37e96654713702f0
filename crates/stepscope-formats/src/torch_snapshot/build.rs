//! Conversion of decoded values into a [`MemorySnapshot`].

use rustc_hash::FxHashMap;
use stepscope_model::{
    AllocatorAction, AllocatorEvent, BlockState, Diagnostic, MemoryBlock, MemorySegment,
    MemorySnapshot, StackFrame,
};

use super::SnapshotLosses;
use crate::pickle::{Pickle, Value};

/// Maximum number of frames of a stack; outer ones are left out.
const MAX_FRAMES: usize = 512;
/// Longer texts are truncated.
const MAX_TEXT_BYTES: usize = 4_096;
/// PyTorch's word for no compile context.
const NO_NOTE: &str = "N/A";

/// Builds the snapshot; `None` if the values hold none. `budget` bounds the number of entries,
/// because a hostile pickle may refer to one list many times.
pub(super) fn build(
    pickle: &Pickle<'_>,
    root: Value,
    budget: usize,
    losses: &mut SnapshotLosses,
) -> Option<MemorySnapshot> {
    let traces = pickle.get(root, "device_traces");
    // The oldest form is the list of segments alone.
    let segments = match root {
        Value::List(_) => root,
        _ => pickle.get(root, "segments"),
    };
    if !matches!(traces, Value::List(_)) && !matches!(segments, Value::List(_)) {
        return None;
    }
    let mut builder = SnapshotBuilder {
        pickle,
        found: MemorySnapshot {
            stacks: vec![Box::default()],
            categories: vec![Box::default()],
            notes: vec![Box::default()],
            ..MemorySnapshot::default()
        },
        budget,
        skipped: 0,
        unknown: 0,
        beyond: 0,
        frames: Known::default(),
        stacks: Known::default(),
        categories: FxHashMap::default(),
        notes: FxHashMap::default(),
    };
    let mut is_typed = false;
    for segment in pickle.list(segments) {
        is_typed |= pickle.get(*segment, "segment_type") != Value::None;
        builder.segment(*segment);
    }
    for (device, events) in pickle.list(traces).iter().enumerate() {
        let Ok(device) = u32::try_from(device) else {
            break;
        };
        builder.device_events(device, *events);
    }
    builder.settings(pickle.get(root, "allocator_settings"));
    for (what, count, detail) in [
        (
            Diagnostic::Unreadable,
            builder.skipped,
            "entries of unexpected form",
        ),
        (
            Diagnostic::UnknownEntry,
            builder.unknown,
            "events with an unknown action",
        ),
        (
            Diagnostic::LimitReached,
            builder.beyond,
            "more entries than bytes",
        ),
    ] {
        if count > 0 {
            losses.push((what, count, detail.to_owned()));
        }
    }
    let mut found = builder.found;
    found.is_timed = found.events.iter().any(|event| event.time_us > 0);
    found.from_profile = !is_typed && found.events.iter().any(|event| event.category > 0);
    add_totals(&mut found);
    Some(found)
}

/// Numbers of values that were converted: by the container, and by content.
struct Known<T> {
    by_container: FxHashMap<u32, u32>,
    by_content: FxHashMap<T, u32>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self {
            by_container: FxHashMap::default(),
            by_content: FxHashMap::default(),
        }
    }
}

struct SnapshotBuilder<'a, 'b> {
    pickle: &'a Pickle<'b>,
    found: MemorySnapshot,
    budget: usize,
    skipped: u64,
    unknown: u64,
    beyond: u64,
    frames: Known<StackFrame>,
    stacks: Known<Box<[u32]>>,
    categories: FxHashMap<Box<str>, u32>,
    notes: FxHashMap<Box<str>, u32>,
}

impl SnapshotBuilder<'_, '_> {
    /// Counts an entry; returns whether it may be read.
    fn spend(&mut self) -> bool {
        let left = self.budget.checked_sub(1);
        self.budget = left.unwrap_or(0);
        self.beyond += u64::from(left.is_none());
        left.is_some()
    }

    fn text(&self, value: Value) -> Box<str> {
        let text = self.pickle.text(value);
        text[..text.floor_char_boundary(MAX_TEXT_BYTES)].into()
    }

    fn whole(&self, entry: Value, key: &str) -> Option<u64> {
        Pickle::whole(self.pickle.get(entry, key))
    }

    fn frame(&mut self, frame: Value) -> u32 {
        let Value::Dict(container) = frame else {
            return u32::MAX;
        };
        if let Some(known) = self.frames.by_container.get(&container) {
            return *known;
        }
        let content = StackFrame {
            file: self.text(self.pickle.get(frame, "filename")),
            line: self
                .whole(frame, "line")
                .and_then(|line| u32::try_from(line).ok())
                .unwrap_or(0),
            name: self.text(self.pickle.get(frame, "name")),
        };
        let next = u32::try_from(self.found.frames.len()).unwrap_or(u32::MAX);
        let number = *self
            .frames
            .by_content
            .entry(content)
            .or_insert_with_key(|content| {
                self.found.frames.push(content.clone());
                next
            });
        self.frames.by_container.insert(container, number);
        number
    }

    fn stack(&mut self, frames: Value) -> u32 {
        let Value::List(container) = frames else {
            return 0;
        };
        if let Some(known) = self.stacks.by_container.get(&container) {
            return *known;
        }
        let pickle = self.pickle;
        let list = pickle.list(frames).iter().take(MAX_FRAMES);
        let content: Box<[u32]> = list.map(|frame| self.frame(*frame)).collect();
        let number = if content.is_empty() {
            0
        } else {
            let next = u32::try_from(self.found.stacks.len()).unwrap_or(u32::MAX);
            *self
                .stacks
                .by_content
                .entry(content)
                .or_insert_with_key(|content| {
                    self.found.stacks.push(content.clone());
                    next
                })
        };
        self.stacks.by_container.insert(container, number);
        number
    }

    /// Returns the frames of a block, and its requested size, in the current or in the old form.
    fn history(&mut self, block: Value) -> (u32, Option<u64>) {
        let frames = self.pickle.get(block, "frames");
        let oldest = self.pickle.list(self.pickle.get(block, "history")).first();
        match (frames, oldest) {
            (Value::None, Some(entry)) => {
                let frames = self.pickle.get(*entry, "frames");
                (self.stack(frames), self.whole(*entry, "real_size"))
            }
            _ => (self.stack(frames), None),
        }
    }

    fn segment(&mut self, segment: Value) {
        let Some((size, address)) = self
            .whole(segment, "total_size")
            .zip(self.whole(segment, "address"))
        else {
            self.skipped += 1;
            return;
        };
        if !self.spend() {
            return;
        }
        let device = self.whole(segment, "device").unwrap_or(0);
        let stack = self.stack(self.pickle.get(segment, "frames"));
        let pickle = self.pickle;
        let mut blocks = Vec::new();
        let mut next = address;
        for block in pickle.list(pickle.get(segment, "blocks")) {
            if !self.spend() {
                break;
            }
            let Some(size) = self.whole(*block, "size") else {
                self.skipped += 1;
                continue;
            };
            let (stack, old_requested) = self.history(*block);
            let address = self.whole(*block, "address").unwrap_or(next);
            next = address.saturating_add(size);
            blocks.push(MemoryBlock {
                address,
                size,
                requested: self
                    .whole(*block, "requested_size")
                    .or(old_requested)
                    .unwrap_or(size),
                state: match &*pickle.text(pickle.get(*block, "state")) {
                    "active_allocated" => BlockState::Allocated,
                    "active_pending_free" | "active_awaiting_free" => BlockState::PendingFree,
                    _ => BlockState::Inactive,
                },
                stack,
            });
        }
        blocks.sort_by_key(|block| block.address);
        self.found.segments.push(MemorySegment {
            device: u32::try_from(device).unwrap_or(u32::MAX),
            address,
            size,
            stream: self.whole(segment, "stream").unwrap_or(0),
            segment_type: self.text(pickle.get(segment, "segment_type")),
            is_expandable: pickle.get(segment, "is_expandable") == Value::Bool(true),
            stack,
            blocks,
        });
    }

    fn device_events(&mut self, device: u32, events: Value) {
        let pickle = self.pickle;
        for event in pickle.list(events) {
            if !self.spend() {
                return;
            }
            let action = match &*pickle.text(pickle.get(*event, "action")) {
                "alloc" => AllocatorAction::Alloc,
                "free_requested" => AllocatorAction::FreeRequested,
                // The first form has one event for both.
                "free_completed" | "free" => AllocatorAction::FreeCompleted,
                "segment_alloc" => AllocatorAction::SegmentAlloc,
                "segment_free" => AllocatorAction::SegmentFree,
                "segment_map" => AllocatorAction::SegmentMap,
                "segment_unmap" => AllocatorAction::SegmentUnmap,
                "snapshot" => AllocatorAction::Snapshot,
                "oom" => AllocatorAction::OutOfMemory {
                    device_free: self.whole(*event, "device_free").unwrap_or(0),
                },
                _ => {
                    self.unknown += 1;
                    continue;
                }
            };
            let stack = self.stack(pickle.get(*event, "frames"));
            let category = self.category(pickle.get(*event, "category"));
            let user_metadata = self.note(pickle.get(*event, "user_metadata"));
            let compile_context = self.note(pickle.get(*event, "compile_context"));
            let time = self.whole(*event, "time_us").unwrap_or(0);
            self.found.events.push(AllocatorEvent {
                action,
                device,
                address: self.whole(*event, "addr").unwrap_or(0),
                size: self.whole(*event, "size").unwrap_or(0),
                stream: self.whole(*event, "stream").unwrap_or(0),
                time_us: i64::try_from(time).unwrap_or(0),
                stack,
                category,
                user_metadata,
                compile_context,
                active: 0,
                reserved: 0,
            });
        }
    }

    fn category(&mut self, value: Value) -> u32 {
        if !matches!(value, Value::Text(_)) {
            return 0;
        }
        let text = self.text(value);
        intern(&mut self.categories, &mut self.found.categories, text)
    }

    /// Returns the number of a text attached to an event; PyTorch writes `N/A` for none.
    fn note(&mut self, value: Value) -> u32 {
        if !matches!(value, Value::Text(_)) {
            return 0;
        }
        let text = self.text(value);
        if text.is_empty() || &*text == NO_NOTE {
            return 0;
        }
        intern(&mut self.notes, &mut self.found.notes, text)
    }

    fn settings(&mut self, settings: Value) {
        let pickle = self.pickle;
        for (key, value) in pickle.pairs(settings) {
            if !self.spend() {
                return;
            }
            let text = match value {
                Value::None => "None".into(),
                Value::Bool(is) => is.to_string().into(),
                Value::Int(number) => number.to_string().into(),
                Value::Uint(number) => number.to_string().into(),
                Value::Float(number) => number.to_string().into(),
                Value::Text(_) => self.text(value),
                Value::List(_) | Value::Dict(_) => continue,
            };
            let key = self.text(key);
            self.found.settings.push((key, text));
        }
    }
}

/// Returns the number of a text in `texts`, which `known` finds by content.
fn intern(known: &mut FxHashMap<Box<str>, u32>, texts: &mut Vec<Box<str>>, text: Box<str>) -> u32 {
    let next = u32::try_from(texts.len()).unwrap_or(u32::MAX);
    *known.entry(text).or_insert_with_key(|text| {
        texts.push(text.clone());
        next
    })
}

/// Returns the change of the active and of the reserved bytes by an event.
fn change(event: &AllocatorEvent) -> (i64, i64) {
    let size = i64::try_from(event.size).unwrap_or(i64::MAX);
    match event.action {
        AllocatorAction::Alloc => (size, 0),
        AllocatorAction::FreeCompleted => (-size, 0),
        AllocatorAction::SegmentAlloc | AllocatorAction::SegmentMap => (0, size),
        AllocatorAction::SegmentFree | AllocatorAction::SegmentUnmap => (0, -size),
        _ => (0, 0),
    }
}

/// Computes the active and reserved bytes after each event, backwards from the segments at the end.
fn add_totals(snapshot: &mut MemorySnapshot) {
    let mut totals: FxHashMap<u32, (i64, i64)> = FxHashMap::default();
    let as_signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    for segment in &snapshot.segments {
        let (active, reserved) = totals.entry(segment.device).or_default();
        *reserved = reserved.saturating_add(as_signed(segment.size));
        let blocks = segment.blocks.iter();
        for block in blocks.filter(|block| block.state != BlockState::Inactive) {
            // Events have requested sizes, too.
            *active = active.saturating_add(as_signed(block.requested));
        }
    }
    for event in snapshot.events.iter_mut().rev() {
        let (active, reserved) = totals.entry(event.device).or_default();
        (event.active, event.reserved) = (*active, *reserved);
        let (of_active, of_reserved) = change(event);
        *active = active.saturating_sub(of_active);
        *reserved = reserved.saturating_sub(of_reserved);
    }
}
