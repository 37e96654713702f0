//! How often the computations of a module run, as its sums count them.

use stepscope_formats::hlo::{InstructionAt, Module};

use super::rules::trip_count;

/// What runs a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionRole {
    /// Nothing runs it by itself: it is inside of a fusion or of a reduction.
    #[default]
    Inside,
    /// The program.
    Entry,
    /// A loop, as its body.
    Body,
    /// A loop, as its condition.
    Condition,
    /// A conditional.
    Branch,
    /// A call, or the start of an asynchronous one.
    Call,
}

impl ExecutionRole {
    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inside => "inside of an operation",
            Self::Entry => "entry",
            Self::Body => "loop body",
            Self::Condition => "loop condition",
            Self::Branch => "branch",
            Self::Call => "call",
        }
    }
}

/// How often the sums of a module count a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executions {
    /// What runs it; the last one of several.
    pub role: ExecutionRole,
    /// Times in XLA's sum ([`Analysis::total`](super::Analysis::total)), which has a loop once. 0 in a branch: the
    /// conditional has the figures of the most expensive one.
    pub once: u64,
    /// Times in the sum with loops ([`Analysis::with_loops`](super::Analysis::with_loops)).
    pub with_loops: f64,
    /// The innermost loop around it.
    pub innermost_loop: Option<InstructionAt>,
}

/// Returns how often each computation of a module runs, by its position. Computations that no other one calls,
/// except the entry computation, do not run.
pub fn executions(module: &Module) -> Vec<Executions> {
    let mut found = vec![Executions::default(); module.computations.len()];
    if let Some(entry) = module.entry.and_then(|at| found.get_mut(at as usize)) {
        entry.role = ExecutionRole::Entry;
        entry.once = 1;
        entry.with_loops = 1.0;
    }
    // Files have called computations before their callers; other calls, of damaged files, have no sums.
    for caller in (0..module.computations.len()).rev() {
        let around = found[caller];
        if around.role == ExecutionRole::Inside {
            continue;
        }
        let range = module.computations[caller].instructions.clone();
        for at in range {
            let instruction = module.instruction(at);
            let mut run = |position: usize, role: ExecutionRole, times: f64, within| {
                let called = instruction.called.get(position).copied();
                let Some(called) = called.filter(|called| (*called as usize) < caller) else {
                    return;
                };
                let is_counted = role != ExecutionRole::Branch;
                let called: &mut Executions = &mut found[called as usize];
                called.role = role;
                called.innermost_loop = within;
                if is_counted {
                    called.once = called.once.saturating_add(around.once);
                    called.with_loops += around.with_loops * times;
                }
            };
            match &*instruction.opcode {
                "while" => {
                    let trips = trip_count(instruction).map(|count| count as f64);
                    // The condition is asked once more, unless nobody knows how often.
                    run(0, ExecutionRole::Body, trips.unwrap_or(1.0), Some(at));
                    let asked = trips.map_or(1.0, |trips| trips + 1.0);
                    run(1, ExecutionRole::Condition, asked, Some(at));
                }
                "conditional" => {
                    for branch in 0..instruction.called.len() {
                        run(branch, ExecutionRole::Branch, 0.0, around.innermost_loop);
                    }
                }
                "call" | "async-start" => run(0, ExecutionRole::Call, 1.0, around.innermost_loop),
                _ => {}
            }
        }
    }
    found
}

/// Returns whether the work of an opcode is that of the instructions that it runs, each of which counts by itself.
pub fn counts_by_parts(opcode: &str) -> bool {
    matches!(opcode, "while" | "call" | "async-start")
}
