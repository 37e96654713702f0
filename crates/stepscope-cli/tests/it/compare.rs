//! `stepscope compare` from outside: figures, formats, and in `gate` what continuous integration uses.

#![allow(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "whole picoseconds, printed exactly"
)]

mod gate;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

/// Writes a run of torch: in each step the operators launch one kernel each, back to back, and the host waits.
fn write_run(folder: &TempDir, name: &str, kernels: &[(&str, u32)], jitter: &[i32]) -> PathBuf {
    let mut events = vec![
        r#"{"ph":"M","name":"process_labels","pid":0,"tid":0,"ts":0,"args":{"labels":"GPU 0"}}"#
            .to_owned(),
    ];
    let mut event = |category: &str,
                     name: &str,
                     place: [u32; 2],
                     start: i64,
                     length: i64,
                     args: &str| {
        let [pid, tid] = place;
        let mut text = String::new();
        let _ = write!(
            text,
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{start},"dur":{length},"args":{{{args}}}}}"#
        );
        events.push(text);
    };
    let host = [100, 1];
    let (mut now, mut call) = (1_000_000_i64, 0);
    for (number, jitter) in jitter.iter().enumerate() {
        let begin = now;
        let prepare = 100 + i64::from(*jitter);
        event("cpu_op", "prep", host, now, prepare, "");
        now += prepare;
        let mut device = now + 18;
        for (kernel, length) in kernels {
            call += 1;
            let length = i64::from(*length);
            let number = format!(r#""correlation":{call}"#);
            event("cpu_op", &format!("aten::{kernel}"), host, now, 10, "");
            event(
                "cuda_runtime",
                "cudaLaunchKernel",
                host,
                now + 2,
                6,
                &number,
            );
            let args = format!(r#""device":0,"stream":7,{number}"#);
            event(
                "kernel",
                &format!("{kernel}_kernel"),
                [0, 7],
                device,
                length,
                &args,
            );
            now += 10;
            device += length;
        }
        call += 1;
        let number_of_call = format!(r#""correlation":{call}"#);
        event(
            "cuda_runtime",
            "cudaStreamSynchronize",
            host,
            now,
            device + 5 - now,
            &number_of_call,
        );
        now = device + 10;
        event(
            "user_annotation",
            &format!("ProfilerStep#{number}"),
            host,
            begin,
            now - begin,
            "",
        );
        now += 50;
    }
    let text = format!(
        r#"{{"schemaVersion":1,"deviceProperties":[{{"id":0,"name":"NVIDIA A100-SXM4-40GB"}}],"traceEvents":[{}]}}"#,
        events.join(",\n")
    );
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

const BASE: [(&str, u32); 4] = [("mm", 400), ("copy", 50), ("relu", 150), ("relu", 150)];
const SLOWER: [(&str, u32); 5] = [
    ("mm", 480),
    ("clone", 20),
    ("relu", 140),
    ("relu", 140),
    ("relu", 140),
];
const JITTER: [i32; 12] = [0, 3, -2, 5, -4, 1, -1, 4, -3, 2, -5, 0];

fn command(words: &[&str], paths: &[&Path]) -> (u8, String) {
    let words = ["stepscope"].iter().chain(words).map(OsString::from);
    let arguments = words.chain(paths.iter().map(|path| path.as_os_str().to_owned()));
    let mut out = Vec::new();
    let code = match stepscope_cli::run(arguments.collect(), &mut out) {
        Ok(()) => 0,
        Err(error) => {
            let mut text = Vec::new();
            error.print(&mut text);
            out.extend(text);
            error.exit_code()
        }
    };
    (code, String::from_utf8(out).unwrap())
}

fn json(words: &[&str], paths: &[&Path]) -> Value {
    let words: Vec<&str> = ["compare", "--no-cache", "--format", "json"]
        .iter()
        .chain(words)
        .copied()
        .collect();
    let (code, text) = command(&words, paths);
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Asserts that the rows add up to the difference, exactly in picoseconds.
fn adds_up(found: &Value) {
    let ps = |value: &Value| (value.as_f64().unwrap() * 1_000.0).round() as i64;
    let rows = found["rows"].as_array().unwrap();
    let sum = |key: &str| rows.iter().map(|row| ps(&row[key])).sum::<i64>();
    assert_eq!(sum("difference_ns"), ps(&found["difference_ns"]));
    assert_eq!(
        sum("count_part_ns") + sum("time_part_ns"),
        ps(&found["difference_ns"])
    );
    assert_eq!(sum("base_ns"), ps(&found["base"]["mean_ns"]));
    assert_eq!(sum("new_ns"), ps(&found["new"]["mean_ns"]));
    let mut keys: Vec<&str> = rows
        .iter()
        .map(|row| row["key"].as_str().unwrap())
        .collect();
    keys.sort_unstable();
    let count = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), count, "unique keys");
}

fn row<'a>(found: &'a Value, key: &str) -> &'a Value {
    let mut rows = found["rows"].as_array().unwrap().iter();
    rows.find(|row| row["key"] == key)
        .unwrap_or_else(|| panic!("{key}: {found:#}"))
}

