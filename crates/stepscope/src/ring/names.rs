//! Names: every text that labels events, numbered once per process.
//!
//! A static name stores its number. A name created at run time is looked up in a table that is read
//! without a lock. Registering a new name takes a lock that records its holder, and memory that
//! does not come from the program's allocator: a thread may register a name inside a signal
//! handler, whatever it interrupted. When a name cannot get a number (in a handler that interrupted
//! the holder, while a debugger has stopped the holder, with a full table, for a long text), the
//! text itself is written with the event; so a text may have no number now and one later.
//!
//! While a crash-safe session runs, each name is also written to the session's name table
//! ([`publish_all`]) before its number can appear in any record.
#![allow(
    unsafe_code,
    reason = "names live in memory of our own, and in a shared mapping"
)]
#![allow(
    clippy::cast_ptr_alignment,
    reason = "mappings start on pages and all offsets in them are multiples of 8"
)]

use std::hash::Hasher;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::platform::os;
use crate::ring::layout::{NAMES_BYTES, NAMES_HEAD};
use crate::ring::writer::this_thread;

/// Maximum length of a text that gets a number, bytes.
const MAX_NAME_BYTES: usize = 1_024;
/// Maximum number of names of a process.
const MAX_NAMES: usize = 24_576;
const TABLE: usize = 65_536;
const BLOCK: usize = 256 << 10;

/// A name known at compile time; created by the macros.
#[derive(Debug)]
pub struct StaticName {
    text: &'static str,
    id: AtomicU32,
}

impl StaticName {
    /// Creates a name that registers itself at its first use.
    pub const fn new(text: &'static str) -> Self {
        Self {
            text,
            id: AtomicU32::new(0),
        }
    }

    /// Returns the text.
    pub const fn text(&self) -> &'static str {
        self.text
    }

    /// Returns its number, 0 when it cannot get one now.
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        match self.id.load(Ordering::Relaxed) {
            0 => self.register(),
            id => id,
        }
    }

    #[cold]
    fn register(&self) -> u32 {
        let id = intern(self.text);
        self.id.store(id, Ordering::Relaxed);
        id
    }
}

/// Substitute name of an argument whose name has no number.
static ARGUMENT: StaticName = StaticName::new("argument");

/// Name of the argument with a step's number.
pub(crate) static STEP_NUM: StaticName = StaticName::new("step_num");

/// Registers the names that every recording needs, while numbers are available.
pub(crate) fn prepare() {
    for name in [&ARGUMENT, &STEP_NUM] {
        name.id();
    }
}

/// Returns the number of an argument's name, or a substitute: number 0 would make its value the
/// name of the event.
#[inline]
pub(crate) fn argument_name_id(number: u32) -> u32 {
    match number {
        0 => ARGUMENT.id(),
        number => number,
    }
}

/// A registered text; never freed, never changed.
struct Entry {
    hash: u64,
    len: u32,
    id: u32,
    at: *const u8,
}

impl Entry {
    fn bytes(&self) -> &[u8] {
        // SAFETY: written in full before the entry was published, and never freed.
        unsafe { std::slice::from_raw_parts(self.at, self.len as usize) }
    }
}

static SLOTS: [AtomicPtr<Entry>; TABLE] = [const { AtomicPtr::new(std::ptr::null_mut()) }; TABLE];
static BY_ID: [AtomicPtr<Entry>; MAX_NAMES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_NAMES];
static COUNT: AtomicUsize = AtomicUsize::new(1);
/// The thread that is adding a name ([`this_thread`]), 0 when none is.
static LOCK: AtomicUsize = AtomicUsize::new(0);
/// A holder that did not release the lock in time: other threads no longer wait for it while it
/// holds the lock.
static STUCK: AtomicUsize = AtomicUsize::new(0);
static FREE_AT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static FREE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The name table of the current crash-safe session; null when there is none.
static SESSION_TABLE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

fn hash(text: &str) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Returns the number of a text and registers it if it is new; 0 when it cannot get a number now.
#[inline]
pub(crate) fn intern(text: &str) -> u32 {
    let hash = hash(text);
    match find(text, hash) {
        Ok(id) => id,
        Err(_) => add(text, hash),
    }
}

