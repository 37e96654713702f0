//! Fuzzes the reader of flight recorder dumps, and the report of their collectives: see `stepscope_fuzz::check`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;

fuzz_target!(|bytes: &[u8]| {
    stepscope_fuzz::check(Format::NcclFlightRecorder, bytes);
    stepscope_fuzz::check_reports(Format::NcclFlightRecorder, bytes, &["collectives"]);
});
