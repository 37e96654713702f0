//! Element-wise operators, copies, fills and random numbers.
//!
//! ```text
//! flops = elements of the result * operations on one element (one; a function such as `exp` is one)
//! bytes = every tensor that it reads, once, and the result
//! ```
//! Inputs broadcast. Copies, casts and fills compute nothing: 0 operations.

use super::inputs::{DataType, FLOAT, Inputs, Tensor, product, sum};

/// Type of the elements of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultType {
    /// That of the operands, promoted.
    Promoted,
    /// The same; FP32 where the operands are integers.
    Float,
    /// Truth values.
    Bool,
}

/// An operator that computes each element of its result from one element of each operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementWise {
    /// Number of operands: the first inputs. A further tensor holds the result.
    operands: usize,
    /// Operations on one element.
    operations: u64,
    result: ResultType,
}

const fn op(operands: usize, operations: u64, result: ResultType) -> ElementWise {
    ElementWise {
        operands,
        operations,
        result,
    }
}

const UNARY: ElementWise = op(1, 1, ResultType::Promoted);
const FUNCTION: ElementWise = op(1, 1, ResultType::Float);
const BINARY: ElementWise = op(2, 1, ResultType::Promoted);
const QUOTIENT: ElementWise = op(2, 1, ResultType::Float);
const COMPARISON: ElementWise = op(2, 1, ResultType::Bool);
const TERNARY: ElementWise = op(3, 1, ResultType::Promoted);
/// Three operations on one element: `a + t (b - a)`.
const THREE: ElementWise = op(3, 3, ResultType::Promoted);

/// Names without `aten::`; with `_` at the end they work in place.
const ELEMENT_WISE: &[(ElementWise, &[&str])] = &[
    (
        UNARY,
        &[
            "abs",
            "ceil",
            "floor",
            "frac",
            "gelu",
            "hardshrink",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "elu",
            "celu",
            "leaky_relu",
            "log_sigmoid_forward",
            "mish",
            "neg",
            "positive",
            "relu",
            "round",
            "selu",
            "sgn",
            "sign",
            "silu",
            "softplus",
            "softshrink",
            "square",
            "threshold",
            "trunc",
            "bitwise_not",
            "nan_to_num",
        ],
    ),
    (
        FUNCTION,
        &[
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "digamma",
            "erf",
            "erfc",
            "erfinv",
            "exp",
            "exp2",
            "expm1",
            "lgamma",
            "log",
            "log10",
            "log1p",
            "log2",
            "logit",
            "reciprocal",
            "rsqrt",
            "sigmoid",
            "sin",
            "sinc",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
        ],
    ),
    (
        BINARY,
        &[
            "add",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "clamp_max",
            "clamp_min",
            "elu_backward",
            "floor_divide",
            "fmod",
            "gelu_backward",
            "hardsigmoid_backward",
            "hardswish_backward",
            "hardtanh_backward",
            "leaky_relu_backward",
            "maximum",
            "minimum",
            "mish_backward",
            "mul",
            "native_dropout_backward",
            "pow",
            "remainder",
            "rsub",
            "sigmoid_backward",
            "silu_backward",
            "softplus_backward",
            "sub",
            "tanh_backward",
            "threshold_backward",
            "log_sigmoid_backward",
        ],
    ),
    (QUOTIENT, &["atan2", "div", "true_divide", "xlogy"]),
    (
        COMPARISON,
        &[
            "eq",
            "ge",
            "gt",
            "isfinite",
            "isinf",
            "isnan",
            "le",
            "logical_and",
            "logical_not",
            "logical_or",
            "logical_xor",
            "lt",
            "ne",
            "signbit",
        ],
    ),
    (TERNARY, &["clamp", "masked_fill", "where"]),
    (THREE, &["addcdiv", "addcmul", "lerp"]),
];

/// Kind of an operator that moves or makes elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Movement {
    /// Copies its second input into its first.
    Copy,
    /// Writes one value to each element of its first input.
    Fill,
    /// Writes a random number to each element of its first input: one operation for each.
    Random,
    /// Zeroes elements at random; returns the result and which elements stayed: two operations for each.
    Dropout,
    /// Multiplies the two halves of the last dimension of its second input, a function of the first half, into its
    /// first: two operations for each.
    Gate,
    /// Adds a border. The second input is the width of it, from the last dimension on.
    Pad,
    /// Repeats elements up to the size that the second input states.
    Repeat,
}

const MOVEMENTS: &[(&str, Movement)] = &[
    ("aten::copy_", Movement::Copy),
    ("aten::fill_", Movement::Fill),
    ("aten::zero_", Movement::Fill),
    ("aten::bernoulli_", Movement::Random),
    ("aten::exponential_", Movement::Random),
    ("aten::normal_", Movement::Random),
    ("aten::random_", Movement::Random),
    ("aten::uniform_", Movement::Random),
    ("aten::native_dropout", Movement::Dropout),
    ("sgl_kernel::silu_and_mul", Movement::Gate),
    ("aiter::silu_and_mul", Movement::Gate),
    ("_C::silu_and_mul", Movement::Gate),
    ("aten::constant_pad_nd", Movement::Pad),
    ("aten::upsample_nearest1d", Movement::Repeat),
    ("aten::upsample_nearest2d", Movement::Repeat),
    ("aten::upsample_nearest3d", Movement::Repeat),
];

