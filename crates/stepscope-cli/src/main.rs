//! The `stepscope` command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    stepscope_cli::main()
}
