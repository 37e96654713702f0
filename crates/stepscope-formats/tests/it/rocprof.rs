//! rocprofv3's JSON: what becomes of each record, and that no text does harm.

use std::sync::Arc;

use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, ReadContext, SharedBytes};

use stepscope_test_data::{self as traces, Corpus};

/// One process: two calls that launch a kernel and a copy, and a range.
const SMALL: &str = r#"{"rocprofiler-sdk-tool":[{
"metadata":{"node":{"id":0,"hostname":"node7"},"pid":42,"init_time":1000,"fini_time":9000,"command":["python","train.py"]},
"agents":[{"id":{"handle":1},"type":1,"name":"EPYC","product_name":"EPYC","logical_node_type_id":0},
          {"id":{"handle":2},"type":2,"name":"gfx950","product_name":"AMD Instinct MI350X","logical_node_type_id":3}],
"strings":{"buffer_records":[{"kind":"NONE","operations":[]},
    {"kind":"HIP_RUNTIME_API","operations":["hipInit","hipLaunchKernel","hipMemcpyAsync"]},
    {"kind":"MEMORY_COPY","operations":["NONE","MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind":"KERNEL_DISPATCH","operations":["NONE","ENQUEUE","COMPLETE"]}],
  "marker_api":[{"key":9,"value":"for\"ward"}]},
"kernel_symbols":[{"kernel_id":5,"kernel_name":"_Z3addPf.kd","formatted_kernel_name":"add(float*)","arch_vgpr_count":24,"accum_vgpr_count":8}],
"buffer_records":{
 "kernel_dispatch":[
  {"size":184,"kind":3,"operation":2,"thread_id":42,"correlation_id":{"internal":7,"external":0},"start_timestamp":3000,"end_timestamp":3500,
   "dispatch_info":{"size":72,"agent_id":{"handle":2},"queue_id":{"handle":16},"kernel_id":5,"dispatch_id":1,"private_segment_size":0,"group_segment_size":512,
   "workgroup_size":{"x":256,"y":1,"z":1},"grid_size":{"x":1000,"y":2,"z":1}},"stream_id":{"handle":4}},
  {"kind":3,"operation":2,"thread_id":42,"correlation_id":{"internal":8},"start_timestamp":4000,"end_timestamp":3900,
   "dispatch_info":{"agent_id":{"handle":2},"queue_id":{"handle":16},"kernel_id":77}},
  {"kind":3,"operation":2,"thread_id":42,"start_timestamp":0,"end_timestamp":0,"dispatch_info":{}}],
 "hip_api":[
  {"kind":1,"operation":1,"thread_id":42,"correlation_id":{"internal":7,"external":0},"start_timestamp":2000,"end_timestamp":2100},
  {"kind":1,"operation":2,"thread_id":43,"correlation_id":{"internal":10,"external":0},"start_timestamp":2200,"end_timestamp":2300}],
 "marker_api":[{"kind":6,"operation":0,"thread_id":42,"correlation_id":{"internal":9},"start_timestamp":1500,"end_timestamp":5000}],
 "memory_copy":[{"kind":2,"operation":1,"thread_id":43,"correlation_id":{"internal":10},"start_timestamp":2500,"end_timestamp":2600,
   "src_agent_id":{"handle":1},"dst_agent_id":{"handle":2},"bytes":4096}]
}}]}"#;

fn emitted(text: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(text.to_vec());
    let mut probe = Probe::new();
    read(
        Format::RocprofJson,
        &bytes,
        &ReadContext::default(),
        &mut probe,
    )?;
    Ok(probe)
}

#[test]
fn every_record_becomes_a_slice() {
    let probe = emitted(SMALL.as_bytes()).unwrap();
    assert_eq!(probe.epoch.unwrap().origin_ns, 1_000);
    let slices: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| {
            let (start, dur) = (slice.start_ps / 1_000, slice.dur_ps / 1_000);
            (
                slice.track.as_str(),
                start,
                dur,
                slice.name.as_str(),
                slice.category.as_str(),
            )
        })
        .collect();
    assert_eq!(
        slices,
        [
            ("42/gpu:3/queue:16", 2_000, 500, "add(float*)", "kernel"),
            ("42/gpu:3/queue:16", 3_000, 0, "kernel 77", "kernel"),
            ("42/thread:42", 1_000, 100, "hipLaunchKernel", "hip_runtime"),
            ("42/thread:43", 1_200, 100, "hipMemcpyAsync", "hip_runtime"),
            ("42/thread:42", 500, 3_500, "for\"ward", "user_annotation"),
            (
                "42/gpu:3/copies",
                1_500,
                100,
                "MEMORY_COPY_HOST_TO_DEVICE",
                "gpu_memcpy"
            ),
        ]
    );
    // A call and what it launched share a flow.
    let flows = |at: usize| probe.slices[at].flows.clone();
    assert_eq!(flows(0)[0].1, flows(2)[0].1);
    assert_eq!((flows(0)[0].2, flows(2)[0].2), (2, 0));
    assert_eq!(flows(3)[0].1, flows(5)[0].1);
    assert!(flows(4).is_empty());
    let track = probe.find_track("42/gpu:3/queue:16").unwrap();
    assert_eq!((track.device, track.stream), (Some(3), Some(16)));
    assert_eq!(track.parent.as_deref(), Some("42/gpu:3"));
    let group = probe.find_track("42/gpu:3").unwrap();
    assert_eq!(group.name, "GPU 3 (AMD Instinct MI350X)");
    for (what, count) in [
        (Diagnostic::BadTime, 1),
        (Diagnostic::NegativeDuration, 1),
        (Diagnostic::MissingMetadata, 1),
        (Diagnostic::Truncated, 0),
    ] {
        assert_eq!(probe.count(what), count, "{what:?}");
    }
    for fact in [
        ("host", "node7"),
        ("kind", "rocprofv3"),
        ("command", "python train.py"),
        ("device.3.name", "AMD Instinct MI350X"),
    ] {
        assert!(
            probe
                .facts
                .iter()
                .any(|(key, value)| key == fact.0 && *value == format!("Str({:?})", fact.1)),
            "{fact:?}: {:?}",
            probe.facts
        );
    }
}

