//! Bytes that a fusion reads and writes: what is computed inside stays in registers.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use stepscope_formats::hlo::{ComputationAt, Instruction, InstructionAt, Module, Shape};

use super::{Analysis, Properties, Rules, size};

/// Maximum depth of fusions in fusions that is followed.
const MAX_DEPTH: usize = 16;

impl Analysis {
    /// Replaces the bytes of the fused instructions by those of the fusion; on GPUs the operations, too.
    pub(super) fn fusion(
        &self,
        module: &Module,
        graph: &Graph,
        instruction: &Instruction,
        found: &mut Properties,
    ) {
        let Some(fused) = module.callee(instruction) else {
            return;
        };
        if &*instruction.fusion_kind == "kCustom"
            && let Some(moved) = self.gather_or_scatter(module, fused.instructions.clone())
        {
            found.bytes = moved.bytes;
            found.output_bytes = moved.output_bytes;
            found.operand_bytes.clone_from(&moved.operand_bytes);
            found.utilizations.clone_from(&moved.utilizations);
            return;
        }
        found.bytes = 0.0;
        let root = fused.root.map(|at| module.instruction(at));
        found.output_part_bytes.clear();
        if instruction.shape.is_tuple() {
            found.output_bytes = 0.0;
            for (index, part) in instruction.shape.parts.iter().enumerate() {
                let from = root
                    .filter(|root| &*root.opcode == "tuple")
                    .and_then(|root| module.operand(root, index));
                let bytes = written(module, from, part);
                found.bytes += bytes;
                found.set_output_part(index, bytes);
                found.output_bytes += bytes;
            }
        } else {
            found.output_bytes = written(module, root, &instruction.shape);
            found.bytes += found.output_bytes;
        }
        if self.rules == Rules::Gpu {
            self.gpu_fusion(module, fused, instruction, found);
            return;
        }
        let inside = module.instructions_of(fused);
        for constant in inside.iter().filter(|one| &*one.opcode == "constant") {
            if constant.shape.elements() > 1 {
                found.bytes += size(&constant.shape) as f32;
            }
        }
        for (at, parameter) in (fused.instructions.start..).zip(inside) {
            if &*parameter.opcode != "parameter" {
                continue;
            }
            let bytes = graph.read(module, at, 0) as f32;
            found.bytes += bytes;
            if let Ok(number) = usize::try_from(parameter.parameter_number)
                && number < instruction.operands.len()
            {
                found.set_operand(number, bytes);
                found.set_utilization(number, 1.0);
            }
        }
    }

    fn gather_or_scatter(
        &self,
        module: &Module,
        mut fused: std::ops::Range<InstructionAt>,
    ) -> Option<&Properties> {
        let moves =
            |at: &InstructionAt| matches!(&*module.instruction(*at).opcode, "gather" | "scatter");
        let at = fused.find(moves)?;
        Some(&self.instructions.get(at as usize)?.properties)
    }
}

/// Returns the bytes that an output writes: an update in place writes the update alone.
fn written(module: &Module, from: Option<&Instruction>, shape: &Shape) -> f32 {
    let update = from
        .filter(|from| &*from.opcode == "dynamic-update-slice")
        .and_then(|from| module.operand(from, 1));
    match update {
        Some(update) => size(&update.shape) as f32,
        None => super::size_of_leaves(shape) as f32,
    }
}

/// Who uses the value of each instruction, and the parameters of each computation.
pub(super) struct Graph {
    /// The users of each instruction, with the number of the operand; in the file's order.
    users: Vec<Vec<(InstructionAt, usize)>>,
    /// The parameters of each computation, by number.
    parameters: FxHashMap<(ComputationAt, i64), InstructionAt>,
    /// Bytes read of a value inside of a fusion, once known; 0 while it is being computed, which ends the
    /// circles of damaged files.
    reads: RefCell<FxHashMap<InstructionAt, u64>>,
}

impl Graph {
    pub(super) fn new(module: &Module) -> Self {
        let mut users = vec![Vec::new(); module.instructions.len()];
        let mut parameters = FxHashMap::default();
        for (at, instruction) in (0..).zip(&module.instructions) {
            for (number, operand) in instruction.operands.iter().enumerate() {
                users[*operand as usize].push((at, number));
            }
            if &*instruction.opcode == "parameter" {
                let key = (instruction.computation, instruction.parameter_number);
                parameters.entry(key).or_insert(at);
            }
        }
        Self {
            users,
            parameters,
            reads: RefCell::default(),
        }
    }

    /// Returns the bytes that the users of a parameter read of it.
    fn read(&self, module: &Module, at: InstructionAt, depth: usize) -> u64 {
        if let Some(known) = self.reads.borrow().get(&at) {
            return *known;
        }
        self.reads.borrow_mut().insert(at, 0);
        let bytes = self.read_by_users(module, at, depth);
        self.reads.borrow_mut().insert(at, bytes);
        bytes
    }

    fn read_by_users(&self, module: &Module, at: InstructionAt, depth: usize) -> u64 {
        let shape = &module.instruction(at).shape;
        let users = &self.users[at as usize];
        let mut sum = 0_u64;
        if shape.is_tuple() {
            for (user, _) in users {
                let part = module.instruction(*user);
                if &*part.opcode == "get-tuple-element" && depth < MAX_DEPTH {
                    sum = sum.saturating_add(self.read(module, *user, depth + 1));
                }
            }
            return sum;
        }
        let mut is_read_whole = false;
        let mut before = None;
        for (user, number) in users {
            let instruction = module.instruction(*user);
            let is_fusion = &*instruction.opcode == "fusion" && depth < MAX_DEPTH;
            // An instruction that takes the value twice is one user; a fusion may read each differently.
            if before.replace(*user) == Some(*user) && !is_fusion {
                continue;
            }
            let bytes = match &*instruction.opcode {
                "slice" => size(&instruction.shape),
                "dynamic-slice" if *number == 0 => size(&instruction.shape),
                "dynamic-update-slice" if *number == 0 => 0,
                "broadcast" | "reshape" => size(shape),
                "fusion" if depth < MAX_DEPTH => self.nested(module, instruction, *number, depth),
                _ if is_read_whole => 0,
                _ => {
                    is_read_whole = true;
                    size(shape)
                }
            };
            sum = sum.saturating_add(bytes);
        }
        sum
    }

    /// Returns what a fusion inside a fusion reads of one of its operands.
    fn nested(&self, module: &Module, fusion: &Instruction, number: usize, depth: usize) -> u64 {
        let parameter = fusion.called.first().and_then(|called| {
            let number = i64::try_from(number).ok()?;
            self.parameters.get(&(*called, number))
        });
        parameter.map_or(0, |parameter| self.read(module, *parameter, depth + 1))
    }
}
