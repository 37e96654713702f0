//! The hot path: how a thread writes into its own region.
//!
//! # How it works
//!
//! Each thread that records owns a [`RingMemory`] (see [`crate::ring::layout`]). The span's *open slot* is
//! taken when it begins: a stack in the region, so that a killed program's open spans are known.
//! The *record* is appended to the current chunk when the span ends. So a span that stays open
//! for a day holds 24 bytes of the stack and never holds up a ring.
//!
//! # Who may touch what
//!
//! * The owner alone writes records, open slots, `used`, and takes free chunks.
//! * The drain thread alone gives chunks back and raises `chunk_limit`.
//! * Publication is one Release store after the words: `used` for records, the slot's own `meta` for
//!   open slots, `state` for chunks. The other side loads it with Acquire. There is no read-modify-write and
//!   no fence on the hot path.
//! * What a killed thread leaves is consistent: stores to a mapping reach the kernel's page in
//!   program order, and every publication comes after what it publishes. A thread killed between
//!   "record appended" and "slot given back" shows one span twice; readers drop the open one.
//!
//! # Signal handlers
//!
//! A handler may annotate. While a thread is inside the few instructions that change its ring,
//! [`Local::state`] is 0, so a handler that interrupts it there takes the cold path, sees that the
//! thread is already attached, and counts its event as dropped. Attaching uses neither the
//! allocator nor a lock.
//!
//! # Sessions, forks, ends of threads
//!
//! [`STATE`] names the session and its level; 0 is off. A thread compares it with the session it is
//! attached to, so that a new session, or none, needs no message to threads. A region stays with its
//! thread until the thread ends; when a session ends, the region's mapped pages are replaced by
//! private ones at the same address, so that a thread in the middle of a record writes to memory
//! that nobody reads. A fork's child does the same to all regions before it runs on.
#![allow(unsafe_code, reason = "shared rings; see the module's text")]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "mappings begin on pages and all places in them are multiples of 8"
)]

mod calls;
mod side;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::thread_exit;
#[cfg(feature = "tracing")]
use crate::platform::clock::SLOW_CLOCK;
use crate::platform::clock::ticks;
use crate::ring::chunk::{Record, publish};
use crate::ring::layout::{CHUNK_USABLE, OPEN_SPANS, RECORD_BYTES, RegionHead, THREAD_NAME_BYTES};
use crate::ring::memory::{ATTACH, FREE, RingMemory, regions};

pub(crate) use side::Side;

/// Bits of [`STATE`] that hold the level.
pub(crate) const LEVEL_MASK: u32 = 3;
/// Bit of [`STATE`]: spans go into other tools too (see [`crate::bridge::mirror`]), with a session or without.
pub(crate) const MIRRORED: u32 = 8;
/// Bit of a span's own state, never of [`STATE`]: it was begun in other tools, so it ends there.
pub(crate) const PUSHED: u32 = 16;
/// Bits of [`STATE`] of which one is set while a span has anything to do.
pub(crate) const WANTED: u32 = LEVEL_MASK | MIRRORED;
/// Lowest bit of [`STATE`] above those: the session's number.
pub(crate) const SESSION_UNIT: u32 = 32;

/// The session that records, 0 for none: level (2 bits), slow clock (1 bit), session number. And
/// [`MIRRORED`], which is nobody's.
pub(crate) static STATE: AtomicU32 = AtomicU32::new(0);

/// What steps look at: [`STATE`], and [`WATCHED`] while somebody wants to know how long they take.
pub(crate) static STEP_STATE: AtomicU32 = AtomicU32::new(0);
/// See [`STEP_STATE`]; no session's number reaches this bit.
pub(crate) const WATCHED: u32 = 1 << 31;

/// Changes the session in [`STATE`], and in [`STEP_STATE`] with it.
pub(crate) fn set_state(state: u32) {
    for (word, kept) in [(&STATE, MIRRORED), (&STEP_STATE, MIRRORED | WATCHED)] {
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| {
            Some(old & kept | state)
        });
    }
}

/// Changes whether spans are mirrored.
pub(crate) fn set_mirrored(on: bool) {
    for word in [&STATE, &STEP_STATE] {
        if on {
            word.fetch_or(MIRRORED, Ordering::SeqCst);
        } else {
            word.fetch_and(!MIRRORED, Ordering::SeqCst);
        }
    }
}

/// The session that records, as threads know it.
#[inline]
pub(crate) fn session() -> u32 {
    STATE.load(Ordering::Relaxed) & !MIRRORED
}

/// Tells threads apart, for as long as they live.
pub(crate) fn this_thread() -> usize {
    LOCAL.with(std::ptr::from_ref) as usize
}

