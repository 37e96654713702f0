//! What `stepscope report` prints.

use crate::cli::{TRACE, folder_with, refusal, run, text};

#[test]
fn reports_give_mean_percentiles_and_shares() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let path = dir.path().join("t.pt.trace.json");
    let report = |more: &[&str]| {
        let mut arguments = vec!["report", path.to_str().unwrap(), "steps"];
        arguments.extend_from_slice(more);
        let output = run(dir.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let table = report(&[]);
    assert!(
        table.contains("Steps 2   Ranks 1   Mean 15.0 µs   p50 15.0 µs   Min 10.0 µs"),
        "{table}"
    );
    assert!(
        table.contains("work") && table.contains("66.7 %"),
        "{table}"
    );
    let json: serde_json::Value = serde_json::from_str(&report(&["--format", "json"])).unwrap();
    assert_eq!(json["report"], "steps");
    assert_eq!(json["rows"][0]["label"], "work");
    assert_eq!(json["rows"][0]["total_ns"].as_f64(), Some(20_000.0));
    assert_eq!(json["summary"]["mean_ns"].as_f64(), Some(15_000.0));
    assert!(json["notes"].is_array());
    let by_step = report(&["--format", "csv", "--by", "step"]);
    let columns = by_step.lines().next().unwrap_or_default();
    assert!(
        columns.starts_with("step,host,track,start_ns,duration_ns,compute_ns,"),
        "{columns}"
    );
    assert!(report(&["--format", "md"]).contains("\n| Label |"));
    for (kind, by, told) in [
        (
            "stepps",
            "label",
            "cannot make report 'stepps': there is no such report\nhelp: did you mean 'steps'?",
        ),
        (
            "steps",
            "colour",
            "cannot make report 'steps' by 'colour': it has no such rows\nhelp: use one of ",
        ),
    ] {
        let arguments = ["report", path.to_str().unwrap(), kind, "--by", by];
        let (code, said) = refusal(&run(dir.path(), &arguments));
        assert_eq!(code, 2);
        assert!(said.contains(told), "{said}");
    }
    let list = text(&run(dir.path(), &["report", "list"]).stdout);
    assert!(list.contains("How long do steps take"), "{list}");
}

#[test]
fn json_and_csv_have_all_rows() {
    let steps = (0..40).map(|step| {
        let name = format!("ProfilerStep#{step}");
        slice("user_annotation", &name, 1, 100 * step, 90)
    });
    let steps: Vec<_> = steps.collect();
    let trace = serde_json::json!({ "traceEvents": steps }).to_string();
    let dir = folder_with(&[("t.pt.trace.json", &trace)]);
    let path = dir.path().join("t.pt.trace.json");
    let report = |more: &[&str]| {
        let arguments = ["report", path.to_str().unwrap(), "steps", "--by", "step"];
        let output = run(dir.path(), &[&arguments[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let rows = |text: &str| {
        let found: serde_json::Value = serde_json::from_str(text).unwrap();
        let rows = found["rows"].as_array().unwrap().len();
        (rows, found["left_out"].as_u64().unwrap_or_default())
    };
    assert_eq!(rows(&report(&["--format", "json"])), (40, 0));
    assert_eq!(rows(&report(&["--format", "json", "--top", "3"])), (3, 37));
    assert_eq!(report(&["--format", "csv"]).lines().count(), 41);
    let table = report(&["--format", "md"]);
    let lines = table.lines().filter(|line| line.starts_with("| ")).count();
    assert!((25..40).contains(&lines), "{lines} {table}");
}

#[test]
fn a_report_can_be_of_some_steps_or_of_a_range() {
    let dir = folder_with(&[("t.pt.trace.json", &uneven())]);
    let path = dir.path().join("t.pt.trace.json");
    let rows = |part: &[&str]| {
        let mut arguments = vec!["report", path.to_str().unwrap(), "steps", "--by", "step"];
        arguments.extend_from_slice(&["--format", "json"]);
        arguments.extend_from_slice(part);
        let output = run(dir.path(), &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = json["rows"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| row["step"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(&[]).len(), 20);
    assert_eq!(rows(&["--steps", "12"]), [12]);
    assert_eq!(rows(&["--steps", "3-5"]), [3, 4, 5]);
    assert_eq!(rows(&["--from", "0", "--to", "150us"])[0], 0);
    for (part, code, told) in [
        (["--steps", "99"], 1, "no step 99 in this run, it has 0-19"),
        (["--from", "2h"], 1, "the run lasts "),
        (["--steps", "5-3"], 2, "from the first to the last"),
    ] {
        let [option, value] = part;
        let arguments = ["report", path.to_str().unwrap(), "ops", option, value];
        let (exit, said) = refusal(&run(dir.path(), &arguments));
        assert_eq!(exit, code, "{said}");
        assert!(said.contains(told), "{said}");
    }
}

/// Twenty steps, one of them ten times as long, that multiply and wait for a kernel with a long name.
fn uneven() -> String {
    let mut events = Vec::new();
    let mut at = 1_000;
    for step in 0..20 {
        let long = if step == 12 { 1_000 } else { 100 };
        let kernel = format!(
            "void gemm_kernel<{}{}>(float*)",
            "float, ".repeat(20),
            step % 2
        );
        events.extend([
            slice(
                "user_annotation",
                &format!("ProfilerStep#{step}"),
                1,
                at,
                long,
            ),
            slice("cpu_op", "aten::mm", 1, at + 1, 20),
            slice("kernel", &kernel, 0, at + 30, 40),
        ]);
        at += long;
    }
    serde_json::json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

fn slice(category: &str, name: &str, process: u32, ts: u32, dur: u32) -> serde_json::Value {
    serde_json::json!({
        "ph": "X", "cat": category, "name": name, "pid": process, "tid": process + 1, "ts": ts, "dur": dur
    })
}

#[test]
fn an_overview_shows_steps_as_bars_and_findings_with_their_whole_advice() {
    let dir = folder_with(&[("t.pt.trace.json", &uneven())]);
    let path = dir.path().join("t.pt.trace.json");
    let path = path.to_str().unwrap();
    let said = text(&run(dir.path(), &["report", path, "overview"]).stdout);
    let bars: Vec<char> = said
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with(['▁', '▂', '▃', '▄']))
        .unwrap_or_else(|| panic!("no bars: {said}"))
        .chars()
        .collect();
    assert_eq!(bars.len(), 20, "{said}");
    assert_eq!(bars.iter().position(|bar| *bar == '█'), Some(12), "{said}");
    assert!(said.contains("the longest 1.00 ms"), "{said}");
    let json = run(
        dir.path(),
        &["report", path, "overview", "--format", "json"],
    );
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for finding in json["rows"].as_array().unwrap() {
        let advice = finding["advice"].as_str().unwrap();
        assert!(words(&said).contains(&words(advice)), "{advice}: {said}");
    }
}

#[test]
fn names_are_cut_where_they_are_alike() {
    let dir = folder_with(&[("t.pt.trace.json", &uneven())]);
    let path = dir.path().join("t.pt.trace.json");
    let said = run(dir.path(), &["report", path.to_str().unwrap(), "kernels"]);
    let said = text(&said.stdout);
    for end in ["0>", "1>"] {
        let rows = said
            .lines()
            .filter(|line| line.contains(&format!("{end}  ")));
        assert_eq!(rows.count(), 1, "{said}");
    }
}

#[test]
fn missing_data_is_reported_with_how_to_record_it() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let path = dir.path().join("t.pt.trace.json");
    let path = path.to_str().unwrap();
    for format in ["table", "md", "csv"] {
        let said = run(dir.path(), &["report", path, "memory", "--format", format]);
        assert!(said.status.success(), "{format}");
        let (stdout, stderr) = (text(&said.stdout), text(&said.stderr));
        // Who reads a table into a program must not find words in it.
        let (words, other) = match format {
            "csv" => (stderr, stdout),
            _ => (stdout, stderr),
        };
        assert!(words.contains("Not recorded: "), "{format}: {words}");
        assert!(words.contains("To record it: "), "{format}: {words}");
        assert_eq!(other.trim(), "", "{format}");
    }
    let said = run(dir.path(), &["report", path, "steps", "--format", "csv"]);
    assert_eq!(text(&said.stderr), "", "nothing is missing");
}

#[test]
fn figures_of_another_profiler_are_added_on_request() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let path = dir.path().join("t.pt.trace.json");
    let path = path.to_str().unwrap();
    let steps = ["report", path, "steps", "--by=step", "--format=json"];
    let report = |more: &[&str]| {
        let output = run(dir.path(), &[&steps[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(!report(&[]).contains("xprof_step_ns"));
    assert!(report(&["--compat", "xprof"]).contains("xprof_step_ns"));
    for (arguments, expected) in [
        (
            vec!["report", path, "idle", "--compat", "nsys"],
            "no such profiler\nhelp: use hta or xprof",
        ),
        (
            vec!["report", path, "steps", "--compat", "hta"],
            "it has none\nhelp: use one of these reports: idle, overlap, ranks",
        ),
        (
            vec!["report", path, "all", "--format=html", "--compat=hta"],
            "--compat belongs to one kind\nhelp: name a kind",
        ),
    ] {
        let (code, error) = refusal(&run(dir.path(), &arguments));
        assert_eq!(code, 2);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn all_reports_are_one_page_that_needs_nothing_else() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let path = dir.path().join("t.pt.trace.json");
    let path = path.to_str().unwrap();
    let page = run(dir.path(), &["report", path, "all", "--format", "html"]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    let page = text(&page.stdout);
    assert!(page.starts_with("<!doctype html>"), "{page:.200}");
    assert!(
        page.contains("ProfilerStep") || page.contains("work"),
        "{page:.200}"
    );
    for outside in ["http://", "https://", "<script src", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let one = run(dir.path(), &["report", path, "steps", "--format", "html"]);
    assert!(text(&one.stdout).len() < page.len());
    for (arguments, told) in [
        (
            vec!["report", path, "all"],
            "'all' is one HTML page\nhelp: give --format html",
        ),
        (
            vec!["report", path, "all", "--format", "html", "--by", "step"],
            "--by belongs to one kind\nhelp: name a kind",
        ),
    ] {
        let (code, said) = refusal(&run(dir.path(), &arguments));
        assert_eq!(code, 2);
        assert!(said.contains(told), "{said}");
    }
}
