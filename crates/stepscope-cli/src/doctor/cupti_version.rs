//! The version of CUPTI as the library reports it: names of its file have another one.
#![allow(
    unsafe_code,
    reason = "calls into a C library; a SAFETY comment explains the block"
)]

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `cuptiGetVersion`.
type GetVersion = unsafe extern "C" fn(*mut u32) -> c_int;

/// Returns the version of the interface of this library; `None` if it cannot be loaded.
pub(super) fn cupti_version(library: &Path) -> Option<u32> {
    let path = CString::new(library.as_os_str().as_bytes()).ok()?;
    let mut version = 0;
    // SAFETY: a path and a name that end in zero. NVIDIA's headers define the type of the function, which writes one
    // number and needs no device. The library is never unloaded.
    let status = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL);
        if handle.is_null() {
            return None;
        }
        let found = libc::dlsym(handle, c"cuptiGetVersion".as_ptr());
        if found.is_null() {
            return None;
        }
        std::mem::transmute::<*mut c_void, GetVersion>(found)(&raw mut version)
    };
    (status == 0).then_some(version)
}
