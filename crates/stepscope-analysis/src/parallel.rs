//! Parallel scans of many tracks, with cancellation.
//!
//! The unit of work is a range of one track, so that a single long track occupies every thread. Results are
//! merged in the order of the threads, and every merge here is a sum or a maximum with a tie-break by id: the
//! result does not depend on timing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use stepscope_model::{Cancelled, TrackId};

/// Number of slices that one thread reads before it takes the next chunk (and checks for cancellation): about a
/// millisecond, many times the start of a thread.
pub const CHUNK_LEN: usize = 1 << 15;

/// A flag that cancels a running analysis.
#[derive(Debug, Default)]
pub struct Cancel(AtomicBool);

impl Cancel {
    /// Stops the analysis at its next chunk of work.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns an error once [`cancel`](Self::cancel) was called.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.0.load(Ordering::Relaxed) {
            Err(Cancelled)
        } else {
            Ok(())
        }
    }
}

/// A range of slices of one track: the unit of work of a scan.
#[derive(Clone, Debug)]
pub struct TrackChunk {
    /// The track.
    pub track: TrackId,
    /// Indexes into its slices.
    pub indexes: Range<usize>,
}

/// Splits the index ranges of tracks into chunks of at most [`CHUNK_LEN`] slices.
pub fn track_chunks(ranges: impl Iterator<Item = (TrackId, Range<usize>)>) -> Vec<TrackChunk> {
    let mut out = Vec::new();
    for (track, range) in ranges {
        let mut from = range.start;
        while from < range.end {
            let to = range.end.min(from + CHUNK_LEN);
            out.push(TrackChunk {
                track,
                indexes: from..to,
            });
            from = to;
        }
    }
    out
}

/// Returns the number of processors that this process may use; the system needs ten calls to compute it.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Runs `work` on every chunk, with one accumulator for each thread, and returns the accumulators.
/// Small jobs stay on the calling thread.
///
/// # Errors
/// [`Cancelled`] once `cancel` is set.
pub fn scan<A: Send>(
    chunks: &[TrackChunk],
    cancel: &Cancel,
    make: impl Fn() -> A + Sync,
    work: impl Fn(&mut A, &TrackChunk) + Sync,
) -> Result<Vec<A>, Cancelled> {
    let size = chunks.iter().map(|chunk| chunk.indexes.len()).sum();
    scan_items(chunks, size, cancel, make, work)
}

/// Runs `work` on every item as [`scan`] does on chunks; `size` is the number of slices in all items.
///
/// # Errors
/// [`Cancelled`] once `cancel` is set.
pub fn scan_items<T: Sync, A: Send>(
    chunks: &[T],
    size: usize,
    cancel: &Cancel,
    make: impl Fn() -> A + Sync,
    work: impl Fn(&mut A, &T) + Sync,
) -> Result<Vec<A>, Cancelled> {
    let next = AtomicUsize::new(0);
    let scan = || {
        let mut accumulator = make();
        while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            cancel.check()?;
            work(&mut accumulator, chunk);
        }
        Ok(accumulator)
    };
    let threads = if size < CHUNK_LEN {
        1
    } else {
        processors().min(chunks.len())
    };
    let results = Mutex::new(Vec::with_capacity(threads));
    let run = || {
        let result = scan();
        locked(&results).push(result);
    };
    on_threads(threads.saturating_sub(1), &run, &mut || run());
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().collect()
}

/// Runs `here` on this thread while up to `helpers` other threads run `there`: fewer where the system refuses more.
///
/// Not generic: each copy of what starts threads takes a tenth of a second to compile, and there are 70 callers.
fn on_threads(helpers: usize, there: &(dyn Fn() + Sync), here: &mut dyn FnMut()) {
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..helpers)
            .filter_map(|_| {
                std::thread::Builder::new()
                    .name("stepscope-scan".to_owned())
                    .spawn_scoped(scope, there)
                    .ok()
            })
            .collect();
        here();
        for helper in started {
            if let Err(panic) = helper.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes chunks of a column to `work`, with the index of their first value, as [`scan_items`] does with items; `size`
/// is the number of slices behind the column.
///
/// # Errors
/// [`Cancelled`] once `cancel` is set.
pub fn scan_column<T: Send, A: Send>(
    column: &mut [T],
    chunk_len: usize,
    size: usize,
    cancel: &Cancel,
    make: impl Fn() -> A + Sync,
    work: impl Fn(&mut A, usize, &mut [T]) + Sync,
) -> Result<Vec<A>, Cancelled> {
    let chunks = column.chunks_mut(chunk_len).enumerate();
    let jobs: Vec<_> = chunks
        .map(|(number, chunk)| (number * chunk_len, Mutex::new(chunk)))
        .collect();
    scan_items(&jobs, size, cancel, make, |accumulator, (first, chunk)| {
        work(accumulator, *first, &mut locked(chunk));
    })
}

/// Runs two analyses concurrently; each may use further threads.
///
/// # Errors
/// [`Cancelled`] when one of the two is cancelled.
pub fn both<A, B: Send>(
    one: impl FnOnce() -> Result<A, Cancelled>,
    other: impl FnOnce() -> Result<B, Cancelled> + Send,
) -> Result<(A, B), Cancelled> {
    let other = Mutex::new(Some(other));
    let second = Mutex::new(None);
    // Whichever thread is free first.
    let run_other = || {
        let other = locked(&other).take();
        if let Some(other) = other {
            let result = other();
            *locked(&second) = Some(result);
        }
    };
    let mut one = Some(one);
    let mut first = None;
    on_threads(1, &run_other, &mut || {
        first = one.take().map(|one| one());
        run_other();
    });
    let second = second.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((first.ok_or(Cancelled)??, second.ok_or(Cancelled)??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_visited_once() {
        let ranges = [
            (TrackId(0), 3..3),
            (TrackId(1), 5..CHUNK_LEN * 3 + 7),
            (TrackId(2), 0..2),
        ];
        let chunks = track_chunks(ranges.iter().cloned());
        let sums = scan(
            &chunks,
            &Cancel::default(),
            || 0_usize,
            |sum, chunk| *sum += chunk.indexes.clone().sum::<usize>(),
        );
        let expected: usize = ranges.into_iter().flat_map(|(_, range)| range).sum();
        assert_eq!(sums.map(|sums| sums.iter().sum()), Ok(expected));
    }

    #[test]
    fn cancelled_scan_returns_an_error() {
        let cancel = Cancel::default();
        cancel.cancel();
        let chunks = track_chunks([(TrackId(0), 0..10)].into_iter());
        assert_eq!(scan(&chunks, &cancel, || (), |(), _| ()), Err(Cancelled));
    }
}
