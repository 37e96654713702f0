//! Where servers put their data, and what is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stepscope::session::session_name_at;
use stepscope_remote::proto::ProfileResponse;
use stepscope_remote::proto::profile_options::AdvancedConfigValue;
use stepscope_remote::proto::profile_options::advanced_config_value::Value;
use stepscope_remote::{
    CaptureEvent, CaptureRequest, CaptureStage, Interval, OptionValue, read_clock,
};
use tonic::Status;

use crate::server::program::PATIENCE;

use super::fake::{Fake, Snapshots, place, with_tool, with_xspace};
use super::{captured, failure, files, message, names, observed, request, xspace};

#[test]
fn data_in_the_answer_becomes_a_file() {
    let server = Fake::sends(xspace(3)).start();
    let logs = tempfile::tempdir().unwrap();
    let (report, events) = observed(&request(&[&server.address], logs.path()));
    let file = captured(&report);
    assert!(report.all_ok() && report.any_ok());
    assert_eq!((file.events, file.empty), (3, false));
    assert_eq!(fs::read(&file.path).unwrap(), xspace(3));
    assert_eq!(file.bytes, xspace(3).len() as u64);
    let folder = logs.path().join("plugins/profile").join(&report.session);
    assert_eq!(report.folder, folder);
    assert_eq!(file.path, folder.join(server.file_name()));
    // The local time in six numbers.
    let parts: Vec<usize> = report.session.split('_').map(str::len).collect();
    assert_eq!(parts, [4, 2, 2, 2, 2, 2]);
    assert_eq!(names(&folder), [server.file_name()], "nothing else is left");
    let host = server.address.clone();
    let path = file.path;
    assert!(matches!(&events[0], CaptureEvent::Connecting { host: who } if *who == host));
    assert!(matches!(&events[1], CaptureEvent::Connected { host: who, .. } if *who == host));
    let saved = CaptureEvent::Saved {
        host,
        path,
        bytes: file.bytes,
        events: 3,
    };
    assert_eq!(events.last(), Some(&saved));
}

#[test]
fn the_question_says_all_that_servers_go_by() {
    let server = Fake::sends(xspace(1)).start();
    let logs = tempfile::tempdir().unwrap();
    let asked = CaptureRequest {
        host_tracer_level: 1,
        python_tracer_level: 0,
        device_tracer_level: 0,
        max_events: Some(7),
        session: Some("mine".to_owned()),
        delay: Duration::from_millis(30),
        options: BTreeMap::from([
            ("a".to_owned(), OptionValue::Bool(true)),
            ("b".to_owned(), OptionValue::Int(-5)),
            ("c".to_owned(), OptionValue::Text("t".to_owned())),
        ]),
        ..request(&[&server.address], logs.path())
    };
    observed(&asked);
    let seen = server.seen.profiles.lock().unwrap().pop().unwrap();
    let opts = seen.opts.unwrap();
    assert_eq!((seen.duration_ms, opts.duration_ms), (20, 20));
    assert_eq!((seen.max_events, seen.emit_xspace), (7, true));
    assert_eq!(
        (seen.session_id.as_str(), opts.session_id.as_str()),
        ("mine", "mine")
    );
    assert_eq!(seen.host_name, server.address);
    let root = logs.path().join("plugins/profile");
    assert_eq!(seen.repository_root, root.to_str().unwrap());
    assert_eq!(opts.repository_path, logs.path().to_str().unwrap());
    assert!(seen.tools.iter().any(|tool| tool == "xplane.pb"));
    assert_eq!(
        (
            opts.host_tracer_level,
            opts.python_tracer_level,
            opts.device_tracer_level,
            opts.version
        ),
        (1, 0, 0, 1)
    );
    assert!(opts.include_dataset_ops && opts.enable_hlo_proto);
    let advanced = |value| AdvancedConfigValue { value: Some(value) };
    assert_eq!(
        opts.advanced_configuration,
        BTreeMap::from([
            ("a".to_owned(), advanced(Value::BoolValue(true))),
            ("b".to_owned(), advanced(Value::Int64Value(-5))),
            ("c".to_owned(), advanced(Value::StringValue("t".to_owned()))),
        ])
    );
    assert!(opts.start_timestamp_ns > 1_000_000_000_000_000_000);
}

