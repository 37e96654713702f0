//! A program that uses HIP, for the tests: it loads the collector as `librocprofiler-register.so` does, and works on a
//! stand-in.
//!
//! `hip_program WORD...`: `init` (as the first call of HIP), `want` (another tool wants rocprofiler-sdk), `work` and
//! `much-work`, `begin` and `end` (a recording of the program), `span` (a label around work), `fork`, `written` (waits
//! until the recording has most of it), `abort`.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for tests, which speaks to interfaces of C"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

type SetApiTable = unsafe extern "C" fn(*const c_char, u64, u64, *mut *mut c_void, u64) -> c_int;

fn function(library: &str, name: &CStr) -> *mut c_void {
    let path = CString::new(library).unwrap();
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL);
        assert!(!library.is_null(), "cannot load {path:?}");
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "no function {name:?}");
        found
    }
}

/// Hands the tables of the runtimes on.
fn init() {
    // Without the variable, `librocprofiler-register.so` loads rocprofiler-sdk.
    let library = std::env::var("ROCPROFILER_REGISTER_LIBRARY")
        .unwrap_or_else(|_| std::env::var("STEPSCOPE_ROCPROFILER").unwrap());
    let set = function(&library, c"rocprofiler_set_api_table");
    let set: SetApiTable = unsafe { std::mem::transmute(set) };
    let mut tables = [std::ptr::null_mut()];
    for name in [c"hsa", c"hip"] {
        let status = unsafe { set(name.as_ptr(), 70_000, 0, tables.as_mut_ptr(), 1) };
        println!("tables {status}");
    }
}

fn work() {
    let library = std::env::var("STEPSCOPE_ROCPROFILER").unwrap();
    let work = function(&library, c"stand_in_work");
    let work: extern "C" fn() = unsafe { std::mem::transmute(work) };
    work();
}

/// Returns the size of all files below a folder, bytes.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn main() {
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "init" => init(),
            // Another tool configures itself.
            "want" => unsafe { std::env::set_var("ROCPROFILER_REGISTER_FORCE_LOAD", "1") },
            "work" => work(),
            "much-work" => (0..2_000).for_each(|_| work()),
            "begin" => {
                let options = stepscope::SessionOptions {
                    session_name: std::env::var("STEPSCOPE_SESSION_ID").ok(),
                    ..Default::default()
                };
                let log_dir = std::env::var("STEPSCOPE_LOG_DIR").unwrap();
                stepscope::start_trace_with(log_dir, &options).unwrap();
            }
            "end" => println!("{}", stepscope::stop_trace().unwrap().path.display()),
            "span" => {
                let _span = stepscope::span!("step");
                work();
            }
            "fork" => unsafe {
                if libc::fork() == 0 {
                    libc::exit(0);
                }
                let mut status = 0;
                libc::wait(&raw mut status);
                assert_eq!(status, 0);
            },
            "written" => {
                let log_dir = std::env::var("STEPSCOPE_LOG_DIR").unwrap();
                while size(Path::new(&log_dir)) < 300_000 {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            "abort" => std::process::abort(),
            other => panic!("no such word: {other}"),
        }
    }
}
