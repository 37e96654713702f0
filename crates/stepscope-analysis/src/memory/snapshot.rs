//! State of a caching allocator, and how its events are undone: a snapshot is taken at the end.
//!
//! Events are undone from the end:
//!
//! ```text
//! state(k) = state(k + 1) without the effect of event k + 1
//! reserved = sum of the segments
//! active   = blocks in use, or freed while a stream still uses them; allocated: without the latter
//! inactive_split = free blocks in segments that hold an active block, too
//! ```

use std::collections::BTreeMap;

use stepscope_model::{
    AllocatorAction, AllocatorEvent, BlockState, MemoryBlock, MemorySegment, MemorySnapshot,
};

/// PyTorch rounds sizes of blocks up to multiples of this.
const ROUNDING: u64 = 512;

/// Sums of an allocator's state, in bytes and by PyTorch's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorSums {
    /// Memory of the segments.
    pub reserved: u64,
    /// Blocks in use.
    pub allocated: u64,
    /// Blocks in use, and freed ones that a stream still uses.
    pub active: u64,
    /// Bytes that the program asked for, of active blocks.
    pub requested: u64,
    /// Free blocks in segments with active blocks: they cannot be returned to the device.
    pub inactive_split: u64,
    /// The largest free block.
    pub largest_free: u64,
}

impl AllocatorSums {
    /// Sums up the blocks of segments.
    pub fn new<'a>(segments: impl IntoIterator<Item = &'a MemorySegment>) -> Self {
        let mut sums = Self::default();
        for segment in segments {
            sums.reserved = sums.reserved.saturating_add(segment.size);
            let (mut free, mut active) = (0_u64, 0_u64);
            for block in &segment.blocks {
                if block.state == BlockState::Inactive {
                    free = free.saturating_add(block.size);
                    sums.largest_free = sums.largest_free.max(block.size);
                    continue;
                }
                active = active.saturating_add(block.size);
                sums.requested = sums.requested.saturating_add(block.requested);
                if block.state == BlockState::Allocated {
                    sums.allocated = sums.allocated.saturating_add(block.size);
                }
            }
            sums.active = sums.active.saturating_add(active);
            if active > 0 {
                sums.inactive_split = sums.inactive_split.saturating_add(free);
            }
        }
        sums
    }
}

/// The state of one device's allocator, from which later events can be undone.
#[derive(Clone, Debug, Default)]
pub(super) struct AllocatorState {
    rounding: u64,
    /// Active blocks by address.
    active: BTreeMap<u64, MemoryBlock>,
    /// Segments by address, without their blocks.
    segments: BTreeMap<u64, MemorySegment>,
}

impl AllocatorState {
    /// Returns the state of a device when the snapshot was taken.
    pub(super) fn at_end(snapshot: &MemorySnapshot, device: u32) -> Self {
        let mut state = Self {
            rounding: if snapshot.from_profile { 1 } else { ROUNDING },
            ..Self::default()
        };
        let ours = |segment: &&MemorySegment| segment.device == device;
        for segment in snapshot.segments.iter().filter(ours) {
            let active = segment.blocks.iter();
            let active = active.filter(|block| block.state != BlockState::Inactive);
            state
                .active
                .extend(active.map(|block| (block.address, *block)));
            let without_blocks = MemorySegment {
                blocks: Vec::new(),
                segment_type: segment.segment_type.clone(),
                ..*segment
            };
            state.segments.insert(segment.address, without_blocks);
        }
        state
    }

    /// Returns the active blocks by address.
    pub(super) fn active(&self) -> impl ExactSizeIterator<Item = &MemoryBlock> {
        self.active.values()
    }

