//! The rule of each opcode.

use serde_json::Value;
use stepscope_formats::hlo::{Instruction, InstructionAt, Module, Shape};

use super::convolution::convolution_flops;
use super::fusion::Graph;
use super::gpu::library_call;
use super::opcodes::{ELEMENTWISE, FMA_FLOPS, TRANSCENDENTAL, operand_size};
use super::work::own_precision;
use super::{Analysis, Cost, InstructionWork, Loop, Properties, Rules, Sum, size, size_of_leaves};

/// Opcodes that move nothing.
const FREE: [&str; 7] = [
    "parameter",
    "constant",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "add-dependency",
    "domain",
];

fn operand_elements(module: &Module, instruction: &Instruction, index: usize) -> u64 {
    module
        .operand(instruction, index)
        .map_or(0, |operand| operand.shape.elements())
}

fn ratio(part: u64, whole: u64) -> f32 {
    part as f32 / whole as f32
}

/// Returns the rounded-up logarithm to base 2.
fn log2_ceiling(number: u64) -> u64 {
    u64::from(number.max(1).next_power_of_two().trailing_zeros())
}

fn log2_floor(number: i64) -> u64 {
    u64::try_from(number)
        .ok()
        .and_then(u64::checked_ilog2)
        .map_or(0, u64::from)
}

impl Analysis {
    /// Returns the cost of an instruction whose called computations have been analysed.
    pub(super) fn instruction(
        &mut self,
        module: &Module,
        graph: &Graph,
        at: InstructionAt,
    ) -> Cost {
        let instruction = module.instruction(at);
        let mut cost = Cost {
            properties: default_properties(module, instruction),
            ..Cost::default()
        };
        match &*instruction.opcode {
            "while" => return self.while_loop(instruction, at),
            "conditional" => return self.conditional(instruction),
            "call" | "async-start" => {
                return from_sum(self.called(instruction, 0));
            }
            "fusion" => {
                let sum = self.called(instruction, 0);
                // Most of its operations: its products, if it has any.
                cost.precision = sum.with_loops.precisions.most();
                cost.properties = sum.properties;
                cost.unknown_calls = sum.unknown_calls;
                self.fusion(module, graph, instruction, &mut cost.properties);
            }
            "custom-call" => {
                let known = &cost.properties;
                if self.rules == Rules::Gpu
                    && let Some(found) = library_call(module, instruction, known)
                {
                    cost.properties = found;
                    return cost.with_work(module, instruction, self.rules);
                }
                cost.is_unknown = true;
                cost.unknown_calls = 1;
                cost.properties = unknown(&cost.properties);
                return cost;
            }
            opcode => self.simple(module, instruction, opcode, &mut cost.properties),
        }
        cost.with_work(module, instruction, self.rules)
    }

    fn while_loop(&mut self, instruction: &Instruction, at: InstructionAt) -> Cost {
        let body = self.called(instruction, 0);
        let condition = self.called(instruction, 1);
        let mut sum = body.clone();
        sum.properties.add(&condition.properties);
        sum.unknown_calls += condition.unknown_calls;
        let mut once = body.with_loops;
        once.add(&condition.with_loops, 1.0);
        let trip_count = trip_count(instruction);
        let times = trip_count.map_or(1.0, |count| count as f64);
        let mut with_loops = InstructionWork::default();
        with_loops.add(&body.with_loops, times);
        // The condition is asked once more, unless nobody knows how often.
        let asked = if trip_count.is_some() {
            times + 1.0
        } else {
            1.0
        };
        with_loops.add(&condition.with_loops, asked);
        self.loops.push(Loop {
            instruction: at,
            trip_count,
            once,
        });
        Cost {
            with_loops,
            ..from_sum(sum)
        }
    }

    fn conditional(&self, instruction: &Instruction) -> Cost {
        let mut most = Sum::default();
        for branch in 0..instruction.called.len() {
            let sum = self.called(instruction, branch);
            most.properties.maximum(&sum.properties);
            if sum.with_loops.flops >= most.with_loops.flops {
                most.with_loops = sum.with_loops;
            }
            most.unknown_calls += sum.unknown_calls;
        }
        from_sum(most)
    }