pub(super) fn element_wise(name: &str) -> Option<ElementWise> {
    let name = name.strip_prefix("aten::")?;
    let find = |name: &str| {
        let known = ELEMENT_WISE.iter().find(|(_, names)| names.contains(&name));
        known.map(|(op, _)| *op)
    };
    find(name).or_else(|| find(name.strip_suffix('_')?))
}

pub(super) fn movement(name: &str) -> Option<Movement> {
    super::find(MOVEMENTS, name)
}

/// Returns the shape that shapes broadcast to; `None` if they do not fit.
pub(super) fn broadcast(shapes: &[&[u64]]) -> Option<Vec<u64>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1_u64; rank];
    for shape in shapes {
        for (slot, size) in result[rank - shape.len()..].iter_mut().zip(*shape) {
            match (*slot, *size) {
                (a, b) if a == b => {}
                (1, size) => *slot = size,
                (_, 1) => {}
                _ => return None,
            }
        }
    }
    Some(result)
}

impl ElementWise {
    fn operands(self, inputs: &Inputs<'_>) -> Option<Vec<Tensor>> {
        let mut found = Vec::with_capacity(self.operands);
        for index in 0..self.operands {
            found.extend(inputs.optional(index).ok()?);
        }
        (!found.is_empty()).then_some(found)
    }

    fn shape(operands: &[Tensor]) -> Option<Vec<u64>> {
        let shapes: Vec<&[u64]> = operands.iter().map(|operand| &*operand.sizes).collect();
        broadcast(&shapes)
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        let operands = self.operands(inputs)?;
        product(&Self::shape(&operands)?)?.checked_mul(self.operations)
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>, name: &str) -> Option<u64> {
        let operands = self.operands(inputs)?;
        let mut moved = product(&Self::shape(&operands)?)?
            .checked_mul(self.result_type(inputs, name, &operands)?.bytes)?;
        for operand in &operands {
            moved = moved.checked_add(operand.read()?)?;
        }
        Some(moved)
    }

    fn result_type(self, inputs: &Inputs<'_>, name: &str, operands: &[Tensor]) -> Option<DataType> {
        let first = operands.first()?;
        if name.ends_with('_') {
            return Some(first.data_type);
        }
        let further = (self.operands..self.operands + 2).find_map(|index| inputs.tensor(index));
        if let Some(result) = further.filter(|_| self.result != ResultType::Bool) {
            return Some(result.data_type);
        }
        if self.result == ResultType::Bool {
            return DataType::from_kineto("bool");
        }
        // Tensors without dimensions decide only where no other tensor is of their kind.
        let promoted = |all: &mut dyn Iterator<Item = &Tensor>| {
            all.map(|tensor| tensor.data_type)
                .reduce(DataType::promoted)
        };
        // The condition of `where` and the mask of `masked_fill` are no values.
        let values = || {
            operands.iter().filter(|operand| {
                operands.len() == 1 || operand.data_type.as_str() != "bool" || self != TERNARY
            })
        };
        let sized = promoted(&mut values().filter(|tensor| !tensor.sizes.is_empty()));
        let all = promoted(&mut values())?;
        let result = match sized {
            Some(sized) if sized.is_integral() == all.is_integral() => sized,
            // An integer tensor and a number with a fraction give the default type.
            Some(_) => FLOAT,
            None => all,
        };
        let is_float = self.result == ResultType::Float;
        Some(if is_float && result.is_integral() {
            FLOAT
        } else {
            result
        })
    }
}

impl Movement {
    /// Returns the index of the input whose type is the precision.
    pub(super) const fn first(self) -> usize {
        match self {
            Self::Gate => 1,
            _ => 0,
        }
    }

    pub(super) const fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::Fill | Self::Pad | Self::Repeat)
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        let operations = match self {
            Self::Copy | Self::Fill | Self::Pad | Self::Repeat => 0,
            Self::Random => 1,
            Self::Dropout | Self::Gate => 2,
        };
        inputs.tensor(0)?.elements()?.checked_mul(operations)
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        let first = inputs.tensor(0)?;
        match self {
            Self::Copy | Self::Gate => sum([first.written(), inputs.tensor(1)?.read()]),
            Self::Fill | Self::Random => first.written(),
            Self::Dropout => sum([first.read(), first.written(), first.elements()]),
            Self::Pad => {
                let border = inputs.list(1)?;
                let mut sizes = first.sizes.clone();
                for (size, width) in sizes.iter_mut().rev().zip(border.chunks(2)) {
                    let width = width
                        .iter()
                        .try_fold(0_i64, |sum, one| sum.checked_add(*one))?;
                    *size = size.checked_add_signed(width)?;
                }
                let written = product(&sizes)?.checked_mul(first.data_type.bytes);
                sum([first.read(), written])
            }
            Self::Repeat => {
                let space = inputs.list(1)?;
                let [batch, channels, from @ ..] = &*first.sizes else {
                    return None;
                };
                if from.len() != space.len() {
                    return None;
                }
                let mut sizes = vec![*batch, *channels, first.data_type.bytes];
                for size in space {
                    sizes.push(u64::try_from(size).ok()?);
                }
                sum([first.read(), product(&sizes)])
            }
        }
    }
}
