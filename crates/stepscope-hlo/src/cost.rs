//! XLA's cost analysis: floating-point operations, transcendental functions and bytes of each instruction.
//!
//! The rules are those of `xla::HloCostAnalysis`, which `compiled.cost_analysis()` of JAX reports on
//! CPUs; `docs/reference/hlo.md` has them. The figures are in `f32` and added in XLA's order, so that they
//! are equal to the last bit: sums above 2^24 differ from whole numbers.
//!
//! What XLA does not know is marked: the work of custom calls ([`Cost::is_unknown`]), and how often loops
//! run, which XLA counts once ([`Analysis::loops`]).

mod convolution;
mod executions;
mod fusion;
mod gpu;
mod opcodes;
mod properties;
mod rules;
mod work;

use stepscope_formats::hlo::{Computation, Instruction, InstructionAt, Module, Shape};

pub use executions::{ExecutionRole, Executions, counts_by_parts, executions};
pub use properties::Properties;
pub use work::{InstructionWork, Level, LevelBytes, Precision, PrecisionFlops};

use crate::order::post_order;
use fusion::Graph;

/// Which of XLA's rule sets counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rules {
    /// Those of `compiled.cost_analysis()` on CPUs and TPUs.
    #[default]
    Base,
    /// Those of GPUs: weights of element-wise operations, and fusions that compute values several times.
    Gpu,
}

/// The costs of a module.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// The entry computation's sum, as `cost_analysis()` reports it: with -1 for each custom call.
    pub total: Properties,
    /// Cost of each instruction, by its position in the module. Instructions of a fusion have the cost that
    /// they would have alone.
    pub instructions: Vec<Cost>,
    /// The loops of the module.
    pub loops: Vec<Loop>,
    /// Custom calls without a model in the entry computation and in what it calls.
    pub unknown_calls: u64,
    /// The sum with each loop counted as often as it runs, where that is known; without custom calls.
    pub with_loops: InstructionWork,
    sums: Vec<Option<Sum>>,
    rules: Rules,
}

/// The cost of an instruction.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// XLA's figures.
    pub properties: Properties,
    /// A custom call whose work nobody knows: `properties` are XLA's -1.
    pub is_unknown: bool,
    /// What it does with each loop inside counted as often as it runs, where that is known.
    pub with_loops: InstructionWork,
    /// Class of its floating-point operations: the peak of that class bounds them.
    pub precision: Option<Precision>,
    /// Custom calls without a model inside.
    pub unknown_calls: u64,
}

/// A loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loop {
    /// Position of the `while` instruction.
    pub instruction: InstructionAt,
    /// How often the body runs, if the compiler found out.
    pub trip_count: Option<u64>,
    /// What one run of the body and the condition does.
    pub once: InstructionWork,
}

/// Sum over the instructions of a computation.
#[derive(Clone, Debug, Default)]
struct Sum {
    properties: Properties,
    with_loops: InstructionWork,
    unknown_calls: u64,
}

impl Analysis {
    /// Analyses a module by the base rules.
    pub fn new(module: &Module) -> Self {
        Self::with_rules(module, Rules::Base)
    }

    /// Analyses a module.
    pub fn with_rules(module: &Module, rules: Rules) -> Self {
        let mut found = Self {
            instructions: vec![Cost::default(); module.instructions.len()],
            rules,
            ..Self::default()
        };
        // Files have called computations before their callers. A damaged file that does not, or whose
        // computations call themselves, gets nothing for such calls.
        let graph = Graph::new(module);
        for computation in &module.computations {
            let sum = found.computation(module, &graph, computation);
            found.sums.push(Some(sum));
        }
        if let Some(entry) = module.entry
            && let Some(Some(sum)) = found.sums.get(entry as usize)
        {
            found.total = sum.properties.clone();
            found.with_loops = sum.with_loops;
            found.unknown_calls = sum.unknown_calls;
        }
        found
    }

    fn computation(&mut self, module: &Module, graph: &Graph, computation: &Computation) -> Sum {
        let mut sum = Sum::default();
        for at in post_order(module, computation) {
            let cost = self.instruction(module, graph, at);
            sum.properties.add(&cost.properties);
            sum.with_loops.add(&cost.with_loops, 1.0);
            sum.unknown_calls += cost.unknown_calls;
            self.instructions[at as usize] = cost;
        }
        sum
    }

    /// Returns the sum of the computation that an instruction calls at a position.
    fn called(&self, instruction: &Instruction, position: usize) -> Sum {
        let at = instruction.called.get(position);
        at.and_then(|at| self.sums.get(*at as usize)?.clone())
            .unwrap_or_default()
    }
}

/// Returns the size of a value as the cost analysis counts it, bytes: an array without a layout has none.
fn size(shape: &Shape) -> u64 {
    let is_leaf = !shape.is_tuple();
    if is_leaf && shape.layout.is_none() && shape.element.bits() > 0 {
        return 0;
    }
    let sizes_of_dimensions = if shape.is_dynamic() {
        4 * shape.dimensions.len() as u64
    } else {
        0
    };
    shape.bytes().saturating_add(sizes_of_dimensions)
}

/// Returns the sum of the sizes of the arrays of a value, bytes.
fn size_of_leaves(shape: &Shape) -> u64 {
    let mut sum = 0_u64;
    shape.leaves(&mut |leaf| sum = sum.saturating_add(size(leaf)));
    sum
}
