//! Execution traces next to the trace of their process: which run they belong to, and what their operators cost.

use std::path::Path;
use std::sync::Arc;

use stepscope_analysis::execution_trace::{
    ExecutionTraceJoin, JoinKey, JoinedTrace, NotJoined, facts,
};
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::{Engine, EngineOptions, Run};
use stepscope_report::report::Cell;
use stepscope_report::reports::Options;

use super::{options, write};

/// Opens the run of this name.
fn open(logs: &Path, home: &Path, name: &str) -> Arc<Run> {
    let engine = Engine::new(options(logs, home)).unwrap();
    let run = engine
        .runs()
        .into_iter()
        .find(|run| run.name.contains(name));
    engine.open(&run.unwrap().id).unwrap()
}

fn join(run: &Run) -> Arc<ExecutionTraceJoin> {
    ExecutionTraceJoin::from_trace(&run.trace, &Cancel::default()).unwrap()
}

/// A trace of kineto: operators of one process with a number, an id of its own and a duration in microseconds.
fn kineto(pid: u32, key: &str, operators: &[(u32, &str, u32)]) -> String {
    let events = operators.iter().enumerate().map(|(at, (number, name, dur))| {
        format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":{pid},"tid":{pid},"ts":{},"dur":{dur},"args":{{"{key}":{number}}}}}"#,
            at * 1_000
        )
    });
    let events: Vec<String> = events.collect();
    format!("{{\"traceEvents\":[{}]}}", events.join(","))
}

fn execution_trace(pid: u32, operators: &[(u32, &str)]) -> String {
    let nodes = operators.iter().map(|(number, name)| {
        format!(
            r#"{{"id":{},"name":"{name}","rf_id":{number},"parent":1,"op_schema":"schema of {number}"}}"#,
            number + 10
        )
    });
    let nodes: Vec<String> = nodes.collect();
    format!(
        "{{\"schema\":\"1.0.1\",\"pid\":{pid},\"start_ts\":1,\"nodes\":[{}]}}",
        nodes.join(",")
    )
}

const OPERATORS: [(u32, &str); 3] = [(1, "aten::mm"), (2, "aten::add"), (3, "aten::mm")];
const EVENTS: [(u32, &str, u32); 4] = [
    (1, "aten::mm", 10),
    (2, "aten::add", 20),
    (3, "aten::mm", 30),
    (4, "aten::relu", 40),
];

/// Returns the joins of a folder with these files.
fn joined(files: &[(&str, &str)], name: &str) -> Vec<JoinedTrace> {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    for (name, content) in files {
        write(&logs.join(name), content);
    }
    join(&open(&logs, dir.path(), name)).traces.clone()
}

#[test]
fn operators_have_the_times_that_a_script_sums() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/execution_trace");
    let figures = std::fs::read_to_string(folder.join("figures.json")).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let home = tempfile::tempdir().unwrap();
    let run = open(&folder, home.path(), "train.pt.trace");
    let join = join(&run);
    let [found] = &join.traces[..] else {
        panic!("{:?}", join.traces);
    };
    assert_eq!(
        (found.file, found.outcome),
        (Some(0), Ok(JoinKey::RecordFunction))
    );
    assert_eq!(found.operators, figures["operators"]);
    assert_eq!(found.joined, figures["joined"]);
    let times = join.times(&run.trace, &Cancel::default()).unwrap();
    let by_name = figures["by_name"].as_object().unwrap();
    assert_eq!(times.len(), by_name.len());
    for (name, expected) in by_name {
        let found = times[&**name];
        assert_eq!(found.joined, expected["joined"], "{name}");
        let host_ns = found.host_ps as f64 / 1e3;
        let expected_ns = expected["host_ns"].as_f64().unwrap();
        assert!(
            (host_ns - expected_ns).abs() < 1.0,
            "{name}: {host_ns} {expected_ns}"
        );
        assert_eq!(found.device_ps, None);
    }
    // The report has them next to the counts.
    let options = Options {
        top: usize::MAX,
        ..Options::default()
    };
    let report = run.report("pprof", &options, &Cancel::default()).unwrap();
    let column = |key: &str| {
        let mut columns = report.table.columns.iter();
        columns.position(|column| column.key == key).unwrap()
    };
    let (name, host) = (column("function"), column("host_ns"));
    let row = report
        .table
        .rows
        .iter()
        .find(|row| row[name] == Cell::Text("aten::mm".to_owned()));
    assert_eq!(
        row.unwrap()[host],
        Cell::Number(times["aten::mm"].host_ps as f64 / 1e3)
    );
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("234 of 234 operators of 'train_et.json.gz'")),
        "{notes:?}"
    );
}

