//! The instructions around one, by XProf's rule.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use stepscope_formats::hlo::{InstructionAt, Module};

use super::DataFlow;

/// Largest number of users that are followed from one instruction.
const MAX_USERS: usize = 16;
/// Number of `get-tuple-element`s from which a tuple parameter is written into its users.
const MIN_TUPLE_USERS: usize = 3;

/// The instructions around a centre.
#[derive(Clone, Debug, Default)]
pub struct Neighbourhood {
    /// The instructions, nearest first; the centre is the first one.
    pub instructions: Vec<InstructionAt>,
    /// Instructions whose users were not followed because there are too many.
    pub without_users: Vec<InstructionAt>,
}

/// Selects the instructions within a number of hops of a centre, as XProf's graph viewer does.
///
/// The operands of a tuple are not followed unless it is the centre, an edge at a `bitcast` costs no hop, the
/// users of constants are not followed, nor are those of an instruction with more than 16; `all_users` names
/// instructions that are exempt from the last rule. Called computations are entered at their root.
pub fn neighbourhood(
    module: &Module,
    flow: &DataFlow,
    centre: InstructionAt,
    hops: u32,
    all_users: &[InstructionAt],
) -> Neighbourhood {
    let mut found = Neighbourhood::default();
    let mut nearest: FxHashMap<InstructionAt, u32> = FxHashMap::default();
    let mut waiting = VecDeque::from([(centre, 0_u32)]);
    while let Some((at, distance)) = waiting.pop_front() {
        let known = nearest.insert(at, distance);
        match known {
            Some(known) if known <= distance => {
                nearest.insert(at, known);
                continue;
            }
            Some(_) => {}
            None => found.instructions.push(at),
        }
        if distance >= hops {
            continue;
        }
        let instruction = module.instruction(at);
        let is_free = |other: &str| other == "bitcast" || &*instruction.opcode == "bitcast";
        if at == centre || &*instruction.opcode != "tuple" {
            for operand in &instruction.operands {
                if !nearest.contains_key(operand) {
                    let step = u32::from(!is_free(&module.instruction(*operand).opcode));
                    waiting.push_back((*operand, distance + step));
                }
            }
        }
        for called in &instruction.called {
            if let Some(root) = module.computation(*called).root {
                waiting.push_back((root, distance + 1));
            }
        }
        if &*instruction.opcode == "constant" {
            continue;
        }
        let users = flow.users(at);
        if users.len() > MAX_USERS && !all_users.contains(&at) {
            found.without_users.push(at);
            continue;
        }
        for user in users {
            if !nearest.contains_key(user) {
                waiting.push_back((*user, distance + 1));
            }
        }
    }
    found.without_users.sort_unstable();
    found.without_users.dedup();
    found
}

/// Returns whether an instruction is written into its users instead of being a node: a constant, a
/// `get-tuple-element` that is not a result, a tuple parameter that is only taken apart, and inside a fusion
/// the broadcast of one constant element.
pub fn is_inlined(module: &Module, flow: &DataFlow, at: InstructionAt) -> bool {
    let instruction = module.instruction(at);
    let computation = module.computation(instruction.computation);
    let is_root = computation.root == Some(at);
    match &*instruction.opcode {
        "constant" => true,
        "get-tuple-element" => !is_root,
        "parameter" => {
            let users = flow.users(at);
            instruction.shape.is_tuple()
                && !computation.is_fusion
                && users.len() > MIN_TUPLE_USERS
                && users
                    .iter()
                    .all(|user| &*module.instruction(*user).opcode == "get-tuple-element")
        }
        "broadcast" => {
            computation.is_fusion
                && !is_root
                && module.operand(instruction, 0).is_some_and(|operand| {
                    &*operand.opcode == "constant" && operand.shape.elements() == 1
                })
        }
        _ => false,
    }
}
