//! Libraries of tools, and the names of their functions.
#![allow(unsafe_code, reason = "functions of tools, found by name")]

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;

/// Maximum number of names registered with a tool; later ones are passed as text each time.
pub(super) const MAX_NAMES: usize = 16_384;

/// Converts a text for the tools; the part after a zero byte is dropped.
pub(super) fn text(name: &str) -> CString {
    let name = name.split('\0').next().unwrap_or_default();
    CString::new(name).unwrap_or_default()
}

/// Finds a function that the process exports.
pub(super) fn process_symbol(name: &CStr) -> Option<*mut c_void> {
    symbol(libc::RTLD_DEFAULT, name)
}

pub(super) fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of the loader, and a name that ends in zero.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// Loads a library; it is never unloaded.
pub(super) fn library(path: &OsStr) -> Result<*mut c_void, String> {
    let path = CString::new(path.as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a name that ends in zero; the user requested the library, and with it its
    // initialization code.
    unsafe {
        let found = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        if found.is_null() {
            let reason = libc::dlerror();
            return Err(if reason.is_null() {
                "it cannot be loaded".to_owned()
            } else {
                CStr::from_ptr(reason).to_string_lossy().into_owned()
            });
        }
        Ok(found)
    }
}
