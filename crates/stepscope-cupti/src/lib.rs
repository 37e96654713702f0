//! Records what CUDA devices do in programs whose framework has no profiler for it: Rust (candle, burn, cudarc),
//! C++, and Python without `torch.profiler` or `jax.profiler`.
//!
//! The CUDA driver loads this library into every program that it starts with `CUDA_INJECTION64_PATH` set, and calls
//! [`InitializeInjection`]. `stepscope run` sets the variable. The library finds CUPTI at run time; it is linked
//! with nothing of NVIDIA's.
//!
//! ```text
//! CUPTI ──buffers──► records.rs ──activities──► activities.rs ──events──► collector.rs ──► Recorder
//!         api.rs     (offsets of fields)        (names)                                    (stepscope-collector)
//! ```
//!
//! The file is an `XSpace` at every moment. When the program itself records with stepscope, its recording takes the
//! file over (`crates/stepscope/src/session/collector.rs`); otherwise the file becomes the program's run when the
//! program ends. `docs/reference/cupti.md` describes what is recorded and the facts about CUPTI that this relies on.
//!
//! **Invariant:** the program runs as without the library, whatever fails here: no function of it panics into the
//! driver, ends the program, or prints.

mod activities;
mod api;
mod collector;
mod records;

use std::ffi::{c_char, c_int};
use std::panic::catch_unwind;

/// Starts recording, if `STEPSCOPE_LOG_DIR` is set. The driver calls this once, in `cuInit`. Always returns 1: the
/// driver takes 0 for a failure and prints a warning.
#[unsafe(no_mangle)]
#[allow(non_snake_case, unsafe_code, reason = "the driver looks for this name")]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(collector::load);
    1
}

/// Drops what has been recorded and records from now on, for a recording of the program. Returns 1 if the library
/// records.
#[unsafe(no_mangle)]
#[allow(
    unsafe_code,
    reason = "the recorder looks for this name, which has a version"
)]
pub extern "C" fn stepscope_cupti_begin_v1() -> c_int {
    stepscope_collector::export_begin(&collector::RECORDER)
}

/// Stops recording and hands the file over: writes its path, without a final zero, and returns the path's length; 0
/// if nothing was recorded.
///
/// # Safety
/// `path` has room for `capacity` bytes.
#[unsafe(no_mangle)]
#[allow(
    unsafe_code,
    reason = "the recorder looks for this name, which has a version"
)]
pub unsafe extern "C" fn stepscope_cupti_end_v1(path: *mut c_char, capacity: usize) -> isize {
    // SAFETY: the caller has room for `capacity` bytes.
    unsafe { stepscope_collector::export_path(&collector::RECORDER, path, capacity) }
}
