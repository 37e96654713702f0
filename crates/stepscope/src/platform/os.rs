//! The operating system calls that the recorder needs, behind safe or named functions.
//!
//! Nothing here allocates, so a thread may record for the first time in a signal handler.
#![allow(unsafe_code, reason = "libc calls; SAFETY comments explain each block")]

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;

/// Reserves address space without memory. Returns `None` when none is left.
pub(crate) fn reserve(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing else.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Maps zeroed private memory at `at`, replacing any mapping.
///
/// # Safety
/// `at..at + bytes` must lie in space returned by [`reserve`], on page boundaries.
pub(crate) unsafe fn map_memory(at: *mut u8, bytes: usize) -> bool {
    // SAFETY: the caller owns the range; threads that still write there keep a valid address.
    let got = unsafe {
        libc::mmap(
            at.cast(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    got != libc::MAP_FAILED
}

/// Maps a range of a file, shared and writable, at `at`, replacing any mapping.
///
/// # Safety
/// As [`map_memory`]; in addition, [`allocate`] must have allocated the range, or a full disk causes
/// SIGBUS.
pub(crate) unsafe fn map_file(at: *mut u8, bytes: usize, fd: RawFd, offset: u64) -> bool {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return false;
    };
    // SAFETY: the caller owns the range.
    let got = unsafe {
        libc::mmap(
            at.cast(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            fd,
            offset,
        )
    };
    got != libc::MAP_FAILED
}

/// Maps a range of a file, private and read-only, at `at`, replacing any mapping.
///
/// # Safety
/// As [`map_memory`]; in addition, the file must not shrink while it is mapped.
pub(crate) unsafe fn map_file_to_read(at: *mut u8, bytes: usize, fd: RawFd, offset: u64) -> bool {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return false;
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    // SAFETY: the caller owns the range.
    let got = unsafe { libc::mmap(at.cast(), bytes, libc::PROT_READ, flags, fd, offset) };
    got != libc::MAP_FAILED
}

/// Releases address space.
///
/// # Safety
/// The caller created the mapping, and nothing else refers to it any more.
pub(crate) unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller created the mapping, and nothing else refers to it.
    unsafe { libc::munmap(at.cast(), bytes) };
}

/// Frees the space of a range of a file; `false` where the file system cannot.
pub(crate) fn punch_hole(fd: RawFd, offset: u64, bytes: u64) -> bool {
    let (Ok(at), Ok(len)) = (libc::off_t::try_from(offset), libc::off_t::try_from(bytes)) else {
        return false;
    };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no memory is passed; a bad descriptor gives an error value.
    unsafe { libc::fallocate(fd, mode, at, len) == 0 }
}

/// Makes the pages of a mapping present and writable, so that the first records do not pay for it.
/// Best effort: kernels before 5.14 do not support it.
///
/// # Safety
/// The range must be mapped.
pub(crate) unsafe fn warm(at: *mut u8, bytes: usize) {
    const MADV_POPULATE_WRITE: libc::c_int = 23;
    // SAFETY: populating a mapped range changes no content.
    unsafe { libc::madvise(at.cast(), bytes, MADV_POPULATE_WRITE) };
}

/// Allocates disk space for a range of a file, so that writing to its mapping cannot fail.
///
/// Refuses a range beyond `RLIMIT_FSIZE`, for which the kernel would send `SIGXFSZ`.
pub(crate) fn allocate(fd: RawFd, offset: u64, bytes: u64) -> Result<(), i32> {
    if offset.saturating_add(bytes) > file_size_limit() {
        return Err(libc::EFBIG);
    }
    // A signal interrupts an allocation, which then restarts: short ranges ensure that it completes
    // even when the program has a timer.
    let mut retries = 1_000;
    let mut done = 0;
    while done < bytes {
        let range = (bytes - done).min(ALLOCATE_BYTES);
        let (Ok(at), Ok(len)) = (
            libc::off_t::try_from(offset + done),
            libc::off_t::try_from(range),
        ) else {
            return Err(libc::EFBIG);
        };
        // SAFETY: no memory is passed; a bad descriptor gives an error value.
        match unsafe { libc::posix_fallocate(fd, at, len) } {
            0 => done += range,
            libc::EINTR if retries > 0 => retries -= 1,
            error => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of a file system: free for this user, and total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskSpace {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

/// Returns the space of the file system of an open file.
pub(crate) fn disk_space(fd: RawFd) -> Option<DiskSpace> {
    // SAFETY: a `statvfs` of zeros is a valid value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing; a bad descriptor gives an error value.
    if unsafe { libc::fstatvfs(fd, &raw mut stat) } != 0 || stat.f_blocks == 0 {
        return None;
    }
    #[allow(
        clippy::unnecessary_cast,
        reason = "the fields have 32 bits on some systems"
    )]
    let bytes = |blocks: libc::fsblkcnt_t| (blocks as u64).saturating_mul(stat.f_frsize as u64);
    Some(DiskSpace {
        free: bytes(stat.f_bavail),
        total: bytes(stat.f_blocks),
    })
}

/// Returns the offset of the first byte of a file that is not in a hole.
pub(crate) fn first_data(fd: RawFd) -> u64 {
    // SAFETY: no memory is passed; a bad descriptor gives an error value.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_DATA) };
    u64::try_from(at).unwrap_or(0)
}

/// Bytes per allocation call.
const ALLOCATE_BYTES: u64 = 256 << 10;

/// Returns the maximum size that this process may give a file, bytes.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for writing.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if got != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return u64::MAX;
    }
    limit.rlim_cur
}

/// Returns whether a process with this id exists, as far as this process may see.
pub(crate) fn process_lives(pid: i32) -> bool {
    // SAFETY: signal 0 only checks for the process; no signal is sent.
    let result = unsafe { libc::kill(pid, 0) };
    result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns the calling thread's id.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments, cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(tid).unwrap_or(0)
}

/// Writes the calling thread's short name (at most 15 bytes); returns the number of bytes.
pub(crate) fn thread_name(into: &mut [u8; 16]) -> usize {
    // SAFETY: the kernel writes at most 16 bytes, with a zero at the end.
    let got = unsafe { libc::prctl(libc::PR_GET_NAME, into.as_mut_ptr(), 0, 0, 0) };
    if got != 0 {
        return 0;
    }
    into.iter().position(|byte| *byte == 0).unwrap_or(16)
}

/// Reads one of the kernel's clocks, nanoseconds.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the fields have 32 bits on some systems"
    )]
    (now.tv_sec as i64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as i64)
}

