//! How the owner of a ring and the drain thread share a chunk of it.
//!
//! Publication is one Release store after what it publishes, which the other side loads with Acquire:
//! [`ChunkHead::used`] for records, [`ChunkHead::state`] for whole chunks. There is no read-modify-write
//! and no fence. `cargo xtask sanitize` compiles this file against loom, which tries every order in
//! which the two threads can run.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// One record as the threads see it. Relaxed stores compile to plain ones; the publication is
/// the Release store of [`ChunkHead::used`], and of an open slot's own `meta`.
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
    /// Writes the three words. Owner only; nobody reads them before [`ChunkHead::publish`].
    #[inline]
    pub(crate) fn put(&self, words: [u64; 3]) {
        self.key.store(words[0], Ordering::Relaxed);
        self.value.store(words[1], Ordering::Relaxed);
        self.meta.store(words[2], Ordering::Relaxed);
    }

    /// Of an open slot, asked by its own thread: whether a span has it.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.meta.load(Ordering::Relaxed) != 0
    }
}

/// State of one chunk.
///
/// `state` is 0 while the chunk is free, else `sequence << 1`, with bit 0 set once the owner has
/// left it. When the drain thread finds bit 0 set, `used` is final, and it may give the chunk back after
/// its content has been written.
#[repr(C)]
pub(crate) struct ChunkHead {
    /// See above.
    pub(crate) state: AtomicU32,
    /// Bytes of whole records.
    pub(crate) used: AtomicU32,
}

/// What the drain thread sees of a chunk that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// Place of the chunk in the order of use.
    pub(crate) sequence: u32,
    /// Bytes of whole records that may be read.
    pub(crate) used: u32,
    /// Whether the owner has left the chunk: `used` is final.
    pub(crate) left: bool,
}

impl ChunkHead {
    /// Owner: whether the chunk can be taken.
    pub(crate) fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    /// Owner: takes a free chunk, as the one with this sequence number.
    pub(crate) fn take(&self, sequence: u32) {
        self.used.store(0, Ordering::Relaxed);
        self.state.store(sequence << 1, Ordering::Release);
    }

    /// Owner: leaves the chunk for another one.
    pub(crate) fn leave(&self, sequence: u32) {
        self.state.store(sequence << 1 | 1, Ordering::Release);
    }

    /// Drain thread: what can be carried; `None` for a free chunk.
    pub(crate) fn published(&self) -> Option<Published> {
        // The state first: once it says that the owner has left, `used` changes no more.
        let state = self.state.load(Ordering::Acquire);
        (state != 0).then(|| Published {
            sequence: state >> 1,
            used: self.used.load(Ordering::Acquire),
            left: state & 1 == 1,
        })
    }

    /// Drain thread: gives back a chunk that its owner has left, after its content was written.
    pub(crate) fn give_back(&self) {
        self.state.store(0, Ordering::Release);
    }
}

/// Drain thread: the chunks that can be carried, with their indexes, in the order in which they were
/// filled. `next`: the sequence number after the last chunk that was given back.
///
/// The owner takes chunks while their heads are read, so a head that was read early may be older than
/// others. Then all are read again, and at last a later chunk is no part of the answer without the whole of
/// all earlier ones. What was published before the call is in the answer.
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

/// Owner: publishes the records below `used`, bytes of its current chunk.
#[inline]
pub(crate) fn publish(current: &AtomicU32, used: u32) {
    current.store(used, Ordering::Release);
}
