//! Tests of captures: recordings in memory that do not belong to the program.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stepscope::{
    Capture, ExportLimits, HostTracerLevel, SessionError, SessionOptions, StopReport, span,
    start_capture, start_trace, stop_trace,
};
use stepscope_formats::probe::Probe;
use stepscope_formats::xspace;
use stepscope_model::{ReadContext, SliceFlags};

use crate::{exclusive, files, names, wait_until};

/// Ends a capture and reads its output.
fn finish(capture: Capture, cut: &ExportLimits) -> (StopReport, Probe) {
    let mut bytes = Vec::new();
    let report = capture.finish(&mut bytes, cut).unwrap();
    assert_eq!(report.bytes, bytes.len() as u64);
    let mut probe = Probe::new();
    let bytes: stepscope_model::SharedBytes = Arc::new(bytes);
    xspace::read(&bytes, &ReadContext::default(), &mut probe).unwrap();
    (report, probe)
}

fn unix_ns() -> i64 {
    stepscope_model::clock::unix_now_ns()
}

#[test]
fn capture_is_an_xspace_of_events_during_it() {
    let _exclusive = exclusive();
    drop(span!("before"));
    let capture = start_capture(&SessionOptions::default()).unwrap();
    for n in 0..10_000 {
        let _step = stepscope::step(n);
        let _span = span!("inner", n = n);
        stepscope::counter!("loss", 0.5);
    }
    let open = span!("open");
    let progress = capture.progress();
    assert!(progress.events >= 30_000, "{progress:?}");
    assert!(progress.bytes >= 24 * 50_000, "{progress:?}");
    let (report, probe) = finish(capture, &ExportLimits::default());
    drop(open);
    assert!(report.path.as_os_str().is_empty());
    assert_eq!((report.spans, report.samples), (20_001, 10_000));
    assert_eq!((report.unfinished, report.dropped), (1, 0));
    assert_eq!(probe.slices.len(), 20_001);
    assert_eq!(
        probe.slices.iter().filter_map(|slice| slice.step).count(),
        10_000
    );
    assert!(!names(&probe).contains(&"before"));
    assert!(!stepscope::is_recording());
}

