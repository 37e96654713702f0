//! Convolutions.
//!
//! ```text
//! forward     flops = 2 batch * positions * elements of the weight
//! positions   = product over the dimensions of (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1;
//!               of the input where the convolution is transposed
//! backward    flops = the same for each of input and weight whose gradient is computed
//! ```
//! The weight is `[out, in / groups, kernel...]`, so groups need no term of their own.

use super::inputs::{Inputs, Tensor, product, sum};
use crate::torch_args;

/// Direction of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

const CONVOLUTIONS: &[(&str, Direction)] = &[
    ("aten::convolution", Direction::Forward),
    ("aten::_convolution", Direction::Forward),
    ("aten::convolution_backward", Direction::Backward),
];

pub(super) fn direction(name: &str) -> Option<Direction> {
    super::find(CONVOLUTIONS, name)
}

/// Positions of the gradient, the input and the weight among the inputs of the backward pass.
const GRADIENT: usize = 0;
const INPUT: usize = 1;
const WEIGHT: usize = 2;
/// Position of the mask: which of the gradients of input, weight and bias are computed.
const MASK: usize = 10;

impl Direction {
    /// Returns the index of the input whose type is the precision.
    pub(super) const fn first(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => INPUT,
        }
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        match self {
            Self::Forward => forward_flops(inputs),
            Self::Backward => backward_flops(inputs),
        }
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        match self {
            Self::Forward => {
                let (input, weight) = (inputs.tensor(0)?, inputs.tensor(1)?);
                let result = product(&result_shape(inputs, &input, &weight)?);
                sum([
                    input.read(),
                    weight.read(),
                    inputs.read_optional(2),
                    result?.checked_mul(input.data_type.bytes),
                ])
            }
            Self::Backward => backward_bytes(inputs),
        }
    }
}

fn forward_flops(inputs: &Inputs<'_>) -> Option<u64> {
    if !inputs.flag(6)? {
        return plain_flops(inputs);
    }
    // Each element of the input is multiplied with the whole kernel.
    let (input, weight) = (inputs.sizes(0)?, inputs.sizes(1)?);
    let [batch, _, space @ ..] = &*input else {
        return None;
    };
    let fits = weight.len() == input.len() && !space.is_empty();
    fits.then(|| product(&[2, *batch, product(space)?, product(&weight)?]))?
}

/// Returns the operations of a convolution that is not transposed: `(input, weight, bias, stride, padding, dilation)`.
pub(super) fn plain_flops(inputs: &Inputs<'_>) -> Option<u64> {
    let (input, weight) = (inputs.sizes(0)?, inputs.sizes(1)?);
    let [batch, _, space @ ..] = &*input else {
        return None;
    };
    if weight.len() != input.len() || space.is_empty() {
        return None;
    }
    let positions = product(&positions(inputs, space, &weight)?)?;
    product(&[2, *batch, positions, product(&weight)?])
}

/// Returns the number of positions of the kernel along each dimension.
fn positions(inputs: &Inputs<'_>, space: &[u64], weight: &[u64]) -> Option<Vec<u64>> {
    let each = |index: usize| inputs.along(index, space.len());
    let (stride, padding, dilation) = (each(3)?, each(4)?, each(5)?);
    let along = |(axis, size): (usize, &u64)| {
        let steps = [stride[axis], padding[axis], dilation[axis]];
        let kernel = i64::try_from(*weight.get(axis + 2)?).ok()?;
        let positions = torch_args::positions(i64::try_from(*size).ok()?, kernel, steps)?;
        u64::try_from(positions).ok()
    };
    space.iter().enumerate().map(along).collect()
}

/// Returns the shape of the result of the forward pass.
fn result_shape(inputs: &Inputs<'_>, input: &Tensor, weight: &Tensor) -> Option<Vec<u64>> {
    let (input, weight) = (&*input.sizes, &*weight.sizes);
    let space = input.get(2..)?;
    let (batch, out, inner) = (*input.first()?, *weight.first()?, *weight.get(1)?);
    if !inputs.flag(6)? {
        let mut shape = vec![batch, out];
        shape.extend(positions(inputs, space, weight)?);
        return Some(shape);
    }
    let groups = u64::try_from(inputs.number(8)?).ok()?;
    let mut shape = vec![batch, inner.checked_mul(groups)?];
    let each = |index: usize| inputs.along(index, space.len());
    let (stride, padding, dilation, more) = (each(3)?, each(4)?, each(5)?, each(7)?);
    for (axis, size) in space.iter().enumerate() {
        let kernel = i64::try_from(*weight.get(axis + 2)?).ok()?;
        let reach = dilation[axis].checked_mul(kernel.checked_sub(1)?)?;
        let whole = i64::try_from(*size)
            .ok()?
            .checked_sub(1)?
            .checked_mul(stride[axis])?
            .checked_sub(padding[axis].checked_mul(2)?)?
            .checked_add(reach)?
            .checked_add(more[axis])?
            .checked_add(1)?;
        shape.push(u64::try_from(whole).ok()?);
    }
    Some(shape)
}

fn backward_flops(inputs: &Inputs<'_>) -> Option<u64> {
    let [gradient, input, weight] = [GRADIENT, INPUT, WEIGHT].map(|index| inputs.sizes(index));
    let (gradient, input, weight) = (gradient?, input?, weight?);
    let is_transposed = inputs.flag(7).unwrap_or(false);
    let visited = if is_transposed { &input } else { &gradient };
    let positions = product(visited.get(2..)?)?;
    let [of_input, of_weight, _] = inputs.mask(MASK);
    let gradients = u64::from(of_input) + u64::from(of_weight);
    product(&[
        2,
        *gradient.first()?,
        positions,
        product(&weight)?,
        gradients,
    ])
}

/// The gradient of the result is read once, for both gradients.
fn backward_bytes(inputs: &Inputs<'_>) -> Option<u64> {
    let [gradient, input, weight] = [GRADIENT, INPUT, WEIGHT].map(|index| inputs.tensor(index));
    let (gradient, input, weight) = (gradient?, input?, weight?);
    let [of_input, of_weight, of_bias] = inputs.mask(MASK);
    let when = |wanted: bool, bytes: Option<u64>| if wanted { bytes } else { Some(0) };
    let channels = gradient.sizes.get(1)?;
    sum([
        gradient.read(),
        when(of_input, weight.read()),
        when(of_input, input.written()),
        when(of_weight, input.read()),
        when(of_weight, weight.written()),
        when(of_bias, channels.checked_mul(gradient.data_type.bytes)),
    ])
}
