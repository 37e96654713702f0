//! Critical paths and comparisons of peers: their figures where they are right.
//!
//! What differs, and why, is in `docs/reference/compatibility.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use stepscope_analysis::compare::result::{CompareOptions, Comparison, MatchBy, RowsBy};
use stepscope_analysis::compare::run::ComparedRun;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_analysis::steps::range_of;
use stepscope_report::reports::{self, Options};
use stepscope_test_data::{Corpus, runs};

/// A trace on which HTA found a critical path, and the operators whose time differs from ours.
struct HtaPath {
    name: &'static str,
    /// Names that differ for the reasons of the page.
    differing: &'static [&'static str],
    /// Number of names that must agree.
    agreeing: usize,
}

const HTA_PATHS: [HtaPath; 6] = [
    HtaPath {
        name: "a100_alexnet_cuda_sync",
        differing: &["cudaDeviceSynchronize"],
        agreeing: 31,
    },
    HtaPath {
        name: "a100_event_sync_streams",
        differing: &["cudaEventQuery", "cudaLaunchKernel", "cudaMemsetAsync"],
        agreeing: 10,
    },
    HtaPath {
        name: "a100_simple_add",
        differing: &["cudaDeviceSynchronize"],
        agreeing: 2,
    },
    HtaPath {
        name: "h100_transformer_step",
        differing: &["void at::native::(anonymous namespace)::vectorized_layer_norm_kernel"],
        agreeing: 33,
    },
    HtaPath {
        name: "mi250_minitoy",
        differing: &["hipMemcpyWithStream"],
        agreeing: 24,
    },
    // No `cuda_sync` events: the path is another one.
    HtaPath {
        name: "dlrm_rank0",
        differing: &[""],
        agreeing: 89,
    },
];

