//! Operations of a convolution.

use stepscope_formats::hlo::{Instruction, Module, Shape, WindowDimension};

fn length(dimensions: &[i64], at: i64) -> u64 {
    usize::try_from(at)
        .ok()
        .and_then(|at| dimensions.get(at))
        .map_or(1, |length| length.unsigned_abs())
}

/// Returns the multiplications and additions of a convolution that touch the input: products with padding
/// and with the gaps of a dilated input are left out.
pub(super) fn convolution_flops(module: &Module, instruction: &Instruction) -> u64 {
    convolution_flops_with(module, instruction, &instruction.shape)
}

/// The same of a library call, whose result has more parts.
pub(super) fn convolution_flops_with(
    module: &Module,
    instruction: &Instruction,
    result: &Shape,
) -> u64 {
    let Some(attributes) = &instruction.attributes else {
        return 0;
    };
    let (Some(roles), Some(input), Some(kernel)) = (
        &attributes.convolution,
        module.operand(instruction, 0),
        module.operand(instruction, 1),
    ) else {
        return 0;
    };
    let (input, kernel) = (&input.shape.dimensions, &kernel.shape.dimensions);
    let output = &result.dimensions;
    let groups = |count: i64| u64::try_from(count).unwrap_or(1).max(1);
    let mut pairs = 1_u64;
    for (number, window) in attributes.window.iter().enumerate() {
        let of = |dimensions: &[i64], roles: &[i64]| {
            roles
                .get(number)
                .map_or(1, |role| length(dimensions, *role))
        };
        pairs = pairs.saturating_mul(valid_pairs(
            of(input, &roles.input_spatial),
            of(kernel, &roles.kernel_spatial),
            of(output, &roles.output_spatial),
            window,
        ));
    }
    let input_features =
        length(input, roles.input_feature) / groups(attributes.feature_group_count);
    let output_features = length(output, roles.output_feature);
    let batch = length(input, roles.input_batch) / groups(attributes.batch_group_count);
    [output_features, batch, pairs]
        .into_iter()
        .fold(input_features.saturating_mul(2), u64::saturating_mul)
}

/// Returns the number of pairs of a kernel and an output position that read an element of the input.
fn valid_pairs(input: u64, kernel: u64, output: u64, window: &WindowDimension) -> u64 {
    let stride = i128::from(window.stride);
    let dilation = i128::from(window.window_dilation);
    let base = i128::from(window.base_dilation.max(1));
    // The positions of the input among the dilated ones: 0, base, 2 base, ...
    let last = base * (i128::from(input) - 1);
    let mut count = 0_u64;
    // As long as the kernel and not the input: a damaged file may claim any length.
    for at in 0..i128::from(kernel.min(MAX_KERNEL)) {
        let first = at * dilation - i128::from(window.padding_low);
        count = count.saturating_add(positions(first, stride, output, base, last));
    }
    count
}

/// Longest side of a kernel that is counted exactly.
const MAX_KERNEL: u64 = 1 << 20;

/// Returns how many of `first + n * stride`, for `n` below `count`, are multiples of `base` from 0 to `last`.
fn positions(first: i128, stride: i128, count: u64, base: i128, last: i128) -> u64 {
    if count == 0 || last < 0 {
        return 0;
    }
    let count = i128::from(count);
    if stride <= 0 {
        // Every output reads the same element.
        let hits = first % base == 0 && (0..=last).contains(&first);
        return if hits {
            u64::try_from(count).unwrap_or(0)
        } else {
            0
        };
    }
    // n for which the position lies inside.
    let low =
        (-first).max(0).div_euclid(stride) + i128::from((-first).max(0).rem_euclid(stride) > 0);
    let high = (last - first).div_euclid(stride).min(count - 1);
    if last < first || low > high {
        return 0;
    }
    // Of these, every `period`-th one is a multiple of the base, from the first that is.
    let period = base / gcd(base, stride.rem_euclid(base).max(0));
    let hit = (low..low + period).find(|n| (first + n * stride).rem_euclid(base) == 0);
    match hit {
        Some(hit) if hit <= high => u64::try_from((high - hit) / period + 1).unwrap_or(0),
        _ => 0,
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, by counting.
    fn counted(input: i64, kernel: i64, output: i64, window: &WindowDimension) -> u64 {
        let mut count = 0;
        for at in 0..kernel {
            for out in 0..output {
                let position =
                    out * window.stride - window.padding_low + at * window.window_dilation;
                let read = position / window.base_dilation;
                if position % window.base_dilation == 0 && position >= 0 && read < input {
                    count += 1;
                }
            }
        }
        count
    }

    #[test]
    fn pairs_are_those_of_the_definition() {
        for input in [1_i64, 2, 7, 16] {
            for kernel in [1_i64, 3, 4] {
                for stride in [1, 2, 3] {
                    for padding_low in [-1, 0, 1, 2] {
                        for window_dilation in [1, 2] {
                            for base_dilation in [1, 2, 3] {
                                let window = WindowDimension {
                                    size: kernel,
                                    stride,
                                    padding_low,
                                    padding_high: 0,
                                    window_dilation,
                                    base_dilation,
                                };
                                for output in [1_i64, 5, 9] {
                                    let found = valid_pairs(
                                        input.unsigned_abs(),
                                        kernel.unsigned_abs(),
                                        output.unsigned_abs(),
                                        &window,
                                    );
                                    let expected = counted(input, kernel, output, &window);
                                    assert_eq!(found, expected, "{input} {output} {window:?}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
