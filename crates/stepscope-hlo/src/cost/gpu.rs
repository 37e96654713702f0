//! The rules of XLA's cost analysis for GPUs, where they differ from the base rules.
//!
//! XProf counts the operations of GPU programs by them. Element-wise operations have weights ([`weights`]), also
//! the transcendental ones. A fusion does the work of an instruction inside as often as its users need it: the
//! *utilisation*, which is propagated from the result to the parameters.

mod weights;

use serde_json::Value;
use stepscope_formats::hlo::{
    Computation, DotDimensions, Instruction, InstructionAt, Module, Shape,
};

use super::convolution::convolution_flops_with;
use super::opcodes::{ELEMENTWISE, FMA_FLOPS, TRANSCENDENTAL, operand_size};
use super::{Analysis, Properties, size, size_of_leaves};
use crate::order::post_order;

/// Operations of a concatenation for each element of the result, if each copies whole groups of threads and if
/// not.
const CONCATENATE_FLOPS: u64 = 6;
const UNALIGNED_CONCATENATE_FLOPS: u64 = 400;
/// Threads of a group.
const GROUP: i64 = 32;
/// Constants of more elements are read from memory.
const LARGEST_IMMEDIATE: u64 = 8;
/// How many results an instruction of a fusion may serve, on average. Fusions that the compiler makes have few;
/// a file of a few megabytes could ask for the square of its size.
const RESULTS_PER_INSTRUCTION: usize = 256;

impl Analysis {
    /// Sets the figures of an instruction that has a rule of its own on GPUs; returns whether it has one.
    pub(super) fn gpu_simple(
        &self,
        module: &Module,
        instruction: &Instruction,
        found: &mut Properties,
    ) -> bool {
        let shape = &instruction.shape;
        let elements = shape.elements_of_leaves();
        match &*instruction.opcode {
            // Random numbers have the base rule.
            opcode if opcode.starts_with("rng") => return false,
            opcode if ELEMENTWISE.contains(&opcode) || TRANSCENDENTAL.contains(&opcode) => {
                let weight = weights::flops_of_element(shape.element.name(), opcode);
                found.flops = elements.saturating_mul(weight) as f32;
            }
            "concatenate" => {
                let weight = if is_aligned(module, instruction) {
                    CONCATENATE_FLOPS
                } else {
                    UNALIGNED_CONCATENATE_FLOPS
                };
                found.flops = elements.saturating_mul(weight) as f32;
            }
            "reduce" => {
                self.reduce_flops(module, instruction, found);
                reduce_bytes(module, instruction, found);
            }
            _ => return false,
        }
        true
    }

    fn reduce_flops(&self, module: &Module, instruction: &Instruction, found: &mut Properties) {
        let shape = &instruction.shape;
        let output = shape.parts.first().unwrap_or(shape).elements();
        let input = module.operand(instruction, 0);
        let reductions = input
            .map_or(0, |input| input.shape.elements())
            .saturating_sub(output);
        let called = self.called(instruction, 0).properties;
        found.add_scaled_work(&called, reductions as f32);
    }

    /// Sets operations and bytes of a fusion.
    pub(super) fn gpu_fusion(
        &self,
        module: &Module,
        fused: &Computation,
        instruction: &Instruction,
        found: &mut Properties,
    ) {
        let utilizations = self.utilizations(module, fused);
        let start = fused.instructions.start;
        let utilization = |at: InstructionAt| utilizations.values[(at - start) as usize];
        found.flops = utilizations.flops;
        found.transcendentals = 0.0;
        for (at, inside) in (start..).zip(module.instructions_of(fused)) {
            match &*inside.opcode {
                "constant" if inside.shape.elements() > LARGEST_IMMEDIATE => {
                    found.bytes += size(&inside.shape) as f32 * utilization(at).min(1.0);
                }
                "parameter" => {
                    let read = |at: InstructionAt, shape: &Shape| {
                        (size(shape) as f32 * utilization(at).min(1.0)).round()
                    };
                    let bytes = if inside.shape.is_tuple() {
                        let parts = (start..).zip(module.instructions_of(fused));
                        parts
                            .filter(|(_, part)| {
                                &*part.opcode == "get-tuple-element"
                                    && part.operands.first() == Some(&at)
                            })
                            .map(|(at, part)| read(at, &part.shape))
                            .sum()
                    } else {
                        read(at, &inside.shape)
                    };
                    found.bytes += bytes;
                    if let Ok(number) = usize::try_from(inside.parameter_number)
                        && number < instruction.operands.len()
                    {
                        found.set_operand(number, bytes);
                        found.set_utilization(number, utilization(at));
                    }
                }
                _ => {}
            }
        }
    }

