//! What each kind of entry becomes.

use stepscope_model::{Diagnostic, FlowBind, SliceFlags, TrackKind};

use super::{open, read, shared};
use stepscope_test_data::Corpus;

#[test]
fn begins_and_ends_pair_in_any_order_of_the_file() {
    let events = [
        r#"{"ph":"B","name":"a","cat":"c","pid":1,"tid":1,"ts":1,"args":{"in":1}}"#,
        r#"{"ph":"B","name":"b","pid":1,"tid":1,"ts":2}"#,
        r#"{"ph":"E","pid":1,"tid":1,"ts":3,"args":{"out":2}}"#,
        r#"{"ph":"E","name":"a","pid":1,"tid":1,"ts":4,"args":{"done":true}}"#,
        r#"{"ph":"E","pid":1,"tid":1,"ts":5}"#,
        r#"{"ph":"B","name":"open","pid":1,"tid":1,"ts":6}"#,
        r#"{"ph":"i","name":"last","pid":1,"tid":1,"ts":9}"#,
    ];
    let mut backwards = events;
    backwards.reverse();
    for events in [events, backwards] {
        let probe = read(format!("[{}]", events.join(",")));
        let origin_ps = probe.epoch.unwrap().origin_ns * 1_000;
        let mut found: Vec<_> = probe
            .slices
            .iter()
            .map(|slice| {
                let args = probe.args(slice.args);
                let keys: Vec<_> = args.iter().map(|arg| arg.0.clone()).collect();
                (
                    slice.name.as_str(),
                    slice.start_ps + origin_ps,
                    slice.dur_ps,
                    slice.flags,
                    keys.join(" "),
                )
            })
            .collect();
        found.sort_by_key(|slice| slice.1);
        assert_eq!(
            found,
            [
                ("a", 1_000_000, 3_000_000, 0, "in done".to_owned()),
                ("b", 2_000_000, 1_000_000, 0, "out".to_owned()),
                (
                    "open",
                    6_000_000,
                    3_000_000,
                    SliceFlags::UNFINISHED.0,
                    String::new()
                ),
            ]
        );
        assert_eq!(probe.count(Diagnostic::UnmatchedEnd), 1);
        assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 1);
    }
}

#[test]
fn arguments_of_ends_are_found_without_having_read_the_file() {
    let text = r#"[{"ph":"B","name":"a","pid":1,"tid":1,"ts":1,"args":{"in":1}},{"ph":"E","pid":1,"tid":1,"ts":4,"args":{"out":2},"tts":3}]"#;
    let bytes = shared(text);
    let source = stepscope_formats::chrome_json::arg_source(
        &bytes,
        &stepscope_model::ReadContext::default(),
    )
    .unwrap();
    let mut found = Vec::new();
    let token = read(text).slices[0].args.get().unwrap().1;
    source
        .visit(token, &mut |key, _| found.push(key.to_owned()))
        .unwrap();
    assert_eq!(found, ["in", "out", "tts"]);
    assert!(source.visit(5, &mut |_, _| ()).is_err());
    assert!(source.visit(u64::MAX, &mut |_, _| ()).is_err());
}

#[test]
fn an_end_closes_the_begin_of_its_name() {
    let probe = read(
        r#"[{"ph":"B","name":"outer","pid":1,"tid":1,"ts":1},{"ph":"B","name":"lost","pid":1,"tid":1,"ts":2},
        {"ph":"E","name":"outer","pid":1,"tid":1,"ts":5},{"ph":"E","name":"unknown","pid":1,"tid":1,"ts":6}]"#,
    );
    let found: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| (slice.name.as_str(), slice.dur_ps, slice.flags))
        .collect();
    assert_eq!(found, [("outer", 4_000_000, 0), ("lost", 3_000_000, 1)]);
    assert_eq!(probe.count(Diagnostic::UnmatchedEnd), 1);
}

