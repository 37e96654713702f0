//! Files of a journal, read through mappings.
//!
//! Accessing the mapping of a truncated file would end the program. While the file is mapped we
//! hold a lease ([`crate::journal::lease`]): when a process breaks it, a copy replaces the mapping
//! first. A file without a lease is copied at once.
#![allow(unsafe_code, reason = "mappings; SAFETY comments explain each block")]
#![allow(
    clippy::disallowed_methods,
    reason = "the recorder makes files in the session's folder"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::journal::lease::{self, Lease};
use crate::platform::os;

/// Interval of polling the lease: much shorter than the kernel's break time (45 s).
const PERIOD: Duration = Duration::from_millis(20);

/// Alignment of mappings, which suits all page sizes.
const BORDER: u64 = 64 << 10;

/// The content of a file, read-only, which stays readable whatever other processes do to the file.
pub(crate) struct MappedFile {
    at: *const u8,
    /// Bytes before the requested range, added for alignment.
    skip: usize,
    len: usize,
    watch: Option<Watch>,
}

// SAFETY: the mapping is read-only and owned by this value.
unsafe impl Send for MappedFile {}
// SAFETY: the mapping is read-only and owned by this value.
unsafe impl Sync for MappedFile {}

struct Watch {
    file: Arc<File>,
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl MappedFile {
    /// Maps the bytes `from..to` of a file, or reads them.
    ///
    /// # Errors
    /// No memory, or no address space.
    pub(crate) fn map(file: &File, from: u64, to: u64) -> io::Result<Self> {
        let offset = from / BORDER * BORDER;
        let len = usize::try_from(to.saturating_sub(offset)).map_err(io::Error::other)?;
        let mut mapped = Self {
            at: std::ptr::NonNull::dangling().as_ptr(),
            skip: 0,
            len: 0,
            watch: None,
        };
        if to <= from {
            return Ok(mapped);
        }
        let file = Arc::new(file.try_clone()?);
        let at = os::reserve(len).ok_or(io::ErrorKind::OutOfMemory)?;
        mapped.at = at;
        mapped.len = len;
        mapped.skip = usize::try_from(from - offset).map_err(io::Error::other)?;
        if let Ok(lease) = Lease::take(file.as_fd()) {
            // The size may have changed before the lease.
            let there = file.metadata()?.len() >= to;
            // SAFETY: just reserved.
            if there && unsafe { os::map_file_to_read(at, len, file.as_raw_fd(), offset) } {
                let watch = Watch::start(
                    lease,
                    Arc::clone(&file),
                    (at.expose_provenance(), len),
                    offset,
                );
                if let Ok(watch) = watch {
                    mapped.watch = Some(watch);
                    return Ok(mapped);
                }
            }
            lease::release(file.as_raw_fd());
        }
        // SAFETY: just reserved, and nothing else refers to it.
        if unsafe { map_copy(at, len, &file, offset) } {
            Ok(mapped)
        } else {
            Err(io::ErrorKind::OutOfMemory.into())
        }
    }

    /// Returns the content.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for `len` bytes (or dangling with length 0) as long as `self` lives, and the
        // file does not shrink as long as it is mapped.
        let all = unsafe { std::slice::from_raw_parts(self.at, self.len) };
        &all[self.skip..]
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Replaces a mapping with a copy that no other process can reach: a long one in an unnamed file,
/// whose pages the kernel can write back, otherwise in memory.
///
/// # Safety
/// As [`os::map_copy`].
unsafe fn map_copy(at: *mut u8, len: usize, file: &File, offset: u64) -> bool {
    const LONGEST_IN_MEMORY: usize = 64 << 20;
    if len > LONGEST_IN_MEMORY
        && let Ok(copy) = copy_to_unnamed_file(file, offset, len)
    {
        // SAFETY: the caller guarantees the mapping; the copy is as long as the mapping.
        return unsafe { os::map_file_to_read(at, len, copy.as_raw_fd(), 0) };
    }
    // SAFETY: the caller guarantees the mapping.
    unsafe { os::map_copy(at, len, file, offset) }
}

/// Copies a range of a file to an unnamed file in the same folder. The copy has zeros past the
/// file's end.
fn copy_to_unnamed_file(file: &File, offset: u64, len: usize) -> io::Result<File> {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let copy = options.custom_flags(libc::O_TMPFILE).open(folder)?;
    copy.set_len(len as u64)?;
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    while done < len {
        let len_now = buffer.len().min(len - done);
        let read = file.read_at(&mut buffer[..len_now], offset + done as u64)?;
        if read == 0 {
            break;
        }
        copy.write_all_at(&buffer[..read], done as u64)?;
        done += read;
    }
    Ok(copy)
}

impl Watch {
    fn start(
        lease: Lease,
        file: Arc<File>,
        (at, len): (usize, usize),
        offset: u64,
    ) -> io::Result<Self> {
        let done = Arc::new(AtomicBool::new(false));
        let body = {
            let (file, done) = (Arc::clone(&file), Arc::clone(&done));
            move || {
                os::block_all_signals();
                while !done.load(Ordering::Acquire) {
                    if lease.is_breaking(file.as_raw_fd()) {
                        let at: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
                        // SAFETY: the owner unmaps the range only after this thread has ended; it
                        // maps this file, which has not changed.
                        if unsafe { map_copy(at, len, &file, offset) } {
                            lease::release(file.as_raw_fd());
                        }
                        return;
                    }
                    std::thread::park_timeout(PERIOD);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("stepscope-lease".to_owned())
            .spawn(body)?;
        Ok(Self { file, done, thread })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let watch = self.watch.take().map(|watch| {
            watch.done.store(true, Ordering::Release);
            watch.thread.thread().unpark();
            let _ = watch.thread.join();
            watch.file
        });
        if self.len > 0 {
            // SAFETY: reserved by `map`, unmapped once.
            unsafe { os::unmap(self.at.cast_mut(), self.len) };
        }
        if let Some(file) = watch {
            lease::release(file.as_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_keeps_its_content_when_the_file_is_truncated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..9_000_001_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(file.path(), &content).unwrap();
        let mapped = MappedFile::map(file.as_file(), 70_000, content.len() as u64).unwrap();
        assert!(mapped.watch.is_some());
        std::fs::write(file.path(), "short").unwrap();
        assert!(mapped.bytes() == &content[70_000..]);
        drop(mapped);
        let again = MappedFile::map(file.as_file(), 0, 5).unwrap();
        assert_eq!(again.bytes(), b"short");
    }

    #[test]
    fn file_open_for_writing_elsewhere_is_read_into_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "content").unwrap();
        let other = File::options().write(true).open(file.path()).unwrap();
        let mapped = MappedFile::map(file.as_file(), 0, 7).unwrap();
        assert!(mapped.watch.is_none());
        other.set_len(0).unwrap();
        assert_eq!(mapped.bytes(), b"content");
        let short = MappedFile::map(file.as_file(), 0, 7).unwrap();
        assert_eq!(short.bytes(), [0; 7]);
    }
}
