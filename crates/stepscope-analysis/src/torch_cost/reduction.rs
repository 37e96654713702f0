//! Reductions and softmax.
//!
//! With `e` the elements of the input:
//!
//! ```text
//! reduction            flops = e (norm 2 e, standard deviation and variance 4 e, `logsumexp` 4 e, loss 3 e)
//!                      bytes = input + result
//! softmax, log_softmax flops = 5 e: largest, subtract, exponential, sum, divide (or subtract the logarithm)
//! their backward pass  flops = 4 e
//! ```

use super::inputs::{DataType, INT64, Inputs, Tensor, product, sum};

/// What a reduction returns for each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// A value of the type of the input; of integers a sum in 64 bits.
    Sum,
    /// A value of the type of the input.
    Value,
    /// A value, and its position where dimensions are chosen.
    ValueAndPosition,
    /// A position.
    Position,
    /// A truth value.
    Bool,
    /// Two values.
    Two,
    /// A value for each element.
    Running,
}

/// A reduction, or a softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reduction {
    /// Operations on one element, the index of the argument with the dimensions, and what is returned.
    Over {
        operations: u64,
        dimensions: usize,
        returned: Returned,
    },
    /// `(input, target, reduction)`.
    Loss,
    /// `(input, dim, half_to_float)`.
    Softmax,
    /// `(gradient, output, dim, input_dtype)`.
    SoftmaxBackward,
}

const fn over(operations: u64, dimensions: usize, returned: Returned) -> Reduction {
    Reduction::Over {
        operations,
        dimensions,
        returned,
    }
}

const REDUCTIONS: &[(&str, Reduction)] = &[
    ("aten::sum", over(1, 1, Returned::Sum)),
    ("aten::nansum", over(1, 1, Returned::Sum)),
    ("aten::prod", over(1, 1, Returned::Sum)),
    ("aten::mean", over(1, 1, Returned::Value)),
    ("aten::amax", over(1, 1, Returned::Value)),
    ("aten::amin", over(1, 1, Returned::Value)),
    ("aten::max", over(1, 1, Returned::ValueAndPosition)),
    ("aten::min", over(1, 1, Returned::ValueAndPosition)),
    ("aten::argmax", over(1, 1, Returned::Position)),
    ("aten::argmin", over(1, 1, Returned::Position)),
    ("aten::all", over(1, 1, Returned::Bool)),
    ("aten::any", over(1, 1, Returned::Bool)),
    ("aten::norm", over(2, 2, Returned::Value)),
    ("aten::linalg_norm", over(2, 2, Returned::Value)),
    ("aten::linalg_vector_norm", over(2, 2, Returned::Value)),
    ("aten::std", over(4, 1, Returned::Value)),
    ("aten::var", over(4, 1, Returned::Value)),
    ("aten::std_mean", over(4, 1, Returned::Two)),
    ("aten::var_mean", over(4, 1, Returned::Two)),
    ("aten::logsumexp", over(4, 1, Returned::Value)),
    ("aten::cumsum", over(1, 1, Returned::Running)),
    ("aten::cumprod", over(1, 1, Returned::Running)),
    ("aten::mse_loss", Reduction::Loss),
    ("aten::_softmax", Reduction::Softmax),
    ("aten::_safe_softmax", Reduction::Softmax),
    ("aten::_log_softmax", Reduction::Softmax),
    ("aten::_softmax_backward_data", Reduction::SoftmaxBackward),
    (
        "aten::_log_softmax_backward_data",
        Reduction::SoftmaxBackward,
    ),
];

pub(super) fn reduction(name: &str) -> Option<Reduction> {
    super::find(REDUCTIONS, name)
}