fn check_rows(found: &Value) {
    for (key, base, new, by_count, by_time) in [
        ("aten::mm", 400.0, 480.0, 0.0, 80.0),
        ("aten::copy", 50.0, 0.0, -50.0, 0.0),
        ("aten::clone", 0.0, 20.0, 20.0, 0.0),
        ("aten::relu", 300.0, 420.0, 150.0, -30.0),
    ] {
        let row = row(found, key);
        let figures = ["base_ns", "new_ns", "count_part_ns", "time_part_ns"];
        let figures = figures.map(|key| row[key].as_f64().unwrap() / 1_000.0);
        assert_eq!(figures, [base, new, by_count, by_time], "{key}");
    }
    assert_eq!(row(found, "aten::copy")["match"], "removed");
    assert_eq!(row(found, "aten::clone")["match"], "added");
}

#[test]
fn rows_name_the_operations_that_make_a_step_longer() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let new = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let found = json(&[], &[&base, &new]);
    assert_eq!(found["verdict"], "regressed");
    let ratio = found["ratio"].as_f64().unwrap();
    assert!((ratio - 1.193).abs() < 0.001, "{ratio}");
    assert!(found["low"].as_f64().unwrap() < ratio && ratio < found["high"].as_f64().unwrap());
    assert_eq!(found["difference_ns"], 170_000.0);
    check_rows(&found);
    for by in ["op", "kernel", "module", "class", "bucket", "tree"] {
        for match_by in ["auto", "name", "shape", "stack", "class"] {
            adds_up(&json(&["--by", by, "--match", match_by], &[&base, &new]));
        }
    }
    let null = json(&["--tolerance", "1%"], &[&base, &base]);
    assert_eq!(null["verdict"], "same");
    assert_eq!(null["difference_ns"], 0.0);
    let few = json(&["--steps", "0-3"], &[&base, &new]);
    assert_eq!(
        (&few["verdict"], &few["base"]["compared_steps"]),
        (&"no verdict".into(), &4.into())
    );
    adds_up(&few);
}

