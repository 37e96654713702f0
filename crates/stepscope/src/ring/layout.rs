//! The binary layout that recording threads, the drain thread and recovery share.
//!
//! These bytes may outlive the process that wrote them, so a change of any number or order needs a
//! new [`VERSION`]. `docs/reference/journal.md` describes the same layout for readers of the files.
//!
//! # Records
//!
//! A record is three little-endian words, 24 bytes:
//!
//! ```text
//! word 0   key: clock ticks at the start of the span, at the instant, at the sample
//! word 1   value: clock ticks at the end, bits of a number, length of a text
//! word 2   meta: name id (bits 0..32) | kind (32..40) | flags (40..48) | extra (48..64)
//! ```
//!
//! A text (an argument's value, or a name that is not interned) is a record of kind [`KIND_TEXT`]
//! followed by `extra` records that hold only its bytes, padded with zeros. The `extra` of a span,
//! step or instant is its row: row 0 is the thread itself, other rows hold what the thread
//! interleaves (tasks of an event loop), which would not nest on one row. Arguments precede the
//! span, step or instant they belong to and carry its key.
//!
//! # A thread's region
//!
//! ```text
//! 0        RegionHead: the owner, and the state of each chunk
//! 4096     open spans: OPEN_SPANS slots of one record each (word 1 is the `tracing` id, or
//!          the function of a call);
//!          a slot whose word 2 is 0 is free
//! 16384    chunk 0, chunk 1, ... of CHUNK_BYTES each
//! ```
//!
//! The owning thread fills one chunk after the other and always takes the lowest free one. A thread
//! whose chunks are drained in time therefore reuses the same few pages; only bursts reach further.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::ring::chunk::{ChunkHead, Record};

/// Version of this layout. Version 2 adds flight recordings, whose events file consists of
/// segments; everything else is as in version 1.
pub(crate) const VERSION: u32 = 2;
/// Versions that recovery can read.
pub(crate) const KNOWN_VERSIONS: [u32; 2] = [1, 2];

/// Bytes of one record.
pub(crate) const RECORD_BYTES: usize = 24;
/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of a chunk that hold records.
pub(crate) const CHUNK_USABLE: usize = CHUNK_BYTES / RECORD_BYTES * RECORD_BYTES;
/// Maximum number of chunks of a region.
pub(crate) const MAX_CHUNKS: usize = 128;
/// Number of slots for open spans. Deeper spans are recorded when they end, but are lost if the
/// program is killed while they are open.
pub(crate) const OPEN_SPANS: usize = 512;
/// Offset of the open spans in a region.
pub(crate) const OPEN_OFFSET: usize = 4096;
/// Offset of the first chunk in a region.
pub(crate) const CHUNKS_OFFSET: usize = OPEN_OFFSET + OPEN_SPANS * RECORD_BYTES;
/// Bytes of a whole region.
pub(crate) const REGION_BYTES: usize = CHUNKS_OFFSET + MAX_CHUNKS * CHUNK_BYTES;
/// Maximum number of ranges of the rings file that one region maps.
pub(crate) const MAX_EXTENTS: usize = 8;
/// Bytes stored of a thread's name.
pub(crate) const THREAD_NAME_BYTES: usize = 64;
/// Maximum length of a recorded text, in bytes; longer texts are truncated and counted.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 10;

/// A finished span.
pub(crate) const KIND_SPAN: u8 = 1;
/// A finished step; its number is an argument named `step_num`.
pub(crate) const KIND_STEP: u8 = 2;
/// A point in time.
pub(crate) const KIND_INSTANT: u8 = 3;
/// A sample of a counter; word 1 is an `f64`.
pub(crate) const KIND_COUNTER: u8 = 4;
/// An argument that is a number or an interned text; the flags hold its type.
pub(crate) const KIND_ARG: u8 = 5;
/// A text; name id 0 means that it is the name of the event that follows.
pub(crate) const KIND_TEXT: u8 = 6;
/// The shared key (word 1) under which the arguments of the span with this key (word 0) are stored.
pub(crate) const KIND_LINK: u8 = 7;

/// Span, step or instant: arguments with the same key precede it.
pub(crate) const FLAG_ARGS: u8 = 1;
/// Span, step, instant or counter: its name is a text with the same key, not a name id.
pub(crate) const FLAG_NAMED_BY_TEXT: u8 = 2;
/// Span: a link with the same key precedes it.
pub(crate) const FLAG_LINK: u8 = 4;
/// Span: it comes from `tracing`, and word 1 of its open slot is its id.
#[cfg(feature = "tracing")]
pub(crate) const FLAG_TRACED: u8 = 8;
/// Span: it is a function call, and word 1 of its open slot identifies the function.
pub(crate) const FLAG_CALLED: u8 = 16;

