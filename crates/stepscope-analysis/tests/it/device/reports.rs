//! Kernels, idle time, collectives and ranks, compared with `TraceLens`, HTA and XProf.

#![allow(
    clippy::similar_names,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "traces have tracks, and the whole numbers in the peers' texts are exact"
)]

use std::collections::BTreeMap;
use std::path::Path;
use stepscope_test_data::Corpus;

use serde_json::Value;
use stepscope_analysis::collectives::{CollectiveOp, collectives};
use stepscope_analysis::device::Devices;
use stepscope_analysis::kernels::{KernelGrouping, kernels};
use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::Run;

use super::times::truths;
use stepscope_test_data::runs;

fn one(path: &Path) -> Run {
    let mut runs = runs::open(path);
    assert_eq!(runs.len(), 1, "{}", path.display());
    runs.remove(0)
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}

/// Returns count and total microseconds of each name.
fn by_name(run: &Run) -> BTreeMap<String, (u64, f64)> {
    let trace = &run.trace;
    let cancel = Cancel::default();
    let devices = Devices::from_trace(trace, &cancel).unwrap();
    let launches = Launches::from_trace(trace, &devices, &cancel).unwrap();
    let all = trace.span();
    let found = kernels(
        trace,
        &devices,
        &launches,
        KernelGrouping::Name,
        &all,
        &cancel,
    )
    .unwrap();
    let mut sums = BTreeMap::new();
    for row in &found.rows {
        let name = trace.name(row.key.name.unwrap()).to_owned();
        let sum: &mut (u64, f64) = sums.entry(name).or_default();
        sum.0 += row.count;
        sum.1 += row.total_ps as f64 / 1e6;
    }
    // Rows are a partition: their totals are those of the slices.
    let by_work = kernels(
        trace,
        &devices,
        &launches,
        KernelGrouping::Work,
        &all,
        &cancel,
    )
    .unwrap();
    let total = |rows: &[stepscope_analysis::kernels::KernelRow]| -> i128 {
        rows.iter().map(|row| row.total_ps).sum()
    };
    assert_eq!(total(&found.rows), total(&by_work.rows));
    sums
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn kernels_equal_tracelens_where_it_links_them() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut compared, mut rows) = (0, 0);
    for (trace, truth) in truths(folder, "kernel_summary.csv") {
        let name = trace.file_name().unwrap().to_string_lossy().into_owned();
        if super::times::is_not_all_linked(&name) {
            continue;
        }
        let ours = by_name(&one(&trace));
        let mut expected: BTreeMap<String, (u64, f64)> = BTreeMap::new();
        for row in runs::csv(&truth) {
            let sum = expected.entry(row["Kernel name"].clone()).or_default();
            sum.0 += number(&row["Kernel duration (µs)_count"]) as u64;
            sum.1 += number(&row["Kernel duration (µs)_sum"]);
        }
        for (kernel, (count, total)) in expected {
            let actual = ours.get(&kernel).copied().unwrap_or_default();
            assert_eq!(actual.0, count, "{name}: {kernel}");
            assert!(
                (actual.1 - total).abs() < 1e-3 * count as f64,
                "{name}: {kernel}"
            );
            rows += 1;
        }
        compared += 1;
    }
    assert!(
        compared >= 15 && rows > 200,
        "{compared} traces, {rows} kernels"
    );
}

