//! What must not hurt the program: many captures, clients that vanish, floods and garbage.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stepscope_remote::proto::profile_options::AdvancedConfigValue;
use stepscope_remote::proto::profile_options::advanced_config_value::Value;
use stepscope_remote::proto::{ProfileOptions, ProfileRequest, TerminateRequest};
use tonic::Code;

use super::program::{LONG_MS, PATIENCE, Program, request};
use super::{count, read, talk};

#[test]
fn a_hundred_captures_leave_nothing_behind() {
    let program = Program::start(&["--until-eof"]);
    talk(async {
        let mut client = program.client().await;
        let mut captures = 0;
        let mut capture = async |least: usize| {
            let answer = client.profile(request(10)).await.unwrap().into_inner();
            assert!(read(&answer.xspace).slices.len() >= least);
            captures += 1;
        };
        for _ in 0..20 {
            capture(0).await;
        }
        let before = (
            program.status("Threads"),
            program.descriptors(),
            program.status("VmRSS"),
        );
        for _ in 0..100 {
            capture(0).await;
        }
        let after = (
            program.status("Threads"),
            program.descriptors(),
            program.status("VmRSS"),
        );
        assert!(after.0 <= before.0 + 1, "threads: {before:?} {after:?}");
        assert!(after.1 <= before.1, "descriptors: {before:?} {after:?}");
        // A capture of 10 ms holds a few hundred KiB.
        assert!(after.2 < before.2 + 8_192, "memory: {before:?} {after:?}");
        let whole = program.capture_steps(request(1)).await;
        assert!(count(&read(&whole.xspace), "forward") > 0);
    });
    let finished = program.finish();
    assert_eq!(finished.stderr, "");
    finished.assert_undisturbed();
}

