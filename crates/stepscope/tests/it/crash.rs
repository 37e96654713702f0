//! Tests of abnormal program ends.
//!
//! Each case runs this test binary again as a child, which records and then dies.

mod truncated;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use stepscope::recover::{pending, recover_dir};
use stepscope::{SessionOptions, span, start_trace, start_trace_with, stop_trace};
use stepscope_model::SliceFlags;

use crate::{clear, exclusive, files, flush, names, obstruct, read};

fn spawn(case: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "crash::child", "--nocapture"])
        .env("STEPSCOPE_TEST_CHILD", case)
        .env("STEPSCOPE_TEST_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn run(case: &str, dir: &Path) -> (ExitStatus, String) {
    let output = spawn(case, dir).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status, text)
}

/// Records on two threads: `count` finished spans on each, then one that stays open.
fn work(count: u32) -> Vec<stepscope::SpanGuard> {
    let other = std::thread::Builder::new()
        .name("other".into())
        .spawn(move || {
            for n in 0..count {
                let _span = span!("other", n = n);
            }
            std::mem::forget(span!("open elsewhere"));
            std::mem::forget(std::thread::current());
        });
    other.unwrap().join().unwrap();
    for n in 0..count {
        let _span = stepscope::Span::enter(if n % 2 == 0 { "even" } else { "odd" });
    }
    vec![stepscope::step(7), span!("open here", why = "killed")]
}

