//! Hosts that give nothing: each says at which stage, and costs the others nothing.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use stepscope_remote::{CaptureError, CaptureFailure, CaptureRequest, CaptureStage, capture};
use tokio::net::TcpSocket;
use tonic::Status;

use crate::server::program::PATIENCE;

use super::fake::{Ends, Fake, cutting_after, raw};
use super::{captured, failure, names, observed, request, xspace};

/// What comes of one address; nothing of it may stay. So patient that only what the peer does decides.
fn failed(address: &str) -> CaptureFailure {
    failed_within(address, Duration::from_mins(1), Duration::from_mins(1))
}

/// The same with so much time for the connection and for the data.
fn failed_within(address: &str, connect_timeout: Duration, timeout: Duration) -> CaptureFailure {
    let logs = tempfile::tempdir().unwrap();
    let asked = CaptureRequest {
        connect_timeout,
        timeout,
        ..request(&[address], logs.path())
    };
    let failed = failure(&observed(&asked).0);
    assert_eq!(names(logs.path()), [""; 0]);
    failed
}

/// An address on which nobody listens, and nobody can while the socket lives.
fn closed_port() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

#[test]
fn unreachable_addresses_fail_with_their_stage() {
    assert_eq!(failed("nonsense").stage, CaptureStage::BadAddress);
    assert_eq!(
        failed("no-such-name.invalid:9012").stage,
        CaptureStage::NameNotFound
    );
    let (_closed, address) = closed_port();
    let refused = failed(&address);
    assert_eq!(refused.stage, CaptureStage::Refused);
    assert!(
        refused.message.contains("start the profiler server"),
        "{refused}"
    );
}

#[test]
fn other_protocols_are_not_a_profiler() {
    for (what, address) in [
        ("garbage", raw(b"SSH-2.0-OpenSSH_9.6\r\n", b"")),
        (
            "a web server",
            raw(
                b"",
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            ),
        ),
        ("zeros", raw(&[0; 64], &[0; 64])),
    ] {
        let failed = failed(&address);
        assert_eq!(failed.stage, CaptureStage::NotAProfiler, "{what}: {failed}");
        assert!(!failed.message.contains("SSH"), "nothing of it is repeated");
    }
}

#[test]
fn a_grpc_server_of_another_kind_is_no_profiler() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (_, health) = tonic_health::server::health_reporter();
    runtime.spawn(
        tonic::transport::Server::builder()
            .add_service(health)
            .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)),
    );
    assert_eq!(failed(&address).stage, CaptureStage::NotAProfiler);
    runtime.shutdown_background();
}

#[test]
fn a_port_that_only_listens_costs_the_connect_timeout() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    // On a busy machine a short timeout may pass before the connection exists.
    let mut connect = Duration::from_millis(500);
    loop {
        let begun = Instant::now();
        let failed = failed_within(&address, connect, Duration::from_mins(1));
        assert!(begun.elapsed() >= connect);
        if failed.message.contains("sent no answer") {
            assert_eq!(failed.stage, CaptureStage::TimedOut);
            break;
        }
        connect *= 2;
        assert!(connect < PATIENCE, "{failed}");
    }
}

#[test]
fn busy_servers_and_rejections_are_reported() {
    let busy = Fake::new(|_| Err(Status::internal("Another profiling session active."))).start();
    let said = failed(&busy.address);
    assert_eq!(said.stage, CaptureStage::Busy);
    assert!(
        said.message.contains("'Another profiling session active.'"),
        "{said}"
    );

    let ours = Fake::new(|_| Err(Status::already_exists("a capture is under way"))).start();
    assert_eq!(failed(&ours.address).stage, CaptureStage::Busy);

    let text = format!("no key tpu_trace_mod\u{1b}[31m{}", "x".repeat(5_000));
    let picky = Fake::new(move |_| Err(Status::invalid_argument(text.clone()))).start();
    let said = failed(&picky.address);
    assert_eq!(said.stage, CaptureStage::Failed);
    assert!(said.message.contains("tpu_trace_mod"), "{said}");
    assert!(
        said.message.len() < 400 && !said.message.contains('\u{1b}'),
        "{said}"
    );
}

