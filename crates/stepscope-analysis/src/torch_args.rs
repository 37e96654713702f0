//! Arguments of torch's operators: shapes of the inputs, and the floating-point operations computed from them.
//!
//! torch counts operations while it records (`with_flops=True`) but does not write them to the file; with
//! `record_shapes=True` the file has all inputs of the formulas:
//!
//! ```text
//! mm, addmm     2 * rows(a) * columns(a) * columns(b)
//! bmm, baddbmm  2 * batch * rows(a) * columns(a) * columns(b)
//! conv2d        2 * batch * out_h * out_w * kernel_h * kernel_w * in_channels * out_channels / groups
//! add, mul      elements of the first input
//! out           (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1
//! ```

/// Keys of the argument with the shapes of an operator's inputs; files of 2021 use the second one.
pub const DIMS: [&str; 2] = ["Input Dims", "Input dims"];

/// Returns whether an argument has the shapes of an operator's inputs.
pub fn is_dims(key: &str) -> bool {
    DIMS.contains(&key)
}

/// Operators whose floating-point operations [`flops`] counts.
pub const COUNTED: [&str; 7] = [
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::mul",
    "aten::add",
    "aten::conv2d",
];

/// Reads a list of whole numbers in JSON text: `[8, 3, 32, 32]`. Returns `None` for any other text.
fn numbers(text: &str) -> Option<Vec<i64>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect()
}

/// Reads the shapes in the argument `Input Dims`; `None` for an input that is no tensor, or has negative sizes.
pub fn shapes(dims: &str) -> Vec<Option<Vec<i64>>> {
    let shape = |text| numbers(text).filter(|sizes| sizes.iter().all(|size| *size >= 0));
    elements(dims).into_iter().map(shape).collect()
}

/// Returns the number of positions along one dimension at which a convolution's kernel fits; `None` if it fits
/// nowhere.
pub fn positions(size: i64, kernel: i64, [stride, padding, dilation]: [i64; 3]) -> Option<i64> {
    let room = size.checked_add(padding.checked_mul(2)?)?;
    let reach = room
        .checked_sub(dilation.checked_mul(kernel.checked_sub(1)?)?)?
        .checked_sub(1)?;
    (stride > 0 && reach >= 0).then(|| reach / stride + 1)
}

/// Reads a list of whole numbers among the values in `Concrete Inputs`: `"[1, 1]"`.
pub fn integers(value: &str) -> Option<Vec<i64>> {
    numbers(unquoted(value))
}

/// Splits the JSON list `text` into the texts of its elements.
pub fn elements(text: &str) -> Vec<&str> {
    let Some(inner) = text
        .trim()
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let (mut depth, mut quoted, mut escaped, mut from) = (0_u32, false, false, 0);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                out.push(inner[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    if !inner.trim().is_empty() {
        out.push(inner[from..].trim());
    }
    out
}

/// Returns the text inside a JSON string; these inputs need no unescaping.
fn unquoted(text: &str) -> &str {
    text.trim_matches('"')
}

/// Returns whether torch counts the operations of calls of this name.
pub fn is_counted(name: &str) -> bool {
    COUNTED.contains(&name)
}

/// Returns whether such a call needs the values of its inputs in addition to their shapes.
pub fn needs_values(name: &str) -> bool {
    name == "aten::conv2d"
}

/// Counts the floating-point operations of one call from the arguments [`DIMS`] and `Concrete Inputs` as they are
/// in the file; 0 where torch counts none or the shapes are missing.
pub fn flops(name: &str, dims: &str, concrete: &str) -> u64 {
    count(name, dims, concrete)
        .and_then(|flops| u64::try_from(flops).ok())
        .unwrap_or(0)
}

fn count(name: &str, dims: &str, concrete: &str) -> Option<i64> {
    let product = |shape: &[i64]| -> Option<i64> {
        shape
            .iter()
            .try_fold(1_i64, |product, size| product.checked_mul(*size))
    };
    match name {
        "aten::mm" => multiplied(&inputs(dims, 0)?, &inputs(dims, 1)?, 2),
        "aten::addmm" => multiplied(&inputs(dims, 1)?, &inputs(dims, 2)?, 2),
        "aten::bmm" => multiplied(&inputs(dims, 0)?, &inputs(dims, 1)?, 3),
        "aten::baddbmm" => multiplied(&inputs(dims, 1)?, &inputs(dims, 2)?, 3),
        "aten::mul" | "aten::add" => {
            let shape = inputs(dims, 0)?;
            product(&shape)
        }
        "aten::conv2d" => conv2d(&inputs(dims, 0)?, &inputs(dims, 1)?, concrete),
        _ => None,
    }
}

fn inputs(dims: &str, index: usize) -> Option<Vec<i64>> {
    numbers(elements(dims).get(index)?).filter(|sizes| sizes.iter().all(|size| *size >= 0))
}

fn multiplied(left: &[i64], right: &[i64], rank: usize) -> Option<i64> {
    if left.len() != rank || right.len() != rank {
        return None;
    }
    left.iter()
        .chain(right.last())
        .try_fold(2_i64, |product, size| product.checked_mul(*size))
}

fn conv2d(input: &[i64], weight: &[i64], concrete: &str) -> Option<i64> {
    let (
        &[batch, in_channels, in_height, in_width],
        &[out_channels, _, kernel_height, kernel_width],
    ) = (input, weight)
    else {
        return None;
    };
    let values = elements(concrete);
    let pair = |index: usize| -> Option<[i64; 2]> {
        let list = numbers(unquoted(values.get(index)?))?;
        match list.as_slice() {
            [both] => Some([*both, *both]),
            [height, width] => Some([*height, *width]),
            _ => None,
        }
    };
    let (stride, padding, dilation) = (pair(3)?, pair(4)?, pair(5)?);
    let groups: i64 = unquoted(values.get(6)?).parse().ok()?;
    let out = |size: i64, kernel: i64, axis: usize| {
        positions(size, kernel, [stride[axis], padding[axis], dilation[axis]])
    };
    let height = out(in_height, kernel_height, 0)?;
    let width = out(in_width, kernel_width, 1)?;
    let product = [
        batch,
        height,
        width,
        kernel_height,
        kernel_width,
        in_channels,
        out_channels,
    ]
    .iter()
    .try_fold(2_i64, |product, size| product.checked_mul(*size))?;
    (groups > 0).then(|| product / groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas() {
        assert_eq!(flops("aten::mm", "[[2, 3], [3, 4]]", "[]"), 48);
        assert_eq!(
            flops("aten::addmm", "[[4], [2, 3], [3, 4], [], []]", ""),
            48
        );
        assert_eq!(flops("aten::bmm", "[[5,2,3],[5,3,4]]", ""), 240);
        assert_eq!(flops("aten::add", "[[5, 2], [], []]", ""), 10);
        assert_eq!(flops("aten::relu", "[[5, 2]]", ""), 0);
        let concrete = r#"["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]"#;
        let dims = "[[8, 3, 32, 32], [8, 3, 3, 3], [8], [], [], [], []]";
        assert_eq!(
            flops("aten::conv2d", dims, concrete),
            2 * 8 * 32 * 32 * 9 * 3 * 8
        );
        assert_eq!(flops("aten::conv2d", dims, "[]"), 0);
    }

    #[test]
    fn lists_are_split_outside_brackets_and_quotes() {
        assert_eq!(
            elements(r#"["a,b", [1, 2], 3]"#),
            [r#""a,b""#, "[1, 2]", "3"]
        );
        assert!(elements("[]").is_empty());
        assert!(elements("nonsense").is_empty());
    }
}