    fn simple(
        &self,
        module: &Module,
        instruction: &Instruction,
        opcode: &str,
        found: &mut Properties,
    ) {
        if self.rules == Rules::Gpu && self.gpu_simple(module, instruction, found) {
            return;
        }
        let shape = &instruction.shape;
        let elements = shape.elements_of_leaves();
        let own = |index| operand_size(module, instruction, index);
        let elements_of = |index| operand_elements(module, instruction, index);
        let called = |index| self.called(instruction, index).properties;
        let window = instruction
            .attributes
            .as_ref()
            .map_or(&[][..], |attributes| &attributes.window);
        let window_elements = || {
            window.iter().fold(1_u64, |product, dimension| {
                product.saturating_mul(u64::try_from(dimension.size).unwrap_or(0))
            })
        };
        match opcode {
            _ if ELEMENTWISE.contains(&opcode) => found.flops = elements as f32,
            _ if TRANSCENDENTAL.contains(&opcode) => found.transcendentals = elements as f32,
            _ if FREE.contains(&opcode) => free(found),
            "transpose" if is_bitcast(module, instruction) => free(found),
            "dot" | "scaled-dot" => found.flops = dot_flops(module, instruction, 0) as f32,
            "ragged-dot" => {
                let groups = instruction
                    .attributes
                    .as_ref()
                    .map_or(0, |attributes| attributes.ragged_groups);
                found.flops = dot_flops(module, instruction, groups) as f32;
            }
            "convolution" => found.flops = convolution_flops(module, instruction) as f32,
            "reduce" => {
                let output = shape.parts.first().unwrap_or(shape).elements();
                let reductions = elements_of(0).saturating_sub(output);
                found.add_scaled_work(&called(0), reductions as f32);
            }
            "reduce-window" => {
                let output = shape.parts.first().unwrap_or(shape);
                let count = cumulative_count(window, output).unwrap_or_else(|| {
                    let each = window_elements().saturating_sub(1);
                    each.saturating_mul(output.elements())
                });
                found.add_scaled_work(&called(0), count as f32);
            }
            "select-and-scatter" => {
                let source = elements_of(1);
                let selects = source.saturating_mul(window_elements().saturating_sub(1));
                found.add_scaled_work(&called(0), selects as f32);
                found.add_scaled_work(&called(1), source as f32);
            }
            "scatter" => scatter(module, instruction, &called(0), found),
            "map" => found.add_scaled_work(&called(0), elements as f32),
            "scan" => found.add_scaled_work(&called(0), elements_of(0) as f32),
            "sort" => {
                let count = elements_of(0);
                found.flops = count.saturating_mul(log2_ceiling(count)) as f32;
            }
            "fft" => {
                let lengths = instruction
                    .attributes
                    .as_ref()
                    .map_or(&[][..], |attributes| &attributes.fft_length);
                let logarithms = lengths.iter().fold(1_u64, |product, length| {
                    product.saturating_mul(log2_floor(*length))
                });
                found.flops = (8_u64
                    .saturating_mul(elements_of(0))
                    .saturating_mul(logarithms)) as f32;
            }
            "cholesky" => {
                let last = module
                    .operand(instruction, 0)
                    .and_then(|matrix| matrix.shape.dimensions.last().copied());
                let last = u64::try_from(last.unwrap_or(0)).unwrap_or(0);
                found.flops = (last.saturating_mul(elements_of(0)) / 3) as f32;
                let half = own(0) as f32 / 2.0;
                found.output_bytes = half;
                found.set_operand(0, half);
                found.bytes = own(0) as f32;
            }
            "triangular-solve" => {
                let last = module
                    .operand(instruction, 0)
                    .and_then(|matrix| matrix.shape.dimensions.last().copied());
                let last = u64::try_from(last.unwrap_or(0)).unwrap_or(0);
                found.flops = FMA_FLOPS
                    .saturating_mul(last)
                    .saturating_mul(elements_of(1)) as f32;
                let output = size_of_leaves(shape) as f32;
                found.bytes = output + own(0) as f32 / 2.0 + own(1) as f32;
                // XLA's slip: operand 0 gets the size of operand 1.
                found.set_operand(0, own(1) as f32);
            }
            "all-reduce" | "all-reduce-start" => found.flops = elements as f32,
            "slice" => {
                let output = size(shape) as f32;
                found.bytes = output * 2.0;
                found.set_operand(0, output);
                found.set_utilization(0, ratio(elements, elements_of(0)));
            }
            "dynamic-update-slice" => {
                let update = own(1) as f32;
                found.bytes = update * 2.0 + own(2) as f32;
                found.output_bytes = update;
                found.set_operand(0, 0.0);
                let kept = elements.saturating_sub(elements_of(1));
                found.set_utilization(0, ratio(kept, elements));
            }
            // Operand 1: the first index, or the indices.
            "dynamic-slice" | "gather" => {
                let output = size(shape) as f32;
                found.bytes = output * 2.0 + own(1) as f32;
                found.set_operand(0, output);
                found.set_utilization(0, ratio(elements, elements_of(0)));
            }
            "tuple" => {
                found.bytes = size(shape) as f32;
                found.output_bytes = found.bytes;
                for index in 0..instruction.operands.len() {
                    found.set_operand(index, 0.0);
                }
            }
            _ => {}
        }
    }
}

impl Cost {
    /// Adds the class and the work of one execution, from the figures.
    fn with_work(mut self, module: &Module, instruction: &Instruction, rules: Rules) -> Self {
        self.precision = self
            .precision
            .or_else(|| own_precision(module, instruction));
        self.with_loops = InstructionWork::from_properties(
            module,
            instruction,
            &self.properties,
            self.precision,
            rules,
        );
        self
    }
}

