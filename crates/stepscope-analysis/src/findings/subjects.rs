//! Names that locate the cause of a finding: functions, operators and kernels.

use stepscope_model::NameId;
use stepscope_store::Trace;

use super::losses::Named;

/// Lists the closest name first, then the enclosing ones; each once, without frames that only call others.
pub(super) fn words(trace: &Trace, names: &[(NameId, Named)]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let texts = || {
        names
            .iter()
            .map(|(name, _)| trace.name(*name))
            .filter(|name| !name.is_empty())
    };
    let has_specific = texts().any(|name| !only_calls(name));
    let mut candidates: Vec<&str> = texts()
        .filter(|name| !has_specific || !only_calls(name))
        .collect();
    // The program's name of a function is more specific than the stages of the compiler that it enters.
    candidates.sort_by_key(|name| !is_compiled_function(name));
    // The same holds for the loader of batches, at any depth.
    let loader = candidates
        .iter()
        .position(|name| name.contains("DataLoader"));
    if let Some(loader) = loader.filter(|position| *position >= MOST_WORDS) {
        candidates.swap(MOST_WORDS - 1, loader);
    }
    for name in candidates {
        let name = without_address(name);
        if words.len() < MOST_WORDS && !words.contains(&name) {
            words.push(name);
        }
    }
    words
}

/// Maximum number of names that locate a cause.
const MOST_WORDS: usize = 4;

/// Removes the address of a name that ends in `at 0x7fdb…>`, which differs between processes: the result is
/// `<built-in method poll of select.poll object>`.
pub(super) fn without_address(name: &str) -> String {
    match name.split_once(" at 0x") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
            format!("{before}{rest}")
        }
        None => name.to_owned(),
    }
}

/// Returns whether JAX compiles this function: `PjitFunction(train_step)`.
fn is_compiled_function(name: &str) -> bool {
    name.starts_with("PjitFunction(")
}

/// Returns whether a Python frame only calls the code of interest.
fn only_calls(name: &str) -> bool {
    const FRAMES: [&str; 15] = [
        "$traceback_util.py:",
        "$contextlib.py:",
        "$compiler.py:",
        "$profiler.py:",
        "$pjit.py:",
        "$pxla.py:",
        "torch/nn/modules/module.py(",
        "torch/_ops.py(",
        "torch/utils/_contextlib.py(",
        "torch/autograd/",
        "torch/_tensor.py(",
        "torch/fx/",
        "threading.py(",
        "runpy.py(",
        "<string>(",
    ];
    FRAMES.iter().any(|frame| name.starts_with(frame)) || name.ends_with(": <module>")
}
