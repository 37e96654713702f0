//! Start, stop, one per process, fork, exit, and what an idle server costs.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepscope_remote::proto::ProfileRequest;
use stepscope_remote::proto::profiler_service_client::ProfilerServiceClient;
use stepscope_remote::{
    Log, ServerError, ServerOptions, start_server, start_server_with, stop_server,
};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::program::{
    LONG_MS, PATIENCE, Program, request, undisturbed_checksum, until_captured, wait_for,
};
use super::{count, read, talk};

/// One server at a time in a process, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn one_server_per_process_and_errors_that_say_which() {
    let _alone = alone();
    assert!(matches!(stop_server(), Err(ServerError::NotRunning)));
    let server = start_server(0).unwrap();
    assert_ne!(server.port(), 0);
    assert!(server.address().ip().is_loopback());
    let second = start_server(0).unwrap_err();
    assert!(
        matches!(second, ServerError::AlreadyRunning { address } if address == server.address())
    );
    assert!(
        second.to_string().contains(&server.address().to_string()),
        "{second}"
    );
    TcpStream::connect(server.address()).unwrap();
    let address = server.address();
    drop(server);
    // A child of another test has the socket until it runs its program.
    wait_for("the end of the server's socket", || {
        TcpStream::connect(address).err()
    });
    assert!(matches!(stop_server(), Err(ServerError::NotRunning)));
    // The same port again; then stopped without its handle.
    let again = start_server(u32::from(address.port())).unwrap();
    stop_server().unwrap();
    let another = start_server(0).unwrap();
    drop(again);
    TcpStream::connect(another.address()).unwrap();
    drop(another);
}