/// Time of each name on HTA's path, with the number of its pieces: HTA rounds each to whole microseconds.
fn hta_times(figures: &Value) -> BTreeMap<String, (f64, f64)> {
    let columns: Vec<&str> = figures["path_columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column.as_str().unwrap())
        .collect();
    let at = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    let (kind, weight, event) = (at("type"), at("weight_us"), at("attributed_to"));
    let mut found: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for row in figures["path_rows"].as_array().unwrap() {
        let Some(event) = row[event].as_i64().filter(|event| *event >= 0) else {
            continue;
        };
        if row[kind] == "operator" {
            let name = figures["events"][event.to_string()][0].as_str().unwrap();
            let sum = found.entry(name.to_owned()).or_default();
            sum.0 += row[weight].as_f64().unwrap();
            sum.1 += 1.0;
        }
    }
    found
}

/// Start of the first slice in the file, microseconds on its clock.
fn first_slice_us(trace: &Path) -> f64 {
    let file = runs::figures(trace);
    let slices = file["traceEvents"].as_array().unwrap().iter();
    let starts = slices
        .filter(|event| event["ph"] == "X")
        .filter_map(|event| event["ts"].as_f64());
    starts.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn critical_paths_agree_with_hta_where_it_is_right() {
    let folder = Corpus::collected().path("../reference/critical_path_ref");
    for expected in HTA_PATHS {
        let figures = runs::figures(&folder.join(format!("{}.hta_0_5_0.json", expected.name)));
        let trace = Corpus::collected().path(figures["trace"].as_str().unwrap());
        let origin = figures["time_origin_us"].as_f64().unwrap();
        let offset = first_slice_us(&trace) - origin;
        let span = ["first_us", "last_us"].map(|key| figures["path"][key].as_f64().unwrap());
        let run = runs::open(&trace).remove(0);
        let options = Options {
            by: Some("segment".to_owned()),
            top: usize::MAX,
            ..Options::default()
        };
        let report = reports::make(&run.trace, "critical-path", &options, &Cancel::default());
        let report = serde_json::to_value(report.unwrap()).unwrap();
        let mut ours: BTreeMap<&str, f64> = BTreeMap::new();
        for row in report["rows"].as_array().unwrap() {
            let is_segment = ["host", "device", "communication"]
                .iter()
                .any(|kind| row["kind"] == *kind);
            let begin = row["start_ns"].as_f64().unwrap() / 1e3 + offset;
            let end = begin + row["duration_ns"].as_f64().unwrap() / 1e3;
            let inside = end.min(span[1]) - begin.max(span[0]);
            if is_segment && inside > 0.0 {
                *ours.entry(row["name"].as_str().unwrap()).or_default() += inside;
            }
        }
        let mut agreeing = 0;
        for (name, (us, pieces)) in hta_times(&figures) {
            let own = ours.get(name.as_str()).copied().unwrap_or_default();
            let agrees = (own - us).abs() <= pieces + 2.0;
            agreeing += usize::from(agrees);
            let is_known = expected
                .differing
                .iter()
                .any(|known| name.starts_with(known));
            assert!(agrees || is_known, "{}: {name}: {own} {us}", expected.name);
        }
        println!("{}: {agreeing} names agree", expected.name);
        assert!(
            agreeing >= expected.agreeing,
            "{}: {agreeing}",
            expected.name
        );
        // What HTA leaves out has an owner here.
        let covered: f64 = report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["duration_ns"].as_f64().unwrap())
            .sum();
        assert!((covered - report["summary"]["window_ns"].as_f64().unwrap()).abs() < 1.0);
    }
}

/// Compares two traces of the collection by name.
fn compare(base: &str, new: &str, by: RowsBy, step: Option<i64>) -> Comparison {
    let options = CompareOptions {
        by,
        match_by: MatchBy::Name,
        ..CompareOptions::default()
    };
    let sides = [base, new].map(|name| {
        let run = runs::open(&Corpus::collected().path(name)).remove(0);
        let range = step.map(|step| range_of(&run.trace, &(step..=step), false).unwrap());
        let scope = AnalysisScope {
            range,
            ..AnalysisScope::default()
        };
        ComparedRun::compute(&run.trace, &scope, options.detail(), &Cancel::default()).unwrap()
    });
    let [base, new] = &sides;
    Comparison::new(
        std::slice::from_ref(base),
        std::slice::from_ref(new),
        &options,
    )
}

/// Count and device time (microseconds) of each key on both sides.
type Figures<'a> = BTreeMap<&'a str, [f64; 4]>;

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn kernels_agree_with_the_trace_diff_of_hta() {
    let found = compare(
        "torch_gpu/a100_diff_control_rank3of8.json.gz",
        "torch_gpu/v100_diff_test_rank1of2.json.gz",
        RowsBy::Kernel,
        Some(1009),
    );
    let mut ours: Figures<'_> = BTreeMap::new();
    for row in &found.rows {
        if let Some(kernel) = row
            .key
            .kernel
            .as_deref()
            .filter(|kernel| !kernel.is_empty())
        {
            let sums = ours.entry(kernel).or_default();
            let own = [
                row.base.count,
                row.base.device_ns / 1e3,
                row.new.count,
                row.new.device_ns / 1e3,
            ];
            for (sum, own) in sums.iter_mut().zip(own) {
                *sum += own;
            }
        }
    }
    let folder = Corpus::collected().path("../reference/compare_ref/hta_trace_diff");
    let rows = runs::csv(&folder.join("compare_traces_gpu.csv"));
    let mut agreeing = [0, 0];
    let all = rows.len();
    for row in &rows {
        let number = |key: &str| row[key].parse::<f64>().unwrap_or_default();
        let figures = [
            number("control_counts"),
            number("control_total_duration"),
            number("test_counts"),
            number("test_total_duration"),
        ];
        let own = ours.get(row["name"].as_str()).copied().unwrap_or_default();
        for side in [0, 1] {
            let (count, us) = (figures[2 * side], figures[2 * side + 1]);
            // HTA rounds each kernel to whole microseconds.
            let agrees = (own[2 * side] - count).abs() < 0.5
                && (own[2 * side + 1] - us).abs() <= count + 1.0;
            agreeing[side] += usize::from(agrees);
        }
    }
    println!("{agreeing:?} of {all} names agree");
    assert!(agreeing[0] >= 170 && agreeing[1] >= 140, "{agreeing:?}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn operators_agree_with_the_comparison_of_tracelens() {
    let found = compare(
        "torch_gpu/h100_qwen.json.gz",
        "torch_gpu/mi300_qwen.json.gz",
        RowsBy::Operation,
        None,
    );
    let mut ours: Figures<'_> = BTreeMap::new();
    for row in &found.rows {
        if let Some(operation) = row
            .key
            .operation
            .as_deref()
            .filter(|_| row.base.device_ns + row.new.device_ns > 0.0)
        {
            let sums = ours.entry(operation).or_default();
            let own = [
                row.base.count,
                row.base.device_ns / 1e3,
                row.new.count,
                row.new.device_ns / 1e3,
            ];
            for (sum, own) in sums.iter_mut().zip(own) {
                *sum += own;
            }
        }
    }
    let folder = Corpus::collected().path("../reference/compare_ref/tracelens_h100_mi300_qwen");
    let rows = runs::csv(&folder.join("ops_summary.csv"));
    let mut whole = BTreeSet::new();
    for row in &rows {
        for (side, label) in ["h100", "mi300"].into_iter().enumerate() {
            let number = |key: &str| row[&format!("{label}::{key}")].parse::<f64>().ok();
            let (Some(count), Some(ms)) = (number("Count"), number("total_direct_kernel_time_ms"))
            else {
                continue;
            };
            let own = ours.get(row["name"].as_str()).copied().unwrap_or_default();
            let (own_count, own_us) = (own[2 * side], own[2 * side + 1]);
            if (own_count - count).abs() < 0.5 {
                assert!(
                    (own_us - ms * 1e3).abs() < 0.01,
                    "{}: {own_us} {ms}",
                    row["name"]
                );
                whole.insert((row["name"].clone(), side));
            } else {
                // TraceLens takes the whole file, we the step.
                assert!(
                    own_count < count && own_us < ms * 1e3,
                    "{}: {own:?} {count} {ms}",
                    row["name"]
                );
            }
        }
    }
    println!(
        "{} of {} figures are of the whole file",
        whole.len(),
        2 * rows.len()
    );
    assert!(whole.len() >= 14, "{whole:?}");
}
