//! Profile and Terminate.

use stepscope_remote::proto::{ProfileRequest, TerminateRequest};
use tonic::Code;

use super::program::{LONG_MS, PATIENCE, Program, files, now_ns, request, stock_request};
use super::{count, read, talk};

#[test]
fn a_capture_comes_back_as_xspace_and_leaves_no_file() {
    let program = Program::start(&[]);
    let answer = talk(program.capture_steps(request(1)));
    assert!(!answer.empty_trace && answer.tool_data.is_empty());
    let probe = read(&answer.xspace);
    for name in [
        "data_prep",
        "forward",
        "loss_backward",
        "optimizer_step",
        "read_batch",
    ] {
        assert!(count(&probe, name) > 0, "{name}");
    }
    assert!(count(&probe, "train") > 0);
}

#[test]
fn stock_clients_get_a_file_of_the_directory_that_was_allowed() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&["--allow", home.path().to_str().unwrap()]);
    let wanted = stock_request(&program, home.path(), 100);
    let answer = talk(program.capture_steps(wanted));
    assert!(!answer.empty_trace && answer.tool_data.is_empty() && answer.xspace.is_empty());
    let files = files(home.path());
    let name = format!("127.0.0.1_{}.xplane.pb", program.port());
    let folder = home.path().join("plugins/profile/2026_11_21_10_00_00");
    assert_eq!(files, [folder.join(name)]);
    assert!(count(&read(&std::fs::read(&files[0]).unwrap()), "forward") > 0);
}

#[test]
fn stock_clients_get_the_data_when_nothing_is_allowed() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&[]);
    let wanted = stock_request(&program, home.path(), 100);
    let answer = talk(program.capture_steps(wanted));
    assert!(!answer.empty_trace && answer.xspace.is_empty());
    assert_eq!(answer.tool_data.len(), 1);
    assert_eq!(answer.tool_data[0].name, "xplane.pb");
    assert!(count(&read(&answer.tool_data[0].data), "forward") > 0);
    assert!(files(home.path()).is_empty());
}

#[test]
fn the_start_is_waited_for() {
    let program = Program::start(&[]);
    // On a busy machine a short time may pass before the request arrives, or without a step.
    let (mut ahead_ms, mut duration_ms) = (400, 1_000);
    loop {
        let begin_ns = now_ns() + ahead_ms * 1_000_000;
        let mut wanted = stock_request(&program, program.dir.path(), duration_ms);
        wanted.opts.as_mut().unwrap().start_timestamp_ns = begin_ns;
        wanted.emit_xspace = true;
        let (is_early, answer) = talk(async {
            let mut client = program.client().await;
            let capture = tokio::spawn(async move { client.profile(wanted).await });
            let is_early = program.sees_capture(&capture).await && now_ns() < begin_ns;
            (is_early, capture.await.unwrap().unwrap().into_inner())
        });
        assert!(now_ns() >= begin_ns + duration_ms * 1_000_000);
        let probe = read(&answer.xspace);
        let starts = probe.slices.iter().filter(|slice| slice.name == "forward");
        let earliest = starts.map(|slice| slice.start_ps).min();
        if let Some(since_ps) = earliest.filter(|_| is_early) {
            let first_ns = probe.epoch.unwrap().unix_ns.unwrap() + since_ps / 1_000;
            assert!(first_ns >= begin_ns.cast_signed(), "{first_ns} {begin_ns}");
            break;
        }
        ahead_ms *= 2;
        duration_ms *= 2;
        assert!(duration_ms < LONG_MS, "{is_early} {earliest:?}");
    }
}

#[test]
fn terminate_ends_it_early_with_the_data() {
    let program = Program::start(&[]);
    talk(async {
        let mut client = program.client().await;
        let mut other = client.clone();
        let wanted = ProfileRequest {
            session_id: "long".to_owned(),
            ..request(LONG_MS)
        };
        let capture = tokio::spawn(async move { client.profile(wanted).await });
        program.until_captured().await;
        program.until_steps(2).await;
        let end = |session: &str| TerminateRequest {
            session_id: session.to_owned(),
        };
        let unknown = other.terminate(end("other")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        assert!(
            unknown.message().contains("\"long\""),
            "{}",
            unknown.message()
        );
        other.terminate(end("long")).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, capture).await;
        let answer = ended.unwrap().unwrap().unwrap().into_inner();
        assert!(count(&read(&answer.xspace), "forward") > 0);
        let nothing = other.terminate(end("")).await.unwrap_err();
        assert_eq!(nothing.code(), Code::NotFound);
    });
}

