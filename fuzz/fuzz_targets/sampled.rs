//! Fuzzes the readers of sampled stacks and execution traces, and the report of them: see `stepscope_fuzz::check`. The first byte chooses
//! the format.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;

const FORMATS: [Format; 6] = [
    Format::Speedscope,
    Format::CollapsedStacks,
    Format::PerfScript,
    Format::FirefoxProfile,
    Format::ExecutionTraceJson,
    Format::ChakraTrace,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    let format = FORMATS[usize::from(*choice) % FORMATS.len()];
    stepscope_fuzz::check(format, bytes);
    stepscope_fuzz::check_reports(format, bytes, &["pprof"]);
});
