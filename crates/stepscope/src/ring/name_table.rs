//! The name table of a crash-safe session: the names, in the first bytes of the rings file.
//!
//! Its address space is reserved once and never released, so a thread that still writes a name never
//! accesses an unmapped address.
#![allow(unsafe_code, reason = "maps the name table")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::platform::os;
use crate::ring::layout::NAMES_BYTES;
use crate::ring::names;

/// Address space of the name table, reserved once.
static NAME_TABLE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Maps the name table from the rings file, whose space has been allocated, and writes all names
/// there. Without address space, the names are not written.
pub(crate) fn map(rings: &File, nonce: u64) {
    let mut table = NAME_TABLE.load(Ordering::Acquire);
    if table.is_null() {
        table = os::reserve(NAMES_BYTES).unwrap_or(std::ptr::null_mut());
        NAME_TABLE.store(table, Ordering::Release);
    }
    // SAFETY: reserved above and never released; the file's space has been allocated.
    if !table.is_null() && unsafe { os::map_file(table, NAMES_BYTES, rings.as_raw_fd(), 0) } {
        // SAFETY: mapped; the first word is the nonce.
        unsafe { table.copy_from_nonoverlapping(nonce.to_le_bytes().as_ptr(), 8) };
        // SAFETY: the table stays mapped for ever.
        unsafe { names::publish_all(table) };
    }
}

/// Maps another file as the name table, if the table is mapped from the rings file.
pub(crate) fn relocate(new: &File) -> io::Result<()> {
    let table = names::session_table();
    if table.is_null() {
        return Ok(());
    }
    names::while_unchanged(|| {
        // SAFETY: the table is mapped for ever, and no thread writes to it inside
        // `while_unchanged`.
        let content = unsafe { std::slice::from_raw_parts(table, NAMES_BYTES) };
        let used = content
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let copied = new.write_all_at(&content[..used], 0);
        // SAFETY: the address range is the table's; the file's space has been allocated.
        if copied.is_ok() && unsafe { os::map_file(table, NAMES_BYTES, new.as_raw_fd(), 0) } {
            return Ok(());
        }
        // SAFETY: the address range is the table's. Names of this recording are lost if the program
        // is killed.
        unsafe { os::map_memory(table, NAMES_BYTES) };
        copied.and(Err(io::ErrorKind::OutOfMemory.into()))
    })
}

/// Ends the writing of names to the rings file, and unmaps it.
pub(crate) fn unmap() {
    let unused = names::unpublish();
    forget();
    if !unused {
        // The next session uses another address range.
        NAME_TABLE.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Maps private memory as the name table, even while a thread still writes to it.
pub(crate) fn forget() {
    let table = NAME_TABLE.load(Ordering::Acquire);
    if !table.is_null() {
        // SAFETY: reserved once, never released.
        unsafe { os::map_memory(table, NAMES_BYTES) };
    }
}