#[test]
fn names_that_changed_between_the_runs_are_joined() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let new = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let rules = [
        "--rename",
        "*copy=*clone",
        "--rename",
        "copy_*=clone_*",
        "--rename",
        "sgemm=gemm",
    ];
    let found = json(&rules, &[&base, &new]);
    let joined = row(&found, "aten::clone");
    let figures = ["base_ns", "new_ns", "count_part_ns", "time_part_ns"];
    let figures = figures.map(|key| joined[key].as_f64().unwrap() / 1_000.0);
    assert_eq!(figures, [50.0, 20.0, 0.0, -30.0]);
    assert_eq!(joined["match"], "name");
    assert_eq!(
        found["renamed"],
        serde_json::json!([
            {"base": "aten::copy", "new": "aten::clone"},
            {"base": "copy_kernel", "new": "clone_kernel"},
        ])
    );
    let notes = found["notes"].as_array().unwrap();
    let has = |text: &str| {
        notes
            .iter()
            .any(|note| note.as_str().unwrap().contains(text))
    };
    assert!(has("matches the rule sgemm=gemm"), "{notes:?}");
    assert!(has("aten::copy as aten::clone and 1 more"), "{notes:?}");
    for by in ["op", "kernel", "tree"] {
        let found = json(&[&["--by", by], &rules[..]].concat(), &[&base, &new]);
        adds_up(&found);
        let rows = found["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["match"] == "name"), "{found:#}");
    }
    let (code, text) = command(&["compare", "--rename", "x=*"], &[&base, &new]);
    assert_eq!(code, 2);
    assert!(text.contains("BASE=NEW"), "{text}");
}

#[test]
fn a_summary_stands_in_the_place_of_its_run() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let new = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let summary = folder.path().join("a.summary.json");
    let save = [
        "compare",
        "--no-cache",
        "--save-summary",
        summary.to_str().unwrap(),
    ];
    assert_eq!(command(&save, &[&base]).0, 0);
    let whole = json(&[], &[&base, &new]);
    let short = json(&[], &[&summary, &new]);
    for key in [
        "ratio",
        "low",
        "high",
        "difference_ns",
        "rows",
        "measures",
        "mismatches",
    ] {
        assert_eq!(whole[key], short[key], "{key}");
    }
}

#[test]
fn predictions_are_held_against_the_new_run() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let faster = [("mm", 200), ("copy", 50), ("relu", 150), ("relu", 150)];
    let new = write_run(&folder, "b.json", &faster, &JITTER);
    let words = [
        "report",
        base.to_str().unwrap(),
        "critical-path",
        "--what-if",
        "kernel:mm_kernel=x0.5",
        "--what-if",
        "kernel:relu*=0",
        "--format",
        "json",
        "--no-cache",
    ];
    let (code, text) = command(&words, &[]);
    assert_eq!(code, 0, "{text}");
    let saved = folder.path().join("prediction.json");
    std::fs::write(&saved, text).unwrap();
    let found = json(
        &["--check-what-if", saved.to_str().unwrap()],
        &[&base, &new],
    );
    let rows = found["what_if_check"].as_array().unwrap();
    let outcomes: Vec<_> = rows
        .iter()
        .map(|row| row["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["held", "too hopeful"]);
    assert!(
        rows[0]["error_share"].as_f64().unwrap().abs() < 0.01,
        "{rows:?}"
    );
    assert_eq!(rows[1]["measured_step_ns"], found["new"]["mean_ns"]);
    // The same, predicted from the base at once.
    let spec = json(
        &["--check-what-if", "kernel:mm_kernel=x0.5"],
        &[&base, &new],
    );
    assert_eq!(spec["what_if_check"].as_array().unwrap()[..], rows[..1]);
    for (wrong, code, cause) in [
        ("kernels=0", 2, "at position 0: the selector is unknown"),
        (
            base.to_str().unwrap(),
            1,
            "no report of the critical path with predictions",
        ),
        ("missing.json", 1, "cannot read missing.json"),
    ] {
        let words = ["compare", "--no-cache", "--check-what-if", wrong];
        let (found, text) = command(&words, &[&base, &new]);
        assert!(found == code && text.contains(cause), "{found} {text}");
    }
}

#[test]
fn runs_without_steps_have_no_verdict() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let files = [
        (
            "one.json",
            r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"work","pid":1,"tid":1,"ts":1,"dur":5}]}"#,
        ),
        (
            "zero.json",
            r#"{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"work","pid":1,"tid":1,"ts":1,"dur":0}]}"#,
        ),
        ("empty.json", r#"{"traceEvents":[]}"#),
    ];
    let gate = folder.path().join("gate.toml");
    std::fs::write(
        &gate,
        "[[rule]]\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n",
    )
    .unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        for pair in [[&base, &path], [&path, &base], [&path, &path]] {
            let pair = pair.map(PathBuf::as_path);
            let (code, text) = command(&["compare", "--no-cache", "--format", "json"], &pair);
            if code != 0 {
                assert!(
                    code == 1 && text.starts_with("error: cannot "),
                    "{name}: {code} {text}"
                );
                continue;
            }
            let found: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(found["verdict"], "no verdict", "{name}");
            adds_up(&found);
            let words = ["compare", "--no-cache", "--gate", gate.to_str().unwrap()];
            assert_eq!(command(&words, &pair).0, 4, "{name}");
        }
    }
    let (code, text) = command(&["compare"], &[&base]);
    assert!(code == 2 && text.contains("two sides are needed"), "{text}");
}

