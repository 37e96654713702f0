//! Floating-point operations of a call of PyTorch, from the shapes of its inputs.
//!
//! Counts what PyTorch's `FlopCounterMode` counts: matrix products, convolutions and attention, forward and
//! backward, each multiplication with its addition as two.
//!
//! ```text
//! mm, addmm, _scaled_mm     2 m k n                                bmm, baddbmm   2 b m k n
//! convolution               2 b out_spatial kernel out (in / groups); transposed: in_spatial for out_spatial
//! convolution_backward      as forward, once for each of input and weight whose gradient is requested
//! attention                 2 b h q k (d + d_v), causal or not
//! its backward pass         2 b h q k (3 d + 2 d_v): scores again, and the gradients of scores, v, q, k
//! ```
//! `out_spatial = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`. Shapes that the file does not
//! contain, or that do not fit, count nothing. Sequences of several lengths in one tensor count nothing either:
//! the values of another tensor define where each starts.
//!
//! Other tools: `FlopCounterMode` counts the weight's gradient of a grouped convolution as often as there are
//! groups. `TraceLens` adds an operation for each element to which a bias is added, and halves causal attention.
//! The counts of torch's profiler with `with_flops=True` are in [`torch_args`](crate::torch_args): sums and
//! products of elements, and no backward passes.
//! backward passes.

use crate::torch_args::{self, elements, integers, shapes};

/// Positions and layout of query, key and value among the inputs of a call.
#[derive(Clone, Copy)]
struct Attention {
    name: &'static str,
    /// Index of the query; key and value follow.
    query: usize,
    /// Whether heads come before the sequence: `[batch, heads, sequence, size]`.
    heads_first: bool,
    backward: bool,
}

const fn attention(name: &'static str, query: usize, heads_first: bool) -> Attention {
    Attention {
        name,
        query,
        heads_first,
        // The gradient of the result comes first.
        backward: query == 1,
    }
}

const ATTENTION: &[Attention] = &[
    attention("aten::_scaled_dot_product_flash_attention", 0, true),
    attention(
        "aten::_scaled_dot_product_flash_attention_backward",
        1,
        true,
    ),
    attention("aten::_scaled_dot_product_flash_attention_for_cpu", 0, true),
    attention(
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        1,
        true,
    ),
    attention("aten::_scaled_dot_product_efficient_attention", 0, true),
    attention(
        "aten::_scaled_dot_product_efficient_attention_backward",
        1,
        true,
    ),
    attention("aten::_scaled_dot_product_cudnn_attention", 0, true),
    attention(
        "aten::_scaled_dot_product_cudnn_attention_backward",
        1,
        true,
    ),
    attention(
        "aten::_scaled_dot_product_fused_attention_overrideable",
        0,
        true,
    ),
    attention("aten::_flash_attention_forward", 0, false),
    attention("aten::_flash_attention_backward", 1, false),
    attention("aten::_efficient_attention_forward", 0, false),
    attention("aten::_efficient_attention_backward", 1, false),
    attention("flash_attn::_flash_attn_forward", 0, false),
    attention("flash_attn::_flash_attn_backward", 1, false),
];

const PRODUCTS: &[&str] = &["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"];

/// Returns whether calls of this name may count.
pub(super) fn counts(name: &str) -> bool {
    PRODUCTS.contains(&name)
        || matches!(
            name,
            "aten::_scaled_mm"
                | "aten::convolution"
                | "aten::_convolution"
                | "aten::convolution_backward"
        )
        || ATTENTION.iter().any(|known| known.name == name)
}

/// Computes the operations of one call from the texts of its arguments `Input Dims` and `Concrete Inputs`; 0
/// where nothing counts.
///
/// An operator counts for all nested ones, so call this for the outermost.
pub fn flops_of_call(name: &str, dims: &str, concrete: &str) -> u64 {
    if PRODUCTS.contains(&name) {
        return torch_args::flops(name, dims, concrete);
    }
    let count = match name {
        "aten::_scaled_mm" => scaled(dims),
        "aten::convolution" | "aten::_convolution" => convolution(dims, concrete),
        "aten::convolution_backward" => convolution_backward(dims, concrete),
        _ => ATTENTION
            .iter()
            .find(|known| known.name == name)
            .and_then(|known| attended(*known, dims)),
    };
    count
        .and_then(|count| u64::try_from(count).ok())
        .unwrap_or(0)
}

/// Returns whether some input has no element: the call then does nothing.
pub(super) fn has_empty_input(dims: &str) -> bool {
    shapes(dims)
        .iter()
        .flatten()
        .any(|shape| shape.contains(&0))
}

