//! Attention: scores `Q K'`, softmax, and the product with `V`, in one operator.
//!
//! ```text
//! forward   flops = 2 batch * heads * pairs * (d + d_v)
//! backward  flops = 2 batch * heads * pairs * (3 d + 2 d_v): scores again, and the gradients of scores, V, Q, K
//! pairs     = queries * keys; under a causal mask the area that the mask leaves: half where both are equal
//! ```
//! The softmax is not counted. Sequences of several lengths in one tensor are unknown: the values of another
//! tensor define where each starts.

use super::inputs::{Inputs, product, sum};

/// Position of the causal mask among the inputs of a call, and what its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Causal {
    /// A truth value; the mask begins at the first query and key.
    Flag(usize),
    /// A truth value; the mask ends at the last query and key.
    FlagFromEnd(usize),
    /// `custom_mask_type`: 0 without a mask, 1 from the first query and key, 2 from the last.
    MaskType(usize),
}

/// Which pairs of query and key count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pairs {
    /// All, as PyTorch's `FlopCounterMode` counts.
    All,
    /// Those that the causal mask leaves: the work that a kernel has to do.
    Unmasked,
}

/// Layout of an attention operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attention {
    /// Index of the query; key and value follow. The backward pass has the gradient of the result before it.
    query: usize,
    /// Whether heads come before the sequence: `[batch, heads, sequence, size]`.
    heads_first: bool,
    causal: Causal,
    /// Index of the additive mask, where the operator takes one.
    bias: Option<usize>,
}

const fn attention(
    query: usize,
    heads_first: bool,
    causal: Causal,
    bias: Option<usize>,
) -> Attention {
    Attention {
        query,
        heads_first,
        causal,
        bias,
    }
}

const ATTENTION: &[(&str, Attention)] = &[
    (
        "aten::_scaled_dot_product_flash_attention",
        attention(0, true, Causal::Flag(4), None),
    ),
    (
        "aten::_scaled_dot_product_flash_attention_backward",
        attention(1, true, Causal::Flag(11), None),
    ),
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        attention(0, true, Causal::Flag(4), Some(5)),
    ),
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        attention(1, true, Causal::Flag(7), Some(8)),
    ),
    (
        "aten::_scaled_dot_product_efficient_attention",
        attention(0, true, Causal::Flag(6), Some(3)),
    ),
    (
        "aten::_scaled_dot_product_efficient_attention_backward",
        attention(1, true, Causal::Flag(11), Some(4)),
    ),
    (
        "aten::_scaled_dot_product_cudnn_attention",
        attention(0, true, Causal::Flag(6), Some(3)),
    ),
    (
        "aten::_scaled_dot_product_cudnn_attention_backward",
        attention(1, true, Causal::Flag(14), Some(8)),
    ),
    (
        "aten::_scaled_dot_product_fused_attention_overrideable",
        attention(0, true, Causal::Flag(5), Some(3)),
    ),
    (
        "aten::_flash_attention_forward",
        attention(0, false, Causal::Flag(8), None),
    ),
    (
        "aten::_flash_attention_backward",
        attention(1, false, Causal::Flag(11), None),
    ),
    (
        "aten::_efficient_attention_forward",
        attention(0, false, Causal::MaskType(9), Some(3)),
    ),
    (
        "aten::_efficient_attention_backward",
        attention(1, false, Causal::MaskType(14), Some(4)),
    ),
    (
        "flash_attn::_flash_attn_forward",
        attention(0, false, Causal::FlagFromEnd(5), None),
    ),
    (
        "flash_attn::_flash_attn_backward",
        attention(1, false, Causal::FlagFromEnd(11), None),
    ),
];

pub(super) fn layout(name: &str) -> Option<Attention> {
    super::find(ATTENTION, name)
}

impl Attention {
    /// Returns the index of the query, whose type is the precision.
    pub(super) const fn first(self) -> usize {
        self.query
    }

    const fn is_backward(self) -> bool {
        self.query == 1
    }

    /// Returns batch, heads, length and size of a head of query, key or value.
    fn sizes(self, inputs: &Inputs<'_>, index: usize) -> Option<[u64; 4]> {
        let [batch, one, other, size] = *inputs.sizes(self.query + index)? else {
            return None;
        };
        Some(if self.heads_first {
            [batch, one, other, size]
        } else {
            [batch, other, one, size]
        })
    }

    pub(super) fn flops(self, inputs: &Inputs<'_>, counted: Pairs) -> Option<u64> {
        let [batch, heads, queries, size] = self.sizes(inputs, 0)?;
        let [_, _, keys, _] = self.sizes(inputs, 1)?;
        let [_, _, _, value_size] = self.sizes(inputs, 2)?;
        let sizes = if self.is_backward() {
            size.checked_mul(3)?
                .checked_add(value_size.checked_mul(2)?)?
        } else {
            size.checked_add(value_size)?
        };
        let twice_pairs = match counted {
            Pairs::All => product(&[2, queries, keys])?,
            Pairs::Unmasked => self.causal.twice_pairs(inputs, queries, keys)?,
        };
        product(&[batch, heads, twice_pairs, sizes])
    }

    pub(super) fn bytes(self, inputs: &Inputs<'_>) -> Option<u64> {
        let tensor = |index: usize| inputs.tensor(self.query + index);
        let (query, key, value) = (tensor(0)?, tensor(1)?, tensor(2)?);
        let [batch, heads, queries, _] = self.sizes(inputs, 0)?;
        let [_, _, _, value_size] = self.sizes(inputs, 2)?;
        let result = product(&[batch, heads, queries, value_size, query.data_type.bytes]);
        let read = sum([
            query.read(),
            key.read(),
            value.read(),
            self.bias
                .map_or(Some(0), |index| inputs.read_optional(index)),
            result,
        ]);
        if !self.is_backward() {
            return read;
        }
        // Reads the result and its gradient, and writes the gradients of query, key and value.
        sum([
            read,
            result,
            query.written(),
            key.written(),
            value.written(),
        ])
    }
}

impl Causal {
    /// Returns twice the number of pairs that the mask leaves. A mask that the file does not have leaves all.
    fn twice_pairs(self, inputs: &Inputs<'_>, queries: u64, keys: u64) -> Option<u64> {
        let all = product(&[2, queries, keys])?;
        let (is_causal, from_end) = match self {
            Self::Flag(index) => (inputs.flag(index) == Some(true), false),
            Self::FlagFromEnd(index) => (inputs.flag(index) == Some(true), true),
            Self::MaskType(index) => match inputs.number(index) {
                Some(1) => (true, false),
                Some(2) => (true, true),
                _ => (false, false),
            },
        };
        if !is_causal {
            return Some(all);
        }
        let square = |side: u64| side.checked_mul(side);
        match (from_end, queries <= keys) {
            (false, true) => square(queries),
            (false, false) => all.checked_sub(square(keys)?),
            (true, true) => all.checked_sub(square(queries)?),
            (true, false) => square(keys),
        }
    }
}
