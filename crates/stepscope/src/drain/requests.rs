//! Requests to the drain thread, and its progress counters.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::journal::circular::Snapshot;
use crate::ring::layout::{MAX_CHUNKS, RECORD_BYTES};
use crate::ring::memory::regions;
use crate::ring::wakeup;

/// Progress counters of the drain thread, which other threads read.
#[derive(Debug, Default)]
pub(crate) struct DrainProgress {
    state: AtomicU32,
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) covered_ns: AtomicU64,
}

impl DrainProgress {
    /// Number of dropped records.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Time that a flight recorder covers, at most its `keep_last`.
    pub(crate) fn covered(&self) -> Duration {
        Duration::from_nanos(self.covered_ns.load(Ordering::Relaxed))
    }

    /// Bytes of the journal.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Events and bytes so far, including those in the rings.
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

/// A request to a flight recorder's drain thread.
pub(crate) enum DrainRequest {
    /// Take a snapshot of everything, or of what follows the start of a pin.
    Snapshot {
        since_pin: Option<u32>,
        reply: SyncSender<Snapshot>,
    },
    /// Do not overwrite what follows, at the cost of at most `bytes` more memory.
    Pin {
        number: u32,
        bytes: usize,
        reply: SyncSender<u64>,
    },
    /// End the pin.
    Release { number: u32 },
}

/// Stop, flush and request channel of the drain thread.
#[derive(Default)]
pub(crate) struct Control {
    /// Progress counters.
    pub(crate) progress: Arc<DrainProgress>,
    pending: Mutex<PendingRequests>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingRequests {
    stop: bool,
    /// Flushes requested, and completed.
    flushes: u64,
    flushed: u64,
    requests: Vec<DrainRequest>,
}

impl Control {
    /// Creates the channel of the session `state`.
    pub(crate) fn new(state: u32) -> Self {
        let control = Self::default();
        control.progress.state.store(state, Ordering::Relaxed);
        control
    }

    /// Ends the drain thread after a final pass.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
        wakeup::wake();
    }

    /// Waits until everything recorded before this call is in the journal. Returns `false` when the
    /// drain thread does not reply in time.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let mut pending = self.lock();
        pending.flushes += 1;
        let flush = pending.flushes;
        wakeup::wake();
        let start = Instant::now();
        while pending.flushed < flush && !pending.stop {
            let Some(left) = timeout.checked_sub(start.elapsed()) else {
                return false;
            };
            pending = self
                .changed
                .wait_timeout(pending, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        pending.flushed >= flush
    }

    /// Sends a request to a flight recorder. Returns `false` when it has stopped.
    pub(crate) fn send(&self, request: DrainRequest) -> bool {
        let mut pending = self.lock();
        if pending.stop {
            return false;
        }
        pending.requests.push(request);
        drop(pending);
        wakeup::wake();
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for a period or until a request arrives. Returns whether to stop, and the flush that
    /// the next pass completes.
    pub(crate) fn wait(&self, period: Duration, long: bool) -> (bool, u64) {
        let seen = wakeup::now();
        let pending = self.lock();
        let has_request =
            pending.stop || pending.flushes != pending.flushed || !pending.requests.is_empty();
        if has_request || period.is_zero() {
            return (pending.stop, pending.flushes);
        }
        drop(pending);
        wakeup::sleep(seen, period, long);
        let pending = self.lock();
        (pending.stop, pending.flushes)
    }

    pub(crate) fn take_requests(&self) -> Vec<DrainRequest> {
        std::mem::take(&mut self.lock().requests)
    }

    pub(crate) fn complete_flush(&self, flush: u64) {
        let mut pending = self.lock();
        if pending.flushed < flush {
            pending.flushed = flush;
            self.changed.notify_all();
        }
    }
}
