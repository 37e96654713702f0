//! Scenarios: their selectors, changes, presets and scopes, and what they predict.

use serde_json::{Value, json};
use stepscope_analysis::parallel::Cancel;
use stepscope_report::reports::{self, Options};

use super::kineto::Kineto;
use super::{
    notes, options, predictions, report, report_with, rows, run_of, scenarios, two_kernels,
};

#[test]
fn presets_predict_the_window() {
    let (_folder, run) = run_of(&two_kernels());
    let expected = [
        ("host-free", 715.0),
        ("no-syncs", 800.0),
        ("no-launch-gaps", 782.0),
        ("device:x0.5", 450.0),
        ("host:x0.5", 765.0),
        ("input-free", 800.0),
        ("free-communication", 800.0),
    ];
    let options = Options {
        presets: expected
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect(),
        ..Options::default()
    };
    let found = report_with(&run.trace, options);
    assert_eq!(predictions(&found), expected.map(|(_, us)| us));
}

#[test]
fn scenarios_change_every_operation_of_a_long_thread() {
    // So many that several threads share its segments: operations of two names, and the step between them.
    const PAIRS: i64 = 40_000;
    let mut file = Kineto::new(None);
    file.step(0, (0, PAIRS * 10));
    for start in (0..PAIRS).map(|pair| pair * 10) {
        file.op("aten::a", (start, start + 4), 1);
        file.op("aten::b", (start + 5, start + 7), 1);
    }
    let (_folder, run) = run_of(&file);
    let changes = ["host:aten::a=x0.5", "host:aten::b=0", "host=x0.5"];
    let found = report(&run.trace, "op", &changes);
    assert_eq!(predictions(&found), [8, 8, 5].map(|us| (PAIRS * us) as f64));
    let selected = scenarios(&found);
    let saved = selected.iter().map(|row| row["saved_ns"].as_f64().unwrap());
    assert_eq!(
        saved.collect::<Vec<_>>(),
        [2, 2, 5].map(|us| (PAIRS * us * 1_000) as f64)
    );
}

#[test]
fn order_of_the_changes_has_no_effect() {
    let (_folder, run) = run_of(&two_kernels());
    let mut changes = [
        "kernel:k1=x0.5",
        "device=x0.9",
        "kernel:k2=150us",
        "host=x0.5",
        "launch_latency=0",
        "host:cudaLaunchKernel=median",
        "kernel_gap=x2",
    ];
    let mut orders = Vec::new();
    for _ in 0..changes.len() {
        changes.rotate_left(1);
        orders.push(changes.join(","));
        changes.reverse();
        orders.push(changes.join(","));
        changes.reverse();
    }
    let orders: Vec<&str> = orders.iter().map(String::as_str).collect();
    let found = predictions(&report(&run.trace, "op", &orders));
    // Launch 10, k1 135, gap 6, k2 135, return 12, host 25.
    assert_eq!(found, vec![323.0; orders.len()]);
}

#[test]
fn launch_latency_of_unknown_cause_stays_in_scenarios() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 600));
    let call = file.call("cudaLaunchKernel", (0, 20));
    file.kernel("k", (220, 420), 7, call);
    let wait = file.call("cudaStreamSynchronize", (30, 430));
    file.sync("Stream Sync", (30, 430), wait, 7, None);
    let (_folder, run) = run_of(&file);
    let scenarios_of = ["launch_latency=0", "launch_latency=0,kernel:k=x0.5"];
    let found = report(&run.trace, "segment", &scenarios_of);
    assert_eq!(
        rows(&found)[1],
        ("unknown".to_owned(), "k".to_owned(), 200.0)
    );
    assert_eq!(predictions(&found), [600.0, 500.0]);
    for row in scenarios(&found) {
        assert!(
            row["saved_ns"].as_f64() <= row["on_path_ns"].as_f64(),
            "{row}"
        );
    }
}