fn from_sum(sum: Sum) -> Cost {
    Cost {
        properties: sum.properties,
        is_unknown: false,
        precision: sum.with_loops.precisions.most(),
        with_loops: sum.with_loops,
        unknown_calls: sum.unknown_calls,
    }
}

/// The figures that rules start from: the result and all operands are accessed once.
fn default_properties(module: &Module, instruction: &Instruction) -> Properties {
    let output = size_of_leaves(&instruction.shape) as f32;
    let mut found = Properties {
        bytes: output,
        output_bytes: output,
        ..Properties::default()
    };
    for index in 0..instruction.operands.len() {
        let bytes = operand_size(module, instruction, index) as f32;
        found.bytes += bytes;
        found.set_operand(index, bytes);
        found.set_utilization(index, 1.0);
    }
    found
}

/// XLA's figures for what it has no model of.
fn unknown(known: &Properties) -> Properties {
    Properties {
        flops: -1.0,
        transcendentals: 0.0,
        bytes: -1.0,
        optimal_seconds: -1.0,
        output_bytes: -1.0,
        output_part_bytes: Vec::new(),
        operand_bytes: vec![-1.0; known.operand_bytes.len()],
        utilizations: known.utilizations.clone(),
    }
}

fn free(found: &mut Properties) {
    found.bytes = 0.0;
    found.output_bytes = 0.0;
    found.operand_bytes.fill(0.0);
}

/// Returns whether a transpose only renames dimensions of the same bytes.
fn is_bitcast(module: &Module, instruction: &Instruction) -> bool {
    let Some(operand) = module.operand(instruction, 0) else {
        return false;
    };
    let (Some(from), Some(to)) = (&operand.shape.layout, &instruction.shape.layout) else {
        return false;
    };
    let renamed = to.minor_to_major.iter().map(|dimension| {
        let at = usize::try_from(*dimension).ok()?;
        instruction.dimensions.get(at).copied()
    });
    renamed.eq(from.minor_to_major.iter().map(|dimension| Some(*dimension)))
}

fn dot_flops(module: &Module, instruction: &Instruction, groups: usize) -> u64 {
    let dimensions = instruction
        .attributes
        .as_ref()
        .and_then(|found| found.dot.as_ref());
    let lhs = module.operand(instruction, 0).map(|operand| &operand.shape);
    let mut contracted = 1_u64;
    for dimension in dimensions.map_or(&[][..], |dot| &dot.lhs_contracting) {
        let length = lhs.and_then(|shape| shape.dimensions.get(usize::try_from(*dimension).ok()?));
        contracted = contracted.saturating_mul(length.map_or(1, |length| length.unsigned_abs()));
    }
    let results = instruction
        .shape
        .dimensions
        .iter()
        .skip(groups)
        .fold(1_u64, |product, length| {
            product.saturating_mul(length.unsigned_abs())
        });
    FMA_FLOPS.saturating_mul(results).saturating_mul(contracted)
}

/// Returns how often a reduction over windows applies its function in the form of a cumulative sum: one
/// window over one dimension, padded on one side (or both) to the dimension's length.
fn cumulative_count(
    window: &[stepscope_formats::hlo::WindowDimension],
    output: &Shape,
) -> Option<u64> {
    let mut wide = window.iter().enumerate().filter(|(_, one)| one.size > 1);
    let (dimension, only) = wide.next()?;
    let padded = window
        .iter()
        .filter(|one| one.padding_low != 0 || one.padding_high != 0)
        .count();
    if wide.next().is_some() || padded != 1 {
        return None;
    }
    let length = *output.dimensions.get(dimension)?;
    let padding = only.padding_low;
    let is_cumulative = only.padding_high == padding
        && only.size == padding.checked_mul(2)?.checked_add(1)?
        && padding == length.checked_sub(1)?;
    let length = u64::try_from(length).ok().filter(|length| *length > 0)?;
    is_cumulative.then(|| (output.elements() / length).saturating_add(length - 1))
}

fn scatter(
    module: &Module,
    instruction: &Instruction,
    called: &Properties,
    found: &mut Properties,
) {
    // Operands, indices, updates: as many updates as operands.
    let indices = instruction.operands.len() / 2;
    let updates = indices + 1;
    let update = operand_size(module, instruction, updates) as f32;
    let index = operand_size(module, instruction, indices) as f32;
    found.bytes = update * 3.0 + index;
    found.output_bytes = update;
    found.set_operand(0, update);
    found.set_operand(indices, index);
    found.set_operand(updates, update);
    let elements = operand_elements(module, instruction, updates);
    found.add_scaled_work(called, elements as f32);
    found.set_utilization(0, ratio(elements, operand_elements(module, instruction, 0)));
}

/// Returns how often a loop runs, from the compiler's note.
pub(super) fn trip_count(instruction: &Instruction) -> Option<u64> {
    let config: Value = serde_json::from_slice(&instruction.backend_config).ok()?;
    let count = &config["known_trip_count"]["n"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok())
}
