//! History of a caching allocator: blocks from allocation to free, and the state after any event.
//!
//! ```text
//! allocation = alloc(a) until the next free_completed(a); a free without an alloc, and a block that is active at the
//!              end without one, were allocated before the first event of the history
//! active(k)  = sum of the requested sizes of the allocations alive after event k
//! ```

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{
    AllocatorAction, AllocatorEvent, Cancelled, MemorySegment, MemorySnapshot, StackFrame,
};

use super::owners::{is_library_file, is_own_line};
use super::snapshot::AllocatorState;
use crate::parallel::Cancel;

/// Number of events between two stored states.
const STRIDE: usize = 16_384;
/// Maximum number of blocks and segments in the stored states of a device.
const MAX_STORED: usize = 1 << 20;
/// Marks an event without an allocation.
const NONE: u32 = u32::MAX;

/// One block from its allocation to its free. Event numbers count the events of its device from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// The event that allocated it; `None`: before the first event.
    pub alloc: Option<u32>,
    /// The event that requested the free.
    pub free_requested: Option<u32>,
    /// The event that completed the free; `None`: active at the end.
    pub free: Option<u32>,
    /// First address.
    pub address: u64,
    /// Bytes that the program asked for.
    pub size: u64,
    /// The stream.
    pub stream: u64,
    /// Index of the stack that allocated it; 0 if unknown.
    pub stack: u32,
    /// Index of the category.
    pub category: u32,
    /// Index of the note that the program set.
    pub user_metadata: u32,
    /// Index of the note that names the compiled graph.
    pub compile_context: u32,
}

impl Allocation {
    fn new(event: &AllocatorEvent) -> Self {
        Self {
            address: event.address,
            size: event.size,
            stream: event.stream,
            category: event.category,
            ..Self::default()
        }
    }

    /// Returns whether it is active after event `number`.
    pub fn is_alive_after(&self, number: u32) -> bool {
        self.alloc.is_none_or(|at| at <= number) && self.free.is_none_or(|at| at > number)
    }
}

/// A drawing of the active memory over events, of bounded size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveTimeline {
    /// Number of events that each point stands for; the last point may stand for fewer.
    pub events_per_point: usize,
    /// One point for each bin: its event with the most active memory, the first on a tie.
    pub points: Vec<u32>,
    /// Allocations that are alive at a point, ascending: indexes into [`AllocatorHistory::allocations`]. If there are
    /// too many, the largest ones, and in equal number those with the largest areas in the drawing.
    pub drawn: Vec<u32>,
    /// Number of further allocations that are alive at a point.
    pub others: usize,
}

/// An allocation that a drawing may show.
struct Candidate {
    /// Index of the allocation.
    at: u32,
    /// Bytes.
    size: u64,
    /// Bytes times the number of points.
    area: u64,
}

/// The history of one device's allocator.
#[derive(Debug)]
pub struct AllocatorHistory {
    snapshot: Arc<MemorySnapshot>,
    device: u32,
    /// Allocations from before the first event, the longest-lived first; then the others in order of allocation.
    pub allocations: Vec<Allocation>,
    /// The allocation of each event.
    allocation_of: Vec<u32>,
    /// States by the number of events before them, descending.
    stored: Vec<(usize, AllocatorState)>,
}

impl AllocatorHistory {
    /// Matches frees with allocations and stores states. O(n log n) in events and blocks.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] once `cancel` is set.
    pub fn new(
        snapshot: &Arc<MemorySnapshot>,
        device: u32,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let end = AllocatorState::at_end(snapshot, device);
        let (allocations, allocation_of) = allocations(snapshot, device, &end, cancel)?;
        let mut history = Self {
            snapshot: Arc::clone(snapshot),
            device,
            allocations,
            allocation_of,
            stored: Vec::new(),
        };
        history.store_states(end, cancel)?;
        Ok(history)
    }

    fn store_states(&mut self, end: AllocatorState, cancel: &Cancel) -> Result<(), Cancelled> {
        let count = self.events().len();
        let mut left = MAX_STORED;
        let mut state = end;
        let mut number = count;
        loop {
            let size = state.active().len() + state.segment_count();
            // The state at the end is stored in any case.
            if number < count && size > left {
                return Ok(());
            }
            left = left.saturating_sub(size);
            self.stored.push((number, state.clone()));
            if number == 0 {
                return Ok(());
            }
            cancel.check()?;
            let next = number.saturating_sub(STRIDE);
            self.undo(&mut state, next..number);
            number = next;
        }
    }

