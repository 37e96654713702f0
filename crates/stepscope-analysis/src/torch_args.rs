//! Arguments of torch's operators, as kineto writes them: shapes and values of the inputs, as JSON texts.

use stepscope_model::{ArgKeys, ArgValue};
use stepscope_store::{EventId, Trace};

use crate::names::json_on_one_line;

/// Keys of the argument with the shapes of an operator's inputs; files of 2021 use the second one.
pub const DIMS: [&str; 2] = ["Input Dims", "Input dims"];

/// Returns whether an argument has the shapes of an operator's inputs.
pub fn is_dims(key: &str) -> bool {
    DIMS.contains(&key)
}

/// Returns the shapes of an operator's inputs, as JSON on one line; `None` without them.
pub fn input_shapes(trace: &Trace, operator: EventId) -> Option<String> {
    let mut shapes = None;
    // Without arguments there are no shapes.
    let _ = trace.args_of(operator, ArgKeys::new(&DIMS), &mut |_, value| {
        if let ArgValue::Json(text) | ArgValue::Str(text) = value {
            shapes = Some(json_on_one_line(text).into_owned());
        }
    });
    shapes
}

/// Reads a list of whole numbers in JSON text: `[8, 3, 32, 32]`. Returns `None` for any other text.
pub(crate) fn numbers(text: &str) -> Option<Vec<i64>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

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
