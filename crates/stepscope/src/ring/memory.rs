//! Regions: the memory that a thread's ring lies in.
//!
//! A region is address space that is reserved once and never given back; a session puts pages of its
//! rings file (or plain memory) there, and takes them away again by putting private pages in their
//! place. So no thread that is still writing ever meets an address without memory behind it.
//!
//! Nothing here allocates or locks: a thread may get its region inside a signal handler.
#![allow(unsafe_code, reason = "mappings; see the module's text")]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "mappings begin on pages and all places in them are multiples of 8"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::platform::os;
use crate::ring::chunk::{ChunkHead, Record};
use crate::ring::layout::{
    CHUNK_BYTES, CHUNK_USABLE, CHUNKS_OFFSET, MAX_CHUNKS, OPEN_OFFSET, OPEN_SPANS, RECORD_BYTES,
    REGION_BYTES, RegionHead, THREAD_NAME_BYTES, first_extent_bytes,
};

/// What attaching threads need of the session.
pub(crate) struct Attach {
    /// The rings file, -1 in memory.
    pub(crate) rings: AtomicU32,
    /// Bytes of the rings file that are taken.
    pub(crate) rings_len: AtomicU64,
    /// Nonce of the session.
    pub(crate) nonce: AtomicU64,
    /// Serial number of the next thread.
    pub(crate) next_serial: AtomicU32,
    /// Chunks that a region begins with.
    pub(crate) first_chunks: AtomicU32,
    /// Why a region could not be put into the rings file (an `errno`), 0 if all could.
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

/// Nobody has the region.
pub(crate) const FREE: u32 = 0;
/// A living thread has it.
pub(crate) const OWNED: u32 = 1;
/// Its thread has ended; the drain thread frees it.
pub(crate) const RETIRED: u32 = 2;
/// The session is taking it back.
pub(crate) const SWEEPING: u32 = u32::MAX;

/// Control of one region, private to the process and never freed: kept in a list, and used again.
pub(crate) struct RingMemory {
    /// The next older one.
    next: AtomicPtr<RingMemory>,
    /// Number in the list, from 0.
    pub(crate) index: u32,
    /// Where it lies; never changes.
    base: *mut u8,
    /// [`FREE`], [`OWNED`] or [`RETIRED`].
    pub(crate) status: AtomicU32,
    /// The value of [`STATE`] it records for, 0 for none, or [`SWEEPING`].
    pub(crate) session: AtomicU32,
    /// The session whose rings file is mapped here, 0 for none.
    pub(crate) mapped_for: AtomicU32,
}

// SAFETY: `base` is an address of a mapping that is never removed; what lies there is accessed
// through atomics, and raw bytes only by the rules in the module's text.
unsafe impl Sync for RingMemory {}
// SAFETY: as above.
unsafe impl Send for RingMemory {}

/// The head and the open slots, as words that are as small as the smallest of their fields.
type HeadWords = [AtomicU32; CHUNKS_OFFSET / 4];

/// What a region showed of a rings file that it has left: nobody writes there any more.
pub(crate) struct LeftRingMemory {
    at: *mut u8,
    /// The words that were copied to the new file.
    copied: Vec<u32>,
}

impl LeftRingMemory {
    fn show(file: RawFd, extents: &[(usize, u64, usize)]) -> io::Result<Self> {
        let at = os::reserve(REGION_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let old = Self {
            at,
            copied: Vec::new(),
        };
        for (offset, place, bytes) in extents {
            // SAFETY: within what was just reserved; the file's space was allotted for the region.
            if !unsafe { os::map_file(at.add(*offset), *bytes, file, *place) } {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(old)
    }

    /// The head.
    pub(crate) fn head(&self) -> &RegionHead {
        // SAFETY: mapped as long as `self` lives, and every content of atomics is valid.
        unsafe { &*self.at.cast::<RegionHead>() }
    }

    fn words(&self) -> &HeadWords {
        // SAFETY: as `head`; the first extent begins with the head and the open slots.
        unsafe { &*self.at.cast::<HeadWords>() }
    }

    /// Bytes of a chunk, not past what `used` said.
    pub(crate) fn published(&self, chunk: usize, from: u32, to: u32) -> &[u8] {
        debug_assert!(from <= to && to as usize <= CHUNK_USABLE && chunk < MAX_CHUNKS);
        let offset = CHUNKS_OFFSET + chunk * CHUNK_BYTES + from as usize;
        // SAFETY: within the mapping, by the head that it has itself; published before, and final.
        unsafe { std::slice::from_raw_parts(self.at.add(offset), (to - from) as usize) }
    }
}

/// What a chunk of an old region has behind the records that were published there.
#[derive(Clone)]
pub(crate) struct LateRecords {
    chunk: usize,
    sequence: u32,
    /// Where in the chunk it begins, bytes.
    from: u32,
    words: Vec<u64>,
}

impl LeftRingMemory {
    /// Of the chunk that the owner was filling.
    pub(crate) fn late(&self) -> Option<LateRecords> {
        let chunks = self.head().chunks.iter().enumerate();
        let state = |chunk: &ChunkHead| chunk.state.load(Ordering::Acquire);
        let (chunk, head) = chunks
            .filter(|(_, chunk)| state(chunk) & 1 == 0)
            .max_by_key(|(_, chunk)| state(chunk))?;
        let usable = u32::try_from(CHUNK_USABLE).unwrap_or(0);
        let from = head.used.load(Ordering::Acquire).min(usable);
        let bytes = self.published(chunk, from, usable);
        let words = bytes
            .chunks_exact(8)
            .map(|word| crate::journal::record_iter::word(word, 0));
        (state(head) != 0).then(|| LateRecords {
            chunk,
            sequence: state(head) >> 1,
            from,
            words: words.collect(),
        })
    }
}

impl Drop for LeftRingMemory {
    fn drop(&mut self) {
        // SAFETY: made by `show`, and only `self` knows of it.
        unsafe { os::unmap(self.at, REGION_BYTES) };
    }
}

static REGIONS: AtomicPtr<RingMemory> = AtomicPtr::new(std::ptr::null_mut());
static REGION_COUNT: AtomicU32 = AtomicU32::new(0);

/// All regions there are.
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
    /// The head, in the mapping.
    pub(crate) fn head(&self) -> &'static RegionHead {
        // SAFETY: the first page of a region is mapped as soon as it is in the list, for ever, and
        // `RegionHead` consists of atomics for which every content is valid.
        unsafe { &*self.base.cast::<RegionHead>() }
    }

    /// The open slots.
    pub(crate) fn open(&self) -> &'static [Record; OPEN_SPANS] {
        // SAFETY: as `head`.
        unsafe { &*self.base.add(OPEN_OFFSET).cast::<[Record; OPEN_SPANS]>() }
    }

