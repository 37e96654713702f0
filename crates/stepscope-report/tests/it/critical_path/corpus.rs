//! The report over every trace of the corpus, and the cases with known answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_analysis::critical_path::groups::{PathGrouping, PathKey};
use stepscope_analysis::critical_path::spec::parse;
use stepscope_analysis::critical_path::{PathScope, critical_path};
use stepscope_analysis::parallel::Cancel;
use stepscope_report::reports::Options;
use stepscope_store::Trace;
use stepscope_test_data::{Corpus, bytes, corpus_tests, files, runs};

use super::{open, options, predictions, report, report_with, rows, scenarios};

corpus_tests!(path_covers_the_window);

/// Scenarios of every run: the first changes nothing, the others save no more than they select on the path.
const SCENARIOS: [&str; 8] = [
    "host=x1,device=x1,communication=x1",
    "host=x0.5",
    "device=0,communication=0",
    "launch_latency=0",
    "kernel_gap=0",
    "event_wait=0",
    "sync_return=0",
    "handover=0",
];

/// The path of every run is a partition of its window, the replay without changes is exact, and no scenario saves more
/// than it selects on the path.
fn path_covers_the_window(corpus: &Corpus) {
    let mut with_steps = 0;
    for file in files(corpus.folder()) {
        for run in runs::open(&file) {
            check_partition(&run.trace, &file, &mut with_steps);
        }
    }
    assert!(
        with_steps >= corpus.either(3, 40),
        "{with_steps} runs with steps"
    );
}

fn check_partition(trace: &Trace, file: &Path, with_steps: &mut usize) {
    let options = Options {
        force: true,
        ..options("segment", &SCENARIOS)
    };
    let found = report_with(trace, options);
    if !found["missing"].is_null() {
        return;
    }
    let context = file.display();
    let summary = &found["summary"];
    *with_steps += usize::from(summary["steps"].as_u64() > Some(0));
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let window = number(&summary["window_ns"]);
    assert_eq!(number(&summary["path_ns"]), window, "{context}");
    let mut time: Option<f64> = None;
    for row in found["rows"].as_array().unwrap() {
        let start = number(&row["start_ns"]);
        if let Some(time) = time {
            // Times far from zero are rounded.
            let error = 0.01 + start.abs() * 1e-15;
            assert!((start - time).abs() <= error, "{context}: {row}");
        }
        time = Some(start + number(&row["duration_ns"]));
    }
    let kinds = [
        "host",
        "input",
        "compile",
        "device_compute",
        "communication",
        "copy",
        "launch_latency",
        "kernel_gap",
        "event_wait",
        "sync_return",
        "handover",
        "unknown",
    ];
    let sum: f64 = kinds
        .iter()
        .map(|kind| number(&summary[format!("{kind}_ns")]))
        .sum();
    assert!(
        (sum - window).abs() <= 1e-6 * window.max(1.0),
        "{context}: {sum} {window}"
    );
    let predicted = scenarios(&found);
    assert_eq!(predicted.len(), SCENARIOS.len(), "{context}");
    assert_eq!(number(&predicted[0]["step_ns"]), window, "{context}");
    for row in predicted {
        let [saved, on_path] = ["saved_ns", "on_path_ns"].map(|key| number(&row[key]));
        // Each changed length is rounded to a picosecond.
        assert!(
            saved <= on_path + 1e-6 * window.max(1.0),
            "{context}: {row}"
        );
    }
    paths_after_scenarios_cover_the_predicted_window(trace, &context.to_string());
    for by in ["op", "kernel", "class", "rank", "thread", "step", "module"] {
        let grouped = report(trace, by, &[]);
        let rows = grouped["rows"].as_array().unwrap().iter();
        let sum: f64 = rows.map(|row| number(&row["duration_ns"])).sum();
        assert!(
            (sum - window).abs() <= 1e-6 * window.max(1.0),
            "{context} {by}: {sum} {window}"
        );
    }
}

/// What binds after a scenario adds up to the predicted window; after one that changes nothing, it is the path.
fn paths_after_scenarios_cover_the_predicted_window(trace: &Trace, context: &str) {
    let cancel = Cancel::default();
    let path = critical_path(trace, &PathScope::default(), &cancel)
        .unwrap()
        .unwrap();
    for (number, text) in SCENARIOS.into_iter().enumerate() {
        let scenario = parse(text).unwrap();
        let replayed = path.what_if(&scenario, &cancel).unwrap();
        let predicted = replayed.window_ps();
        let saved = path.length() - predicted;
        if let Some((low, high)) = replayed.saved_interval() {
            let error = 1e-9 * path.length() as f64;
            assert!(low <= high + error, "{context}: {text}: {low} {high}");
            if number == 0 {
                assert_eq!([low, high], [0.0, 0.0], "{context}");
            }
            assert!(
                low <= saved as f64 + error && saved as f64 <= high + error,
                "{context}: {text}: {saved} not in {low} to {high}"
            );
        }
        let shares = replayed.into_shares();
        let sum: i64 = shares.iter().map(|share| share.ps).sum();
        assert_eq!(sum, predicted, "{context}: {text}");
        if number > 0 {
            continue;
        }
        let groups = path.groups(PathGrouping::Op).iter();
        let measured: BTreeSet<_> = groups
            .map(|group| {
                let name = match group.key {
                    PathKey::Name(name) => Some(name),
                    _ => None,
                };
                (group.kind, name, group.path_ps)
            })
            .collect();
        let after = shares
            .iter()
            .map(|share| (Some(share.kind), share.name, share.ps));
        assert_eq!(after.collect::<BTreeSet<_>>(), measured, "{context}");
    }
}

/// The cases with known answers next to the collected traces.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn known_answers() {
    let folder = Corpus::collected().path("../reference/critical_path_ref/cases");
    let mut cases: Vec<PathBuf> = folder
        .read_dir()
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    cases.sort();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for case in cases {
        let Ok(expected) = case.join("expected.json").canonicalize() else {
            continue;
        };
        let expected: Value = serde_json::from_slice(&bytes(&expected)).unwrap();
        let Some(path) = expected["path"].as_array() else {
            continue;
        };
        checked += 1;
        let run = match expected["files"].as_array().unwrap().as_slice() {
            [one] => open(&case.join(one.as_str().unwrap())),
            _ => open(&case),
        };
        let what_if = expected["what_if"].as_array().unwrap();
        let specs: Vec<&str> = what_if
            .iter()
            .map(|row| row["what_if"].as_str().unwrap())
            .collect();
        let found = report(&run.trace, "segment", &specs);
        let expected_rows: Vec<(String, String, f64)> = path
            .iter()
            .map(|row| {
                let text = |at: usize| row[at].as_str().unwrap().to_owned();
                (text(0), text(1), row[4].as_f64().unwrap())
            })
            .collect();
        let found_rows = rows(&found);
        if found_rows != expected_rows {
            wrong.push(format!(
                "{}: path\n  {found_rows:?}\n  {expected_rows:?}",
                case.display()
            ));
        }
        let answers: Vec<f64> = what_if
            .iter()
            .map(|row| row["step_us"].as_f64().unwrap())
            .collect();
        let predicted = predictions(&found);
        if predicted != answers {
            wrong.push(format!(
                "{}: {specs:?}\n  {predicted:?}\n  {answers:?}",
                case.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 11, "{checked}");
}