    /// Undoes the events of a range, the last one first.
    fn undo(&self, state: &mut AllocatorState, range: Range<usize>) {
        let events = self.events().get(range.clone()).unwrap_or_default();
        for (event, number) in events.iter().zip(range).rev() {
            let allocation = self.allocation_of(number);
            let stack = allocation.map_or(0, |at| self.allocations[at].stack);
            state.undo(event, stack);
        }
    }

    /// Returns the snapshot.
    pub fn snapshot(&self) -> &MemorySnapshot {
        &self.snapshot
    }

    /// Returns the ordinal of the device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Returns the events of the device, in order.
    pub fn events(&self) -> &[AllocatorEvent] {
        self.snapshot.device_events(self.device)
    }

    /// Returns the frame that requested memory: the innermost Python function outside libraries, else the innermost
    /// function; `None` if the stack is unknown.
    pub fn caller(&self, stack: u32) -> Option<&StackFrame> {
        // A converted profile has `train.py(31): step` as the name.
        let is_own = |frame: &&StackFrame| {
            frame.file.ends_with(".py") && !is_library_file(&frame.file) || is_own_line(&frame.name)
        };
        let mut frames = self.snapshot.stack_frames(stack);
        frames
            .find(is_own)
            .or_else(|| self.snapshot.stack_frames(stack).next())
    }

    /// Returns the index of the allocation that an event makes or frees.
    pub fn allocation_of(&self, number: usize) -> Option<usize> {
        let at = *self.allocation_of.get(number)?;
        (at != NONE).then_some(at as usize)
    }

    /// Returns the segments after the first `count` events, by address, with their blocks.
    ///
    /// The size of a block that was freed later is its requested size, rounded up as the allocator does by default.
    pub fn segments_after(&self, count: usize) -> Vec<MemorySegment> {
        let count = count.min(self.events().len());
        // States descend: the last one that is not before `count` is the nearest.
        let nearest = self.stored.partition_point(|(number, _)| *number >= count);
        let Some((number, state)) = self.stored[..nearest].last() else {
            return Vec::new();
        };
        let mut state = state.clone();
        self.undo(&mut state, count..*number);
        state.into_segments()
    }

    /// Returns the active allocations after the first `count` events, by address: indexes into
    /// [`AllocatorHistory::allocations`]. O(n) in allocations.
    pub fn alive_after(&self, count: usize) -> FxHashMap<u64, usize> {
        let alive = |allocation: &Allocation| {
            let last = count
                .checked_sub(1)
                .and_then(|last| u32::try_from(last).ok());
            match last {
                Some(last) => allocation.is_alive_after(last),
                None => count == 0 && allocation.alloc.is_none(),
            }
        };
        let all = self.allocations.iter().enumerate();
        let alive = all.filter(|(_, allocation)| alive(allocation));
        alive.map(|(at, found)| (found.address, at)).collect()
    }

    /// Returns the event with the most active memory, the first on a tie; `None` without events.
    pub fn peak(&self) -> Option<usize> {
        first_max(self.events(), 0)
    }

    /// Returns the failed allocations: number of the event, the event, and the bytes that the device had free.
    pub fn failed(&self) -> impl Iterator<Item = (usize, &AllocatorEvent, u64)> {
        let events = self.events().iter().enumerate();
        events.filter_map(|(number, event)| match event.action {
            AllocatorAction::OutOfMemory { device_free } => Some((number, event, device_free)),
            _ => None,
        })
    }

    /// Draws the active memory over a range of events: at most `bins` points and `top` single allocations.
    /// O(n log n) in allocations.
    pub fn timeline(&self, range: Range<usize>, bins: usize, top: usize) -> ActiveTimeline {
        let events = self.events().get(range.clone()).unwrap_or_default();
        let step = events.len().div_ceil(bins.max(1)).max(1);
        let chunks = events.chunks(step).enumerate();
        let points = chunks.filter_map(|(bin, chunk)| first_max(chunk, range.start + bin * step));
        let points: Vec<u32> = points.filter_map(|at| u32::try_from(at).ok()).collect();
        let alive_points = |allocation: &Allocation| {
            let first = points.partition_point(|point| Some(*point) < allocation.alloc);
            let free = allocation.free.unwrap_or(NONE);
            points
                .partition_point(|point| *point < free)
                .saturating_sub(first)
        };
        let all = self.allocations.iter().zip(0_u32..);
        let mut candidates: Vec<Candidate> = all
            .filter_map(|(allocation, at)| {
                let alive = alive_points(allocation) as u64;
                let area = allocation.size.saturating_mul(alive);
                (alive > 0).then_some(Candidate {
                    at,
                    size: allocation.size,
                    area,
                })
            })
            .collect();
        let others = candidates.len().saturating_sub(top);
        if others > 0 {
            let half = top / 2;
            candidates.select_nth_unstable_by_key(half, |one| (Reverse(one.size), one.at));
            let rest = &mut candidates[half..];
            rest.select_nth_unstable_by_key(top - half, |one| (Reverse(one.area), one.at));
            candidates.truncate(top);
        }
        let mut drawn: Vec<u32> = candidates.into_iter().map(|one| one.at).collect();
        drawn.sort_unstable();
        ActiveTimeline {
            events_per_point: step,
            points,
            drawn,
            others,
        }
    }
}