/// A step whose only kernel waits `gap` microseconds longer than another one for its launch.
fn late_kernel(gap: i64) -> Kineto {
    let mut file = Kineto::new(None);
    file.step(0, (0, 1_000));
    let first = file.call("cudaLaunchKernel", (0, 20));
    file.kernel("k1", (25, 35), 7, first);
    let second = file.call("cudaLaunchKernel", (40, 60));
    file.kernel("k2", (65 + gap, 865), 7, second);
    let wait = file.call("cudaStreamSynchronize", (70, 870));
    file.sync("Stream Sync", (70, 870), wait, 7, None);
    file
}

#[test]
fn savings_of_rows_need_a_small_replay_error() {
    for (gap, force, is_shown) in [(100, false, true), (200, false, false), (200, true, true)] {
        let (_folder, run) = run_of(&late_kernel(gap));
        let options = Options {
            force,
            ..options("op", &[])
        };
        let found = report_with(&run.trace, options);
        let error = found["summary"]["replay_error_share"].as_f64().unwrap();
        assert_eq!(error.abs() > 0.15, gap > 150, "{error}");
        let k2 = found["rows"].as_array().unwrap().iter();
        let k2: Vec<&Value> = k2
            .filter(|row| row["name"] == "k2" && row["kind"] == "device")
            .collect();
        assert_eq!(k2[0]["saving_2x_ns"].is_number(), is_shown, "{gap} {force}");
        assert_eq!(
            k2[0]["saving_all_ns"].is_number(),
            is_shown,
            "{gap} {force}"
        );
        let says = notes(&found).contains("savings of rows are not shown");
        assert_eq!(says, !is_shown, "{gap} {force}");
    }
}

#[test]
fn changes_below_the_replay_error_are_marked() {
    let (_folder, run) = run_of(&late_kernel(100));
    let found = report(
        &run.trace,
        "op",
        &["kernel:k2=x0.95", "kernel:k2=x0.5", "kernel:k2=x1"],
    );
    let marks: Vec<&Value> = scenarios(&found)
        .iter()
        .map(|row| &row["below_error"])
        .collect();
    assert_eq!(marks, [&json!(true), &json!(false), &json!(false)]);
    let notes = notes(&found);
    assert!(
        notes.contains("which show neither gain nor loss: 1."),
        "{notes}"
    );
}

#[test]
fn statistics_of_a_name_replace_its_lengths() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 200));
    for range in [(0, 10), (20, 40), (50, 110)] {
        file.op("aten::a", range, 1);
    }
    let (_folder, run) = run_of(&file);
    let changes = ["median", "mean", "fastest"].map(|change| format!("host:aten::a={change}"));
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let found = report(&run.trace, "op", &changes);
    // The lengths are 10, 20 and 60.
    assert_eq!(predictions(&found), [170.0, 200.0, 140.0]);
}

#[test]
fn steps_of_one_number_are_all_in_its_scope() {
    let mut file = Kineto::new(None);
    for (at, number) in [(0, 3), (100, 4), (200, 3)] {
        file.step(number, (at, at + 100));
        file.op("aten::a", (at + 10, at + 50), 1);
    }
    let (_folder, run) = run_of(&file);
    let changes = [3, 4, 5].map(|number| format!("host:aten::a@step:{number}=0"));
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let found = report(&run.trace, "op", &changes);
    assert_eq!(found["summary"]["steps"], 3);
    assert_eq!(predictions(&found), [220.0, 260.0, 300.0]);
}

#[test]
fn scopes_limit_to_phases() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 1_000));
    file.op("aten::mm", (0, 10), 1);
    file.op(
        "autograd::engine::evaluate_function: MmBackward0",
        (200, 220),
        1,
    );
    file.op("aten::mm", (205, 215), 1);
    let annotations = [
        ("Optimizer.step#SGD.step", (400, 440)),
        (
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            (600, 680),
        ),
    ];
    for (name, range) in annotations {
        file.slice("user_annotation", name, range, 50, 1, json!({}));
    }
    file.op("aten::add", (410, 430), 1);
    let (_folder, run) = run_of(&file);
    let phases = ["forward", "backward", "optimizer", "input", "other"];
    let changes = phases.map(|phase| format!("host@phase:{phase}=0"));
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let found = report(&run.trace, "op", &changes);
    assert_eq!(predictions(&found), [990.0, 980.0, 960.0, 920.0, 150.0]);
}

