//! Files that Neuron packs into an `XSpace`.

use std::sync::Arc;

use serde_json::{Value, json};
use stepscope_formats::probe::Probe;
use stepscope_formats::xspace::neuron_archive::{Unpacked, unpack};
use stepscope_model::{ReadContext, SharedBytes, TrackKind};

use super::encoder::Message;
use stepscope_test_data::{self as traces, Corpus, corpus_tests};

/// 2024, nanoseconds.
const START: i64 = 1_729_888_371_056_597_613;

fn metadata(field: u64, id: i64, name: &str) -> Message {
    let item = Message::new().int(1, id).bytes(2, name);
    Message::new().message(field, &Message::new().int(1, id).message(2, &item))
}

fn text_stat(id: i64, text: &str) -> Message {
    Message::new().int(1, id).bytes(5, text)
}

/// A plane with events that hold JSON, and perhaps the time that they begin at.
fn plane(name: &str, start: Option<i64>, rows: &[&str]) -> Message {
    let mut line = Message::new().int(1, 0).bytes(2, "nc0");
    for row in rows {
        line = line.message(4, &Message::new().int(1, 1).message(4, &text_stat(1, row)));
    }
    let mut plane = Message::new()
        .bytes(2, name)
        .message(3, &line)
        .raw(&metadata(4, 1, "x").0)
        .raw(&metadata(5, 1, "record").0)
        .raw(&metadata(5, 2, "displayTimeUnit").0)
        .raw(&metadata(5, 3, "neuronStartTimestampNs").0)
        .message(6, &text_stat(2, "ns"));
    if let Some(start) = start {
        plane = plane.message(6, &Message::new().int(1, 3).int(3, start));
    }
    plane
}

/// The host's plane: one slice of 5 µs at `start_ns`, with an argument.
fn host(start_ns: i64) -> Message {
    let event = Message::new()
        .int(1, 1)
        .int(3, 5_000_000)
        .message(4, &Message::new().int(1, 1).int(4, 7));
    Message::new()
        .bytes(2, "/host:CPU")
        .message(
            3,
            &Message::new()
                .int(1, 9)
                .bytes(2, "python3")
                .int(3, start_ns)
                .message(4, &event),
        )
        .raw(&metadata(4, 1, "StepMarker").0)
        .raw(&metadata(5, 1, "step_num").0)
}

fn space(planes: &[Message]) -> Vec<u8> {
    planes
        .iter()
        .fold(Message::new(), |space, plane| space.message(1, plane))
        .0
}

fn trace_of(found: &Unpacked) -> Value {
    assert_eq!(found.files[0].name, "neuron_trace.json");
    serde_json::from_slice(&found.files[0].json).unwrap()
}

const TRACE: &str =
    "/host:Neuron-runtime:profile//ab_0/model1/node1/plugins/neuron/17/neuron_trace.json";
const ROW: &str =
    r#"{"name":"NeuronDevice Execution","ph":"X","pid":"nc0","tid":"nrt","ts":10.5,"dur":3}"#;

#[test]
fn device_and_host_are_on_one_axis() {
    // The host begins 1 µs before the device's zero.
    let found = unpack(&space(&[
        plane(TRACE, Some(START), &[ROW]),
        host(START - 1_000),
    ]))
    .unwrap();
    assert_eq!((found.device_rows, found.host_rows), (1, 1));
    assert_eq!(found.notes, Vec::<String>::new());
    let trace = trace_of(&found);
    assert_eq!(trace["neuronStartTimestampNs"], json!(START - 1_000));
    assert_eq!(trace["displayTimeUnit"], "ns");
    let rows = trace["traceEvents"].as_array().unwrap();
    assert_eq!(rows[0]["name"], "StepMarker");
    assert_eq!(rows[0]["tid"], "python3#9");
    assert_eq!(rows[0]["args"], json!({"step_num": 7}));
    assert_eq!(
        (&rows[0]["ts"], &rows[0]["dur"]),
        (&json!(0.0), &json!(5.0))
    );
    assert_eq!(rows[1]["ts"], json!(11.5));
    assert_eq!(rows[1]["pid"], "nc0");
}

#[test]
fn lines_of_the_runtime_are_queues_of_cores() {
    let file = space(&[plane(TRACE, Some(START), &[ROW]), host(START)]);
    let mut probe = Probe::new();
    let bytes: SharedBytes = Arc::new(file);
    stepscope_formats::xspace::read(&bytes, &ReadContext::default(), &mut probe).unwrap();
    let track = |slice: &str| {
        let slice = probe.slices.iter().find(|found| found.name == slice);
        probe.find_track(&slice.unwrap().track).unwrap()
    };
    let (core, thread) = (track("x"), track("StepMarker"));
    assert_eq!((core.kind, core.device), (TrackKind::DeviceQueue, Some(0)));
    assert_eq!((thread.kind, thread.device), (TrackKind::Thread, None));
}

