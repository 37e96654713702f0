//! The `stepscope` command; the library implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    stepscope_cli::main()
}
