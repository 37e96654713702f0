//! The `stepscope` command inside the extension: one wheel has both.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command; `arguments` begin with the program's name. The exit code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| stepscope_cli::main_with(arguments))
}
