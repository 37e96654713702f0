//! Cost of one annotation (start and end), compared with a floor measured in the same process.
//!
//! `cargo bench -p stepscope --bench annotate [-- [--json] [CASE]]`. Each case runs in a separate
//! process, which measures the floor as well. Figures are CPU time of the recording thread, median
//! of 25 rounds; `total` adds the CPU time of the drain thread.
#![allow(
    unsafe_code,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::inline_always,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a benchmark: clocks of the system, output for people"
)]

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stepscope::{FlightOptions, SessionOptions, span};
use tracing_subscriber::prelude::*;

const ROUNDS: usize = 25;
/// Spans per round: fewer than the capacity of a ring, so that none is dropped.
const SPANS: u64 = 8_000;
const FLOOR_SPANS: u64 = 1_000_000;

fn cpu_ns(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Measures nanoseconds of this thread's CPU time for one of `count` calls; median of the rounds.
fn measure(count: u64, between: impl Fn(), mut work: impl FnMut(u64)) -> f64 {
    for n in 0..1_000 {
        work(n);
    }
    between();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID);
            for n in 0..count {
                work(black_box(n));
            }
            let took = cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin;
            between();
            took / count as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

// The floor: two reads of the time-stamp counter, and one 24-byte record in a thread-local ring.

static ON: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    begin: u64,
    end: u64,
    name: u32,
    kind: u32,
}

const RING: usize = 1 << 14;

struct Ring {
    at: usize,
    records: [Record; RING],
}

thread_local! {
    static THREAD_RING: UnsafeCell<Box<Ring>> = UnsafeCell::new(Box::new(Ring {
        at: 0,
        records: [Record { begin: 0, end: 0, name: 0, kind: 0 }; RING],
    }));
}

fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

struct FloorSpan {
    begin: u64,
    name: u32,
    on: bool,
}

impl FloorSpan {
    #[inline(always)]
    fn new(name: u32) -> Self {
        let on = ON.load(Ordering::Relaxed);
        Self {
            begin: if on { ticks() } else { 0 },
            name,
            on,
        }
    }
}

impl Drop for FloorSpan {
    #[inline(always)]
    fn drop(&mut self) {
        if self.on {
            let end = ticks();
            // SAFETY: the ring is thread-local, and no reference outlives the closure.
            THREAD_RING.with(|ring| unsafe {
                let ring = &mut **ring.get();
                let at = ring.at & (RING - 1);
                ring.records[at] = Record {
                    begin: self.begin,
                    end,
                    name: self.name,
                    kind: 0,
                };
                ring.at += 1;
            });
        }
    }
}

fn floor() -> f64 {
    ON.store(true, Ordering::Relaxed);
    let on = measure(
        FLOOR_SPANS,
        || {},
        |n| {
            drop(black_box(FloorSpan::new(n as u32)));
        },
    );
    ON.store(false, Ordering::Relaxed);
    on
}

fn floor_off() -> f64 {
    ON.store(false, Ordering::Relaxed);
    measure(
        FLOOR_SPANS * 10,
        || {},
        |n| {
            drop(black_box(FloorSpan::new(n as u32)));
        },
    )
}

struct Result {
    ns: f64,
    total_ns: Option<f64>,
    dropped: u64,
}

/// Measures `work` while a session records.
fn recording(crash_safe: bool, threads: usize, work: impl Fn(u64) + Sync) -> Result {
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        crash_safe,
        ..SessionOptions::default()
    };
    stepscope::start_trace_with(dir.path(), &options).unwrap();
    recording_with(threads, work, || stepscope::stop_trace().unwrap().dropped)
}

/// Measures `work` while the flight recorder runs.
fn flight(work: impl Fn(u64) + Sync) -> Result {
    let dir = tempfile::tempdir().unwrap();
    let options = FlightOptions {
        log_dir: Some(dir.path().to_owned()),
        ..FlightOptions::default()
    };
    stepscope::start_flight(&options).unwrap();
    recording_with(1, work, || {
        let dropped = stepscope::flight_status().unwrap().dropped;
        stepscope::stop_flight().unwrap();
        dropped
    })
}

