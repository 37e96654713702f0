//! Mappings that survive a file that shrinks.
//!
//! The kernel raises SIGBUS when a program touches a page of a mapping that the file no longer has.
//! Files of other programs cannot be locked, so the signal is handled: if the address lies in a
//! guarded mapping, everything from that page to the mapping's end becomes zeros, the mapping is
//! marked damaged, and the reader continues (readers survive every input, zeros included). Any
//! other SIGBUS is passed to the previous handler.
//!
//! The handler may only use operations that are safe in a signal handler: atomics and system calls.
//! The mappings are therefore stored in a fixed table; when the table is full, files are read into
//! memory instead.
#![allow(
    unsafe_code,
    reason = "mapping files and answering SIGBUS cannot be expressed in safe Rust; every block says why it holds"
)]

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of guarded mappings.
const SLOTS: usize = 4_096;

struct Slot {
    /// 0: free; 1: being set up; otherwise the address of the first byte.
    start: AtomicUsize,
    /// One past the last mapped byte, a multiple of the page size; 0 while not guarded.
    end: AtomicUsize,
    damaged: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        damaged: AtomicBool::new(false),
    }
}; SLOTS];

/// Slots below this index have been used; the handler checks only these.
static USED: AtomicUsize = AtomicUsize::new(0);
static PAGE: AtomicUsize = AtomicUsize::new(4_096);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A guarded, read-only mapping of a whole file.
pub(super) struct Mapping {
    map: memmap2::Mmap,
    slot: usize,
}

impl Mapping {
    /// Maps a file. Returns `None` if the file cannot be mapped or no slot is free; the caller can
    /// then read it instead.
    pub(super) fn new(file: &File) -> Option<Self> {
        if !install() {
            return None;
        }
        let slot = claim()?;
        // SAFETY: the mapping is private and read-only. Another program may still change the file;
        // then bytes change under a `&[u8]`. Readers treat every byte as hostile and never rely on
        // reading the same byte twice for memory safety, and the handler of this module replaces
        // pages that the file no longer has.
        let Ok(map) = (unsafe { memmap2::MmapOptions::new().map_copy_read_only(file) }) else {
            release(slot);
            return None;
        };
        let page = PAGE.load(Ordering::Relaxed);
        let start = map.as_ptr() as usize;
        let entry = &TABLE[slot];
        entry.damaged.store(false, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        entry
            .end
            .store(start + map.len().next_multiple_of(page), Ordering::Release);
        Some(Self { map, slot })
    }

    /// Returns pages that were read to the system; the next access loads them again.
    pub(super) fn release(&self) {
        // SAFETY: the mapping is private and read-only, so its pages hold only the file's content
        // (or zeros, where the file shrank), and discarding them loses nothing. If the file has
        // changed, the bytes change under a `&[u8]`, which `new` already allows.
        let _ = unsafe {
            self.map
                .unchecked_advise(memmap2::UncheckedAdvice::DontNeed)
        };
    }

    pub(super) fn damaged(&self) -> bool {
        TABLE[self.slot].damaged.load(Ordering::Acquire)
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The mapping has no reader any more, so no fault can race with this; the pages themselves
        // are unmapped when `map` is dropped, after this.
        release(self.slot);
    }
}

fn claim() -> Option<usize> {
    let slot = TABLE.iter().position(|slot| {
        slot.start
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })?;
    USED.fetch_max(slot + 1, Ordering::AcqRel);
    Some(slot)
}

fn release(slot: usize) {
    TABLE[slot].end.store(0, Ordering::Release);
    TABLE[slot].start.store(0, Ordering::Release);
}

/// Installs the handler once. Returns `false` if the system refuses.
fn install() -> bool {
    PREVIOUS.get().is_some() || install_first()
}

fn install_first() -> bool {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _held = LOCK
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if PREVIOUS.get().is_some() {
        return true;
    }
    // SAFETY: `sysconf` has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if let Ok(page) = usize::try_from(page)
        && page.is_power_of_two()
    {
        PAGE.store(page, Ordering::Relaxed);
    }
    // SAFETY: an all-zero `sigaction` is a valid value (default action, empty mask), and both
    // pointers are to live values. The previous handler is queried and stored first, so that our
    // handler always knows where to pass a foreign fault.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) != 0 {
            return false;
        }
        let _ = PREVIOUS.set(previous);
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = answer;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) == 0
    }
}

/// The signal handler.
extern "C" fn answer(signal: libc::c_int, about: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`. For SIGBUS, `si_addr` is the
    // touched address; for a signal that a process sent it is arbitrary, and `si_code` <= 0.
    let (address, sent) = unsafe { ((*about).si_addr() as usize, (*about).si_code <= 0) };
    if !sent && zero_from(address) {
        return;
    }
    let Some(previous) = PREVIOUS.get() else {
        return;
    };
    // SAFETY: `previous` is the action that the system reported as installed, so its function
    // pointer, if it is one, has the signature that its flags indicate. After restoring the default
    // action, the same fault occurs again when this handler returns, and ends the process as it
    // would have without this handler.
    unsafe {
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, about, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

/// Replaces the pages beyond the end of the file with zeros. Returns `false` if the address is not
/// in a guarded mapping.
fn zero_from(address: usize) -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    let used = USED.load(Ordering::Acquire).min(SLOTS);
    for slot in &TABLE[..used] {
        let end = slot.end.load(Ordering::Acquire);
        let start = slot.start.load(Ordering::Relaxed);
        if address < start || address >= end {
            continue;
        }
        let from = address & !(page - 1);
        slot.damaged.store(true, Ordering::Release);
        // SAFETY: `from..end` lies within a mapping that a live `Mapping` owns (its reader is the
        // thread that faulted), is page-aligned, and is only ever read through that mapping;
        // replacing its pages by zeros keeps every `&[u8]` into it readable. `mmap` is a plain
        // system call on all supported systems.
        let made = unsafe {
            libc::mmap(
                from as *mut libc::c_void,
                end - from,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        return made != libc::MAP_FAILED;
    }
    false
}