#[test]
fn a_client_that_goes_away_ends_the_capture() {
    let program = Program::start(&["--until-eof"]);
    talk(async {
        for _ in 0..5 {
            let mut client = program.client().await;
            let capture = tokio::spawn(async move { client.profile(request(LONG_MS)).await });
            program.until_captured().await;
            // The connection goes with it.
            capture.abort();
            let mut other = program.client().await;
            let begun = Instant::now();
            loop {
                match other.profile(request(20)).await {
                    Ok(answer) => break assert!(!answer.into_inner().xspace.is_empty()),
                    Err(status) => assert_eq!(status.code(), Code::AlreadyExists),
                }
                assert!(begun.elapsed() < PATIENCE, "it goes on recording");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        // A client whose deadline passes is gone, too. On a busy machine a short deadline may pass before the
        // capture begins.
        let mut deadline = Duration::from_millis(100);
        let mut client = program.client().await;
        loop {
            let mut hasty = tonic::Request::new(request(LONG_MS));
            hasty.set_timeout(deadline);
            let mut other = client.clone();
            let capture = tokio::spawn(async move { other.profile(hasty).await });
            let was_captured = program.sees_capture(&capture).await;
            assert!(capture.await.unwrap().is_err());
            if was_captured {
                break;
            }
            deadline *= 2;
            assert!(deadline < PATIENCE, "no capture begins");
        }
        let begun = Instant::now();
        while let Err(status) = client.profile(request(20)).await {
            assert_eq!(status.code(), Code::AlreadyExists);
            assert!(begun.elapsed() < PATIENCE, "it goes on recording");
        }
    });
    program.finish().assert_undisturbed();
}

#[test]
fn a_killed_client_ends_the_capture() {
    let program = Program::start(&["--until-eof"]);
    let mut client = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "server::abuse::long_client",
            "--nocapture",
        ])
        .env("STEPSCOPE_TEST_CLIENT", program.address())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    talk(async {
        let mut other = program.client().await;
        // Until the other one captures.
        let begun = Instant::now();
        while other.profile(request(1)).await.is_ok() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.kill().unwrap();
        client.wait().unwrap();
        let begun = Instant::now();
        while other.profile(request(1)).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "it goes on recording");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    program.finish().assert_undisturbed();
}

/// The child of the test above. Does nothing without an address.
#[test]
#[ignore = "the program of the other tests"]
fn long_client() {
    let Ok(address) = std::env::var("STEPSCOPE_TEST_CLIENT") else {
        return;
    };
    talk(async {
        use stepscope_remote::proto::profiler_service_client::ProfilerServiceClient;
        let mut client = ProfilerServiceClient::connect(format!("http://{address}"))
            .await
            .unwrap();
        while client.profile(request(LONG_MS)).await.is_err() {}
    });
}

#[test]
fn garbage_and_floods_bounce_off() {
    let program = Program::start(&[]);
    let at = program.address();
    let mut noise = 12_345_u64;
    let mut garbage = vec![0_u8; 4_096];
    for _ in 0..200 {
        for byte in &mut garbage {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = noise.to_be_bytes()[0];
        }
        let mut stream = TcpStream::connect(&at).unwrap();
        let _ = stream.write_all(&garbage);
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for rest in [
        &garbage[..],
        b"\xff\xff\xff\x04\x00\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ] {
        let mut stream = TcpStream::connect(&at).unwrap();
        let _ = stream
            .write_all(preface)
            .and_then(|()| stream.write_all(rest));
    }
    let mut web = TcpStream::connect(&at).unwrap();
    web.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    web.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = Vec::new();
    let _ = web.read_to_end(&mut answer);

    let before = (program.status("VmRSS"), program.descriptors());
    let mut most = 0;
    let mut silent = Vec::new();
    for n in 0..10_000 {
        let stream = TcpStream::connect(&at).unwrap();
        // Some stay open and say nothing, some go at once, some half-speak.
        match n % 4 {
            0 => silent.push(stream),
            1 => drop(stream),
            _ => {
                let mut stream = stream;
                let _ = stream.write_all(preface);
            }
        }
        if silent.len() > 400 {
            silent.remove(0);
        }
        if n % 500 == 0 {
            most = most.max(program.descriptors());
        }
    }
    assert!(
        most < before.1 + 400,
        "descriptors: {before:?}, most {most}"
    );
    talk(async {
        // With 400 silent ones still there.
        let answer = program.capture_steps(request(1)).await;
        assert!(!answer.empty_trace);
        drop(silent);
        let begun = Instant::now();
        loop {
            let after = (program.status("VmRSS"), program.descriptors());
            if after.0 < before.0 + 32_768 && after.1 <= before.1 + 8 {
                break;
            }
            let figures = "memory and descriptors stay high";
            assert!(
                begun.elapsed() < PATIENCE,
                "{figures}: {before:?} {after:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// A request whose body never comes: how it ends.
async fn without_body(channel: tonic::transport::Channel) -> Code {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let never = tonic::codegen::tokio_stream::pending::<ProfileRequest>();
    let codec = tonic_prost::ProstCodec::<ProfileRequest, TerminateRequest>::default();
    let path = "/tensorflow.ProfilerService/Profile".parse().unwrap();
    let answer = grpc.client_streaming(tonic::Request::new(never), path, codec);
    answer.await.unwrap_err().code()
}

async fn channel(program: &Program) -> tonic::transport::Channel {
    let address = format!("http://{}", program.address());
    let endpoint = tonic::transport::Endpoint::from_shared(address).unwrap();
    endpoint.connect().await.unwrap()
}

#[test]
fn a_request_that_sends_nothing_gives_up_its_place() {
    let program = Program::start(&["--until-eof", "--request-timeout-ms", "50"]);
    talk(async {
        let channel = channel(&program).await;
        // A connection has eight places: later requests get one that an earlier request has given up.
        for _ in 0..12 {
            let code = without_body(channel.clone()).await;
            assert_eq!(code, Code::DeadlineExceeded);
        }
        let mut client = program.client().await;
        let begun = Instant::now();
        while let Err(status) = client.profile(request(10)).await {
            // A busy machine may delay the body of any request by the 50 ms.
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert!(begun.elapsed() < PATIENCE, "no request is answered");
        }
    });
    program.finish().assert_undisturbed();
}

#[test]
fn requests_without_a_body_leave_places_for_others() {
    // Nothing is given up while this test runs.
    let program = Program::start(&["--until-eof", "--request-timeout-ms", "3600000"]);
    talk(async {
        let channels = [channel(&program).await, channel(&program).await];
        let mut stalled = tokio::task::JoinSet::new();
        for number in 0..64 {
            stalled.spawn(without_body(channels[number % 2].clone()));
        }
        // A connection has eight places: the others are refused.
        for _ in 0..48 {
            let refused = tokio::time::timeout(PATIENCE, stalled.join_next()).await;
            let refused = refused.expect("nobody is refused").unwrap().unwrap();
            assert_eq!(refused, Code::ResourceExhausted);
        }
        let answer = program.client().await.profile(request(10)).await;
        assert!(answer.is_ok(), "{answer:?}");
        stalled.abort_all();
    });
    program.finish().assert_undisturbed();
}

#[test]
fn wrong_methods_and_oversized_requests_are_refused() {
    let program = Program::start(&["--until-eof"]);
    talk(async {
        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://{}", program.address()));
        let channel = channel.unwrap().connect().await.unwrap();
        for path in [
            "/tensorflow.ProfilerService/Nothing",
            "/other.Service/Method",
            "/x",
            "/tensorflow.",
        ] {
            let mut grpc = tonic::client::Grpc::new(channel.clone());
            grpc.ready().await.unwrap();
            let codec = tonic_prost::ProstCodec::<TerminateRequest, TerminateRequest>::default();
            let wrong = tonic::Request::new(TerminateRequest::default());
            let status = grpc
                .unary(wrong, path.parse().unwrap(), codec)
                .await
                .unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{path}");
        }
        // Another message under the right name: fields that are not known, of wrong types.
        let mut client = program.client().await;
        let huge = ProfileRequest {
            tools: vec!["x".repeat(8 << 20)],
            ..request(10)
        };
        let refused = client.profile(huge).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
        assert!(client.profile(request(10)).await.is_ok());
    });
    program.finish().assert_undisturbed();
}

#[test]
fn impossible_requests_get_status_codes_of_the_protocol() {
    let program = Program::start(&["--until-eof"]);
    let with = |change: &dyn Fn(&mut ProfileOptions)| {
        let mut opts = ProfileOptions {
            version: 1,
            host_tracer_level: 2,
            duration_ms: 20,
            ..ProfileOptions::default()
        };
        change(&mut opts);
        ProfileRequest {
            opts: Some(opts),
            ..request(20)
        }
    };
    let option = |key: &str, value: Value| {
        let key = key.to_owned();
        move |opts: &mut ProfileOptions| {
            let value = AdvancedConfigValue {
                value: Some(value.clone()),
            };
            opts.advanced_configuration.insert(key.clone(), value);
        }
    };
    talk(async {
        let mut client = program.client().await;
        let typo = option(
            "tpu_trace_mod",
            Value::StringValue("TRACE_COMPUTE".to_owned()),
        );
        let wrong = option(
            "gpu_pm_sample_buffer_size_per_gpu_mb",
            Value::Int64Value(5_000),
        );
        for (wrong, said) in [
            (request(0), "1 to 3600000 ms"),
            (request(1_000_000_000_000), "1 to 3600000 ms"),
            (
                with(&|opts| opts.host_tracer_level = 7),
                "host_tracer_level",
            ),
            (
                with(&|opts| opts.start_timestamp_ns = u64::MAX),
                "start_timestamp_ns",
            ),
            (with(&typo), "did you mean tpu_trace_mode?"),
            (with(&wrong), "from 1 to 4096, not 5000"),
        ] {
            let refused = client.profile(wrong).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains(said), "{}", refused.message());
        }
        let right = option(
            "tpu_trace_mode",
            Value::StringValue("TRACE_COMPUTE".to_owned()),
        );
        assert!(client.profile(with(&right)).await.is_ok());
        let off = client
            .profile(with(&|opts| opts.host_tracer_level = 0))
            .await
            .unwrap()
            .into_inner();
        assert!(off.empty_trace);
    });
    program.finish().assert_undisturbed();
}

#[test]
fn truncation_is_reported_and_a_large_answer_arrives() {
    let program = Program::start(&["--extra-spans", "20000"]);
    talk(async {
        let mut client = program.client().await;
        let cut = ProfileRequest {
            max_events: 1_000,
            ..request(1)
        };
        let answer = program.capture_steps(cut).await;
        let probe = read(&answer.xspace);
        let events = probe.slices.len() + probe.instants.len() + probe.samples.len();
        assert_eq!(events, 1_000);
        let text = String::from_utf8_lossy(&answer.xspace).into_owned();
        assert!(text.contains("max_events"), "the file says that it was cut");
        // How much a program makes in a time depends on the machine.
        let mut duration_ms = 800;
        loop {
            let answer = client.profile(request(duration_ms)).await.unwrap();
            let whole = answer.into_inner().xspace;
            let tiny = count(&read(&whole), "tiny");
            if whole.len() > 4 << 20 && tiny > 100_000 {
                break;
            }
            duration_ms *= 2;
            assert!(duration_ms < LONG_MS, "{} bytes, {tiny} spans", whole.len());
        }
    });
    let mut program = program;
    program.kill();
    assert!(
        program.finish().stderr.contains("max_events"),
        "the log says that it was cut"
    );
}
