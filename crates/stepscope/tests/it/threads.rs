//! Very many threads, each for a moment.

use std::thread;

use stepscope::{SessionOptions, span, start_trace_with, stop_trace};

use crate::{alone, read};

const BATCHES: u64 = 200;
const AT_ONCE: u64 = 50;
/// Batches in which nobody waits for the drain thread.
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
        // The drain thread gives the rings of ended threads to new ones, when it has its turn.
        if number.is_multiple_of(UNWATCHED) {
            assert!(stepscope::flush_trace());
        }
    }
    let more = maps().saturating_sub(before);
    let report = stop_trace().unwrap();
    assert_eq!(
        (report.spans, report.unfinished),
        (2 * BATCHES * AT_ONCE, 0)
    );
    assert_eq!(report.dropped, 0);
    // At most the rings of the threads between two turns, each in a few mappings.
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
fn ten_thousand_short_ones_lose_nothing_and_leave_nothing() {
    let _alone = alone();
    ten_thousand(true);
    ten_thousand(false);
}
