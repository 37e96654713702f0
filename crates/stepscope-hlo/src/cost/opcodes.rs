//! Facts about opcodes and operands that several rule sets use.

use stepscope_formats::hlo::{Instruction, Module};

use super::size;

/// Multiplication and addition.
pub(super) const FMA_FLOPS: u64 = 2;

/// Opcodes with one operation for each element of the result.
pub(super) const ELEMENTWISE: [&str; 39] = [
    "abs",
    "add",
    "and",
    "bitcast-convert",
    "ceil",
    "clamp",
    "compare",
    "complex",
    "convert",
    "count-leading-zeros",
    "divide",
    "floor",
    "imag",
    "is-finite",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "popcnt",
    "real",
    "reduce-precision",
    "remainder",
    "round-nearest-afz",
    "round-nearest-even",
    "select",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
    "sign",
    "stochastic-convert",
    "subtract",
    "xor",
    // Spellings of old files.
    "clz",
    "equal-to",
    "greater-than",
    "less-than",
    "not-equal-to",
];

/// Opcodes with one transcendental function for each element of the result.
pub(super) const TRANSCENDENTAL: [&str; 25] = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan2",
    "atanh",
    "cbrt",
    "cosh",
    "cosine",
    "erf",
    "exponential",
    "exponential-minus-one",
    "log",
    "log-plus-one",
    "logistic",
    "power",
    "rng",
    "rng-bit-generator",
    "rsqrt",
    "sine",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "rng-get-and-update-state",
];

/// An operand's size, 0 if it is missing.
pub(super) fn operand_size(module: &Module, instruction: &Instruction, index: usize) -> u64 {
    module
        .operand(instruction, index)
        .map_or(0, |operand| size(&operand.shape))
}
