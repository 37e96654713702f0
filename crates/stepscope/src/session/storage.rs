//! The file system of a log directory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::journal::disk_limit::default_keep_free_bytes;
use crate::platform::os;

/// The file system of a log directory, as the recorder uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Storage {
    /// Free bytes for this user.
    pub free_bytes: u64,
    /// Total bytes; 0 if the file system does not report them.
    pub total_bytes: u64,
    /// Bytes that recordings leave free by default: 5 %, at least 1 GiB.
    pub keep_free_bytes: u64,
    /// Name of the network file system: recordings are kept in memory there.
    pub network: Option<&'static str>,
}

/// Returns the file system of an existing directory.
///
/// # Errors
/// The directory cannot be opened.
pub fn storage(directory: &Path) -> io::Result<Storage> {
    let opened = File::open(directory)?;
    let space = os::disk_space(opened.as_raw_fd());
    let total_bytes = space.map_or(0, |space| space.total);
    Ok(Storage {
        free_bytes: space.map_or(0, |space| space.free),
        total_bytes,
        keep_free_bytes: default_keep_free_bytes(total_bytes),
        network: os::network_file_system(directory),
    })
}
