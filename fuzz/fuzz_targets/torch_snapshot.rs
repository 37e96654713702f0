//! Fuzzes the reader of PyTorch's memory snapshots, the report of them, and the allocator's state after any event.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stepscope_analysis::memory::history::AllocatorHistory;
use stepscope_analysis::memory::snapshot::AllocatorSums;
use stepscope_analysis::parallel::Cancel;
use stepscope_formats::{Format, arg_source};
use stepscope_model::{Limits, ReadContext, SharedBytes};

fuzz_target!(|bytes: &[u8]| {
    stepscope_fuzz::check(Format::TorchSnapshot, bytes);
    stepscope_fuzz::check_reports(Format::TorchSnapshot, bytes, &["memory"]);
    let shared: SharedBytes = Arc::new(bytes.to_vec());
    let context = ReadContext::new(Limits::default());
    let source = arg_source(Format::TorchSnapshot, &shared, &context).expect("it opens no file");
    let Ok(Some(snapshot)) = source.memory_snapshot() else {
        return;
    };
    for device in snapshot.devices().into_iter().take(4) {
        let history = AllocatorHistory::new(&snapshot, device, &Cancel::default());
        let history = history.expect("nothing cancels it");
        for count in [0, snapshot.events.len() / 2, usize::MAX] {
            let segments = history.segments_after(count);
            let blocks: usize = segments.iter().map(|segment| segment.blocks.len()).sum();
            assert!(segments.len() + blocks <= 4 * bytes.len() + 4);
            let sums = AllocatorSums::new(&segments);
            assert!(sums.allocated <= sums.active);
        }
    }
});
