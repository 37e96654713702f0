//! Functions that were compiled again: input shapes from the programs in the file (JAX), guards that failed from
//! the compile log of the run (PyTorch).

use std::collections::BTreeMap;

use stepscope_model::Cancelled;
use stepscope_store::{EventId, Trace};

use super::windows::Windows;
use crate::compilations::{CompilationRecord, by_function, compilations, has_compile_log};
use crate::parallel::Cancel;

/// Compilations of one function by `torch.compile` during the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCompilations {
    /// Name of the function.
    pub name: String,
    /// `FILE:LINE` of its definition; `None` if unknown.
    pub source: Option<String>,
    /// Number of compilations during the steps.
    pub count: u64,
    /// Guards that failed, each once; empty if the function was compiled for the first time.
    pub failed_guards: Vec<String>,
    /// The longest of the compilations.
    pub longest: EventId,
}

/// Lists the functions that a compile log shows during the steps: those that were compiled again, or all if there
/// are none. Empty without a log.
pub(super) fn functions(
    trace: &Trace,
    windows: &Windows,
    cancel: &Cancel,
) -> Result<Vec<FunctionCompilations>, Cancelled> {
    let ranges = || windows.list.iter().map(|window| &window.range);
    let start = ranges().map(|range| range.start).min();
    let end = ranges().map(|range| range.end).max();
    let Some((start, end)) = start.zip(end).filter(|_| has_compile_log(trace)) else {
        return Ok(Vec::new());
    };
    let mut records = compilations(trace, Some(&(start..end)), cancel)?;
    if records.iter().any(CompilationRecord::is_recompilation) {
        records.retain(CompilationRecord::is_recompilation);
    }
    let functions = by_function(&records).into_iter();
    Ok(functions
        .map(|function| FunctionCompilations {
            name: function.first.function.clone(),
            source: function.first.source(),
            count: function.count,
            failed_guards: function
                .failed_guards
                .into_iter()
                .map(str::to_owned)
                .collect(),
            longest: function.longest.event,
        })
        .collect())
}

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
