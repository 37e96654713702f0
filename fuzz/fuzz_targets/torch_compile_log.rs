//! Fuzzes the reader of logs of `torch.compile`, and the report of them: see `stepscope_fuzz::check`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;

fuzz_target!(|bytes: &[u8]| {
    stepscope_fuzz::check(Format::TorchCompileLog, bytes);
    stepscope_fuzz::check_reports(Format::TorchCompileLog, bytes, &["compilations"]);
});