fn product(sizes: &[i64]) -> Option<i64> {
    let mut sizes = sizes.iter();
    sizes.try_fold(1_i64, |product, size| product.checked_mul(*size))
}

fn scaled(dims: &str) -> Option<i64> {
    let shapes = shapes(dims);
    let (left, right) = (shapes.first()?.as_ref()?, shapes.get(1)?.as_ref()?);
    let (&[rows, inner], &[_, columns]) = (&**left, &**right) else {
        return None;
    };
    product(&[2, rows, inner, columns])
}

/// Returns stride, padding, dilation (or others) from index `index` on: one number for each dimension.
fn along(values: &[&str], index: usize, dimensions: usize) -> Option<Vec<i64>> {
    let list = integers(values.get(index)?)?;
    match list.as_slice() {
        [all] => Some(vec![*all; dimensions]),
        list if list.len() == dimensions => Some(list.to_vec()),
        _ => None,
    }
}

fn is_true(values: &[&str], index: usize) -> Option<bool> {
    match values.get(index)?.trim_matches('"') {
        "True" | "true" => Some(true),
        "False" | "false" => Some(false),
        _ => None,
    }
}

/// Returns the operations of one point: everything but the positions that the kernel visits. `weight` is `[out,
/// in / groups, kernel...]`.
fn per_position(batch: i64, weight: &[i64]) -> Option<i64> {
    product(weight)?.checked_mul(batch)?.checked_mul(2)
}

fn convolution(dims: &str, concrete: &str) -> Option<i64> {
    let shapes = shapes(dims);
    let (input, weight) = (shapes.first()?.as_ref()?, shapes.get(1)?.as_ref()?);
    let values = elements(concrete);
    let space = input.get(2..)?;
    if weight.len() != input.len() || space.is_empty() {
        return None;
    }
    let positions = if is_true(&values, 6)? {
        product(space)?
    } else {
        let each = |index: usize| along(&values, index, space.len());
        let (stride, padding, dilation) = (each(3)?, each(4)?, each(5)?);
        let mut positions = 1_i64;
        for (axis, size) in space.iter().enumerate() {
            let along = [stride[axis], padding[axis], dilation[axis]];
            positions =
                positions.checked_mul(torch_args::positions(*size, weight[axis + 2], along)?)?;
        }
        positions
    };
    per_position(input[0], weight)?.checked_mul(positions)
}

fn convolution_backward(dims: &str, concrete: &str) -> Option<i64> {
    let shapes = shapes(dims);
    let shape = |index: usize| shapes.get(index).and_then(Option::as_ref);
    let (gradient, input, weight) = (shape(0)?, shape(1)?, shape(2)?);
    let values = elements(concrete);
    let forwards = if is_true(&values, 7).unwrap_or(false) {
        input
    } else {
        gradient
    };
    let positions = product(forwards.get(2..)?)?;
    // Input, weight and bias, which adds and does not multiply.
    let gradients = values.get(10).map_or(2, |mask| {
        let mask = mask.trim_matches(['"', '[', ']']).split(',');
        let gradients = mask
            .take(2)
            .filter(|one| one.trim().eq_ignore_ascii_case("true"));
        i64::try_from(gradients.count()).unwrap_or(0)
    });
    per_position(*gradient.first()?, weight)?
        .checked_mul(positions)?
        .checked_mul(gradients)
}

