//! What others tell the drain thread, and what it tells them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::drain::wakeup;
use crate::journal::circular::Snapshot;
use crate::ring::layout::{MAX_CHUNKS, RECORD_BYTES};
use crate::ring::memory::regions;

/// How much the drain thread has carried, for others to look at.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    state: AtomicU32,
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) covered_ns: AtomicU64,
}

impl Carried {
    /// Records that found no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How much of the time to be kept a flight recorder has.
    pub(crate) fn covered(&self) -> Duration {
        Duration::from_nanos(self.covered_ns.load(Ordering::Relaxed))
    }

    /// Bytes of the journal.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Events and bytes, with what lies in the rings.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let state = self.state.load(Ordering::Relaxed);
        let in_rings: u64 = regions()
            .filter(|region| region.session.load(Ordering::SeqCst) == state)
            .map(|region| {
                let head = region.head();
                let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
                let chunks = head.chunks.iter().take(limit.min(MAX_CHUNKS));
                chunks
                    .filter(|chunk| chunk.state.load(Ordering::Acquire) != 0)
                    .map(|chunk| u64::from(chunk.used.load(Ordering::Relaxed)))
                    .sum::<u64>()
            })
            .sum();
        let events = self.events.load(Ordering::Relaxed) + in_rings / RECORD_BYTES as u64;
        (events, self.bytes.load(Ordering::Relaxed) + in_rings)
    }
}

/// What the drain thread is asked for.
pub(crate) enum DrainRequest {
    /// What there is, at this moment; or since a hold began.
    Snapshot {
        since_pin: Option<u32>,
        answer: SyncSender<Snapshot>,
    },
    /// Nothing of what comes is to be written over, at the cost of so many bytes.
    Pin {
        number: u32,
        bytes: usize,
        answer: SyncSender<u64>,
    },
    /// The hold is over.
    Release { number: u32 },
}

/// Tells the drain thread to write out what there is, and to end.
#[derive(Default)]
pub(crate) struct Control {
    /// What it has done.
    pub(crate) carried: Arc<Carried>,
    wish: Mutex<Wish>,
    changed: Condvar,
}

#[derive(Default)]
struct Wish {
    stop: bool,
    /// Flushes asked for, and done.
    flushes: u64,
    flushed: u64,
    requests: Vec<DrainRequest>,
}

impl Control {
    /// For the session `state`.
    pub(crate) fn new(state: u32) -> Self {
        let control = Self::default();
        control.carried.state.store(state, Ordering::Relaxed);
        control
    }

    /// Ends the drain thread after one last pass.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
        wakeup::ring();
    }

    /// Waits until everything that was recorded before this call is in the journal. `false` when
    /// the drain thread does not answer.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        let mut wish = self.lock();
        wish.flushes += 1;
        let mine = wish.flushes;
        wakeup::ring();
        let begun = Instant::now();
        while wish.flushed < mine && !wish.stop {
            let Some(left) = patience.checked_sub(begun.elapsed()) else {
                return false;
            };
            wish = self
                .changed
                .wait_timeout(wish, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        wish.flushed >= mine
    }

    /// Asks for something of a flight recorder. `false` when it has stopped.
    pub(crate) fn ask(&self, request: DrainRequest) -> bool {
        let mut wish = self.lock();
        if wish.stop {
            return false;
        }
        wish.requests.push(request);
        drop(wish);
        wakeup::ring();
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for a period or until something is asked for. Whether to stop, and the flush that
    /// the next pass fulfils.
    pub(crate) fn wait(&self, period: Duration, long: bool) -> (bool, u64) {
        let seen = wakeup::now();
        let wish = self.lock();
        let asked = wish.stop || wish.flushes != wish.flushed || !wish.requests.is_empty();
        if asked || period.is_zero() {
            return (wish.stop, wish.flushes);
        }
        drop(wish);
        wakeup::sleep(seen, period, long);
        let wish = self.lock();
        (wish.stop, wish.flushes)
    }

    pub(crate) fn requests(&self) -> Vec<DrainRequest> {
        std::mem::take(&mut self.lock().requests)
    }

    pub(crate) fn done(&self, flush: u64) {
        let mut wish = self.lock();
        if wish.flushed < flush {
            wish.flushed = flush;
            self.changed.notify_all();
        }
    }
}
