//! Fuzzes the reader of compiled programs inside XSpace files: no input makes it panic, and its
//! output is bounded by the input.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut found = 0;
    stepscope_formats::hlo::instructions(bytes, None, None, &mut |instruction| {
        found += 1;
        assert!(instruction.name.len() <= 3 * bytes.len());
        assert!(instruction.shape.len() <= 1024);
    });
    assert!(found <= bytes.len());
});
