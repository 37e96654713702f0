//! File leases: the kernel delays a process that opens or truncates a file, and notifies the holder
//! first.
//!
//! A program that accesses a mapping of a truncated file ends with `SIGBUS`. A process that
//! truncates a file, or opens it for that, breaks the lease on it: the kernel blocks that process
//! until the lease is released, or for `/proc/sys/fs/lease-break-time` (45 s). The holder polls
//! ([`Lease::is_breaking`]), replaces its mappings, and releases the lease. No signal is sent.
#![allow(unsafe_code, reason = "libc calls; SAFETY comments explain each block")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The `libc` crate lacks this constant for some targets.
const F_SETSIG: libc::c_int = 10;

/// A lease on an open file. It ends with [`release`], or when the last descriptor and mapping of
/// this open file description is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    kind: libc::c_int,
}

impl Lease {
    /// Takes the strongest lease that the file's open mode permits.
    ///
    /// # Errors
    /// `EAGAIN` while another process has the file open; `EINVAL` where the file system has no
    /// leases; `EACCES` for a file of another user.
    pub(crate) fn take(file: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = file.as_raw_fd();
        // A process may break the lease before the next call: the signal must be one that is
        // ignored by default. After that call no signal is sent; the holder polls.
        set(fd, F_SETSIG, libc::SIGURG)?;
        let kinds = [libc::F_WRLCK, libc::F_RDLCK];
        let mut result = Err(io::ErrorKind::Unsupported.into());
        for kind in kinds {
            result = set(fd, libc::F_SETLEASE, kind).map(|()| Self { kind });
            if result.is_ok() {
                break;
            }
        }
        set(fd, libc::F_SETOWN, 0)?;
        result
    }

    /// Whether a process waits for the file, or has stopped waiting after the break time.
    pub(crate) fn is_breaking(self, fd: RawFd) -> bool {
        // SAFETY: no memory is passed; a bad descriptor gives an error value.
        unsafe { libc::fcntl(fd, libc::F_GETLEASE) != self.kind }
    }
}

/// Ends the lease on a file; waiting processes continue.
pub(crate) fn release(fd: RawFd) {
    let _ = set(fd, libc::F_SETLEASE, libc::F_UNLCK);
}

fn set(fd: RawFd, command: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is passed; a bad descriptor gives an error value.
    match unsafe { libc::fcntl(fd, command, value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Creates an unnamed file that no process can truncate, for content that cannot stay in the
/// journal's files.
pub(crate) fn sealed_file() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { libc::memfd_create(c"stepscope".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    set(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK)?;
    Ok(file)
}

/// Makes `fd` refer to the open file of `file`, atomically. Mappings of the previous file stay.
pub(crate) fn replace_descriptor(fd: RawFd, file: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open; the owner of `fd` closes the new one at its end.
    match unsafe { libc::dup3(file.as_raw_fd(), fd, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    /// Truncates a file in another thread, which ends when the kernel has permitted it.
    fn truncate(path: &Path) -> std::thread::JoinHandle<io::Result<()>> {
        let path = path.to_owned();
        std::thread::Builder::new()
            .spawn(move || File::options().write(true).open(path)?.set_len(0))
            .unwrap()
    }

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn leased_file_is_truncated_only_after_the_release() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(5_000).unwrap();
        let fd = file.as_file().as_raw_fd();
        let lease = Lease::take(file.as_file().as_fd()).unwrap();
        assert!(!lease.is_breaking(fd));
        let waiting = truncate(file.path());
        wait_until(|| lease.is_breaking(fd));
        assert_eq!(file.as_file().metadata().unwrap().len(), 5_000);
        release(fd);
        waiting.join().unwrap().unwrap();
        assert_eq!(file.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn file_open_for_writing_elsewhere_gets_no_lease() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let _other = File::options().write(true).open(file.path()).unwrap();
        assert!(Lease::take(file.as_file().as_fd()).is_err());
    }

    #[test]
    fn sealed_file_cannot_be_truncated() {
        let file = sealed_file().unwrap();
        file.set_len(5_000).unwrap();
        assert!(file.set_len(0).is_err());
        assert_eq!(file.metadata().unwrap().len(), 5_000);
    }
}
