//! Tests of the flight recorder: the retained time, saves and their triggers, and the files of a
//! killed program.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stepscope::recover::{pending, recover_dir};
use stepscope::{
    ExportLimits, FlightOptions, HostTracerLevel, SessionError, SessionOptions, SlowStep,
    flight_status, save_last, span, start_capture, start_flight, start_trace, stop_flight,
    stop_trace, write_last,
};
use stepscope_formats::probe::Probe;
use stepscope_formats::xspace;
use stepscope_model::{ReadContext, SliceFlags};
use tempfile::tempdir;

use crate::{exclusive, files, flush, read, wait_until};

fn parse(bytes: Vec<u8>) -> Probe {
    let mut probe = Probe::new();
    let bytes: stepscope_model::SharedBytes = Arc::new(bytes);
    xspace::read(&bytes, &ReadContext::default(), &mut probe).unwrap();
    probe
}

fn in_memory() -> FlightOptions {
    FlightOptions {
        max_bytes: 2 << 20,
        ..FlightOptions::default()
    }
}

fn in_folder(dir: &Path) -> FlightOptions {
    FlightOptions {
        log_dir: Some(dir.to_owned()),
        ..in_memory()
    }
}

fn facts(probe: &Probe, key: &str) -> Vec<String> {
    let facts = probe.facts.iter().filter(|fact| fact.0 == key);
    facts.map(|fact| fact.1.clone()).collect()
}

fn count(probe: &Probe, name: &str) -> usize {
    let slices = probe.slices.iter();
    slices.filter(|slice| slice.name == name).count()
}

/// Returns the numbers of the spans `work`.
fn numbers(probe: &Probe) -> Vec<i64> {
    let work = || probe.slices.iter().filter(|slice| slice.name == "work");
    let numbers: Vec<_> = work()
        .filter_map(|slice| {
            let args = probe.args(slice.args);
            let (_, value) = args.first()?;
            value[4..value.len() - 1].parse().ok()
        })
        .collect();
    assert_eq!(numbers.len(), work().count());
    numbers
}

#[test]
fn last_seconds_are_saved_and_the_flight_recorder_continues() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    start_flight(&in_folder(dir.path())).unwrap();
    assert!(stepscope::is_recording());
    drop(span!("long ago"));
    std::thread::sleep(Duration::from_millis(1_200));
    let start = Instant::now();
    let outer = span!("open", why = "still");
    for n in 0..1_000 {
        let _step = stepscope::step(n);
    }
    // Covers the open span and not the one before it. A save that the machine stopped for a second
    // covers less: it is repeated.
    let (mut tries, mut saved) = (0_u64, None);
    wait_until("a save within a second", || {
        tries += 1;
        let last = start.elapsed() + Duration::from_secs(1);
        let report = save_last(last).unwrap();
        saved = (start.elapsed() <= last).then_some((last, report));
        saved.is_some()
    });
    let (last, report) = saved.unwrap();
    let probe = read(&report.path);
    assert_eq!(
        (report.spans, report.unfinished, report.dropped),
        (1_001, 1, 0)
    );
    assert_eq!(
        (count(&probe, "train"), count(&probe, "long ago")),
        (1_000, 0)
    );
    let open = probe
        .slices
        .iter()
        .find(|slice| slice.name == "open")
        .unwrap();
    assert_ne!(open.flags & SliceFlags::UNFINISHED.0, 0);
    assert_eq!(probe.args(open.args).len(), 1);
    assert!(
        open.start_ps >= 0 && u128::from(open.start_ps.cast_unsigned()) < last.as_nanos() * 1_000,
        "{}",
        open.start_ps
    );
    assert_eq!(facts(&probe, "recording"), ["Str(\"flight recorder\")"]);
    assert!(facts(&probe, "saved_because")[0].contains("asked"));
    assert!(
        report.crash_safe && report.warnings.is_empty(),
        "{:?}",
        report.warnings
    );

    drop(outer);
    drop(span!("later"));
    let mut bytes = Vec::new();
    let report = write_last(
        Duration::from_secs(30),
        &mut bytes,
        &ExportLimits::default(),
    )
    .unwrap();
    let probe = parse(bytes);
    assert_eq!((report.spans, report.unfinished), (1_003, 0));
    assert_eq!(count(&probe, "later") + count(&probe, "open"), 2);
    let cut = ExportLimits {
        max_events: Some(10),
        ..ExportLimits::default()
    };
    let mut bytes = Vec::new();
    let report = write_last(Duration::from_secs(30), &mut bytes, &cut).unwrap();
    assert_eq!((report.spans, report.cut_events), (10, 993));

    let status = flight_status().unwrap();
    assert_eq!((status.dropped, status.paused), (0, false));
    assert_eq!(status.saves, tries);
    assert!(status.covered >= Duration::from_millis(1_200) && status.bytes > 0);
    stop_flight().unwrap();
    assert!(!stepscope::is_recording() && flight_status().is_none());
    assert_eq!(files(dir.path()).len() as u64, tries);
    let left = std::fs::read_dir(dir.path().join("plugins/profile")).unwrap();
    let left = left.count() as u64;
    assert_eq!(left, tries, "the journal and its folder are gone");
}