/// Threads that are attaching at this moment: a session's files stay open until there are none.
pub(crate) static ATTACHING: AtomicU32 = AtomicU32::new(0);

/// The drain thread is moving the rings to another file: who wants to attach waits.
pub(crate) static RELOCATING: AtomicBool = AtomicBool::new(false);

/// Records lost where there is no region to count them: no memory for one, or a handler that
/// interrupted its own thread inside the recorder.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);

/// Bytes of a chunk that records use.
#[allow(clippy::cast_possible_truncation, reason = "65,520")]
const FULL: u32 = CHUNK_USABLE as u32;
/// Bytes of one record.
#[allow(clippy::cast_possible_truncation, reason = "24")]
const ONE: u32 = RECORD_BYTES as u32;
/// What a thread knows of its own region. No destructor: it works until the thread's last
/// instruction.
pub(crate) struct Local {
    /// The session attached to; 0 while not attached, and inside the few instructions that change
    /// the ring.
    state: Cell<u32>,
    /// The session attached to, always.
    home: Cell<u32>,
    /// The session for which attaching failed, so that it is not tried again and again.
    refused: Cell<u32>,
    /// Inside `attach`.
    attaching: Cell<bool>,
    /// The thread's own destructors have run.
    ended: Cell<bool>,
    region: Cell<Option<&'static RingMemory>>,
    head: Cell<*const RegionHead>,
    open: Cell<*const Record>,
    /// Begin of the current chunk, and where to publish how much of it is used.
    chunk_at: Cell<*mut u8>,
    used: Cell<*const AtomicU32>,
    /// Bytes of the current chunk that are used; `FULL` before the first one. The owner never reads what it
    /// has published: while the drain thread moves the ring to another file, that may be an older value.
    filled: Cell<u32>,
    /// Number of the current chunk in the region, and in the order of use.
    chunk: Cell<u32>,
    sequence: Cell<u32>,
    depth: Cell<u32>,
    /// The session for which a tracer of calls has told what it knows of this thread.
    greeted: Cell<u32>,
    owner: Owner,
}

/// Whose ring it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// A thread's own.
    Thread,
    /// A [`Side`]'s, which gives it back itself.
    Side,
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
            greeted: Cell::new(0),
            owner,
        }
    }
}

thread_local! {
    static LOCAL: Local = const { Local::new(Owner::Thread) };
}

/// Place of an open span in its thread's stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSlot(u32);

/// A thread that is attached to the session that records.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    local: &'a Local,
    state: u32,
}

/// Calls `work` with the calling thread's writer, attaching the thread first if need be. `None`
/// when the event has to be dropped (and has been counted).
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "measured: a call and a closure in memory cost a third of a span"
)]
pub(crate) fn with_writer<T>(state: u32, work: impl FnOnce(Writer<'_>) -> T) -> Option<T> {
    // A closure this small is inlined; with the work in it, it is not always.
    let local = LOCAL.with(std::ptr::from_ref);
    // SAFETY: of this thread, which is here; without a destructor it is valid until the thread ends.
    let local = unsafe { &*local };
    if local.state.get() != state && !attach(local, state) {
        return None;
    }
    Some(work(Writer { local, state }))
}

/// The calling thread's writer when all is at hand: attached to `state`, and a clock that needs no
/// call. What is left to do after a `None` is to be a function of its own, so that the way without
/// it saves no registers.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn ready_writer(state: u32) -> Option<Writer<'static>> {
    let local = LOCAL.with(std::ptr::from_ref);
    // SAFETY: as in `with_writer`; and a writer stays on its thread, being neither `Send` nor `Sync`.
    let local = unsafe { &*local };
    (local.state.get() == state && state & SLOW_CLOCK == 0).then_some(Writer { local, state })
}

