//! `key_averages` from files alone, compared with the output of torch in the run that wrote them.

use std::path::{Path, PathBuf};
use stepscope_test_data::{Corpus, corpus_tests};

use serde_json::{Value, json};
use stepscope_analysis::parallel::Cancel;
use stepscope_compat::torch::{self, KeyAverage, KeyAverages, SortBy, TableOptions, TorchGrouping};
use stepscope_engine::Run;

/// Opens the run in this file.
fn open(path: &Path) -> Run {
    stepscope_test_data::runs::open(path).remove(0)
}

const BY_NAME: TorchGrouping = TorchGrouping {
    input_shape: false,
    stack: 0,
    overload_name: false,
};

fn averages(run: &Run, by: TorchGrouping) -> KeyAverages {
    torch::averages(&run.trace, by, None, &Cancel::default()).unwrap()
}

#[test]
fn device_events_without_a_launching_call_are_counted() {
    let event = |category: &str, thread: &str, ts: u64, args: Value| {
        let mut event =
            json!({ "ph": "X", "cat": category, "name": category, "dur": 10, "ts": ts });
        (event["pid"], event["tid"], event["args"]) = (0.into(), thread.into(), args);
        event
    };
    let kernel = |start, correlation: u64| {
        let args = json!({ "device": 0, "stream": 7, "correlation": correlation });
        event("kernel", "stream 7", start, args)
    };
    let events = [
        event("cpu_op", "1", 0, json!({ "External id": 1 })),
        event("cuda_runtime", "1", 2, json!({ "correlation": 5 })),
        kernel(20, 5),
        kernel(40, 6),
    ];
    let file =
        json!({ "schemaVersion": 1, "deviceProperties": [{ "id": 0 }], "traceEvents": events });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pt.trace.json");
    std::fs::write(&path, file.to_string()).unwrap();
    assert_eq!(averages(&open(&path), BY_NAME).unlinked, 1);
}

/// Lists the generated files that have torch's own averages.
fn with_truth(traces: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for folder in ["torch_cpu", "torch_multirank/cpu_ddp"] {
        for entry in std::fs::read_dir(traces.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if let Some(stem) = name.strip_suffix(".pt.trace.json.gz") {
                found.push((path.clone(), path.with_file_name(format!("{stem}.truth"))));
            }
        }
    }
    found.sort();
    assert!(found.len() >= 9, "the generated traces: {found:?}");
    found
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or("")
}

#[track_caller]
fn assert_rows(context: &str, ours: &[KeyAverage], expected: &[Value]) {
    assert_eq!(ours.len(), expected.len(), "{context}: rows");
    for (row, truth) in ours.iter().zip(expected) {
        let context = format!("{context}: {} {:?}", row.key, row.stack);
        assert_eq!(row.key, text(truth, "key"), "{context}");
        assert_eq!(Some(row.count), truth["count"].as_u64(), "{context}: count");
        for (key, value) in [
            ("cpu_time_total", row.cpu_time_total),
            ("self_cpu_time_total", row.self_cpu_time_total),
            ("device_time_total", row.device_time_total),
            ("self_device_time_total", row.self_device_time_total),
        ] {
            let truth = truth[key].as_f64().unwrap();
            // Microseconds: a millionth of a nanosecond.
            assert!(
                (value - truth).abs() < 1e-9,
                "{context}: {key} {value} {truth}"
            );
        }
        for (key, value) in [
            ("cpu_memory_usage", row.cpu_memory_usage),
            ("self_cpu_memory_usage", row.self_cpu_memory_usage),
            ("device_memory_usage", row.device_memory_usage),
            ("self_device_memory_usage", row.self_device_memory_usage),
        ] {
            assert_eq!(Some(value), truth[key].as_i64(), "{context}: {key}");
        }
        assert_eq!(Some(row.flops), truth["flops"].as_u64(), "{context}: flops");
        assert_eq!(Some(row.is_async), truth["is_async"].as_bool(), "{context}");
        let shapes = if row.input_shapes == "[]" {
            ""
        } else {
            &row.input_shapes
        };
        assert_eq!(shapes, text(truth, "input_shapes"), "{context}: shapes");
        if let Some(stack) = truth["stack"].as_array() {
            let stack: Vec<&str> = stack.iter().filter_map(Value::as_str).collect();
            assert_eq!(row.stack, stack, "{context}: stack");
        }
    }
}

corpus_tests!(
    averages_equal_torch,
    tables_equal_torch_character_by_character,
    exported_stacks_equal_torch
);

fn averages_equal_torch(corpus: &Corpus) {
    let traces = corpus.folder();
    for (path, truth) in with_truth(traces) {
        let run = open(&path);
        let truth = stepscope_test_data::runs::figures(&truth.join("key_averages.json.gz"));
        for (key, by) in [
            ("key_averages", BY_NAME),
            (
                "key_averages_by_shape",
                TorchGrouping {
                    input_shape: true,
                    ..BY_NAME
                },
            ),
            (
                "key_averages_by_stack5",
                TorchGrouping {
                    stack: 5,
                    ..BY_NAME
                },
            ),
        ] {
            if let Some(rows) = truth[key].as_array() {
                let context = format!("{} {key}", path.display());
                assert_rows(&context, &averages(&run, by).rows, rows);
            }
        }
    }
}

/// Splits the tables of `key_averages.txt`: the title and text of each.
fn tables(text: &str) -> Vec<(&str, &str)> {
    text.split("== ")
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (title, table) = part.split_once('\n').unwrap();
            (title, table)
        })
        .collect()
}

fn tables_equal_torch_character_by_character(corpus: &Corpus) {
    let traces = corpus.folder();
    let mut compared = 0;
    for (path, truth) in with_truth(traces) {
        let run = open(&path);
        let text = std::fs::read_to_string(truth.join("key_averages.txt")).unwrap();
        for (title, expected) in tables(&text) {
            let by = TorchGrouping {
                input_shape: title.starts_with("group_by_input_shape"),
                stack: if title.starts_with("group_by_stack_n=5") {
                    5
                } else {
                    0
                },
                overload_name: false,
            };
            let sort = title.split("sort_by=").nth(1).unwrap();
            let sort = sort.split(',').next().unwrap();
            let all = title.contains("every row");
            let mut ours = averages(&run, by);
            ours.sort(SortBy::named(sort).unwrap());
            let ours = ours.table(&TableOptions {
                row_limit: if all { None } else { Some(10) },
                max_name_column_width: Some(if all { 200 } else { 55 }),
                ..TableOptions::default()
            });
            assert_eq!(
                ours.trim_end(),
                expected.trim_end(),
                "{} {title}",
                path.display()
            );
            compared += 1;
        }
    }
    assert!(compared > corpus.either(15, 30), "{compared}");
}

fn exported_stacks_equal_torch(corpus: &Corpus) {
    let traces = corpus.folder();
    for name in ["cpu_stack", "cpu_memstack"] {
        let run = open(&traces.join(format!("torch_cpu/{name}.pt.trace.json.gz")));
        let stacks = torch::stacks(&run.trace, false, &Cancel::default()).unwrap();
        let truth = traces.join(format!("torch_cpu/{name}.truth/stacks.txt"));
        let truth = std::fs::read_to_string(truth).unwrap();
        assert_eq!(stacks, truth, "{name}");
    }
}