    /// Returns the number of segments.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Undoes an event. `stack` is the stack that allocated the block of the event, 0 if unknown.
    pub(super) fn undo(&mut self, event: &AllocatorEvent, stack: u32) {
        match event.action {
            AllocatorAction::Alloc => {
                self.active.remove(&event.address);
            }
            AllocatorAction::FreeCompleted => {
                let block = MemoryBlock {
                    address: event.address,
                    size: event
                        .size
                        .checked_next_multiple_of(self.rounding)
                        .unwrap_or(u64::MAX),
                    requested: event.size,
                    state: BlockState::PendingFree,
                    stack,
                };
                self.active.insert(event.address, block);
            }
            AllocatorAction::FreeRequested => {
                if let Some(block) = self.active.get_mut(&event.address) {
                    block.state = BlockState::Allocated;
                }
            }
            AllocatorAction::SegmentAlloc => {
                self.segments.remove(&event.address);
            }
            AllocatorAction::SegmentFree => self.add(event, false),
            AllocatorAction::SegmentUnmap => self.add(event, true),
            AllocatorAction::SegmentMap => self.cut(event),
            AllocatorAction::OutOfMemory { .. } | AllocatorAction::Snapshot => {}
        }
    }

    /// Adds memory; to the adjacent segments if these are expandable.
    fn add(&mut self, event: &AllocatorEvent, is_expandable: bool) {
        let mut segment = MemorySegment {
            device: event.device,
            address: event.address,
            size: event.size,
            stream: event.stream,
            is_expandable,
            stack: event.stack,
            ..MemorySegment::default()
        };
        let fits = |other: &MemorySegment| {
            is_expandable && other.is_expandable && other.stream == event.stream
        };
        let end = |segment: &MemorySegment| segment.address.saturating_add(segment.size);
        let before = self.segments.range(..event.address).next_back();
        let before = before.filter(|(_, other)| fits(other) && end(other) == event.address);
        if let Some(address) = before.map(|(address, _)| *address)
            && let Some(mut other) = self.segments.remove(&address)
        {
            other.size = other.size.saturating_add(segment.size);
            segment = other;
        }
        let next = end(&segment);
        if self.segments.get(&next).is_some_and(fits)
            && let Some(other) = self.segments.remove(&next)
        {
            segment.size = segment.size.saturating_add(other.size);
            segment.segment_type = other.segment_type;
        }
        self.segments.insert(segment.address, segment);
    }

    /// Removes a range of addresses from the expandable segment that contains it.
    fn cut(&mut self, event: &AllocatorEvent) {
        let containing = self.segments.range(..=event.address).next_back();
        let Some(address) = containing.map(|(address, _)| *address) else {
            return;
        };
        let Some(segment) = self.segments.remove(&address) else {
            return;
        };
        let end = segment.address.saturating_add(segment.size);
        let (from, to) = (event.address, event.address.saturating_add(event.size));
        if from >= end || to > end {
            self.segments.insert(address, segment);
            return;
        }
        for (start, end) in [(segment.address, from), (to, end)] {
            if start < end {
                let rest = MemorySegment {
                    address: start,
                    size: end - start,
                    segment_type: segment.segment_type.clone(),
                    blocks: Vec::new(),
                    ..segment
                };
                self.segments.insert(start, rest);
            }
        }
    }

    /// Distributes the active blocks over the segments, and fills the gaps with free blocks.
    pub(super) fn into_segments(self) -> Vec<MemorySegment> {
        let Self {
            active, segments, ..
        } = self;
        let mut active = active.into_values().peekable();
        let mut out = Vec::with_capacity(segments.len());
        for mut segment in segments.into_values() {
            let end = segment.address.saturating_add(segment.size);
            let mut at = segment.address;
            while active.next_if(|block| block.address < at).is_some() {}
            while let Some(mut block) = active.next_if(|block| block.address < end) {
                let next = active.peek().map_or(end, |next| next.address.min(end));
                block.size = block.size.min(next.saturating_sub(block.address));
                push_free(&mut segment.blocks, at, block.address);
                at = block.address.saturating_add(block.size);
                segment.blocks.push(block);
            }
            push_free(&mut segment.blocks, at, end);
            out.push(segment);
        }
        out
    }
}

fn push_free(blocks: &mut Vec<MemoryBlock>, from: u64, to: u64) {
    if from < to {
        blocks.push(MemoryBlock {
            address: from,
            size: to - from,
            ..MemoryBlock::default()
        });
    }
}