impl Writer<'_> {
    /// Now.
    #[inline]
    pub(crate) fn now(self) -> u64 {
        ticks(self.state)
    }

    /// Tells threads apart, for as long as they live.
    #[inline]
    pub(crate) fn thread(self) -> usize {
        std::ptr::from_ref(self.local) as usize
    }

    /// Calls the thread by a name that the operating system does not know.
    #[cold]
    pub(crate) fn set_thread_name(self, name: &str) {
        // SAFETY: attached.
        let head = unsafe { &*self.local.head.get() };
        let mut len = name.len().min(THREAD_NAME_BYTES);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        head.name_given.store(1, Ordering::SeqCst);
        crate::drain::thread::set_name(head, &name.as_bytes()[..len]);
    }

    /// Says which thread of the operating system the ring is about.
    #[cold]
    pub(crate) fn set_thread_id(self, id: u32) {
        // SAFETY: attached.
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
        // Not `self.state`: what ran in between (a handler, a value's own `Debug`) may have attached
        // the thread to a newer session.
        self.local.state.set(self.local.home.get());
    }

    /// Takes the next slot of the stack of open spans.
    ///
    /// A handler that interrupts this takes the slot after it. (Should the handler's span end before
    /// this slot is filled, the slot may be used twice: then a kill shows one open span less.)
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

    /// As [`open`](Self::open), for a span that will be looked for by its id; counted as dropped when
    /// its begin can be kept nowhere.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(crate) fn open_with_id(self, key: u64, id: u64, meta: u64) {
        let depth = self.local.depth.get();
        self.local.depth.set(depth + 1);
        compiler_fence(Ordering::SeqCst);
        if depth as usize >= OPEN_SPANS {
            return self.count_dropped();
        }
        // SAFETY: attached, so it points into the region; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(depth as usize) };
        slot.key.store(key, Ordering::Relaxed);
        slot.value.store(id, Ordering::Relaxed);
        slot.meta.store(meta, Ordering::Release);
    }

    /// Closes the innermost open span now if it has this id; `false` if not.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(crate) fn close_top(self, id: u64) -> bool {
        let top = self.local.depth.get().wrapping_sub(1);
        if top as usize >= OPEN_SPANS {
            return false;
        }
        // SAFETY: as above.
        let slot = unsafe { &*self.local.open.get().add(top as usize) };
        let meta = slot.meta.load(Ordering::Relaxed);
        if slot.value.load(Ordering::Relaxed) != id
            || crate::ring::layout::meta_flags(meta) & crate::ring::layout::FLAG_TRACED == 0
        {
            return false;
        }
        self.close(
            OpenSlot(top),
            slot.key.load(Ordering::Relaxed),
            self.now(),
            meta,
        );
        true
    }

    /// Gives a slot back and appends the span's record.
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
        // SAFETY: as above.
        if index == 0 || unsafe { &*local.open.get().add(index - 1) }.is_taken() {
            local.depth.set(slot.0);
        } else {
            self.trim(slot.0);
        }
        self.leave();
    }

    /// The rest of [`close`](Self::close) when the chunk is full or the span is not the innermost. A
    /// function of its own, called last: so the other way saves no registers and keeps no array.
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

    /// Appends a record and those that belong to it, all or none.
    pub(crate) fn record_group(self, words: [u64; 3], tail: &[u8]) {
        self.enter();
        let bytes = RECORD_BYTES + tail.len().next_multiple_of(RECORD_BYTES);
        if self.make_room(bytes) {
            let at = self.at();
            // SAFETY: `make_room` says that `bytes` fit between `at` and the chunk's end.
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

    /// Counts a text that was cut.
    #[cold]
    pub(crate) fn count_cut(self) {
        // SAFETY: attached.
        let cut = unsafe { &(*self.local.head.get()).cut };
        cut.store(cut.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A slot that no span has.
    pub(crate) const NO_SLOT: OpenSlot = OpenSlot(u32::MAX);

    /// Gives a slot back without a record.
    #[cfg(feature = "tracing")]
    pub(crate) fn forget(self, slot: OpenSlot) {
        self.enter();
        self.pop(slot);
        self.leave();
    }

    /// Counts an event that could not be recorded.
    #[cfg(feature = "tracing")]
    #[cold]
    pub(crate) fn count_dropped(self) {
        // SAFETY: attached.
        let dropped = unsafe { &(*self.local.head.get()).dropped };
        dropped.store(dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Number of open spans, also those without a slot.
    #[cfg(feature = "tracing")]
    pub(crate) fn depth(self) -> u32 {
        self.local.depth.get()
    }

    /// Key, id and meta of an open slot that was taken with an id.
    #[cfg(feature = "tracing")]
    pub(crate) fn slot(self, index: u32) -> Option<[u64; 3]> {
        if index as usize >= OPEN_SPANS || index >= self.local.depth.get() {
            return None;
        }
        // SAFETY: attached; the index was checked.
        let slot = unsafe { &*self.local.open.get().add(index as usize) };
        let meta = slot.meta.load(Ordering::Relaxed);
        if crate::ring::layout::meta_flags(meta) & crate::ring::layout::FLAG_TRACED == 0 {
            return None;
        }
        let key = slot.key.load(Ordering::Relaxed);
        Some([key, slot.value.load(Ordering::Relaxed), meta])
    }

    /// The slot with this index, for closing it.
    #[cfg(feature = "tracing")]
    pub(crate) fn slot_at(index: u32) -> OpenSlot {
        OpenSlot(index)
    }

    /// Publishes the records below `filled` bytes of the current chunk; only with a chunk.
    #[inline]
    fn publish(self, filled: u32) {
        self.local.filled.set(filled);
        // SAFETY: with a chunk it points into the head of the region, which stays for ever.
        publish(unsafe { &*self.local.used.get() }, filled);
    }

    /// Where the next record goes; only with room for it.
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
            // SAFETY: `make_room` says so.
            unsafe { put(self.at(), words) };
            self.publish_more(RECORD_BYTES);
        }
    }

    fn publish_more(self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(0);
        self.publish(self.local.filled.get() + bytes);
    }

    /// Sees to it that `bytes` fit into the current chunk; `false` (and counted) when all chunks
    /// are full.
    #[cold]
    fn make_room(self, bytes: usize) -> bool {
        let local = self.local;
        if bytes <= (FULL - local.filled.get()) as usize {
            return true;
        }
        crate::drain::wakeup::ring_if_asleep();
        // SAFETY: attached.
        let head = unsafe { &*local.head.get() };
        let Some(region) = local.region.get() else {
            return false;
        };
        let limit = head.chunk_limit.load(Ordering::Acquire) as usize;
        // Not the current one, whose head may be an older one while the ring moves to another file.
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
            // A span without a slot, or none at all.
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

    /// Sets the depth, less the slots on top whose spans have ended before.
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
    // SAFETY: chunks begin on pages and records are 24 bytes, so `at` is aligned to 8.
    unsafe { &*at.cast::<Record>() }.put(words);
}

/// Gives the thread a region of the session `state`; `false` when the event must be dropped.
#[cold]
#[inline(never)]
fn attach(local: &Local, state: u32) -> bool {
    // Attached, and yet not: a handler that interrupted this very thread inside the recorder. Also
    // when a newer session runs by now, the ring must stay as the interrupted code knows it.
    let inside = local.state.get() == 0 && local.home.get() != 0;
    if inside || local.home.get() == state || local.attaching.get() || local.refused.get() == state
    {
        // Or no memory.
        LOST.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    local.attaching.set(true);
    compiler_fence(Ordering::SeqCst);
    if !begin_attaching() {
        local.attaching.set(false);
        LOST.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    let mut done = false;
    if STATE.load(Ordering::SeqCst) & !MIRRORED == state {
        done = attach_counted(local, state);
        if !done {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
    ATTACHING.fetch_sub(1, Ordering::SeqCst);
    compiler_fence(Ordering::SeqCst);
    local.attaching.set(false);
    done
}

/// Counts itself among those who attach, when the rings stay where they are. `false` when the drain
/// thread, which moves them in milliseconds, does not come to its end in 20 ms: a disk is busy.
fn begin_attaching() -> bool {
    const SLEEPS: u32 = 200;
    const SLEEP: std::time::Duration = std::time::Duration::from_micros(100);
    for _ in 0..SLEEPS {
        ATTACHING.fetch_add(1, Ordering::SeqCst);
        if !RELOCATING.load(Ordering::SeqCst) {
            return true;
        }
        ATTACHING.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(SLEEP);
    }
    false
}

fn attach_counted(local: &Local, state: u32) -> bool {
    let Some(region) = local.region.get().or_else(RingMemory::claim) else {
        local.refused.set(state);
        return false;
    };
    local.region.set(Some(region));
    if local.owner == Owner::Thread {
        thread_exit::watch(region);
    }
    if region.session.load(Ordering::SeqCst) != 0 {
        // A session starts only when the one before has taken back all regions that it knew, so it
        // did not know this one: it gave up waiting while this thread was attaching.
        region.unmap_file();
        region.session.store(0, Ordering::SeqCst);
    }
    if !region.prepare(state, !local.ended.get()) {
        local.refused.set(state);
        return false;
    }
    local.head.set(region.head());
    local.open.set(region.open().as_ptr());
    local.used.set(std::ptr::null());
    local.filled.set(FULL);
    local.chunk_at.set(std::ptr::null_mut());
    local.chunk.set(u32::MAX);
    local.sequence.set(0);
    local.depth.set(0);
    region.session.store(state, Ordering::SeqCst);
    local.home.set(state);
    local.state.set(state);
    true
}

/// The calling thread's own destructors have run: it lets go of its region.
pub(super) fn thread_ends() {
    let _ = LOCAL.try_with(|local| {
        local.ended.set(true);
        local.state.set(0);
        local.home.set(0);
        local.region.set(None);
    });
}

/// In a fork's child: no region is anybody's, and none shows the parent's pages.
pub(crate) fn after_fork_in_child() {
    set_state(0);
    crate::drain::wakeup::after_fork_in_child();
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