    /// Where a chunk begins.
    pub(crate) fn chunk(&self, index: usize) -> *mut u8 {
        debug_assert!(index < MAX_CHUNKS);
        // SAFETY: within the region's reserved space.
        unsafe { self.base.add(CHUNKS_OFFSET + index * CHUNK_BYTES) }
    }

    /// Bytes of a chunk that its owner has published.
    ///
    /// # Safety
    /// Only the drain thread, which gives chunks back, and not past what `used` said.
    pub(crate) unsafe fn published(&self, chunk: usize, from: u32, to: u32) -> &[u8] {
        // SAFETY: the bytes below `used` were written before it was published, and are not written
        // again before the drain thread gives the chunk back.
        unsafe {
            let at = self.chunk(chunk).add(from as usize);
            std::slice::from_raw_parts(at, (to - from) as usize)
        }
    }

    /// Replaces whatever file is mapped by private memory. A thread that still writes there is not
    /// harmed, and not heard.
    pub(crate) fn unmap_file(&self) {
        if self.mapped_for.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let limit = self.head().chunk_limit.load(Ordering::Relaxed) as usize;
        let bytes = first_extent_bytes(limit.min(MAX_CHUNKS));
        // SAFETY: the range is this region's own; it stays readable and writable.
        unsafe { os::map_memory(self.base, bytes) };
    }

    /// As [`RingMemory::unmap_file`], for a region that an ended thread of this session has left.
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

    /// Ranges that show the rings file: offset in the region, offset in the file, bytes.
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

    /// Allots in `file` the space that the region has in the rings file.
    pub(crate) fn allot_in(&self, file: &File) -> io::Result<()> {
        for (_, place, bytes) in self.extents() {
            os::allot(file.as_raw_fd(), place, bytes as u64)
                .map_err(io::Error::from_raw_os_error)?;
        }
        Ok(())
    }

