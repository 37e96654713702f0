//! The report `critical-path`: small traces with known paths and predictions.

#![allow(
    clippy::float_cmp,
    clippy::needless_pass_by_value,
    reason = "times are printed exactly; `json!` makes values"
)]

mod corpus;
mod intervals;
mod kineto;
mod off_path;
mod what_if;

use std::path::Path;

use serde_json::{Value, json};
use stepscope_analysis::critical_path::WindowEnd;
use stepscope_analysis::parallel::Cancel;
use stepscope_report::reports::{self, Options};
use stepscope_store::Trace;
use stepscope_test_data::runs;

use kineto::Kineto;

const KIND: &str = "critical-path";

fn report(trace: &Trace, by: &str, what_if: &[&str]) -> Value {
    report_with(trace, options(by, what_if))
}

fn options(by: &str, what_if: &[&str]) -> Options {
    Options {
        by: Some(by.to_owned()),
        what_if: what_if.iter().map(|text| (*text).to_owned()).collect(),
        ..Options::default()
    }
}

fn report_with(trace: &Trace, options: Options) -> Value {
    let report = reports::make(trace, KIND, &options, &Cancel::default()).unwrap();
    serde_json::to_value(&report).unwrap()
}

/// Opens the only run of a folder.
fn open(folder: &Path) -> stepscope_engine::Run {
    let mut found = runs::open(folder);
    assert_eq!(found.len(), 1, "{}", folder.display());
    found.remove(0)
}

/// Writes one file, and returns its run; arguments are read from the file while a report is made.
fn run_of(file: &Kineto) -> (tempfile::TempDir, stepscope_engine::Run) {
    let folder = tempfile::tempdir().unwrap();
    file.write(folder.path(), "one.json");
    let run = open(&folder.path().join("one.json"));
    (folder, run)
}

/// Kind, name and length (microseconds) of the rows of the path.
fn rows(report: &Value) -> Vec<(String, String, f64)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = report["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let length = row["duration_ns"].as_f64().unwrap() / 1e3;
        (text(row, "kind"), text(row, "name"), length)
    })
    .collect()
}

/// The rows of the scenarios.
fn scenarios(report: &Value) -> &[Value] {
    let mut sections = report["sections"].as_array().unwrap().iter();
    let section = sections.find(|section| section["name"] == "what_if");
    section.unwrap()["rows"].as_array().unwrap()
}

/// Windows after each scenario, microseconds.
fn predictions(report: &Value) -> Vec<f64> {
    let rows = scenarios(report).iter();
    rows.map(|row| row["step_ns"].as_f64().unwrap_or(f64::NAN) / 1e3)
        .collect()
}

