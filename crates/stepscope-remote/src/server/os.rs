//! Safe wrappers of the few system calls that the server needs.
#![allow(unsafe_code, reason = "libc calls; each block says why it is sound")]

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Sockets of this process's server, which a forked child closes. -1: free.
static SOCKETS: [AtomicI32; SOCKET_PLACES] = [const { AtomicI32::new(-1) }; SOCKET_PLACES];

/// Larger than the maximum number of connections.
const SOCKET_PLACES: usize = 512;

/// Callback in a forked child; must be async-signal-safe.
static IN_CHILD: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// Registration of a socket that a forked child closes. Drop it before the socket.
#[derive(Debug)]
pub(super) struct ParentsOnly {
    place: Option<usize>,
}

impl ParentsOnly {
    /// Registers a socket.
    pub(super) fn note(socket: &impl std::os::fd::AsRawFd) -> Self {
        let socket = socket.as_raw_fd();
        let place = SOCKETS.iter().position(|place| {
            place
                .compare_exchange(-1, socket, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        });
        Self { place }
    }
}

impl Drop for ParentsOnly {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            SOCKETS[place].store(-1, Ordering::SeqCst);
        }
    }
}

/// Installs a fork handler: a forked child closes the sockets of this process's server and calls
/// `in_child`.
pub(super) fn watch_forks(in_child: fn()) {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    let _ = IN_CHILD.set(in_child);
    if !WATCHING.swap(true, Ordering::SeqCst) {
        // SAFETY: `let_go` is a static function of this program, and it only makes
        // async-signal-safe calls, as a fork handler must.
        unsafe { libc::pthread_atfork(None, None, Some(let_go)) };
    }
}

/// Runs in a forked child, where only async-signal-safe calls are allowed.
extern "C" fn let_go() {
    for place in &SOCKETS {
        let socket = place.swap(-1, Ordering::SeqCst);
        if socket >= 0 {
            // SAFETY: the descriptor is this process's copy of a socket that only the parent's
            // server thread uses. That thread, and with it every owner of the descriptor, does not
            // exist in the child.
            unsafe { libc::close(socket) };
        }
    }
    if let Some(in_child) = IN_CHILD.get() {
        in_child();
    }
}

/// Increases the backlog of the listener beyond the standard library's value: if a flood fills the
/// queue, other clients lose a second each.
pub(super) fn lengthen_queue(listener: &std::net::TcpListener) {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the socket is open and already listens; the call only changes its backlog.
    unsafe { libc::listen(listener.as_raw_fd(), 4_096) };
}

/// Returns the CPU time of all threads of this process.
pub(super) fn process_cpu_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    let got = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    if got != 0 {
        return Duration::ZERO;
    }
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// Returns a reference to a leaked box.
pub(super) fn never_freed<T>(at: *mut T) -> &'static T {
    // SAFETY: the only caller created the pointer with `Box::into_raw` and never frees it.
    unsafe { &*at }
}
