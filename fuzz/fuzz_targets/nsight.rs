//! Fuzzes the reader of exports of Nsight Systems, and with it that of SQLite's file format: see `stepscope_fuzz::check`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;

fuzz_target!(|bytes: &[u8]| stepscope_fuzz::check(Format::NsightSystems, bytes));
