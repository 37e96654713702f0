//! Monitor, and the continuous calls: the last moments.

use std::time::{Duration, Instant};

use stepscope_formats::probe::Probe;
use stepscope_remote::proto::profiler_service_client::ProfilerServiceClient;
use stepscope_remote::proto::profiler_service_monitor_result::ResponseType;
use stepscope_remote::proto::{
    GetSnapshotRequest, MonitorRequest, MonitorResponse, ProfileRequest,
    StopContinuousProfilingRequest, TerminateRequest,
};
use stepscope_remote::read_clock;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::program::{LONG_MS, PATIENCE, Program, files, request, stock_request};
use super::{count, read, talk};

fn monitor(duration_ms: u64, monitoring_level: i32) -> MonitorRequest {
    MonitorRequest {
        duration_ms,
        monitoring_level,
        timestamp: true,
    }
}

/// Takes snapshots of the last so many milliseconds until one fits.
async fn snapshot_that(
    client: &mut ProfilerServiceClient<Channel>,
    last_ms: Option<u64>,
    fits: impl Fn(&Probe) -> bool,
) -> Probe {
    let begun = Instant::now();
    loop {
        let answer = client.get_snapshot(snapshot("", last_ms)).await;
        let answer = answer.unwrap().into_inner();
        assert!(answer.tool_data.is_empty());
        let probe = read(&answer.xspace);
        if fits(&probe) {
            assert!(!answer.empty_trace);
            return probe;
        }
        assert!(begun.elapsed() < PATIENCE, "no such snapshot");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Monitors until the answer has a step.
async fn monitor_steps(client: &mut ProfilerServiceClient<Channel>) -> MonitorResponse {
    let begun = Instant::now();
    loop {
        let answer = client.monitor(monitor(400, 2)).await.unwrap().into_inner();
        let figures = answer.monitor_result.as_ref().unwrap();
        if figures.step_time_ms_avg > 0.0 {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "no step: {}", answer.data);
    }
}

/// Milliseconds from the first begin to the last end; 0 without slices.
fn spanned_ms(probe: &Probe) -> f64 {
    let begins = probe.slices.iter().map(|slice| slice.start_ps);
    let ends = probe
        .slices
        .iter()
        .map(|slice| slice.start_ps + slice.dur_ps);
    (ends.max().unwrap_or(0) - begins.min().unwrap_or(0)) as f64 / 1e9
}

fn snapshot(session: &str, last_ms: Option<u64>) -> Request<GetSnapshotRequest> {
    let mut request = Request::new(GetSnapshotRequest {
        snapshot_session_id: session.to_owned(),
    });
    if let Some(ms) = last_ms {
        let ms = ms.to_string().parse().unwrap();
        request.metadata_mut().insert("stepscope-last-ms", ms);
    }
    request
}

#[test]
fn the_clock_of_this_host_is_ours_within_the_error() {
    let program = Program::start(&["--idle"]);
    let clock = read_clock(&program.address(), PATIENCE).unwrap().unwrap();
    assert!(clock.ahead_ns.abs() <= clock.error_ns, "{clock:?}");
    assert_eq!(clock.version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn monitor_tells_the_steps_and_the_load() {
    let program = Program::start(&["--until-eof"]);
    talk(async {
        let mut client = program.client().await;
        let answer = monitor_steps(&mut client).await;
        let figures = answer.monitor_result.unwrap();
        assert_eq!(figures.response_type(), ResponseType::UtilIdleStep);
        let (min, mean, max) = (
            figures.step_time_ms_min,
            figures.step_time_ms_avg,
            figures.step_time_ms_max,
        );
        assert!(min > 0.0 && min <= mean && mean <= max, "{figures:?}");
        assert!(figures.device_idle_time_percent.is_nan());
        for part in [
            "Timestamp: ",
            "Host busy: ",
            "Step time: ",
            "Device: none",
            "Recording: nothing",
        ] {
            assert!(answer.data.contains(part), "{part}: {}", answer.data);
        }
        // A busy machine may hold the program up during the whole time, or between the readings of its two clocks.
        let begun = Instant::now();
        loop {
            let load = client.monitor(monitor(50, 1)).await.unwrap().into_inner();
            assert!(!load.data.contains("Step time"), "{}", load.data);
            assert!(load.monitor_result.unwrap().step_time_ms_avg.is_nan());
            let busy = load.data.split("Host busy: ").nth(1).unwrap();
            let busy: f64 = busy.split('%').next().unwrap().parse().unwrap();
            if busy > 0.0 && busy <= 105.0 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{busy}");
        }

        // Beside a capture, and it does not disturb it.
        let mut other = client.clone();
        let capture = tokio::spawn(async move { other.profile(request(LONG_MS)).await });
        program.until_captured().await;
        let beside = monitor_steps(&mut client).await;
        assert!(
            beside.data.contains("Recording: a capture"),
            "{}",
            beside.data
        );
        let end = TerminateRequest::default();
        client.terminate(end).await.unwrap();
        assert!(capture.await.unwrap().is_ok());

        for (wrong, said) in [
            (monitor(u64::MAX, 2), "3600000 ms"),
            (monitor(10, 9), "monitoring_level"),
        ] {
            let refused = client.monitor(wrong).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains(said), "{}", refused.message());
        }
    });
    program.finish().assert_undisturbed();
}

#[test]
fn a_program_that_keeps_its_last_moments_gives_them() {
    let program = Program::start(&["--keep-last", "600000"]);
    talk(async {
        let mut client = program.client().await;
        let is_whole = |all: &Probe| spanned_ms(all) > 600.0 && count(all, "forward") > 0;
        snapshot_that(&mut client, None, is_whole).await;
        // A busy machine may hold the program up for longer than 200 ms.
        let has_slices = |some: &Probe| !some.slices.is_empty();
        let some = snapshot_that(&mut client, Some(200), has_slices).await;
        // Only what was under way when the 200 ms began reaches back further.
        let longest = some.slices.iter().map(|slice| slice.dur_ps).max().unwrap();
        let most = 200.0 + longest as f64 / 1e9;
        assert!(spanned_ms(&some) <= most, "{} ms", spanned_ms(&some));

        // With a session, but no directory that is allowed: the data comes back.
        let stored = client
            .get_snap_shot(snapshot("mine", Some(600_000)))
            .await
            .unwrap()
            .into_inner();
        assert!(stored.xspace.is_empty());
        assert_eq!(stored.tool_data[0].name, "xplane.pb");
        assert!(count(&read(&stored.tool_data[0].data), "forward") > 0);

        // A capture beside it.
        let capture = program.capture_steps(request(1)).await;
        assert!(count(&read(&capture.xspace), "forward") > 0);

        let again = client
            .start_continuous_profiling(ProfileRequest::default())
            .await
            .unwrap_err();
        assert_eq!(again.code(), Code::AlreadyExists);
        let stop = client
            .stop_continuous_profiling(StopContinuousProfilingRequest {})
            .await;
        assert_eq!(stop.unwrap_err().code(), Code::FailedPrecondition);
        let wrong = client
            .get_snapshot(snapshot("", Some(0)))
            .await
            .unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument);
        let wrong = client
            .get_snapshot(snapshot("../x", None))
            .await
            .unwrap_err();
        assert_eq!(wrong.code(), Code::InvalidArgument);
        let told = client.monitor(monitor(10, 1)).await.unwrap().into_inner();
        assert!(told.data.contains("s are kept"), "{}", told.data);
    });
}

#[test]
fn a_client_can_have_the_last_moments_kept() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&["--until-eof", "--allow", home.path().to_str().unwrap()]);
    talk(async {
        let mut client = program.client().await;
        let stop = StopContinuousProfilingRequest {};
        for refused in [
            client.get_snapshot(snapshot("", None)).await.unwrap_err(),
            client.stop_continuous_profiling(stop).await.unwrap_err(),
        ] {
            assert_eq!(refused.code(), Code::NotFound);
            assert!(
                refused.message().contains("keep_last"),
                "{}",
                refused.message()
            );
        }
        let begin = stock_request(&program, home.path(), 1_000);
        client.continuous_profiling(begin.clone()).await.unwrap();
        let again = client.start_continuous_profiling(begin).await.unwrap_err();
        assert_eq!(again.code(), Code::AlreadyExists);
        program.until_steps(2).await;
        let answer = client
            .get_snapshot(snapshot("shot", None))
            .await
            .unwrap()
            .into_inner();
        assert!(answer.xspace.is_empty() && answer.tool_data.is_empty() && !answer.empty_trace);
        let file = files(home.path());
        let folder = home.path().join("plugins/profile/shot");
        assert_eq!(
            file,
            [folder.join(format!("127.0.0.1_{}.xplane.pb", program.port()))]
        );
        assert!(count(&read(&std::fs::read(&file[0]).unwrap()), "forward") > 0);
        let inline = client
            .get_snapshot(snapshot("", None))
            .await
            .unwrap()
            .into_inner();
        assert!(count(&read(&inline.xspace), "forward") > 0);
        client.stop_continuous_profiling(stop).await.unwrap();
        let gone = client.get_snapshot(snapshot("", None)).await.unwrap_err();
        assert_eq!(gone.code(), Code::NotFound);
    });
    program.finish().assert_undisturbed();
}
