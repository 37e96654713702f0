//! The program of `stepscope run`: gets the signals that this command gets, and decides how it ends.
#![allow(unsafe_code, reason = "signals are handled and sent by functions of C")]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that end programs or that programs handle.
const FORWARDED: [libc::c_int; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Process id of the program; 0 before its start.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// Signal that came before the start of the program; 0 for none.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Runs the program to its end, with the input and output of this command. A signal that has another use is not
/// forwarded.
pub(super) fn run(command: &mut Command, used: Option<libc::c_int>) -> io::Result<ExitStatus> {
    for signal in FORWARDED.into_iter().filter(|signal| Some(*signal) != used) {
        forward_from_now_on(signal);
    }
    let mut child = command.spawn()?;
    let id = i32::try_from(child.id()).unwrap_or(0);
    PROGRAM.store(id, Ordering::SeqCst);
    let early = EARLY.swap(0, Ordering::SeqCst);
    if early != 0 {
        send(id, early);
    }
    let ended = child.wait();
    PROGRAM.store(0, Ordering::SeqCst);
    ended
}

/// Ends this process as the program has ended, if a signal has ended it: shells look at the signal. Returns the
/// exit code otherwise.
pub(super) fn end_as(ended: ExitStatus) -> u8 {
    if let Some(code) = ended.code() {
        return u8::try_from(code).unwrap_or(1);
    }
    let signal = ended.signal().unwrap_or(libc::SIGKILL);
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: functions without memory of ours but `none`, which outlives the call. The program has left its
    // core dump; this process leaves none.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    // The signal is blocked.
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Forwards a signal, unless it is ignored: then the program ignores it too.
fn forward_from_now_on(signal: libc::c_int) {
    // SAFETY: zero is a valid `sigaction`, which outlives the call.
    let is_ignored = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut before) != 0
            || before.sa_sigaction == libc::SIG_IGN
    };
    if !is_ignored {
        handle(signal, forward);
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Sets a handler, which must call only what signal handlers may call.
pub(super) fn handle(signal: libc::c_int, handler: Handler) {
    // SAFETY: zero is a valid `sigaction`, which outlives the call. The handlers of this command read atomics and
    // call `kill` or `write`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn forward(
    signal: libc::c_int,
    from: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the system passes a valid structure to handlers with `SA_SIGINFO`.
    let sent_by_terminal = unsafe { (*from).si_code } > 0;
    // The terminal sends its signals to the program too.
    if sent_by_terminal {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        id => send(id, signal),
    }
}

/// Sends a signal to a process.
pub(super) fn send(id: libc::pid_t, signal: libc::c_int) {
    // SAFETY: no memory is passed. The caller knows that the process still has this id.
    unsafe { libc::kill(id, signal) };
}