#[test]
fn the_program_and_a_capture_do_not_end_each_other() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let capture = start_capture(&SessionOptions::default()).unwrap();
    drop(span!("captured"));
    let second = start_capture(&SessionOptions::default()).unwrap_err();
    assert!(matches!(second, SessionError::CaptureRunning), "{second}");
    let refused = start_trace(dir.path()).unwrap_err();
    assert!(matches!(refused, SessionError::CaptureRunning), "{refused}");
    assert!(matches!(stop_trace(), Err(SessionError::NotYours)));
    assert!(matches!(
        stepscope::discard_trace(),
        Err(SessionError::NotYours)
    ));
    assert!(stepscope::is_recording());
    drop(span!("still captured"));
    let (_, probe) = finish(capture, &ExportLimits::default());
    assert_eq!(names(&probe), ["captured", "still captured"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    start_trace(dir.path()).unwrap();
    drop(span!("mine"));
    let refused = start_capture(&SessionOptions::default()).unwrap_err();
    let SessionError::TraceRunning { path } = &refused else {
        panic!("{refused}");
    };
    assert!(path.starts_with(dir.path()));
    drop(span!("also mine"));
    assert_eq!(stop_trace().unwrap().spans, 2);
    assert_eq!(files(dir.path()).len(), 1);
}

#[test]
fn dropped_capture_discards_its_recording() {
    let _exclusive = exclusive();
    drop(start_capture(&SessionOptions::default()).unwrap());
    assert!(!stepscope::is_recording());
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    stop_trace().unwrap();
}

#[test]
fn events_beyond_max_events_are_dropped_and_counted() {
    let _exclusive = exclusive();
    let capture = start_capture(&SessionOptions::default()).unwrap();
    let outer = span!("outer");
    for n in 0..100 {
        let _span = span!("work", n = n);
    }
    drop(outer);
    let cut = ExportLimits {
        max_events: Some(11),
        ..ExportLimits::default()
    };
    let (report, probe) = finish(capture, &cut);
    assert_eq!((report.spans, report.cut_events), (11, 90));
    assert_eq!(names(&probe)[0], "outer");
    let numbers: Vec<_> = probe
        .slices
        .iter()
        .filter(|slice| slice.name == "work")
        .map(|slice| probe.args(slice.args)[0].1.clone())
        .collect();
    let expected: Vec<_> = (0..10).map(|n| format!("Int({n})")).collect();
    assert_eq!(numbers, expected);
    let warning = &report.warnings[0];
    assert!(
        warning.contains("90 of 101") && warning.contains("11"),
        "{warning}"
    );
    let text = format!("{:?} {:?}", probe.diagnostics, probe.facts);
    assert!(text.contains("90 of 101"), "{text}");
}

#[test]
fn a_window_keeps_what_overlaps_it_whole() {
    let _exclusive = exclusive();
    let capture = start_capture(&SessionOptions::default()).unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(5));
    let across = span!("across the begin");
    drop(span!("too early"));
    pause();
    let from = unix_ns();
    pause();
    stepscope::instant("within");
    drop(across);
    let over = span!("across the end");
    pause();
    let until = unix_ns();
    pause();
    drop(over);
    drop(span!("too late"));
    stepscope::instant("too late");
    let cut = ExportLimits {
        from_unix_ns: Some(from),
        until_unix_ns: Some(until),
        ..ExportLimits::default()
    };
    let (report, probe) = finish(capture, &cut);
    assert_eq!(
        (report.spans, report.instants, report.cut_events),
        (2, 1, 0)
    );
    assert_eq!(names(&probe), ["across the begin", "across the end"]);
    assert_eq!(probe.instants[0].name, "within");
    let across = probe
        .slices
        .iter()
        .find(|slice| slice.name == "across the end");
    assert!(across.unwrap().dur_ps >= 9_000_000_000);
    assert_eq!(across.unwrap().flags & SliceFlags::UNFINISHED.0, 0);
}

#[test]
fn empty_capture_is_valid() {
    let _exclusive = exclusive();
    let options = SessionOptions {
        host_tracer_level: HostTracerLevel::Off,
        ..SessionOptions::default()
    };
    let capture = start_capture(&options).unwrap();
    drop(span!("not recorded"));
    let (report, probe) = finish(capture, &ExportLimits::default());
    assert_eq!((report.spans, report.instants, report.samples), (0, 0, 0));
    assert!(report.bytes > 0 && probe.slices.is_empty());
}

#[test]
fn failing_destination_is_an_error_and_the_program_continues() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let _exclusive = exclusive();
    let capture = start_capture(&SessionOptions::default()).unwrap();
    let error = capture
        .finish(&mut Full, &ExportLimits::default())
        .unwrap_err();
    assert!(
        matches!(error, SessionError::NotDelivered { .. }),
        "{error}"
    );
    drop(start_capture(&SessionOptions::default()).unwrap());
}

fn count(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string(Path::new("/proc/self/statm")).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_hundred_captures_leak_nothing() {
    let _exclusive = exclusive();
    let round = || {
        let capture = start_capture(&SessionOptions::default()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..10_000 {
                        let _span = span!("work", n = n);
                    }
                });
            }
        });
        let (report, _) = finish(capture, &ExportLimits::default());
        assert_eq!((report.spans, report.dropped), (20_000, 0));
    };
    for _ in 0..10 {
        round();
    }
    let now = || (count("/proc/self/fd"), count("/proc/self/task"));
    let before = now();
    let memory = resident_bytes();
    for _ in 0..100 {
        round();
    }
    // A joined thread may be visible a little longer, and other tests' threads wait for their turn.
    wait_until("descriptors and threads stay", || {
        now().0 <= before.0 && now().1 <= before.1
    });
    let grown = resident_bytes().saturating_sub(memory);
    assert!(grown < 16 << 20, "{grown} bytes more");
}
