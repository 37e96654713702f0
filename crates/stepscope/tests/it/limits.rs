//! Tests of recordings that reach their disk limit.

use std::path::Path;
use std::process::Command;

use stepscope::recover::recover_dir;
use stepscope::{AtLimit, SessionOptions, StopReport, span, start_trace_with, stop_trace};
use stepscope_model::SliceFlags;

use crate::{exclusive, files, read};

/// Steps of a recording, each with 1,000 spans in it: 7 MB of records.
const STEPS: i64 = 300;

fn options(at_limit: AtLimit) -> SessionOptions {
    SessionOptions {
        max_bytes: 1 << 20,
        // Makes the test independent of the disk.
        keep_free_bytes: Some(0),
        at_limit,
        ..SessionOptions::default()
    }
}

/// Records to the end, with one span around everything.
fn work() {
    let _whole = span!("whole", answer = 42);
    for step in 0..STEPS {
        let _step = stepscope::step(step);
        for _ in 0..1_000 {
            let _span = span!("inside");
        }
        // Flushes, so that the rings never fill up.
        stepscope::flush_trace();
    }
}

/// Returns the numbers of the steps in a file. Checks that each step has its number, and that
/// `whole`, if present, has its argument.
fn steps(path: &Path) -> Vec<i64> {
    let probe = read(path);
    let of = |name: &'static str| probe.slices.iter().filter(move |slice| slice.name == name);
    for whole in of("whole") {
        assert_eq!(probe.args(whole.args).len(), 1);
    }
    let mut steps: Vec<_> = of("train").map(|slice| slice.step.unwrap()).collect();
    steps.sort_unstable();
    steps
}

fn warning<'r>(report: &'r StopReport, pattern: &str) -> &'r str {
    let mut found = report.warnings.iter().filter(|text| text.contains(pattern));
    let warning = found
        .next()
        .unwrap_or_else(|| panic!("{:?}", report.warnings));
    assert!(found.next().is_none());
    // The file has the same warning.
    let probe = read(&report.path);
    assert!(format!("{:?} {:?}", probe.diagnostics, probe.facts).contains(warning));
    warning
}

#[test]
fn a_recording_at_its_size_limit_keeps_its_latest_part() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace_with(dir.path(), &options(AtLimit::KeepLatest)).unwrap();
    work();
    let report = stop_trace().unwrap();
    let total = STEPS.unsigned_abs() * 1_001 + 1;
    assert!(
        report.removed_events > total / 2,
        "{}",
        report.removed_events
    );
    assert_eq!(report.spans + report.removed_events, total);
    assert_eq!(report.dropped, 0);
    let warning = warning(&report, "limit of 1 MiB (max_bytes)");
    assert!(
        warning.contains(&format!("{} events", report.removed_events)),
        "{warning}"
    );
    assert!(
        !report
            .warnings
            .iter()
            .any(|text| text.contains("lost their arguments"))
    );
    let steps = steps(&report.path);
    assert_eq!(steps, (steps[0]..STEPS).collect::<Vec<_>>());
    let probe = read(&report.path);
    let whole = probe
        .slices
        .iter()
        .find(|slice| slice.name == "whole")
        .unwrap();
    let first = probe
        .slices
        .iter()
        .map(|slice| slice.start_ps)
        .min()
        .unwrap();
    assert_eq!(
        whole.start_ps, first,
        "it began before everything that is left"
    );
    assert!(probe.facts.iter().any(|fact| fact.0 == "removed_events"));
}

#[test]
fn a_recording_that_stops_at_its_limit_keeps_its_first_part() {
    let _exclusive = exclusive();
    for full_disk in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = SessionOptions {
            keep_free_bytes: Some(if full_disk { u64::MAX } else { 0 }),
            ..options(AtLimit::Stop)
        };
        start_trace_with(dir.path(), &options).unwrap();
        work();
        assert!(!stepscope::is_recording(), "it has stopped by itself");
        let report = stop_trace().unwrap();
        let which = if full_disk {
            "keep_free_bytes"
        } else {
            "max_bytes"
        };
        assert!(warning(&report, which).ends_with("what came later is not recorded"));
        assert_eq!(report.removed_events, 0);
        let steps = steps(&report.path);
        assert!(!steps.is_empty() && steps.len() < 100, "{}", steps.len());
        assert_eq!(steps, (0..=steps[steps.len() - 1]).collect::<Vec<_>>());
        // The next recording is not affected.
        start_trace_with(dir.path(), &SessionOptions::default()).unwrap();
        drop(span!("next"));
        assert_eq!(stop_trace().unwrap().spans, 1);
    }
}

#[test]
fn a_recording_on_a_full_disk_keeps_its_latest_part() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        keep_free_bytes: Some(u64::MAX),
        ..options(AtLimit::KeepLatest)
    };
    start_trace_with(dir.path(), &options).unwrap();
    work();
    let report = stop_trace().unwrap();
    warning(&report, "of the disk are free (keep_free_bytes)");
    assert_eq!(*steps(&report.path).last().unwrap(), STEPS - 1);
    assert!(
        report.removed_events > 0 && report.spans < 20_000,
        "{}",
        report.spans
    );
}

/// Runs the child's case of the test below. Does nothing without a folder.
#[test]
#[ignore = "the program of the other tests"]
fn child() {
    let Ok(dir) = std::env::var("STEPSCOPE_TEST_LIMIT_DIR") else {
        return;
    };
    start_trace_with(Path::new(&dir), &options(AtLimit::KeepLatest)).unwrap();
    work();
    std::mem::forget(span!("open"));
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

#[test]
fn kill_after_the_limit_leaves_the_latest_part_with_one_warning() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "limits::child", "--nocapture"])
        .env("STEPSCOPE_TEST_LIMIT_DIR", dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text
        .matches("limit of 1 MiB (max_bytes): recording continues")
        .count();
    assert_eq!(count, 1, "{text}");
    let runs = recover_dir(dir.path(), None);
    let file = runs[0].file.as_ref().unwrap();
    assert_eq!(files(dir.path()), std::slice::from_ref(file));
    let steps = steps(file);
    assert_eq!(steps, (steps[0]..STEPS).collect::<Vec<_>>());
    let probe = read(file);
    let is_open = |name: &str| {
        let mut slices = probe.slices.iter().filter(|slice| slice.name == name);
        slices.any(|slice| slice.flags & SliceFlags::UNFINISHED.0 != 0)
    };
    assert!(is_open("open"));
    let text = format!("{:?} {:?}", probe.diagnostics, probe.facts);
    assert!(text.contains("this is its latest part, and "), "{text}");
    assert!(!text.contains("damaged"), "{text}");
}