#[test]
fn memory_limit_holds_and_missing_time_is_reported() {
    let _exclusive = exclusive();
    for dir in [None, Some(tempdir().unwrap())] {
        let options = match &dir {
            None => in_memory(),
            Some(dir) => in_folder(dir.path()),
        };
        start_flight(&options).unwrap();
        let name = "a name that was made before everything else was written over";
        drop(stepscope::Span::enter(name));
        for n in 0..200_000_i64 {
            let _span = span!("work", n = n);
            if n % 20_000 == 0 {
                flush();
            }
        }
        drop(stepscope::Span::enter(name));
        flush();
        let status = flight_status().unwrap();
        assert!(status.bytes <= 2 << 20, "{status:?}");
        let mut bytes = Vec::new();
        let report = write_last(
            Duration::from_secs(30),
            &mut bytes,
            &ExportLimits::default(),
        )
        .unwrap();
        let probe = parse(bytes);
        assert_eq!(report.dropped, 0);
        let numbers = numbers(&probe);
        let first = 200_000 - i64::try_from(numbers.len()).unwrap();
        assert_eq!(numbers, (first..200_000).collect::<Vec<_>>());
        assert_eq!(count(&probe, name), 1);
        let word = report
            .warnings
            .iter()
            .find(|word| word.contains("raise max_bytes"));
        assert!(
            word.is_some_and(|word| word.contains("30.0 s")),
            "{:?}",
            report.warnings
        );
        stop_flight().unwrap();
    }
}

/// Overwrites the circular journal several times.
fn write_over(mut also: impl FnMut()) {
    for n in 0..400_000_i64 {
        let _span = span!("work", n = n);
        if n % 20_000 == 0 {
            also();
            flush();
        }
    }
}

#[test]
fn arguments_of_open_spans_survive_overwriting() {
    let _exclusive = exclusive();
    start_flight(&in_memory()).unwrap();
    let named_by_text = "x".repeat(2_000);
    let open = span!(
        "open for long",
        epoch = 3,
        text = "of some length, in two records"
    );
    let text = stepscope::Span::enter(&named_by_text);
    write_over(|| {});
    drop(text);
    let mut bytes = Vec::new();
    let report = write_last(
        Duration::from_secs(30),
        &mut bytes,
        &ExportLimits::default(),
    )
    .unwrap();
    assert!(
        !report
            .warnings
            .iter()
            .any(|word| word.contains("lost their arguments"))
    );
    let check = |probe: &Probe| {
        assert_eq!(count(probe, &named_by_text), 1);
        let mut slices = probe.slices.iter();
        let open = slices.find(|slice| slice.name == "open for long").unwrap();
        let args = probe.args(open.args);
        assert_eq!(args.len(), 2, "{args:?}");
        assert!(
            args[0].1.contains('3') && args[1].1.contains("in two records"),
            "{args:?}"
        );
    };
    check(&parse(bytes));
    drop(open);
    write_over(|| {});
    stop_flight().unwrap();
}