/// Runs the child's case. Does nothing without one.
#[test]
#[ignore = "the program of the other tests"]
fn child() {
    let Ok(case) = std::env::var("STEPSCOPE_TEST_CHILD") else {
        return;
    };
    let dir = std::env::var("STEPSCOPE_TEST_DIR").unwrap();
    let dir = Path::new(&dir);
    // SAFETY: each call ends the process or changes only what its case tests.
    unsafe {
        match case.as_str() {
            "kill" | "segv" | "_exit" | "no stop" | "panic" | "exit" => {
                start_trace(dir).unwrap();
                let open = work(1_000);
                match case.as_str() {
                    "kill" => libc::kill(libc::getpid(), libc::SIGKILL),
                    "segv" => {
                        std::ptr::without_provenance_mut::<i32>(16).write_volatile(1);
                        0
                    }
                    "_exit" => libc::_exit(3),
                    "exit" => std::process::exit(0),
                    "panic" => panic!("as planned"),
                    _ => 0,
                };
                drop(open);
            }
            "kill at once" => {
                start_trace(dir).unwrap();
                let _span = span!("only");
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
            "kill under load" => {
                let options = SessionOptions {
                    buffer_bytes: 8 << 20,
                    ..SessionOptions::default()
                };
                start_trace_with(dir, &options).unwrap();
                for n in 0..60_000_i64 {
                    let _span = span!("load", n = n);
                }
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
            "live" => {
                start_trace(dir).unwrap();
                let _work = work(10);
                println!("\nready");
                std::io::stdout().flush().unwrap();
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).unwrap();
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
            "no room" => {
                // A limit on file sizes, which acts like a full disk.
                let limit = libc::rlimit {
                    rlim_cur: 3 << 20,
                    rlim_max: libc::RLIM_INFINITY,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                start_trace(dir).unwrap();
                drop(work(100));
                let report = stop_trace().unwrap();
                assert!(!report.crash_safe && !report.warnings.is_empty());
                assert_eq!(report.spans, 203);
            }
            "no room for more" => {
                let options = SessionOptions {
                    buffer_bytes: 256 << 10,
                    ..SessionOptions::default()
                };
                start_trace_with(dir, &options).unwrap();
                drop(span!("first"));
                let limit = libc::rlimit {
                    rlim_cur: 64 << 10,
                    rlim_max: libc::RLIM_INFINITY,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                for _ in 0..50 {
                    for _ in 0..1_000 {
                        let _span = span!("more");
                    }
                    flush();
                }
                let error = stop_trace().unwrap_err();
                assert!(matches!(error, stepscope::SessionError::NotWritten { .. }));
                let limit = libc::rlimit {
                    rlim_cur: libc::RLIM_INFINITY,
                    rlim_max: libc::RLIM_INFINITY,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                let report = stop_trace().unwrap();
                assert_eq!((report.spans, report.dropped), (50_001, 0));
                assert!(!report.crash_safe);
            }
            "fork" => {
                start_trace(dir).unwrap();
                let open = span!("parent open");
                drop(span!("parent before"));
                let child = libc::fork();
                if child == 0 {
                    assert!(!stepscope::is_recording());
                    assert!(stop_trace().is_err());
                    drop(span!("nobody"));
                    start_trace(dir).unwrap();
                    for _ in 0..1_000 {
                        let _span = span!("child");
                    }
                    drop(open);
                    let report = stop_trace().unwrap();
                    libc::_exit(i32::from(report.spans != 1_000));
                }
                for _ in 0..1_000 {
                    let _span = span!("parent");
                }
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
                assert_eq!(status, 0);
                drop(open);
                assert_eq!(stop_trace().unwrap().spans, 1_002);
            }
            "truncated" | "truncated, killed" | "truncated, bursts" => {
                start_trace(dir).unwrap();
                if case == "truncated, bursts" {
                    // Fills several chunks.
                    record_until_line(12_000, || sleep_ms(10));
                } else {
                    // A ring that is emptied after each burst never fills up.
                    record_until_line(128, flush);
                }
                let report = stop_trace().unwrap();
                println!(
                    "\nreport {} {} {:?}",
                    report.spans, report.dropped, report.warnings
                );
            }
            "truncated flight" => {
                let options = stepscope::FlightOptions {
                    log_dir: Some(dir.to_owned()),
                    max_bytes: 4 << 20,
                    ..stepscope::FlightOptions::default()
                };
                stepscope::start_flight(&options).unwrap();
                record_until_line(128, || sleep_ms(1));
                drop(span!("last"));
                let report = stepscope::save_last(std::time::Duration::from_hours(1)).unwrap();
                println!(
                    "\nreport {} {} {:?}",
                    report.spans, report.dropped, report.warnings
                );
                stepscope::stop_flight().unwrap();
            }
            "strict" => strict(dir),
            "handler" => handler(dir),
            other => panic!("no case {other}"),
        }
    }
}

fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// Prints a line for the parent.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}")
        .and_then(|()| out.flush())
        .unwrap();
}

/// Prints "ready", records on two threads until it reads a line, prints the number of spans they
/// finished, and waits for another line. `burst`: number of spans that a thread records before it
/// pauses.
fn record_until_line(burst: u64, pause: fn()) {
    let done = std::sync::Arc::new(AtomicU32::new(0));
    let mut workers = Vec::new();
    for _ in 0..2 {
        let done = std::sync::Arc::clone(&done);
        workers.push(std::thread::spawn(move || {
            let mut count = 0_u64;
            while done.load(Ordering::Relaxed) == 0 {
                let _outer = span!("outer", n = count);
                drop(span!("inner"));
                count += 2;
                if count.is_multiple_of(burst) {
                    pause();
                }
            }
            pause();
            drop(span!("last"));
            count + 1
        }));
    }
    let read_line = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
    };
    print_line("ready");
    read_line();
    done.store(1, Ordering::Relaxed);
    let count: u64 = workers
        .into_iter()
        .map(|worker| worker.join().unwrap())
        .sum();
    print_line(&format!("count {count}"));
    read_line();
}

static HANDLED: AtomicU32 = AtomicU32::new(0);
/// Handlers that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// Forbids this thread every system call except `exit`: any other one kills it at once.
fn only_exit() {
    let filter = |code: u32, jt, k| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf: 0,
        k,
    };
    let exit = u32::try_from(libc::SYS_exit).unwrap();
    let mut program = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, exit),
        filter(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_KILL_THREAD,
        ),
        filter(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: affects only this thread; the program is valid while the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
    }
}

/// A thread that may not make system calls still records.
unsafe fn strict(dir: &Path) {
    static DONE: AtomicU32 = AtomicU32::new(0);
    start_trace(dir).unwrap();
    let worker = std::thread::Builder::new().name("strict".into());
    let _never_joined = worker.spawn(|| {
        let round = |n: i64| {
            let _step = stepscope::step(n);
            let _span = span!("strict", n = n, text = "a text");
            let _named = stepscope::Span::enter("named");
            stepscope::counter("counter", 1.0);
            stepscope::instant("instant");
        };
        round(0);
        let before = crate::allocations();
        only_exit();
        for n in 1..1_000 {
            round(n);
        }
        DONE.store(1 + crate::allocations() - before, Ordering::SeqCst);
        // SAFETY: ends this thread by the only permitted call.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    });
    let start = std::time::Instant::now();
    while DONE.load(Ordering::SeqCst) == 0 && start.elapsed().as_secs() < 30 {
        std::thread::yield_now();
    }
    assert_eq!(
        DONE.load(Ordering::SeqCst),
        1,
        "0: a system call; above 1: allocations"
    );
    let report = stop_trace().unwrap();
    assert_eq!(
        (report.spans, report.instants, report.samples),
        (3_000, 1_000, 1_000)
    );
    assert_eq!(report.dropped, 0);
}

extern "C" fn on_signal(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    let span = span!("handler");
    stepscope::counter("signals", 1.0);
    drop(span);
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// A timer interrupts a thread that records continuously.
unsafe fn handler(dir: &Path) {
    start_trace(dir).unwrap();
    // SAFETY: a handler that only annotates, and a timer of this process.
    unsafe {
        libc::signal(libc::SIGPROF, on_signal as *const () as libc::sighandler_t);
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: 200,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut());
    }
    let mut rounds = 0_u64;
    let start = std::time::Instant::now();
    while HANDLED.load(Ordering::Relaxed) < 40 && start.elapsed().as_secs() < 60 {
        for _ in 0..100 {
            let _outer = span!("outer");
            let _inner = span!("inner", n = rounds);
            rounds += 1;
        }
        stepscope::flush_trace();
    }
    // SAFETY: switches the timer off again.
    unsafe {
        let timer: libc::itimerval = std::mem::zeroed();
        libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut());
    }
    // A last signal may arrive on another thread while the recording stops.
    let ended = ENDED.load(Ordering::Relaxed) as usize;
    let report = stop_trace().unwrap();
    let probe = read(&report.path);
    let handled = names(&probe)
        .iter()
        .filter(|name| **name == "handler")
        .count();
    // Events of a handler that interrupted the recorder are dropped and counted.
    let dropped = usize::try_from(report.dropped).unwrap();
    let signals = HANDLED.load(Ordering::Relaxed) as usize;
    assert!(handled > 20, "{handled}");
    assert!(
        handled <= signals && handled + dropped >= ended,
        "{handled} {dropped} {ended} {signals}"
    );
    let count = |wanted: &str| {
        probe
            .slices
            .iter()
            .filter(|slice| slice.name == wanted)
            .count()
    };
    assert_eq!(count("outer") as u64, rounds);
    assert_eq!(count("inner") as u64, rounds);
    for slice in probe.slices.iter().filter(|slice| slice.name == "inner") {
        assert_eq!(probe.args(slice.args).len(), 1);
    }
}

fn check_work(dir: &Path, recovered: bool) {
    let found = files(dir);
    assert_eq!(found.len(), 1, "{found:?}");
    let probe = read(&found[0]);
    let count = |wanted: &str| {
        probe
            .slices
            .iter()
            .filter(|slice| slice.name == wanted)
            .count()
    };
    assert_eq!(
        (count("even"), count("odd"), count("other")),
        (500, 500, 1_000)
    );
    let unfinished: Vec<_> = probe
        .slices
        .iter()
        .filter(|slice| slice.flags & SliceFlags::UNFINISHED.0 != 0)
        .map(|slice| slice.name.as_str())
        .collect();
    assert!(unfinished.contains(&"open elsewhere"), "{unfinished:?}");
    if recovered {
        assert!(unfinished.contains(&"open here") && unfinished.contains(&"train"));
        let step = probe
            .slices
            .iter()
            .find(|slice| slice.name == "train")
            .unwrap();
        assert_eq!(step.step, Some(7));
        assert!(
            probe
                .facts
                .iter()
                .any(|fact| fact.0 == "stepscope.recovered")
        );
    }
    assert!(probe.tracks.iter().any(|track| track.name == "other"));
}

#[test]
fn killed_programs_lose_nothing_that_was_finished() {
    let _exclusive = exclusive();
    for case in ["kill", "segv", "_exit"] {
        let dir = tempfile::tempdir().unwrap();
        let (status, _) = run(case, dir.path());
        assert!(!status.success(), "{case}");
        assert!(files(dir.path()).is_empty(), "{case}");
        assert_eq!(pending(dir.path()).len(), 1, "{case}");
        let runs = recover_dir(dir.path(), None);
        assert_eq!(runs.len(), 1, "{case}");
        let file = runs[0].file.as_ref().unwrap();
        assert_eq!(files(dir.path()), std::slice::from_ref(file));
        assert_eq!((runs[0].spans, runs[0].unfinished), (2_003, 3), "{case}");
        check_work(dir.path(), true);
        assert!(pending(dir.path()).is_empty());
        assert!(recover_dir(dir.path(), None).is_empty());
    }
}

#[test]
fn a_program_that_forgets_to_stop_still_has_its_file() {
    let _exclusive = exclusive();
    for case in ["no stop", "exit", "panic"] {
        let dir = tempfile::tempdir().unwrap();
        let (status, text) = run(case, dir.path());
        assert_eq!(status.success(), case != "panic", "{text}");
        assert!(pending(dir.path()).is_empty(), "{case}");
        check_work(dir.path(), false);
    }
}

#[test]
fn a_kill_right_after_the_start_keeps_the_open_span() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    run("kill at once", dir.path());
    let runs = recover_dir(dir.path(), None);
    assert_eq!((runs[0].spans, runs[0].unfinished), (1, 1));
    assert_eq!(names(&read(runs[0].file.as_ref().unwrap())), ["only"]);
}

#[test]
fn kill_under_load_keeps_every_finished_span() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    run("kill under load", dir.path());
    let runs = recover_dir(dir.path(), None);
    assert_eq!((runs[0].spans, runs[0].dropped), (60_000, 0));
    let probe = read(runs[0].file.as_ref().unwrap());
    let mut seen: Vec<i64> = probe
        .slices
        .iter()
        .map(|slice| {
            let value = &probe.args(slice.args)[0].1;
            value[4..value.len() - 1].parse().unwrap()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..60_000).collect::<Vec<_>>());
}

