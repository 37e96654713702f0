//! A program that uses CUDA, for the tests: it loads the collector as the driver does, and works on a stand-in.
//!
//! `cuda_program WORD...`: `init` (as `cuInit`), `work` and `much-work`, `begin` and `end` (a recording of the program), `span` (a label
//! around work), `fork`, `written` (waits until the recording has most of it), `abort`.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a program for tests, which speaks to interfaces of C"
)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

fn library(variable: &str) -> *mut c_void {
    let path = CString::new(std::env::var(variable).unwrap()).unwrap();
    let found = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!found.is_null(), "cannot load {path:?}");
    found
}

fn call(library: *mut c_void, name: &CStr) -> c_int {
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "no function {name:?}");
        let found: unsafe extern "C" fn() -> c_int =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(found);
        found()
    }
}

fn work() {
    call(library("STEPSCOPE_CUPTI"), c"stand_in_work");
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
            "init" => {
                let loaded = call(library("CUDA_INJECTION64_PATH"), c"InitializeInjection");
                assert_eq!(loaded, 1, "the driver would print a warning");
            }
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
                let _span = stepscope::span!("forward");
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
                while size(Path::new(&log_dir)) < 800_000 {
                    std::thread::yield_now();
                }
            }
            "abort" => std::process::abort(),
            other => panic!("no such word: {other}"),
        }
    }
}
