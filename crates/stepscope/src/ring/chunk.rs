//! Lock-free sharing of a ring's chunks between the owning thread and the drain thread.
//!
//! Each side publishes with one Release store after the data, and the other side loads that word
//! with Acquire: [`ChunkHead::used`] for records, [`ChunkHead::state`] for whole chunks. There is
//! no read-modify-write and no fence. `cargo xtask sanitize` compiles this file against loom, which
//! explores every interleaving of the two threads.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// One record as both threads access it. Relaxed stores compile to plain stores; the Release store
/// of [`ChunkHead::used`], or of an open slot's `meta`, publishes the record.
#[repr(C)]
pub(crate) struct Record {
    /// Word 0.
    pub(crate) key: AtomicU64,
    /// Word 1.
    pub(crate) value: AtomicU64,
    /// Word 2.
    pub(crate) meta: AtomicU64,
}

impl Record {
    /// Writes the three words. Owner only; no thread reads them before [`publish`].
    #[inline]
    pub(crate) fn put(&self, words: [u64; 3]) {
        self.key.store(words[0], Ordering::Relaxed);
        self.value.store(words[1], Ordering::Relaxed);
        self.meta.store(words[2], Ordering::Relaxed);
    }

    /// Whether a span occupies this open slot. Owner only.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.meta.load(Ordering::Relaxed) != 0
    }
}

/// State of one chunk.
///
/// `state` is 0 while the chunk is free, else `sequence << 1`, with bit 0 set once the owner has
/// left the chunk. When the drain thread finds bit 0 set, `used` is final, and the drain thread may
/// give the chunk back after it has written the content.
#[repr(C)]
pub(crate) struct ChunkHead {
    /// 0 for a free chunk, else `sequence << 1 | left`; see the type.
    pub(crate) state: AtomicU32,
    /// Bytes of complete records.
    pub(crate) used: AtomicU32,
}

/// State of a chunk in use, as the drain thread sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// Position of the chunk in the order of use.
    pub(crate) sequence: u32,
    /// Bytes of complete records that may be read.
    pub(crate) used: u32,
    /// Whether the owner has left the chunk; `used` is then final.
    pub(crate) left: bool,
}

impl ChunkHead {
    /// Returns whether the owner can take the chunk. Owner only.
    pub(crate) fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    /// Takes a free chunk and gives it this sequence number. Owner only.
    pub(crate) fn take(&self, sequence: u32) {
        self.used.store(0, Ordering::Relaxed);
        self.state.store(sequence << 1, Ordering::Release);
    }

    /// Leaves the chunk for another one. Owner only.
    pub(crate) fn leave(&self, sequence: u32) {
        self.state.store(sequence << 1 | 1, Ordering::Release);
    }

    /// Returns the readable state of the chunk, `None` for a free one. Drain thread only.
    pub(crate) fn published(&self) -> Option<Published> {
        // Loads the state first: once it has the bit for a left chunk, `used` no longer changes.
        let state = self.state.load(Ordering::Acquire);
        (state != 0).then(|| Published {
            sequence: state >> 1,
            used: self.used.load(Ordering::Acquire),
            left: state & 1 == 1,
        })
    }

    /// Frees a chunk that its owner has left, after its content was written. Drain thread only.
    pub(crate) fn give_back(&self) {
        self.state.store(0, Ordering::Release);
    }
}

/// Lists the readable chunks with their indexes, in the order in which they were filled. `next` is
/// the sequence number after the last chunk that was given back. Drain thread only.
///
/// The owner takes chunks while their heads are read, so a head that was read early may be older
/// than the others. In that case all heads are read again, and the result contains a later chunk
/// only together with the whole of all earlier ones. Everything published before the call is in the
/// result.
pub(crate) fn in_order(heads: &[ChunkHead], next: u32) -> Vec<(usize, Published)> {
    const READINGS: usize = 3;
    let mut found: Vec<(usize, Published)> = Vec::new();
    for _ in 0..READINGS {
        found.clear();
        let heads = heads.iter().enumerate();
        found.extend(heads.filter_map(|(chunk, head)| Some((chunk, head.published()?))));
        found.sort_unstable_by_key(|(_, published)| published.sequence);
        let mut expected = Some(next);
        let consecutive = found.iter().take_while(|(_, published)| {
            let is_next = expected == Some(published.sequence);
            expected = published.left.then(|| published.sequence.wrapping_add(1));
            is_next
        });
        let count = consecutive.count();
        if count == found.len() {
            break;
        }
        found.truncate(count);
    }
    found
}

/// Publishes the records in the first `used` bytes of the current chunk. Owner only.
#[inline]
pub(crate) fn publish(current: &AtomicU32, used: u32) {
    current.store(used, Ordering::Release);
}