#[cfg(feature = "tracing")]
#[test]
fn fields_of_tracing_spans_survive_overwriting() {
    let _exclusive = exclusive();
    start_flight(&in_memory()).unwrap();
    let recorder = stepscope::tracing::Recorder::new();
    tracing::subscriber::with_default(recorder, || {
        let long = tracing::info_span!("long lived", user = 77, later = tracing::field::Empty);
        let open = tracing::info_span!("always open", k = "v").entered();
        let mut rounds = 0;
        write_over(|| {
            long.in_scope(|| ());
            rounds += 1;
            if rounds == 5 {
                long.record("later", 88);
            }
        });
        let mut bytes = Vec::new();
        let report = write_last(
            Duration::from_secs(30),
            &mut bytes,
            &ExportLimits::default(),
        )
        .unwrap();
        assert!(
            !report
                .warnings
                .iter()
                .any(|word| word.contains("lost their arguments"))
        );
        let probe = parse(bytes);
        let args = |name: &str| -> Vec<Vec<(String, String)>> {
            let slices = probe.slices.iter().filter(|slice| slice.name == name);
            slices.map(|slice| probe.args(slice.args)).collect()
        };
        let all = args("long lived");
        assert!(!all.is_empty());
        for mut args in all {
            // Arguments copied twice may be in another order.
            args.sort_by_key(|(_, value)| value.clone());
            assert_eq!(args.len(), 2, "{args:?}");
            assert!(
                args[0].1.contains("77") && args[1].1.contains("88"),
                "{args:?}"
            );
        }
        assert_eq!(args("always open")[0].len(), 1);
        drop(open);
        let left = tracing::info_span!("left for long", user = 1);
        write_over(|| {});
        left.in_scope(|| ());
        let report = write_last(
            Duration::from_secs(30),
            &mut Vec::new(),
            &ExportLimits::default(),
        )
        .unwrap();
        let word = report
            .warnings
            .iter()
            .find(|word| word.contains("lost their arguments"));
        assert!(
            word.is_some_and(|word| word.starts_with("1 event")),
            "{:?}",
            report.warnings
        );
    });
    stop_flight().unwrap();
}

#[test]
fn memory_beyond_the_retained_time_is_reused() {
    let _exclusive = exclusive();
    let options = FlightOptions {
        keep_last: Duration::from_millis(5),
        max_bytes: 8 << 20,
        ..FlightOptions::default()
    };
    start_flight(&options).unwrap();
    // A segment is an eighth of the limit. A round fills more than one, all rounds more than the limit.
    for _ in 0..12 {
        for _ in 0..5 {
            for _ in 0..10_000 {
                let _span = span!("work");
            }
            flush();
        }
        // Before the next round, this one is older than the time to retain.
        std::thread::sleep(options.keep_last * 2);
    }
    let status = flight_status().unwrap();
    assert_eq!(status.dropped, 0);
    assert!(status.bytes <= 4 << 20, "{status:?}");
    assert_eq!(status.covered, options.keep_last);
    let everything = Duration::from_hours(1);
    let report = write_last(everything, &mut Vec::new(), &ExportLimits::default()).unwrap();
    assert!((40_000..200_000).contains(&report.spans), "{report:?}");
    stop_flight().unwrap();
}