/// Returns the number, or the index of the first free slot.
fn find(text: &str, hash: u64) -> Result<u32, usize> {
    #[allow(clippy::cast_possible_truncation, reason = "an index of the table")]
    let mut at = (hash >> 40) as usize ^ hash as usize;
    loop {
        at &= TABLE - 1;
        let entry = SLOTS[at].load(Ordering::Acquire);
        if entry.is_null() {
            return Err(at);
        }
        // SAFETY: published entries live for ever.
        let entry = unsafe { &*entry };
        if entry.hash == hash && entry.bytes() == text.as_bytes() {
            return Ok(entry.id);
        }
        at += 1;
    }
}

#[cold]
fn add(text: &str, hash: u64) -> u32 {
    if text.len() > MAX_NAME_BYTES {
        return 0;
    }
    if !lock() {
        return 0;
    }
    let id = add_locked(text, hash);
    LOCK.store(0, Ordering::Release);
    id
}

/// Takes the lock. Returns `false` in a handler that interrupted its holder, and on a timeout.
///
/// The holder needs less than a microsecond, unless it has lost its processor: sleeping then gives
/// it one, whatever the priorities. All calls here are permitted in a signal handler.
fn lock() -> bool {
    lock_with(pause)
}

/// Attempts to take the lock that spin afterwards.
const SPINS: u32 = 200;
/// Attempts after those, which sleep afterwards.
const SLEEPS: u32 = 1_000;

/// Pauses between two attempts to take the lock.
fn pause(attempt: u32) {
    const SLEEP: Duration = Duration::from_micros(100);
    if attempt < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::sleep(SLEEP);
    }
}

/// Takes the lock as [`lock`] does, and calls `wait` with the attempt's number after a failed one.
fn lock_with(mut wait: impl FnMut(u32)) -> bool {
    let this = this_thread();
    let mut waited_for = 0;
    for attempt in 0..SPINS + SLEEPS {
        match LOCK.compare_exchange(0, this, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                STUCK.store(0, Ordering::Relaxed);
                return true;
            }
            Err(holder) if holder == this || holder == STUCK.load(Ordering::Relaxed) => {
                return false;
            }
            Err(holder) => waited_for = holder,
        }
        wait(attempt);
    }
    STUCK.store(waited_for, Ordering::Relaxed);
    false
}

fn add_locked(text: &str, hash: u64) -> u32 {
    let at = match find(text, hash) {
        Ok(id) => return id,
        Err(at) => at,
    };
    let count = COUNT.load(Ordering::Relaxed);
    if count >= MAX_NAMES {
        return 0;
    }
    let Ok(id) = u32::try_from(count) else {
        return 0;
    };
    let Some(memory) = allocate(size_of::<Entry>() + text.len()) else {
        return 0;
    };
    // SAFETY: `allocate` returned room for both, aligned for an entry, which nothing else uses.
    let entry = unsafe {
        let bytes = memory.add(size_of::<Entry>());
        std::ptr::copy_nonoverlapping(text.as_ptr(), bytes, text.len());
        let entry = memory.cast::<Entry>();
        entry.write(Entry {
            hash,
            len: u32::try_from(text.len()).unwrap_or(0),
            id,
            at: bytes,
        });
        entry
    };
    BY_ID[count].store(entry, Ordering::Release);
    COUNT.store(count + 1, Ordering::SeqCst);
    // Before other threads can read the number: `publish_all` either sees the count, or was called
    // before, and then the table is set here.
    let table = SESSION_TABLE.load(Ordering::SeqCst);
    if !table.is_null() {
        // SAFETY: the table's space stays mapped for ever.
        unsafe { publish(table, id, text.as_bytes()) };
    }
    SLOTS[at].store(entry, Ordering::Release);
    id
}

/// Allocates memory that is never freed. Requires the lock.
fn allocate(bytes: usize) -> Option<*mut u8> {
    let bytes = bytes.next_multiple_of(align_of::<Entry>());
    let free = FREE_BYTES.load(Ordering::Relaxed);
    let at = FREE_AT.load(Ordering::Relaxed);
    let (at, free) = if free >= bytes {
        (at, free)
    } else {
        let block = os::reserve(BLOCK)?;
        // SAFETY: just reserved.
        if !unsafe { os::map_memory(block, BLOCK) } {
            return None;
        }
        (block, BLOCK)
    };
    // SAFETY: within the block.
    FREE_AT.store(unsafe { at.add(bytes) }, Ordering::Relaxed);
    FREE_BYTES.store(free - bytes, Ordering::Relaxed);
    Some(at)
}

