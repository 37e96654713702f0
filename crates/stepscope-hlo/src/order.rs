//! Orders of instructions.

use stepscope_formats::hlo::{Computation, ComputationAt, InstructionAt, Module};

/// Returns the instructions of a computation in XLA's post order: operands and control predecessors before
/// their users, from the instructions without users in the file's order, the root last.
pub(crate) fn post_order(module: &Module, computation: &Computation) -> Vec<InstructionAt> {
    let range = computation.instructions.clone();
    let first = range.start;
    let position = |at: InstructionAt| (at - first) as usize;
    let count = range.len();
    let mut has_users = vec![false; count];
    // The instruction that must come before another one, by number.
    let before = |at: InstructionAt, number: usize| {
        let instruction = module.instruction(at);
        let operands = &instruction.operands;
        let behind = number.checked_sub(operands.len());
        match behind {
            None => operands.get(number),
            Some(behind) => instruction.control_predecessors.get(behind),
        }
    };
    for at in range.clone() {
        for operand in (0..).map_while(|number| before(at, number)) {
            if range.contains(operand) {
                has_users[position(*operand)] = true;
            }
        }
    }
    let ends = range
        .clone()
        .filter(|at| !has_users[position(*at)] && Some(*at) != computation.root)
        .chain(computation.root);
    let mut seen = vec![false; count];
    let mut order = Vec::with_capacity(count);
    // An instruction and how many of those before it have been visited.
    let mut open: Vec<(InstructionAt, usize)> = Vec::new();
    for end in ends {
        if std::mem::replace(&mut seen[position(end)], true) {
            continue;
        }
        open.push((end, 0));
        while let Some((at, visited)) = open.last_mut() {
            let next = before(*at, *visited).copied();
            *visited += 1;
            match next {
                None => {
                    order.push(*at);
                    open.pop();
                }
                Some(next) if range.contains(&next) => {
                    if !std::mem::replace(&mut seen[position(next)], true) {
                        open.push((next, 0));
                    }
                }
                // A damaged file: an operand of another computation.
                Some(_) => {}
            }
        }
    }
    order
}

/// Returns whether the instructions of a called computation run one by one, each with memory of its own.
pub(crate) fn runs_computations(opcode: &str) -> bool {
    matches!(opcode, "while" | "conditional" | "call" | "async-start")
}

/// Returns the instructions in the order in which they run: those that an instruction calls before it, those
/// inside of fusions and of reductions not at all.
pub fn program_order(module: &Module) -> Vec<InstructionAt> {
    let Some(entry) = module.entry else {
        return Vec::new();
    };
    let schedule = |at: ComputationAt| -> Vec<InstructionAt> {
        let computation = module.computation(at);
        if computation.schedule.is_empty() {
            computation.instructions.clone().collect()
        } else {
            computation.schedule.clone()
        }
    };
    let mut seen = vec![false; module.computations.len()];
    seen[entry as usize] = true;
    let mut is_ordered = vec![false; module.instructions.len()];
    let mut order = Vec::new();
    // A schedule, the next instruction of it, and whether what that one calls has been entered.
    let mut open = vec![(schedule(entry), 0_usize, false)];
    while let Some((instructions, next, entered)) = open.last_mut() {
        let Some(at) = instructions.get(*next).copied() else {
            open.pop();
            continue;
        };
        let instruction = module.instruction(at);
        if !*entered && runs_computations(&instruction.opcode) {
            *entered = true;
            // The last one is entered first: a condition runs before its body.
            for called in &instruction.called {
                if !std::mem::replace(&mut seen[*called as usize], true) {
                    open.push((schedule(*called), 0, false));
                }
            }
            continue;
        }
        *entered = false;
        *next += 1;
        if !std::mem::replace(&mut is_ordered[at as usize], true) {
            order.push(at);
        }
    }
    order
}