#[test]
fn several_comparisons_are_one_document() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let slower = write_run(&folder, "b.json", &SLOWER, &JITTER);
    let same = write_run(&folder, "c.json", &BASE, &JITTER);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let outputs = [
        ("json", "all.json"),
        ("junit", "all.xml"),
        ("html", "all.html"),
    ];
    let outputs = outputs.map(|(format, name)| format!("{format}={}", file(name)));
    let mut words = vec!["compare", "--no-cache"];
    for output in &outputs {
        words.extend(["--format", output]);
    }
    // What is there already is replaced.
    for _ in 0..2 {
        let (code, text) = command(&words, &[&base, &slower, &same]);
        assert_eq!(code, 0, "{text}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let found: Value = serde_json::from_str(&read("all.json")).unwrap();
    let verdicts: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["verdict"])
        .collect();
    assert_eq!(verdicts, ["regressed", "same"]);
    let suites = read("all.xml");
    for (part, count) in [
        ("<?xml", 1),
        ("<testsuites>", 1),
        ("<testsuite ", 2),
        ("<failure ", 1),
    ] {
        assert_eq!(suites.matches(part).count(), count, "{part}: {suites}");
    }
    let page = read("all.html");
    for (part, count) in [
        ("<!doctype", 1),
        ("id=\"compare\"", 1),
        ("id=\"compare-2\"", 1),
    ] {
        assert_eq!(page.matches(part).count(), count, "{part}");
    }
}

#[test]
fn a_summary_stands_for_the_steps_that_it_has() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let saved = folder.path().join("a-summary.json");
    let save = |steps: &str| {
        let file = saved.to_str().unwrap();
        let words = [
            "compare",
            "--no-cache",
            "--steps",
            steps,
            "--save-summary",
            file,
        ];
        assert_eq!(command(&words, &[&base]).0, 0);
    };
    let compared = |steps: &str| {
        let words = [
            "compare",
            "--no-cache",
            "--steps",
            steps,
            "--format",
            "json",
        ];
        command(&words, &[&saved, &base])
    };
    save("2-");
    let (code, text) = compared("2-");
    assert_eq!(code, 0, "{text}");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["base"]["mean_ns"], found["new"]["mean_ns"]);
    assert_eq!(found["base"]["steps"], found["new"]["steps"]);
    let (code, text) = compared("skip-warmup");
    assert!(
        code == 1 && text.contains("the summary has steps 2-"),
        "{code} {text}"
    );
}

/// Adds two allocations on the device to a run: 1,000 bytes in `prep`, `bytes` in `aten::mm`; 500 are from before.
fn with_memory(path: &Path, bytes: u64) {
    let text = std::fs::read_to_string(path).unwrap();
    let event = |ts: u32, bytes: u64, address: u8, total: u64| {
        format!(
            r#"{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":100,"tid":1,"ts":{ts},"args":{{"Total Allocated":{total},"Bytes":{bytes},"Addr":{address},"Device Id":0,"Device Type":1}}}}"#
        )
    };
    let first = event(1_000_010, 1_000, 1, 1_500);
    let second = event(1_000_101, bytes, 2, 1_500 + bytes);
    let added = format!("\"traceEvents\":[{first},{second},");
    std::fs::write(path, text.replace("\"traceEvents\":[", &added)).unwrap();
}

