//! Profile and Terminate.

use std::time::{Duration, Instant};

use stepscope_remote::proto::{ProfileRequest, TerminateRequest};
use tonic::Code;

use super::program::{Program, files, now_ns, request, stock_request, undisturbed_checksum};
use super::{count, read, talk};

#[test]
fn a_capture_comes_back_as_xspace_and_leaves_no_file() {
    let program = Program::start(&[]);
    let answer = talk(async {
        let wanted = request(200);
        program
            .client()
            .await
            .profile(wanted)
            .await
            .unwrap()
            .into_inner()
    });
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
    let answer = talk(async {
        let wanted = stock_request(&program, home.path(), 100);
        program
            .client()
            .await
            .profile(wanted)
            .await
            .unwrap()
            .into_inner()
    });
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
    let answer = talk(async {
        let wanted = stock_request(&program, home.path(), 100);
        program
            .client()
            .await
            .profile(wanted)
            .await
            .unwrap()
            .into_inner()
    });
    assert!(!answer.empty_trace && answer.xspace.is_empty());
    assert_eq!(answer.tool_data.len(), 1);
    assert_eq!(answer.tool_data[0].name, "xplane.pb");
    assert!(count(&read(&answer.tool_data[0].data), "forward") > 0);
    assert!(files(home.path()).is_empty());
}

#[test]
fn the_start_is_waited_for() {
    let program = Program::start(&[]);
    let begin_ns = now_ns() + 400_000_000;
    let mut wanted = stock_request(&program, program.dir.path(), 100);
    wanted.opts.as_mut().unwrap().start_timestamp_ns = begin_ns;
    wanted.emit_xspace = true;
    let answer = talk(async {
        program
            .client()
            .await
            .profile(wanted)
            .await
            .unwrap()
            .into_inner()
    });
    assert!(now_ns() >= begin_ns + 100_000_000);
    let probe = read(&answer.xspace);
    let starts = probe.slices.iter().filter(|slice| slice.name == "forward");
    let since_ps = starts.map(|slice| slice.start_ps).min().unwrap();
    let first_ns = probe.epoch.unwrap().unix_ns.unwrap() + since_ps / 1_000;
    assert!(first_ns >= begin_ns.cast_signed(), "{first_ns} {begin_ns}");
}

#[test]
fn terminate_ends_it_early_with_the_data() {
    let program = Program::start(&[]);
    let begun = Instant::now();
    talk(async {
        let mut client = program.client().await;
        let mut other = client.clone();
        let wanted = ProfileRequest {
            session_id: "long".to_owned(),
            ..request(60_000)
        };
        let capture = tokio::spawn(async move { client.profile(wanted).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
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
        let answer = capture.await.unwrap().unwrap().into_inner();
        assert!(count(&read(&answer.xspace), "forward") > 0);
        let nothing = other.terminate(end("")).await.unwrap_err();
        assert_eq!(nothing.code(), Code::NotFound);
    });
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn two_at_once_are_told_apart() {
    let program = Program::start(&["--steps", "400"]);
    talk(async {
        let mut client = program.client().await;
        let mut other = client.clone();
        let capture = tokio::spawn(async move { client.profile(request(400)).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let refused = other.profile(request(100)).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        assert!(
            refused.message().contains("try again then"),
            "{}",
            refused.message()
        );
        let answer = capture.await.unwrap().unwrap().into_inner();
        assert!(count(&read(&answer.xspace), "forward") > 0);
        assert!(other.profile(request(50)).await.is_ok());
    });
    assert_eq!(
        program.finish().printed("checksum"),
        undisturbed_checksum("400")
    );
}

#[test]
fn a_program_that_records_itself_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&["--steps", "300", "--trace", home.path().to_str().unwrap()]);
    talk(async {
        // The program starts its recording right after the server.
        tokio::time::sleep(Duration::from_millis(200)).await;
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
    assert_eq!(count(&read(&trace), "forward"), 300);
    assert_eq!(finished.printed("checksum"), undisturbed_checksum("300"));
}
