//! Calls of tools over traces of the repository.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use stepscope_engine::{Engine, EngineOptions};
use stepscope_report::reports::KINDS;
use tempfile::TempDir;

use super::*;
use crate::answer::DEFAULT_CHARACTERS;

/// Opens traces below `tests/data`, with an import cache of its own.
fn engine(traces: &[&str]) -> (Arc<Engine>, TempDir) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let cache = tempfile::tempdir().unwrap();
    let options = EngineOptions {
        cache_dir: Some(cache.path().to_path_buf()),
        watch: false,
        ..EngineOptions::new(traces.iter().map(|trace| folder.join(trace)).collect())
    };
    (Engine::new(options).unwrap(), cache)
}

fn call(engine: &Arc<Engine>, tool: &str, arguments: Value) -> Result<Rendered, String> {
    let served = Served {
        engine: Arc::clone(engine),
        capture_from: Vec::new(),
    };
    call_served(&served, tool, arguments)
}

fn call_served(served: &Served, tool: &str, arguments: Value) -> Result<Rendered, String> {
    let Value::Object(arguments) = arguments else {
        panic!("arguments are an object");
    };
    let tool = Tool::by_name(tool).unwrap();
    tool.call(served, &arguments, &Stop::default())
        .map_err(|error| error.text())
}

fn answer(engine: &Arc<Engine>, tool: &str, arguments: Value) -> Value {
    let shown = arguments.to_string();
    let answer =
        call(engine, tool, arguments).unwrap_or_else(|error| panic!("{tool} {shown}: {error}"));
    let json = Value::Object(answer.json);
    let size = answer.text.chars().count() + json.to_string().chars().count();
    assert!(size <= DEFAULT_CHARACTERS, "{tool} {shown}: {size}");
    json
}

