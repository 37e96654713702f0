//! The hot path: writing into the calling thread's region.
//!
//! # How it works
//!
//! Each thread that records owns a [`RingMemory`] (see [`crate::ring::layout`]). A span takes an
//! *open slot* when it starts: a stack in the region, so that a killed program's open spans are
//! known. The *record* is appended to the current chunk when the span ends. A span that stays open
//! for a day therefore holds 24 bytes of the stack and never blocks a ring.
//!
//! # Access rules
//!
//! * Only the owner writes records, open slots and `used`, and takes free chunks.
//! * Only the drain thread gives chunks back and raises `chunk_limit`.
//! * Publication is one Release store after the words: `used` for records, the slot's `meta` for
//!   open slots, `state` for chunks. The other side loads it with Acquire. There is no
//!   read-modify-write and no fence on the hot path.
//! * A killed thread leaves consistent memory: stores to a mapping reach the kernel's page in
//!   program order, and every publication follows the data it publishes. A thread killed between
//!   "record appended" and "slot given back" leaves one span twice; readers drop the open one.
//!
//! # Signal handlers
//!
//! A handler may annotate. While a thread is inside the few instructions that change its ring,
//! [`Local::state`] is 0, so a handler that interrupts it there takes the cold path, sees that the
//! thread is already attached, and counts its event as dropped. Attaching uses neither the
//! allocator nor a lock.
//!
//! # Sessions, forks, thread exit
//!
//! [`STATE`](crate::ring::session_state::STATE) holds the session and its level; 0 is off. A thread
//! compares it with the session it is attached to, so a new session, or none, needs no message to
//! threads. A region stays with its thread until the thread ends. When a session ends, private pages
//! replace the region's mapped pages at the same address, so a thread in the middle of a record
//! writes to memory that is no longer read. A fork's child does the same to all regions before it
//! continues.
#![allow(unsafe_code, reason = "shared rings; see the module's text")]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "mappings start on pages and all offsets in them are multiples of 8"
)]

mod attach;
mod calls;
mod extra_ring;
pub(crate) mod thread_exit;
#[cfg(feature = "tracing")]
mod traced;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use crate::platform::clock::ticks;
use crate::ring::chunk::{Record, publish};
use crate::ring::layout::{CHUNK_USABLE, OPEN_SPANS, RECORD_BYTES, RegionHead, THREAD_NAME_BYTES};
use crate::ring::memory::{ATTACH, FREE, RingMemory, regions};
use crate::ring::session_state::set_state;
use crate::ring::wakeup;

use attach::attach;
pub(crate) use attach::{ATTACHING, LOST, RELOCATING};
pub(crate) use extra_ring::ExtraRing;
#[cfg(feature = "tracing")]
pub(crate) use traced::ready_writer;

/// Identifies the calling thread uniquely among living threads.
pub(crate) fn this_thread() -> usize {
    LOCAL.with(std::ptr::from_ref) as usize
}

/// Bytes of a chunk that hold records.
#[allow(clippy::cast_possible_truncation, reason = "65,520")]
const FULL: u32 = CHUNK_USABLE as u32;
/// Bytes of one record.
#[allow(clippy::cast_possible_truncation, reason = "24")]
const ONE: u32 = RECORD_BYTES as u32;

/// Thread-local state of the thread's region. It has no destructor: it works until the thread's
/// last instruction.
pub(crate) struct Local {
    /// The attached session; 0 while not attached, and inside the few instructions that change the
    /// ring.
    state: Cell<u32>,
    /// The attached session, also inside those instructions.
    home: Cell<u32>,
    /// The session for which attaching failed; the thread does not retry for it.
    refused: Cell<u32>,
    /// Whether the thread is inside `attach`.
    attaching: Cell<bool>,
    /// Whether the thread's Rust destructors have run.
    ended: Cell<bool>,
    region: Cell<Option<&'static RingMemory>>,
    head: Cell<*const RegionHead>,
    open: Cell<*const Record>,
    /// Address of the current chunk, and the word that publishes its used bytes.
    chunk_at: Cell<*mut u8>,
    used: Cell<*const AtomicU32>,
    /// Used bytes of the current chunk; `FULL` before the first one. The owner never reads back
    /// what it has published: while the drain thread moves the ring to another file, that word may
    /// have an older value.
    filled: Cell<u32>,
    /// Index of the current chunk in the region, and its sequence number.
    chunk: Cell<u32>,
    sequence: Cell<u32>,
    depth: Cell<u32>,
    /// The session for which a call tracer has described this thread.
    described: Cell<u32>,
    owner: Owner,
}