/// Argument: word 1 is an `i64`.
pub(crate) const ARG_INT: u8 = 0;
/// Argument: word 1 is a `u64`.
pub(crate) const ARG_UINT: u8 = 1;
/// Argument: word 1 is an `f64`.
pub(crate) const ARG_DOUBLE: u8 = 2;
/// Argument: word 1 is 0 or 1.
pub(crate) const ARG_BOOL: u8 = 3;
/// Mask of the argument types above.
pub(crate) const ARG_TYPE_MASK: u8 = 0x0f;
/// Argument or text: all threads share the key, and several spans may use it.
pub(crate) const ARG_SHARED: u8 = 0x80;

/// Builds word 2.
#[inline]
pub(crate) const fn meta(name: u32, kind: u8, flags: u8, extra: u16) -> u64 {
    name as u64 | (kind as u64) << 32 | (flags as u64) << 40 | (extra as u64) << 48
}

/// Returns the name id in word 2.
#[allow(clippy::cast_possible_truncation, reason = "the field's width")]
pub(crate) const fn meta_name(meta: u64) -> u32 {
    meta as u32
}

/// Returns the kind in word 2.
#[allow(clippy::cast_possible_truncation, reason = "the field's width")]
pub(crate) const fn meta_kind(meta: u64) -> u8 {
    (meta >> 32) as u8
}

/// Returns the flags in word 2.
#[allow(clippy::cast_possible_truncation, reason = "the field's width")]
pub(crate) const fn meta_flags(meta: u64) -> u8 {
    (meta >> 40) as u8
}

/// Returns the extra field of word 2.
#[allow(clippy::cast_possible_truncation, reason = "the field's width")]
pub(crate) const fn meta_extra(meta: u64) -> u16 {
    (meta >> 48) as u16
}

/// A range of the rings file that is mapped into a region.
#[repr(C)]
pub(crate) struct Extent {
    /// Offset of the range in the file, bytes.
    pub(crate) file_offset: AtomicU64,
    /// Number of chunks in the range; the first extent also holds the head and the open spans. 0:
    /// unused.
    pub(crate) chunks: AtomicU64,
}

/// Head of a region, alone on its page.
#[repr(C)]
pub(crate) struct RegionHead {
    /// Nonce of the session, which distinguishes a head from other data.
    pub(crate) nonce: AtomicU64,
    /// Offset of this head in the rings file, bytes; `u64::MAX` in memory.
    pub(crate) file_offset: AtomicU64,
    /// Number of the owning thread within the session; 0: no owner, no content.
    pub(crate) serial: AtomicU32,
    /// The owner's thread id in the operating system.
    pub(crate) tid: AtomicU32,
    /// 1 when the program set the name; the recorder then does not query the operating system.
    pub(crate) name_given: AtomicU32,
    /// Number of chunks that may be used.
    pub(crate) chunk_limit: AtomicU32,
    /// Number of dropped records.
    pub(crate) dropped: AtomicU64,
    /// Number of truncated texts.
    pub(crate) cut: AtomicU64,
    /// Length of the name, bytes.
    pub(crate) name_len: AtomicU32,
    /// Unused.
    pub(crate) reserved_2: AtomicU32,
    /// The thread's name, 8 bytes per word.
    pub(crate) name: [AtomicU64; THREAD_NAME_BYTES / 8],
    /// Mapped ranges of the rings file, in order of chunks.
    pub(crate) extents: [Extent; MAX_EXTENTS],
    /// The chunks.
    pub(crate) chunks: [ChunkHead; MAX_CHUNKS],
}

const _: () = assert!(size_of::<RegionHead>() <= OPEN_OFFSET);
const _: () = assert!(size_of::<Record>() == RECORD_BYTES && size_of::<ChunkHead>() == 8);
const _: () = assert!(CHUNKS_OFFSET.is_multiple_of(4096));

impl RegionHead {
    /// Writes the thread's name.
    pub(crate) fn set_thread_name(&self, name: &[u8]) {
        let mut bytes = [0; THREAD_NAME_BYTES];
        let len = name.len().min(THREAD_NAME_BYTES);
        bytes[..len].copy_from_slice(&name[..len]);
        for (word, bytes) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let bytes = bytes.try_into().unwrap_or([0; 8]);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.name_len
            .store(u32::try_from(len).unwrap_or(0), Ordering::Relaxed);
    }

    /// Reads the thread's name.
    pub(crate) fn thread_name(&self) -> Vec<u8> {
        let len = self.name_len.load(Ordering::Relaxed) as usize;
        let mut name: Vec<u8> = self
            .name
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        name.truncate(len);
        name
    }
}

/// Returns the bytes of a region's first extent that has this many chunks.
pub(crate) const fn first_extent_bytes(chunks: usize) -> usize {
    CHUNKS_OFFSET + chunks * CHUNK_BYTES
}

