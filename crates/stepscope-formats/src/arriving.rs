//! Texts that are read while they are still being made: inflated on one thread, read behind it on
//! another.

/// A text that grows at its end. What was there once stays where it is and as it is.
pub trait Arriving: AsRef<[u8]> + Send + Sync {
    /// Waits until there are more than `len` bytes, or until nothing more comes; tells whether more
    /// may come. How many there are is asked afterwards.
    fn wait_beyond(&self, len: usize) -> bool;
}