#[test]
fn an_unknown_start_time_is_reported() {
    let found = unpack(&space(&[plane(TRACE, None, &[ROW]), host(START)])).unwrap();
    assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
    assert!(found.notes[0].contains("neuronStartTimestampNs"));
    let rows = trace_of(&found);
    // Both begin together.
    assert_eq!(rows["traceEvents"][0]["ts"], json!(0.0));
    assert_eq!(rows["traceEvents"][1]["ts"], json!(10.5));
}

#[test]
fn operators_are_files_of_their_capture() {
    let base = "/host:Neuron-runtime:profile//ab_0/model1/node2/plugins/neuron/17/";
    let table = |name: &str| {
        Message::new()
            .bytes(2, format!("{base}{name}"))
            .raw(&metadata(5, 1, "op_0").0)
            .raw(&metadata(5, 2, "total_time").0)
            .message(6, &text_stat(1, r#"{"name":"aten__addmm_dot","time":279}"#))
            .message(6, &Message::new().int(1, 2).int(3, 714))
    };
    let found = unpack(&space(&[
        plane(
            &format!("{base}neuron_op_timeline.json"),
            Some(START),
            &[ROW, "no JSON"],
        ),
        table("neuron_hlo_op.json"),
        table("neuron_framework_op.json"),
    ]))
    .unwrap();
    let names: Vec<_> = found
        .files
        .iter()
        .map(|file| (file.capture.as_str(), file.name.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("ab_0_model1_node2", "neuron_op_timeline.json"),
            ("ab_0_model1_node2", "neuron_hlo_op.json"),
            ("ab_0_model1_node2", "neuron_framework_op.json"),
        ]
    );
    let timeline: Value = serde_json::from_slice(&found.files[0].json).unwrap();
    // As it came.
    assert_eq!(
        timeline["traceEvents"],
        json!([serde_json::from_str::<Value>(ROW).unwrap()])
    );
    assert!(
        found.notes[0].starts_with("1 device events"),
        "{:?}",
        found.notes
    );
    let table: Value = serde_json::from_slice(&found.files[1].json).unwrap();
    assert_eq!(
        table,
        json!({"op_0": {"name": "aten__addmm_dot", "time": 279}, "total_time": 714})
    );
}

#[test]
fn without_neuron_there_is_the_host() {
    let found = unpack(&space(&[host(START)])).unwrap();
    assert_eq!((found.device_rows, found.host_rows), (0, 1));
    assert_eq!(trace_of(&found)["traceEvents"].as_array().unwrap().len(), 1);
    assert_eq!(unpack(&[]).unwrap(), Unpacked::default());
}

#[test]
fn cut_anywhere_it_is_json_or_an_error() {
    let whole = space(&[plane(TRACE, Some(START), &[ROW, ROW]), host(START)]);
    for end in 0..whole.len() {
        if let Ok(found) = unpack(&whole[..end]) {
            for file in found.files {
                serde_json::from_slice::<Value>(&file.json).unwrap();
            }
        }
    }
}

corpus_tests!(unpacked_capture_has_all_rows,);

fn unpacked_capture_has_all_rows(corpus: &Corpus) {
    let folder = corpus.folder();
    let run = folder.join("neuron_like/two_cores");
    let path = run.join("plugins/profile/2024_10_25_20_32_51/ip-10-0-0-1.xplane.pb");
    let truth: Value = serde_json::from_slice(&traces::bytes(&run.join("truth.json"))).unwrap();
    let found = unpack(&traces::bytes(&path)).unwrap();
    assert_eq!(json!(found.device_rows), truth["device_events"]);
    assert_eq!(json!(found.host_rows), truth["host_events"]);
    let trace = trace_of(&found);
    let sum = |name: &str| {
        trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["name"] == name)
            .filter_map(|row| row["dur"].as_f64())
            .sum::<f64>()
    };
    for (name, total) in [
        ("NeuronDevice Execution", "device_execution_total_us"),
        ("StepMarker", "step_marker_total_us"),
    ] {
        let expected = truth[total].as_f64().unwrap();
        assert!(
            (sum(name) - expected).abs() < 0.1,
            "{name}: {} {expected}",
            sum(name)
        );
    }
}
