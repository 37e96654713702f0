//! True lifetimes: from the first write of a buffer to its last use, in program order.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stepscope_formats::hlo::{BufferAllocation, InstructionAt, Module};

use super::Buffers;
use super::heap::HeapUse;
use super::uses::Uses;
use crate::order::program_order;

/// What an allocation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Holds an argument that the caller keeps.
    Argument,
    /// Holds an argument in whose memory a result is written.
    DonatedArgument,
    /// Holds a result when the program ends.
    Output,
    /// Holds a constant.
    Constant,
    /// Used only while the program runs.
    Temporary,
}

impl Class {
    fn from_allocation(allocation: &BufferAllocation) -> Self {
        if allocation.is_parameter {
            if allocation.is_aliased_with_output {
                Self::DonatedArgument
            } else {
                Self::Argument
            }
        } else if allocation.may_be_output {
            Self::Output
        } else if allocation.is_constant {
            Self::Constant
        } else {
            Self::Temporary
        }
    }

    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::DonatedArgument => "donated argument",
            Self::Output => "output",
            Self::Constant => "constant",
            Self::Temporary => "temporary",
        }
    }
}

/// How long a part of the memory holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Number of the logical buffer.
    pub buffer: i64,
    /// The instruction that defines the value; `None` if the file does not say it.
    pub instruction: Option<InstructionAt>,
    /// Which part of the instruction's result it is.
    pub shape_index: Box<[i64]>,
    /// What its memory is for.
    pub class: Class,
    /// Size with padding.
    pub bytes: u64,
    /// How much of the size is padding by the tiles of its layout. Memory that a larger value had before has more
    /// room, which is no padding.
    pub padding: u64,
    /// First position in program order.
    pub start: u32,
    /// Last position in program order.
    pub last: u32,
}

/// Live bytes of a memory space by true lifetimes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveBytes {
    /// Largest number of live bytes.
    pub peak: u64,
    /// Position of the peak in program order.
    pub peak_position: u32,
    /// The instruction that runs then.
    pub peak_instruction: Option<InstructionAt>,
    /// Position from which each number of live bytes holds, and that number.
    pub curve: Vec<(u32, u64)>,
    /// Every value with memory, by its first position.
    pub lifetimes: Vec<Lifetime>,
}

impl LiveBytes {
    /// Returns the sum of the sizes of all temporary values, bytes: more than the temporary memory by what is
    /// reused.
    pub fn temporary_values(&self) -> u64 {
        let values = self.lifetimes.iter();
        let temporary = values.filter(|one| one.class == Class::Temporary);
        temporary.fold(0, |sum, one| sum.saturating_add(one.bytes))
    }

    /// Returns the values alive at a position.
    pub fn alive_at(&self, position: u32) -> impl Iterator<Item = &Lifetime> {
        let is_alive = move |one: &&Lifetime| (one.start..=one.last).contains(&position);
        self.lifetimes.iter().filter(is_alive)
    }
}

/// Returns the position of each instruction in an order, `None` inside of fusions and of reductions.
pub(super) fn positions(module: &Module, order: &[InstructionAt]) -> Vec<Option<u32>> {
    let mut positions = vec![None; module.instructions.len()];
    for (position, at) in (0..).zip(order) {
        positions[*at as usize] = Some(position);
    }
    positions
}

pub(super) fn last_position(order: &[InstructionAt]) -> u32 {
    u32::try_from(order.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

/// First and last position, inclusive.
type Interval = (u32, u32);

/// The lifetimes of the buffers outside of the heap.
pub(super) struct Lifetimes<'a> {
    module: &'a Module,
    /// The instructions in the order in which they run: those that an instruction calls before it.
    order: Vec<InstructionAt>,
    /// Position of each instruction in `order`, `None` inside of fusions and of reductions.
    positions: Vec<Option<u32>>,
    by_buffer: FxHashMap<i64, Interval>,
}

/// Collects the lifetimes of a memory space.
struct Collected<'a> {
    module: &'a Module,
    buffers: &'a Buffers<'a>,
    lifetimes: Vec<Lifetime>,
}

