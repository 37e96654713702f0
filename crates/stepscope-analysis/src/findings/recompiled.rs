//! Input shapes that a function was compiled for, from the programs in the file.

use std::collections::BTreeMap;

use stepscope_store::Trace;

/// Lists the shapes of the inputs that differ between the programs of a function that JAX compiled more than
/// once, each once, in the order of the programs; empty where the file does not contain them.
///
/// `subjects` name the function as JAX does: `PjitFunction(train_step)` is the program `jit_train_step`.
pub(super) fn shapes(trace: &Trace, subjects: &[String]) -> Vec<String> {
    let called = subjects.iter().find_map(|subject| {
        let rest = subject.strip_prefix("PjitFunction(")?;
        rest.strip_suffix(')')
    });
    let Some(function) = called else {
        return Vec::new();
    };
    let program = format!("jit_{function}");
    let mut shapes = Vec::new();
    for (file, facts) in trace.files().iter().enumerate() {
        if facts.modules.is_empty() {
            continue;
        }
        for inputs in differing(&inputs(trace, file, &program)) {
            let text = inputs.join(", ");
            if !shapes.contains(&text) {
                shapes.push(text);
            }
        }
    }
    shapes
}

/// Lists the shapes of the inputs of each program of this name.
fn inputs(trace: &Trace, file: usize, program: &str) -> Vec<Vec<String>> {
    let mut found: BTreeMap<Option<u64>, Vec<String>> = BTreeMap::new();
    // Instructions that were read before an error are valid.
    let _ = trace.instructions(file, &mut |instruction| {
        let is_input = instruction.entry && instruction.opcode == "parameter";
        if is_input && instruction.program == program {
            let of_program = found.entry(instruction.program_id).or_default();
            of_program.push(instruction.shape.to_owned());
        }
    });
    found.into_values().collect()
}

/// Returns the inputs of each program that differ between programs.
fn differing(programs: &[Vec<String>]) -> Vec<Vec<String>> {
    let differs = |at: usize| {
        let first = programs.first().and_then(|inputs| inputs.get(at));
        programs.iter().any(|inputs| inputs.get(at) != first)
    };
    let most = programs.iter().map(Vec::len).max().unwrap_or(0);
    let indexes: Vec<usize> = (0..most).filter(|at| differs(*at)).collect();
    if indexes.is_empty() {
        return Vec::new();
    }
    let of = |inputs: &Vec<String>| {
        let known = indexes.iter().filter_map(|at| inputs.get(*at).cloned());
        known.collect()
    };
    programs.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::differing;

    #[test]
    fn only_inputs_that_differ_are_named() {
        let program = |inputs: &[&str]| inputs.iter().map(ToString::to_string).collect();
        let programs = vec![
            program(&["f32[64]", "f32[8,64]"]),
            program(&["f32[64]", "f32[9,64]"]),
        ];
        assert_eq!(differing(&programs), [["f32[8,64]"], ["f32[9,64]"]]);
        assert!(differing(&[program(&["f32[64]"]), program(&["f32[64]"])]).is_empty());
        assert!(differing(&[]).is_empty());
    }
}
