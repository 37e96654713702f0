//! Writes a synthetic compiled program of any size: `hlo_program INSTRUCTIONS FILE`.
//!
//! A file `*.xplane.pb` is a profile that contains the program and one execution of it; any other file
//! (`*.hlo_proto.pb`) is the program alone.

#![allow(clippy::print_stderr, reason = "a command talks on the terminal")]
#![allow(
    clippy::disallowed_methods,
    reason = "it writes the file that it was asked for"
)]

use std::process::ExitCode;

use stepscope_test_data::hlo;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [instructions, file] = arguments.as_slice() else {
        eprintln!("usage: hlo_program INSTRUCTIONS FILE.xplane.pb|FILE.hlo_proto.pb");
        return ExitCode::from(2);
    };
    let Ok(instructions) = instructions.parse() else {
        eprintln!("error: '{instructions}' is no number of instructions");
        return ExitCode::from(2);
    };
    let program = hlo::program(instructions);
    let bytes = if file.ends_with(".xplane.pb") {
        hlo::xspace(&program)
    } else {
        program.proto
    };
    match std::fs::write(file, bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write {file}: {error}");
            ExitCode::FAILURE
        }
    }
}