/// Returns the text of a number.
pub(crate) fn text(id: u32) -> Option<&'static str> {
    let entry = BY_ID.get(id as usize)?.load(Ordering::Acquire);
    if entry.is_null() {
        return None;
    }
    // SAFETY: published entries live for ever.
    std::str::from_utf8(unsafe { &*entry }.bytes()).ok()
}

/// Writes all names so far, and from now on each new one, to `table`, which is zeroed and
/// [`NAMES_BYTES`] long.
///
/// # Safety
/// The range must stay mapped (to any memory) for ever.
pub(crate) unsafe fn publish_all(table: *mut u8) {
    SESSION_TABLE.store(table, Ordering::SeqCst);
    for entry in BY_ID.iter().take(COUNT.load(Ordering::SeqCst)).skip(1) {
        let entry = entry.load(Ordering::Acquire);
        if !entry.is_null() {
            // SAFETY: published entries live for ever; the caller guarantees the table.
            unsafe { publish(table, (*entry).id, (*entry).bytes()) };
        }
    }
}

/// Returns the table of the current session, null when it has none.
pub(crate) fn session_table() -> *mut u8 {
    SESSION_TABLE.load(Ordering::SeqCst)
}

/// Ends the writing of new names to the table. Returns `false` when a thread may still be writing
/// one (a thread that a debugger stopped at that point): the table's address must then not be used
/// for another table.
pub(crate) fn unpublish() -> bool {
    unpublish_with(std::thread::yield_now)
}

/// Does the work of [`unpublish`], and calls `wait` while a writer holds the lock.
fn unpublish_with(mut wait: impl FnMut()) -> bool {
    SESSION_TABLE.store(std::ptr::null_mut(), Ordering::SeqCst);
    // A writer looks up the table while it holds the lock.
    let start = Instant::now();
    while LOCK.load(Ordering::SeqCst) != 0 {
        if start.elapsed() > Duration::from_secs(1) {
            return false;
        }
        wait();
    }
    true
}

/// Calls `f`, which remaps the table's pages, while no thread writes a name there. If the holder of
/// the lock does not release it in time, `f` runs anyway: that name may be lost.
pub(crate) fn while_unchanged<T>(f: impl FnOnce() -> T) -> T {
    let locked = lock();
    let result = f();
    if locked {
        LOCK.store(0, Ordering::Release);
    }
    result
}

/// Appends one name: a word of length and number, then the text, padded to a multiple of 8. The
/// number is stored last, so that readers detect a truncated name.
unsafe fn publish(table: *mut u8, id: u32, text: &[u8]) {
    let room = 8 + text.len().next_multiple_of(8);
    // SAFETY: the table starts with two words: a nonce, and the bytes used after the head.
    let used = unsafe { &*table.add(8).cast::<AtomicU64>() };
    let at = NAMES_HEAD as u64 + used.fetch_add(room as u64, Ordering::Relaxed);
    let Some(at) = usize::try_from(at)
        .ok()
        .filter(|at| at + room <= NAMES_BYTES)
    else {
        return;
    };
    // SAFETY: `at..at + room` is within the table and reserved for this call by the addition above.
    unsafe {
        let head = &*table.add(at).cast::<AtomicU64>();
        head.store((text.len() as u64) << 32, Ordering::Relaxed);
        std::ptr::copy_nonoverlapping(text.as_ptr(), table.add(at + 8), text.len());
        head.store((text.len() as u64) << 32 | u64::from(id), Ordering::Release);
    }
}

