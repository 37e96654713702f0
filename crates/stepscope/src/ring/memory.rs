//! Regions: the memory of the threads' rings.
//!
//! A region is address space that is reserved once and never released. A session maps pages of its
//! rings file (or plain memory) there, and later replaces them with private pages. A thread that is
//! still writing therefore never accesses an unmapped address.
//!
//! Nothing here allocates or locks: a thread may get its region inside a signal handler.
#![allow(unsafe_code, reason = "mappings; see the module's text")]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "mappings start on pages and all offsets in them are multiples of 8"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::platform::os;
use crate::ring::chunk::Record;
use crate::ring::layout::{
    CHUNK_BYTES, CHUNK_USABLE, CHUNKS_OFFSET, MAX_CHUNKS, OPEN_OFFSET, OPEN_SPANS, RECORD_BYTES,
    REGION_BYTES, RegionHead, THREAD_NAME_BYTES, first_extent_bytes, word,
};

/// State of the session that attaching threads need.
pub(crate) struct Attach {
    /// Descriptor of the rings file, -1 in memory.
    pub(crate) rings: AtomicU32,
    /// Allocated bytes of the rings file.
    pub(crate) rings_len: AtomicU64,
    /// Nonce of the session.
    pub(crate) nonce: AtomicU64,
    /// Serial number of the next thread.
    pub(crate) next_serial: AtomicU32,
    /// Number of chunks of a new region.
    pub(crate) first_chunks: AtomicU32,
    /// `errno` of a region that could not be mapped from the rings file, 0 when all could.
    pub(crate) failed: AtomicU32,
}

pub(crate) static ATTACH: Attach = Attach {
    rings: AtomicU32::new(u32::MAX),
    rings_len: AtomicU64::new(0),
    nonce: AtomicU64::new(0),
    next_serial: AtomicU32::new(1),
    first_chunks: AtomicU32::new(0),
    failed: AtomicU32::new(0),
};

/// The region has no owner.
pub(crate) const FREE: u32 = 0;
/// A living thread owns the region.
pub(crate) const OWNED: u32 = 1;
/// The owner has ended; the drain thread frees the region.
pub(crate) const RETIRED: u32 = 2;
/// The session is reclaiming the region.
pub(crate) const SWEEPING: u32 = u32::MAX;

/// Control block of one region, private to the process and never freed: it stays in a list and is
/// reused.
pub(crate) struct RingMemory {
    /// The next older region in the list.
    next: AtomicPtr<RingMemory>,
    /// Index in the list, from 0.
    pub(crate) index: u32,
    /// Address of the region; never changes.
    base: *mut u8,
    /// [`FREE`], [`OWNED`] or [`RETIRED`].
    pub(crate) status: AtomicU32,
    /// The value of [`STATE`](crate::ring::session_state::STATE) that the region records for, 0 for none, or [`SWEEPING`].
    pub(crate) session: AtomicU32,
    /// The session whose rings file is mapped here, 0 for none.
    pub(crate) mapped_for: AtomicU32,
}

// SAFETY: `base` is the address of a mapping that is never removed. Its content is accessed through
// atomics, and as raw bytes only by the rules of the module documentation.
unsafe impl Sync for RingMemory {}
// SAFETY: `base` is the address of a mapping that is never removed, and any thread may access its
// atomics.
unsafe impl Send for RingMemory {}

/// The head and the open slots, as words as small as the smallest of their fields.
type HeadWords = [AtomicU32; CHUNKS_OFFSET / 4];

/// A second mapping of a region's ranges in the old rings file, made after the region has moved to
/// a new file: no thread writes to it any more.
pub(crate) struct OldRingMapping {
    at: *mut u8,
    /// The words of the head and the open slots that were copied to the new file.
    copied: Vec<u32>,
}

