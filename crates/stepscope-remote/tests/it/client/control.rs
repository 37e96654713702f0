//! Captures that somebody ends.

use std::time::{Duration, Instant};

use stepscope_remote::{
    CaptureControl, CaptureEvent, CaptureReport, CaptureRequest, CaptureStage, Interval,
    capture_with,
};

use super::fake::{Ends, Fake};
use super::{captured, failure, names, request, xspace};

/// An hour, unless somebody ends it.
fn long(addresses: &[&str], logs: &std::path::Path) -> CaptureRequest {
    CaptureRequest {
        interval: Interval::For(Duration::from_hours(1)),
        ..request(addresses, logs)
    }
}

/// Captures, and does something at the first event of a kind.
fn with(
    request: &CaptureRequest,
    at: impl Fn(&CaptureEvent) -> bool + Send + Sync,
    what: impl Fn(&CaptureControl) + Send + Sync,
) -> CaptureReport {
    let control = CaptureControl::new();
    let done = std::sync::Once::new();
    let report = capture_with(request, &control, &|event| {
        if at(&event) {
            done.call_once(|| what(&control));
        }
    });
    assert!(done.is_completed(), "the event has come");
    report.unwrap()
}

fn is_recording(event: &CaptureEvent) -> bool {
    matches!(event, CaptureEvent::Recording { .. })
}

#[test]
fn ending_early_keeps_the_data_of_every_host() {
    let servers = [
        Fake::sends(xspace(1)).start(),
        Fake::sends(xspace(2)).start(),
    ];
    let logs = tempfile::tempdir().unwrap();
    let addresses = servers.each_ref().map(|server| server.address.as_str());
    let begun = Instant::now();
    let report = with(
        &long(&addresses, logs.path()),
        is_recording,
        CaptureControl::end_early,
    );
    assert!(report.all_ok(), "{report:?}");
    assert!(begun.elapsed() < Duration::from_mins(10));
    for server in &servers {
        assert_eq!(
            *server.seen.terminated.lock().unwrap(),
            [report.session.as_str()]
        );
    }
    assert_eq!(names(&report.folder).len(), 2);
}

#[test]
fn ending_early_during_the_delay_is_fine() {
    let server = Fake::sends(xspace(1)).ends(Ends::WhenTold).start();
    let logs = tempfile::tempdir().unwrap();
    let asked = CaptureRequest {
        delay: Duration::from_mins(30),
        ..long(&[&server.address], logs.path())
    };
    let waiting = |event: &CaptureEvent| matches!(event, CaptureEvent::Waiting { .. });
    // The question must have arrived before the fake can be told to end.
    let arrived =
        |event: &CaptureEvent| waiting(event) && !server.seen.profiles.lock().unwrap().is_empty();
    let report = with(&asked, arrived, CaptureControl::end_early);
    assert_eq!(captured(&report).events, 1);
}

#[test]
fn giving_up_keeps_nothing_and_tells_the_program() {
    let server = Fake::sends(xspace(1)).start();
    let logs = tempfile::tempdir().unwrap();
    let report = with(
        &long(&[&server.address], logs.path()),
        is_recording,
        CaptureControl::abandon,
    );
    assert_eq!(failure(&report).stage, CaptureStage::Cancelled);
    assert_eq!(names(logs.path()), [""; 0]);
    let terminated = server.seen.terminated.lock().unwrap();
    assert_eq!(*terminated, [report.session.as_str()]);
}

#[test]
fn a_host_that_does_not_end_can_be_given_up() {
    let server = Fake::sends(xspace(1)).ends(Ends::Never).start();
    let logs = tempfile::tempdir().unwrap();
    let asked = long(&[&server.address], logs.path());
    let control = CaptureControl::new();
    let report = capture_with(&asked, &control, &|event| match event {
        CaptureEvent::Recording { .. } => control.end_early(),
        CaptureEvent::Collecting { .. } => control.abandon(),
        _ => {}
    });
    assert_eq!(failure(&report.unwrap()).stage, CaptureStage::Cancelled);
}

#[test]
fn captures_ended_before_their_start_record_nothing() {
    let server = Fake::sends(xspace(1)).start();
    let logs = tempfile::tempdir().unwrap();
    for end in [CaptureControl::end_early, CaptureControl::abandon] {
        let control = CaptureControl::new();
        end(&control);
        let asked = long(&[&server.address], logs.path());
        let report = capture_with(&asked, &control, &|_| {}).unwrap();
        assert_eq!(failure(&report).stage, CaptureStage::Cancelled);
    }
    assert!(server.seen.profiles.lock().unwrap().is_empty());
    assert_eq!(names(logs.path()), [""; 0]);
}

#[test]
fn ending_early_ends_the_further_attempts() {
    let server = Fake::new(|_| Err(tonic::Status::already_exists(""))).start();
    let logs = tempfile::tempdir().unwrap();
    let asked = CaptureRequest {
        retries: 1_000,
        ..request(&[&server.address], logs.path())
    };
    let retrying = |event: &CaptureEvent| matches!(event, CaptureEvent::Retrying { .. });
    let report = with(&asked, retrying, CaptureControl::end_early);
    assert_eq!(failure(&report).stage, CaptureStage::Busy);
    assert_eq!(server.seen.profiles.lock().unwrap().len(), 1);
}

#[test]
fn an_empty_host_whose_further_attempts_are_given_up_recorded_nothing() {
    let server = Fake::sends(super::message(1, &[])).start();
    let logs = tempfile::tempdir().unwrap();
    let asked = CaptureRequest {
        retries: 1_000,
        ..request(&[&server.address], logs.path())
    };
    let retrying = |event: &CaptureEvent| matches!(event, CaptureEvent::Retrying { .. });
    let report = with(&asked, retrying, CaptureControl::end_early);
    assert_eq!(failure(&report).stage, CaptureStage::WroteNothing);
    assert_eq!(names(logs.path()), [""; 0]);
}
