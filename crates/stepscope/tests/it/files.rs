//! Tests of sessions, their folders and their failures.

use std::os::unix::fs::PermissionsExt;

use stepscope::{SessionError, SessionOptions, span, start_trace, start_trace_with, stop_trace};

use crate::{clear, exclusive, files, obstruct, read};

#[test]
fn starting_or_stopping_twice_is_an_error_value() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(stop_trace(), Err(SessionError::NotRecording)));
    start_trace(dir.path()).unwrap();
    let error = start_trace(dir.path()).unwrap_err();
    assert!(matches!(error, SessionError::AlreadyRecording { .. }));
    assert!(error.to_string().contains("stop_trace"), "{error}");
    stop_trace().unwrap();
    assert!(matches!(stop_trace(), Err(SessionError::NotRecording)));
    assert_eq!(files(dir.path()).len(), 1);
}

#[test]
fn sessions_within_one_second_have_separate_folders() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        start_trace(dir.path()).unwrap();
        drop(span!("x"));
        stop_trace().unwrap();
    }
    assert_eq!(files(dir.path()).len(), 3);
}

#[test]
fn a_session_name_may_be_shared_and_nothing_is_overwritten() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        session_name: Some("shared".into()),
        host_name: Some("h:1".into()),
        facts: vec![("rank".into(), "3".into())],
        ..SessionOptions::default()
    };
    for _ in 0..3 {
        start_trace_with(dir.path(), &options).unwrap();
        drop(span!("x"));
        stop_trace().unwrap();
    }
    let found = files(dir.path());
    assert_eq!(found.len(), 3);
    let probe = read(&found[0]);
    assert!(probe.facts.contains(&("rank".into(), "Int(3)".into())));
    if cfg!(target_os = "linux") {
        let is_memory = |fact: &&(String, String)| fact.0 == "host.memory_bytes";
        let memory = probe.facts.iter().find(is_memory).unwrap();
        let digits = memory.1.trim_matches(|c: char| !c.is_ascii_digit());
        assert!(digits.parse::<u64>().unwrap() > 1 << 20, "{memory:?}");
    }
    let first = dir.path().join("plugins/profile/shared/h_1.xplane.pb");
    assert!(found.contains(&first), "{found:?}");
}

#[test]
fn unusable_log_directory_is_reported_at_the_start() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for bad in [file.clone(), file.join("below")] {
        let error = start_trace(bad).unwrap_err();
        assert!(matches!(&error, SessionError::NotADirectory { path } if *path == file));
    }
    let bad = SessionOptions {
        session_name: Some("../up".into()),
        ..SessionOptions::default()
    };
    assert!(matches!(
        start_trace_with(dir.path(), &bad),
        Err(SessionError::BadName { .. })
    ));
    let error = start_trace("/proc/nowhere").unwrap_err();
    assert!(matches!(error, SessionError::NotWritable { .. }), "{error}");
    assert!(!stepscope::is_recording());
}

#[test]
fn unwritable_recording_is_retained_for_a_retry() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    for crash_safe in [true, false] {
        let options = SessionOptions {
            crash_safe,
            session_name: Some(format!("kept {crash_safe}")),
            host_name: Some("host".into()),
            ..SessionOptions::default()
        };
        start_trace_with(dir.path(), &options).unwrap();
        drop(span!("kept"));
        // Folders at the paths of the temporary file: they also stop root.
        let session = dir
            .path()
            .join(format!("plugins/profile/kept {crash_safe}"));
        let obstacles = obstruct(&session, "host");
        let error = stop_trace().unwrap_err();
        assert!(matches!(error, SessionError::NotWritten { .. }), "{error}");
        assert!(matches!(
            start_trace(dir.path()),
            Err(SessionError::Unwritten { .. })
        ));
        clear(&obstacles);
        let report = stop_trace().unwrap();
        assert_eq!(report.spans, 1);
        assert_eq!(read(&report.path).slices.len(), 1);
    }
}

#[test]
fn removed_log_directory_is_recreated() {
    let _exclusive = exclusive();
    for crash_safe in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let log_dir = dir.path().join("logs");
        let options = SessionOptions {
            crash_safe,
            ..SessionOptions::default()
        };
        start_trace_with(&log_dir, &options).unwrap();
        drop(span!("kept"));
        std::fs::remove_dir_all(&log_dir).unwrap();
        drop(span!("kept"));
        let report = stop_trace().unwrap();
        assert_eq!(report.spans, 2);
        assert_eq!(read(&report.path).slices.len(), 2);
        assert!(!stepscope::is_recording());
    }
}

#[test]
fn discarding_leaves_nothing() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    start_trace(dir.path()).unwrap();
    drop(span!("x"));
    stepscope::discard_trace().unwrap();
    assert!(matches!(stop_trace(), Err(SessionError::NotRecording)));
    let left = std::fs::read_dir(dir.path().join("plugins/profile")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_panic_within_trace_still_leaves_a_file() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let (value, report) = stepscope::trace(dir.path(), || {
        let _span = span!("calm");
        7
    })
    .unwrap();
    assert_eq!((value, report.spans), (7, 1));
    let result = std::panic::catch_unwind(|| {
        let _ = stepscope::trace(dir.path(), || {
            let _span = span!("panicking");
            panic!("as planned");
        });
    });
    assert!(result.is_err());
    assert!(!stepscope::is_recording());
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn a_read_only_log_directory_is_refused_at_the_start() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o555)).unwrap();
    // Root may write everywhere: this thread opens files as another user.
    let nobody = 65_534;
    // SAFETY: changes an attribute of this thread.
    let user = unsafe { libc::setfsuid(nobody) };
    let started = start_trace(dir.path());
    // SAFETY: changes an attribute of this thread.
    unsafe { libc::setfsuid(user.cast_unsigned()) };
    let error = started.unwrap_err();
    assert!(matches!(error, SessionError::NotWritable { .. }), "{error}");
}

#[cfg(feature = "chrome")]
#[test]
fn chrome_json_is_written_on_request_and_holds_the_same() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let options = SessionOptions {
        trace_json: true,
        host_name: Some("host".into()),
        ..SessionOptions::default()
    };
    start_trace_with(dir.path(), &options).unwrap();
    for n in 0..10 {
        let _step = stepscope::step(n);
        let _span = span!("work", n = n);
        stepscope::counter("loss", 0.5);
    }
    let report = stop_trace().unwrap();
    let path = report.trace_json.unwrap();
    assert_eq!(path, report.path.with_file_name("host.trace.json.gz"));
    let context = stepscope_model::ReadContext::default();
    let packed = std::fs::read(&path).unwrap();
    let text = stepscope_formats::gzip::inflate(&packed, &context.limits, &context);
    let bytes: stepscope_model::SharedBytes = std::sync::Arc::new(text.bytes);
    let mut json = stepscope_formats::probe::Probe::new();
    stepscope_formats::chrome_json::read(&bytes, &context, &mut json).unwrap();
    let xplane = read(&report.path);
    assert_eq!(crate::names(&json), crate::names(&xplane));
    let lengths = |probe: &stepscope_formats::probe::Probe| {
        let mut all: Vec<_> = probe
            .slices
            .iter()
            .map(|slice| (slice.start_ps, slice.dur_ps))
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(lengths(&json), lengths(&xplane));
    assert_eq!(json.samples.len(), 10);
}
