//! Test of very many short threads.

use std::thread;

use stepscope::{SessionOptions, span, start_trace_with, stop_trace};

use crate::{exclusive, flush, read};

const BATCHES: u64 = 200;
const AT_ONCE: u64 = 50;
/// Number of batches between two flushes.
const UNWATCHED: u64 = 5;

fn maps() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().count()
}

fn batch(first: u64) {
    let one = |number: u64| {
        move || {
            let _outer = span!("outer", number = number);
            let _inner = span!("inner");
        }
    };
    let threads: Vec<_> = (first..first + AT_ONCE)
        .map(|number| thread::spawn(one(number)))
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn ten_thousand(crash_safe: bool) {
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        crash_safe,
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    for number in 0..BATCHES / 10 {
        batch(number * AT_ONCE);
    }
    let before = maps();
    for number in BATCHES / 10..BATCHES {
        batch(number * AT_ONCE);
        // The drain thread gives the rings of ended threads to new ones, once it runs.
        if number.is_multiple_of(UNWATCHED) {
            flush();
        }
    }
    let more = maps().saturating_sub(before);
    let report = stop_trace().unwrap();
    assert_eq!(
        (report.spans, report.unfinished),
        (2 * BATCHES * AT_ONCE, 0)
    );
    assert_eq!(report.dropped, 0);
    // At most the rings of the threads between two flushes, each in a few mappings.
    let most = usize::try_from(4 * UNWATCHED * AT_ONCE).unwrap();
    assert!(more < most, "{more} more mappings for 9,000 more threads");
    let probe = read(&report.path);
    let mut numbers: Vec<String> = probe
        .slices
        .iter()
        .filter(|slice| slice.name == "outer")
        .flat_map(|slice| probe.args(slice.args))
        .map(|(_, value)| value)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, BATCHES * AT_ONCE);
}

#[test]
fn ten_thousand_short_threads_lose_no_event_and_leak_no_mapping() {
    let _exclusive = exclusive();
    ten_thousand(true);
    ten_thousand(false);
}
