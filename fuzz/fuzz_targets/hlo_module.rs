//! Fuzzes the reader of compiled programs, their cost analysis and their memory plan: no input makes
//! them panic, and their output is bounded by the input.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::hlo::Module;
use stepscope_hlo::cost::Analysis;
use stepscope_hlo::memory::{Plan, program_order};

fuzz_target!(|bytes: &[u8]| {
    let mut found = 0;
    stepscope_formats::hlo::instructions(bytes, None, None, &mut |instruction| {
        found += 1;
        assert!(instruction.name.len() <= 3 * bytes.len());
        assert!(instruction.shape.len() <= 1024);
    });
    assert!(found <= bytes.len());
    let Some(module) = Module::read(bytes) else {
        return;
    };
    assert_eq!(Analysis::new(&module).instructions.len(), module.instructions.len());
    assert!(program_order(&module).len() <= module.instructions.len());
    if let Some(plan) = Plan::new(&module) {
        for space in plan.spaces {
            assert!(space.xprof.points.len() <= bytes.len() + 1);
        }
    }
});