/// Owner of a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// A thread.
    Thread,
    /// An [`ExtraRing`], which releases the region itself.
    ExtraRing,
}

impl Local {
    const fn new(owner: Owner) -> Self {
        Self {
            state: Cell::new(0),
            home: Cell::new(0),
            refused: Cell::new(0),
            attaching: Cell::new(false),
            ended: Cell::new(false),
            region: Cell::new(None),
            head: Cell::new(std::ptr::null()),
            open: Cell::new(std::ptr::null()),
            chunk_at: Cell::new(std::ptr::null_mut()),
            used: Cell::new(std::ptr::null()),
            filled: Cell::new(FULL),
            chunk: Cell::new(u32::MAX),
            sequence: Cell::new(0),
            depth: Cell::new(0),
            described: Cell::new(0),
            owner,
        }
    }
}

thread_local! {
    static LOCAL: Local = const { Local::new(Owner::Thread) };
}

/// Index of an open span in its thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSlot(u32);

/// Write access of a thread that is attached to the recording session.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    local: &'a Local,
    state: u32,
}

/// Calls `f` with the calling thread's writer, and attaches the thread first if necessary. Returns
/// `None` when the event has to be dropped (and has been counted).
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "measured: a call and a closure in memory cost a third of a span"
)]
pub(crate) fn with_writer<T>(state: u32, f: impl FnOnce(Writer<'_>) -> T) -> Option<T> {
    // The compiler inlines a closure this small; with a call of `f` in it, it sometimes does not.
    let local = LOCAL.with(std::ptr::from_ref);
    // SAFETY: belongs to this thread, which is running; without a destructor it is valid until the
    // thread ends.
    let local = unsafe { &*local };
    if local.state.get() != state && !attach(local, state) {
        return None;
    }
    Some(f(Writer { local, state }))
}

impl Writer<'_> {
    /// Reads the session's clock, ticks.
    #[inline]
    pub(crate) fn now(self) -> u64 {
        ticks(self.state)
    }

    /// Identifies the thread uniquely among living threads.
    #[inline]
    pub(crate) fn thread(self) -> usize {
        std::ptr::from_ref(self.local) as usize
    }

    /// Sets a thread name that the operating system does not have.
    #[cold]
    pub(crate) fn set_thread_name(self, name: &str) {
        // SAFETY: the thread is attached, so `head` points to its region, which is never unmapped.
        let head = unsafe { &*self.local.head.get() };
        let mut len = name.len().min(THREAD_NAME_BYTES);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        head.name_given.store(1, Ordering::SeqCst);
        head.set_thread_name(&name.as_bytes()[..len]);
    }

    /// Sets the operating system's id of the thread that the ring describes.
    #[cold]
    pub(crate) fn set_thread_id(self, id: u32) {
        // SAFETY: the thread is attached, so `head` points to its region, which is never unmapped.
        let head = unsafe { &*self.local.head.get() };
        head.tid.store(id, Ordering::Relaxed);
    }

    #[inline]
    fn enter(self) {
        self.local.state.set(0);
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    fn leave(self) {
        compiler_fence(Ordering::SeqCst);
        // Not `self.state`: code that ran in between (a handler, a value's `Debug`) may have
        // attached the thread to a newer session.
        self.local.state.set(self.local.home.get());
    }

    /// Takes the next slot of the stack of open spans.
    ///
    /// A handler that interrupts this takes the slot after it. (If the handler's span ends before
    /// this slot is filled, the slot may be used twice: a kill then shows one open span less.)
    #[inline]
    pub(crate) fn open(self, key: u64, meta: u64) -> OpenSlot {
        let depth = self.local.depth.get();
        self.local.depth.set(depth + 1);
        compiler_fence(Ordering::SeqCst);
        if (depth as usize) < OPEN_SPANS {
            // SAFETY: attached, so it points into the region; the index was checked.
            let slot = unsafe { &*self.local.open.get().add(depth as usize) };
            slot.key.store(key, Ordering::Relaxed);
            slot.meta.store(meta, Ordering::Release);
        }
        OpenSlot(depth)
    }

    /// Releases a slot and appends the span's record.
    #[inline]
    pub(crate) fn close(self, slot: OpenSlot, key: u64, end: u64, meta: u64) {
        self.enter();
        let local = self.local;
        let index = slot.0 as usize;
        let filled = local.filled.get();
        if filled == FULL || index >= OPEN_SPANS || slot.0 + 1 != local.depth.get() {
            return self.close_slowly(slot, key, end, meta);
        }
        // SAFETY: the chunk has room for whole records up to `FULL`.
        unsafe { put(local.chunk_at.get().add(filled as usize), [key, end, meta]) };
        self.publish(filled + ONE);
        // SAFETY: attached; the index was checked.
        let open = unsafe { &*local.open.get().add(index) };
        open.meta.store(0, Ordering::Release);
        // SAFETY: attached; the index was checked.
        if index == 0 || unsafe { &*local.open.get().add(index - 1) }.is_taken() {
            local.depth.set(slot.0);
        } else {
            self.trim(slot.0);
        }
        self.leave();
    }

    /// Handles the rest of [`close`](Self::close) when the chunk is full or the span is not the
    /// innermost. It is a separate function, called last, so that the fast path saves no registers
    /// and keeps no array.
    #[cold]
    #[inline(never)]
    fn close_slowly(self, slot: OpenSlot, key: u64, end: u64, meta: u64) {
        self.append([key, end, meta]);
        self.pop(slot);
        self.leave();
    }

    /// Appends one record.
    #[inline]
    pub(crate) fn record(self, words: [u64; 3]) {
        self.enter();
        self.append(words);
        self.leave();
    }

    /// Appends a record and the records that continue it, all or none.
    pub(crate) fn record_group(self, words: [u64; 3], tail: &[u8]) {
        self.enter();
        let bytes = RECORD_BYTES + tail.len().next_multiple_of(RECORD_BYTES);
        if self.make_room(bytes) {
            let at = self.at();
            // SAFETY: `make_room` has checked that `bytes` fit between `at` and the chunk's end.
            unsafe {
                put(at, words);
                let text = at.add(RECORD_BYTES);
                std::ptr::copy_nonoverlapping(tail.as_ptr(), text, tail.len());
                let pad = bytes - RECORD_BYTES - tail.len();
                text.add(tail.len()).write_bytes(0, pad);
            }
            self.publish_more(bytes);
        }
        self.leave();
    }

    /// Counts a truncated text.
    #[cold]
    pub(crate) fn count_cut(self) {
        // SAFETY: the thread is attached, so `head` points to its region, which is never unmapped.
        let cut = unsafe { &(*self.local.head.get()).cut };
        cut.store(cut.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The slot of a span that has none.
    pub(crate) const NO_SLOT: OpenSlot = OpenSlot(u32::MAX);

    /// Publishes the first `filled` bytes of the current chunk. There must be a current chunk.
    #[inline]
    fn publish(self, filled: u32) {
        self.local.filled.set(filled);
        // SAFETY: with a current chunk it points into the region's head, which is never unmapped.
        publish(unsafe { &*self.local.used.get() }, filled);
    }

    /// Returns the address of the next record. The chunk must have room for it.
    #[inline]
    fn at(self) -> *mut u8 {
        // SAFETY: within the chunk.
        unsafe {
            self.local
                .chunk_at
                .get()
                .add(self.local.filled.get() as usize)
        }
    }

    #[inline]
    fn append(self, words: [u64; 3]) {
        let filled = self.local.filled.get();
        if filled == FULL {
            return self.append_in_next_chunk(words);
        }
        // SAFETY: the chunk has room for whole records up to `FULL`.
        unsafe { put(self.at(), words) };
        self.publish(filled + ONE);
    }

    #[cold]
    #[inline(never)]
    fn append_in_next_chunk(self, words: [u64; 3]) {
        if self.make_room(RECORD_BYTES) {
            // SAFETY: `make_room` has checked that a record fits.
            unsafe { put(self.at(), words) };
            self.publish_more(RECORD_BYTES);
        }
    }

    fn publish_more(self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(0);
        self.publish(self.local.filled.get() + bytes);
    }

    /// Ensures that `bytes` fit into the current chunk, and takes the next chunk if necessary;
    /// `false` (and counted) when all chunks are full.
    #[cold]
    fn make_room(self, bytes: usize) -> bool {
        let local = self.local;
        if bytes <= (FULL - local.filled.get()) as usize {
            return true;
        }
        wakeup::wake_if_asleep();
        // SAFETY: the thread is attached, so `head` points to its region, which is never unmapped.
        let head = unsafe { &*local.head.get() };
        let Some(region) = local.region.get() else {
            return false;
        };
        let limit = head.chunk_limit.load(Ordering::Acquire) as usize;
        // Excludes the current chunk: its head may be an outdated one while the ring moves to
        // another file.
        let current = local.chunk.get() as usize;
        let mut free = head.chunks.iter().take(limit).enumerate();
        let free = free.position(|(chunk, head)| chunk != current && head.is_free());
        let (Some(free), true) = (free, bytes <= CHUNK_USABLE) else {
            head.dropped
                .store(head.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        };
        if let Some(old) = head.chunks.get(current) {
            old.leave(local.sequence.get());
        }
        let sequence = local.sequence.get() + 1;
        let chunk = &head.chunks[free];
        chunk.take(sequence);
        local.sequence.set(sequence);
        local.chunk.set(u32::try_from(free).unwrap_or(u32::MAX));
        local.used.set(&raw const chunk.used);
        local.filled.set(0);
        local.chunk_at.set(region.chunk(free));
        true
    }

    fn pop(self, slot: OpenSlot) {
        let local = self.local;
        let index = slot.0 as usize;
        if index >= OPEN_SPANS {
            // A span without a slot, or `NO_SLOT`.
            let depth = local.depth.get();
            if depth as usize > OPEN_SPANS {
                self.trim(depth - 1);
            }
            return;
        }
        // SAFETY: attached; the index was checked.
        let open = unsafe { &*local.open.get().add(index) };
        open.meta.store(0, Ordering::Release);
        if slot.0 + 1 == local.depth.get() {
            self.trim(slot.0);
        }
    }

    /// Sets the depth, less the topmost slots whose spans have already ended.
    #[cold]
    fn trim(self, mut depth: u32) {
        let local = self.local;
        while depth > 0 && depth as usize <= OPEN_SPANS {
            // SAFETY: attached; the index was checked.
            let below = unsafe { &*local.open.get().add(depth as usize - 1) };
            if below.is_taken() {
                break;
            }
            depth -= 1;
        }
        local.depth.set(depth);
    }
}

/// Writes the three words of one record.
///
/// # Safety
/// `at` must have room for a record of the current chunk.
#[inline]
unsafe fn put(at: *mut u8, words: [u64; 3]) {
    // SAFETY: chunks start on pages and records are 24 bytes, so `at` is aligned to 8.
    unsafe { &*at.cast::<Record>() }.put(words);
}

/// Releases the region of the calling thread, whose Rust destructors have run.
fn thread_ends() {
    let _ = LOCAL.try_with(|local| {
        local.ended.set(true);
        local.state.set(0);
        local.home.set(0);
        local.region.set(None);
    });
}

/// In a fork's child: frees all regions and unmaps the parent's pages.
pub(crate) fn after_fork_in_child() {
    set_state(0);
    wakeup::after_fork_in_child();
    ATTACHING.store(0, Ordering::SeqCst);
    RELOCATING.store(false, Ordering::SeqCst);
    ATTACH.rings.store(u32::MAX, Ordering::SeqCst);
    LOCAL.with(|local| {
        local.state.set(0);
        local.home.set(0);
        local.attaching.set(false);
        local.region.set(None);
    });
    thread_exit::unwatch();
    for region in regions() {
        region.unmap_file();
        region.session.store(0, Ordering::SeqCst);
        region.status.store(FREE, Ordering::SeqCst);
    }
}
