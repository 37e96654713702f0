//! Snapshots of a caching allocator: its segments at the end, and the events before that.
//!
//! A file may contain the state of an allocator, as PyTorch's `_dump_snapshot` writes it. Like
//! arguments, it is read on request, through
//! [`ArgSource::memory_snapshot`](crate::ArgSource::memory_snapshot).

use std::fmt::Write;

/// State and history of the allocators of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySnapshot {
    /// The segments when the snapshot was taken.
    pub segments: Vec<MemorySegment>,
    /// Events of all devices, ascending by device, in the file's order.
    pub events: Vec<AllocatorEvent>,
    /// Frames that stacks refer to.
    pub frames: Vec<StackFrame>,
    /// Stacks as indexes into [`MemorySnapshot::frames`], innermost first. Stack 0 is empty.
    pub stacks: Vec<Box<[u32]>>,
    /// Categories that events refer to. Category 0 is unknown and empty.
    pub categories: Vec<Box<str>>,
    /// Texts that the program and the compiler attach to events. Text 0 is empty.
    pub notes: Vec<Box<str>>,
    /// Settings of the allocator by name, as text.
    pub settings: Vec<(Box<str>, Box<str>)>,
    /// Whether the events have times; otherwise their position is their number.
    pub is_timed: bool,
    /// Whether the operators' profile was converted (`_profile_to_snapshot`), on any device.
    pub from_profile: bool,
}

/// One frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// The source file; empty if unknown.
    pub file: Box<str>,
    /// Line in that file; 0 if unknown.
    pub line: u32,
    /// The function.
    pub name: Box<str>,
}

/// Memory that the allocator reserved from the device in one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySegment {
    /// Ordinal of the device.
    pub device: u32,
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// The stream whose allocations it serves.
    pub stream: u64,
    /// `small` or `large`; empty if the file does not hold it.
    pub segment_type: Box<str>,
    /// Whether it grows and shrinks in place.
    pub is_expandable: bool,
    /// Index of the stack that reserved it.
    pub stack: u32,
    /// Its blocks by address.
    pub blocks: Vec<MemoryBlock>,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBlock {
    /// First address.
    pub address: u64,
    /// Size in bytes, rounded up by the allocator.
    pub size: u64,
    /// Size in bytes that the program asked for.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
    /// Index of the stack that allocated it.
    pub stack: u32,
}

/// Use of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Free, for the next allocation that fits.
    #[default]
    Inactive,
    /// In use by the program.
    Allocated,
    /// Freed by the program while a stream still uses it.
    PendingFree,
}

/// What an allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorAction {
    /// The program got a block.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The block is free for other allocations.
    FreeCompleted,
    /// A segment was reserved from the device.
    SegmentAlloc,
    /// A segment was returned to the device.
    SegmentFree,
    /// Memory was added to an expandable segment.
    SegmentMap,
    /// Memory of an expandable segment was returned to the device.
    SegmentUnmap,
    /// An allocation failed; the device had this many bytes free.
    OutOfMemory {
        /// Free bytes of the device, outside the allocator.
        device_free: u64,
    },
    /// The program took a snapshot.
    Snapshot,
}

impl AllocatorAction {
    /// Returns PyTorch's word for it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::OutOfMemory { .. } => "oom",
            Self::Snapshot => "snapshot",
        }
    }
}

/// One event of an allocator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocatorEvent {
    /// What happened.
    pub action: AllocatorAction,
    /// Ordinal of the device.
    pub device: u32,
    /// First address of the block or segment.
    pub address: u64,
    /// Size in bytes; of blocks, as the program asked for it.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// Unix time in microseconds; 0 without one.
    pub time_us: i64,
    /// Index of the stack.
    pub stack: u32,
    /// Index of the category.
    pub category: u32,
    /// Index of the note that the program set (`user_metadata`).
    pub user_metadata: u32,
    /// Index of the note that names the compiled graph (`compile_context`).
    pub compile_context: u32,
    /// Requested bytes of active blocks afterwards.
    pub active: i64,
    /// Bytes in segments afterwards.
    pub reserved: i64,
}

impl MemorySnapshot {
    /// Returns the frames of a stack, innermost first; none if unknown.
    pub fn stack_frames(&self, stack: u32) -> impl Iterator<Item = &StackFrame> {
        let frames = self.stacks.get(stack as usize).map_or(&[][..], |all| all);
        frames.iter().filter_map(|at| self.frames.get(*at as usize))
    }

    /// Returns the events of a device, in order.
    pub fn device_events(&self, device: u32) -> &[AllocatorEvent] {
        let start = self.events.partition_point(|event| event.device < device);
        let end = self.events.partition_point(|event| event.device <= device);
        self.events.get(start..end).unwrap_or_default()
    }

    /// Returns a stack as text, innermost function first; empty if unknown.
    pub fn stack_text(&self, stack: u32) -> String {
        let mut text = String::new();
        for frame in self.stack_frames(stack) {
            if !text.is_empty() {
                text.push_str(" < ");
            }
            text.push_str(&frame.name);
            if frame.line > 0 {
                // Writing to a string cannot fail.
                let _ = write!(text, " ({}:{})", frame.file, frame.line);
            }
        }
        text
    }

    /// Returns the devices with events or segments, ascending.
    pub fn devices(&self) -> Vec<u32> {
        let of_events = self.events.iter().map(|event| event.device);
        let of_segments = self.segments.iter().map(|segment| segment.device);
        let all: std::collections::BTreeSet<u32> = of_events.chain(of_segments).collect();
        all.into_iter().collect()
    }
}