/// Measures the flight recorder's cost to an idle program: CPU time and wake-ups.
fn idle(json: bool) {
    let dir = tempfile::tempdir().unwrap();
    let options = FlightOptions {
        log_dir: Some(dir.path().to_owned()),
        ..FlightOptions::default()
    };
    stepscope::start_flight(&options).unwrap();
    drop(span!("the only one"));
    std::thread::sleep(Duration::from_secs(1));
    let before = (cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID), wakes());
    std::thread::sleep(Duration::from_secs(10));
    let cpu_us = (cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - before.0) / 1e3 / 10.0;
    let wakes = (wakes() - before.1) as f64 / 10.0;
    stepscope::stop_flight().unwrap();
    if json {
        println!(
            "{{\"case\":\"flight recorder, idle\",\"cpu_us_per_s\":{cpu_us:.1},\"wakes_per_s\":{wakes:.1}}}"
        );
    } else {
        println!(
            "flight recorder, idle            {cpu_us:9.0} us of CPU time and {wakes:.1} wake-ups a second, over 10 s"
        );
    }
}

/// Counts how often threads of this process have gone to sleep.
fn wakes() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    statuses
        .filter_map(|status| {
            let line = status.lines().find(|line| line.starts_with("voluntary"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum()
}

fn recording_with(threads: usize, work: impl Fn(u64) + Sync, stop: impl FnOnce() -> u64) -> Result {
    let flush = || assert!(stepscope::flush_trace());
    let barrier = Barrier::new(threads);
    let before = cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let mut each: Vec<f64> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    measure(SPANS, flush, &work)
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    let total = cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
    let dropped = stop();
    each.sort_by(f64::total_cmp);
    Result {
        ns: each[threads / 2],
        total_ns: Some(total / (threads as f64 * (ROUNDS as u64 * SPANS) as f64)),
        dropped,
    }
}

fn off(work: impl FnMut(u64)) -> Result {
    Result {
        ns: measure(FLOOR_SPANS * 10, || {}, work),
        total_ns: None,
        dropped: 0,
    }
}

/// A subscriber that records nothing.
struct NoopSubscriber;

impl tracing::Subscriber for NoopSubscriber {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _attributes: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }
    fn record(&self, _id: &tracing::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _id: &tracing::Id, _follows: &tracing::Id) {}
    fn event(&self, _event: &tracing::Event<'_>) {}
    fn enter(&self, _id: &tracing::Id) {}
    fn exit(&self, _id: &tracing::Id) {}
}

thread_local! {
    static BEGIN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A subscriber that only does the floor's work: it has one span, which nothing interrupts.
struct FloorSubscriber;

impl tracing::Subscriber for FloorSubscriber {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _attributes: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }
    fn record(&self, _id: &tracing::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _id: &tracing::Id, _follows: &tracing::Id) {}
    fn event(&self, _event: &tracing::Event<'_>) {}
    fn enter(&self, _id: &tracing::Id) {
        BEGIN.with(|begin| begin.set(ticks()));
    }
    fn exit(&self, id: &tracing::Id) {
        let begin = BEGIN.with(std::cell::Cell::get);
        drop(FloorSpan {
            begin,
            name: id.into_u64() as u32,
            on: true,
        });
    }
}

const CASES: &[&str] = &[
    "off",
    "on",
    "on, 2 threads",
    "on, in memory",
    "on, in memory, 2 threads",
    "on, flight recorder",
    "on, name at run time",
    "on, one argument",
    "on, three arguments",
    "step",
    "step, watched, no session",
    "counter!",
    "counter",
    "tracing off",
    "tracing, nothing kept",
    "tracing, the floor's record",
    "tracing subscriber",
    "tracing subscriber, one field",
    "tracing layer",
];

fn run(case: &str) -> (f64, Result) {
    let is_off = case == "off" || case == "tracing off";
    let floor = if is_off { floor_off() } else { floor() };
    let plain = |_| {
        let _span = span!("span");
    };
    let traced = |_| {
        let _span = tracing::info_span!("span").entered();
    };
    let result = match case {
        "off" => off(plain),
        "on" => recording(true, 1, plain),
        "on, 2 threads" => recording(true, 2, plain),
        "on, in memory" => recording(false, 1, plain),
        "on, in memory, 2 threads" => recording(false, 2, plain),
        "on, flight recorder" => flight(plain),
        "step, watched, no session" => {
            let _watch = stepscope::StepWatch::start();
            off(|n| {
                let _step = stepscope::step(n.cast_signed());
            })
        }
        "on, name at run time" => recording(true, 1, |_| {
            let _span = stepscope::Span::enter(black_box("a name at run time"));
        }),
        "on, one argument" => recording(true, 1, |n| {
            let _span = span!("span", n = n);
        }),
        "on, three arguments" => recording(true, 1, |n| {
            let _span = span!("span", n = n, rate = 0.5, name = "text");
        }),
        "step" => recording(true, 1, |n| {
            let _step = stepscope::step(n.cast_signed());
        }),
        "counter!" => recording(true, 1, |n| stepscope::counter!("counter", n as f64)),
        "counter" => recording(true, 1, |n| stepscope::counter("counter", n as f64)),
        "tracing off" => {
            stepscope::tracing::init().unwrap();
            off(traced)
        }
        // The cost of `tracing` with any subscriber.
        "tracing, nothing kept" => {
            tracing::subscriber::set_global_default(NoopSubscriber).unwrap();
            off(traced)
        }
        // The minimum for a subscriber: the floor's two reads and its record.
        "tracing, the floor's record" => {
            tracing::subscriber::set_global_default(FloorSubscriber).unwrap();
            off(traced)
        }
        "tracing subscriber" => {
            stepscope::tracing::init().unwrap();
            recording(true, 1, traced)
        }
        "tracing subscriber, one field" => {
            stepscope::tracing::init().unwrap();
            recording(true, 1, |n| {
                let _span = tracing::info_span!("span", n).entered();
            })
        }
        "tracing layer" => {
            tracing_subscriber::registry()
                .with(stepscope::tracing::RecorderLayer::new())
                .init();
            recording(true, 1, traced)
        }
        other => panic!("no case {other}"),
    };
    (floor, result)
}

fn main() {
    let mut json = false;
    let mut case = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            // Passed by `cargo bench`.
            "--bench" => {}
            other => case = Some(other.to_owned()),
        }
    }
    let Some(case) = case else {
        if !json {
            println!(
                "{:32} {:>9} {:>9} {:>7} {:>9}",
                "", "ns", "floor", "ratio", "total"
            );
        }
        for case in CASES {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            if json {
                child.arg("--json");
            }
            child.arg(case).status().unwrap();
        }
        idle(json);
        return;
    };
    if case == "flight recorder, idle" {
        return idle(json);
    }
    let (floor, result) = run(&case);
    let ratio = result.ns / floor;
    let total = result
        .total_ns
        .map_or(String::new(), |total| format!("{total:.2}"));
    if json {
        println!(
            "{{\"case\":\"{case}\",\"ns\":{:.3},\"floor_ns\":{floor:.3},\"ratio\":{ratio:.3},\"total_cpu_ns\":{},\"dropped\":{}}}",
            result.ns,
            if total.is_empty() { "null" } else { &total },
            result.dropped
        );
    } else {
        let dropped = if result.dropped > 0 {
            format!("  {} dropped", result.dropped)
        } else {
            String::new()
        };
        println!(
            "{case:32} {:9.2} {floor:9.2} {ratio:7.2} {total:>9}{dropped}",
            result.ns
        );
    }
}