/// Returns the number of the first event with the most active memory; `first` is the number of the first one.
fn first_max(events: &[AllocatorEvent], first: usize) -> Option<usize> {
    let numbered = events.iter().enumerate();
    let max = numbered.max_by_key(|(at, event)| (event.active, Reverse(*at)));
    max.map(|(at, _)| first + at)
}

/// Returns the allocations of a device, and the allocation of each of its events.
fn allocations(
    snapshot: &MemorySnapshot,
    device: u32,
    end: &AllocatorState,
    cancel: &Cancel,
) -> Result<(Vec<Allocation>, Vec<u32>), Cancelled> {
    let events = snapshot.device_events(device);
    let mut found: Vec<Allocation> = Vec::new();
    let mut allocation_of = vec![NONE; events.len()];
    let mut open: FxHashMap<u64, u32> = FxHashMap::default();
    let next = |found: &Vec<Allocation>| u32::try_from(found.len()).unwrap_or(NONE);
    for (index, (event, number)) in events.iter().zip(0_u32..).enumerate() {
        if index.is_multiple_of(STRIDE) {
            cancel.check()?;
        }
        match event.action {
            AllocatorAction::Alloc => {
                let at = next(&found);
                // The event of the free is missing.
                if let Some(lost) = open.insert(event.address, at) {
                    found[lost as usize].free = Some(number);
                }
                allocation_of[index] = at;
                found.push(Allocation {
                    alloc: Some(number),
                    stack: event.stack,
                    user_metadata: event.user_metadata,
                    compile_context: event.compile_context,
                    ..Allocation::new(event)
                });
            }
            AllocatorAction::FreeRequested | AllocatorAction::FreeCompleted => {
                let is_completed = event.action == AllocatorAction::FreeCompleted;
                let at = open.get(&event.address).copied().unwrap_or_else(|| {
                    let at = next(&found);
                    found.push(Allocation::new(event));
                    at
                });
                allocation_of[index] = at;
                if is_completed {
                    open.remove(&event.address);
                    found[at as usize].free = Some(number);
                } else {
                    open.insert(event.address, at);
                    found[at as usize].free_requested = Some(number);
                }
            }
            _ => {}
        }
    }
    for block in end.active() {
        match open.get(&block.address) {
            Some(at) => {
                let known = &mut found[*at as usize];
                if known.alloc.is_none() {
                    known.stack = block.stack;
                }
            }
            None => found.push(Allocation {
                address: block.address,
                size: block.requested,
                stack: block.stack,
                ..Allocation::default()
            }),
        }
    }
    Ok(in_drawing_order(&found, allocation_of))
}

/// Sorts allocations for a stack that moves little: the bottom is what is active longest.
fn in_drawing_order(
    found: &[Allocation],
    mut allocation_of: Vec<u32>,
) -> (Vec<Allocation>, Vec<u32>) {
    let mut order: Vec<u32> = (0..u32::try_from(found.len()).unwrap_or(NONE)).collect();
    order.sort_by_key(|at| {
        let allocation = &found[*at as usize];
        let last = allocation.free.unwrap_or(NONE);
        match allocation.alloc {
            None => (0, Reverse(last), allocation.address),
            Some(alloc) => (alloc.saturating_add(1), Reverse(0), 0),
        }
    });
    let mut position = vec![NONE; found.len()];
    for (new, old) in (0_u32..).zip(&order) {
        position[*old as usize] = new;
    }
    for at in allocation_of.iter_mut().filter(|at| **at != NONE) {
        *at = position[*at as usize];
    }
    let sorted = order.iter().map(|at| found[*at as usize]).collect();
    (sorted, allocation_of)
}

#[cfg(test)]
mod tests;