    /// Propagates the utilisation from the result of a fusion to its parameters.
    fn utilizations(&self, module: &Module, fused: &Computation) -> Utilizations {
        let start = fused.instructions.start;
        let count = fused.instructions.len();
        let mut found = Utilizations {
            values: vec![0.0; count],
            flops: 0.0,
        };
        // The results that each instruction serves element by element, and how often each result is needed.
        let mut served: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut needed = vec![0.0_f32; count];
        let mut steps = count.saturating_mul(RESULTS_PER_INSTRUCTION);
        let mut serve = |served: &mut Vec<u32>, result: u32| {
            if steps > 0 && !served.contains(&result) {
                steps -= served.len().min(steps);
                served.push(result);
            }
        };
        if let Some(root) = fused.root.filter(|root| fused.instructions.contains(root)) {
            let root = root - start;
            needed[root as usize] = 1.0;
            served[root as usize].push(root);
        }
        for at in post_order(module, fused).into_iter().rev() {
            let instruction = module.instruction(at);
            let number = (at - start) as usize;
            let results = std::mem::take(&mut served[number]);
            let utilization: f32 = results.iter().map(|at| needed[*at as usize]).sum();
            found.values[number] = utilization;
            let properties = self
                .instructions
                .get(at as usize)
                .map(|cost| &cost.properties);
            found.flops += utilization * properties.map_or(0.0, |properties| properties.flops);
            let passes_on = passes_on(module, instruction);
            for (index, operand) in instruction.operands.iter().enumerate() {
                if !fused.instructions.contains(operand) {
                    continue;
                }
                let operand_number = *operand - start;
                let of_operand = &mut served[operand_number as usize];
                if passes_on {
                    for result in &results {
                        serve(of_operand, *result);
                    }
                    continue;
                }
                serve(of_operand, operand_number);
                let share = properties
                    .and_then(|properties| properties.utilizations.get(index))
                    .copied()
                    .unwrap_or(0.0);
                let elements = module.instruction(*operand).shape.elements_of_leaves() as f32;
                if elements > 0.0 {
                    // Whole elements.
                    let more = (utilization * share * elements).ceil() / elements;
                    needed[operand_number as usize] += more;
                }
            }
        }
        found
    }
}

/// How often the instructions of a fusion run for one run of the fusion.
struct Utilizations {
    /// By position in the computation.
    values: Vec<f32>,
    /// Sum of the operations.
    flops: f32,
}

/// Returns whether the first operand of a concatenation ends at a whole group of threads.
fn is_aligned(module: &Module, instruction: &Instruction) -> bool {
    let dimension = instruction.dimensions.first().copied().unwrap_or(0);
    let first = module.operand(instruction, 0).and_then(|operand| {
        let at = usize::try_from(dimension).ok()?;
        operand.shape.dimensions.get(at)
    });
    dimension <= 0 || first.is_none_or(|length| length % GROUP == 0)
}

