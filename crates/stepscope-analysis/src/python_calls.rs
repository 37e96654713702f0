//! Names of slices that are calls of Python functions.

use stepscope_model::NameId;
use stepscope_model::vocabulary::kineto;
use stepscope_store::Trace;

/// Returns the category that torch gives to Python functions, if the trace has it.
pub fn torch_category(trace: &Trace) -> Option<NameId> {
    let found = trace.find_names(&mut kineto::is_python_function);
    found.into_iter().next()
}

/// Returns whether JAX's tracer or ours gave this name to a Python function: `$file.py:12 name`, `$module name`.
pub fn is_call(name: &str) -> bool {
    name.strip_prefix('$').is_some_and(|rest| {
        rest.split_once(' ')
            .is_some_and(|(location, function)| !location.is_empty() && !function.is_empty())
    })
}

/// Returns whether a tracer gave this name to a Python function: see [`is_call`], or in the form of torch
/// (`file.py(12): name`, `<built-in method …>`).
pub fn is_function(name: &str) -> bool {
    is_call(name) || name.contains(".py(") && name.contains("): ") || name.starts_with("<built-in ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traced_calls_have_a_location_and_a_function() {
        assert!(is_call("$a.py:1 f") && !is_call("$a") && !is_call("a.py:1 f"));
        assert!(is_function("a.py(1): f") && !is_function("a.py"));
    }
}