#[test]
fn data_that_does_not_come_in_time() {
    let slow = Fake::sends(xspace(1)).ends(Ends::Never).start();
    let (connect, data) = (Duration::from_mins(1), Duration::from_millis(500));
    let failed = failed_within(&slow.address, connect, data);
    assert_eq!(failed.stage, CaptureStage::TimedOut);
    assert!(failed.message.contains("--timeout"), "{failed}");
}

#[test]
fn a_program_that_dies_while_it_records() {
    let logs = tempfile::tempdir().unwrap();
    let server = Fake::sends(xspace(1)).ends(Ends::Never).start();
    let asked = request(&[&server.address], logs.path());
    let dying = std::sync::Mutex::new(server);
    let kill = |event| {
        if matches!(event, stepscope_remote::CaptureEvent::Collecting { .. }) {
            dying.lock().unwrap().kill();
        }
    };
    let control = stepscope_remote::CaptureControl::new();
    let report = stepscope_remote::capture_with(&asked, &control, &kill).unwrap();
    assert_eq!(failure(&report).stage, CaptureStage::Broke);
    assert_eq!(names(logs.path()), [""; 0]);
}

#[test]
fn a_connection_that_ends_inside_the_data() {
    let server = Fake::sends(xspace(100_000)).start();
    for bytes in [10_000, 1_000_000] {
        let (address, cut) = cutting_after(&server.address, bytes);
        let failed = failed(&address);
        assert_eq!(failed.stage, CaptureStage::Broke, "{failed}");
        cut.join().unwrap();
    }
}

#[test]
fn a_host_that_fails_costs_the_others_nothing() {
    let logs = tempfile::tempdir().unwrap();
    let good = Fake::sends(xspace(3)).start();
    let busy = Fake::new(|_| Err(Status::already_exists(""))).start();
    let ((_closed, dead), web) = (closed_port(), raw(b"", b"HTTP/1.1 200 OK\r\n\r\n"));
    let addresses = [
        dead.as_str(),
        &good.address,
        "nonsense",
        &busy.address,
        &web,
    ];
    let (report, _) = observed(&request(&addresses, logs.path()));
    assert!(report.any_ok() && !report.all_ok());
    let stages: Vec<_> = report
        .hosts
        .iter()
        .map(|host| {
            host.result
                .as_ref()
                .map_or_else(|failure| Some(failure.stage), |_| None)
        })
        .collect();
    assert_eq!(
        stages,
        [
            Some(CaptureStage::Refused),
            None,
            Some(CaptureStage::BadAddress),
            Some(CaptureStage::Busy),
            Some(CaptureStage::NotAProfiler)
        ]
    );
    assert_eq!(names(&report.folder), [good.file_name()]);
}

#[test]
fn a_log_directory_that_cannot_be_is_known_before() {
    let server = Fake::sends(xspace(1)).start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for below in ["", "a/b"] {
        let error = capture(&request(&[&server.address], &file.join(below))).unwrap_err();
        assert!(matches!(&error, CaptureError::LogDir { .. }), "{error}");
        assert!(error.to_string().contains("it is a file"), "{error}");
    }
    assert!(server.seen.profiles.lock().unwrap().is_empty());
    let nobody = capture(&request(&[" "], dir.path())).unwrap_err();
    assert!(matches!(nobody, CaptureError::NoAddress));
}

#[test]
fn captures_may_be_asked_for_inside_a_runtime() {
    let server = Fake::sends(xspace(1)).start();
    let logs = tempfile::tempdir().unwrap();
    let asked = request(&[&server.address], logs.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let report = runtime.block_on(async { capture(&asked).unwrap() });
    assert_eq!(captured(&report).events, 1);
}
