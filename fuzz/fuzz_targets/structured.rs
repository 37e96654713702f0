//! Fuzzes every report and every export with traces of arbitrary structure: the generator and the
//! checks are those of the engine's tests.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stepscope-engine/tests/it/structured/check.rs"]
mod check;
#[path = "../../crates/stepscope-engine/tests/it/structured/generate.rs"]
mod generate;

fuzz_target!(|bytes: &[u8]| {
    let trace = generate::trace(bytes);
    for (_, part) in check::PARTS {
        part(&trace);
    }
});