/// Returns the name of this machine.
pub(crate) fn host_name() -> String {
    let mut bytes = [0_u8; 256];
    // SAFETY: the buffer is valid for its length.
    let got = unsafe { libc::gethostname(bytes.as_mut_ptr().cast(), bytes.len() - 1) };
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    let name = String::from_utf8_lossy(&bytes[..len]).into_owned();
    if got != 0 || name.is_empty() {
        return "localhost".to_owned();
    }
    name
}

/// Formats local time as `YYYY_MM_DD_HH_MM_SS`.
pub(crate) fn local_time_text(unix_s: i64) -> String {
    let time = unix_s as libc::time_t;
    // SAFETY: a `tm` of zeros is a valid value.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid; the reentrant form is used.
    unsafe { libc::localtime_r(&raw const time, &raw mut parts) };
    format!(
        "{:04}_{:02}_{:02}_{:02}_{:02}_{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// Takes the lock that marks a journal as in use. Returns `false` when another process holds it.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> std::io::Result<bool> {
    // SAFETY: the descriptor is open as long as the borrow.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EWOULDBLOCK) => Ok(false),
        _ => Err(error),
    }
}

/// Waits until no process, including this one, holds the lock of [`try_lock`].
pub(crate) fn wait_for_lock(file: BorrowedFd<'_>) {
    let fd = file.as_raw_fd();
    loop {
        // SAFETY: the descriptor is open as long as the borrow.
        if unsafe { libc::flock(fd, libc::LOCK_SH) } == 0 {
            // SAFETY: the descriptor is open as long as the borrow.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
            return;
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// Releases the lock of [`try_lock`], also for processes that inherited the descriptor.
pub(crate) fn unlock(file: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open as long as the borrow.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// Returns the name of the network file system that contains `path`, if any.
///
/// Mapped files are unreliable there: a server that becomes unreachable causes SIGBUS or a hang.
pub(crate) fn network_file_system(path: &Path) -> Option<&'static str> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a `statfs` of zeros is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte and `stat` is valid for writing.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut stat) } != 0 {
        return None;
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "magic numbers have 32 bits"
    )]
    network_magic(stat.f_type as u32)
}

fn network_magic(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x6573_5546 => "FUSE",
        0x0102_1997 => "9P",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x5346_414f => "AFS",
        0x6b41_4653 => "kAFS",
        0x7375_7245 => "Coda",
        0x564c => "NCP",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0xaad7_aaea => "PanFS",
        0x786f_4256 => "VirtualBox shared folder",
        0xbacb_acbc => "VMware shared folder",
        _ => return None,
    })
}