fn attended(known: Attention, dims: &str) -> Option<i64> {
    let shapes = shapes(dims);
    let shape = |index: usize| shapes.get(known.query + index).and_then(Option::as_ref);
    let (query, key, value) = (shape(0)?, shape(1)?, shape(2)?);
    let read = |shape: &[i64]| -> Option<[i64; 4]> {
        let [batch, one, other, size] = *shape else {
            return None;
        };
        Some(if known.heads_first {
            [batch, one, other, size]
        } else {
            [batch, other, one, size]
        })
    };
    let [batch, heads, queries, size] = read(query)?;
    let [_, _, keys, _] = read(key)?;
    let [_, _, _, value_size] = read(value)?;
    let sizes = if known.backward {
        size.checked_mul(3)?
            .checked_add(value_size.checked_mul(2)?)?
    } else {
        size.checked_add(value_size)?
    };
    product(&[2, batch, heads, queries, keys, sizes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_count_two_for_each_multiplication() {
        assert_eq!(flops_of_call("aten::mm", "[[2, 3], [3, 4]]", ""), 48);
        assert_eq!(
            flops_of_call("aten::_scaled_mm", "[[16, 32], [32, 8], [], []]", ""),
            2 * 16 * 32 * 8
        );
        // The profiler of torch counts these; they are no products.
        assert_eq!(flops_of_call("aten::add", "[[5, 2], [], []]", ""), 0);
        assert_eq!(flops_of_call("aten::mm", "", ""), 0);
    }

    #[test]
    fn convolutions_count_where_the_kernel_lands() {
        let concrete = r#"["", "", "", "[16, 16]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]"#;
        let dims = "[[4, 3, 224, 224], [768, 3, 16, 16], [768], [], [], [], [], [], []]";
        assert_eq!(
            flops_of_call("aten::convolution", dims, concrete),
            2 * 4 * 14 * 14 * 768 * 3 * 16 * 16
        );
        // One dimension, with groups: the weight has the channels of one group.
        let concrete = r#"["", "", "", "[1]", "[1]", "[1]", "False", "[0]", "4"]"#;
        let dims = "[[2, 8, 10], [8, 2, 3], [8], [], [], [], [], [], []]";
        assert_eq!(
            flops_of_call("aten::convolution", dims, concrete),
            2 * 2 * 10 * 8 * 2 * 3
        );
        // Transposed: each input is multiplied with the whole kernel.
        let concrete = r#"["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"]"#;
        let dims = "[[1, 4, 5, 5], [4, 6, 2, 2], [6], [], [], [], [], [], []]";
        assert_eq!(
            flops_of_call("aten::convolution", dims, concrete),
            2 * 5 * 5 * 4 * 6 * 2 * 2
        );
        assert_eq!(
            flops_of_call("aten::convolution", dims, ""),
            0,
            "older files do not say"
        );
    }

    #[test]
    fn gradients_of_convolutions_count_once_each() {
        let dims =
            "[[10, 64, 56, 56], [10, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], [], []]";
        let one = 2_u64 * 10 * 56 * 56 * 64 * 64 * 9;
        for (mask, times) in [
            ("[True, True, False]", 2),
            ("[False, True, True]", 1),
            ("[False, False, True]", 0),
        ] {
            let concrete = format!(
                r#"["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "{mask}"]"#
            );
            assert_eq!(
                flops_of_call("aten::convolution_backward", dims, &concrete),
                one * times,
                "{mask}"
            );
        }
    }

    #[test]
    fn attention_counts_both_products_and_backwards_five() {
        let dims = "[[1, 8, 141, 64], [1, 8, 141, 64], [1, 8, 141, 64], [], [], [], []]";
        let name = "aten::_scaled_dot_product_flash_attention";
        assert_eq!(flops_of_call(name, dims, ""), 40_716_288);
        let dims = "[[1, 141, 8, 64], [1, 141, 8, 64], [1, 141, 8, 64]]";
        assert_eq!(
            flops_of_call("aten::_flash_attention_forward", dims, ""),
            40_716_288
        );
        // Keys and values with fewer heads, and of another length.
        let dims = "[[2, 32, 16, 64], [2, 8, 128, 64], [2, 8, 128, 64]]";
        assert_eq!(flops_of_call(name, dims, ""), 4 * 2 * 32 * 16 * 128 * 64);
        let dims = "[[2, 4, 16, 8], [2, 4, 16, 8], [2, 4, 16, 8], [2, 4, 16, 8]]";
        assert_eq!(
            flops_of_call(
                "aten::_scaled_dot_product_efficient_attention_backward",
                dims,
                ""
            ),
            5 * 2 * 2 * 4 * 16 * 16 * 8
        );
        // Packed sequences: the shapes do not contain the start of each.
        let dims = "[[300, 8, 64], [300, 8, 64], [300, 8, 64]]";
        assert_eq!(flops_of_call("aten::_flash_attention_forward", dims, ""), 0);
    }

    #[test]
    fn empty_input_counts_no_operations() {
        assert!(has_empty_input("[[0, 3], [3, 4]]"));
        assert!(!has_empty_input("[[10, 3], [], [3, 40]]"));
        assert!(!has_empty_input(""));
    }

    #[test]
    fn nonsense_counts_nothing() {
        let huge = "[[9000000000000, 9000000000000], [9000000000000, 9000000000000]]";
        assert_eq!(flops_of_call("aten::mm", huge, ""), 0);
        assert_eq!(flops_of_call("aten::_scaled_mm", huge, ""), 0);
        for dims in [
            "",
            "[]",
            "[[1]]",
            "[[1, 2, 3, 4]]",
            "nonsense",
            "[[-1, 2, 3, 4], [-1, 2, 3, 4], [1, 2, 3, -9]]",
        ] {
            for known in ATTENTION {
                let _ = flops_of_call(known.name, dims, "[]");
            }
            assert_eq!(flops_of_call("aten::convolution", dims, "[]"), 0);
            assert_eq!(flops_of_call("aten::convolution_backward", dims, "[]"), 0);
        }
    }
}
