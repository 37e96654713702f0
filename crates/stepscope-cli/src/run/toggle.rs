//! The signal of `--signal`: each process that the command records gets it.
//!
//! Launchers and programs without a handler would be ended by it, so only processes that have left a report and
//! catch the signal get it.
#![allow(unsafe_code, reason = "signals are sent by functions of C")]

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::IntoRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use super::{program, summary};

/// The end of the pipe that the signal handler writes to; -1 before.
static WRITER: AtomicI32 = AtomicI32::new(-1);

/// Hands the signal on, from now until the end of this process. `folder` is that of the command.
pub(super) fn hand_on(signal: libc::c_int, folder: PathBuf) -> io::Result<()> {
    let (mut reader, writer) = io::pipe()?;
    WRITER.store(writer.into_raw_fd(), Ordering::SeqCst);
    let work = move || {
        let mut byte = [0];
        while reader.read_exact(&mut byte).is_ok() {
            for id in recorded(&folder).filter(|id| catches(*id, signal)) {
                program::send(id, signal);
            }
        }
    };
    let thread = std::thread::Builder::new().name("stepscope-signal".to_owned());
    thread.spawn(work)?;
    let _ = program::handle(signal, wake);
    Ok(())
}

extern "C" fn wake(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let byte = 1_u8;
    // SAFETY: the pipe is never closed, and `byte` outlives the call. Signal handlers may call `write`.
    unsafe { libc::write(WRITER.load(Ordering::SeqCst), (&raw const byte).cast(), 1) };
}

/// Lists the processes that have left a report and still run: their environment has the folder.
fn recorded(folder: &Path) -> impl Iterator<Item = libc::pid_t> {
    let entries = fs::read_dir(folder.join(summary::REPORTS));
    let names = entries.into_iter().flatten().flatten();
    let ids = names.filter_map(|entry| process_of(&entry.file_name().to_string_lossy()));
    let folder = folder.as_os_str().as_encoded_bytes().to_vec();
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().filter(move |id| {
        let mut environment = Vec::new();
        let file = fs::File::open(format!("/proc/{id}/environ"));
        // A process that cannot be read is not one of this command.
        let _ = file.and_then(|mut file| file.read_to_end(&mut environment));
        environment
            .windows(folder.len())
            .any(|window| window == folder)
    })
}

/// Returns the process of a report: `4711.json`, or `4711-2.json` of its second recording.
fn process_of(name: &str) -> Option<libc::pid_t> {
    let stem = name.strip_suffix(".json")?;
    let id = stem.split_once('-').map_or(stem, |(id, _)| id);
    id.parse().ok().filter(|id| *id > 0)
}

/// Returns whether a process has a handler for the signal.
fn catches(id: libc::pid_t, signal: libc::c_int) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    has_handler(&status, signal)
}

fn has_handler(status: &str, signal: libc::c_int) -> bool {
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_name_their_process() {
        assert_eq!(process_of("4711.json"), Some(4711));
        assert_eq!(process_of("4711-2.json"), Some(4711));
        for name in ["4711.draft", "x.json", "-1.json", "0.json", ""] {
            assert_eq!(process_of(name), None, "{name}");
        }
    }

    #[test]
    fn only_processes_with_a_handler_get_the_signal() {
        let status = "Name:\tpython\nSigIgn:\tffffffffffffffff\nSigCgt:\t0000000000000800\n";
        assert!(has_handler(status, libc::SIGUSR2));
        assert!(!has_handler(status, libc::SIGUSR1));
        assert!(!has_handler("", libc::SIGUSR2));
    }
}