#[test]
fn memory_at_the_peaks_is_compared_by_operation() {
    let folder = TempDir::new().unwrap();
    let base = write_run(&folder, "a.json", &BASE, &JITTER);
    let new = write_run(&folder, "b.json", &SLOWER, &JITTER);
    assert!(json(&[], &[&base, &new])["memory"].is_null());
    with_memory(&base, 4_000);
    with_memory(&new, 6_000);
    // A summary knows what held the memory.
    let saved = folder.path().join("summary.json");
    let words = [
        "compare",
        "--no-cache",
        "--save-summary",
        saved.to_str().unwrap(),
    ];
    assert_eq!(command(&words, &[&base]).0, 0);
    for base in [&base, &saved] {
        let found = json(&[], &[base, &new]);
        let rows = found["memory"].as_array().unwrap();
        let of = |name: &str| {
            let row = rows.iter().find(|row| row["operation"] == name).unwrap();
            ["base_bytes", "new_bytes", "base_allocations"].map(|key| row[key].as_f64().unwrap())
        };
        assert_eq!(rows[0]["operation"], "aten::mm", "{rows:?}");
        assert_eq!(rows[0]["difference_bytes"], 2_000.0);
        assert_eq!(of("aten::mm"), [4_000.0, 6_000.0, 1.0]);
        assert_eq!(of("prep"), [1_000.0, 1_000.0, 1.0]);
        assert_eq!(of(""), [500.0, 500.0, 0.0]);
        let measures = found["measures"].as_array().unwrap();
        let peak = measures
            .iter()
            .find(|measure| measure["key"] == "peak_memory_bytes")
            .unwrap();
        assert_eq!(
            (&peak["base"], &peak["new"]),
            (&5_500.0.into(), &7_500.0.into())
        );
    }
    let (code, text) = command(&["compare", "--no-cache"], &[&base, &new]);
    assert!(code == 0 && text.contains("Memory at the peaks"), "{text}");
}

#[test]
fn memory_of_chosen_steps_is_that_of_their_time() {
    let folder = TempDir::new().unwrap();
    let run = write_run(&folder, "a.json", &BASE, &JITTER);
    with_memory(&run, 4_000);
    let text = std::fs::read_to_string(&run).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let last = events
        .iter()
        .find(|event| event["name"] == "ProfilerStep#11")
        .unwrap();
    let at = last["ts"].as_i64().unwrap() + 1;
    let late = format!(
        r#"{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":100,"tid":1,"ts":{at},"args":{{"Total Allocated":15500,"Bytes":10000,"Addr":3,"Device Id":0,"Device Type":1}}}}"#
    );
    let all = format!("\"traceEvents\":[{late},");
    std::fs::write(&run, text.replace("\"traceEvents\":[", &all)).unwrap();
    let peaks = |words: &[&str]| {
        let found = json(words, &[&run, &run]);
        let measures = found["measures"].as_array().unwrap().iter();
        let mut peaks = measures.filter(|measure| measure["key"] == "peak_memory_bytes");
        let peak = peaks.next().unwrap();
        ["base", "new"].map(|side| peak[side].as_f64().unwrap())
    };
    assert_eq!(peaks(&[]), [15_500.0, 15_500.0]);
    assert_eq!(
        peaks(&["--base-steps", "3-8", "--new-steps", "9-"]),
        [5_500.0, 15_500.0]
    );
}