#[test]
fn flight_recorder_pauses_for_the_program_and_serves_captures() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    start_flight(&in_memory()).unwrap();
    assert!(matches!(
        start_flight(&in_memory()),
        Err(SessionError::FlightRunning)
    ));
    assert!(matches!(stop_trace(), Err(SessionError::NotRecording)));
    drop(span!("before"));
    start_trace(dir.path()).unwrap();
    assert!(flight_status().unwrap().paused);
    assert!(matches!(
        save_last(Duration::from_secs(1)),
        Err(SessionError::FlightPaused)
    ));
    assert!(matches!(
        start_flight(&in_memory()),
        Err(SessionError::FlightRunning)
    ));
    drop(span!("traced"));
    assert_eq!(stop_trace().unwrap().spans, 1);
    assert!(!flight_status().unwrap().paused);

    drop(span!("before the capture"));
    let ends_within = span!("ends within");
    let capture = start_capture(&SessionOptions::default()).unwrap();
    assert!(matches!(
        start_capture(&SessionOptions::default()),
        Err(SessionError::CaptureRunning)
    ));
    assert!(matches!(
        start_trace(dir.path()),
        Err(SessionError::CaptureRunning)
    ));
    assert!(matches!(stop_trace(), Err(SessionError::NotYours)));
    assert!(matches!(stop_flight(), Err(SessionError::CaptureRunning)));
    drop(ends_within);
    // More than the circular journal's size: it must retain everything for the capture.
    for n in 0..100_000_i64 {
        let _span = span!("captured", n = n);
        if n % 20_000 == 0 {
            flush();
        }
    }
    assert!(capture.progress().events >= 100_000);
    let mut bytes = Vec::new();
    let report = capture
        .finish(&mut bytes, &ExportLimits::default())
        .unwrap();
    assert_eq!((report.spans, report.dropped), (100_001, 0), "{report:?}");
    let probe = parse(bytes);
    assert_eq!(
        (count(&probe, "captured"), count(&probe, "ends within")),
        (100_000, 1)
    );

    drop(start_capture(&SessionOptions::default()).unwrap());
    let off = SessionOptions {
        host_tracer_level: HostTracerLevel::Off,
        ..SessionOptions::default()
    };
    let capture = start_capture(&off).unwrap();
    drop(span!("not asked for"));
    let mut bytes = Vec::new();
    let report = capture
        .finish(&mut bytes, &ExportLimits::default())
        .unwrap();
    assert_eq!(report.spans, 0);
    assert!(parse(bytes).slices.is_empty());
    let verbose = SessionOptions {
        host_tracer_level: HostTracerLevel::Verbose,
        ..SessionOptions::default()
    };
    let capture = start_capture(&verbose).unwrap();
    let report = capture
        .finish(&mut Vec::new(), &ExportLimits::default())
        .unwrap();
    assert!(
        report.warnings[0].contains("host_tracer_level"),
        "{:?}",
        report.warnings
    );

    drop(span!("after"));
    let report = write_last(
        Duration::from_secs(30),
        &mut Vec::new(),
        &ExportLimits::default(),
    )
    .unwrap();
    assert!(report.spans > 0 && stepscope::is_recording());
    stop_flight().unwrap();
    assert!(matches!(stop_flight(), Err(SessionError::NoFlight)));
    assert!(matches!(
        save_last(Duration::from_secs(1)),
        Err(SessionError::NoFlight)
    ));
}

#[test]
fn invalid_options_are_refused() {
    let _exclusive = exclusive();
    let with = |change: fn(&mut FlightOptions)| {
        let mut options = in_memory();
        change(&mut options);
        let error = start_flight(&options).unwrap_err();
        assert!(matches!(error, SessionError::BadFlight { .. }), "{error}");
        assert!(flight_status().is_none() && !stepscope::is_recording());
    };
    with(|options| options.keep_last = Duration::ZERO);
    with(|options| options.max_bytes = 1_000);
    with(|options| options.host_tracer_level = HostTracerLevel::Off);
    with(|options| options.save_on_signal = Some(libc::SIGUSR2));
    with(|options| options.slow_step = Some(SlowStep::default()));
    with(|options| {
        options.log_dir = Some(std::env::temp_dir());
        options.save_on_signal = Some(libc::SIGKILL);
    });
    start_flight(&in_memory()).unwrap();
    let error = save_last(Duration::from_secs(1)).unwrap_err();
    assert!(error.to_string().contains("log_dir"), "{error}");
    stop_flight().unwrap();
}

static CHAINED: AtomicU32 = AtomicU32::new(0);

extern "C" fn chained(_: libc::c_int) {
    CHAINED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn signal_saves_and_the_previous_handler_is_called() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    // SAFETY: a handler that counts.
    unsafe { libc::signal(libc::SIGUSR2, chained as *const () as libc::sighandler_t) };
    let options = FlightOptions {
        save_on_signal: Some(libc::SIGUSR2),
        signal_at_most_every: Duration::from_hours(1),
        ..in_folder(dir.path())
    };
    start_flight(&options).unwrap();
    drop(span!("before the signal"));
    let send = || {
        // SAFETY: sends the signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR2) };
    };
    send();
    wait_until("a save", || flight_status().unwrap().saves == 1);
    send();
    wait_until("the handler", || CHAINED.load(Ordering::SeqCst) == 2);
    // The drain thread has seen the signal.
    flush();
    assert_eq!(
        flight_status().unwrap().saves,
        1,
        "not more often than allowed"
    );
    stop_flight().unwrap();
    send();
    wait_until("the handler, alone", || CHAINED.load(Ordering::SeqCst) == 3);
    // SAFETY: restores the default action.
    unsafe { libc::signal(libc::SIGUSR2, libc::SIG_DFL) };
    let found = files(dir.path());
    assert_eq!(found.len(), 1);
    let probe = read(&found[0]);
    assert_eq!(count(&probe, "before the signal"), 1);
    assert!(facts(&probe, "saved_because")[0].contains("signal"));
}

