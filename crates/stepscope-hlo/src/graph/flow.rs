//! Who uses a value, and who calls a computation.

use stepscope_formats::hlo::{ComputationAt, InstructionAt, Module};

/// Lists of numbers, one for each position, in one allocation.
#[derive(Clone, Debug, Default)]
struct Lists {
    starts: Vec<usize>,
    numbers: Vec<u32>,
}

impl Lists {
    /// Builds the lists of `count` positions from pairs of position and number, in the order of the pairs.
    fn new(count: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0_usize; count + 1];
        for (at, _) in pairs {
            starts[*at as usize + 1] += 1;
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut next = starts.clone();
        let mut numbers = vec![0; pairs.len()];
        for (at, number) in pairs {
            let slot = &mut next[*at as usize];
            numbers[*slot] = *number;
            *slot += 1;
        }
        Self { starts, numbers }
    }

    fn get(&self, at: u32) -> &[u32] {
        let at = at as usize;
        let range = self.starts.get(at).zip(self.starts.get(at + 1));
        range.map_or(&[], |(start, end)| &self.numbers[*start..*end])
    }
}

/// Users of each instruction and callers of each computation of a module.
#[derive(Clone, Debug, Default)]
pub struct DataFlow {
    users: Lists,
    callers: Lists,
    parameters: Lists,
}

impl DataFlow {
    /// Indexes a module. Takes time and memory in proportion to its instructions and operands.
    pub fn new(module: &Module) -> Self {
        let mut users = Vec::new();
        let mut callers = Vec::new();
        let mut parameters = Vec::new();
        // A user that takes a value twice is one user.
        let mut last_user = vec![u32::MAX; module.instructions.len()];
        for (at, instruction) in (0_u32..).zip(&module.instructions) {
            for operand in &instruction.operands {
                if std::mem::replace(&mut last_user[*operand as usize], at) != at {
                    users.push((*operand, at));
                }
            }
            if &*instruction.opcode == "parameter" {
                parameters.push((instruction.computation, at));
            }
            callers.extend(instruction.called.iter().map(|called| (*called, at)));
        }
        Self {
            users: Lists::new(module.instructions.len(), &users),
            callers: Lists::new(module.computations.len(), &callers),
            parameters: Lists::new(module.computations.len(), &parameters),
        }
    }

    /// Returns the instructions that take the value of one, each once.
    pub fn users(&self, at: InstructionAt) -> &[InstructionAt] {
        self.users.get(at)
    }

    /// Returns the parameters of a computation.
    pub fn parameters(&self, at: ComputationAt) -> &[InstructionAt] {
        self.parameters.get(at)
    }

    /// Returns the instructions that run a computation.
    pub fn callers(&self, at: ComputationAt) -> &[InstructionAt] {
        self.callers.get(at)
    }
}
