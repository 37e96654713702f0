//! The text of an HLO instruction.

/// Returns `copy-done.4` and `copy-done` of `%copy-done.4 = f32[5,1024]{1,0} copy-done(...)`. Returns a bare name
/// unchanged, with the text before its number as opcode.
pub fn name_and_opcode(text: &str) -> (&str, &str) {
    let Some((name, rest)) = text.split_once(" = ") else {
        let name = text.strip_prefix('%').unwrap_or(text);
        return (name, name.split_once('.').map_or(name, |(base, _)| base));
    };
    let name = name.trim_start_matches("ROOT ").trim_start();
    let name = name.strip_prefix('%').unwrap_or(name);
    // The shape may be a tuple with blanks in it: skip its parentheses.
    let mut depth = 0_usize;
    let mut after = rest;
    for (at, letter) in rest.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => {
                after = rest.get(at + 1..).unwrap_or("");
                break;
            }
            _ => {}
        }
    }
    let opcode = after.split('(').next().unwrap_or("").trim();
    (name, opcode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_opcodes_of_expressions() {
        for (text, expected) in [
            (
                "%copy-start = (f32[5,1]{1,0}, u32[] {:S(2)}) copy-start(f32[5] %p)",
                ("copy-start", "copy-start"),
            ),
            (
                "%fusion.2 = f32[512]{0} fusion(f32[512] %dot.1), kind=kLoop",
                ("fusion.2", "fusion"),
            ),
            ("ROOT %tuple.1 = (f32[]) tuple(%a)", ("tuple.1", "tuple")),
            ("dot_general.4", ("dot_general.4", "dot_general")),
            ("", ("", "")),
            ("%x = ", ("x", "")),
        ] {
            assert_eq!(name_and_opcode(text), expected, "{text}");
        }
    }
}
