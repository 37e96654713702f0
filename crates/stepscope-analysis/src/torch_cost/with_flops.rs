//! Operations as torch's own profiler counts them.
//!
//! torch counts while it records (`with_flops=True`) but does not write the counts to the file; with
//! `record_shapes=True` the file has all inputs of the formulas:
//!
//! ```text
//! mm, addmm, bmm, baddbmm, conv2d   as in [`torch_cost`](super)
//! add, mul                          elements of the first input
//! ```
//! It counts no backward pass of a convolution and no attention.

use super::inputs::{CallArgs, Inputs, product};
use super::{convolution, matmul};

const PRODUCTS: [&str; 4] = ["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"];

/// Returns whether torch counts the operations of calls of this name.
pub fn is_counted(name: &str) -> bool {
    PRODUCTS.contains(&name) || matches!(name, "aten::mul" | "aten::add" | "aten::conv2d")
}

/// Returns whether such a call needs the values of its inputs in addition to their shapes.
pub fn needs_values(name: &str) -> bool {
    name == "aten::conv2d"
}

/// Counts the floating-point operations of one call from the arguments `Input Dims` and `Concrete Inputs`; 0 where
/// torch counts none or the shapes are missing.
pub fn flops(name: &str, dims: &str, concrete: &str) -> u64 {
    if !is_counted(name) {
        return 0;
    }
    let inputs = Inputs::new(CallArgs {
        dims,
        concrete,
        ..CallArgs::default()
    });
    let count = match name {
        "aten::mul" | "aten::add" => inputs.sizes(0).and_then(|sizes| product(&sizes)),
        "aten::conv2d" => convolution::plain_flops(&inputs).filter(|_| inputs.number(6) > Some(0)),
        _ => matmul::form(name).and_then(|form| form.flops(&inputs)),
    };
    count.unwrap_or(0)
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
}