/// Results, inputs, and an initial value for each element of the result.
fn reduce_bytes(module: &Module, instruction: &Instruction, found: &mut Properties) {
    let shape = &instruction.shape;
    let outputs = shape.parts.first().unwrap_or(shape).elements();
    found.output_bytes = size_of_leaves(shape) as f32;
    found.bytes = found.output_bytes;
    let inputs = instruction.operands.len() / 2;
    for index in 0..instruction.operands.len() {
        let own = operand_size(module, instruction, index);
        let bytes = if index < inputs {
            own
        } else {
            outputs.saturating_mul(own)
        };
        found.set_operand(index, bytes as f32);
        found.bytes += bytes as f32;
        if index >= inputs {
            found.set_utilization(index, outputs as f32);
        }
    }
}

/// Returns whether an instruction needs of its operands just the elements that are needed of it.
fn passes_on(module: &Module, instruction: &Instruction) -> bool {
    match &*instruction.opcode {
        "tuple" | "get-tuple-element" | "copy" | "map" | "rng" => true,
        "bitcast" => module
            .operand(instruction, 0)
            .is_some_and(|operand| operand.shape.dimensions == instruction.shape.dimensions),
        "fusion" => {
            let inside = module.callee(instruction);
            &*instruction.fusion_kind == "kLoop"
                && inside.is_some_and(|fused| {
                    let mut inside = module.instructions_of(fused).iter();
                    inside.all(|one| &*one.opcode == "parameter" || is_elementwise(&one.opcode))
                })
        }
        opcode => is_elementwise(opcode),
    }
}

fn is_elementwise(opcode: &str) -> bool {
    let is_function = TRANSCENDENTAL.contains(&opcode) && !opcode.starts_with("rng-");
    ELEMENTWISE.contains(&opcode) || is_function || matches!(opcode, "copy" | "map" | "constant")
}

/// Returns the figures of a library call that XLA knows: matrix products and convolutions.
pub(super) fn library_call(
    module: &Module,
    instruction: &Instruction,
    known: &Properties,
) -> Option<Properties> {
    let target = &*instruction.custom_call_target;
    let result = instruction
        .shape
        .parts
        .first()
        .unwrap_or(&instruction.shape);
    let flops = if target.starts_with("__cublas$") {
        gemm_flops(module, instruction, result)?
    } else if target.starts_with("__cudnn$conv") {
        convolution_flops_with(module, instruction, result)
    } else {
        return None;
    };
    let mut found = known.clone();
    found.flops = flops as f32;
    if instruction.shape.is_tuple() {
        // The rest of the result is the library's workspace.
        found.bytes -= found.output_bytes;
        found.output_bytes = size(result) as f32;
        found.bytes += found.output_bytes;
    }
    Some(found)
}

fn gemm_flops(module: &Module, instruction: &Instruction, result: &Shape) -> Option<u64> {
    let config: Value = serde_json::from_slice(&instruction.backend_config).ok()?;
    let dimensions = dot_dimensions(&config["gemm_backend_config"]["dot_dimension_numbers"]);
    let lhs = &module.operand(instruction, 0)?.shape;
    let contracted = dimensions
        .lhs_contracting
        .iter()
        .fold(1_u64, |product, dimension| {
            let at = usize::try_from(*dimension).ok();
            let length = at.and_then(|at| lhs.dimensions.get(at));
            product.saturating_mul(length.map_or(1, |length| length.unsigned_abs()))
        });
    Some(
        FMA_FLOPS
            .saturating_mul(result.elements())
            .saturating_mul(contracted),
    )
}

/// Reads the dimensions of a product from a configuration, whose numbers may be texts.
fn dot_dimensions(config: &Value) -> DotDimensions {
    let numbers = |key: &str| -> Vec<i64> {
        let list = config[key].as_array().map_or(&[][..], Vec::as_slice);
        let number = |value: &Value| value.as_i64().or_else(|| value.as_str()?.parse().ok());
        list.iter().filter_map(number).collect()
    };
    DotDimensions {
        lhs_contracting: numbers("lhs_contracting_dimensions"),
        rhs_contracting: numbers("rhs_contracting_dimensions"),
        lhs_batch: numbers("lhs_batch_dimensions"),
        rhs_batch: numbers("rhs_batch_dimensions"),
    }
}