#[test]
fn async_events_get_tracks_of_their_own() {
    let probe = read(
        r#"[{"ph":"b","name":"req","cat":"net","id":"0x1","pid":1,"tid":1,"ts":0},
        {"ph":"b","name":"req","cat":"net","id":"0x2","pid":1,"tid":9,"ts":5},
        {"ph":"b","name":"parse","cat":"net","id":"0x1","pid":1,"tid":1,"ts":6},
        {"ph":"n","name":"byte","cat":"net","id":"0x1","pid":1,"tid":1,"ts":7},
        {"ph":"e","name":"parse","cat":"net","id":"0x1","pid":1,"tid":1,"ts":8},
        {"ph":"e","name":"req","cat":"net","id":"0x1","pid":1,"tid":1,"ts":10},
        {"ph":"e","name":"req","cat":"net","id":"0x2","pid":1,"tid":1,"ts":12},
        {"ph":"S","name":"old","cat":"net","id":7,"pid":1,"tid":1,"ts":20},
        {"ph":"F","name":"old","cat":"net","id":7,"pid":1,"tid":2,"ts":22},
        {"ph":"b","name":"req","cat":"net","id":"0x3","pid":1,"tid":1,"ts":30}]"#,
    );
    let found: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| {
            (
                slice.track.as_str(),
                slice.name.as_str(),
                slice.dur_ps / 1_000_000,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("1/async/net/req", "req", 10),
            ("1/async/net/req", "parse", 2),
            ("1/async/net/req#2", "req", 7),
            ("1/async/net/old", "old", 2),
            ("1/async/net/req", "req", 0),
        ]
    );
    assert_eq!(probe.instants[0].track, "1/async/net/req");
    assert!(
        probe
            .tracks
            .iter()
            .filter(|track| track.key.contains("async"))
            .all(|track| track.kind == TrackKind::Async)
    );
    assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 1);
}

#[test]
fn counters_have_a_track_for_each_series() {
    let probe = read(
        r#"[{"ph":"C","name":"mem","pid":1,"ts":1,"args":{"used":3,"free":4.5,"what":"x"}},
        {"ph":"C","name":"mem","id":"gpu0","pid":1,"ts":2,"args":{"mem":"7"}},
        {"ph":"C","name":"mem","pid":1,"ts":3,"args":{"used":NaN}},{"ph":"C","name":"mem","pid":1,"ts":3}]"#,
    );
    let expected = [
        ("1/counter/mem/used".to_owned(), 0, 3.0),
        ("1/counter/mem/free".to_owned(), 0, 4.5),
        ("1/counter/mem[gpu0]/mem".to_owned(), 1_000_000, 7.0),
    ];
    assert_eq!(probe.samples, expected);
    assert_eq!(probe.count(Diagnostic::BadCounterValue), 3);
    let track = probe.find_track("1/counter/mem/used").unwrap();
    assert_eq!(
        (track.name.as_str(), track.kind),
        ("mem used", TrackKind::Counter)
    );
    assert_eq!(track.parent.as_deref(), Some("1"));
}

#[test]
fn flows_keep_their_ids_ways_and_bindings() {
    let probe = read(
        r#"[{"ph":"s","name":"n","cat":"ac2g","id":7,"pid":1,"tid":1,"ts":1},
        {"ph":"t","name":"n","cat":"ac2g","id":"7","pid":1,"tid":1,"ts":2},
        {"ph":"f","name":"n","cat":"ac2g","id":"0x7","pid":1,"tid":1,"ts":3,"bp":"e"},
        {"ph":"f","name":"n","id":"seven","pid":1,"tid":1,"ts":3},
        {"ph":"f","name":"n","id":"seven","scope":"s","pid":1,"tid":1,"ts":3},
        {"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":1,"bind_id":"0x10","flow_out":true}]"#,
    );
    let found: Vec<_> = probe
        .flows
        .iter()
        .map(|flow| (flow.category.as_str(), flow.direction, flow.bind))
        .collect();
    let (enclosing, next) = (FlowBind::Enclosing as u8, FlowBind::Next as u8);
    assert_eq!(
        found,
        [
            ("ac2g", 0, enclosing),
            ("ac2g", 1, enclosing),
            ("ac2g", 2, enclosing),
            ("n", 2, next),
            ("n", 2, next)
        ]
    );
    assert!(probe.flows[..3].iter().all(|flow| flow.id == 7));
    assert_ne!(probe.flows[3].id, probe.flows[4].id);
    assert_eq!(probe.slices[0].flows, [("bind_id".to_owned(), 16, 0)]);
}

#[test]
fn arguments_come_in_order_and_as_what_they_are() {
    let probe = read(
        r#"[{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":1,"tts":5,"args":{"i":-3,"u":18446744073709551615,"d":1.5,"b":true,"s":"a\"b","n":null,"l":[1,{"k":2}],"nan":NaN},"s":"t"},
        {"ph":"X","name":"y","pid":1,"tid":1,"ts":1,"dur":1,"args":{ }},{"ph":"X","name":"z","pid":1,"tid":1,"ts":1,"dur":1,"args":null}]"#,
    );
    let args = probe.args(probe.slices[0].args);
    let shown: Vec<_> = args
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(
        shown,
        [
            "i=Int(-3)",
            "u=Uint(18446744073709551615)",
            "d=Double(1.5)",
            "b=Bool(true)",
            "s=Str(\"a\\\"b\")",
            "n=Json(\"null\")",
            "l=Json(\"[1,{\\\"k\\\":2}]\")",
            "nan=Double(NaN)",
            "tts=Int(5)",
            "s=Str(\"t\")"
        ]
    );
    assert!(probe.slices[1].args.is_none() && probe.slices[2].args.is_none());
}