/// Runs `f` with `SIGXFSZ` blocked, so that a file size limit gives an error value instead of
/// ending the program.
pub(crate) fn without_size_signal<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are plain values, filled by the calls below before they are read; changing
    // this thread's mask affects no other thread.
    unsafe {
        let mut only: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut waiting: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, libc::SIGXFSZ);
        libc::sigpending(&raw mut waiting);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, &raw mut before);
        let result = f();
        if libc::sigismember(&raw const waiting, libc::SIGXFSZ) == 0 {
            let no_time: libc::timespec = std::mem::zeroed();
            libc::sigtimedwait(&raw const only, std::ptr::null_mut(), &raw const no_time);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Prints a warning on stderr, for what the user must know while the program runs. Ignores a closed
/// stderr.
pub(crate) fn print_warning(warning: &str) {
    let _ = writeln!(std::io::stderr(), "stepscope: {warning}");
}

/// Prints a warning on stderr, once per process.
pub(crate) fn warn_once(warning: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| print_warning(warning));
}

/// Blocks every signal in the calling thread, so that the program's handlers run on its own
/// threads.
pub(crate) fn block_all_signals() {
    // SAFETY: the set is filled before it is read; only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Replaces pages with a private copy of a range of a file, with zeros past its end. Readers of the
/// pages see no change as long as the contents are equal.
///
/// # Safety
/// As [`map_memory`], and no thread writes there.
pub(crate) unsafe fn map_copy(at: *mut u8, bytes: usize, file: &File, offset: u64) -> bool {
    const COPY_BYTES: usize = 4 << 20;
    let mut done = 0;
    while done < bytes {
        let len = COPY_BYTES.min(bytes - done);
        let Some(copy) = reserve(len) else {
            return false;
        };
        // SAFETY: just reserved; as bytes it is valid for writing, and nothing else refers to it.
        let filled = unsafe {
            map_memory(copy, len) && {
                let into = std::slice::from_raw_parts_mut(copy, len);
                fill(file, offset + done as u64, into);
                true
            }
        };
        // SAFETY: moves whole pages of `copy` over pages of the caller's range.
        let moved = filled
            && unsafe {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let to: *mut libc::c_void = at.add(done).cast();
                libc::mremap(copy.cast(), len, len, flags, to) != libc::MAP_FAILED
            };
        if !moved {
            // SAFETY: reserved above.
            unsafe { unmap(copy, len) };
            return false;
        }
        done += len;
    }
    true
}

/// Reads up to the end of the file.
fn fill(file: &File, mut offset: u64, mut into: &mut [u8]) {
    while !into.is_empty() {
        match file.read_at(into, offset) {
            Ok(0) => return,
            Ok(read) => {
                offset += read as u64;
                into = &mut into[read..];
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_detected_by_magic_number() {
        assert_eq!(network_magic(0x6969), Some("NFS"));
        assert_eq!(network_magic(0xff53_4d42), Some("CIFS"));
        assert_eq!(network_magic(0xef53), None);
    }

    #[test]
    fn default_session_name_has_six_numbers() {
        let text = local_time_text(1_700_000_000);
        let parts: Vec<_> = text.split('_').collect();
        assert_eq!(parts.len(), 6);
        assert_eq!(parts[0].len(), 4);
        assert!(parts[1..].iter().all(|part| part.len() == 2));
    }
}
