//! Exports of Nsight Systems: figures that SQLite computes over the same files, arguments, and damage.

mod damage;
mod figures;

use std::sync::Arc;

use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Limits, ReadContext, SharedBytes, TrackKind};

use stepscope_test_data::{self as traces, Corpus};

/// The exports in the repository, which `tests/peers/nsight_export.py` writes.
const EXPORTS: [&str; 2] = ["current", "early"];

fn export(name: &str) -> Vec<u8> {
    traces::bytes(&Corpus::committed().path(&format!("nsight/{name}.sqlite")))
}

fn emitted_with(bytes: &[u8], context: &ReadContext) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    read(Format::NsightSystems, &bytes, context, &mut probe)?;
    Ok(probe)
}

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    emitted_with(bytes, &ReadContext::default())
}

#[test]
fn rows_are_threads_streams_and_groups() {
    let probe = emitted(&export("current")).unwrap();
    let track = |key: &str| probe.find_track(key).unwrap();
    let main = track("4242/4242");
    assert_eq!(
        (main.name.as_str(), main.kind),
        ("train 4242", TrackKind::Thread)
    );
    assert_eq!((main.pid, main.tid), (Some(4242), Some(4242)));
    assert_eq!(main.parent.as_deref(), Some("4242"));
    assert_eq!(track("4242").name, "train (4242)");
    let stream = track("4242/gpu:1/stream:20");
    assert_eq!(stream.name, "stream 20");
    assert_eq!(stream.kind, TrackKind::DeviceQueue);
    assert_eq!((stream.device, stream.stream), (Some(1), Some(20)));
    let device = track("4242/gpu:1");
    assert_eq!(device.name, "GPU 1 (NVIDIA A100-SXM4-40GB)");
    assert_eq!(track("4242/4242/sampled").name, "train 4242 (sampled)");
    assert_eq!(track("4242/ranges").kind, TrackKind::Async);
    let metric = track("gpu:1/metric/100000000000001/1");
    assert_eq!(metric.name, "GPU 1: SMs Active [Throughput %]");
    assert_eq!(metric.unit.as_deref(), Some("%"));
}

#[test]
fn facts_describe_machine_devices_and_versions_but_no_environment() {
    let probe = emitted(&export("current")).unwrap();
    for (key, value) in [
        ("kind", "Str(\"Nsight\")"),
        ("host", "Str(\"node7\")"),
        ("processor", "Str(\"EPYC\")"),
        ("processors", "Int(64)"),
        ("command", "Str(\"python train.py\")"),
        ("nsys_version", "Str(\"2025.6.1.190\")"),
        ("device.1.name", "Str(\"NVIDIA A100-SXM4-40GB\")"),
        ("device.0.memory_bytes", "Int(42297524224)"),
        ("device.0.memory_bandwidth", "Int(1555200000000)"),
        ("device.0.clock_rate", "Int(1410000)"),
    ] {
        let found = probe.facts.iter().find(|(own, _)| own == key);
        assert!(
            found.is_some_and(|(_, found)| found == value),
            "{key}: {found:?}"
        );
    }
    let secret = probe
        .facts
        .iter()
        .find(|(_, value)| value.contains("secret"));
    assert_eq!(secret, None);
    let epoch = probe.epoch.unwrap();
    assert_eq!(epoch.unix_ns, Some(1_700_000_000_000_000_000));
}

#[test]
fn arguments_have_the_names_of_torchs_profiler() {
    let bytes: SharedBytes = Arc::new(export("current"));
    let probe = emitted((*bytes).as_ref()).unwrap();
    let fresh = arg_source(Format::NsightSystems, &bytes, &ReadContext::default()).unwrap();
    let check = |category: &str, expected: &[(&str, &str)]| {
        let slice = probe.slices.iter().find(|slice| slice.category == category);
        let args = probe.args(slice.unwrap().args);
        for (key, value) in expected {
            let found = args.iter().find(|(own, _)| own == key);
            assert!(
                found.is_some_and(|(_, found)| found == value),
                "{key}: {args:?}"
            );
        }
        // A source that has not read the file finds the same.
        let mut keys = Vec::new();
        let (_, token) = slice.unwrap().args.get().unwrap();
        fresh
            .visit(token, &mut |key, _| keys.push(key.to_owned()))
            .unwrap();
        assert_eq!(
            keys,
            args.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
        );
    };
    check(
        "kernel",
        &[
            ("grid", "Json(\"[128, 2, 1]\")"),
            ("block", "Json(\"[128, 1, 1]\")"),
            ("registers per thread", "Int(33)"),
            ("shared memory", "Int(1280)"),
            ("stream", "Int(7)"),
            ("mangled name", "Str(\"_Zvectorized_elementwise_kernel\")"),
        ],
    );
    check(
        "gpu_memcpy",
        &[
            ("bytes", "Int(1048576)"),
            ("copy kind", "Str(\"HtoD\")"),
            ("source memory", "Str(\"Pinned\")"),
        ],
    );
    check(
        "gpu_memset",
        &[("bytes", "Int(65536)"), ("memory", "Str(\"Device\")")],
    );
    check(
        "cuda_sync",
        &[
            ("cuda_sync_kind", "Str(\"Stream Sync\")"),
            ("stream", "Int(7)"),
        ],
    );
    let range = |name: &str| {
        let slice = probe.slices.iter().find(|slice| slice.name == name);
        probe.args(slice.unwrap().args)
    };
    let nccl = range("ncclAllReduce");
    assert!(
        nccl.contains(&("domain".to_owned(), "Str(\"NCCL\")".to_owned())),
        "{nccl:?}"
    );
    assert!(nccl.contains(&("uint64Value".to_owned(), "Int(4096)".to_owned())));
    let backward = range("backward");
    assert!(backward.contains(&("category".to_owned(), "Str(\"io\")".to_owned())));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for name in EXPORTS {
        let bytes = export(name);
        let with = |threads: usize| {
            let mut context = ReadContext::default();
            context.threads = threads;
            let mut probe = emitted_with(&bytes, &context).unwrap();
            let key = |slice: &stepscope_formats::probe::ProbeSlice| {
                (slice.track.clone(), slice.start_ps, slice.args.to_bits())
            };
            probe.slices.sort_by_key(key);
            (probe.slices, probe.tracks, probe.samples, probe.diagnostics)
        };
        assert_eq!(with(1), with(4), "{name}");
    }
}

#[test]
fn rows_are_bounded_by_the_limit_on_tracks() {
    let limits = Limits {
        max_tracks: 3,
        ..Limits::default()
    };
    for threads in [1, 4] {
        let mut context = ReadContext::new(limits);
        context.threads = threads;
        let probe = emitted_with(&export("early"), &context).unwrap();
        assert!(probe.tracks.len() <= 3, "{:?}", probe.tracks);
        assert!(probe.count(stepscope_model::Diagnostic::LimitReached) > 0);
    }
}

#[test]
fn a_cancelled_read_ends() {
    let context = ReadContext::default();
    context.cancel();
    let answer = emitted_with(&export("early"), &context);
    assert!(matches!(answer, Err(FormatError::Cancelled)));
}
