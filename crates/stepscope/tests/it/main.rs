//! Integration tests of the recorder, from recording to reading the file.
#![allow(
    unsafe_code,
    missing_docs,
    reason = "kills, forks and signals need libc; a test binary"
)]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests open files and may panic"
)]

#[cfg(feature = "tracing")]
mod bridge;
mod calls;
mod capture;
mod concurrent_export;
mod content;
mod crash;
mod edges;
mod environment;
mod files;
mod flight;
mod limits;
mod manual_span;
mod mirror;
mod threads;
mod virtual_track;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepscope_formats::probe::Probe;
use stepscope_formats::xspace;
use stepscope_model::ReadContext;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: delegates to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of allocations of this thread.
fn allocations() -> u32 {
    ALLOCATIONS.with(Cell::get)
}

/// Serializes the tests: a process can have only one session at a time.
fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Stops the flight recorder of a failed test.
    let _ = stepscope::stop_flight();
    one
}

/// Waits until a condition holds that another thread or the system fulfils. Fails with `what` after
/// a minute, which only a hanging test reaches.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until everything recorded so far is in the journal. A single flush gives up after a
/// second, which is too short for a busy machine.
fn flush() {
    wait_until("a flush", stepscope::flush_trace);
}

/// Reads a file with the reader of stepscope-formats.
fn read(path: &Path) -> Probe {
    let bytes = std::fs::read(path).unwrap();
    let mut probe = Probe::new();
    let bytes: stepscope_model::SharedBytes = Arc::new(bytes);
    xspace::read(&bytes, &ReadContext::default(), &mut probe).unwrap();
    probe
}

/// Every `*.xplane.pb` below a log directory.
fn files(log_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![log_dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".xplane.pb") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Names of the slices, sorted.
fn names(probe: &Probe) -> Vec<&str> {
    let mut names: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| slice.name.as_str())
        .collect();
    names.sort_unstable();
    names
}

/// Creates folders at the paths of a session's temporary files, so that the export fails.
fn obstruct(session: &Path, host: &str) -> Vec<PathBuf> {
    let pid = std::process::id();
    let names = (0..1_000).map(|n| session.join(format!(".{host}.xplane.pb.tmp-{pid}-{n}")));
    let names: Vec<_> = names.collect();
    for name in &names {
        std::fs::create_dir(name).unwrap();
    }
    names
}

/// Removes these folders.
fn clear(obstacles: &[PathBuf]) {
    for obstacle in obstacles {
        std::fs::remove_dir(obstacle).unwrap();
    }
}