#[test]
fn the_ranks_and_the_steps_of_one_run_are_compared() {
    let folder = TempDir::new().unwrap();
    write_run(&folder, "a.rank0.json", &BASE, &JITTER);
    write_run(&folder, "a.rank1.json", &SLOWER, &JITTER);
    let run = folder.path();
    let mean = |words: &[&str], side: &str| json(words, &[run, run])[side]["mean_ns"].as_f64();
    // Without a choice, the slower rank is each step.
    let slowest = mean(&[], "base");
    let ranks = ["--base-rank", "0", "--new-rank", "1"];
    let found = json(&ranks, &[run, run]);
    assert_eq!(found["verdict"], "regressed");
    assert_eq!(found["new"]["mean_ns"].as_f64(), slowest);
    assert_eq!(found["comparable"], true);
    adds_up(&found);
    let labels = ["base", "new"].map(|side| found[side]["label"].as_str().unwrap().to_owned());
    for (label, rank) in labels.iter().zip(["rank 0", "rank 1"]) {
        assert!(label.ends_with(&format!(": {rank}")), "{label}");
    }
    let alone = json(&[], &[&run.join("a.rank0.json"), &run.join("a.rank1.json")]);
    assert_eq!(found["rows"], alone["rows"]);
    // The first half of the steps and the second one.
    let halves = [
        "--base-rank",
        "0",
        "--new-rank",
        "0",
        "--base-steps",
        "2-6",
        "--new-steps",
        "7-",
    ];
    let found = json(&halves, &[run, run]);
    assert_eq!(found["base"]["steps"], 5);
    assert_eq!(found["new"]["steps"], JITTER.len() - 7);
    let (code, text) = command(&["compare", "--no-cache", "--new-rank", "7"], &[run, run]);
    assert!(
        code == 1 && text.contains("it has no rank 7") && text.contains("its ranks are 0, 1"),
        "{text}"
    );
    // A summary knows its rank.
    let saved = folder.path().join("rank1.json");
    let words = [
        "compare",
        "--no-cache",
        "--new-rank",
        "1",
        "--save-summary",
        saved.to_str().unwrap(),
    ];
    assert_eq!(command(&words, &[run]).0, 0);
    assert_eq!(
        json(&["--base-rank", "1"], &[&saved, run])["base"]["mean_ns"].as_f64(),
        slowest
    );
    let (code, text) = command(&["compare", "--no-cache"], &[&saved, run]);
    assert!(
        code == 1 && text.contains("the summary has rank 1"),
        "{text}"
    );
}

#[test]
fn a_run_of_a_directory_is_named() {
    let folder = TempDir::new().unwrap();
    write_run(&folder, "a.json", &BASE, &JITTER);
    write_run(&folder, "b.json", &SLOWER, &JITTER);
    let named = |name: &str| PathBuf::from(format!("{}#{name}", folder.path().display()));
    let found = json(&[], &[&named("a.json"), &named("b.json")]);
    assert_eq!(found["verdict"], "regressed");
    let missing = named("c.json");
    let (code, text) = command(&["compare", "--no-cache"], &[&missing, &missing]);
    assert!(code == 1 && text.contains("no such run"), "{code} {text}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn the_shared_case_has_its_expected_figures() {
    let traces =
        std::env::var("STEPSCOPE_TRACES").expect("STEPSCOPE_TRACES names the collected traces");
    let case = Path::new(&traces).join("../reference/critical_path_ref/cases/compare");
    let expected = std::fs::read_to_string(case.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let path = |run: &str| case.join(run).join("trace.json");
    for (other, key) in [("b", "a_b"), ("c", "a_c")] {
        let found = json(&[], &[&path("a"), &path(other)]);
        let expected = &expected[key];
        for (found, expected) in [
            (&found["ratio"], &expected["hodges_lehmann_ratio"]),
            (&found["low"], &expected["interval"][0]),
            (&found["high"], &expected["interval"][1]),
            (&found["level"], &expected["interval_level"]),
            (&found["p"], &expected["mann_whitney"]["p"]),
        ] {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!(
                (found - expected).abs() < 1e-12,
                "{key}: {found} {expected}"
            );
        }
        adds_up(&found);
    }
    let found = json(&[], &[&path("a"), &path("b")]);
    assert_eq!(
        (&found["verdict"], &found["difference_ns"]),
        (&"regressed".into(), &170_000.0.into())
    );
    check_rows(&found);
    for (tolerance, verdict) in [("0.5%", "no difference shown"), ("1%", "same")] {
        let found = json(&["--tolerance", tolerance], &[&path("a"), &path("c")]);
        assert_eq!(found["verdict"], verdict);
    }
}