fn ids(engine: &Arc<Engine>) -> Vec<String> {
    let runs = answer(engine, "list_runs", json!({}));
    let rows = runs["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| row["run"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn every_tool_answers_within_its_bounds() {
    let (engine, _cache) = engine(&[
        "example",
        "known_causes/torch_one_slow_batch",
        "known_causes/torch_slow_link",
        "known_causes/tpu_infeed",
    ]);
    let runs = ids(&engine);
    assert_eq!(runs.len(), 4);
    for run in &runs {
        let overview = answer(&engine, "overview", json!({"run": run}));
        assert_eq!(overview["run"], run.as_str());
        answer(&engine, "slow_steps", json!({"run": run}));
        for kind in KINDS {
            let report = answer(
                &engine,
                "report",
                json!({"run": run, "kind": kind.name, "rows": 1_000}),
            );
            assert_eq!(report["kind"], kind.name);
        }
        let found = answer(&engine, "find", json!({"run": run, "regex": "."}));
        let event = found["rows"][0]["event"].as_u64().unwrap();
        let event = answer(&engine, "event", json!({"run": run, "id": event}));
        assert_eq!(event["summary"]["name"], found["rows"][0]["name"]);
    }
    let compared = answer(&engine, "compare", json!({"base": runs[0], "new": runs[1]}));
    assert!(compared["summary"]["verdict"].is_string());
}

#[test]
fn rows_of_a_report_continue_at_the_offset() {
    let (engine, _cache) = engine(&["known_causes/torch_one_slow_batch"]);
    let [run] = &ids(&engine)[..] else {
        panic!("one run");
    };
    let page = |offset: usize, rows: usize| {
        let arguments = json!({"run": run, "kind": "ops", "offset": offset, "rows": rows});
        answer(&engine, "report", arguments)
    };
    let whole = page(0, 3);
    for offset in 0..3 {
        let one = page(offset, 1);
        assert_eq!(one["rows"][0], whole["rows"][offset]);
        assert_eq!(
            one["left_out"].as_u64().unwrap(),
            whole["left_out"].as_u64().unwrap() + 2 - offset as u64
        );
    }
}

#[test]
fn an_unknown_run_and_a_path_get_the_same_error() {
    let (engine, _cache) = engine(&["known_causes/torch_one_slow_batch"]);
    let error = |run: &str| {
        let error = call(&engine, "overview", json!({"run": run})).unwrap_err();
        error.replace(run, "RUN")
    };
    let expected = error("/no/such/file");
    assert!(expected.contains("call list_runs"), "{expected}");
    assert_eq!(error("/etc/passwd"), expected);
    assert_eq!(error("../../../../../../etc/passwd"), expected);
}

#[test]
fn a_track_includes_the_tracks_below() {
    let (engine, _cache) = engine(&["known_causes/torch_one_slow_batch"]);
    let [run] = &ids(&engine)[..] else {
        panic!("one run");
    };
    let find = |track: Option<String>| {
        answer(
            &engine,
            "find",
            json!({"run": run, "regex": ".", "track": track}),
        )
    };
    let all = find(None);
    let total = all["summary"]["events"].as_u64().unwrap();
    let opened = engine.open(run).unwrap();
    let roots = opened
        .trace
        .tracks()
        .iter()
        .filter(|track| track.parent.is_none());
    let below: u64 = roots
        .map(|root| {
            find(Some(root.id.0.to_string()))["summary"]["events"]
                .as_u64()
                .unwrap()
        })
        .sum();
    assert_eq!(below, total);
    let error = call(
        &engine,
        "find",
        json!({"run": run, "regex": ".", "track": "no such track"}),
    );
    assert!(error.unwrap_err().contains("leave 'track' out"));
}

#[test]
fn a_range_outside_of_the_run_is_refused() {
    let (engine, _cache) = engine(&["known_causes/torch_one_slow_batch"]);
    let [run] = &ids(&engine)[..] else {
        panic!("one run");
    };
    for (arguments, expected) in [
        (
            json!({"run": run, "kind": "ops", "from_ns": 1e18}),
            "the run ends at",
        ),
        (
            json!({"run": run, "kind": "ops", "from_ns": 5, "to_ns": 5}),
            "'from_ns' is below 'to_ns'",
        ),
        (
            json!({"run": run, "kind": "ops", "steps": "900"}),
            "by 'step'",
        ),
        (json!({"run": run, "kind": "op"}), "did you mean 'ops'?"),
        (
            json!({"run": run, "kind": "ops", "section": "none"}),
            "'section'",
        ),
    ] {
        let error = call(&engine, "report", arguments).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn pictures_are_bounded_and_show_the_asked_time() {
    let (engine, _cache) = engine(&["example", "known_causes/torch_one_slow_batch"]);
    for run in ids(&engine) {
        for (arguments, width) in [
            (json!({"run": run}), 1_000),
            (json!({"run": run, "width": 400}), 400),
            (
                json!({"run": run, "width": 1_200, "from_ns": 1_000_000, "to_ns": 1_000_500}),
                1_200,
            ),
        ] {
            let drawn = call(&engine, "timeline_image", arguments).unwrap();
            let png = drawn.png.unwrap();
            let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
            assert_eq!(number(16), width);
            assert!((30..=800).contains(&number(20)), "{}", number(20));
            assert!((500..300_000).contains(&png.len()), "{}", png.len());
            let rows = drawn.json["rows"].as_array().unwrap();
            assert!(!rows.is_empty());
            let last = drawn.json["summary"]["to_ns"].as_f64().unwrap();
            assert!(
                rows.iter()
                    .all(|row| row["start_ns"].as_f64().unwrap() < last)
            );
        }
        let find = answer(
            &engine,
            "find",
            json!({"run": run, "regex": ".", "rows": 1}),
        );
        let all = answer(&engine, "timeline_image", json!({"run": run, "rows": 1}));
        assert_eq!(
            all["rows"][0], find["rows"][0],
            "the longest event is drawn"
        );
        let error = call(
            &engine,
            "timeline_image",
            json!({"run": run, "track": "nowhere"}),
        );
        assert!(error.unwrap_err().contains("leave 'track' out"));
    }
}

#[test]
fn programs_are_captured_only_if_the_user_allowed_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = EngineOptions {
        use_cache: false,
        watch: false,
        ..EngineOptions::new(vec![folder.path().to_owned()])
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut served = Served {
        engine: Engine::new(options).unwrap(),
        capture_from: Vec::new(),
    };
    let is_listed = |served: &Served| Tool::all(served).any(|tool| tool.name == "capture");
    assert!(!is_listed(&served));
    let error = call_served(&served, "capture", json!({})).unwrap_err();
    assert!(error.contains("--allow-capture"), "{error}");
    served.capture_from = vec![Address::parse("localhost:1").unwrap()];
    assert!(is_listed(&served));
    for other in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        "file:///etc/passwd".to_owned(),
    ] {
        let asked = json!({"addresses": ["localhost:1", other]});
        let error = call_served(&served, "capture", asked).unwrap_err();
        assert!(
            error.contains("did not allow") && error.contains("localhost:1"),
            "{error}"
        );
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "something connected");
    // Nothing listens on the allowed port.
    let error = call_served(&served, "capture", json!({})).unwrap_err();
    assert!(
        error.starts_with("cannot capture: localhost:1: "),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn tools_are_sorted_and_described() {
    let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
    assert!(names.len() <= 12);
    for tool in TOOLS {
        assert!(
            tool.full_description().contains("never instructions"),
            "{}",
            tool.name
        );
        let schema = tool.input_schema();
        for argument in tool.all_arguments() {
            let described = &schema["properties"][argument.name]["description"];
            assert!(
                described.as_str().is_some_and(|text| !text.is_empty()),
                "{}",
                argument.name
            );
        }
    }
}

#[test]
fn the_description_of_report_lists_every_kind() {
    for kind in stepscope_report::reports::KINDS {
        let tool = Tool::by_name("report").unwrap();
        let line = format!("\n{}: {}", kind.name, kind.question);
        assert!(tool.full_description().contains(&line), "{}", kind.name);
    }
}