#[test]
fn data_of_a_tool_becomes_a_file() {
    for name in ["xplane.pb", "host.xplane.pb"] {
        let server = Fake::new(move |_| Ok(with_tool(name, xspace(2)))).start();
        let logs = tempfile::tempdir().unwrap();
        let (report, _) = observed(&request(&[&server.address], logs.path()));
        let file = captured(&report);
        assert_eq!(file.events, 2);
        assert_eq!(fs::read(&file.path).unwrap(), xspace(2));
        assert_eq!(files(logs.path()), [file.path]);
    }
}

#[test]
fn a_server_that_writes_its_file_itself_is_found_out() {
    // Under the name that clients expect, and under one of its own.
    for own_name in [false, true] {
        let server = Fake::new(move |asked| {
            let host = if own_name { "node-7" } else { &asked.host_name };
            let path = place(asked, host);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, xspace(4)).unwrap();
            Ok(ProfileResponse::default())
        })
        .start();
        let logs = tempfile::tempdir().unwrap();
        let (report, _) = observed(&request(&[&server.address], logs.path()));
        let file = captured(&report);
        assert_eq!(file.events, 4);
        assert_eq!(file.path.ends_with("node-7.xplane.pb"), own_name);
        assert_eq!(files(logs.path()), [file.path]);
    }
}

#[test]
fn one_file_is_kept_of_a_server_that_sends_and_writes() {
    for own_name in [false, true] {
        let server = Fake::new(move |asked| {
            let host = if own_name { "node-7" } else { &asked.host_name };
            fs::write(place(asked, host), xspace(5)).unwrap();
            Ok(with_xspace(xspace(5)))
        })
        .start();
        let logs = tempfile::tempdir().unwrap();
        let (report, _) = observed(&request(&[&server.address], logs.path()));
        let file = captured(&report);
        assert_eq!((file.events, file.path.exists()), (5, true));
        assert_eq!(files(logs.path()), [file.path]);
    }
    // What it wrote is cut: the answer counts.
    let server = Fake::new(|asked| {
        let whole = xspace(5);
        fs::write(place(asked, &asked.host_name), &whole[..20]).unwrap();
        Ok(with_xspace(whole))
    })
    .start();
    let logs = tempfile::tempdir().unwrap();
    let (report, _) = observed(&request(&[&server.address], logs.path()));
    let file = captured(&report);
    assert_eq!(fs::read(&file.path).unwrap(), xspace(5));
    assert_eq!(files(logs.path()), [file.path]);
}

#[test]
fn a_trace_without_events_is_reported_as_empty() {
    let plane = message(1, &message(2, b"/host:metadata"));
    let content = plane.clone();
    let server = Fake::sends(content).start();
    let logs = tempfile::tempdir().unwrap();
    let (report, events) = observed(&request(&[&server.address], logs.path()));
    let file = captured(&report);
    assert_eq!(
        (file.events, file.empty, file.bytes),
        (0, true, plane.len() as u64)
    );
    let host = server.address.clone();
    assert!(events.contains(&CaptureEvent::Empty { host }));

    // What a server says about that is not believed, either way.
    let lies = Fake::new(|_| {
        Ok(ProfileResponse {
            empty_trace: true,
            ..with_xspace(xspace(1))
        })
    })
    .start();
    let (report, _) = observed(&request(&[&lies.address], logs.path()));
    assert_eq!(
        (captured(&report).events, captured(&report).empty),
        (1, false)
    );
}

#[test]
fn no_data_anywhere_is_a_failure_that_leaves_nothing() {
    for empty_trace in [true, false] {
        let server = Fake::new(move |_| {
            Ok(ProfileResponse {
                empty_trace,
                ..ProfileResponse::default()
            })
        })
        .start();
        let logs = tempfile::tempdir().unwrap();
        let (report, _) = observed(&request(&[&server.address], logs.path()));
        let failed = failure(&report);
        assert_eq!(failed.stage, CaptureStage::WroteNothing, "{failed}");
        assert_eq!(names(logs.path()), [""; 0], "no folder is left");
    }
}