#[test]
fn a_live_recording_is_not_touched() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn("live", dir.path());
    let stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap().contains("ready")));
    assert!(pending(dir.path()).is_empty());
    assert!(recover_dir(dir.path(), None).is_empty());
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait().unwrap();
    assert_eq!(recover_dir(dir.path(), None).len(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_recovered_into_the_cache() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let cache = tempfile::tempdir().unwrap();
    run("kill", dir.path());
    let journal = pending(dir.path()).remove(0);
    // Obstacles that also stop root: folders at the paths of the temporary file.
    let facts = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = facts.trim().replace(':', "_");
    let obstacles = obstruct(journal.parent().unwrap(), &host);
    assert!(recover_dir(dir.path(), None)[0].file.is_err());
    let first = recover_dir(dir.path(), Some(cache.path())).remove(0);
    assert!(first.in_cache && journal.exists());
    let path = first.file.unwrap();
    assert!(path.starts_with(cache.path()));
    let made = std::fs::metadata(&path).unwrap().modified().unwrap();
    let again = recover_dir(dir.path(), Some(cache.path())).remove(0);
    assert_eq!(again.file.unwrap(), path);
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), made);
    check_work(cache.path(), true);
    clear(&obstacles);
    assert!(!recover_dir(dir.path(), Some(cache.path()))[0].in_cache);
    assert!(!journal.exists());
}

