//! Programs that were made slow in one known way: the first finding names the cause, the location and the saving.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_analysis::critical_path::WindowEnd;
use stepscope_analysis::parallel::Cancel;
use stepscope_report::reports::{self, Options};

use stepscope_test_data::runs::open;
use stepscope_test_data::runs::{plain, report};

/// Result of one scenario.
struct Score {
    id: String,
    first: bool,
    among_three: bool,
    /// `None` where there is nothing to name, or to save.
    names_it: Option<bool>,
    saves: Option<bool>,
    forbidden: bool,
    sentence: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/known_causes")
}

fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(word) => vec![word.to_lowercase()],
        Value::Array(words) => words.iter().flat_map(self::words).collect(),
        Value::Object(fields) => fields.values().flat_map(words).collect(),
        _ => Vec::new(),
    }
}

/// Lists texts of a finding that may name its cause.
fn texts_of(row: &Value) -> Vec<String> {
    let title = plain(&row["title"]).to_lowercase();
    let others = ["where", "advice"].iter().flat_map(|key| words(&row[*key]));
    std::iter::once(title).chain(others).collect()
}

fn judge(path: &Path) -> Score {
    let truth = std::fs::read_to_string(path.join("truth.json")).unwrap();
    let truth: Value = serde_json::from_str(&truth).unwrap();
    let run = open(&path.join("trace")).remove(0);
    let report = report(&run, "findings", None);
    let rows = report["rows"].as_array().unwrap();
    let kinds: Vec<&str> = rows
        .iter()
        .map(|row| row["kind"].as_str().unwrap())
        .collect();
    let kinds = if kinds.is_empty() {
        vec!["none"]
    } else {
        kinds
    };
    let cause = truth["cause"].as_str().unwrap();
    let also = words(&truth["also_acceptable"]);
    let is_right = |kind: &&str| *kind == cause || also.iter().any(|word| word == kind);
    let right = kinds.iter().position(is_right);
    let row = right
        .filter(|right| *right < 3)
        .and_then(|right| rows.get(right));
    let requested = words(&truth["where"]);
    let names_it = (!requested.is_empty()).then(|| {
        row.is_some_and(|row| {
            texts_of(row)
                .iter()
                .any(|text| requested.iter().any(|word| text.contains(word)))
        })
    });
    let saving = truth["saving_per_step_ns"].as_f64();
    let saves = saving.zip(row).and_then(|(saving, row)| {
        let sentence = row["saving_per_step_ns"].as_f64();
        let same = row["kind"] == cause || sentence.is_some();
        let tolerance = truth["tolerance"].as_f64().unwrap();
        same.then(|| {
            sentence.is_some_and(|sentence| (sentence - saving).abs() <= tolerance * saving)
        })
    });
    Score {
        id: truth["id"].as_str().unwrap().to_owned(),
        first: right == Some(0),
        among_three: right.is_some_and(|right| right < 3),
        names_it,
        saves,
        forbidden: words(&truth["must_not_say"])
            .iter()
            .any(|word| word == kinds[0]),
        sentence: plain(&report["sentence"]),
    }
}

/// Lists the scores of all scenarios, in the order of their names.
fn scores() -> Vec<Score> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("truth.json").is_file())
        .collect();
    paths.sort();
    paths.iter().map(|path| judge(path)).collect()
}

/// Lists the scenarios for which a criterion fails, with the sentence of the report.
fn list<'a>(scores: impl Iterator<Item = &'a Score>) -> String {
    let lines = scores.map(|score| format!("\n  {}: {}", score.id, score.sentence));
    lines.collect()
}

#[test]
fn first_finding_names_cause_location_and_saving() {
    let scores = scores();
    assert!(scores.len() >= 70, "{} scenarios", scores.len());
    let wrong = |right: fn(&Score) -> bool| {
        let all: Vec<&Score> = scores.iter().filter(|score| !right(score)).collect();
        (all.len(), list(all.into_iter()))
    };
    let (count, all) = wrong(|score| score.first);
    assert!(count == 0, "another cause comes first:{all}");
    let (count, all) = wrong(|score| score.among_three);
    assert!(count == 0, "the cause is not among the first three:{all}");
    let (count, all) = wrong(|score| !score.forbidden);
    assert!(count == 0, "the first finding misleads:{all}");
    let (count, all) = wrong(|score| score.names_it != Some(false));
    assert!(count == 0, "the finding does not name what causes it:{all}");
    let (count, all) = wrong(|score| score.saves != Some(false));
    assert!(count == 0, "the saving is wrong:{all}");
}

/// Programs whose trace does not show what the device waits for: a pipeline without its events, work that was launched
/// before the recording, kernels without calls, a TPU without links to the host.
const UNKNOWN: &[&str] = &[
    "a100_pipeline_of_four",
    "mi300_hot_experts",
    "torch_hot_experts",
    "torch_kernels_only",
    "torch_pipeline_of_two",
    "torch_queued_before",
    "v5p_load_batch",
];

#[test]
fn critical_path_bears_the_cause() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(truth) = std::fs::read_to_string(path.join("truth.json")) else {
            continue;
        };
        let truth: Value = serde_json::from_str(&truth).unwrap();
        let (id, cause) = (
            truth["id"].as_str().unwrap(),
            truth["cause"].as_str().unwrap(),
        );
        let run = open(&path.join("trace")).remove(0);
        let options = Options {
            until: WindowEnd::DeviceWork,
            ..Options::default()
        };
        let path = reports::make(&run.trace, "critical-path", &options, &Cancel::default());
        let path = serde_json::to_value(path.unwrap()).unwrap();
        let share = |key: &str| {
            let summary = &path["summary"];
            summary[key].as_f64().unwrap() / summary["window_ns"].as_f64().unwrap()
        };
        let host = share("host_ns") + share("launch_latency_ns");
        let expected = match cause {
            _ if UNKNOWN.contains(&id) => share("unknown_ns") + share("kernel_gap_ns") > 0.4,
            "device_bound"
            | "low_precision_opportunity"
            | "memory_bound_kernels"
            | "memory_growth"
            | "near_memory_limit" => share("device_compute_ns") > 0.85,
            // The infeed of a TPU is a copy.
            "input_bound" => share("input_ns") + share("copy_ns") > 0.55,
            "host_bound" | "launch_bound" | "profiler_overhead" | "misplaced_op" => host > 0.5,
            "exposed_communication" => share("communication_ns") > 0.15,
            "exposed_copy" => share("copy_ns") + host > 0.4,
            "synchronization" => host > 0.2,
            _ => continue,
        };
        checked += 1;
        if !expected {
            wrong.push(format!("{id}, {cause}: {}", path["summary"]));
        }
    }
    assert!(checked >= 45, "{checked} programs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
