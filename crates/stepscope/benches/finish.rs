//! Time from the end of a capture to its bytes.
//!
//! `cargo bench -p stepscope --bench finish [-- SPANS]`: records this many spans (5 million) on two
//! threads, one in four with an argument and nested three deep, then measures the time of
//! `Capture::finish`.
#![allow(
    unsafe_code,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark: output for people"
)]

use std::time::{Duration, Instant};

use stepscope::{ExportLimits, SessionOptions, span, start_capture};

/// Spans between two pauses, so that none is dropped.
const BURST: u64 = 16_000;

/// CPU time of the whole process, seconds.
fn cpu_s() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn work(spans: u64) {
    let mut done = 0;
    while done < spans {
        for n in 0..BURST / 4 {
            let _outer = span!("outer");
            let _middle = span!("middle", n = n);
            drop(span!("first"));
            drop(span!("second"));
        }
        done += BURST;
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn main() {
    let spans = std::env::args().find_map(|word| word.parse().ok());
    let spans: u64 = spans.unwrap_or(5_000_000);
    for round in 0..5 {
        let options = SessionOptions {
            buffer_bytes: 8 << 20,
            ..SessionOptions::default()
        };
        let capture = start_capture(&options).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| work(spans / 2));
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        let cut = ExportLimits {
            max_events: (round == 4).then_some(spans / 2),
            ..ExportLimits::default()
        };
        let (start, cpu) = (Instant::now(), cpu_s());
        let mut bytes = Vec::new();
        let report = capture.finish(&mut bytes, &cut).unwrap();
        let (elapsed, cpu) = (start.elapsed(), cpu_s() - cpu);
        println!(
            "{:>9} spans, {:>9} cut, {:>5.1} MB: {:>6.1} ms, {:>6.1} ms of CPU time, {:>5.1} a million; {} dropped",
            report.spans,
            report.cut_events,
            bytes.len() as f64 / 1e6,
            elapsed.as_secs_f64() * 1e3,
            cpu * 1e3,
            cpu * 1e9 / (report.spans + report.cut_events) as f64,
            report.dropped
        );
    }
}
