//! Matrix products.

use super::inputs::{DataType, Inputs, Tensor, product, sum};

/// Positions and layout of the factors among the inputs of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `[.., m, k]` times `[.., k, n]` with `rank` dimensions, from this input on; an addend comes before them.
    Plain { first: usize, rank: usize },
    /// `_scaled_mm`: eight-bit factors with scales, a bias, and the type of the result.
    Scaled,
    /// `[.., k]` times the transpose of `[n, k]`, and a bias.
    Linear,
    /// Factors of any rank, broadcast over their batch.
    Broadcast,
}

const FORMS: &[(&str, Form)] = &[
    ("aten::mm", Form::Plain { first: 0, rank: 2 }),
    ("aten::_int_mm", Form::Plain { first: 0, rank: 2 }),
    ("aten::addmm", Form::Plain { first: 1, rank: 2 }),
    ("aten::_addmm_activation", Form::Plain { first: 1, rank: 2 }),
    ("aten::bmm", Form::Plain { first: 0, rank: 3 }),
    ("aten::baddbmm", Form::Plain { first: 1, rank: 3 }),
    ("aten::_scaled_mm", Form::Scaled),
    ("vllm::rocm_unquantized_gemm", Form::Linear),
    ("aiter::gemm_a16w16", Form::Linear),
];

/// Operators that mostly call one of [`FORMS`]; they count only where they launch the kernels themselves.
const COMPOSITE: &[(&str, Form)] = &[
    ("aten::linear", Form::Linear),
    ("aten::matmul", Form::Broadcast),
];

pub(super) fn form(name: &str) -> Option<Form> {
    super::find(FORMS, name)
}

pub(super) fn composite(name: &str) -> Option<Form> {
    super::find(COMPOSITE, name)
}

/// Sizes of a product: `batch` times `[m, k] x [k, n]`.
struct Sizes {
    batch: u64,
    m: u64,
    k: u64,
    n: u64,
}

impl Form {
    /// Returns the index of the first factor.
    pub(super) const fn first(self) -> usize {
        match self {
            Self::Plain { first, .. } => first,
            Self::Scaled | Self::Linear | Self::Broadcast => 0,
        }
    }

    fn sizes(self, inputs: &Inputs<'_>) -> Option<Sizes> {
        let left = inputs.sizes(self.first())?;
        let right = inputs.sizes(self.first() + 1)?;
        let sizes = match (self, &*left, &*right) {
            (Self::Plain { rank: 2, .. } | Self::Scaled, &[m, k], &[inner, n]) if k == inner => {
                Sizes { batch: 1, m, k, n }
            }
            (Self::Plain { rank: 3, .. }, &[batch, m, k], &[others, inner, n])
                if k == inner && batch == others =>
            {
                Sizes { batch, m, k, n }
            }
            (Self::Linear, [rows @ .., k], [n, inner]) if k == inner => Sizes {
                batch: 1,
                m: product(rows)?,
                k: *k,
                n: *n,
            },
            (Self::Broadcast, left, right) => broadcast(left, right)?,
            _ => return None,
        };
        Some(sizes)
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>) -> Option<u64> {
        let Sizes { batch, m, k, n } = self.sizes(inputs)?;
        product(&[2, batch, m, k, n])
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        let Sizes { batch, m, n, .. } = self.sizes(inputs)?;
        let first = self.first();
        let left = inputs.tensor(first)?;
        let added = match self {
            // `beta` 0 leaves the addend unread.
            Self::Plain { first: 1, .. } if inputs.number(3) == Some(0) => Some(0),
            Self::Plain { first: 1, .. } => inputs.read_optional(0),
            Self::Plain { .. } | Self::Broadcast => Some(0),
            Self::Linear => inputs.read_optional(2),
            Self::Scaled => sum([2, 3, 4, 5].map(|index| inputs.read_optional(index))),
        };
        let result = self.result(inputs, &left)?.bytes;
        sum([
            left.read(),
            inputs.tensor(first + 1)?.read(),
            added,
            product(&[batch, m, n, result]),
        ])
    }

    /// Returns the type of the elements of the result.
    fn result(self, inputs: &Inputs<'_>, left: &Tensor) -> Option<DataType> {
        match self {
            Self::Scaled => match inputs.number(6) {
                Some(number) => DataType::from_number(number),
                None => Some(left.data_type),
            },
            Self::Plain { .. } if left.data_type.is_integral() && left.data_type.bytes == 1 => {
                DataType::from_kineto("int")
            }
            _ => Some(left.data_type),
        }
    }
}

/// Returns the sizes of `torch.matmul`: a vector is a matrix of one row or column; batches broadcast.
fn broadcast(left: &[u64], right: &[u64]) -> Option<Sizes> {
    let (left_batch, m, k) = match left {
        [k] => (&[][..], 1, *k),
        [batch @ .., m, k] => (batch, *m, *k),
        [] => return None,
    };
    let (right_batch, inner, n) = match right {
        [inner] => (&[][..], *inner, 1),
        [batch @ .., inner, n] => (batch, *inner, *n),
        [] => return None,
    };
    let batch = super::elementwise::broadcast(&[left_batch, right_batch])?;
    (k == inner).then_some(Sizes {
        batch: product(&batch)?,
        m,
        k,
        n,
    })
}