impl Collected<'_> {
    fn add(&mut self, (start, last): Interval, class: Class, buffer: i64, bytes: u64) {
        let known = self.buffers.by_id.get(&buffer);
        let instruction = known.and_then(|known| known.instruction);
        let shape_index = known.map_or(&[][..], |known| known.shape_index);
        let shape = instruction.and_then(|at| self.module.instruction(at).shape.part(shape_index));
        self.lifetimes.push(Lifetime {
            buffer,
            instruction,
            shape_index: shape_index.into(),
            class,
            bytes,
            padding: shape.map_or(0, |shape| {
                let padded = shape.tiled_bytes().min(bytes);
                padded.saturating_sub(shape.unpadded_bytes())
            }),
            start,
            last,
        });
    }
}

impl<'a> Lifetimes<'a> {
    pub(super) fn new(module: &'a Module, buffers: &Buffers<'_>) -> Self {
        let order = program_order(module);
        let positions = positions(module, &order);
        let mut uses = Uses::new(
            module,
            &positions,
            last_position(&order),
            buffers.by_id.len(),
        );
        let mut by_id: Vec<_> = buffers.by_id.iter().collect();
        // The order matters where the steps run out.
        by_id.sort_unstable_by_key(|(id, _)| **id);
        let by_buffer = by_id.into_iter().filter_map(|(id, buffer)| {
            let at = buffer.instruction?;
            let defined = positions[at as usize]?;
            // An argument is there before its instruction.
            let is_argument = &*module.instruction(at).opcode == "parameter";
            let start = if is_argument { 0 } else { defined };
            let last = uses.last(at, buffer.shape_index);
            Some((*id, (start, last.max(start))))
        });
        let by_buffer = by_buffer.collect();
        Self {
            module,
            order,
            positions,
            by_buffer,
        }
    }

    fn end(&self) -> u32 {
        last_position(&self.order)
    }

    /// Counts the live bytes of a memory space.
    pub(super) fn live_bytes(
        &self,
        buffers: &Buffers<'_>,
        space: i64,
        heap: &HeapUse,
    ) -> LiveBytes {
        let mut collected = Collected {
            module: self.module,
            buffers,
            lifetimes: Vec::new(),
        };
        for allocation in &buffers.plan.allocations {
            let is_here = allocation.space == space && !allocation.is_thread_local;
            let is_in_heap = allocation.is_temporary() && heap.has_trace;
            if is_here && !is_in_heap {
                self.add_allocation(allocation, &mut collected);
            }
        }
        self.add_heap(heap, &mut collected);
        self.sum(collected.lifetimes)
    }

    fn add_allocation(&self, allocation: &BufferAllocation, collected: &mut Collected<'_>) {
        let class = Class::from_allocation(allocation);
        let whole = (0, self.end());
        let largest = allocation.assigned.iter().max_by_key(|one| one.size);
        let largest = largest.map_or(-1, |one| one.buffer_id);
        // A caller keeps an argument that it does not donate.
        if matches!(class, Class::Argument | Class::Constant) {
            collected.add(whole, class, largest, allocation.size);
            return;
        }
        let mut places: BTreeMap<u64, ValuesAtOffset> = BTreeMap::new();
        for assigned in &allocation.assigned {
            if let Some(interval) = self.by_buffer.get(&assigned.buffer_id) {
                let place = places.entry(assigned.offset).or_default();
                place.bytes = place.bytes.max(assigned.size);
                place.values.push((*interval, assigned.buffer_id));
            }
        }
        if places.is_empty() {
            collected.add(whole, class, largest, allocation.size);
        }
        for mut place in places.into_values() {
            for (interval, buffer) in in_turn(&mut place.values) {
                collected.add(interval, class, buffer, place.bytes);
            }
        }
    }