#[test]
fn slow_step_is_saved_whole() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    let options = FlightOptions {
        slow_step: Some(SlowStep {
            times_median: 20.0,
            last: Duration::from_millis(1),
            after_steps: 20,
            at_most_every: Duration::from_hours(1),
        }),
        ..in_folder(dir.path())
    };
    let round = |number: i64, duration: Duration| {
        let start = Instant::now();
        let step = stepscope::step(number);
        let inner = span!("inner");
        std::thread::sleep(duration);
        drop((inner, step));
        start.elapsed()
    };
    start_flight(&options).unwrap();
    // None of these can be slow: there are too few for a median. They take microseconds, so that a multiple of their
    // median is short on a busy machine, too.
    let mut durations: Vec<_> = (0..20).map(|n| round(n, Duration::ZERO)).collect();
    flush();
    assert_eq!(flight_status().unwrap().saves, 0);
    // Slow, however long a busy machine made the others.
    durations.sort_unstable();
    let slow = (durations[10] * 25).max(Duration::from_millis(20));
    round(812, slow);
    wait_until("a save", || flight_status().unwrap().saves == 1);
    round(813, slow);
    // The drain thread has seen the step.
    flush();
    assert_eq!(
        flight_status().unwrap().saves,
        1,
        "not more often than allowed"
    );
    stop_flight().unwrap();
    let found = files(dir.path());
    assert_eq!(found.len(), 1);
    let probe = read(&found[0]);
    let because = &facts(&probe, "saved_because")[0];
    assert!(
        because.contains("step 812 took ") && because.contains("× the median"),
        "{because}"
    );
    let saved = probe
        .slices
        .iter()
        .find(|slice| slice.step == Some(812))
        .unwrap();
    assert!(u128::from(saved.dur_ps.cast_unsigned()) >= slow.as_nanos() * 1_000);
    assert_eq!(count(&probe, "inner"), 1, "the others were before");
}

#[test]
fn step_watch_works_with_and_without_a_recording() {
    let _exclusive = exclusive();
    // The minimum and the maximum duration of a step, measured inside and around it.
    let round = |ms: u64| {
        let around = Instant::now();
        let step = stepscope::step(1);
        let within = Instant::now();
        std::thread::sleep(Duration::from_millis(ms));
        let least = within.elapsed();
        drop(step);
        (least, around.elapsed())
    };
    round(1);
    let watch = stepscope::StepWatch::start();
    assert_eq!(watch.times(), stepscope::StepTimes::default());
    let first = round(5);
    let second = stepscope::StepWatch::start();
    let around = Instant::now();
    let across = stepscope::step_named("test", 7);
    let within = Instant::now();
    assert!(!across.is_recording());
    let capture = start_capture(&SessionOptions::default()).unwrap();
    round(20);
    drop(span!("no step"));
    let open = stepscope::step(3);
    assert!(open.is_recording());
    assert_eq!(watch.times().count, 2);
    let report = capture
        .finish(&mut Vec::new(), &ExportLimits::default())
        .unwrap();
    assert_eq!((report.spans, report.unfinished), (3, 1));
    drop(open);
    let inside = within.elapsed();
    drop(across);
    let last = (inside, around.elapsed());
    let times = watch.times();
    assert_eq!((times.count, second.times().count), (4, 3));
    assert!(
        times.max >= times.mean && times.mean >= times.min,
        "{times:?}"
    );
    // The two clocks are converted to each other several times.
    let slack = Duration::from_millis(1);
    let is_between = |time: Duration, (least, most): (Duration, Duration)| {
        time + slack >= least && time <= most + slack
    };
    assert!(is_between(times.last, last), "{times:?}, not {last:?}");
    let longest = (first.0.max(last.0), first.1.max(last.1));
    assert!(is_between(times.max, longest), "{times:?}, not {longest:?}");
    assert!(times.min <= first.1 + slack, "{times:?}, {first:?}");
    drop((watch, second));
    assert!(!stepscope::step(1).is_recording());
    let again = stepscope::StepWatch::start();
    assert_eq!(again.times().count, 0);
}

