//! Measures building, memory, levels of detail and cache images on a made-up trace.
//!
//! `cargo run --release -p stepscope-store --example measure -- [MILLIONS [TRACKS [DEPTH]]]`
#![allow(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a program for people, with small numbers"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use stepscope_model::{ArgRef, Dur, EventSink, NameId, SharedBytes, SliceIn, SourceId, Time};
use stepscope_store::{FileSpec, Trace, TraceBuilder};

/// Resident memory of this process, now and at its peak, in MiB.
fn memory_mib() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
            / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Time that this thread has run: fair on a machine that others use, too.
fn thread_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = times.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ran.unwrap_or(0))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Times `run` five times: the median of this thread's time.
fn median(mut run: impl FnMut() -> usize) -> (f64, usize) {
    let mut result = 0;
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let begin = thread_time();
            result = run();
            ms(thread_time().saturating_sub(begin))
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[2], result)
}

/// Nested slices in time order: each level splits its parent in `fan` children.
fn emit(builder: &mut TraceBuilder, slices: usize, tracks: usize, depth: usize, shuffled: bool) {
    let mut sink = builder.file(FileSpec::default());
    let names: Vec<NameId> = (0..500).map(|i| sink.name(&format!("name {i}"))).collect();
    let ids: Vec<_> = (0..tracks).map(|i| sink.track(&format!("1/{i}"))).collect();
    let each = slices / tracks;
    for (number, track) in ids.iter().enumerate() {
        let mut state = number as u64 * 7 + 1;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut emitted = 0;
        let mut now = 0_i64;
        while emitted < each {
            // One stack of `depth` slices with three leaves.
            let length = 4_000_000 + random(1_000_000) as i64;
            let stack = depth.min(each - emitted);
            for level in 0..stack {
                let inset = level as i64 * 100_000;
                let leaf = level + 1 == depth;
                let dur = if leaf { 800_000 } else { length - 2 * inset };
                let count = if leaf { 3.min(each - emitted) } else { 1 };
                for leaf in 0..count as i64 {
                    let start = now + inset + leaf * 1_000_000;
                    let start = if shuffled { start ^ 0x40_0000 } else { start };
                    sink.slice(
                        *track,
                        SliceIn {
                            start: Time::from_ps(start),
                            dur: Dur::from_ps(dur),
                            name: names[random(500) as usize],
                            args: ArgRef::new(SourceId(0), emitted as u64 * 17),
                            ..SliceIn::default()
                        },
                    );
                    emitted += 1;
                }
            }
            now += length + random(300_000) as i64;
        }
    }
    builder.add(sink);
}

fn windows(trace: &Trace, bins: u32) {
    let span = trace.span();
    let length = span.end.since(span.start).ps();
    for part in [1, 10, 1_000, 100_000] {
        let begin = Time::from_ps(span.start.ps() + length / 3 * i64::from(part > 1));
        let window = begin..Time::from_ps(begin.ps() + length / part);
        let (time, items) = median(|| {
            trace
                .tracks()
                .iter()
                .map(|track| trace.items(track.id, window.clone(), bins).len())
                .sum()
        });
        println!("items 1/{part:<7} {time:9.3} ms  {items} items");
    }
    let all: Vec<_> = trace.tracks().iter().map(|track| track.id).collect();
    let (time, _) = median(|| trace.busy_strip(&all, span.clone(), bins).len());
    println!("busy strip, all {time:9.3} ms");
}

fn main() {
    let argument = |place: usize, default: usize| {
        std::env::args()
            .nth(place)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let slices = (std::env::args().nth(1))
        .and_then(|text| text.parse::<f64>().ok())
        .map_or(5_800_000, |millions| (millions * 1e6) as usize);
    let (tracks, depth) = (argument(2, 64), argument(3, 4));
    let shuffled = std::env::args().nth(4).is_some();
    let before = memory_mib().0;

    let begin = thread_time();
    let mut builder = TraceBuilder::new();
    emit(&mut builder, slices, tracks, depth, shuffled);
    let emitted = thread_time().saturating_sub(begin);
    let at_emit = memory_mib();
    let begin = Instant::now();
    let trace = builder.finish();
    let finished = begin.elapsed();
    let (now, peak) = memory_mib();
    let count = trace.slice_count();
    let per = |mib: u64| (mib - before) as f64 * 1_048_576.0 / count as f64;
    println!("{count} slices, {tracks} tracks, depth {depth}");
    println!(
        "emit   {:9.1} ms  ({:.1} ns a slice)",
        ms(emitted),
        emitted.as_nanos() as f64 / count as f64
    );
    println!(
        "finish {:9.1} ms  ({:.1} ns a slice)",
        ms(finished),
        finished.as_nanos() as f64 / count as f64
    );
    println!(
        "memory, bytes a slice: emitted {:.1}, peak {:.1}, finished {:.1} resident, {:.1} counted",
        per(at_emit.0),
        per(peak),
        per(now),
        trace.heap_bytes() as f64 / count as f64
    );
    let begin = thread_time();
    let items: usize = trace
        .tracks()
        .iter()
        .map(|track| trace.items(track.id, trace.span(), 800).len())
        .sum();
    println!(
        "first whole answer {:.1} ms, {items} items",
        ms(thread_time().saturating_sub(begin))
    );
    windows(&trace, 800);

    let mut image = Vec::new();
    let begin = Instant::now();
    trace.save(&mut image).expect("a vector takes all");
    println!(
        "save {:9.1} ms, {:.1} bytes a slice",
        ms(begin.elapsed()),
        image.len() as f64 / count as f64
    );
    drop(trace);
    let image: SharedBytes = Arc::new(image);
    let begin = Instant::now();
    match Trace::load(image, Vec::new()) {
        Ok(trace) => {
            println!("load {:9.3} ms", ms(begin.elapsed()));
            windows(&trace, 800);
        }
        Err(error) => println!("load: {error}"),
    }
}