/// Reads a little-endian word, 0 past the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Bytes at the start of the rings file that hold names.
pub(crate) const NAMES_BYTES: usize = 4 << 20;
/// Bytes before the first name: the nonce, then the number of bytes used by names.
pub(crate) const NAMES_HEAD: usize = 16;

/// First word of each segment of a flight recording.
pub(crate) const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"SSFLIGHT");
/// Bytes of a segment's head, before its blocks.
pub(crate) const SEGMENT_HEAD: usize = 64;

/// First word of each block of the events file: `SSB` and the version of the block format.
pub(crate) const BLOCK_MAGIC: u32 = u32::from_le_bytes(*b"SSB\x01");
/// Bytes of a block's head.
pub(crate) const BLOCK_HEAD: usize = 32;

/// Metadata of the session: lines of `key=value`.
pub(crate) const BLOCK_META: u32 = 1;
/// A clock reading: ticks, monotonic nanoseconds, Unix nanoseconds.
pub(crate) const BLOCK_CLOCK: u32 = 2;
/// A thread: its id in the operating system (8 bytes), then its name.
pub(crate) const BLOCK_THREAD: u32 = 3;
/// Records of a chunk.
pub(crate) const BLOCK_DATA: u32 = 4;
/// Open spans: the current ticks (8 bytes), then one record each.
pub(crate) const BLOCK_OPEN: u32 = 5;
/// Losses of a thread so far: dropped records and truncated texts (8 bytes each).
pub(crate) const BLOCK_LOST: u32 = 6;
/// The file the recording was exported to: its size in bytes (8 bytes), then its path.
pub(crate) const BLOCK_WRITTEN: u32 = 7;
/// Arguments copied from an overwritten segment; serial 0: arguments that threads share.
pub(crate) const BLOCK_RETAINED_ARGS: u32 = 8;
/// Padding up to a page boundary.
pub(crate) const BLOCK_FILLER: u32 = 9;

/// Head of a block of the events file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHead {
    /// One of `BLOCK_*`.
    pub(crate) kind: u32,
    /// Serial number of the thread, 0 for a block of no thread.
    pub(crate) serial: u32,
    /// Sequence of the chunk that contained the records.
    pub(crate) sequence: u32,
    /// Offset of the records in that chunk, bytes.
    pub(crate) from: u32,
    /// Bytes that follow this head.
    pub(crate) len: u32,
}

impl BlockHead {
    /// Encodes the head.
    pub(crate) fn encode(self) -> [u8; BLOCK_HEAD] {
        let mut bytes = [0; BLOCK_HEAD];
        let words = [
            BLOCK_MAGIC,
            self.kind,
            self.serial,
            self.sequence,
            self.from,
            self.len,
            self.check(),
            0,
        ];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the head at the start of `bytes`; `None` unless it is valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = [0_u32; BLOCK_HEAD / 4];
        for (word, at) in words
            .iter_mut()
            .zip(bytes.get(..BLOCK_HEAD)?.chunks_exact(4))
        {
            *word = u32::from_le_bytes(at.try_into().ok()?);
        }
        let head = Self {
            kind: words[1],
            serial: words[2],
            sequence: words[3],
            from: words[4],
            len: words[5],
        };
        (words[0] == BLOCK_MAGIC && words[6] == head.check()).then_some(head)
    }

    /// Computes a small checksum, so that garbage is not taken for a length.
    fn check(self) -> u32 {
        [self.kind, self.serial, self.sequence, self.from, self.len]
            .into_iter()
            .fold(0x9e37_79b9, |sum, word| {
                (sum ^ word).wrapping_mul(0x85eb_ca6b).rotate_left(13)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_head_round_trips_and_detects_damage() {
        let head = BlockHead {
            kind: BLOCK_DATA,
            serial: 7,
            sequence: 9,
            from: 48,
            len: 4_800,
        };
        let bytes = head.encode();
        assert_eq!(BlockHead::decode(&bytes), Some(head));
        for at in 0..28 {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert_eq!(BlockHead::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(BlockHead::decode(&bytes[..31]), None);
    }

    #[test]
    fn meta_fields_do_not_overlap() {
        let word = meta(u32::MAX, 0, 0, 0) ^ meta(0, u8::MAX, 0, 0);
        assert_eq!(word ^ meta(0, 0, u8::MAX, u16::MAX), u64::MAX);
        let word = meta(5, KIND_STEP, FLAG_ARGS, 300);
        assert_eq!(
            (
                meta_name(word),
                meta_kind(word),
                meta_flags(word),
                meta_extra(word)
            ),
            (5, KIND_STEP, FLAG_ARGS, 300)
        );
    }
}
