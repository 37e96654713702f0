//! Runs work on all cores at once, and computes its rate.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use super::kernel::{Bf16Product, FLOPS, Float, Kernel, Product};

/// Measured intervals of each rate: the fastest counts, since other programs only slow it down.
const INTERVALS: u32 = 5;
/// Aimed length of an interval.
const INTERVAL: Duration = Duration::from_millis(200);
/// Memory of the buffers of the copy, of all threads together, unless the machine has less.
const COPY_BYTES: u64 = 512 << 20;
/// Largest number of repetitions in an interval.
const MAX_REPETITIONS: u64 = 1 << 32;

/// Returns time since some moment.
pub(super) type Clock<'a> = dyn FnMut() -> Duration + 'a;

/// Measures products in `f32` or `f64`, operations per second.
pub(super) fn products<T: Float>(kernel: Kernel, threads: usize, clock: &mut Clock<'_>) -> f64 {
    let new = || Product::<T>::new(kernel);
    per_second(threads, clock, FLOPS, new, Product::run)
}

/// Measures products in `bf16`, operations per second. The processor has the instructions.
pub(super) fn bf16_products(threads: usize, clock: &mut Clock<'_>) -> f64 {
    per_second(threads, clock, FLOPS, Bf16Product::new, Bf16Product::run)
}

/// Measures a copy in main memory, bytes read and written per second.
pub(super) fn copy(threads: usize, clock: &mut Clock<'_>) -> f64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let words = words_of_copy(&meminfo, threads);
    let new = || (vec![1_u64; words], vec![0_u64; words]);
    let bytes = 2.0 * (words * size_of::<u64>()) as f64;
    per_second(threads, clock, bytes, new, |(from, to)| {
        to.copy_from_slice(black_box(from));
        black_box(to);
    })
}

/// Returns the words of one buffer: two for each thread take at most a quarter of the available memory.
fn words_of_copy(meminfo: &str, threads: usize) -> usize {
    let available = meminfo.lines().find_map(|line| {
        let value = line.strip_prefix("MemAvailable:")?.trim();
        let kibibytes: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    });
    let all = available.map_or(COPY_BYTES, |available| COPY_BYTES.min(available / 4));
    let each = all / (2 * threads.max(1) as u64 * size_of::<u64>() as u64);
    usize::try_from(each).unwrap_or(usize::MAX).max(1)
}

/// Runs `work` on all threads at once, again and again, and returns the largest amount per second.
fn per_second<State>(
    threads: usize,
    clock: &mut Clock<'_>,
    amount: f64,
    new: impl Fn() -> State + Sync,
    work: impl Fn(&mut State) + Sync,
) -> f64 {
    let repetitions = AtomicU64::new(1);
    // Of the threads that the system granted, and the one that reads the clock.
    let barrier = OnceLock::new();
    let mut best = 0.0_f64;
    std::thread::scope(|scope| {
        let mut granted = 0;
        for number in 0..threads.max(1) {
            let thread = std::thread::Builder::new().name(format!("stepscope-peak-{number}"));
            let (barrier, repetitions, new, work) = (&barrier, &repetitions, &new, &work);
            let spawned = thread.spawn_scoped(scope, move || {
                let barrier: &Barrier = barrier.wait();
                let mut state = new();
                work(&mut state);
                for _ in 0..=INTERVALS {
                    barrier.wait();
                    for _ in 0..repetitions.load(Ordering::Acquire) {
                        work(&mut state);
                    }
                    barrier.wait();
                }
            });
            granted += usize::from(spawned.is_ok());
        }
        let barrier = barrier.get_or_init(|| Barrier::new(granted + 1));
        for interval in 0..=INTERVALS {
            let count = repetitions.load(Ordering::Acquire);
            barrier.wait();
            let start = clock();
            barrier.wait();
            let took = clock().saturating_sub(start);
            if interval == 0 {
                let count = repetitions_for(took);
                repetitions.store(count, Ordering::Release);
            } else {
                best = best.max(rate(amount, count, granted, took));
            }
        }
    });
    best
}

/// Returns how many repetitions take an interval, if one takes `once`.
fn repetitions_for(once: Duration) -> u64 {
    let count = INTERVAL.as_nanos() / once.as_nanos().max(1);
    u64::try_from(count)
        .unwrap_or(u64::MAX)
        .clamp(1, MAX_REPETITIONS)
}

/// Returns the amount per second of all threads; 0 without time.
fn rate(amount: f64, repetitions: u64, threads: usize, took: Duration) -> f64 {
    let seconds = took.as_secs_f64();
    if seconds > 0.0 {
        amount * repetitions as f64 * threads as f64 / seconds
    } else {
        0.0
    }
}

/// Rounds a rate to whole operations or bytes.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and far below 2^64"
)]
pub(super) fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_amounts_over_time() {
        let second = Duration::from_secs(1);
        assert!((rate(3.0, 10, 4, second * 2) - 60.0).abs() < 1e-9);
        assert!(rate(3.0, 10, 4, Duration::ZERO) <= 0.0);
        assert_eq!(repetitions_for(Duration::from_millis(1)), 200);
        assert_eq!(repetitions_for(second), 1);
        assert_eq!(repetitions_for(Duration::ZERO), 200_000_000);
        assert_eq!(whole(1.6), 2);
    }

    /// A clock that goes on by a second at each look: the amounts of the last intervals count.
    #[test]
    fn all_threads_work_in_each_interval() {
        let mut seconds = 0;
        let mut clock = || {
            seconds += 1;
            Duration::from_secs(seconds)
        };
        let done = AtomicU64::new(0);
        let found = per_second(
            3,
            &mut clock,
            5.0,
            || (),
            |()| {
                done.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert!((found - 15.0).abs() < 1e-9, "{found}");
        // A first run of each thread, the interval that counts repetitions, and the measured ones.
        assert_eq!(done.into_inner(), 3 * (2 + u64::from(INTERVALS)));
    }

    #[test]
    fn buffers_of_the_copy_fit_into_memory() {
        let small = "MemTotal: 90000 kB\nMemAvailable:   65536 kB\n";
        assert_eq!(words_of_copy(small, 2), (16 << 20) / 4 / 8);
        assert_eq!(words_of_copy("", 2), (512 << 20) / 4 / 8);
        assert_eq!(words_of_copy("MemAvailable: 0 kB", 2), 1);
    }
}