#[test]
fn damage_to_a_journal_costs_only_what_was_damaged() {
    let _exclusive = exclusive();
    let whole = tempfile::tempdir().unwrap();
    run("kill", whole.path());
    let journal = pending(whole.path()).remove(0);
    let events = std::fs::read(journal.join("events")).unwrap();
    let rings = std::fs::read(journal.join("rings")).unwrap();
    let session = tempfile::tempdir().unwrap();
    let copy = session.path().join(".stepscope-journal-1-1");
    let write = |events: &[u8], rings: &[u8]| {
        std::fs::create_dir_all(&copy).unwrap();
        std::fs::write(copy.join("lock"), "").unwrap();
        std::fs::write(copy.join("events"), events).unwrap();
        std::fs::write(copy.join("rings"), rings).unwrap();
        let run = recover_dir(session.path(), None).remove(0);
        let file = run.file.unwrap();
        read(&file);
        std::fs::remove_file(&file).unwrap();
        run.spans
    };
    assert_eq!(write(&events, &rings), 2_003);
    assert!(write(&events, &[]) <= 2_003);
    assert!(write(&events[..events.len() / 2], &rings) > 0);
    let mut bad = events.clone();
    for at in (200..bad.len()).step_by(997) {
        bad[at] ^= 0x55;
    }
    write(&bad, &rings);
    let mut bad = rings.clone();
    for at in (0..bad.len()).step_by(1_009) {
        bad[at] ^= 0xff;
    }
    write(&events, &bad);
    write(&[], &[]);
}

#[test]
fn full_disk_never_raises_a_signal() {
    let _exclusive = exclusive();
    for case in ["no room", "no room for more"] {
        let dir = tempfile::tempdir().unwrap();
        let (status, text) = run(case, dir.path());
        assert!(status.success(), "{case}: {status} {text}");
        assert_eq!(files(dir.path()).len(), 1);
    }
}

#[test]
fn after_a_fork_both_sides_record() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let (status, text) = run("fork", dir.path());
    assert!(status.success(), "{text}");
    let found = files(dir.path());
    assert_eq!(found.len(), 2);
    let mut seen: Vec<Vec<String>> = found
        .iter()
        .map(|file| {
            let probe = read(file);
            let mut seen: Vec<String> = names(&probe).into_iter().map(str::to_owned).collect();
            seen.dedup();
            seen
        })
        .collect();
    seen.sort();
    assert_eq!(seen[0], ["child"]);
    assert_eq!(seen[1], ["parent", "parent before", "parent open"]);
}

#[test]
fn a_signal_handler_may_annotate() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let (status, text) = run("handler", dir.path());
    assert!(status.success(), "{text}");
}

#[test]
fn a_thread_with_its_buffer_makes_no_system_call_and_allocates_nothing() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let (status, text) = run("strict", dir.path());
    assert!(status.success(), "{text}");
}
