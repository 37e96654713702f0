//! Fuzzes the reader of pprof profiles, and the reports of them: see `stepscope_fuzz::check`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;

fuzz_target!(|bytes: &[u8]| {
    stepscope_fuzz::check(Format::Pprof, bytes);
    stepscope_fuzz::check_reports(Format::Pprof, bytes, &["pprof", "memory"]);
});
