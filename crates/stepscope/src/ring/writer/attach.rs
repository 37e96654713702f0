//! Attaches a thread to the recording session: gives it a region, and prepares the region for the session.
#![allow(unsafe_code, reason = "shared rings; see the module `writer`")]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use super::{FULL, Local, Owner, thread_exit};
use crate::ring::memory::RingMemory;
use crate::ring::session_state::{MIRRORED, STATE};

/// Number of threads that are attaching: a session's files stay open until it is 0.
pub(crate) static ATTACHING: AtomicU32 = AtomicU32::new(0);

/// Set while the drain thread moves the rings to another file; threads wait before they attach.
pub(crate) static RELOCATING: AtomicBool = AtomicBool::new(false);

/// Records lost where no region can count them: no memory for a region, or a handler that
/// interrupted its thread inside the recorder.
pub(crate) static LOST: AtomicU64 = AtomicU64::new(0);

/// Attaches the thread to the session `state` with a region; `false` when the event must be
/// dropped.
#[cold]
#[inline(never)]
pub(super) fn attach(local: &Local, state: u32) -> bool {
    // The thread is attached, but `state` is 0: a handler interrupted this thread inside the
    // recorder. Even when a newer session runs by now, the ring must stay as the interrupted code
    // knows it.
    let inside = local.state.get() == 0 && local.home.get() != 0;
    if inside || local.home.get() == state || local.attaching.get() || local.refused.get() == state
    {
        // Also reached when an earlier attempt got no memory.
        LOST.fetch_add(1, Ordering::Relaxed);
        return false;
    }
    local.attaching.set(true);
    compiler_fence(Ordering::SeqCst);
    if !start_attaching() {
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

/// Increments [`ATTACHING`] when the rings are not being moved. Returns `false` when the drain
/// thread, which moves them in milliseconds, does not finish in 20 ms because the disk is busy.
fn start_attaching() -> bool {
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
        // A session starts only after the previous one has reclaimed all regions that it knew. It
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
