//! Reading of one thread's region, and its growth. Drain thread only.
#![allow(unsafe_code, reason = "maps more of a ring; see the module `ring`")]

use std::sync::atomic::Ordering;

use crate::journal::record_iter::records;
use crate::platform::os;
use crate::ring::chunk::{Record, in_order};
use crate::ring::layout::{
    CHUNK_BYTES, CHUNK_USABLE, KIND_SPAN, KIND_STEP, MAX_CHUNKS, RegionHead, first_extent_bytes,
    meta_kind,
};
use crate::ring::memory::{ATTACH, LateRecords, RingMemory};

/// State of a region in the drain thread.
#[derive(Clone)]
pub(super) struct RegionState {
    pub(super) serial: u32,
    /// Sequence and bytes already copied, by chunk.
    pub(super) copied: [(u32, u32); MAX_CHUNKS],
    /// Sequence after the last chunk that was given back.
    pub(super) next: u32,
    pub(super) name: Vec<u8>,
    pub(super) lost: (u64, u64),
    /// Unsettled records of a region that was moved.
    pub(super) late: Option<LateRecords>,
}

/// A range of a chunk that is ready to be copied.
pub(super) struct ChunkRange {
    pub(super) chunk: usize,
    pub(super) sequence: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) closed: bool,
}

/// Builds the content of a block of open spans: the current ticks, then one record each.
pub(super) fn open_block(now: u64, open: &[[u64; 3]]) -> Vec<u8> {
    let words = std::iter::once(&now).chain(open.as_flattened());
    words.flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the open spans.
///
/// The caller must read them *before* the region's chunks. Arguments are published before their
/// span's slot, so the chunks read afterwards contain the arguments of each span found here. The
/// reverse order would find spans whose arguments were not copied, and lose spans that end in
/// between.
pub(super) fn open_spans(region: &RingMemory) -> Vec<[u64; 3]> {
    region.open().iter().filter_map(open_span).collect()
}

/// Reads the span of a slot that its owner may be changing: the key is valid when the meta before
/// and after it is the same. A slot that changes each time belongs to spans of nanoseconds, which
/// end in a chunk.
fn open_span(slot: &Record) -> Option<[u64; 3]> {
    const TRIES: u32 = 16;
    let mut before = slot.meta.load(Ordering::Acquire);
    for _ in 0..TRIES {
        if before == 0 {
            return None;
        }
        let key = slot.key.load(Ordering::Acquire);
        let after = slot.meta.load(Ordering::Acquire);
        if after == before && slot.key.load(Ordering::Relaxed) == key {
            return Some([key, 0, after]);
        }
        before = after;
    }
    None
}

/// Removes the spans that end in these records.
pub(super) fn without_ended(open: &mut Vec<[u64; 3]>, bytes: &[u8]) {
    if open.is_empty() {
        return;
    }
    for ([key, _, meta], _) in records(bytes) {
        if matches!(meta_kind(meta), KIND_SPAN | KIND_STEP) {
            open.retain(|span| (span[0], span[2]) != (key, meta));
        }
    }
}

/// Lists the ranges that can be copied, in the order of recording.
pub(super) fn ready_ranges(head: &RegionHead, seen: &RegionState) -> Vec<ChunkRange> {
    let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
    let chunks = &head.chunks[..limit.min(MAX_CHUNKS)];
    in_order(chunks, seen.next)
        .into_iter()
        .map(|(chunk, published)| {
            let from = match seen.copied[chunk] {
                (sequence, bytes) if sequence == published.sequence => bytes,
                _ => 0,
            };
            let usable = u32::try_from(CHUNK_USABLE).unwrap_or(0);
            ChunkRange {
                chunk,
                sequence: published.sequence,
                from,
                to: published.used.clamp(from, usable.max(from)),
                closed: published.left,
            }
        })
        .collect()
}

/// Doubles the chunks of a region, up to [`MAX_CHUNKS`].
pub(super) fn grow(region: &RingMemory, limit: usize) {
    let more = limit.min(MAX_CHUNKS - limit);
    let head = region.head();
    if more == 0 {
        return;
    }
    let at = region.chunk(limit);
    let bytes = more * CHUNK_BYTES;
    if region.mapped_for.load(Ordering::Relaxed) == 0 {
        // SAFETY: the range belongs to the region; its memory is absent or unused.
        if !unsafe { os::map_memory(at, bytes) } {
            return;
        }
    } else {
        let extent = head
            .extents
            .iter()
            .find(|extent| extent.chunks.load(Ordering::Relaxed) == 0);
        let rings = ATTACH.rings.load(Ordering::Relaxed).cast_signed();
        let Some(extent) = extent else { return };
        let file_offset = ATTACH.rings_len.fetch_add(bytes as u64, Ordering::Relaxed);
        if os::allocate(rings, file_offset, bytes as u64).is_err() {
            return;
        }
        // SAFETY: the range belongs to the region; the space has been allocated.
        if !unsafe { os::map_file(at, bytes, rings, file_offset) } {
            return;
        }
        extent.file_offset.store(file_offset, Ordering::Relaxed);
        extent.chunks.store(more as u64, Ordering::Release);
    }
    debug_assert!(first_extent_bytes(limit + more) <= crate::ring::layout::REGION_BYTES);
    head.chunk_limit
        .store(u32::try_from(limit + more).unwrap_or(1), Ordering::Release);
}
