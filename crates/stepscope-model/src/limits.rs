//! Bounds on what reading a file may cost, and how a reading is watched and stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Deepest nesting that is drawn; deeper slices share the last row.
pub const MAX_DEPTH: u16 = 4_096;

/// Bounds on what reading one file may cost. Each has a name that diagnostics use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `max_inflated_bytes`: most bytes that a compressed file may inflate to.
    pub max_inflated_bytes: u64,
    /// `max_inflate_ratio`: most bytes out per byte in, looked at past 64 MiB out.
    pub max_inflate_ratio: u64,
    /// `max_tracks`: most tracks of one file.
    pub max_tracks: u32,
    /// `max_json_depth`: deepest nesting of values inside one JSON event.
    pub max_json_depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_inflated_bytes: 16 << 30,
            max_inflate_ratio: 250,
            max_tracks: 1 << 20,
            max_json_depth: 512,
        }
    }
}

/// The user asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// How a reading is bounded, watched and stopped. Shared by the threads of one reading.
#[derive(Debug)]
pub struct ReadContext {
    /// Bounds.
    pub limits: Limits,
    /// Threads that a reader may use, at least 1.
    pub threads: usize,
    read_bytes: AtomicU64,
    cancelled: AtomicBool,
}

impl Default for ReadContext {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl ReadContext {
    /// With as many threads as the machine has.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            read_bytes: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Readers call this now and then, with the bytes done since the last call.
    pub fn advance(&self, bytes: u64) -> Result<(), Cancelled> {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Cancelled);
        }
        Ok(())
    }

    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Makes the next [`advance`](Self::advance) fail.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