fn run(case: &str, dir: &Path) -> std::process::ExitStatus {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--test-threads=1",
            "--ignored",
            "--exact",
            "flight::child",
            "--nocapture",
        ])
        .env("STEPSCOPE_FLIGHT_CHILD", case)
        .env("STEPSCOPE_TEST_DIR", dir)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() != Some(101) || case == "panic",
        "{case}: {text}"
    );
    output.status
}

/// Runs the child's case. Does nothing without one.
#[test]
#[ignore = "the program of the other tests"]
fn child() {
    let Ok(case) = std::env::var("STEPSCOPE_FLIGHT_CHILD") else {
        return;
    };
    let dir = std::env::var("STEPSCOPE_TEST_DIR").unwrap();
    let dir = Path::new(&dir);
    start_flight(&in_folder(dir)).unwrap();
    for n in 0..200_000_i64 {
        let _span = span!("work", n = n);
        if n % 20_000 == 0 {
            flush();
        }
    }
    let _open = span!("open");
    // SAFETY: ends this process.
    unsafe {
        match case.as_str() {
            "kill" => libc::kill(libc::getpid(), libc::SIGKILL),
            "segv" => {
                std::ptr::without_provenance_mut::<i32>(16).write_volatile(1);
                0
            }
            "exit" => libc::exit(0),
            "failed" => libc::exit(3),
            "panic" => panic!("as planned"),
            "fork" => {
                let child = libc::fork();
                if child == 0 {
                    let quiet = !stepscope::is_recording() && flight_status().is_none();
                    let own = start_flight(&in_memory()).is_ok();
                    drop(span!("child"));
                    let report = write_last(
                        Duration::from_secs(1),
                        &mut Vec::new(),
                        &ExportLimits::default(),
                    );
                    let fine = report.is_ok_and(|report| report.spans == 1);
                    libc::_exit(i32::from(!(quiet && own && fine)));
                }
                let mut status = 0;
                libc::waitpid(child, &raw mut status, 0);
                assert_eq!(status, 0);
                drop(span!("parent goes on"));
                let report = save_last(Duration::from_secs(5)).unwrap();
                assert_eq!(count(&read(&report.path), "parent goes on"), 1);
                stop_flight().unwrap();
                0
            }
            other => panic!("no case {other}"),
        }
    };
}

#[test]
fn a_killed_program_leaves_its_last_seconds() {
    let _exclusive = exclusive();
    for case in ["kill", "segv", "failed", "panic"] {
        let dir = tempdir().unwrap();
        assert!(!run(case, dir.path()).success(), "{case}");
        assert!(files(dir.path()).is_empty());
        let journals = pending(dir.path());
        assert_eq!(journals.len(), 1, "{case}");
        let journal = &journals[0];
        let bytes = std::fs::metadata(journal.join("events")).unwrap().len();
        assert!(bytes <= 2 << 20, "{case}: {bytes}");
        let runs = recover_dir(dir.path(), None);
        let probe = read(runs[0].file.as_ref().unwrap());
        assert!(!journal.exists());
        let numbers = numbers(&probe);
        let first = 200_000 - i64::try_from(numbers.len()).unwrap();
        assert!(numbers.len() > 20_000);
        assert_eq!(numbers, (first..200_000).collect::<Vec<_>>(), "{case}");
        let unfinished = u64::from(case != "panic");
        assert_eq!(
            (count(&probe, "open"), runs[0].unfinished),
            (1, unfinished),
            "{case}"
        );
        assert_eq!(facts(&probe, "recording"), ["Str(\"flight recorder\")"]);
        assert!(!facts(&probe, "stepscope.recovered").is_empty());
        let text = format!("{:?} {:?}", probe.diagnostics, probe.facts);
        assert!(text.contains("its last seconds, at most 30"), "{text}");
    }
}

#[test]
fn a_program_that_ends_well_leaves_nothing() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    assert!(run("exit", dir.path()).success());
    assert!(pending(dir.path()).is_empty() && files(dir.path()).is_empty());
}

#[test]
fn a_fork_leaves_the_flight_recorder_to_the_parent() {
    let _exclusive = exclusive();
    let dir = tempdir().unwrap();
    assert!(run("fork", dir.path()).success());
}
