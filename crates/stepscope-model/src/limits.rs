//! Limits on the cost of reading a file, and progress and cancellation of a read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum nesting depth that is drawn; deeper slices share the last row.
pub const MAX_DEPTH: u16 = 4_096;

/// Limits on the cost of reading one file. Diagnostics show the name of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `max_inflated_bytes`: maximum size of a compressed file after decompression.
    pub max_inflated_bytes: u64,
    /// `max_inflate_ratio`: maximum number of output bytes per input byte, checked after 64 MiB of
    /// output.
    pub max_inflate_ratio: u64,
    /// `max_tracks`: maximum number of tracks in one file.
    pub max_tracks: u32,
    /// `max_json_depth`: maximum nesting of values inside one JSON event.
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

/// The user cancelled the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Limits, progress and cancellation of one read. Shared by its threads.
#[derive(Debug)]
pub struct ReadContext {
    /// Limits.
    pub limits: Limits,
    /// Number of threads that a reader may use, at least 1.
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
    /// Creates a context with as many threads as the machine has.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            read_bytes: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
        }
    }

    /// Adds the bytes processed since the last call. Readers call it regularly.
    ///
    /// # Errors
    ///
    /// Fails after [`cancel`](Self::cancel).
    pub fn advance(&self, bytes: u64) -> Result<(), Cancelled> {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Cancelled);
        }
        Ok(())
    }

    /// Returns the number of bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Makes the next [`advance`](Self::advance) fail.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}