#[test]
fn unix_time_is_found_wherever_it_stands() {
    let event = r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":1.5,"dur":1}"#;
    for text in [
        format!(r#"{{"baseTimeNanoseconds":1000,"traceEvents":[{event}]}}"#),
        format!(
            r#"{{"traceEvents":[{event}],"x":{{"y":[1]}},"baseTimeNanoseconds": 1000, "z":""}} "#
        ),
    ] {
        let epoch = read(text).epoch.unwrap();
        assert_eq!((epoch.origin_ns, epoch.unix_ns), (1_500, Some(2_500)));
    }
    // Inside something else it is no base.
    let nested = format!(r#"{{"traceEvents":[{event}],"x":{{"baseTimeNanoseconds":1000}}}}"#);
    assert_eq!(read(nested).epoch.unwrap().unix_ns, None);
    let old = r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1694128201435418,"dur":1}]"#;
    let epoch = read(old).epoch.unwrap();
    assert_eq!(epoch.unix_ns, Some(1_694_128_201_435_418_000));
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn torch_files_tell_devices_ranks_and_steps() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let probe = read(open(
        &folder.join("torch_gpu/a100_nccl_meta_rank0of2.json.gz"),
    ));
    let fact = |key: &str| {
        probe
            .facts
            .iter()
            .find(|fact| fact.0 == key)
            .map(|fact| fact.1.clone())
    };
    assert_eq!(fact("kind").as_deref(), Some("Str(\"PyTorch\")"));
    assert_eq!(fact("rank").as_deref(), Some("Int(0)"));
    assert_eq!(fact("world_size").as_deref(), Some("Int(2)"));
    assert_eq!(
        fact("device.0.name").as_deref(),
        Some("Str(\"NVIDIA A100-PG509-200\")")
    );
    assert_eq!(
        fact("device.0.memory_bytes").as_deref(),
        Some("Int(42297524224)")
    );
    assert_eq!(fact("deviceProperties"), None, "each device says its own");
    let epoch = probe.epoch.unwrap();
    assert_eq!(
        epoch.unix_ns,
        Some(epoch.origin_ns + 1_711_964_646_000_000_000)
    );
    let stream = probe.find_track("0/7").unwrap();
    assert_eq!(
        (stream.kind, stream.device, stream.stream),
        (TrackKind::DeviceQueue, Some(0), Some(7))
    );
    let host = probe.find_track("2910249/2910249").unwrap();
    assert_eq!(host.kind, TrackKind::Thread);
    assert_eq!(host.parent.as_deref(), Some("2910249"));

    let mtia = read(open(&folder.join("torch_gpu/mtia_inference.json.gz")));
    let queue = mtia.find_track("17/3774").unwrap();
    assert_eq!(
        (queue.kind, queue.device, queue.stream, queue.name.as_str()),
        (TrackKind::DeviceQueue, Some(17), Some(108), "Stream 108")
    );
    // No metadata at all: kernels' own arguments tell.
    let bare = read(open(
        &folder.join("neuron_like/two_cores/neuron_trace.json"),
    ));
    assert!(
        bare.facts
            .iter()
            .any(|fact| fact.0 == "kind" && fact.1.contains("NEURON"))
    );
    assert!(bare.epoch.unwrap().unix_ns.is_some());
    assert_eq!(bare.diagnostics, []);
}

#[test]
fn viztracer_says_when_it_lost_events_and_its_sources_are_no_loss() {
    let file = |overflow: bool| {
        let sources = "x".repeat(100_000);
        read(format!(
            r#"{{"traceEvents":[{{"ph":"X","cat":"fee","name":"f (a.py:3)","pid":1,"tid":1,"ts":1,"dur":2,
            "args":{{"func_args":{{"n":"7"}}}}}}],"viztracer_metadata":{{"overflow":{overflow},"version":"1.1.1"}},
            "file_info":{{"files":{{"a.py":["{sources}",3]}},"functions":{{}}}}}}"#
        ))
    };
    let probe = file(false);
    assert_eq!(probe.diagnostics, []);
    let keys: Vec<&str> = probe.facts.iter().map(|fact| &*fact.0).collect();
    assert!(keys.contains(&"viztracer_metadata") && !keys.contains(&"file_info"));
    assert_eq!(probe.args(probe.slices[0].args)[0].0, "func_args");
    assert_eq!(file(true).count(Diagnostic::DroppedByWriter), 1);
}