fn assert_path(trace: &Trace, expected: &[(&str, &str, f64)]) {
    let found = rows(&report(trace, "segment", &[]));
    let found: Vec<(&str, &str, f64)> = found
        .iter()
        .map(|(kind, name, us)| (kind.as_str(), name.as_str(), *us))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn host_time_without_operations_is_on_the_path() {
    let mut file = Kineto::new(None);
    file.step(4, (0, 600));
    file.op("aten::a", (50, 250), 1);
    let call = file.call("cudaLaunchKernel", (100, 130));
    file.kernel("k", (140, 400), 7, call);
    let (_folder, run) = run_of(&file);
    assert_path(
        &run.trace,
        &[
            ("host", "ProfilerStep#4", 50.0),
            ("host", "aten::a", 50.0),
            ("host", "cudaLaunchKernel", 30.0),
            ("host", "aten::a", 120.0),
            ("host", "ProfilerStep#4", 350.0),
        ],
    );
    let found = report(
        &run.trace,
        "op",
        &["kernel:*=0", "host=x0.5", "host:aten::a=x0.5"],
    );
    assert_eq!(predictions(&found), [600.0, 300.0, 515.0]);
    assert_eq!(found["summary"]["replay_error_share"], 0.0);
}

/// A step that waits for two kernels.
fn two_kernels() -> Kineto {
    let mut file = Kineto::new(None);
    file.step(0, (0, 800));
    let first = file.call("cudaLaunchKernel", (0, 20));
    file.kernel("k1", (35, 335), 7, first);
    let second = file.call("cudaLaunchKernel", (40, 60));
    file.kernel("k2", (338, 738), 7, second);
    let wait = file.call("cudaStreamSynchronize", (70, 750));
    file.sync("Stream Sync", (70, 750), wait, 7, None);
    file
}

#[test]
fn waits_lead_to_the_device() {
    let (_folder, run) = run_of(&two_kernels());
    assert_path(
        &run.trace,
        &[
            ("host", "cudaLaunchKernel", 20.0),
            ("launch_latency", "k1", 15.0),
            ("device", "k1", 300.0),
            ("kernel_gap", "k2", 3.0),
            ("device", "k2", 400.0),
            ("sync_return", "cudaStreamSynchronize", 12.0),
            ("host", "ProfilerStep#0", 50.0),
        ],
    );
    let scenarios = [
        "kernel:k1=x0.5",
        "kernel:*=0",
        "host=0",
        "launch_latency=0,sync_return=0",
        "sync=0",
        "kernel:k2=100us",
    ];
    // Without kernels, the second launch decides: 60 + 15, and the wait, which begins at 70, ends at 87.
    let expected = [650.0, 137.0, 730.0, 773.0, 800.0, 500.0];
    assert_eq!(predictions(&report(&run.trace, "op", &scenarios)), expected);
}

#[test]
fn partners_in_other_ranks_are_of_the_same_step() {
    let folder = tempfile::tempdir().unwrap();
    let args = json!({
        "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2,
        "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
    });
    // Rank 1 calls the operator once more in the first step, and takes longer in the second.
    for (rank, [first, second], calls, launch, kernel) in [
        (
            0,
            [(0, 90), (100, 155)],
            [(0, 50), (100, 110)].as_slice(),
            120,
            130,
        ),
        (
            1,
            [(0, 100), (100, 195)],
            &[(0, 50), (50, 60), (100, 150)],
            160,
            170,
        ),
    ] {
        let mut file = Kineto::new(Some((rank, 2)));
        file.step(0, first);
        file.step(1, second);
        for range in calls {
            file.op("aten::a", *range, 1);
        }
        let call = file.call("cudaLaunchKernelExC", (launch, launch + 5));
        file.work(
            "kernel",
            "ncclDevKernel_AllReduce",
            (kernel, 175),
            7,
            call,
            args.clone(),
        );
        file.write(folder.path(), &format!("rank{rank}.pt.trace.json"));
    }
    let run = open(folder.path());
    let found = report(&run.trace, "op", &["rank:1=median"]);
    assert_eq!(found["summary"]["window_ns"], 195_000.0);
    // The operator of the second step takes 10 in place of 50.
    assert_eq!(predictions(&found), [155.0]);
}

#[test]
fn events_order_two_streams() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 500));
    let first = file.call("cudaLaunchKernel", (0, 10));
    file.kernel("p", (20, 220), 7, first);
    let record = file.call("cudaEventRecord", (12, 14));
    let wait = file.call("cudaStreamWaitEvent", (16, 18));
    file.sync("Stream Wait Event", (16, 18), wait, 20, Some((7, record)));
    let second = file.call("cudaLaunchKernel", (20, 30));
    file.kernel("q", (224, 474), 20, second);
    let last = file.call("cudaDeviceSynchronize", (40, 480));
    file.sync("Context Sync", (40, 480), last, -1, None);
    let (_folder, run) = run_of(&file);
    assert_path(
        &run.trace,
        &[
            ("host", "cudaLaunchKernel", 10.0),
            ("launch_latency", "p", 10.0),
            ("device", "p", 200.0),
            ("event_wait", "q", 4.0),
            ("device", "q", 250.0),
            ("sync_return", "cudaDeviceSynchronize", 6.0),
            ("host", "ProfilerStep#0", 20.0),
        ],
    );
    // q begins after its launch at the earliest: 30 + 10.
    let changes = [
        "kernel:p=0",
        "kernel:q=0",
        "device@stream:7=0",
        "device@stream:20=0",
    ];
    assert_eq!(
        predictions(&report(&run.trace, "op", &changes)),
        [316.0, 250.0, 316.0, 250.0]
    );
}