#[test]
fn slices_have_the_facts_of_their_operators_also_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write(&logs.join("a_et.json"), &execution_trace(7, &OPERATORS));
    // Large enough for the import cache.
    let mut events = EVENTS.to_vec();
    events.extend((5..90_000).map(|number| (number, "aten::relu", 1)));
    write(
        &logs.join("a.pt.trace.json"),
        &kineto(7, "Record function id", &events),
    );
    for is_cached in [false, true] {
        let engine = Engine::new(options(&logs, dir.path())).unwrap();
        let runs = engine.runs();
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].files.len(), 2, "both files are the run's");
        let run = engine.open(&runs[0].id).unwrap();
        assert_eq!(run.from_cache, is_cached);
        assert_eq!(run.trace.files().len(), 1, "an execution trace is no rank");
        assert_eq!(run.trace.profiles().count(), 1);
        let mut found = Vec::new();
        for track in run.trace.tracks() {
            let slices = run.trace.slices(track.id);
            for index in 0..slices.len().min(4) {
                facts(&run.trace, slices.id(index), &mut |key, value| {
                    if key == "execution_trace.op_schema" {
                        found.push(format!("{} {value:?}", run.trace.name(slices.name[index])));
                    }
                    assert_ne!(key, "execution_trace.rf_id");
                })
                .unwrap();
            }
        }
        assert_eq!(
            found,
            [
                "aten::mm Str(\"schema of 1\")",
                "aten::add Str(\"schema of 2\")",
                "aten::mm Str(\"schema of 3\")"
            ]
        );
        engine.flush_cache();
    }
}

#[test]
fn external_ids_of_another_recording_join_nothing() {
    let own = execution_trace(7, &OPERATORS);
    let one = |key: &str, events: &[(u32, &str, u32)]| {
        let files = [
            ("a_et.json", &*own),
            ("a.pt.trace.json", &*kineto(7, key, events)),
        ];
        joined(&files, "a.pt.trace").remove(0)
    };
    let found = one("External id", &EVENTS);
    assert_eq!((found.joined, found.outcome), (3, Ok(JoinKey::External)));
    let shifted = [(1, "aten::add", 1), (2, "aten::mm", 1), (3, "aten::mm", 1)];
    let found = one("External id", &shifted);
    let reason = NotJoined::OtherNames {
        found: 3,
        same_name: 1,
    };
    assert_eq!((found.joined, found.outcome), (0, Err(reason)));
    let found = one("Record function id", &[(8, "aten::mm", 1)]);
    assert_eq!(found.outcome, Err(NotJoined::NoSlices));
}

#[test]
fn execution_traces_of_ranks_join_their_rank() {
    let events = |dur| {
        [
            (1, "aten::mm", dur),
            (2, "aten::add", dur),
            (3, "aten::mm", dur),
        ]
    };
    let one = execution_trace(7, &OPERATORS);
    let files: [(&str, &str); 4] = [
        ("job_rank0.et.json", &one),
        ("job_rank1.et.json", &one),
        (
            "job_rank0.pt.trace.json",
            &kineto(7, "Record function id", &events(10)),
        ),
        (
            "job_rank1.pt.trace.json",
            &kineto(7, "Record function id", &events(20)),
        ),
    ];
    let found = joined(&files, "logs");
    let pairs: Vec<_> = found.iter().map(|one| (one.file, one.joined)).collect();
    assert_eq!(pairs, [(Some(0), 3), (Some(1), 3)]);
}

#[test]
fn files_named_together_are_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let (own, trace) = (logs.join("x.json"), logs.join("a.pt.trace.json"));
    write(&own, &execution_trace(7, &OPERATORS));
    write(&trace, &kineto(7, "Record function id", &EVENTS));
    let options = EngineOptions {
        cache_dir: Some(dir.path().join("cache")),
        watch: false,
        ..EngineOptions::new(vec![own.clone(), trace.clone()])
    };
    let engine = Engine::new(options).unwrap();
    let runs = engine.runs();
    assert_eq!(runs.len(), 1);
    let run = engine.open(&runs[0].id).unwrap();
    assert_eq!(join(&run).traces[0].joined, 3);
    assert_eq!(engine.refusals().len(), 0);
    // One of them alone.
    for path in [own, trace] {
        let options = EngineOptions {
            watch: false,
            ..EngineOptions::new(vec![path])
        };
        let engine = Engine::new(options).unwrap();
        let run = engine.open(&engine.runs()[0].id).unwrap();
        assert!(run.trace.attached().is_empty());
    }
}

#[test]
fn another_process_joins_nothing() {
    let files: [(&str, &str); 2] = [
        ("a_et.json", &execution_trace(8, &OPERATORS)),
        ("a.pt.trace.json", &kineto(7, "Record function id", &EVENTS)),
    ];
    let found = joined(&files, "a.pt.trace");
    assert_eq!(found[0].outcome, Err(NotJoined::OtherProcess));
}

#[test]
fn a_damaged_execution_trace_leaves_the_run_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let own = execution_trace(7, &OPERATORS);
    write(&logs.join("a_et.json"), &own[..own.len() - 40]);
    write(
        &logs.join("a.pt.trace.json"),
        &kineto(7, "Record function id", &EVENTS),
    );
    let run = open(&logs, dir.path(), "a.pt.trace");
    assert_eq!(join(&run).traces[0].joined, 2);
    assert!(
        run.problems[0].reason.contains("ends early"),
        "{:?}",
        run.problems
    );
    write(
        &logs.join("a_et.json"),
        "{\"schema\":\"1.0.1\",\"start_ts\":1,\"nodes\":[]}",
    );
    let run = open(&logs, dir.path(), "a.pt.trace");
    assert_eq!(run.trace.slice_count(), 4);
    assert!(run.trace.attached().is_empty());
    assert_eq!(run.problems.len(), 1, "{:?}", run.problems);
}