impl Reduction {
    pub(super) const fn is_softmax(self) -> bool {
        matches!(self, Self::Softmax | Self::SoftmaxBackward)
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        let first = inputs.tensor(0)?;
        if let Some(other) = self.other_operand(inputs) {
            let shape = super::elementwise::broadcast(&[&first.sizes, &other.sizes])?;
            return product(&shape);
        }
        let operations = match self {
            Self::Over { operations, .. } => operations,
            Self::Loss => 3,
            Self::Softmax => 5,
            Self::SoftmaxBackward => 4,
        };
        first.elements()?.checked_mul(operations)
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        let first = inputs.tensor(0)?;
        match self {
            Self::Over { .. } => {
                if let Some(other) = self.other_operand(inputs) {
                    let shape = super::elementwise::broadcast(&[&first.sizes, &other.sizes])?;
                    let result = first.data_type.promoted(other.data_type).bytes;
                    let written = product(&shape)?.checked_mul(result);
                    return sum([first.read(), other.read(), written]);
                }
                sum([first.read(), self.returned_bytes(inputs, &first)])
            }
            Self::Loss => {
                let is_reduced = inputs.number(2)? != 0;
                let written = if is_reduced {
                    Some(first.data_type.bytes)
                } else {
                    first.written()
                };
                sum([first.read(), inputs.tensor(1)?.read(), written])
            }
            Self::Softmax => {
                let is_widened = inputs.flag(2) == Some(true);
                let size = if is_widened { 4 } else { first.data_type.bytes };
                sum([first.read(), first.elements()?.checked_mul(size)])
            }
            Self::SoftmaxBackward => {
                let number = inputs.number(3);
                let size = match number.and_then(DataType::from_number) {
                    Some(result) => result.bytes,
                    None => first.data_type.bytes,
                };
                let written = first.elements()?.checked_mul(size);
                sum([first.read(), inputs.tensor(1)?.read(), written])
            }
        }
    }

    /// Returns the second operand of `max(a, b)`, which reduces nothing.
    fn other_operand(self, inputs: &Inputs<'_>) -> Option<Tensor> {
        let is_extreme = matches!(
            self,
            Self::Over {
                returned: Returned::ValueAndPosition,
                ..
            }
        );
        inputs.tensor(1).filter(|_| is_extreme)
    }

    fn returned_bytes(self, inputs: &Inputs<'_>, input: &Tensor) -> Option<u64> {
        let Self::Over {
            dimensions,
            returned,
            ..
        } = self
        else {
            return None;
        };
        let of_input = input.data_type;
        let of_sum = if of_input.is_integral() {
            INT64
        } else {
            of_input
        };
        if returned == Returned::Running {
            return input.elements()?.checked_mul(of_sum.bytes);
        }
        // A number alone is the type of the result of these, and a dimension of all others.
        let takes_lists = matches!(returned, Returned::Sum | Returned::Value | Returned::Two);
        let text = inputs.value(dimensions)?;
        let chosen = match inputs.number(dimensions) {
            Some(number) if !takes_lists => vec![number],
            _ if text.starts_with('[') => inputs.list(dimensions)?,
            _ => Vec::new(),
        };
        let groups = remaining(&input.sizes, &chosen)?;
        let one = match returned {
            Returned::Sum => of_sum.bytes,
            Returned::ValueAndPosition if chosen.is_empty() => of_input.bytes,
            Returned::ValueAndPosition => of_input.bytes + INT64.bytes,
            Returned::Position => INT64.bytes,
            Returned::Bool => 1,
            Returned::Two => of_input.bytes * 2,
            Returned::Value | Returned::Running => of_input.bytes,
        };
        groups.checked_mul(one)
    }
}

/// Returns the product of the dimensions that are not chosen; without a choice all are reduced.
fn remaining(sizes: &[u64], chosen: &[i64]) -> Option<u64> {
    if chosen.is_empty() {
        return Some(1);
    }
    let rank = i64::try_from(sizes.len()).ok()?;
    let mut kept = sizes.to_vec();
    for dimension in chosen {
        let index = if *dimension < 0 {
            dimension.checked_add(rank)?
        } else {
            *dimension
        };
        match kept.get_mut(usize::try_from(index).ok()?) {
            Some(size) => *size = 1,
            // A tensor without dimensions has the dimensions 0 and -1.
            None if rank == 0 => {}
            None => return None,
        }
    }
    product(&kept)
}