#[test]
fn labels_of_the_program_and_nodes_of_autograd_begin_phases() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 1_000));
    // As torch wrote before its engine recorded the evaluation of nodes.
    file.op("MmBackward", (200, 220), 1);
    file.op("aten::mm", (205, 215), 1);
    for (name, range) in [("backward", (300, 330)), ("optimizer_step", (400, 440))] {
        file.slice("user_annotation", name, range, 50, 1, json!({}));
    }
    file.op("aten::add", (410, 430), 1);
    let (_folder, run) = run_of(&file);
    let changes = ["forward", "backward", "optimizer"];
    let changes = changes.map(|phase| format!("host@phase:{phase}=0"));
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let found = report(&run.trace, "op", &changes);
    assert_eq!(predictions(&found), [1_000.0, 950.0, 960.0]);
}

#[test]
fn selectors_of_rows_select_the_time_of_the_row() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 800));
    file.step(1, (800, 1_000));
    let first = file.call("cudaLaunchKernel", (0, 20));
    file.kernel("void k<float*, 2>(int)", (35, 335), 7, first);
    let second = file.call("cudaLaunchKernel", (40, 60));
    file.kernel("k@rank:0", (338, 738), 7, second);
    let wait = file.call("cudaStreamSynchronize", (70, 750));
    file.sync("Stream Sync", (70, 750), wait, 7, None);
    let (_folder, run) = run_of(&file);
    let rows = |by: &str| {
        let found = report(&run.trace, by, &[]);
        found["rows"].as_array().unwrap().clone()
    };
    for by in ["op", "kind", "kernel", "class", "rank", "thread", "step"] {
        let mut with_selector = 0;
        for row in rows(by) {
            let Some(selector) = row["selector"].as_str() else {
                let allowed = ["k@rank:0", "(unknown)"].map(Value::from);
                assert!(
                    by == "thread" || allowed.contains(&row["name"]),
                    "{by}: {row}"
                );
                continue;
            };
            with_selector += 1;
            let found = report(&run.trace, by, &[&format!("{selector}=x1")]);
            let scenario = &scenarios(&found)[0];
            let window = &found["summary"]["window_ns"];
            assert_eq!(&scenario["step_ns"], window, "{selector}");
            if ["op", "kind", "kernel"].contains(&by) {
                assert_eq!(scenario["on_path_ns"], row["duration_ns"], "{selector}");
            }
        }
        assert!(with_selector > 0, "{by}");
    }
    let names: Vec<Value> = rows("kernel")
        .iter()
        .map(|row| row["selector"].clone())
        .collect();
    assert!(
        names.contains(&json!("kernel:void k<float*, 2>(int)")),
        "{names:?}"
    );
}

#[test]
fn scenarios_with_mistakes_are_errors() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 10));
    let (_folder, run) = run_of(&file);
    let options = |what_if: &str, preset: &str| Options {
        what_if: [what_if]
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect(),
        presets: [preset]
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect(),
        ..Options::default()
    };
    for (what_if, preset, expected) in [
        (
            "host=0,kernels=0",
            "",
            "at position 7: the selector is unknown",
        ),
        ("host", "", "at position 0: no change follows"),
        ("", "fast", "cannot apply preset 'fast'"),
    ] {
        let error = reports::make(
            &run.trace,
            "critical-path",
            &options(what_if, preset),
            &Cancel::default(),
        );
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("\nhelp: "),
            "{error}"
        );
    }
    let error = reports::make(
        &run.trace,
        "idle",
        &options("host=0", ""),
        &Cancel::default(),
    );
    assert!(error.is_err());
}