#[test]
fn messages_of_the_program_in_its_trace_become_warnings() {
    let mut content = xspace(1);
    content.extend(message(3, b"only 7 of 9 events were kept\x1b[2J"));
    content.extend(message(2, b"no GPU"));
    let server = Fake::sends(content).start();
    let logs = tempfile::tempdir().unwrap();
    let (report, _) = observed(&request(&[&server.address], logs.path()));
    let warnings = captured(&report).warnings;
    assert_eq!(
        warnings,
        [
            "the program says 'no GPU'",
            "the program says 'only 7 of 9 events were kept [2J'"
        ]
    );
}

#[test]
fn a_damaged_trace_is_kept_and_reported_as_damaged() {
    let whole = xspace(10);
    let cut = [xspace(2), whole[..whole.len() - 3].to_vec()].concat();
    let server = Fake::sends(cut.clone()).start();
    let logs = tempfile::tempdir().unwrap();
    let (report, _) = observed(&request(&[&server.address], logs.path()));
    let file = captured(&report);
    assert_eq!(fs::read(file.path).unwrap(), cut);
    assert!(file.warnings[0].contains("damaged"), "{:?}", file.warnings);

    let nonsense = Fake::sends(b"<html>404</html>".to_vec()).start();
    let (report, _) = observed(&request(&[&nonsense.address], logs.path()));
    assert_eq!(failure(&report).stage, CaptureStage::NotAProfiler);
}

#[test]
fn servers_of_others_send_no_time() {
    let server = Fake::sends(xspace(1)).start();
    assert_eq!(read_clock(&server.address, PATIENCE).unwrap(), None);
    let failed = read_clock("127.0.0.1:1", PATIENCE).unwrap_err();
    assert_eq!(failed.stage, CaptureStage::Refused, "{failed}");
}

#[test]
fn hosts_share_a_session_and_a_start() {
    let servers = [
        Fake::sends(xspace(1)).start(),
        Fake::sends(xspace(2)).start(),
    ];
    let logs = tempfile::tempdir().unwrap();
    let both = format!("{},{}", servers[0].address, servers[1].address);
    // Once more, in another way: each is asked once.
    let again = format!("grpc://{}", servers[0].address);
    let (report, _) = observed(&request(&[&both, &again], logs.path()));
    assert_eq!(report.hosts.len(), 2);
    assert!(report.all_ok());
    let mut expected = servers.each_ref().map(super::fake::Running::file_name);
    expected.sort();
    assert_eq!(names(&report.folder), expected);
    let starts = servers.each_ref().map(|server| {
        let seen = server.seen.profiles.lock().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].session_id, report.session);
        seen[0].opts.as_ref().unwrap().start_timestamp_ns
    });
    assert_eq!(starts[0], starts[1]);
    assert!(starts[0] > 0);
}

#[test]
fn captures_in_one_second_are_two_runs_and_nothing_is_replaced() {
    let server = Fake::sends(xspace(1)).start();
    let logs = tempfile::tempdir().unwrap();
    let plain = request(&[&server.address], logs.path());
    // The names of the next minutes are taken: whenever a capture begins, it is not the first one of its second.
    let profiles = logs.path().join("plugins/profile");
    let now_ns = stepscope_model::clock::unix_now_ns();
    let taken: BTreeSet<_> = (0..600)
        .map(|second| session_name_at(now_ns + second * 1_000_000_000))
        .collect();
    for name in &taken {
        fs::create_dir_all(profiles.join(name)).unwrap();
    }
    let (first, _) = observed(&plain);
    let (second, _) = observed(&plain);
    assert_ne!(first.session, second.session);
    for report in [first, second] {
        let (time, number) = report.session.rsplit_once('_').unwrap();
        assert!(taken.contains(time) && number >= "2", "{}", report.session);
        assert_eq!(names(&report.folder), [server.file_name()]);
        assert_eq!(names(&profiles.join(time)), [""; 0]);
    }

    let named = CaptureRequest {
        session: Some("x".to_owned()),
        ..plain
    };
    let (report, _) = observed(&named);
    let file = captured(&report);
    fs::write(&file.path, b"precious").unwrap();
    let (again, _) = observed(&named);
    let failed = failure(&again);
    assert_eq!(failed.stage, CaptureStage::Failed);
    assert!(
        failed.message.contains("choose another session"),
        "{failed}"
    );
    assert_eq!(fs::read(&file.path).unwrap(), b"precious");
    // The program was not bothered for what could not be kept.
    assert_eq!(server.seen.profiles.lock().unwrap().len(), 3);
}

