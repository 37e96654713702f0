//! Busy, compute, communication and copies: equal to an independent slow reading (`counts.json`)
//! and to `TraceLens` wherever that links every kernel.

use std::path::{Path, PathBuf};
use stepscope_test_data::Corpus;

use serde_json::Value;
use stepscope_analysis::device::{Devices, Times, Work};
use stepscope_analysis::parallel::Cancel;
use stepscope_model::Dur;

use stepscope_test_data::runs;

/// Traces for which `TraceLens` leaves out kernels, because they have no CPU operator.
const NOT_ALL_LINKED: &[&str] = &[
    "h100_qwen",
    "mi300_qwen",
    "v100_diff_test_rank1of2",
    "mi300_resnet_act_ckpt_rank0of8",
    "a100_queue",
    "mi300_tracelens_replay",
    "mi300_xdit_sd35",
    "mi300_normalization",
    "dlrm_rank1",
    "dlrm_rank3",
];

/// Returns whether `TraceLens` leaves out kernels of this file.
pub(super) fn is_not_all_linked(name: &str) -> bool {
    NOT_ALL_LINKED.iter().any(|known| name.starts_with(known)) || name.starts_with("rocprofv3")
}

/// Computes the times of the one device of a trace, from its first work to its last.
fn whole(path: &Path) -> Option<(Times, [u64; 4])> {
    let runs = runs::open(path);
    let run = runs.first().unwrap_or_else(|| panic!("{}", path.display()));
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let device = devices.list.first()?;
    assert_eq!(devices.list.len(), 1, "{}", path.display());
    let times = devices.times_in(device, device.span.clone(), &cancel);
    Some((times.unwrap(), device.counts))
}

fn us(dur: Dur) -> f64 {
    dur.as_ns_f64() / 1e3
}

pub(super) fn truths(folder: &Path, file: &str) -> Vec<(PathBuf, PathBuf)> {
    stepscope_test_data::below(folder, |path| path.ends_with(file))
        .into_iter()
        .filter_map(|path| {
            let truth = path
                .ancestors()
                .find(|here| here.extension().is_some_and(|end| end == "truth"))?;
            Some((runs::trace_of(truth)?, path))
        })
        .collect()
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn unions_equal_an_independent_reading() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = 0;
    for (trace, truth) in truths(folder, "counts.json") {
        let json: Value = serde_json::from_str(&std::fs::read_to_string(truth).unwrap()).unwrap();
        let gpu = &json["gpu_all_devices_together"];
        let found = whole(&trace);
        if gpu.is_null() {
            // GPUs with names unknown to `TraceLens`.
            let known = ["mtia_inference", "a100_cupti_counters"]
                .iter()
                .any(|name| trace.to_string_lossy().contains(name));
            assert_eq!(found.is_some(), known, "{}", trace.display());
            continue;
        }
        let (times, counts) = found.unwrap_or_else(|| panic!("{}", trace.display()));
        // `TraceLens` computes in floating point, from microseconds since boot: each slice is off by the spacing
        // of such numbers.
        let first = json["first_ts_us"].as_f64().unwrap();
        let spacing = (first.abs() + 1.0) * f64::EPSILON;
        let slices: u64 = counts.iter().sum();
        let tolerance = (spacing * slices as f64 * 2.0).max(1e-6);
        for (key, ours) in [
            ("span_us", times.range),
            ("busy_us", times.busy()),
            ("comm_union_us", times.communication()),
            ("compute_union_us", times.compute()),
            ("memcpy_memset_union_us", times.copy()),
            (
                "kernel_union_us",
                times.any(&[Work::Compute, Work::Communication]),
            ),
            ("comm_hidden_under_compute_us", times.hidden_communication()),
        ] {
            let expected = gpu[key].as_f64().unwrap();
            let off = (us(ours) - expected).abs();
            assert!(
                off <= tolerance,
                "{} {key}: {} and {expected}, may be off by {tolerance}",
                trace.display(),
                us(ours)
            );
        }
        let kernels = counts[0] + counts[1];
        assert_eq!(
            gpu["kernels"].as_u64(),
            Some(kernels),
            "{}",
            trace.display()
        );
        assert_eq!(gpu["comm_kernels"].as_u64(), Some(counts[1]));
        compared += 1;
    }
    assert!(compared >= 30, "{compared} traces with a GPU were compared");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn the_timeline_equals_tracelens_where_it_links_every_kernel() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = 0;
    for (trace, truth) in truths(folder, "gpu_timeline.csv") {
        let name = trace.file_name().unwrap().to_string_lossy().into_owned();
        if is_not_all_linked(&name) {
            continue;
        }
        let (times, counts) = whole(&trace).unwrap();
        let slices: u64 = counts.iter().sum();
        // The computation of `TraceLens` includes memset, its copies do not.
        let computation = [Work::Compute, Work::Memset];
        let ours = |kind: &str| match kind {
            "computation_time" => times.any(&computation),
            "exposed_comm_time" => times.any_without(&[Work::Communication], &computation),
            "exposed_memcpy_time" => times.any_without(
                &[Work::Memcpy],
                &[Work::Compute, Work::Memset, Work::Communication],
            ),
            "busy_time" => times.busy(),
            "idle_time" => times.idle(),
            "total_time" => times.range,
            "total_comm_time" => times.communication(),
            "total_memcpy_time" => times.any(&[Work::Memcpy]),
            other => panic!("{other}"),
        };
        for row in runs::csv(&truth) {
            let expected = row["time ms"].parse::<f64>().unwrap() * 1e3;
            let actual = us(ours(&row["type"]));
            // `TraceLens` reads times as floating point too, up to 2^51 microseconds.
            let tolerance = (slices as f64 * 5e-4).max(1e-3);
            assert!(
                (actual - expected).abs() <= tolerance,
                "{name} {}: {actual} and {expected}",
                row["type"]
            );
        }
        compared += 1;
    }
    assert!(compared >= 18, "{compared} traces were compared");
}
