//! The few calls to the operating system that the server needs, made safe.
#![allow(unsafe_code, reason = "libc calls; each block says why it is sound")]

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Sockets of this process's server, which a fork's child closes. -1: free.
static SOCKETS: [AtomicI32; SOCKET_PLACES] = [const { AtomicI32::new(-1) }; SOCKET_PLACES];

/// More than there are connections at once.
const SOCKET_PLACES: usize = 512;

/// What else a fork's child does; must be safe in a signal handler.
static IN_CHILD: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

/// A socket that a fork's child closes. To be dropped before the socket is.
#[derive(Debug)]
pub(super) struct ParentsOnly {
    place: Option<usize>,
}

impl ParentsOnly {
    /// Notes a socket.
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

/// From now on a fork's child has no sockets of this process's server, and calls `in_child`.
pub(super) fn watch_forks(in_child: fn()) {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    let _ = IN_CHILD.set(in_child);
    if !WATCHING.swap(true, Ordering::SeqCst) {
        // SAFETY: the handler is a function of this program, and safe where it is called.
        unsafe { libc::pthread_atfork(None, None, Some(let_go)) };
    }
}

/// Runs in a fork's child, where only calls are allowed that are safe in a signal handler.
extern "C" fn let_go() {
    for place in &SOCKETS {
        let socket = place.swap(-1, Ordering::SeqCst);
        if socket >= 0 {
            // SAFETY: this process's copy of a socket that only the parent's server thread uses;
            // that thread, and with it every owner of the number, does not exist here.
            unsafe { libc::close(socket) };
        }
    }
    if let Some(in_child) = IN_CHILD.get() {
        in_child();
    }
}

/// Lets more connections wait to be taken than the standard library asks for; a flood that fills
/// the queue costs honest clients a second each.
pub(super) fn lengthen_queue(listener: &std::net::TcpListener) {
    use std::os::fd::AsRawFd as _;
    // SAFETY: asks again for what the open socket does already.
    unsafe { libc::listen(listener.as_raw_fd(), 4_096) };
}

/// CPU time that this process has used, all threads together.
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

/// A value that was boxed, given up, and is freed by nobody.
pub(super) fn never_freed<T>(at: *mut T) -> &'static T {
    // SAFETY: the only caller made it with `Box::into_raw` and frees it never.
    unsafe { &*at }
}