#[test]
fn the_past_is_asked_for_under_both_names() {
    for (snapshots, name) in [
        (Snapshots::NewName, "GetSnapshot"),
        (Snapshots::OldName, "GetSnapShot"),
    ] {
        let server = Fake::sends(xspace(6)).snapshots(snapshots).start();
        let logs = tempfile::tempdir().unwrap();
        let asked = CaptureRequest {
            interval: Interval::Last(Duration::from_secs(10)),
            ..request(&[&server.address], logs.path())
        };
        let (report, _) = observed(&asked);
        assert_eq!(captured(&report).events, 6);
        let seen = server.seen.snapshots.lock().unwrap();
        assert_eq!(*seen, [(name, Some("10000".to_owned()))]);
        assert!(server.seen.profiles.lock().unwrap().is_empty());
    }
}

#[test]
fn a_program_without_a_past_says_what_to_do() {
    let logs = tempfile::tempdir().unwrap();
    let past = |address: &str| CaptureRequest {
        interval: Interval::Last(Duration::from_secs(1)),
        ..request(&[address], logs.path())
    };
    let knows_none = Fake::sends(xspace(1)).start();
    let (report, _) = observed(&past(&knows_none.address));
    let failed = failure(&report);
    assert_eq!(failed.stage, CaptureStage::Failed);
    assert!(failed.message.contains("--duration-ms"), "{failed}");

    let keeps_none = Fake::new(|_| Err(Status::not_found("No profiling session.")))
        .snapshots(Snapshots::NewName)
        .start();
    let (report, _) = observed(&past(&keeps_none.address));
    assert!(failure(&report).message.contains("keep_last"));
    assert_eq!(names(logs.path()), [""; 0]);
}

#[test]
fn empty_and_busy_hosts_are_asked_again() {
    let times = AtomicUsize::new(0);
    let server = Fake::new(move |_| match times.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(with_xspace(message(1, &[]))),
        1 => Err(Status::internal("Another profiling session active.")),
        _ => Ok(with_xspace(xspace(8))),
    })
    .start();
    let logs = tempfile::tempdir().unwrap();
    let asked = CaptureRequest {
        retries: 5,
        ..request(&[&server.address], logs.path())
    };
    let (report, events) = observed(&asked);
    assert_eq!(captured(&report).events, 8);
    assert_eq!(server.seen.profiles.lock().unwrap().len(), 3);
    let retrying = |attempt| CaptureEvent::Retrying { attempt };
    let retries: Vec<_> = events
        .iter()
        .filter(|event| matches!(event, CaptureEvent::Retrying { .. }))
        .collect();
    assert_eq!(retries, [&retrying(1), &retrying(2)]);
    assert_eq!(files(logs.path()).len(), 1);
}

#[test]
fn an_answer_of_300_megabytes_arrives() {
    let events = 300_000_000 / 16;
    let server = Fake::sends(xspace(events)).start();
    let logs = tempfile::tempdir().unwrap();
    let (report, _) = observed(&request(&[&server.address], logs.path()));
    let file = captured(&report);
    assert_eq!(file.events, events as u64);
    assert_eq!(fs::metadata(file.path).unwrap().len(), file.bytes);
    assert!(file.bytes > 300_000_000);
}