    /// Shows `new` in place of the rings file `old`, at the same offsets; the space is allotted. The head and the open slots
    /// go along; of the chunks, what was recorded so far is only in what is returned.
    ///
    /// The owner may be recording meanwhile. Each of its stores goes into one file or the other; those
    /// that `old` got too late to be copied are brought over afterwards, unless the owner has stored
    /// to the same word again.
    ///
    /// # Safety
    /// Only the drain thread, while nobody is attaching.
    pub(crate) unsafe fn relocate(&self, old: RawFd, new: &File) -> io::Result<LeftRingMemory> {
        let extents = self.extents();
        let Some((_, place, _)) = extents.first().copied() else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut before = LeftRingMemory::show(old, &extents)?;
        let words = before.words().iter();
        before.copied = words.map(|word| word.load(Ordering::Acquire)).collect();
        let bytes: Vec<u8> = before
            .copied
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        new.write_all_at(&bytes, place)?;
        for (at, place, bytes) in extents {
            // SAFETY: this region's own space; the file's has been allotted.
            if !unsafe { os::map_file(self.base.add(at), bytes, new.as_raw_fd(), place) } {
                let error = io::Error::last_os_error();
                // SAFETY: as above. What is open or current is lost; the program is not.
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

    /// Puts a record in its place whose owner wrote it to the old file just before the region was moved,
    /// and published it here just after. Whether that is settled. Only the drain thread.
    pub(crate) fn place_late(&self, late: &LateRecords) -> bool {
        let head = &self.head().chunks[late.chunk];
        if head.state.load(Ordering::Acquire) >> 1 != late.sequence {
            return true;
        }
        let used = head.used.load(Ordering::Acquire);
        if used <= late.from {
            return false;
        }
        let records = late.words.chunks_exact(RECORD_BYTES / 8);
        for (at, words) in (late.from..used).step_by(RECORD_BYTES).zip(records) {
            // SAFETY: within the chunk; below `used` only this thread writes, and it is all atomics.
            let record = unsafe { &*self.chunk(late.chunk).add(at as usize).cast::<Record>() };
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
        true
    }

    /// A region that nobody uses, or a new one.
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
        // SAFETY: fresh, large enough, aligned to a page, and nobody else has it.
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
        // SAFETY: written above, never freed.
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

    /// Puts the pages of a session behind the region and writes its head. Only the owner, only
    /// while `session` is 0. `whole_name`: the Rust library may be asked for the thread's name.
    pub(crate) fn prepare(&self, state: u32, whole_name: bool) -> bool {
        let chunks = (ATTACH.first_chunks.load(Ordering::Relaxed) as usize).clamp(1, MAX_CHUNKS);
        let bytes = first_extent_bytes(chunks);
        let rings = ATTACH.rings.load(Ordering::Relaxed);
        let mut place = u64::MAX;
        if self.mapped_for.load(Ordering::Relaxed) == state {
            // An ended thread's, in this session: the extents stay as they are.
            self.reset(whole_name, None);
            return true;
        }
        if rings != u32::MAX && ATTACH.failed.load(Ordering::Relaxed) == 0 {
            place = ATTACH.rings_len.fetch_add(bytes as u64, Ordering::Relaxed);
            match os::allot(rings.cast_signed(), place, bytes as u64) {
                // SAFETY: this region's own range; the space has been allotted.
                Ok(()) if unsafe { os::map_file(self.base, bytes, rings.cast_signed(), place) } => {
                    self.mapped_for.store(state, Ordering::Relaxed);
                }
                result => {
                    let error = result.err().unwrap_or(libc::ENOMEM);
                    ATTACH.failed.store(error.unsigned_abs(), Ordering::Relaxed);
                    place = u64::MAX;
                }
            }
        }
        // SAFETY: this region's own range.
        if place == u64::MAX && !unsafe { os::map_memory(self.base, bytes) } {
            return false;
        }
        let warm_chunks = chunks.min(2);
        // SAFETY: mapped above.
        unsafe { os::warm(self.base, first_extent_bytes(warm_chunks)) };
        self.reset(whole_name, Some((place, chunks)));
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
        if let Some((place, chunks)) = fresh {
            head.file_offset.store(place, Ordering::Relaxed);
            head.chunk_limit
                .store(u32::try_from(chunks).unwrap_or(1), Ordering::Relaxed);
            for extent in &head.extents {
                extent.chunks.store(0, Ordering::Relaxed);
            }
            head.extents[0].file_offset.store(place, Ordering::Relaxed);
            head.extents[0]
                .chunks
                .store(chunks as u64, Ordering::Relaxed);
        }
        head.tid.store(os::thread_id(), Ordering::Relaxed);
        let mut name = [0; THREAD_NAME_BYTES];
        let len = own_name(&mut name, whole_name);
        head.name_given.store(0, Ordering::SeqCst);
        crate::drain::thread::set_name(head, &name[..len as usize]);
        head.nonce
            .store(ATTACH.nonce.load(Ordering::Relaxed), Ordering::Release);
        let serial = ATTACH.next_serial.fetch_add(1, Ordering::Relaxed);
        head.serial.store(serial, Ordering::Release);
    }
}

/// The calling thread's name; the number of bytes.
///
/// Past the thread's own destructors, `thread::current` panics.
fn own_name(into: &mut [u8; THREAD_NAME_BYTES], whole: bool) -> u32 {
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