#[test]
fn arguments_say_how_a_kernel_was_launched() {
    let probe = emitted(SMALL.as_bytes()).unwrap();
    let bytes: SharedBytes = Arc::new(SMALL.as_bytes().to_vec());
    let again = arg_source(Format::RocprofJson, &bytes, &ReadContext::default()).unwrap();
    let args = |at: usize| {
        let args = probe.args(probe.slices[at].args);
        // A source that has not read the file says the same.
        let mut said = Vec::new();
        let (_, token) = probe.slices[at].args.get().unwrap();
        again
            .visit(token, &mut |key, _| said.push(key.to_owned()))
            .unwrap();
        let keys: Vec<String> = args.iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(said, keys);
        args
    };
    let kernel = args(0);
    for (key, value) in [
        ("block", "Json(\"[256, 1, 1]\")"),
        ("grid", "Json(\"[4, 2, 1]\")"),
        ("shared memory", "Int(512)"),
        ("registers per thread", "Int(32)"),
        ("correlation", "Int(7)"),
        ("stream", "Int(4)"),
        ("queue", "Int(16)"),
    ] {
        let found = kernel.iter().find(|(own, _)| own == key);
        assert!(
            found.is_some_and(|(_, found)| found == value),
            "{key}: {kernel:?}"
        );
    }
    let copy = args(5);
    assert!(
        copy.iter()
            .any(|(key, value)| key == "bytes" && value == "Int(4096)"),
        "{copy:?}"
    );
}

#[test]
fn a_text_cut_anywhere_keeps_what_came_before() {
    let all = emitted(SMALL.as_bytes()).unwrap().slices.len();
    let mut most = 0;
    for end in 0..SMALL.len() {
        if let Ok(probe) = emitted(&SMALL.as_bytes()[..end]) {
            assert!(probe.slices.len() >= most, "at {end}");
            most = probe.slices.len();
            assert!(probe.count(Diagnostic::Truncated) + probe.count(Diagnostic::Unreadable) > 0);
        }
    }
    assert_eq!(most, all);
}

#[test]
fn no_damage_makes_it_panic() {
    let text = SMALL.as_bytes();
    for at in 0..text.len() {
        for bit in [0, 1, 4, 5] {
            let mut damaged = text.to_vec();
            damaged[at] ^= 1 << bit;
            let _ = emitted(&damaged);
        }
    }
    for text in [
        "",
        "{}",
        "[]",
        "{\"rocprofiler-sdk-tool\":[]}",
        "{\"rocprofiler-sdk-tool\":[1,null,[]]}",
        "{\"rocprofiler-sdk-tool\":7}",
        "{\"rocprofiler-sdk-tool\":[{\"agents\":{},\"strings\":[],\"buffer_records\":[]}]}",
        "{\"rocprofiler-sdk-tool\":[{\"buffer_records\":{\"kernel_dispatch\":{\"a\":1},\"x\":[[[[1]]],{}]}}]}",
        "{\"rocprofiler-sdk-tool\":[{\"buffer_records\":{\"hip_api\":[{\"start_timestamp\":18446744073709551615,\"end_timestamp\":1}]}}]}",
    ] {
        let _ = emitted(text.as_bytes());
    }
}

#[test]
fn rows_are_bounded() {
    let bytes: SharedBytes = Arc::new(SMALL.as_bytes().to_vec());
    let limits = Limits {
        max_tracks: 2,
        ..Limits::default()
    };
    let mut probe = Probe::new();
    read(
        Format::RocprofJson,
        &bytes,
        &ReadContext::new(limits),
        &mut probe,
    )
    .unwrap();
    assert!(probe.tracks.len() <= 2);
    assert!(probe.count(Diagnostic::LimitReached) > 0);
}

#[test]
fn a_cancelled_reading_says_so() {
    let bytes: SharedBytes = Arc::new(SMALL.as_bytes().to_vec());
    let context = ReadContext::default();
    context.cancel();
    let answer = read(Format::RocprofJson, &bytes, &context, &mut Probe::new());
    assert!(matches!(answer, Err(FormatError::Cancelled)), "{answer:?}");
}

/// 43,915 dispatches of a training on eight devices, of which one was recorded.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn the_real_one_is_whole() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let packed = traces::bytes(&folder.join("torch_gpu/rocprofv3_kernels.json.gz"));
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut text).unwrap();
    let probe = emitted(&text).unwrap();
    assert_eq!(probe.slices.len(), 43_915);
    let sum: i64 = probe.slices.iter().map(|slice| slice.dur_ps).sum();
    let nccl = probe
        .slices
        .iter()
        .filter(|slice| slice.name.contains("ncclDevKernel_Generic_1"));
    assert_eq!(nccl.count(), 1_310);
    // To the nanosecond what TraceLens sums up.
    assert_eq!(sum, 4_441_741_378_000, "picoseconds");
    assert!(probe.diagnostics.is_empty(), "{:?}", probe.diagnostics);
}
