//! Tests of rare timings: a fork between stop and export, a thread key's destructor that annotates,
//! a signal in the middle of an allocation, two concurrent recoveries.
//!
//! Each case that may kill the process runs this test binary again as a child.

use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use stepscope::recover::{pending, recover_dir};
use stepscope::{SessionOptions, span, start_trace, start_trace_with, stop_trace};
use tempfile::tempdir;

use crate::{clear, exclusive, files, names, obstruct, read, wait_until};

/// Returns the standard input of the child, whose end a process that outlives the child can wait for.
fn run(case: &str, dir: &Path) -> ChildStdin {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--test-threads=1",
            "--ignored",
            "--exact",
            "edges::child",
            "--nocapture",
        ])
        .env("STEPSCOPE_EDGE_CHILD", case)
        .env("STEPSCOPE_TEST_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {} {text}", output.status);
    input
}

/// Runs the child's case. Does nothing without one.
#[test]
#[ignore = "the program of the other tests"]
fn child() {
    let Ok(case) = std::env::var("STEPSCOPE_EDGE_CHILD") else {
        return;
    };
    let dir = std::env::var("STEPSCOPE_TEST_DIR").unwrap();
    let dir = Path::new(&dir);
    match case.as_str() {
        "unwritten" => unwritten(dir),
        "key" => key(dir),
        "shortened" => shortened(dir),
        "timer" => timer(dir),
        "storm" => storm(dir),
        other => panic!("no case {other}"),
    }
}

/// A stop that cannot write, then a fork whose child outlives the program.
fn unwritten(dir: &Path) {
    let options = SessionOptions {
        session_name: Some("kept".to_owned()),
        host_name: Some("box".to_owned()),
        ..SessionOptions::default()
    };
    start_trace_with(dir, &options).unwrap();
    drop(span!("finished"));
    let open = span!("open");
    let obstacles = obstruct(&dir.join("plugins/profile/kept"), "box");
    assert!(stop_trace().is_err());
    clear(&obstacles);
    drop(open);
    // SAFETY: the child only waits for the end of its input, and has no output on which the parent's reader would
    // wait.
    unsafe {
        if libc::fork() == 0 {
            for fd in 1..3 {
                libc::close(fd);
            }
            let mut byte = 0_u8;
            libc::read(0, (&raw mut byte).cast(), 1);
        }
        libc::_exit(0);
    }
}

#[test]
fn fork_child_does_not_lock_an_unwritten_journal() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    let input = run("unwritten", dir.path());
    let found = pending(dir.path()).len();
    let runs = recover_dir(dir.path(), None);
    // The child of the fork has lived until now.
    drop(input);
    assert_eq!(found, 1);
    let file = runs[0].file.as_ref().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(
        mode & 0o777,
        0o600,
        "as its journal, only its owner reads it"
    );
    assert_eq!(names(&read(file)), ["finished", "open"]);
}

