//! Segments: memory of a few MiB each that a journal consists of, private or mapped from a file.
//!
//! One [`Tail`] writes a segment. Any number of holders read it, up to a length that the tail's
//! owner passed to them. A few private segments are cached for the next recording: the first touch
//! of a fresh page costs more than writing it.
#![allow(
    unsafe_code,
    reason = "mappings that one thread writes and others read"
)]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "mappings start on pages and all offsets in them are multiples of 8"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::platform::os;
use crate::ring::layout::{SEGMENT_HEAD, SEGMENT_MAGIC};

/// Bytes of a segment, unless a small limit requires less.
pub(crate) const SEGMENT_BYTES: usize = 4 << 20;

/// Private segments cached for reuse.
static SPARE: Mutex<Vec<Segment>> = Mutex::new(Vec::new());
const MOST_SPARE: usize = 4;

/// A mapping, and its offset in its file.
#[derive(Debug)]
pub(crate) struct Segment {
    at: *mut u8,
    bytes: usize,
    /// Offset in the file, bytes; `None` in private memory.
    file_offset: Option<u64>,
}

// SAFETY: the mapping belongs to this value; only the one `Tail` writes, past what others read.
unsafe impl Send for Segment {}
// SAFETY: the mapping belongs to this value; only the one `Tail` writes, past what others read.
unsafe impl Sync for Segment {}

/// First words of a segment, by which recovery finds it.
#[repr(C)]
struct Head {
    magic: AtomicU64,
    /// Bytes of the whole segment.
    bytes: AtomicU64,
    /// Sequence number of the segment in its recording, from 1; 0: no content.
    sequence: AtomicU64,
    /// Bytes of whole blocks after the head; stored after them.
    used: AtomicU64,
}

const _: () = assert!(size_of::<Head>() <= SEGMENT_HEAD);

