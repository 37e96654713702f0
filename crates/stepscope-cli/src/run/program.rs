//! The program of `stepscope run`: gets the signals that this command gets, starts with the dispositions and the mask
//! that this command started with, and decides how it ends.
#![allow(unsafe_code, reason = "signals are handled and sent by functions of C")]

use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

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
/// Whether this process was started with `SIGPIPE` and `SIGXFSZ` ignored. Rust's runtime and Python ignore them too.
static IGNORED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
/// The signals of [`IGNORED`].
const RUNTIME_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Notes which signals this process was started with ignored. The executable calls it before Rust's runtime starts;
/// without that call, the program gets the default dispositions.
pub(super) fn note_inherited() {
    for (signal, ignored) in RUNTIME_SIGNALS.into_iter().zip(&IGNORED) {
        ignored.store(is_ignored(signal), Ordering::SeqCst);
    }
}

/// Runs the program to its end, with the input and output of this command. A signal that has another use is not
/// forwarded.
pub(super) fn run(command: &mut Command, used: Option<libc::c_int>) -> io::Result<ExitStatus> {
    give_inherited(command);
    let forwarded = FORWARDED.into_iter().filter(|signal| Some(*signal) != used);
    // An ignored signal is ignored by the program too.
    let forwarded = forwarded.filter(|signal| !is_ignored(*signal));
    let before: Vec<(libc::c_int, libc::sigaction)> = forwarded
        .map(|signal| (signal, handle(signal, forward)))
        .collect();
    let ended = run_to_end(command);
    for (signal, action) in before {
        // SAFETY: the system has returned this action, which outlives the call.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
    ended
}

fn run_to_end(command: &mut Command) -> io::Result<ExitStatus> {
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

/// Has the program start with the mask of this thread and the dispositions that this process was started with: the
/// standard library gives programs an empty mask and the default disposition of `SIGPIPE`.
fn give_inherited(command: &mut Command) {
    // SAFETY: zero is a valid set, and outlives the call that fills it.
    let mask = unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        mask
    };
    let ignored = IGNORED
        .each_ref()
        .map(|ignored| ignored.load(Ordering::SeqCst));
    let give = move || {
        for (signal, is_ignored) in RUNTIME_SIGNALS.into_iter().zip(ignored) {
            let action = if is_ignored {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            };
            // SAFETY: no memory is passed.
            unsafe { libc::signal(signal, action) };
        }
        // SAFETY: the mask is a plain value that this closure owns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: after the fork, only functions run that signal handlers may call.
    unsafe { command.pre_exec(give) };
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
    // SAFETY: functions without memory of ours but `none` and the set, which outlive the calls. The program has left
    // its core dump; this process leaves none.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::raise(signal);
    }
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Returns whether this process ignores a signal.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: zero is a valid `sigaction`, which outlives the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0
            || action.sa_sigaction == libc::SIG_IGN
    }
}

/// Has writes beyond a limit on the size of files return an error, in place of a signal that ends this command.
pub(super) fn survive_size_limit() {
    // SAFETY: no memory is passed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Sets a handler, which must call only what signal handlers may call. Returns the action before.
pub(super) fn handle(signal: libc::c_int, handler: Handler) -> libc::sigaction {
    // SAFETY: zero is a valid `sigaction`, and both outlive the call. The handlers of this command read atomics and
    // call `kill` or `write`.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, &raw mut before);
        before
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