impl OldRingMapping {
    fn show(file: RawFd, extents: &[(usize, u64, usize)]) -> io::Result<Self> {
        let at = os::reserve(REGION_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let old = Self {
            at,
            copied: Vec::new(),
        };
        for (offset, file_offset, bytes) in extents {
            // SAFETY: the range is within the address space just reserved; the file's space was
            // allocated for the region.
            if !unsafe { os::map_file(at.add(*offset), *bytes, file, *file_offset) } {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(old)
    }

    /// Returns the head.
    pub(crate) fn head(&self) -> &RegionHead {
        // SAFETY: mapped as long as `self` lives, and every content of atomics is valid.
        unsafe { &*self.at.cast::<RegionHead>() }
    }

    fn words(&self) -> &HeadWords {
        // SAFETY: mapped as long as `self` lives; the first extent starts with the head and the
        // open slots, and every content of atomics is valid.
        unsafe { &*self.at.cast::<HeadWords>() }
    }

    /// Returns bytes of a chunk.
    pub(crate) fn published(&self, chunk: usize, from: u32, to: u32) -> &[u8] {
        debug_assert!(from <= to && to as usize <= CHUNK_USABLE && chunk < MAX_CHUNKS);
        let offset = CHUNKS_OFFSET + chunk * CHUNK_BYTES + from as usize;
        // SAFETY: the range is within the mapping, as the mapping's head describes it; no
        // thread writes there any more.
        unsafe { std::slice::from_raw_parts(self.at.add(offset), (to - from) as usize) }
    }

    /// Returns words of a chunk.
    fn words_of(&self, chunk: usize, from: u32, to: u32) -> Vec<u64> {
        let bytes = self.published(chunk, from, to).chunks_exact(8);
        bytes.map(|bytes| word(bytes, 0)).collect()
    }
}

/// The rest of the chunk that the owner was filling during a move, from the old mapping.
#[derive(Clone)]
pub(crate) struct LateRecords {
    chunk: usize,
    sequence: u32,
    /// Offset of the rest in the chunk, bytes.
    from: u32,
    words: Vec<u64>,
}

impl Drop for OldRingMapping {
    fn drop(&mut self) {
        // SAFETY: `show` reserved this mapping, and only `self` refers to it.
        unsafe { os::unmap(self.at, REGION_BYTES) };
    }
}

static REGIONS: AtomicPtr<RingMemory> = AtomicPtr::new(std::ptr::null_mut());
static REGION_COUNT: AtomicU32 = AtomicU32::new(0);

/// Iterates over all regions.
pub(crate) fn regions() -> impl Iterator<Item = &'static RingMemory> {
    let mut at = REGIONS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: regions are never freed.
        let region: &'static RingMemory = unsafe { at.as_ref() }?;
        at = region.next.load(Ordering::Acquire);
        Some(region)
    })
}

