//! The buffer assignment of the synthetic program.

use std::collections::{BTreeMap, BTreeSet};

use super::{Computation, MATRIX_BYTES};
use crate::wire::{field, number};

/// What the schedule does not say: which values share memory.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The loop, the value that it starts with, and the value in its body that it ends with.
    carried: Option<(u64, u64, u64)>,
    /// Instructions whose value is that of another one.
    passed: BTreeMap<u64, u64>,
    /// Instructions that write over an operand.
    in_place: BTreeMap<u64, u64>,
}

/// Kinds of `xla.HeapSimulatorTrace.Event`.
const ALLOC: u64 = 0;
const FREE: u64 = 1;
const SHARE_WITH: u64 = 2;

impl Buffers {
    pub(super) fn carry(&mut self, run: u64, start: u64, result: u64) {
        self.carried = Some((run, start, result));
    }

    pub(super) fn pass_on(&mut self, from: u64, value: u64) {
        self.passed.insert(from, value);
    }

    pub(super) fn write_over(&mut self, instruction: u64, operand: u64) {
        self.in_place.insert(instruction, operand);
    }

    /// Returns the instruction whose buffer holds the value of this one.
    fn holder(&self, id: u64) -> u64 {
        self.passed.get(&id).copied().unwrap_or(id)
    }

    /// Writes an `xla.BufferAssignmentProto`: an allocation for each argument, of which all but the input hold
    /// a result too, one for the tuple of results, and one for all temporary values.
    pub(super) fn write(
        &self,
        entry: &Computation,
        weights: &[u64],
        input: u64,
        updated: &[u64],
    ) -> Vec<u8> {
        // Only these have a buffer that is worth a trace: matrices.
        let defines = |opcode: &str| ["fusion", "dot", "negate"].contains(&opcode);
        let mut last_use: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, operands) in entry.operands.iter().enumerate() {
            for operand in operands {
                last_use.insert(self.holder(*operand), at);
            }
        }
        let mut heap = Heap::default();
        for (at, id) in entry.ids.iter().enumerate() {
            let name = &entry.names[at];
            let (run, start, result) = self.carried.unwrap_or_default();
            if *id == run {
                heap.share(result, start, name);
                heap.free(start, name);
                continue;
            }
            if defines(entry.opcode(at)) && !updated.contains(id) {
                match self.in_place.get(id) {
                    Some(operand) => heap.share(*id, self.holder(*operand), name),
                    None => heap.alloc(*id, name),
                }
            }
            let used: BTreeSet<u64> = entry.operands[at]
                .iter()
                .map(|id| self.holder(*id))
                .collect();
            for operand in used {
                let is_carried = operand == start;
                if last_use.get(&operand) == Some(&at) && !is_carried {
                    heap.free(operand, name);
                }
            }
            if !last_use.contains_key(id) {
                heap.free(*id, name);
            }
        }

        let mut logical = Vec::new();
        let mut allocations = Vec::new();
        let mut add = |flags: Vec<u8>, size: u64, values: &[(u64, u64, u64)]| {
            let mut assigned = Vec::new();
            for (id, offset, size) in values {
                let location = number(4, *id);
                let buffer = [number(1, *id), number(2, *size), field(3, &location)].concat();
                logical.extend(field(1, &buffer));
                let place = [number(1, *id), number(2, *offset), number(3, *size)].concat();
                assigned.extend(field(9, &place));
            }
            let index = allocations.len() as u64;
            allocations.push([number(1, index), number(2, size), flags, assigned].concat());
        };
        for (at, (weight, update)) in (0..).zip(weights.iter().zip(updated)) {
            let flags = [number(5, 1), number(6, at), number(7, 1), number(13, 1)].concat();
            let values = [(*weight, 0, MATRIX_BYTES), (*update, 0, MATRIX_BYTES)];
            add(flags, MATRIX_BYTES, &values);
        }
        let flags = [number(5, 1), number(6, weights.len() as u64)].concat();
        add(flags, MATRIX_BYTES, &[(input, 0, MATRIX_BYTES)]);
        let pointers = 8 * updated.len() as u64;
        let root = entry.ids.last().copied().unwrap_or(0);
        let flags = [number(7, 1), number(11, 1)].concat();
        add(flags, pointers, &[(root, 0, pointers)]);
        let temporary: Vec<(u64, u64, u64)> = heap
            .slots
            .iter()
            .map(|(id, slot)| (*id, slot * MATRIX_BYTES, MATRIX_BYTES))
            .collect();
        add(Vec::new(), heap.size * MATRIX_BYTES, &temporary);

        let index = allocations.len() as u64 - 1;
        let allocations: Vec<u8> = allocations.iter().flat_map(|one| field(3, one)).collect();
        let trace = [heap.events, number(2, 1), number(3, index)].concat();
        [logical, allocations, field(4, &trace)].concat()
    }
}

/// Temporary memory in slots of one matrix, and what the program does with it.
#[derive(Default)]
struct Heap {
    /// `xla.HeapSimulatorTrace.events`.
    events: Vec<u8>,
    /// The slot of every value.
    slots: BTreeMap<u64, u64>,
    /// Values alive in a slot.
    owners: BTreeMap<u64, u64>,
    unused: BTreeSet<u64>,
    /// Number of slots.
    size: u64,
}

impl Heap {
    fn event(&mut self, kind: u64, id: u64, instruction: &str, more: &[u8]) {
        let event = [
            number(1, kind),
            number(2, id),
            field(3, b"main"),
            field(4, instruction.as_bytes()),
            more.to_vec(),
        ]
        .concat();
        self.events.extend(field(1, &event));
    }

    fn alloc(&mut self, id: u64, instruction: &str) {
        self.event(ALLOC, id, instruction, &[]);
        let slot = self.unused.pop_first().unwrap_or_else(|| {
            self.size += 1;
            self.size - 1
        });
        self.slots.insert(id, slot);
        self.owners.insert(slot, 1);
    }

    fn share(&mut self, id: u64, with: u64, instruction: &str) {
        self.event(SHARE_WITH, id, instruction, &number(5, with));
        let slot = self.slots[&with];
        self.slots.insert(id, slot);
        *self.owners.entry(slot).or_default() += 1;
    }

    /// Releases a value, if it is a temporary one.
    fn free(&mut self, id: u64, instruction: &str) {
        let Some(slot) = self.slots.get(&id).copied() else {
            return;
        };
        self.event(FREE, id, instruction, &[]);
        let owners = self.owners.entry(slot).or_default();
        *owners = owners.saturating_sub(1);
        if *owners == 0 {
            self.unused.insert(slot);
        }
    }
}