#[test]
fn second_capture_at_once_is_refused() {
    let program = Program::start(&["--until-eof"]);
    talk(async {
        let mut client = program.client().await;
        let mut other = client.clone();
        let capture = tokio::spawn(async move { client.profile(request(LONG_MS)).await });
        program.until_captured().await;
        let refused = other.profile(request(100)).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        assert!(
            refused.message().contains("try again then"),
            "{}",
            refused.message()
        );
        program.until_steps(2).await;
        other.terminate(TerminateRequest::default()).await.unwrap();
        let answer = capture.await.unwrap().unwrap().into_inner();
        assert!(count(&read(&answer.xspace), "forward") > 0);
        assert!(other.profile(request(50)).await.is_ok());
    });
    program.finish().assert_undisturbed();
}

#[test]
fn a_program_that_records_itself_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&["--until-eof", "--trace", home.path().to_str().unwrap()]);
    talk(async {
        let refused = program
            .client()
            .await
            .profile(request(100))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(
            refused.message().contains("stop_trace"),
            "{}",
            refused.message()
        );
    });
    let finished = program.finish();
    let trace = std::fs::read(finished.printed("trace")).unwrap();
    let steps: usize = finished.printed("steps").parse().unwrap();
    assert_eq!(count(&read(&trace), "forward"), steps);
    finished.assert_undisturbed();
}

#[test]
fn nothing_is_written_outside() {
    let home = tempfile::tempdir().unwrap();
    let allowed = home.path().join("allowed");
    let outside = home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let program = Program::start(&["--allow", allowed.to_str().unwrap()]);
    std::os::unix::fs::symlink(&outside, allowed.join("link")).unwrap();
    talk(async {
        let mut client = program.client().await;
        for root in [
            outside.clone(),
            allowed.join("../outside"),
            allowed.join("link"),
            allowed.join("link/deeper"),
            "relative".into(),
            "gs://bucket/logs".into(),
            "/proc/self/cwd".into(),
        ] {
            let mut wanted = stock_request(&program, home.path(), 20);
            root.to_str()
                .unwrap()
                .clone_into(&mut wanted.repository_root);
            // An empty capture is written nowhere.
            let answer = program.capture_steps(wanted).await;
            assert!(!answer.empty_trace);
            assert_eq!(answer.tool_data.len(), 1, "{}", root.display());
        }
        for name in ["../x", "a/b", "..", ".hidden", "nul\0"] {
            let mut wanted = stock_request(&program, &allowed, 20);
            name.clone_into(&mut wanted.session_id);
            let refused = client.profile(wanted).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{name}");
        }
    });
    assert!(
        files(home.path()).iter().all(|path| path.ends_with("link")),
        "{:?}",
        files(home.path())
    );
}

#[test]
fn the_host_can_be_named() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&["--allow", home.path().to_str().unwrap()]);
    talk(async {
        let mut wanted = stock_request(&program, home.path(), 50);
        wanted.opts.as_mut().unwrap().override_hostname = "worker-3".to_owned();
        for _ in 0..2 {
            let answer = program.capture_steps(wanted.clone()).await;
            assert!(!answer.empty_trace);
        }
    });
    let files = files(home.path());
    let names: Vec<_> = files
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["worker-3.xplane.pb", "worker-3_2.xplane.pb"]);
    let text = String::from_utf8_lossy(&std::fs::read(&files[0]).unwrap()).into_owned();
    assert!(text.contains("worker-3"));
}

#[test]
fn captures_that_wait_for_their_start_can_be_ended() {
    let program = Program::start(&[]);
    talk(async {
        let mut wanted = stock_request(&program, program.dir.path(), 100);
        wanted.opts.as_mut().unwrap().start_timestamp_ns = now_ns() + 600_000_000_000;
        let mut client = program.client().await;
        let mut other = client.clone();
        let capture = tokio::spawn(async move { client.profile(wanted).await });
        program.until_captured().await;
        other.terminate(TerminateRequest::default()).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, capture).await;
        ended.unwrap().unwrap().unwrap();
    });
}
