//! The uses of values: through tuples, loops and calls, in program order.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_formats::hlo::{InstructionAt, Module};

use crate::order::runs_computations;

/// Steps that following the uses of values may take, for each buffer of the module, before a buffer counts as
/// alive to the end. Programs take two or three.
const STEPS_PER_BUFFER: u64 = 256;

/// The users of every value.
pub(super) struct Uses<'a> {
    module: &'a Module,
    positions: &'a [Option<u32>],
    /// Position of the program's end.
    end: u32,
    /// The users of each instruction but those that take a part, with the number of the operand.
    users: Vec<Vec<(InstructionAt, i64)>>,
    /// The users that take a part of an instruction's tuple.
    parts: FxHashMap<(InstructionAt, i64), Vec<InstructionAt>>,
    /// The same, whatever the part.
    all_parts: Vec<Vec<InstructionAt>>,
    /// The instructions that call a computation.
    callers: Vec<Vec<InstructionAt>>,
    /// Steps left: values that pass through many tuples and loops could take the square of the module's size.
    steps: u64,
}

impl<'a> Uses<'a> {
    pub(super) fn new(
        module: &'a Module,
        positions: &'a [Option<u32>],
        end: u32,
        buffers: usize,
    ) -> Self {
        let mut found = Self {
            module,
            positions,
            end,
            users: vec![Vec::new(); module.instructions.len()],
            parts: FxHashMap::default(),
            all_parts: vec![Vec::new(); module.instructions.len()],
            callers: vec![Vec::new(); module.computations.len()],
            steps: STEPS_PER_BUFFER.saturating_mul(buffers as u64),
        };
        for (at, instruction) in (0..).zip(&module.instructions) {
            // Inside of a fusion or a reduction values have no memory.
            if positions[at as usize].is_none() {
                continue;
            }
            for (number, operand) in (0..).zip(&instruction.operands) {
                if &*instruction.opcode == "get-tuple-element" {
                    let part = (*operand, instruction.tuple_index);
                    found.parts.entry(part).or_default().push(at);
                    found.all_parts[*operand as usize].push(at);
                } else {
                    found.users[*operand as usize].push((at, number));
                }
            }
            if runs_computations(&instruction.opcode) {
                for called in &instruction.called {
                    found.callers[*called as usize].push(at);
                }
            }
        }
        found
    }

    /// Returns the position of the last use of a value: the end if it is a result of the program.
    pub(super) fn last(&mut self, at: InstructionAt, index: &[i64]) -> u32 {
        let mut last = self.position(at);
        let is_result = self.visit(at, index, &mut |position| last = last.max(position));
        if is_result { self.end } else { last }
    }

    fn position(&self, at: InstructionAt) -> u32 {
        self.positions[at as usize].unwrap_or(0)
    }

    /// Calls `visit` for the position of each use of a value, in no order. Returns whether it is in use when the
    /// program ends: as a result, or because there were too many steps to follow.
    pub(super) fn visit(
        &mut self,
        at: InstructionAt,
        index: &[i64],
        visit: &mut dyn FnMut(u32),
    ) -> bool {
        let mut seen: FxHashSet<(InstructionAt, Vec<i64>)> = FxHashSet::default();
        let mut waiting = vec![(at, index.to_vec())];
        while let Some((at, index)) = waiting.pop() {
            if !seen.insert((at, index.clone())) {
                continue;
            }
            let instruction = self.module.instruction(at);
            let computation = self.module.computation(instruction.computation);
            if computation.root == Some(at) {
                if self.module.entry == Some(instruction.computation) {
                    return true;
                }
                for caller in &self.callers[instruction.computation as usize] {
                    visit(self.position(*caller));
                    waiting.push((*caller, index.clone()));
                }
            }
            let users = &self.users[at as usize];
            let parts = match index.split_first() {
                // The pointers of the tuple itself.
                None => self.all_parts[at as usize].as_slice(),
                Some((first, _)) => self.parts.get(&(at, *first)).map_or(&[][..], Vec::as_slice),
            };
            self.steps = self
                .steps
                .saturating_sub((users.len() + parts.len() + 1) as u64);
            if self.steps == 0 {
                return true;
            }
            for part in parts {
                match index.split_first() {
                    None => visit(self.position(*part)),
                    Some((_, rest)) => waiting.push((*part, rest.to_vec())),
                }
            }
            for (user, number) in users {
                match &*self.module.instruction(*user).opcode {
                    // The pointers alone are written.
                    "tuple" => {
                        let inside = std::iter::once(*number).chain(index.iter().copied());
                        waiting.push((*user, inside.collect()));
                        continue;
                    }
                    "bitcast" | "optimization-barrier" | "while" => {
                        waiting.push((*user, index.clone()));
                    }
                    _ => {}
                }
                visit(self.position(*user));
            }
        }
        false
    }
}
