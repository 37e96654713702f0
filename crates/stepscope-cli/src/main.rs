//! The `stepscope` command; the library implements it.

use std::process::ExitCode;

/// The loader calls it before Rust's runtime starts.
#[cfg(target_os = "linux")]
#[used]
#[allow(unsafe_code, reason = "the section holds functions of this type")]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = stepscope_cli::run::note_inherited_signals;

fn main() -> ExitCode {
    stepscope_cli::main()
}
