//! Operators that read or write rows of a table: embedding, gather, pooling windows.
//!
//! ```text
//! gather   flops = 0; bytes = indices + min(result, table) + result
//! pooling  flops = elements of the result * elements of the window
//! ```
//! Rows that several indices choose may be read once only, so no more than the table is read.

use super::inputs::{INT64, Inputs, Tensor, product, sum};
use crate::torch_args;

/// A way of choosing elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexing {
    /// `(table, indices)`: a row for each index.
    Embedding,
    /// `(gradient, indices, rows)`: adds the gradients of each row.
    EmbeddingBackward,
    /// `(input, dim, index)` of one dimension: a slice for each index.
    Select,
    /// `(input, dim, index)`: an element for each index.
    Gather,
    /// `(input, kernel, stride, padding, dilation)`: the largest of each window and its position.
    MaxPool,
}

const INDEXING: &[(&str, Indexing)] = &[
    ("aten::embedding", Indexing::Embedding),
    (
        "aten::embedding_dense_backward",
        Indexing::EmbeddingBackward,
    ),
    ("aten::index_select", Indexing::Select),
    ("aten::gather", Indexing::Gather),
    ("aten::max_pool2d_with_indices", Indexing::MaxPool),
];

pub(super) fn indexing(name: &str) -> Option<Indexing> {
    super::find(INDEXING, name)
}

impl Indexing {
    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        match self {
            Self::Embedding | Self::Select | Self::Gather => Some(0),
            Self::EmbeddingBackward => inputs.tensor(0)?.elements(),
            Self::MaxPool => {
                let window = pair(inputs, 1)?;
                let window: Option<Vec<u64>> = window
                    .iter()
                    .map(|size| u64::try_from(*size).ok())
                    .collect();
                product(&pooled(inputs)?)?.checked_mul(product(&window?)?)
            }
        }
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        let first = inputs.tensor(0)?;
        let gathered = |indices: &Tensor, elements: u64| {
            let result = elements.checked_mul(first.data_type.bytes)?;
            sum([
                indices.read(),
                Some(result.min(first.read()?)),
                Some(result),
            ])
        };
        match self {
            Self::Embedding => {
                let indices = inputs.tensor(1)?;
                let row = *first.sizes.get(1)?;
                gathered(&indices, indices.elements()?.checked_mul(row)?)
            }
            Self::EmbeddingBackward => {
                let rows = u64::try_from(inputs.number(2)?).ok()?;
                let row = *first.sizes.last()?;
                let written = product(&[rows, row, first.data_type.bytes]);
                sum([first.read(), inputs.tensor(1)?.read(), written])
            }
            Self::Select => {
                let indices = inputs.tensor(2)?;
                let rank = i64::try_from(first.sizes.len()).ok()?;
                let dimension = inputs.number(1)?;
                let dimension = if dimension < 0 {
                    dimension.checked_add(rank)?
                } else {
                    dimension
                };
                let mut sizes = first.sizes.clone();
                *sizes.get_mut(usize::try_from(dimension).ok()?)? = indices.elements()?;
                gathered(&indices, product(&sizes)?)
            }
            Self::Gather => {
                let indices = inputs.tensor(2)?;
                gathered(&indices, indices.elements()?)
            }
            Self::MaxPool => {
                let one = first.data_type.bytes.checked_add(INT64.bytes)?;
                let written = product(&pooled(inputs)?)?.checked_mul(one);
                sum([first.read(), written])
            }
        }
    }
}

fn pair(inputs: &Inputs<'_>, index: usize) -> Option<Vec<i64>> {
    inputs.along(index, 2)
}

/// Returns the shape of the result of a pooling over the last two dimensions.
fn pooled(inputs: &Inputs<'_>) -> Option<Vec<u64>> {
    let mut sizes = inputs.tensor(0)?.sizes;
    let (kernel, padding, dilation) = (pair(inputs, 1)?, pair(inputs, 3)?, pair(inputs, 4)?);
    // Without strides windows do not overlap.
    let stride = match inputs.list(2)?.as_slice() {
        [] => kernel.clone(),
        _ => pair(inputs, 2)?,
    };
    // Rounding up adds windows at the end by a rule of its own.
    if inputs.flag(5)? {
        return None;
    }
    let from = sizes.len().checked_sub(2)?;
    for (axis, size) in sizes.iter_mut().skip(from).enumerate() {
        let steps = [stride[axis], padding[axis], dilation[axis]];
        let whole = i64::try_from(*size).ok()?;
        let positions = torch_args::positions(whole, kernel[axis], steps)?;
        *size = u64::try_from(positions).ok()?;
    }
    Some(sizes)
}
