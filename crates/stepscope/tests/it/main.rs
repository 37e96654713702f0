//! The recorder, from the verbs to the file and back.
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
mod beside;
mod bridge;
mod calls;
mod capture;
mod content;
mod crash;
mod edges;
mod files;
mod flight;
mod limits;
mod mirror;
mod moment;
mod open;
mod threads;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepscope_formats::probe::Probe;
use stepscope_formats::xspace;
use stepscope_model::ReadContext;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has allocated.
fn allocations() -> u32 {
    ALLOCATIONS.with(Cell::get)
}

/// One session at a time in a process, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // What a failed test has left.
    let _ = stepscope::stop_flight();
    one
}

/// Reads a file back with the reader that everybody uses.
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

/// Folders in the way of a session's temporary files.
fn obstruct(session: &Path, host: &str) -> Vec<PathBuf> {
    let pid = std::process::id();
    let names = (0..1_000).map(|n| session.join(format!(".{host}.xplane.pb.tmp-{pid}-{n}")));
    let names: Vec<_> = names.collect();
    for name in &names {
        std::fs::create_dir(name).unwrap();
    }
    names
}

/// Takes them away.
fn clear(obstacles: &[PathBuf]) {
    for obstacle in obstacles {
        std::fs::remove_dir(obstacle).unwrap();
    }
}