#[test]
fn events_without_records_are_inferred() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 500));
    let first = file.call("hipLaunchKernel", (0, 10));
    file.kernel("p", (20, 220), 7, first);
    file.call("hipStreamWaitEvent", (16, 18));
    let second = file.call("hipLaunchKernel", (20, 30));
    file.kernel("q", (224, 474), 20, second);
    file.call("hipDeviceSynchronize", (40, 480));
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "kind", &[]);
    let time = |kind: &str| {
        rows(&found)
            .iter()
            .find(|row| row.0 == kind)
            .map(|row| row.2)
    };
    assert_eq!(time("event_wait"), Some(4.0));
    assert_eq!(time("sync_return"), Some(6.0));
    assert!(found["summary"]["inferred_share"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_wait_for_the_device_may_return_late() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 1_000));
    let first = file.call("cudaLaunchKernel", (0, 10));
    file.kernel("k", (20, 620), 7, first);
    // 200 us after the kernel: more than any limit, but nothing else was launched.
    file.call("cudaDeviceSynchronize", (30, 820));
    let (_folder, run) = run_of(&file);
    assert_path(
        &run.trace,
        &[
            ("host", "cudaLaunchKernel", 10.0),
            ("launch_latency", "k", 10.0),
            ("device", "k", 600.0),
            ("sync_return", "cudaDeviceSynchronize", 200.0),
            ("host", "ProfilerStep#0", 180.0),
        ],
    );
}

#[test]
fn a_late_return_of_one_of_several_queues_is_not_inferred() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 1_000));
    let first = file.call("cudaLaunchKernel", (0, 10));
    file.kernel("p", (20, 620), 7, first);
    let second = file.call("cudaLaunchKernel", (12, 20));
    file.kernel("q", (30, 130), 8, second);
    file.call("cudaStreamSynchronize", (30, 820));
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "kind", &[]);
    assert!(rows(&found).iter().all(|row| row.0 != "sync_return"));
}

#[test]
fn a_wait_for_an_event_ends_with_the_work_before_it() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 1_300));
    let first = file.call("cudaLaunchKernel", (0, 10));
    file.kernel("a", (20, 420), 7, first);
    file.call("cudaEventRecord", (12, 14));
    let second = file.call("cudaLaunchKernel", (20, 30));
    file.kernel("b", (422, 1_222), 7, second);
    // The event is before `b`, which runs when the wait returns.
    file.call("cudaEventSynchronize", (40, 425));
    let (_folder, run) = run_of(&file);
    assert_path(
        &run.trace,
        &[
            ("host", "cudaLaunchKernel", 10.0),
            ("launch_latency", "a", 10.0),
            ("device", "a", 400.0),
            ("sync_return", "cudaEventSynchronize", 5.0),
            ("host", "ProfilerStep#0", 875.0),
        ],
    );
}

#[test]
fn a_full_queue_blocks_the_launch() {
    let mut file = Kineto::new(None);
    // Launches take 4 us, kernels 20 us: from call 1,280 on, a call waits until the kernel 1,024 before has ended.
    let (mut host, mut device) = (0, 12);
    for number in 0..3_000 {
        let begin = host;
        host += 4;
        if number >= 1_280 {
            host = host.max(12 + (number - 1_023) * 20 + 3);
        }
        let call = file.call("cudaLaunchKernel", (begin, host));
        device = device.max(host + 8);
        file.kernel("k", (device, device + 20), 7, call);
        device += 20;
    }
    let end = host + 10;
    file.step(0, (0, end));
    let (_folder, run) = run_of(&file);
    // The calls at the end of the step, whose kernels run after it, are not seen to wait.
    let found = report(&run.trace, "kind", &[]);
    let device = rows(&found).into_iter().find(|row| row.0 == "device");
    let share =
        device.map_or(0.0, |row| row.2 * 1e3) / found["summary"]["window_ns"].as_f64().unwrap();
    assert!(share > 0.4 && share < 0.6, "{share}");
}

#[test]
fn the_window_may_end_with_the_device_work() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 50));
    let first = file.call("cudaLaunchKernel", (10, 20));
    file.kernel("k", (30, 430), 7, first);
    // Launched after the step.
    let later = file.call("cudaLaunchKernel", (60, 70));
    file.kernel("next", (432, 800), 7, later);
    let (_folder, run) = run_of(&file);
    let lengths = |until| {
        let options = Options {
            by: Some("segment".to_owned()),
            until,
            ..Options::default()
        };
        let report = reports::make(&run.trace, KIND, &options, &Cancel::default()).unwrap();
        let report = serde_json::to_value(&report).unwrap();
        let window = report["summary"]["window_ns"].as_f64().unwrap() / 1e3;
        (window, rows(&report))
    };
    let row = |kind: &str, name: &str, us: f64| (kind.to_owned(), name.to_owned(), us);
    let host = [
        row("host", "ProfilerStep#0", 10.0),
        row("host", "cudaLaunchKernel", 10.0),
    ];
    let (window, found) = lengths(WindowEnd::LastStep);
    assert_eq!(window, 50.0);
    assert_eq!(found[..2], host);
    let (window, found) = lengths(WindowEnd::DeviceWork);
    assert_eq!(window, 430.0);
    let device = [row("launch_latency", "k", 10.0), row("device", "k", 400.0)];
    assert_eq!(found, [host, device].concat());
}

