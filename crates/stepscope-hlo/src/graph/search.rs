//! Search, neighbours by name, and paths along the data flow.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use stepscope_formats::hlo::{Instruction, InstructionAt, Module};

use super::DataFlow;

/// Opcode, and start of the name, of an instruction that takes an element of a tuple.
const ELEMENT: &str = "get-tuple-element";

/// Returns the instructions whose name, opcode, shape, `op_name` or source contains each word of a text,
/// regardless of case; exact names first, then names that begin with the text, then the file's order.
pub fn search(module: &Module, text: &str) -> Vec<InstructionAt> {
    let text = text.trim().to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(u8, InstructionAt)> = Vec::new();
    for (at, instruction) in (0..).zip(&module.instructions) {
        let haystack = searched_text(module, instruction);
        if words.iter().all(|word| haystack.contains(word)) {
            let name = instruction.name.to_lowercase();
            let order = match () {
                () if name == text => 0,
                () if name.starts_with(&text) => 1,
                () => 2,
            };
            found.push((order, at));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, at)| at).collect()
}

fn searched_text(module: &Module, instruction: &Instruction) -> String {
    let source = module.source(instruction).unwrap_or_default();
    format!(
        "{}\n{}\n{}\n{}\n{}:{}\n{}",
        instruction.name,
        instruction.opcode,
        instruction.shape,
        instruction.origin.op_name,
        source.file,
        source.line,
        instruction.custom_call_target,
    )
    .to_lowercase()
}

/// Returns the instructions that an instruction takes values from and those that take its value, looking
/// through `get-tuple-element`; one that is reached twice is listed twice. As in XProf, an element of a tuple
/// whose name does not begin with `get-tuple-element` is listed itself.
pub fn adjacent(
    module: &Module,
    flow: &DataFlow,
    at: InstructionAt,
) -> (Vec<InstructionAt>, Vec<InstructionAt>) {
    let is_element = |at: InstructionAt| module.instruction(at).name.starts_with(ELEMENT);
    let operands = module.instruction(at).operands.iter().map(|operand| {
        let mut source = *operand;
        // Operands come before users, so this ends; a damaged file may have a circle.
        for _ in 0..module.instructions.len() {
            match module.instruction(source).operands.first() {
                Some(before) if is_element(source) => source = *before,
                _ => break,
            }
        }
        source
    });
    let mut users = Vec::new();
    let mut seen = vec![false; module.instructions.len()];
    let mut waiting: Vec<InstructionAt> = flow.users(at).iter().rev().copied().collect();
    while let Some(user) = waiting.pop() {
        if !is_element(user) {
            users.push(user);
        } else if !std::mem::replace(&mut seen[user as usize], true) {
            waiting.extend(flow.users(user).iter().rev());
        }
    }
    (operands.collect(), users)
}

/// Returns the shortest way of a value from one instruction to another, both included: from operands to users,
/// into the parameters of called computations and from their results to the caller's users. `None` if no value
/// of the first reaches the second.
pub fn path(
    module: &Module,
    flow: &DataFlow,
    from: InstructionAt,
    to: InstructionAt,
) -> Option<Vec<InstructionAt>> {
    let mut before: FxHashMap<InstructionAt, InstructionAt> = FxHashMap::default();
    before.insert(from, from);
    let mut waiting = VecDeque::from([from]);
    let mut next = Vec::new();
    while let Some(at) = waiting.pop_front() {
        if at == to {
            break;
        }
        next.clear();
        for user in flow.users(at) {
            receivers(module, flow, at, *user, &mut next);
            next.push(*user);
        }
        let computation = module.instruction(at).computation;
        if module.computation(computation).root == Some(at) {
            next.extend(flow.callers(computation));
        }
        for reached in &next {
            before.entry(*reached).or_insert_with(|| {
                waiting.push_back(*reached);
                at
            });
        }
    }
    let mut way = vec![to];
    let mut at = to;
    while at != from {
        at = *before.get(&at)?;
        way.push(at);
    }
    way.reverse();
    Some(way)
}

/// Adds the parameters inside of a user that receive a value.
fn receivers(
    module: &Module,
    flow: &DataFlow,
    value: InstructionAt,
    user: InstructionAt,
    out: &mut Vec<InstructionAt>,
) {
    let instruction = module.instruction(user);
    for (called, number) in (0..).zip(&instruction.called) {
        for parameter in flow.parameters(*number) {
            let found = module.instruction(*parameter);
            let operand = match &*instruction.opcode {
                "while" => 0,
                "conditional" => called + 1,
                _ => usize::try_from(found.parameter_number).unwrap_or(usize::MAX),
            };
            if instruction.operands.get(operand) == Some(&value) {
                out.push(*parameter);
            }
        }
    }
}
