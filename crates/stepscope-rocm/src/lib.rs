//! Records what AMD devices do in programs whose framework has no profiler for it: Rust, C++, and Python without
//! `torch.profiler` or `jax.profiler`.
//!
//! The runtimes of ROCm (HIP, HSA, roctx, RCCL) hand their tables of functions to `librocprofiler-register.so`, which
//! loads the library that `ROCPROFILER_REGISTER_LIBRARY` names and calls its [`rocprofiler_set_api_table`].
//! `stepscope run` sets the variable to this library, which stands before `librocprofiler-sdk.so`: it finds that library
//! at run time, hands the tables on, and is linked with nothing of AMD's. In processes that are not recorded it loads
//! nothing.
//!
//! ```text
//! runtimes ──tables──► relay.rs ──tables──► rocprofiler-sdk ──buffers──► records.rs ──► collector.rs ──► Recorder
//!                      (which process)         api.rs        (offsets)   activities.rs                  (stepscope-collector)
//! ```
//!
//! The other way in is that of every tool of rocprofiler-sdk: a program with `ROCP_TOOL_LIBRARIES` set to this library
//! calls [`rocprofiler_configure`]. `stepscope run` does not use it, because `librocprofiler-register.so` aborts a program
//! with that variable if rocprofiler-sdk is missing. `docs/reference/rocprofiler-sdk.md` has these facts.
//!
//! **Invariant:** the program runs as without the library, whatever fails here: no function of it panics into the
//! runtimes, ends the program, or prints.

mod activities;
mod api;
mod collector;
mod records;
mod relay;

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::ptr;

use crate::api::ConfigureResult;

/// What `rocprofiler_set_api_table` returns if no tool takes the tables. With 0, HSA would not load older tools such as
/// roctracer, which PyTorch's profiler may use.
const NO_TOOL: c_int = 1;

/// Takes the tables of a runtime, and hands them to rocprofiler-sdk if this process is recorded or another tool wants
/// it. `librocprofiler-register.so` calls this for each runtime. Returns what rocprofiler-sdk returns, or 1 if it gets no
/// tables.
///
/// # Safety
/// As the function of the same name in rocprofiler-sdk: `name` is a text that ends in zero, and `tables` has
/// `table_count` tables of the runtime of that name.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "rocprofiler-register looks for this name")]
pub unsafe extern "C" fn rocprofiler_set_api_table(
    name: *const c_char,
    version: u64,
    instance: u64,
    tables: *mut *mut c_void,
    table_count: u64,
) -> c_int {
    match catch_unwind(relay::target) {
        // SAFETY: the caller's arguments, unchanged, for the function that they are meant for.
        Ok(Some(target)) => unsafe { target(name, version, instance, tables, table_count) },
        _ => NO_TOOL,
    }
}

/// Registers this library as a tool of rocprofiler-sdk, which calls this once, before the runtimes start. Returns null
/// if this process is not to be recorded.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "rocprofiler-sdk looks for this name")]
pub extern "C" fn rocprofiler_configure(
    _version: u32,
    _runtime_version: *const c_char,
    _priority: u32,
    _client: *mut c_void,
) -> *mut ConfigureResult {
    catch_unwind(collector::configure).unwrap_or(ptr::null_mut())
}

/// Drops what has been recorded and records from now on, for a recording of the program. Returns 1 if the library
/// records.
#[unsafe(no_mangle)]
#[allow(
    unsafe_code,
    reason = "the recorder looks for this name, which has a version"
)]
pub extern "C" fn stepscope_rocm_begin_v1() -> c_int {
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
pub unsafe extern "C" fn stepscope_rocm_end_v1(path: *mut c_char, capacity: usize) -> isize {
    // SAFETY: the caller has room for `capacity` bytes.
    unsafe { stepscope_collector::export_path(&collector::RECORDER, path, capacity) }
}
