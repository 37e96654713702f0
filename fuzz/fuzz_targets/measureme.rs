//! Fuzzes the reader of rustc's self-profiles: see `stepscope_fuzz::check`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;

fuzz_target!(|bytes: &[u8]| stepscope_fuzz::check(Format::Measureme, bytes));