/// rocprofv3's own JSON. `TraceLens` labels microseconds as milliseconds here, and nanoseconds as microseconds.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn kernels_of_rocprofv3_equal_tracelens() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let run = one(&folder.join("torch_gpu/rocprofv3_kernels.json.gz"));
    let truth = folder.join("torch_gpu/rocprofv3_kernels.truth");
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
    let [device] = devices.list.as_slice() else {
        panic!("{} devices", devices.list.len())
    };
    assert_eq!(device.ordinal, 0);
    let times = devices
        .times_in(device, device.span.clone(), &cancel)
        .unwrap();
    let timeline = runs::csv(&truth.join("gpu_timeline.csv"));
    let busy = timeline.iter().find(|row| row["type"] == "busy_time");
    let off = times.busy().as_ns_f64() / 1e6 - number(&busy.unwrap()["time ms"]);
    assert!(off.abs() < 1e-3, "{off} ms");
    // `TraceLens` truncates names before their templates and arguments.
    let ours = by_name(&run);
    for row in runs::csv(&truth.join("kernel_summary.csv")) {
        let name = row["name"].trim_end_matches(".kd");
        let same = |full: &str| {
            let at = full.find(name);
            at.is_some_and(|at| {
                let before = full[..at].chars().last();
                let after = full[at + name.len()..].chars().next();
                let word = |letter: Option<char>| {
                    letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_')
                };
                !word(before) && !word(after)
            })
        };
        let (mut count, mut total) = (0, 0.0);
        for (_, sum) in ours.iter().filter(|(full, _)| same(full)) {
            count += sum.0;
            total += sum.1;
        }
        // A name may also be an argument of another template.
        assert!(count >= number(&row["Count"]) as u64, "{name}: {count}");
        if count == number(&row["Count"]) as u64 {
            let expected = number(&row["Total Kernel Time (ms)"]);
            assert!(
                (total - expected).abs() < 1e-3 * count as f64,
                "{name}: {total}"
            );
        }
    }
    let all: u64 = ours.values().map(|sum| sum.0).sum();
    assert_eq!(all, 43_915);
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn kernels_of_xspaces_equal_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = 0;
    for run in [
        "gpu_amd_jax_te_attn",
        "gpu_mi300_jax_attention",
        "gpu_mi300_jax_conv_legacy",
    ] {
        let folder = folder.join("xplane_real");
        let truth = folder.join(format!("{run}.truth/xprof_kernel_stats.json"));
        let json: Value = serde_json::from_str(&std::fs::read_to_string(truth).unwrap()).unwrap();
        let ours = by_name(&one(&folder.join(run)));
        let mut expected: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for row in json["rows"].as_array().unwrap() {
            let cell = |position: usize| &row["c"][position]["v"];
            let sum = expected
                .entry(cell(1).as_str().unwrap().to_owned())
                .or_default();
            sum.0 += cell(10).as_f64().unwrap();
            sum.1 += cell(11).as_f64().unwrap();
        }
        assert!(!expected.is_empty(), "{run}");
        for (kernel, (count, total)) in expected {
            let actual = ours.get(&kernel).copied().unwrap_or_default();
            assert_eq!(actual.0 as f64, count, "{run}: {kernel}");
            assert!(
                (actual.1 - total).abs() < 2e-3 * count,
                "{run}: {kernel}: {} {total}",
                actual.1
            );
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} kernels");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn queues_and_copies_equal_hta() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let run = one(&folder.join("torch_multirank/dlrm8"));
    let trace = &run.trace;
    let cancel = Cancel::default();
    let devices = Devices::from_trace(trace, &cancel).unwrap();
    let launches = Launches::from_trace(trace, &devices, &cancel).unwrap();
    let all = trace.span();
    let found = kernels(
        trace,
        &devices,
        &launches,
        KernelGrouping::Name,
        &all,
        &cancel,
    )
    .unwrap();
    let path = folder.join("torch_multirank/dlrm8.truth/hta/hta_queue_length_summary.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let mut compared = 0;
    for line in text.lines().skip(3) {
        let cells: Vec<&str> = line.split(',').collect();
        let (rank, stream) = (number(cells[0]) as u32, number(cells[1]) as i64);
        let ours = found
            .streams
            .iter()
            .find(|own| {
                let track = &trace.tracks()[own.track.index()];
                trace.files()[track.file].spec.rank == Some(rank) && track.stream == Some(stream)
            })
            .unwrap();
        assert_eq!(ours.launched * 2, number(cells[2]) as u64, "{line}");
        // HTA's order of launches and starts at the same time is arbitrary.
        let off = (ours.mean_queue.unwrap() - number(cells[3])).abs();
        assert!(off < 0.02, "{line}: {:?}", ours.mean_queue);
        assert_eq!(ours.max_queue, number(cells[9]) as u64, "{line}");
        compared += 1;
    }
    assert_eq!(compared, 8);
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn collectives_equal_tracelens() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = 0;
    for (trace, truth) in truths(folder, "coll_analysis.csv") {
        let run = one(&trace);
        let cancel = Cancel::default();
        let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
        let launches = Launches::from_trace(&run.trace, &devices, &cancel).unwrap();
        let found = collectives(&run.trace, &devices, &launches, &cancel).unwrap();
        // Group, kind, type and bytes: count and time.
        let mut ours: BTreeMap<(CollectiveOp, String, u64), (u64, f64)> = BTreeMap::new();
        for part in &found.parts {
            let key = (part.kind, part.dtype.clone(), part.bytes.unwrap_or(0));
            let sum = ours.entry(key).or_default();
            sum.0 += 1;
            sum.1 += part.dur().as_ns_f64() / 1e3;
        }
        for row in runs::csv(&truth) {
            let kind = CollectiveOp::from_name(&row["Collective name"]);
            let bytes = (number(&row["In msg size (MB)_first"]) * 1_048_576.0).round() as u64;
            let key = (kind, row["dtype"].clone(), bytes);
            let (count, total) = ours.get(&key).copied().unwrap_or_default();
            assert_eq!(count, number(&row["operation_count"]) as u64, "{row:?}");
            assert!(
                (total - number(&row["dur_sum"])).abs() < 1e-2,
                "{row:?}: {total}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 7, "{compared}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn collectives_of_every_system_are_found() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    for (name, participants, least) in [
        ("torch_multirank/dlrm8", 8, 8),
        ("torch_multirank/cpu_ddp", 2, 12),
        ("jax_cpu/sharded4", 4, 15),
        ("jax_cpu/multihost2", 2, 18),
        ("xplane_real/tpu_v6e_inference", 4, 1),
    ] {
        let run = one(&folder.join(name));
        let cancel = Cancel::default();
        let devices = Devices::from_trace(&run.trace, &cancel).unwrap();
        let launches = Launches::from_trace(&run.trace, &devices, &cancel).unwrap();
        let found = collectives(&run.trace, &devices, &launches, &cancel).unwrap();
        assert_eq!(found.participants.len(), participants, "{name}");
        let matched = found
            .collectives
            .iter()
            .filter(|one| one.parts.len() == participants);
        assert!(matched.count() >= least, "{name}");
        for clock in &found.clocks {
            assert!(
                clock.bounds.is_some() && clock.shared > 0,
                "{name}: {clock:?}"
            );
        }
        for one in &found.collectives {
            let ends = one
                .parts
                .iter()
                .map(|position| found.parts[*position].dur());
            assert!(
                one.transfer
                    <= ends
                        .max()
                        .unwrap()
                        .saturating_add(one.spread.unwrap_or_default())
            );
        }
    }
}