#[test]
fn worker_killed_before_its_first_block_leaves_nothing() {
    let dir = tempdir().unwrap();
    for name in ["7-1", "7-1.worker-8-1"] {
        let journal = dir.path().join(format!(".stepscope-journal-{name}"));
        std::fs::create_dir(&journal).unwrap();
        for file in ["lock", "workers", "rings", "events"] {
            std::fs::write(journal.join(file), "").unwrap();
        }
    }
    let runs = recover_dir(dir.path(), None);
    // Only the program's own journal becomes a file.
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(runs[0].journal.ends_with(".stepscope-journal-7-1"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

extern "C" fn late(_: *mut libc::c_void) {
    let _span = span!("late");
}

/// A key created after the recorder's: its destructor runs after the recorder's.
fn key(dir: &Path) {
    start_trace(dir).unwrap();
    let mut key = 0;
    // SAFETY: a destructor that does not use its argument.
    unsafe { libc::pthread_key_create(&raw mut key, Some(late)) };
    let work = std::thread::Builder::new().name("a name of more than 15 bytes".to_owned());
    let work = work.spawn(move || {
        let _span = span!("early");
        // SAFETY: the key was created above; the value is not null.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
    });
    work.unwrap().join().unwrap();
    assert_eq!(stop_trace().unwrap().spans, 2);
}

#[test]
fn destructor_of_a_later_thread_key_can_annotate() {
    let _exclusive = exclusive();
    run("key", tempdir().unwrap().path());
}

/// Another process truncates the journal while it is written.
fn shortened(dir: &Path) {
    start_trace(dir).unwrap();
    for _ in 0..100_000 {
        let _span = span!("many");
    }
    stepscope::flush_trace();
    for journal in journals(dir) {
        let events = std::fs::File::options()
            .write(true)
            .open(journal.join("events"));
        events.unwrap().set_len(0).unwrap();
    }
    stop_trace().unwrap();
}

fn journals(dir: &Path) -> Vec<std::path::PathBuf> {
    let sessions = std::fs::read_dir(dir.join("plugins/profile")).unwrap();
    sessions
        .flat_map(|session| std::fs::read_dir(session.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".stepscope-journal-"))
        .collect()
}

#[test]
fn truncated_journal_raises_no_signal() {
    let _exclusive = exclusive();
    run("shortened", tempdir().unwrap().path());
}

/// Number of signals that [`on_signal`] has handled.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let _span = span!("handler");
}

/// Interrupts threads repeatedly until `stop` is set.
fn interrupt(threads: &[libc::pthread_t], stop: &AtomicBool) {
    // SAFETY: a handler that only annotates.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
    while !stop.load(Ordering::Relaxed) {
        for thread in threads {
            // SAFETY: the threads live until this function has returned.
            unsafe { libc::pthread_kill(*thread, libc::SIGUSR1) };
        }
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// A fast timer, like a sampling profiler's, while threads get their rings.
fn timer(dir: &Path) {
    static STOP: AtomicBool = AtomicBool::new(false);
    // SAFETY: no arguments, cannot fail.
    let this = unsafe { libc::pthread_self() };
    let timer = std::thread::spawn(move || interrupt(&[this], &STOP));
    let start = std::time::Instant::now();
    let mut sessions = 0;
    // On a busy machine the first signal may be late.
    while sessions < 20 || SIGNALS.load(Ordering::Relaxed) < 20 {
        assert!(start.elapsed().as_secs() < 60, "too few signals");
        start_trace(dir).unwrap();
        drop(span!("here"));
        let report = stop_trace().unwrap();
        assert!(report.crash_safe, "{:?}", report.warnings);
        sessions += 1;
    }
    STOP.store(true, Ordering::Relaxed);
    timer.join().unwrap();
}

#[test]
fn fast_timer_signals_preserve_crash_safety() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempdir())
        .unwrap();
    run("timer", dir.path());
}

/// Sessions start and stop while threads record and are interrupted.
fn storm(dir: &Path) {
    static STOP: AtomicBool = AtomicBool::new(false);
    static ROUNDS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    static QUIET: AtomicBool = AtomicBool::new(false);
    let threads: Vec<_> = ROUNDS
        .iter()
        .map(|rounds| {
            std::thread::spawn(move || {
                while !STOP.load(Ordering::Relaxed) {
                    let _outer = span!("outer");
                    for n in 0..3_i64 {
                        let _inner = span!("inner", n = n);
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let targets: Vec<_> = threads.iter().map(JoinHandleExt::as_pthread_t).collect();
    let timer = std::thread::spawn(move || interrupt(&targets, &QUIET));
    let seconds = std::env::var("STEPSCOPE_STORM_SECONDS").map_or(3, |text| text.parse().unwrap());
    let start = std::time::Instant::now();
    let mut sessions = 0_u32;
    // The machine may be suspended meanwhile.
    while start.elapsed().as_secs() < seconds || sessions <= 10 {
        let options = SessionOptions {
            crash_safe: sessions.is_multiple_of(2),
            buffer_bytes: 64 << 10,
            ..SessionOptions::default()
        };
        start_trace_with(dir, &options).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(u64::from(sessions % 7)));
        let report = stop_trace().unwrap();
        if sessions.is_multiple_of(10) {
            let probe = read(&report.path);
            assert_eq!(probe.slices.len() as u64, report.spans);
            assert!(
                probe
                    .slices
                    .iter()
                    .all(|slice| ["outer", "inner", "handler"].contains(&slice.name.as_str()))
            );
        }
        std::fs::remove_dir_all(report.path.parent().unwrap()).unwrap();
        sessions += 1;
    }
    // A thread that was interrupted at a critical point still records afterwards.
    QUIET.store(true, Ordering::Relaxed);
    timer.join().unwrap();
    start_trace(dir).unwrap();
    for rounds in &ROUNDS {
        let before = rounds.load(Ordering::Relaxed);
        wait_until("a thread does not continue", || {
            rounds.load(Ordering::Relaxed).wrapping_sub(before) >= 1_000
        });
    }
    let report = stop_trace().unwrap();
    assert_eq!(report.threads, 4, "{report:?}");
    STOP.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn sessions_may_come_and_go_under_signals() {
    let _exclusive = exclusive();
    run("storm", tempdir().unwrap().path());
}

/// Several killed programs of one machine share a session's folder.
#[test]
fn concurrent_recoveries_exclude_each_other() {
    let _exclusive = exclusive();
    for _ in 0..5 {
        let dir = tempdir().unwrap();
        let session = dir.path().join("plugins/profile/shared");
        std::fs::create_dir_all(&session).unwrap();
        let pids: Vec<_> = (0..4)
            .map(|_| {
                // SAFETY: the child records and ends; the parent records nothing at this time.
                unsafe {
                    let pid = libc::fork();
                    if pid == 0 {
                        let options = SessionOptions {
                            session_name: Some("shared".to_owned()),
                            ..SessionOptions::default()
                        };
                        let started = start_trace_with(dir.path(), &options).is_ok();
                        for n in 0..5_000_i64 {
                            let _span = span!("work", n = n);
                        }
                        libc::_exit(i32::from(!started));
                    }
                    pid
                }
            })
            .collect();
        for pid in pids {
            let mut status = 0;
            // SAFETY: the child of this process.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
        let runs: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| recover_dir(dir.path(), None)))
                .collect();
            all.into_iter()
                .flat_map(|one| one.join().unwrap())
                .collect()
        });
        for run in &runs {
            assert!(run.file.is_ok(), "{run:?}");
        }
        let files = files(dir.path());
        assert_eq!((runs.len(), files.len()), (4, 4), "{runs:?}");
        for file in files {
            assert_eq!(read(&file).slices.len(), 5_000);
        }
    }
}

/// A program in a container has the same process id each time.
#[test]
fn leftover_journal_preserves_crash_safety() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    let session = dir.path().join("plugins/profile/again");
    for number in 0..200 {
        let name = format!(".stepscope-journal-{}-{number}", std::process::id());
        std::fs::create_dir_all(session.join(name).join("full")).unwrap();
    }
    let options = SessionOptions {
        session_name: Some("again".to_owned()),
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    assert!(stop_trace().unwrap().crash_safe);
}

/// In a directory that others may write to, the recorder does not follow a symbolic link to another
/// file.
#[test]
fn links_in_the_session_are_not_followed() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    let session = dir.path().join("plugins/profile/open");
    std::fs::create_dir_all(&session).unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let pid = std::process::id();
    let links = [
        format!(".stepscope-probe-{pid}"),
        format!(".box.xplane.pb.tmp-{pid}"),
        format!(".box.xplane.pb.tmp-{pid}-0"),
        format!(".box.trace.json.gz.tmp-{pid}"),
    ];
    for link in links {
        std::os::unix::fs::symlink(&victim, session.join(link)).unwrap();
    }
    let options = SessionOptions {
        session_name: Some("open".to_owned()),
        host_name: Some("box".to_owned()),
        trace_json: cfg!(feature = "chrome"),
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    drop(span!("one"));
    let report = stop_trace().unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(read(&report.path).slices.len(), 1);
}

/// A kill in the middle of an export leaves an unfinished file.
#[test]
fn unfinished_files_of_killed_programs_are_removed() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    let session = dir.path().join("plugins/profile/again");
    std::fs::create_dir_all(&session).unwrap();
    let child = Command::new("true").spawn().unwrap();
    let ended_process = child.id();
    child.wait_with_output().unwrap();
    let this_process = std::process::id();
    let old = std::time::SystemTime::UNIX_EPOCH;
    let leave = |name: String, is_old: bool| {
        let path = session.join(name);
        let file = std::fs::File::create(&path).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
        path
    };
    let orphan = leave(format!(".box.xplane.pb.tmp-{ended_process}-0"), true);
    let live_files = [
        leave(format!(".box.xplane.pb.tmp-{ended_process}-1"), false),
        leave(format!(".box.xplane.pb.tmp-{this_process}-0"), true),
        leave("box.tmp-1-1".to_owned(), true),
        leave(".box.tmp-x-1".to_owned(), true),
    ];
    assert!(pending(dir.path()).is_empty() && orphan.exists());
    recover_dir(dir.path(), None);
    assert!(!orphan.exists());
    let options = SessionOptions {
        session_name: Some("again".to_owned()),
        ..SessionOptions::default()
    };
    let orphan = leave(format!(".box.xplane.pb.tmp-{ended_process}-0"), true);
    start_trace_with(dir.path(), &options).unwrap();
    stop_trace().unwrap();
    assert!(!orphan.exists());
    assert!(live_files.iter().all(|path| path.exists()));
}
