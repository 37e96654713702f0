//! Reports over the folder of real traces: completeness of each, and `XProf`'s figures.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_engine::Run;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::peer_profiler::PeerProfiler;
use stepscope_engine::report::reports::{self, KINDS, Options};
use stepscope_model::Dur;

use stepscope_test_data::runs::{figures, number, open, plain, report, report_with, spaces, table};
use stepscope_test_data::{Corpus, below, corpus_tests, files};

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

/// Checks that a run of one framework has no hint for another.
fn hint_fits(run: &Run, line: &str, context: &str) {
    let is_of = |kind: &str| run.kinds.iter().any(|known| known == kind);
    let is_torch = is_of("PyTorch") || is_of("Lightning");
    for (word, fits) in [
        ("torch.profiler", is_torch),
        ("jax.profiler", is_of("JAX")),
        ("tf.profiler", is_of("TensorFlow")),
        ("xp.", is_of("XLA") || is_of("NEURON")),
        ("stepscope::", is_of("Rust")),
    ] {
        assert!(fits || !line.contains(word), "{context}: {line}");
    }
}

corpus_tests!(
    every_report_of_every_trace_is_whole,
    every_report_of_any_range_is_whole
);

fn every_report_of_every_trace_is_whole(corpus: &Corpus) {
    let folder = corpus.folder();
    let mut seen = 0;
    for path in files(folder) {
        for run in open(&path) {
            seen += 1;
            for kind in KINDS {
                for by in std::iter::once(None).chain(kind.by.iter().copied().map(Some)) {
                    let context = format!("{} of {} by {by:?}", kind.name, path.display());
                    let compat = PeerProfiler::of_report(kind.name);
                    let found = report_with(&run, kind.name, by, compat);
                    for note in found["notes"].as_array().unwrap() {
                        starts_a_sentence(note, &context);
                    }
                    let missing = &found["missing"];
                    if !missing.is_null() {
                        hint_fits(&run, missing["fix"].as_str().unwrap_or_default(), &context);
                        continue;
                    }
                    starts_a_sentence(&found["sentence"], &context);
                    let rows = found["rows"].as_array().unwrap();
                    for title in rows.iter().filter_map(|row| row.get("title")) {
                        starts_a_sentence(title, &context);
                    }
                    links_lead_somewhere(&run, &found, &context);
                    // One has an operation of that name.
                    if !path.ends_with("nan_infinity.json") {
                        is_plain(&found, &context);
                    }
                    if kind.name == "ops" && by != Some("tree") {
                        costliest_first(rows, &context);
                    }
                    titles_differ(&found, &context);
                    for section in found["sections"].as_array().into_iter().flatten() {
                        titles_differ(section, &context);
                    }
                    let keys: Vec<&str> = found["columns"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .filter_map(|column| column["key"].as_str())
                        .collect();
                    for row in rows {
                        assert_eq!(row.as_object().unwrap().len(), keys.len(), "{context}");
                    }
                }
            }
        }
    }
    assert!(seen > corpus.either(20, 90), "only {seen} runs were opened");
}

/// Checks the order of operations: by the device time that they launched, then by their own.
fn costliest_first(rows: &[Value], context: &str) {
    let cost = |row: &Value| {
        let time = |key: &str| row[key].as_f64().unwrap_or(0.0);
        (time("device_self_ns"), time("self_ns"))
    };
    let sorted = rows.is_sorted_by(|a, b| cost(a) >= cost(b));
    assert!(sorted, "{context} is out of order");
}

/// Checks that the links of values name existing events, figures, tables and rows.
fn links_lead_somewhere(run: &Run, found: &Value, context: &str) {
    let rows = found["rows"].as_array().unwrap();
    let titles = rows.iter().filter_map(|row| row.get("title"));
    let notes = found["notes"].as_array().into_iter().flatten();
    let sentences = std::iter::once(&found["sentence"])
        .chain(notes)
        .chain(titles);
    let parts = sentences.filter_map(Value::as_array).flatten();
    for part in parts.filter(|part| part.get("value").is_some()) {
        let Some(link) = part.get("link").and_then(Value::as_object) else {
            continue;
        };
        let (kind, target) = link.iter().next().unwrap();
        let exists = match kind.as_str() {
            "event" => target.as_u64() < Some(run.trace.event_count().into()),
            "scalar" => found["summary"].get(target.as_str().unwrap()).is_some(),
            "section" => {
                let mut sections = found["sections"].as_array().unwrap().iter();
                sections.any(|section| section["name"] == *target)
            }
            "row" => {
                let (key, name) = target.as_object().unwrap().iter().next().unwrap();
                rows.iter().any(|row| row[key] == *name)
            }
            "range" => number(&target["start_ns"]) <= number(&target["end_ns"]),
            "step" => run
                .trace
                .step_marks()
                .iter()
                .any(|mark| *target == mark.number),
            "rank" => {
                let mut files = run.trace.files().iter();
                files.any(|file| file.spec.rank.is_some_and(|rank| *target == rank))
            }
            "page" => target.is_string(),
            _ => false,
        };
        assert!(exists, "{context}: {part}");
    }
}

/// Checks that a sentence starts with a capital letter, or a number.
fn starts_a_sentence(text: &Value, context: &str) {
    let first = plain(text).chars().next();
    let starts = first.is_some_and(|letter| letter.is_uppercase() || letter.is_ascii_digit());
    assert!(starts, "{context}: {text}");
}

/// Checks that the titles of the columns of a table differ; event columns are not shown.
fn titles_differ(table: &Value, context: &str) {
    let columns = table["columns"].as_array().unwrap().iter();
    let mut titles: Vec<&str> = columns
        .filter(|column| column["unit"] != "event")
        .filter_map(|column| column["title"].as_str())
        .collect();
    titles.sort_unstable();
    for pair in titles.windows(2) {
        assert_ne!(pair[0], pair[1], "{context}");
    }
}

/// Checks that no text contains `NaN` or `inf`; such numbers are empty in JSON, and readers count them there as
/// missing.
fn is_plain(value: &Value, context: &str) {
    match value {
        Value::String(text) => {
            let words = text.split(|letter: char| !letter.is_alphanumeric());
            // Names of functions and operations come from the program.
            let mut words = words.filter(|_| text.len() < 200);
            assert!(
                !words.any(|word| word == "NaN" || word == "inf"),
                "{context}: {text}"
            );
        }
        Value::Array(values) => values.iter().for_each(|value| is_plain(value, context)),
        Value::Object(fields) => fields.values().for_each(|value| is_plain(value, context)),
        _ => {}
    }
}

/// Ranges that are empty, have no length, or clip every slice.
fn every_report_of_any_range_is_whole(corpus: &Corpus) {
    let folder = corpus.folder();
    let mut seen = 0;
    for path in files(folder) {
        // One large trace of each writer is sufficient.
        if std::fs::metadata(&path).unwrap().len() > 300_000 {
            continue;
        }
        for run in open(&path) {
            let span = run.trace.span();
            let at = |share: i64| {
                let length = span.end.since(span.start).ps();
                span.start
                    .saturating_add(Dur::from_ps((length / 8).saturating_mul(share)))
            };
            let ranges = [
                at(3)..at(3),
                at(3)..at(3).saturating_add(Dur::from_ps(1)),
                at(3)..at(5),
                at(20)..at(30),
            ];
            for kind in KINDS {
                for range in &ranges {
                    let options = Options {
                        range: Some(range.clone()),
                        ..Options::default()
                    };
                    let context = format!("{} of {} in {range:?}", kind.name, path.display());
                    let result = reports::make(&run.trace, kind.name, &options, &Cancel::default());
                    let found = serde_json::to_value(result.unwrap()).unwrap();
                    if !path.ends_with("nan_infinity.json") {
                        is_plain(&found, &context);
                    }
                    for share in found["rows"].as_array().into_iter().flatten() {
                        let share = share["share"].as_f64().unwrap_or(0.0);
                        assert!(share.is_finite() && share >= -1e-9, "{context}");
                    }
                    seen += 1;
                }
            }
        }
    }
    assert!(
        seen > corpus.either(400, 2_000),
        "only {seen} reports were made"
    );
}

/// Lists runs of XSpace files with XProf's figures: the run, and the path of a tool's figures.
fn with_xprof(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for truth in below(folder, |path| path.to_string_lossy().ends_with(".truth")) {
        let run = PathBuf::from(truth.to_string_lossy().trim_end_matches(".truth"));
        if run.is_dir() && truth.join("tools.json").is_file() {
            found.push((run, truth));
        }
    }
    found
}

fn tool(truth: &Path, name: &str) -> Option<Value> {
    ["json", "json.gz"]
        .iter()
        .map(|end| truth.join(format!("xprof_{name}.{end}")))
        .find(|path| path.is_file())
        .map(|path| figures(&path))
}

/// Compares XProf's time in microseconds with ours in nanoseconds.
fn same_time(ours: f64, expected_us: f64) -> bool {
    (ours - expected_us * 1_000.0).abs() <= 1.0 + 1e-6 * ours
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn tf_data_stages_equal_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let path = folder.join("xplane_real/gpu_v100_tf_multi_worker");
    let truth = folder.join("xplane_real/gpu_v100_tf_multi_worker.truth");
    let Some(Value::Array(tables)) = tool(&truth, "framework_op_stats") else {
        panic!("no framework_op_stats in {}", truth.display());
    };
    let expected = tables.last().map(table).unwrap_or_default();
    let runs = spaces(&path);
    let ours = report(&runs[0], "ops", Some("framework"));
    let input = report(&runs[0], "input", None);
    let mut compared = 0;
    for row in expected
        .iter()
        .filter(|row| row["host_or_device"] == "Host")
    {
        let (name, kind) = (
            row["operation"].as_str().unwrap(),
            row["type"].as_str().unwrap(),
        );
        if kind != "Dataset" {
            continue;
        }
        let find = |report: &Value| {
            let rows = report["rows"].as_array().unwrap().iter();
            rows.clone().find(|actual| actual["name"] == name).cloned()
        };
        let actual = find(&ours).unwrap_or_else(|| panic!("no {name}"));
        assert!(
            near(number(&actual["count"]), number(&row["occurrences"])),
            "{actual} {row:?}"
        );
        assert!(
            same_time(number(&actual["total_ns"]), number(&row["total_time"])),
            "{actual} {row:?}"
        );
        // The timeline, and so the stage, has the last component of the path.
        let last = name.rsplit("::").next().unwrap();
        let mut stages = input["rows"].as_array().unwrap().iter();
        let stage = stages.find(|stage| stage["name"] == format!("Iterator::{last}"));
        let stage = stage.unwrap_or_else(|| panic!("no stage {name}"));
        assert!(same_time(
            number(&stage["total_ns"]),
            number(&row["total_time"])
        ));
        compared += 1;
    }
    assert_eq!(compared, 2);
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn step_lengths_equal_xprof() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut compared = 0;
    for (path, truth) in with_xprof(folder) {
        // XProf lengthens the step of the GPU trace, see docs/reference/definitions.md.
        if path.to_string_lossy().contains("gpu_") {
            continue;
        }
        let Some(Value::Array(tables)) = tool(&truth, "input_pipeline_analyzer") else {
            continue;
        };
        let steps = tables.get(1).map(table).unwrap_or_default();
        let steps: Vec<_> = steps
            .into_iter()
            .filter(|row| row.contains_key("stepTimeMs"))
            .collect();
        if steps.is_empty() {
            continue;
        }
        let runs = spaces(&path);
        let [run] = runs.as_slice() else { continue };
        let ours = report(run, "steps", Some("step"));
        for row in steps {
            let label = row["stepnum"].as_str().unwrap();
            let step: i64 = label.rsplit(' ').next().unwrap().parse().unwrap();
            let expected = number(&row["stepTimeMs"]) * 1e6;
            let mut actual = ours["rows"].as_array().unwrap().iter();
            let actual = actual.find(|actual| actual["step"] == step);
            let context = format!("step {label} in {}", path.display());
            let actual = actual.unwrap_or_else(|| panic!("no {context}"));
            let length = number(&actual["duration_ns"]);
            assert!(
                (length - expected).abs() <= 1.0 + 1e-6 * expected,
                "{context}: {length} {expected}"
            );
            compared += 1;
        }
    }
    assert!(compared > 40, "only {compared} steps were compared");
}

/// XProf finds no step in the TPU trace; ours are the executions of its program.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn a_tpu_trace_without_markers_has_derived_steps() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let runs = spaces(&folder.join("xplane_real/tpu_v6e_inference"));
    let found = report(&runs[0], "steps", Some("step"));
    assert_eq!(found["summary"]["steps"], 100);
    let from = found["summary"]["derived_from"].as_str().unwrap();
    assert!(from.starts_with("jit_f("), "{from}");
}
