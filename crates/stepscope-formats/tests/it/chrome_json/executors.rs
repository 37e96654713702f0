//! Which tracks are threads of the host and which are queues of a device: categories decide, never
//! the numbers of processes and threads.

use std::collections::BTreeMap;

use stepscope_formats::probe::{Probe, ProbeTrack};
use stepscope_model::TrackKind;

use super::{read, read_with, shared};

/// What kineto writes of a program that is process `pid`: metadata of it and of GPUs 0 and 1, a
/// thread `tid` with an operator, a Python function and a launch, and a kernel on GPU `gpu`.
fn kineto(pid: i64, tid: i64, gpu: i64, stream: i64) -> String {
    let metadata = |name: &str, pid: i64, key: &str, value: &str| {
        format!(
            r#"{{"name":"{name}","ph":"M","ts":1,"pid":{pid},"tid":0,"args":{{"{key}":{value}}}}}"#
        )
    };
    let slice = |name: &str, cat: &str, (pid, tid): (i64, i64), ts: i64, args: &str| {
        format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":10,"args":{{{args}}}}}"#
        )
    };
    let flow = |phase: &str, (pid, tid): (i64, i64), ts: i64| {
        format!(
            r#"{{"ph":"{phase}","id":5,"pid":{pid},"tid":{tid},"ts":{ts},"cat":"ac2g","name":"ac2g","bp":"e"}}"#
        )
    };
    let host = (pid, tid);
    let device = (gpu, stream);
    let mut events = vec![
        metadata("process_name", pid, "name", "\"python\""),
        metadata("process_labels", pid, "labels", "\"CPU\""),
        metadata("process_sort_index", pid, "sort_index", &pid.to_string()),
    ];
    for gpu in 0..2 {
        events.push(metadata("process_name", gpu, "name", "\"python\""));
        events.push(metadata(
            "process_labels",
            gpu,
            "labels",
            &format!("\"GPU {gpu}\""),
        ));
        let index = (5_000_000 + gpu).to_string();
        events.push(metadata("process_sort_index", gpu, "sort_index", &index));
    }
    events.extend([
        slice("train.py(1): main", "python_function", host, 1000, ""),
        slice("aten::mm", "cpu_op", host, 1001, ""),
        slice(
            "cudaLaunchKernel",
            "cuda_runtime",
            host,
            1002,
            r#""correlation":5"#,
        ),
        flow("s", host, 1002),
        slice(
            "gemm",
            "kernel",
            device,
            1020,
            &format!(r#""device":{gpu},"stream":{stream}"#),
        ),
        flow("f", device, 1020),
        slice("train", "gpu_user_annotation", device, 1020, ""),
        slice("ProfilerStep#1", "user_annotation", host, 1000, ""),
    ]);
    let events = events.join(",");
    format!(r#"{{"schemaVersion":1,"traceEvents":[{events}]}}"#)
}

fn track_of<'a>(probe: &'a Probe, slice: &str) -> &'a ProbeTrack {
    let slice = probe.slices.iter().find(|found| found.name == slice);
    probe.find_track(&slice.unwrap().track).unwrap()
}

/// Each slice is on a track of its kind, and each track in a group of its own.
fn check(probe: &Probe, gpu: u32) {
    for name in [
        "train.py(1): main",
        "aten::mm",
        "cudaLaunchKernel",
        "ProfilerStep#1",
    ] {
        let track = track_of(probe, name);
        assert_eq!(
            (track.kind, track.device),
            (TrackKind::Thread, None),
            "{name}: {track:?}"
        );
        let group = probe.find_track(track.parent.as_deref().unwrap()).unwrap();
        assert_eq!((group.name.as_str(), group.device), ("python (CPU)", None));
    }
    for name in ["gemm", "train"] {
        let track = track_of(probe, name);
        assert_eq!(
            (track.kind, track.device),
            (TrackKind::DeviceQueue, Some(gpu)),
            "{name}"
        );
        let group = probe.find_track(track.parent.as_deref().unwrap()).unwrap();
        let title = format!("python (GPU {gpu})");
        assert_eq!(
            (group.name.as_str(), group.device),
            (title.as_str(), Some(gpu))
        );
    }
}

#[test]
fn a_program_that_is_process_1_is_not_gpu_1() {
    check(&read(kineto(1, 1, 0, 7)), 0);
    check(&read(kineto(1, 1, 1, 7)), 1);
}

#[test]
fn process_0_has_threads_and_a_device() {
    check(&read(kineto(0, 0, 0, 7)), 0);
}

#[test]
fn a_thread_and_a_stream_of_the_same_numbers_are_two_tracks() {
    for (pid, tid) in [(0, 0), (1, 1), (0, 7), (1, 20)] {
        let probe = read(kineto(pid, tid, pid, tid));
        check(&probe, u32::try_from(pid).unwrap());
        let by_direction: BTreeMap<u8, &str> = probe
            .flows
            .iter()
            .map(|flow| (flow.direction, flow.track.as_str()))
            .collect();
        assert_eq!(by_direction[&0], track_of(&probe, "cudaLaunchKernel").key);
        assert_eq!(by_direction[&2], track_of(&probe, "gemm").key);
    }
}

#[test]
fn shared_numbers_are_split_alike_by_any_number_of_threads() {
    let text = kineto(1, 7, 1, 7);
    let (head, event_list) = text.split_once("\"traceEvents\":[").unwrap();
    let events = event_list.strip_suffix("]}").unwrap();
    // More than one part for each of four threads.
    let many = vec![events; (20 << 20) / events.len()].join(",");
    let bytes = shared(format!("{head}\"traceEvents\":[{many}]}}"));
    let [one, four] = [1, 4].map(|threads| read_with(&bytes, threads).unwrap());
    check(&one, 1);
    assert_eq!(one.tracks.len(), four.tracks.len());
    assert_eq!(one.slices.len(), four.slices.len());
    let places = |probe: &Probe| {
        let flows = probe.flows.iter();
        flows.map(|flow| flow.track.clone()).collect::<Vec<_>>()
    };
    assert_eq!(places(&one), places(&four));
}