impl RingMemory {
    /// Returns the head, in the mapping.
    pub(crate) fn head(&self) -> &'static RegionHead {
        // SAFETY: the first page of a region is mapped before the region enters the list, and stays
        // mapped for ever; `RegionHead` consists of atomics, for which every content is valid.
        unsafe { &*self.base.cast::<RegionHead>() }
    }

    /// Returns the open slots.
    pub(crate) fn open(&self) -> &'static [Record; OPEN_SPANS] {
        // SAFETY: the pages of the open slots are mapped before the region enters the list, and
        // stay mapped for ever; every content of atomics is valid.
        unsafe { &*self.base.add(OPEN_OFFSET).cast::<[Record; OPEN_SPANS]>() }
    }

    /// Returns the address of a chunk.
    pub(crate) fn chunk(&self, index: usize) -> *mut u8 {
        debug_assert!(index < MAX_CHUNKS);
        // SAFETY: within the region's reserved space.
        unsafe { self.base.add(CHUNKS_OFFSET + index * CHUNK_BYTES) }
    }

    /// Returns bytes of a chunk that its owner has published.
    ///
    /// # Safety
    /// Only the drain thread, which gives chunks back, may call this; `to` must not exceed the
    /// chunk's `used`.
    pub(crate) unsafe fn published(&self, chunk: usize, from: u32, to: u32) -> &[u8] {
        // SAFETY: the bytes below `used` were written before it was published, and are not written
        // again before the drain thread gives the chunk back.
        unsafe {
            let at = self.chunk(chunk).add(from as usize);
            std::slice::from_raw_parts(at, (to - from) as usize)
        }
    }

    /// Replaces any mapped file with private memory. A thread that still writes there continues
    /// safely; its records are lost.
    pub(crate) fn unmap_file(&self) {
        if self.mapped_for.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let limit = self.head().chunk_limit.load(Ordering::Relaxed) as usize;
        let bytes = first_extent_bytes(limit.min(MAX_CHUNKS));
        // SAFETY: the range belongs to this region; it stays readable and writable.
        unsafe { os::map_memory(self.base, bytes) };
    }

    /// Like [`RingMemory::unmap_file`], for a region that an ended thread of this session has left.
    pub(crate) fn forget_file(&self, state: u32) {
        let free = self
            .status
            .compare_exchange(FREE, OWNED, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if free {
            if self.mapped_for.load(Ordering::Relaxed) == state {
                self.unmap_file();
            }
            self.status.store(FREE, Ordering::SeqCst);
        }
    }

    /// Returns whether the owner still runs.
    pub(crate) fn is_owned(&self) -> bool {
        self.status.load(Ordering::SeqCst) == OWNED
    }

    /// Releases the region on behalf of its owner. The drain thread frees a region that a session
    /// still reads.
    pub(crate) fn retire(&self) {
        self.status.store(RETIRED, Ordering::SeqCst);
        if self.session.load(Ordering::SeqCst) == 0 {
            self.free_retired();
        }
    }

    /// Frees a region whose thread has ended, unless it is free already.
    pub(crate) fn free_retired(&self) {
        let _ = self
            .status
            .compare_exchange(RETIRED, FREE, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Lists the ranges that map the rings file: offset in the region, offset in the file, bytes.
    fn extents(&self) -> Vec<(usize, u64, usize)> {
        let mut extents = Vec::new();
        let mut at = 0;
        for extent in &self.head().extents {
            let chunks = usize::try_from(extent.chunks.load(Ordering::Acquire)).unwrap_or(0);
            if chunks == 0 {
                break;
            }
            let bytes = if at == 0 {
                first_extent_bytes(chunks.min(MAX_CHUNKS))
            } else {
                chunks * CHUNK_BYTES
            };
            let bytes = bytes.min(REGION_BYTES - at);
            extents.push((at, extent.file_offset.load(Ordering::Relaxed), bytes));
            at += bytes;
        }
        extents
    }

    /// Allocates in `file` the ranges that the region maps from the rings file.
    pub(crate) fn allot_in(&self, file: &File) -> io::Result<()> {
        for (_, file_offset, bytes) in self.extents() {
            os::allocate(file.as_raw_fd(), file_offset, bytes as u64)
                .map_err(io::Error::from_raw_os_error)?;
        }
        Ok(())
    }

    /// Maps `new` in place of the rings file `old`, at the same offsets; the space is already
    /// allocated. Copies the head and the open slots; the records so far of the chunks are only in
    /// the returned mapping.
    ///
    /// The owner may be recording meanwhile. Each of its stores goes into one file or the other;
    /// stores that reached `old` too late for the copy are transferred afterwards, unless the owner
    /// has stored to the same word again.
    ///
    /// # Safety
    /// Only the drain thread may call this, and only while no thread is attaching.
    pub(crate) unsafe fn relocate(&self, old: RawFd, new: &File) -> io::Result<OldRingMapping> {
        let extents = self.extents();
        let Some((_, file_offset, _)) = extents.first().copied() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut before = OldRingMapping::show(old, &extents)?;
        let words = before.words().iter();
        before.copied = words.map(|word| word.load(Ordering::Acquire)).collect();
        let bytes: Vec<u8> = before
            .copied
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        new.write_all_at(&bytes, file_offset)?;
        for (at, file_offset, bytes) in extents {
            // SAFETY: the address range belongs to this region; the file's space has been
            // allocated.
            if !unsafe { os::map_file(self.base.add(at), bytes, new.as_raw_fd(), file_offset) } {
                let error = io::Error::last_os_error();
                // SAFETY: the address range belongs to this region. The open spans and the current
                // chunk are lost; the program continues.
                unsafe { os::map_memory(self.base.add(at), bytes) };
                return Err(error);
            }
        }
        // SAFETY: mapped, aligned to a page, and every content of atomics is valid.
        let now = unsafe { &*self.base.cast::<HeadWords>() };
        for ((word, old), copied) in now.iter().zip(before.words()).zip(&before.copied) {
            let late = old.load(Ordering::Acquire);
            if late != *copied {
                let _ = word.compare_exchange(*copied, late, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        Ok(before)
    }

    /// Fills in the records that the owner wrote to the old file and published in the new one: all chunks after
    /// the first extent moved later than the head. Returns what the owner may be publishing just now. Drain thread
    /// only.
    pub(crate) fn fill_from(&self, old: &OldRingMapping) -> Option<LateRecords> {
        let usable = u32::try_from(CHUNK_USABLE).unwrap_or(0);
        let mut current: Option<(usize, u32, u32)> = None;
        let chunks = self.head().chunks.iter().zip(&old.head().chunks);
        for (chunk, (head, head_before)) in chunks.enumerate() {
            let Some(published) = head.published() else {
                continue;
            };
            let used = published.used.min(usable);
            let before = head_before.published();
            let before = before.filter(|before| before.sequence == published.sequence);
            let from = before.map_or(0, |before| before.used.min(used));
            let words = old.words_of(chunk, from, used);
            self.fill(chunk, from, used, &words);
            let is_later = current.is_none_or(|(_, sequence, _)| sequence < published.sequence);
            if !published.left && is_later {
                current = Some((chunk, published.sequence, used));
            }
        }
        current.map(|(chunk, sequence, from)| LateRecords {
            chunk,
            sequence,
            from,
            words: old.words_of(chunk, from, usable),
        })
    }

    /// Writes a record to its position in the new file, when the owner wrote it to the old file
    /// just before the move and published it here just after. Returns whether the record is
    /// settled. Drain thread only.
    pub(crate) fn write_late_record(&self, late: &LateRecords) -> bool {
        let head = &self.head().chunks[late.chunk];
        if head.state.load(Ordering::Acquire) >> 1 != late.sequence {
            return true;
        }
        let used = head.used.load(Ordering::Acquire);
        if used <= late.from {
            return false;
        }
        self.fill(late.chunk, late.from, used, &late.words);
        true
    }

    /// Writes those published records of a chunk that are missing in the new file.
    fn fill(&self, chunk: usize, from: u32, used: u32, words: &[u64]) {
        let records = words.chunks_exact(RECORD_BYTES / 8);
        for (at, words) in (from..used).step_by(RECORD_BYTES).zip(records) {
            // SAFETY: the range is within the chunk; below `used` only this thread writes, and all
            // accesses are atomic.
            let record = unsafe { &*self.chunk(chunk).add(at as usize).cast::<Record>() };
            // Fresh pages are zeros, and no event has the key 0.
            if record.key.load(Ordering::Relaxed) == 0 {
                for (word, late) in [&record.key, &record.value, &record.meta]
                    .into_iter()
                    .zip(words)
                {
                    let _ = word.compare_exchange(0, *late, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Claims a free region, or creates one.
    pub(crate) fn claim() -> Option<&'static Self> {
        for region in regions() {
            if region.session.load(Ordering::SeqCst) == 0
                && region
                    .status
                    .compare_exchange(FREE, OWNED, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(region);
            }
        }
        Self::make()
    }

    fn make() -> Option<&'static Self> {
        let page = 4096;
        let control = os::reserve(page)?;
        let base = os::reserve(REGION_BYTES)?;
        // SAFETY: both ranges were just reserved.
        let mapped =
            unsafe { os::map_memory(control, page) && os::map_memory(base, first_extent_bytes(0)) };
        if !mapped {
            return None;
        }
        let region = control.cast::<Self>();
        // SAFETY: the memory is fresh, large enough and page-aligned, and no other thread refers to
        // it.
        unsafe {
            region.write(Self {
                next: AtomicPtr::new(std::ptr::null_mut()),
                index: REGION_COUNT.fetch_add(1, Ordering::Relaxed),
                base,
                status: AtomicU32::new(OWNED),
                session: AtomicU32::new(0),
                mapped_for: AtomicU32::new(0),
            });
        }
        // SAFETY: initialized above, never freed.
        let region: &'static Self = unsafe { &*region };
        let mut first = REGIONS.load(Ordering::Relaxed);
        loop {
            region.next.store(first, Ordering::Relaxed);
            let new = std::ptr::from_ref(region).cast_mut();
            match REGIONS.compare_exchange(first, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(region),
                Err(now) => first = now,
            }
        }
    }

    /// Maps the pages of a session into the region and writes its head. Only the owner may call
    /// this, and only while `session` is 0. `whole_name`: the Rust library may be queried for the
    /// thread's name.
    pub(crate) fn prepare(&self, state: u32, whole_name: bool) -> bool {
        let chunks = (ATTACH.first_chunks.load(Ordering::Relaxed) as usize).clamp(1, MAX_CHUNKS);
        let bytes = first_extent_bytes(chunks);
        let rings = ATTACH.rings.load(Ordering::Relaxed);
        let mut file_offset = u64::MAX;
        if self.mapped_for.load(Ordering::Relaxed) == state {
            // The region of an ended thread of this session: its extents stay.
            self.reset(whole_name, None);
            return true;
        }
        if rings != u32::MAX && ATTACH.failed.load(Ordering::Relaxed) == 0 {
            file_offset = ATTACH.rings_len.fetch_add(bytes as u64, Ordering::Relaxed);
            match os::allocate(rings.cast_signed(), file_offset, bytes as u64) {
                Ok(())
                    // SAFETY: the range belongs to this region; the space has been allocated.
                    if unsafe {
                        os::map_file(self.base, bytes, rings.cast_signed(), file_offset)
                    } =>
                {
                    self.mapped_for.store(state, Ordering::Relaxed);
                }
                result => {
                    let error = result.err().unwrap_or(libc::ENOMEM);
                    ATTACH.failed.store(error.unsigned_abs(), Ordering::Relaxed);
                    file_offset = u64::MAX;
                }
            }
        }
        // SAFETY: the range belongs to this region.
        if file_offset == u64::MAX && !unsafe { os::map_memory(self.base, bytes) } {
            return false;
        }
        let warm_chunks = chunks.min(2);
        // SAFETY: mapped above.
        unsafe { os::warm(self.base, first_extent_bytes(warm_chunks)) };
        self.reset(whole_name, Some((file_offset, chunks)));
        true
    }

    fn reset(&self, whole_name: bool, fresh: Option<(u64, usize)>) {
        let head = self.head();
        head.serial.store(0, Ordering::Release);
        head.dropped.store(0, Ordering::Relaxed);
        head.cut.store(0, Ordering::Relaxed);
        for chunk in &head.chunks {
            chunk.state.store(0, Ordering::Relaxed);
            chunk.used.store(0, Ordering::Relaxed);
        }
        if fresh.is_none() {
            for slot in self.open() {
                slot.meta.store(0, Ordering::Relaxed);
            }
        }
        if let Some((file_offset, chunks)) = fresh {
            head.file_offset.store(file_offset, Ordering::Relaxed);
            head.chunk_limit
                .store(u32::try_from(chunks).unwrap_or(1), Ordering::Relaxed);
            for extent in &head.extents {
                extent.chunks.store(0, Ordering::Relaxed);
            }
            head.extents[0]
                .file_offset
                .store(file_offset, Ordering::Relaxed);
            head.extents[0]
                .chunks
                .store(chunks as u64, Ordering::Relaxed);
        }
        head.tid.store(os::thread_id(), Ordering::Relaxed);
        let mut name = [0; THREAD_NAME_BYTES];
        let len = current_thread_name(&mut name, whole_name);
        head.name_given.store(0, Ordering::SeqCst);
        head.set_thread_name(&name[..len as usize]);
        head.nonce
            .store(ATTACH.nonce.load(Ordering::Relaxed), Ordering::Release);
        let serial = ATTACH.next_serial.fetch_add(1, Ordering::Relaxed);
        head.serial.store(serial, Ordering::Release);
    }
}

/// Writes the calling thread's name; returns its number of bytes.
///
/// After the thread's destructors have run, `thread::current` panics.
fn current_thread_name(into: &mut [u8; THREAD_NAME_BYTES], whole: bool) -> u32 {
    let mut short = [0; 16];
    let mut len = os::thread_name(&mut short);
    into[..len].copy_from_slice(&short[..len]);
    if len == 15 && whole {
        // The kernel keeps 15 bytes; a thread that Rust started knows its whole name.
        let current = std::thread::current();
        if let Some(name) = current.name()
            && name.as_bytes().starts_with(&short[..15])
        {
            len = name.len().min(THREAD_NAME_BYTES);
            while !name.is_char_boundary(len) {
                len -= 1;
            }
            into[..len].copy_from_slice(&name.as_bytes()[..len]);
        }
    }
    u32::try_from(len).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a record of a chunk.
    fn record(chunk: *mut u8, at: usize) -> &'static Record {
        // SAFETY: tests pass chunks of mappings that live long enough.
        unsafe { &*chunk.add(at).cast::<Record>() }
    }

    #[test]
    fn records_of_a_chunk_that_moved_after_the_head_are_filled_in() {
        let bytes = first_extent_bytes(2);
        let file = || {
            let file = tempfile::tempfile().unwrap();
            file.set_len(bytes as u64).unwrap();
            file
        };
        let (old, new) = (file(), file());
        let region = RingMemory::claim().unwrap();
        // SAFETY: the range belongs to the region.
        assert!(unsafe { os::map_file(region.base, bytes, old.as_raw_fd(), 0) });
        let head = region.head();
        head.chunk_limit.store(2, Ordering::Relaxed);
        head.extents[0].file_offset.store(0, Ordering::Relaxed);
        head.extents[0].chunks.store(2, Ordering::Relaxed);
        head.chunks[0].take(1);
        record(region.chunk(0), 0).put([1, 2, 3]);
        head.chunks[0].used.store(24, Ordering::Release);
        // SAFETY: no other thread uses the region.
        let before = unsafe { region.relocate(old.as_raw_fd(), &new) }.unwrap();
        // What a writer does whose chunks are still those of the old file while its head is that of the new one.
        let old_chunk = |chunk: usize| {
            // SAFETY: within the mapping.
            unsafe { before.at.add(CHUNKS_OFFSET + chunk * CHUNK_BYTES) }
        };
        record(old_chunk(0), 24).put([4, 5, 6]);
        head.chunks[0].used.store(48, Ordering::Release);
        head.chunks[0].leave(1);
        head.chunks[1].take(2);
        record(old_chunk(1), 0).put([7, 8, 9]);
        head.chunks[1].used.store(24, Ordering::Release);
        record(old_chunk(1), 24).put([10, 11, 12]);

        let late = region.fill_from(&before).unwrap();
        let words = |chunk: usize, at: usize| {
            let record = record(region.chunk(chunk), at);
            [&record.key, &record.value, &record.meta].map(|word| word.load(Ordering::Relaxed))
        };
        assert_eq!(words(0, 0), [0; 3], "the journal has it from the old file");
        assert_eq!(words(0, 24), [4, 5, 6]);
        assert_eq!(words(1, 0), [7, 8, 9]);
        assert_eq!(words(1, 24), [0; 3]);
        assert!(!region.write_late_record(&late));
        head.chunks[1].used.store(48, Ordering::Release);
        assert!(region.write_late_record(&late));
        assert_eq!(words(1, 24), [10, 11, 12]);
    }
}