#[test]
fn impossible_places_are_named() {
    let _alone = alone();
    for port in [65_536, 99_999, u32::MAX] {
        let error = start_server(port).unwrap_err();
        assert!(matches!(error, ServerError::ImpossiblePort { .. }));
        assert!(error.to_string().contains("1 to 65535"), "{error}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = start_server(u32::from(port)).unwrap_err();
    assert!(matches!(error, ServerError::PortBusy { .. }));
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    let elsewhere = ServerOptions {
        host: "192.0.2.1".parse().unwrap(),
        ..ServerOptions::default()
    };
    let error = start_server_with(&elsewhere).unwrap_err();
    assert!(
        matches!(error, ServerError::AddressNotOurs { .. }),
        "{error}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let in_the_way = ServerOptions {
        allow_directories: vec![file.path().join("logs")],
        ..ServerOptions::default()
    };
    let error = start_server_with(&in_the_way).unwrap_err();
    assert!(matches!(error, ServerError::Directory { .. }), "{error}");
    let twice = ServerOptions {
        keep_last: Some(Duration::from_secs(1)),
        flight: Some(stepscope::FlightOptions::default()),
        ..ServerOptions::default()
    };
    assert!(matches!(
        start_server_with(&twice),
        Err(ServerError::FlightTwice)
    ));
    let nothing = ServerOptions {
        keep_last: Some(Duration::ZERO),
        ..ServerOptions::default()
    };
    let error = start_server_with(&nothing).unwrap_err();
    assert!(matches!(error, ServerError::Flight { .. }), "{error}");
    // None of them left anything behind.
    drop(start_server(0).unwrap());
}

#[test]
fn stopping_hands_over_what_a_capture_has() {
    let _alone = alone();
    let server = start_server_with(&ServerOptions {
        keep_last: Some(Duration::from_secs(5)),
        log: Log::Off,
        ..ServerOptions::default()
    })
    .unwrap();
    assert!(stepscope::flight_status().is_some());
    let address = format!("http://{}", server.address());
    let client = ProfilerServiceClient::connect;
    let capturing = address.clone();
    let waiting = std::thread::Builder::new().spawn(move || {
        talk(async {
            client(capturing)
                .await
                .unwrap()
                .profile(request(LONG_MS))
                .await
        })
    });
    // Open all the while, so that the capture has it whenever it begins.
    let open = stepscope::span!("until the stop");
    talk(async { until_captured(&mut client(address).await.unwrap()).await });
    let begun = Instant::now();
    drop(server);
    drop(open);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let answer = waiting.unwrap().join().unwrap().unwrap().into_inner();
    assert_eq!(count(&read(&answer.xspace), "until the stop"), 1);
    assert!(stepscope::flight_status().is_none());
}

#[test]
fn health_and_reflection_answer() {
    let program = Program::start(&[]);
    talk(async {
        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://{}", program.address()));
        let channel = channel.unwrap().connect().await.unwrap();
        let mut health = HealthClient::new(channel.clone());
        for service in [
            "",
            "tensorflow.ProfilerService",
            "tensorflow.ProfileAnalysis",
        ] {
            let request = HealthCheckRequest {
                service: service.to_owned(),
            };
            let answer = health.check(request).await.unwrap().into_inner();
            assert_eq!(answer.status, 1, "{service}");
        }
        let ask = |request| tonic::Request::new(tonic::codegen::tokio_stream::once(request));
        {
            use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
            let request = tonic_reflection::pb::v1::ServerReflectionRequest {
                message_request: Some(MessageRequest::ListServices(String::new())),
                ..Default::default()
            };
            let mut client = ServerReflectionClient::new(channel.clone());
            let mut answers = client
                .server_reflection_info(ask(request))
                .await
                .unwrap()
                .into_inner();
            let answer = answers.message().await.unwrap().unwrap().message_response;
            let Some(MessageResponse::ListServicesResponse(list)) = answer else {
                panic!("{answer:?}");
            };
            let names: Vec<_> = list
                .service
                .into_iter()
                .map(|service| service.name)
                .collect();
            for name in [
                "tensorflow.ProfilerService",
                "tensorflow.ProfileAnalysis",
                "grpc.health.v1.Health",
            ] {
                assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
            }
        }
        {
            use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::v1alpha::server_reflection_response::MessageResponse;
            let symbol = "tensorflow.ProfileRequest".to_owned();
            let request = tonic_reflection::pb::v1alpha::ServerReflectionRequest {
                message_request: Some(MessageRequest::FileContainingSymbol(symbol)),
                ..Default::default()
            };
            let mut client = ServerReflectionClient::new(channel);
            let mut answers = client
                .server_reflection_info(tonic::Request::new(tonic::codegen::tokio_stream::once(
                    request,
                )))
                .await
                .unwrap()
                .into_inner();
            let answer = answers.message().await.unwrap().unwrap().message_response;
            assert!(matches!(
                answer,
                Some(MessageResponse::FileDescriptorResponse(_))
            ));
        }
    });
}

/// CPU nanoseconds, and voluntary plus involuntary switches, of each thread.
fn threads(process: u32) -> BTreeMap<String, (u64, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads = tasks.flatten().map(|task| {
        let path = task.path();
        let text = |file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let cpu_ns = text("schedstat")
            .split(' ')
            .next()
            .unwrap_or("")
            .parse()
            .unwrap_or(0);
        let switches = text("status")
            .lines()
            .filter_map(|line| {
                line.split_once("voluntary_ctxt_switches:")?
                    .1
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .sum();
        (
            format!("{} {}", task.file_name().display(), text("comm").trim()),
            (cpu_ns, switches),
        )
    });
    threads.collect()
}

#[test]
fn an_idle_server_wakes_nothing() {
    let _alone = alone();
    // A process of its own, which sleeps.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "server::lifecycle::sleeper",
            "--nocapture",
        ])
        .env("STEPSCOPE_TEST_SLEEPER", "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("it has no server", || {
        let threads = threads(child.id());
        let mut names = threads.keys();
        names.find(|name| name.contains("stepscope-serve")).cloned()
    });
    // Helpers end meanwhile; a stock client would keep its connection open, too.
    wait_for("it is never idle", || {
        let before = threads(child.id());
        std::thread::sleep(Duration::from_secs(5));
        (threads(child.id()) == before).then_some(())
    });
    let _ = child.kill();
    let _ = child.wait();
}

/// The child of the test above. Does nothing without its variable.
#[test]
#[ignore = "the program of the other tests"]
fn sleeper() {
    if std::env::var("STEPSCOPE_TEST_SLEEPER").is_err() {
        return;
    }
    let server = start_server(0).unwrap();
    let _open = TcpStream::connect(server.address()).unwrap();
    // Sleeps until the parent ends it, or has ended.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

/// Ends a process as the case says, with a server that runs and a client that captures. Does nothing without a case.
#[test]
#[ignore = "the program of the other tests"]
fn ending() {
    let Ok(case) = std::env::var("STEPSCOPE_TEST_ENDING") else {
        return;
    };
    let server = start_server(0).unwrap();
    let address = format!("http://{}", server.address());
    let to = address.clone();
    let client = std::thread::Builder::new().spawn(move || {
        talk(async {
            let client = ProfilerServiceClient::connect(to);
            let _ = client.await.unwrap().profile(request(LONG_MS)).await;
        });
    });
    talk(async {
        let client = ProfilerServiceClient::connect(address).await;
        until_captured(&mut client.unwrap()).await;
    });
    let kept = std::mem::ManuallyDrop::new(server);
    match case.as_str() {
        "exit" => std::process::exit(7),
        // SAFETY: ends the process.
        "_exit" => unsafe { libc::_exit(7) },
        "fork" => in_a_fork(kept.address()),
        _ => {}
    }
    drop(client);
}

/// Counts the sockets of this process with the local port of an address.
fn sockets_at(address: std::net::SocketAddr) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let at_port = open.filter(|entry| {
        let number = entry.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: only asked for its address, and not closed.
        let socket = unsafe { std::mem::ManuallyDrop::new(TcpStream::from_raw_fd(number)) };
        let local = socket.local_addr();
        local.is_ok_and(|local| local.port() == address.port())
    });
    at_port.count()
}

/// The child has no server, no socket of it, can have its own, and the parent's goes on.
fn in_a_fork(address: std::net::SocketAddr) {
    // The listener and the capture's connection: the server has closed that of the client that has left.
    wait_for("its sockets are not two", || {
        (sockets_at(address) == 2).then_some(())
    });
    // SAFETY: the child does what a program does after a fork, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let left = sockets_at(address);
        let refused = matches!(stop_server(), Err(ServerError::NotRunning));
        let own = start_server(0).is_ok_and(|own| own.port() != address.port());
        let code = i32::from(left > 0) | i32::from(!refused) << 1 | i32::from(!own) << 2;
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(
        (libc::WIFEXITED(status), libc::WEXITSTATUS(status)),
        (true, 0)
    );
    TcpStream::connect(address).unwrap();
    stop_server().unwrap();
    std::process::exit(7);
}

#[test]
fn a_process_ends_as_it_likes() {
    for case in ["exit", "_exit", "fork"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "server::lifecycle::ending",
                "--nocapture",
            ])
            .env("STEPSCOPE_TEST_ENDING", case)
            .spawn()
            .unwrap();
        let status = wait_for(&format!("{case} hangs"), || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(7), "{case}");
    }
}