#[test]
fn graph_launches_bind_the_first_kernel() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 300));
    let launch = file.call("cudaGraphLaunch", (0, 20));
    for (number, begin) in [30, 112, 194].into_iter().enumerate() {
        file.kernel(&format!("g{number}"), (begin, begin + 80), 7, launch);
    }
    let wait = file.call("cudaStreamSynchronize", (25, 280));
    file.sync("Stream Sync", (25, 280), wait, 7, None);
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "kind", &["kernel:g1=0", "launch_latency=0"]);
    let kernel_gaps = rows(&found)
        .iter()
        .find(|row| row.0 == "kernel_gap")
        .map(|row| row.2);
    assert_eq!(kernel_gaps, Some(4.0));
    assert_eq!(predictions(&found), [220.0, 290.0]);
}

#[test]
fn blocking_copies_wait_for_earlier_work() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 400));
    let launch = file.call("cudaLaunchKernel", (0, 10));
    file.kernel("k", (25, 325), 7, launch);
    let copy = file.call("cudaMemcpy", (50, 380));
    file.work(
        "gpu_memcpy",
        "Memcpy DtoH (Device -> Pageable)",
        (330, 370),
        7,
        copy,
        json!({"bytes": 64}),
    );
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "segment", &["copy=0", "kernel:k=x0.5"]);
    let kinds: Vec<String> = rows(&found).into_iter().map(|row| row.0).collect();
    assert_eq!(
        kinds,
        [
            "host",
            "launch_latency",
            "device",
            "kernel_gap",
            "device",
            "sync_return",
            "host"
        ]
    );
    assert_eq!(predictions(&found), [360.0, 250.0]);
}

#[test]
fn a_copy_that_begins_after_its_call_ends_is_a_contradiction() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 400));
    let copy = file.call("hipMemcpyWithStream", (50, 300));
    file.work(
        "gpu_memcpy",
        "Memcpy DtoH (Device -> Pageable)",
        (303, 320),
        7,
        copy,
        json!({"bytes": 64}),
    );
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "segment", &["copy=0"]);
    let kinds: Vec<(String, f64)> = rows(&found).into_iter().map(|row| (row.0, row.2)).collect();
    let expected = [50.0, 250.0, 100.0].map(|us| ("host".to_owned(), us));
    assert_eq!(kinds, expected);
    assert_eq!(found["summary"]["contradictions"], 1);
    assert_eq!(predictions(&found), [400.0]);
    let notes = found["notes"].as_array().unwrap();
    assert!(
        notes
            .iter()
            .all(|note| !runs::plain(note).contains("unchanged replay")),
        "{notes:?}"
    );
}

#[test]
fn the_last_rank_to_arrive_releases_a_collective() {
    let folder = tempfile::tempdir().unwrap();
    for (rank, compute) in [(0, 60), (1, 150)] {
        let mut file = Kineto::new(Some((rank, 2)));
        file.step(0, (0, 220));
        let launch = file.call("cudaLaunchKernel", (0, 5));
        file.kernel("compute", (10, 10 + compute), 7, launch);
        let launch = file.call("cudaLaunchKernelExC", (6, 9));
        let args = json!({
            "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2,
            "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]",
        });
        file.work(
            "kernel",
            "ncclDevKernel_AllReduce",
            (10 + compute, 200),
            7,
            launch,
            args,
        );
        let wait = file.call("cudaStreamSynchronize", (20, 220));
        file.sync("Stream Sync", (20, 220), wait, 7, None);
        file.write(folder.path(), &format!("rank{rank}.pt.trace.json"));
    }
    let run = open(folder.path());
    let found = report(
        &run.trace,
        "kind",
        &[
            "communication=0",
            "rank:1=median",
            "ranks=median",
            "kernel:compute@rank:0=0",
        ],
    );
    let all = rows(&found);
    let time = |kind: &str| all.iter().find(|row| row.0 == kind).map(|row| row.2);
    assert_eq!(
        (time("communication"), time("device")),
        (Some(40.0), Some(150.0))
    );
    assert_eq!(found["summary"]["ranks_crossed"], 1);
    assert_eq!(predictions(&found), [180.0, 130.0, 175.0, 220.0]);
    assert!(!notes(&found).contains("threads of the host"));
}