    /// Adds the lifetimes of the heap, which the compiler's own trace has in order. An event without a
    /// position of its own (a release) is put as late as the uses of the buffer, but before the next event
    /// that has one.
    fn add_heap(&self, heap: &HeapUse, collected: &mut Collected<'_>) {
        let end = self.end();
        let position = |id: i64| {
            let at = collected.buffers.by_id.get(&id)?.instruction?;
            self.positions[at as usize]
        };
        // The position of each taking; a release is not before that of the taking before it.
        let mut starts: Vec<u32> = Vec::with_capacity(heap.changes.len());
        let mut latest = 0;
        for change in &heap.changes {
            if change.bytes >= 0 {
                latest = latest.max(position(change.buffer).unwrap_or(latest));
            }
            starts.push(latest);
        }
        // And it is before the next taking.
        let mut next = end.saturating_add(1);
        let mut next_starts = vec![next; heap.changes.len()];
        for (at, change) in heap.changes.iter().enumerate().rev() {
            next_starts[at] = next;
            if change.bytes >= 0 {
                next = starts[at];
            }
        }
        // The value in each root's memory: its start, the value, its size.
        let mut open: BTreeMap<i64, (u32, i64, u64)> = BTreeMap::new();
        for (at, change) in heap.changes.iter().enumerate() {
            if change.bytes >= 0 {
                let value = (starts[at], change.buffer, change.bytes.unsigned_abs());
                open.insert(change.root, value);
                continue;
            }
            let Some((start, buffer, bytes)) = open.remove(&change.root) else {
                continue;
            };
            let interval = self.by_buffer.get(&change.buffer);
            let last_use = interval.map_or(start, |interval| interval.1);
            let before_next = next_starts[at].saturating_sub(1).max(starts[at]);
            let last = last_use.clamp(starts[at], before_next);
            collected.add((start, last), Class::Temporary, buffer, bytes);
        }
        for (start, buffer, bytes) in open.into_values() {
            collected.add((start, end), Class::Temporary, buffer, bytes);
        }
    }

    fn sum(&self, mut lifetimes: Vec<Lifetime>) -> LiveBytes {
        lifetimes.sort_by_key(|one| (one.start, one.last, one.buffer));
        let size = |one: &Lifetime| i64::try_from(one.bytes).unwrap_or(i64::MAX);
        let mut changes: Vec<(u32, i64)> = lifetimes
            .iter()
            .flat_map(|one| {
                let ends = (one.last.saturating_add(1), size(one).saturating_neg());
                [(one.start, size(one)), ends]
            })
            .collect();
        changes.sort_unstable();
        let mut found = LiveBytes {
            lifetimes,
            ..LiveBytes::default()
        };
        let mut bytes = 0_i64;
        for group in changes.chunk_by(|a, b| a.0 == b.0) {
            bytes = group
                .iter()
                .fold(bytes, |sum, (_, change)| sum.saturating_add(*change));
            let position = group[0].0;
            let now = u64::try_from(bytes).unwrap_or(0);
            found.curve.push((position, now));
            if now > found.peak {
                found.peak = now;
                found.peak_position = position;
                found.peak_instruction = self.order.get(position as usize).copied();
            }
        }
        found
    }
}

/// Values at one offset of an allocation.
#[derive(Default)]
struct ValuesAtOffset {
    bytes: u64,
    values: Vec<(Interval, i64)>,
}

/// Returns the values of a place one after the other: where two overlap they share memory, and the later one is
/// the one that is shown.
fn in_turn(values: &mut [(Interval, i64)]) -> Vec<(Interval, i64)> {
    values.sort_unstable();
    let mut found: Vec<(Interval, i64)> = Vec::new();
    for ((start, last), buffer) in values.iter().copied() {
        let mut last = last;
        if let Some(((first, before), _)) = found.last_mut()
            && *before >= start
        {
            last = last.max(*before);
            if *first == start {
                found.pop();
            } else {
                *before = start - 1;
            }
        }
        found.push(((start, last), buffer));
    }
    found
}