impl Segment {
    /// Creates a segment in private memory.
    fn in_memory(bytes: usize) -> io::Result<Self> {
        if bytes == SEGMENT_BYTES
            && let Ok(mut spare) = SPARE.try_lock()
            && let Some(segment) = spare.pop()
        {
            return Ok(segment);
        }
        let at = os::reserve(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let segment = Self {
            at,
            bytes,
            file_offset: None,
        };
        // SAFETY: just reserved.
        if !unsafe { os::map_memory(at, bytes) } {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(segment)
    }

    /// Maps a range of a file, whose space it allocates.
    fn in_file(file: &File, file_offset: u64, bytes: usize) -> io::Result<Self> {
        os::allocate(file.as_raw_fd(), file_offset, bytes as u64)
            .map_err(io::Error::from_raw_os_error)?;
        let at = os::reserve(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let segment = Self {
            at,
            bytes,
            file_offset: Some(file_offset),
        };
        // SAFETY: just reserved, and the space has been allotted.
        if !unsafe { os::map_file(at, bytes, file.as_raw_fd(), file_offset) } {
            return Err(io::Error::last_os_error());
        }
        Ok(segment)
    }

    /// Returns its offset in its file.
    pub(crate) fn file_offset(&self) -> Option<u64> {
        self.file_offset
    }

    /// Returns the first `len` bytes of its blocks.
    pub(crate) fn blocks(&self, len: usize) -> &[u8] {
        let len = len.min(self.bytes - SEGMENT_HEAD);
        // SAFETY: mapped as long as `self` lives; at least `len` bytes have been written, and the
        // tail writes only past them.
        unsafe { std::slice::from_raw_parts(self.at.add(SEGMENT_HEAD), len) }
    }

    /// Copies the segment, with `used` valid bytes of blocks, to the same offset of another file.
    pub(crate) fn copy_into(&self, file: &File, used: usize) -> io::Result<()> {
        let Some(file_offset) = self.file_offset else {
            return Ok(());
        };
        os::allocate(file.as_raw_fd(), file_offset, self.bytes as u64)
            .map_err(io::Error::from_raw_os_error)?;
        let len = (SEGMENT_HEAD + used).min(self.bytes);
        // SAFETY: mapped as long as `self` lives; called by the tail's owner, so no thread writes.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, len) };
        file.write_all_at(bytes, file_offset)
    }

    /// Maps another file that has the same content at the same offset.
    pub(crate) fn show(&self, file: &File) {
        if let Some(file_offset) = self.file_offset {
            // SAFETY: the address range belongs to this segment; the space is allocated. Readers
            // see the same bytes.
            unsafe { os::map_file(self.at, self.bytes, file.as_raw_fd(), file_offset) };
        }
    }

    /// Replaces the mapping of the file with a private copy.
    pub(crate) fn make_private(&self, file: &File) {
        if let Some(file_offset) = self.file_offset {
            // SAFETY: the address range belongs to this segment; no thread writes any more.
            unsafe { os::map_copy(self.at, self.bytes, file, file_offset) };
        }
    }

    fn head(&self) -> &Head {
        // SAFETY: mapped, page-aligned, and every content of atomics is valid.
        unsafe { &*self.at.cast::<Head>() }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let segment = Self { ..*self };
        if self.file_offset.is_none()
            && self.bytes == SEGMENT_BYTES
            && let Ok(mut spare) = SPARE.try_lock()
            && spare.len() < MOST_SPARE
        {
            spare.push(segment);
            return;
        }
        std::mem::forget(segment);
        // SAFETY: created by `in_memory` or `in_file`, and this was the last holder.
        unsafe { os::unmap(self.at, self.bytes) };
    }
}

/// The only writer of a segment.
#[derive(Debug)]
pub(crate) struct Tail {
    segment: Arc<Segment>,
    used: usize,
    /// Bytes whose pages are present.
    warm: usize,
}

/// Bytes whose pages are made present at once: one page at a time costs twice as much, all pages at
/// once may be wasted.
const WARM_BYTES: usize = 256 << 10;

impl Tail {
    /// Creates a private segment.
    pub(crate) fn in_memory(bytes: usize) -> io::Result<Self> {
        Segment::in_memory(bytes).map(|segment| Self::new(segment, 0))
    }

    /// Creates a segment of a file.
    pub(crate) fn in_file(file: &File, file_offset: u64, bytes: usize) -> io::Result<Self> {
        Segment::in_file(file, file_offset, bytes).map(|segment| Self::new(segment, 0))
    }

    /// Reuses a segment that has no other holder. Discards its content.
    pub(crate) fn reuse(segment: Arc<Segment>) -> Result<Self, Arc<Segment>> {
        let segment = Arc::try_unwrap(segment)?;
        let warm = segment.bytes;
        Ok(Self::new(segment, warm))
    }

    fn new(segment: Segment, warm: usize) -> Self {
        let head = segment.head();
        head.sequence.store(0, Ordering::Release);
        head.used.store(0, Ordering::Release);
        head.magic.store(SEGMENT_MAGIC, Ordering::Relaxed);
        head.bytes.store(segment.bytes as u64, Ordering::Relaxed);
        Self {
            segment: Arc::new(segment),
            used: 0,
            warm,
        }
    }

    /// Makes the content valid, also for recovery after a kill.
    pub(crate) fn publish(&self, sequence: u64) {
        self.segment
            .head()
            .sequence
            .store(sequence, Ordering::Release);
    }

    /// Returns the segment, for readers.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns the bytes of its blocks.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Returns the remaining bytes.
    pub(crate) fn room(&self) -> usize {
        self.segment.bytes - SEGMENT_HEAD - self.used
    }

    /// Appends; `false` when the blocks do not fit, in which case nothing is written.
    pub(crate) fn append(&mut self, parts: &[io::IoSlice<'_>]) -> bool {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > self.room() {
            return false;
        }
        while self.warm < SEGMENT_HEAD + self.used + bytes {
            let more = WARM_BYTES.min(self.segment.bytes - self.warm);
            // SAFETY: mapped, and within the segment.
            unsafe { os::warm(self.segment.at.add(self.warm), more) };
            self.warm += more;
        }
        let mut at = self.used;
        for part in parts {
            // SAFETY: there is room; no thread reads past `used`, and there is one tail.
            unsafe {
                let to = self.segment.at.add(SEGMENT_HEAD + at);
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            at += part.len();
        }
        self.used = at;
        let used = &self.segment.head().used;
        used.store(at as u64, Ordering::Release);
        true
    }
}

/// Returns the blocks of each segment in a file of segments, oldest first.
pub(crate) fn read_all(file: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| {
        let bytes = file.get(at..at.saturating_add(8));
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at + SEGMENT_HEAD <= file.len() {
        // A freed segment leaves a hole: a page of zeros.
        if word(at) != SEGMENT_MAGIC {
            at += 4096;
            continue;
        }
        let bytes = usize::try_from(word(at + 8)).unwrap_or(0);
        let (sequence, used) = (word(at + 16), word(at + 24));
        let blocks = usize::try_from(used).ok().and_then(|used| {
            let from = at + SEGMENT_HEAD;
            file.get(from..from.saturating_add(used).min(file.len()))
        });
        if let (Some(blocks), true) = (blocks, sequence != 0) {
            found.push((sequence, blocks));
        }
        let sound = bytes.is_multiple_of(4096) && bytes <= file.len();
        at += if sound { bytes.max(4096) } else { 4096 };
    }
    found.sort_by_key(|(sequence, _)| *sequence);
    found.into_iter().map(|(_, blocks)| blocks).collect()
}

/// Whether a journal's events file consists of segments.
pub(crate) fn is_file_of_segments(file: &[u8]) -> bool {
    file.get(..8) == Some(&SEGMENT_MAGIC.to_le_bytes()[..])
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    #[test]
    fn segments_are_read_oldest_first_without_stale_ones() {
        let file = tempfile::tempfile().unwrap();
        let bytes = 64 << 10;
        let mut first = Tail::in_file(&file, 0, bytes).unwrap();
        let mut second = Tail::in_file(&file, bytes as u64, bytes).unwrap();
        assert!(first.append(&[IoSlice::new(b"old and long")]));
        first.publish(1);
        assert!(second.append(&[IoSlice::new(b"new")]));
        second.publish(2);
        let segment = Arc::clone(first.segment());
        drop(first);
        let mut again = Tail::reuse(segment).unwrap();
        assert!(again.append(&[IoSlice::new(b"ne"), IoSlice::new(b"west")]));
        let read = || {
            let mut all = vec![0; 2 * bytes];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut all, 0).unwrap();
            assert!(is_file_of_segments(&all));
            let found = read_all(&all);
            found.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(read(), [b"new"]);
        again.publish(3);
        assert_eq!(read(), [&b"new"[..], b"newest"]);
        assert!(!again.append(&[IoSlice::new(&vec![0; bytes])]));
        assert_eq!(
            again.segment().blocks(usize::MAX).len(),
            bytes - SEGMENT_HEAD
        );
    }

    #[test]
    fn damaged_heads_are_tolerated() {
        let mut file = vec![0_u8; 3 * 4096];
        for (at, words) in [
            (0, [SEGMENT_MAGIC, 4096, 1, u64::MAX]),
            (4096, [SEGMENT_MAGIC, u64::MAX, 2, 5]),
            (8192, [SEGMENT_MAGIC, 0, 3, 4]),
        ] {
            for (n, word) in words.iter().enumerate() {
                file[at + 8 * n..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        assert!(read_all(&file).len() <= 3);
        assert!(read_all(&file[..40]).is_empty());
    }
}
