//! Passes traces of arbitrary structure to every report and every export: nothing panics.

mod check;
mod generate;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use stepscope_store::Trace;

/// Number of generated traces.
const TRACES: u64 = 100;

/// Computes the bytes of a seed (`SplitMix64`).
fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = (0..1_024).map(|_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    });
    words.flat_map(u64::to_le_bytes).collect()
}

/// Passes a trace to every check; returns the names of the checks that panic.
fn failures(context: &str, trace: &Trace) -> Vec<String> {
    let failed = |part: fn(&Trace)| catch_unwind(AssertUnwindSafe(|| part(trace))).is_err();
    let parts = check::PARTS.iter().filter(|part| failed(part.1));
    parts.map(|part| format!("{context}: {}", part.0)).collect()
}

#[test]
fn arbitrary_traces_pass_every_report_and_export() {
    let next = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let check = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= TRACES {
                return;
            }
            let found = match catch_unwind(|| generate::trace(&bytes(seed))) {
                Ok(trace) => failures(&format!("seed {seed}"), &trace),
                Err(_) => vec![format!("seed {seed}: the store")],
            };
            failed.lock().unwrap().extend(found);
        }
    };
    // It takes longer than all other tests together.
    std::thread::scope(|scope| {
        scope.spawn(check);
        check();
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Files that once made a report panic, and extreme values of each kind of event.
#[test]
fn corpus_files_pass_every_report_and_export() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/structured/corpus");
    let mut failed = Vec::new();
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        files += 1;
        for run in stepscope_test_data::runs::open(&path) {
            failed.extend(failures(&path.display().to_string(), &run.trace));
        }
    }
    assert!(files >= 3, "{files} files");
    assert!(failed.is_empty(), "{failed:#?}");
}