#[test]
fn a_killed_program_is_only_gone() {
    let mut program = Program::start(&[]);
    talk(async {
        let mut client = program.client().await;
        let capture = tokio::spawn(async move { client.profile(request(LONG_MS)).await });
        program.until_captured().await;
        program.kill();
        let gone = tokio::time::timeout(PATIENCE, capture).await;
        assert!(gone.unwrap().unwrap().is_err());
    });
    // The next one of the same name is as good as new.
    let next = Program::start(&["--steps", "50"]);
    assert_eq!(
        next.finish().printed("checksum"),
        undisturbed_checksum("50")
    );
}

#[test]
fn a_program_that_ends_during_a_capture_hands_it_over() {
    let mut program = Program::start(&["--until-eof"]);
    talk(async {
        let wanted = ProfileRequest {
            session_id: "longer than the program".to_owned(),
            ..request(LONG_MS)
        };
        let mut client = program.client().await;
        let capture = tokio::spawn(async move { client.profile(wanted).await });
        program.until_captured().await;
        program.until_steps(2).await;
        program.end();
        let ended = tokio::time::timeout(PATIENCE, capture).await;
        let answer = ended.unwrap().unwrap().unwrap().into_inner();
        assert!(count(&read(&answer.xspace), "forward") > 0);
    });
    assert!(program.finish().status.success());
    assert!(!Path::new("plugins").exists());
}