/// Reads a table that [`publish`] filled, and calls `found` for each complete name.
pub(crate) fn read_table<'a>(table: &'a [u8], mut found: impl FnMut(u32, &'a [u8])) {
    let mut at = NAMES_HEAD;
    while let Some(head) = table.get(at..at + 8) {
        let head = u64::from_le_bytes(head.try_into().unwrap_or([0; 8]));
        let len = (head >> 32) as usize;
        let id = u32::try_from(head & u64::from(u32::MAX)).unwrap_or(0);
        if head == 0 {
            at += 8;
            continue;
        }
        if id != 0
            && let Some(text) = table.get(at + 8..(at + 8).saturating_add(len))
        {
            found(id, text);
        }
        at = at.saturating_add(8 + len.next_multiple_of(8));
    }
}

/// Resets the lock in a fork's child, which does not have its holder.
pub(crate) fn after_fork_in_child() {
    SESSION_TABLE.store(std::ptr::null_mut(), Ordering::SeqCst);
    if LOCK.load(Ordering::Acquire) != 0 {
        // The address and the size of the free memory may be inconsistent.
        FREE_BYTES.store(0, Ordering::Relaxed);
    }
    LOCK.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Serializes tests that hold the lock, and release it from another thread.
    fn exclusive() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn equal_texts_have_equal_numbers() {
        static A: StaticName = StaticName::new("names::same");
        static B: StaticName = StaticName::new("names::same");
        let _alone = exclusive();
        assert_ne!(A.id(), 0);
        assert_eq!(A.id(), B.id());
        assert_eq!(intern("names::same"), A.id());
        assert_ne!(intern("names::other"), A.id());
        assert_eq!(text(A.id()), Some("names::same"));
        assert_eq!(intern(&"x".repeat(MAX_NAME_BYTES + 1)), 0);
    }

    #[test]
    fn threads_get_the_same_id_for_a_name() {
        let _alone = exclusive();
        let ids: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..500)
                            .map(|n| intern(&format!("names::thread {n}")))
                            .collect()
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(!ids[0].contains(&0));
    }

    #[test]
    fn preempted_lock_holder_is_waited_for_except_in_its_handler() {
        let _alone = exclusive();
        assert!(lock());
        assert!(!lock_with(|_| panic!("the holder waits for itself")));
        assert_eq!(intern("names::in a handler"), 0);
        let (taken, waits) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut waits = 0;
                let taken = lock_with(|attempt| {
                    waits += 1;
                    if waits == 1 {
                        LOCK.store(0, Ordering::SeqCst);
                    }
                    pause(attempt);
                });
                LOCK.store(0, Ordering::SeqCst);
                (taken, waits)
            });
            other.join().unwrap()
        });
        assert!(taken && waits > 0);
        assert_ne!(intern("names::in a handler"), 0);
    }

    #[test]
    fn stuck_lock_holder_is_waited_for_once() {
        let _alone = exclusive();
        assert!(lock());
        let waits = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                [(); 2].map(|()| {
                    let mut waits = 0_u32;
                    assert!(!lock_with(|_| waits += 1));
                    waits
                })
            });
            waiting.join().unwrap()
        });
        assert_eq!(waits, [SPINS + SLEEPS, 0]);
        LOCK.store(0, Ordering::SeqCst);
        assert_ne!(intern("names::after it let go"), 0);
    }

    #[test]
    fn name_table_is_released_only_without_a_writer() {
        let _alone = exclusive();
        assert!(unpublish());
        assert!(lock());
        let mut waits = 0;
        let released = unpublish_with(|| {
            waits += 1;
            if waits == 1 {
                LOCK.store(0, Ordering::SeqCst);
            }
        });
        assert!(released && waits > 0);
    }

    #[test]
    fn name_table_round_trips_and_a_truncated_name_is_skipped() {
        let mut table = vec![0_u64; NAMES_BYTES / 8];
        let at = table.as_mut_ptr().cast::<u8>();
        // SAFETY: the vector outlives the calls and has the required size.
        unsafe {
            publish(at, 3, b"three");
            publish(at, 4, b"four four");
            publish(at, 5, b"");
        }
        let cut = NAMES_HEAD / 8 + 2;
        table[cut] &= !u64::from(u32::MAX);
        let bytes: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut seen = Vec::new();
        read_table(&bytes, |id, text| seen.push((id, text.to_vec())));
        assert_eq!(seen, [(3, b"three".to_vec()), (5, Vec::new())]);
    }
}