fn notes(report: &Value) -> String {
    let notes = report["notes"].as_array().unwrap().iter();
    notes.map(|note| runs::plain(note) + "\n").collect()
}

/// Writes the files of two ranks that compute for so long, and whose second thread runs a collective until 400 us.
fn ranks_with_gloo(folder: &Path, marks_steps: bool) {
    for (rank, compute) in [(0, 100), (1, 300)] {
        let mut file = Kineto::new(Some((rank, 2)));
        if marks_steps {
            file.step(0, (0, 500));
        }
        file.op("aten::mm", (0, compute), 1);
        file.op("c10d::allreduce_", (compute, compute + 10), 1);
        let own = json!({});
        file.slice(
            "user_annotation",
            "gloo:all_reduce",
            (compute + 5, 400),
            50,
            2,
            own,
        );
        file.op("aten::add", (420, 500), 1);
        file.write(folder, &format!("rank{rank}.pt.trace.json"));
    }
}

#[test]
fn the_thread_of_the_steps_waits_for_collectives_of_another_thread() {
    let folder = tempfile::tempdir().unwrap();
    ranks_with_gloo(folder.path(), true);
    let run = open(folder.path());
    let changes = ["rank:1=median", "communication=0", "host:aten::mm@rank:0=0"];
    let found = report(&run.trace, "segment", &changes);
    let kinds: Vec<(String, f64)> = rows(&found).into_iter().map(|row| (row.0, row.2)).collect();
    let expected = [
        ("host", 300.0),
        ("host", 5.0),
        ("communication", 95.0),
        ("sync_return", 20.0),
        ("host", 80.0),
    ];
    assert_eq!(kinds, expected.map(|(kind, us)| (kind.to_owned(), us)));
    assert_eq!(found["summary"]["ranks_crossed"], 1);
    assert_eq!(predictions(&found), [300.0, 405.0, 500.0]);
    assert!(!notes(&found).contains("threads of the host"));
    let sentence = runs::plain(&found["sentence"]);
    assert!(sentence.contains("are in collectives"), "{sentence}");
}

#[test]
fn predictions_over_collectives_of_the_host_without_known_waits_are_called_no_guide() {
    let folder = tempfile::tempdir().unwrap();
    ranks_with_gloo(folder.path(), false);
    let run = open(folder.path());
    let found = report(&run.trace, "op", &["rank:1=median"]);
    let notes = notes(&found);
    assert!(
        notes.contains("Collectives run on threads of the host"),
        "{notes}"
    );
}

#[test]
fn a_thread_that_works_on_after_a_collective_has_ended_did_not_wait_for_it() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 500));
    file.op("aten::mm", (0, 100), 1);
    file.slice(
        "user_annotation",
        "gloo:all_reduce",
        (50, 200),
        50,
        2,
        json!({}),
    );
    file.op("aten::add", (400, 500), 1);
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "segment", &["communication=0"]);
    let kinds: Vec<(String, f64)> = rows(&found).into_iter().map(|row| (row.0, row.2)).collect();
    let expected = [100.0, 300.0, 100.0].map(|us| ("host".to_owned(), us));
    assert_eq!(kinds, expected);
    assert_eq!(predictions(&found), [500.0]);
}

#[test]
fn backward_waits_for_the_thread_of_autograd() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 500));
    file.op("aten::mm", (0, 100), 1);
    file.slice(
        "python_function",
        "torch/autograd/__init__.py(243): backward",
        (100, 400),
        50,
        1,
        json!({}),
    );
    file.op(
        "autograd::engine::evaluate_function: MmBackward0",
        (120, 380),
        2,
    );
    let (_folder, run) = run_of(&file);
    let found = report(&run.trace, "segment", &["op:autograd*=x0.5"]);
    let kinds: Vec<(String, f64)> = rows(&found).into_iter().map(|row| (row.0, row.2)).collect();
    let expected = [
        ("host", 100.0),
        ("handover", 20.0),
        ("host", 260.0),
        ("sync_return", 20.0),
        ("host", 100.0),
    ];
    assert_eq!(kinds, expected.map(|(kind, us)| (kind.to_owned(), us)));
    assert_eq!(predictions(&found), [370.0]);
    assert_eq!(found["summary"]["inferred_share"], json!(0.6));
}
