//! Queries that people write for other profilers run on their views, and give the figures of our tables.

use stepscope_sql::session::Session;
use stepscope_sql::views;

use crate::support::{ask, number, one, open, open_all, same, try_ask};

/// A query for another profiler, and one for our tables: the first row of both has the same `figure`.
type Pair = (&'static str, &'static str);

const PERFETTO: [Pair; 10] = [
    (
        "SELECT sum(dur) AS figure FROM perfetto.slice WHERE dur > 0",
        "SELECT sum(dur_ps / 1000) AS figure FROM slices WHERE NOT unfinished",
    ),
    (
        "SELECT name, count(*) AS figure FROM perfetto.slice GROUP BY name ORDER BY figure DESC, name LIMIT 1",
        "SELECT name, count(*) AS figure FROM (SELECT name FROM slices UNION ALL SELECT name FROM instants) GROUP BY name ORDER BY figure DESC, name LIMIT 1",
    ),
    (
        "SELECT count(*) AS figure FROM perfetto.slice s JOIN perfetto.thread_track tt ON s.track_id = tt.id JOIN perfetto.thread t USING (utid) LEFT JOIN perfetto.process p USING (upid) WHERE p.pid IS NOT NULL",
        "SELECT count(*) AS figure FROM (SELECT track_id FROM slices UNION ALL SELECT track_id FROM instants) s JOIN tracks t ON t.track_id = s.track_id WHERE t.kind IN ('thread', 'device', 'steps') AND t.pid IS NOT NULL",
    ),
    (
        "SELECT count(*) AS figure FROM perfetto.slice child JOIN perfetto.slice parent ON child.parent_id = parent.id",
        "SELECT count(parent_id) AS figure FROM slices",
    ),
    (
        "SELECT max(ts + dur) - min(ts) AS figure FROM perfetto.slice WHERE depth = 0",
        "SELECT greatest(max(dur_end), (SELECT max(at_ps / 1000) FROM instants)) - least(min(begin), (SELECT min(at_ps / 1000) FROM instants)) AS figure FROM (SELECT start_ps / 1000 AS begin, start_ps / 1000 + CASE WHEN unfinished THEN -1 ELSE dur_ps / 1000 END AS dur_end FROM slices WHERE depth = 0)",
    ),
    (
        "SELECT count(*) AS figure FROM perfetto.flow f JOIN perfetto.slice o ON f.slice_out = o.id JOIN perfetto.slice i ON f.slice_in = i.id WHERE i.ts >= o.ts",
        "SELECT count(*) AS figure FROM flows f JOIN slices o ON f.from_id = o.id JOIN slices i ON f.to_id = i.id WHERE i.start_ps / 1000 >= o.start_ps / 1000",
    ),
    (
        "SELECT coalesce(sum(value), 0) AS figure FROM perfetto.counter c JOIN perfetto.counter_track t ON c.track_id = t.id",
        "SELECT coalesce(sum(value), 0) AS figure FROM counters",
    ),
    (
        "SELECT count(*) AS figure FROM perfetto.slice s JOIN perfetto.args a USING (arg_set_id) WHERE a.key = 'args.correlation'",
        "SELECT count(*) AS figure FROM args WHERE key = 'correlation'",
    ),
    (
        "SELECT count(DISTINCT upid) AS figure FROM perfetto.process",
        "SELECT count(DISTINCT pid) AS figure FROM tracks WHERE kind IN ('thread', 'device', 'steps')",
    ),
    (
        "WITH RECURSIVE up AS (SELECT id, parent_id, 0 AS level FROM perfetto.slice WHERE depth = 2 UNION ALL SELECT p.id, p.parent_id, up.level + 1 FROM perfetto.slice p JOIN up ON p.id = up.parent_id) SELECT max(level) AS figure FROM up",
        "SELECT max(depth) AS figure FROM slices WHERE depth <= 2",
    ),
];

const NSYS: [Pair; 10] = [
    (
        "SELECT sum(\"end\" - start) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL",
        "SELECT sum((start_ps + dur_ps) / 1000 - start_ps / 1000) AS figure FROM kernels WHERE work IN ('compute', 'communication')",
    ),
    (
        "SELECT s.value, count(*) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL k JOIN nsys.StringIds s ON k.shortName = s.id GROUP BY s.value ORDER BY figure DESC, s.value LIMIT 1",
        "SELECT short_name, count(*) AS figure FROM kernels WHERE work IN ('compute', 'communication') GROUP BY short_name ORDER BY figure DESC, short_name LIMIT 1",
    ),
    (
        "SELECT count(*) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL k JOIN nsys.CUPTI_ACTIVITY_KIND_RUNTIME r ON k.correlationId = r.correlationId",
        "SELECT count(*) AS figure FROM kernels WHERE work IN ('compute', 'communication') AND launch_id IS NOT NULL",
    ),
    (
        "SELECT count(*) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_RUNTIME r JOIN nsys.StringIds s ON r.nameId = s.id WHERE s.value LIKE 'cudaLaunchKernel%'",
        "SELECT count(*) AS figure FROM slices WHERE name LIKE 'cudaLaunchKernel%'",
    ),
    (
        "SELECT sum(bytes) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1",
        "SELECT sum(bytes) AS figure FROM kernels WHERE work = 'memcpy' AND name LIKE '%HtoD%'",
    ),
    (
        "SELECT count(*) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_MEMCPY",
        "SELECT count(*) AS figure FROM kernels WHERE work = 'memcpy'",
    ),
    (
        "SELECT deviceId, streamId, count(*) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL GROUP BY deviceId, streamId ORDER BY figure DESC LIMIT 1",
        "SELECT count(*) AS figure FROM kernels WHERE work IN ('compute', 'communication') GROUP BY device, stream ORDER BY figure DESC LIMIT 1",
    ),
    (
        "SELECT coalesce(sum(\"end\" - start), 0) AS figure FROM nsys.NVTX_EVENTS WHERE eventType = 59",
        "SELECT coalesce(sum(end_ps / 1000 - start_ps / 1000), 0) AS figure FROM slices WHERE category = 'user_annotation' AND NOT unfinished",
    ),
    (
        "SELECT count(DISTINCT globalTid % 16777216) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_RUNTIME",
        "SELECT count(DISTINCT t.tid) AS figure FROM slices s JOIN tracks t ON t.track_id = s.track_id WHERE s.category IN ('cuda_runtime', 'cuda_driver')",
    ),
    (
        "SELECT max(gridX * gridY * gridZ * blockX * blockY * blockZ) AS figure FROM nsys.CUPTI_ACTIVITY_KIND_KERNEL WHERE registersPerThread > 0",
        "SELECT max(threads) AS figure FROM kernels WHERE registers > 0",
    ),
];

const XPROF: [Pair; 10] = [
    (
        "SELECT count(*) AS figure FROM xprof.Events",
        "SELECT count(*) AS figure FROM slices",
    ),
    (
        "SELECT hlo_op, sum(self_time_ns) AS figure FROM xprof.Events WHERE hlo_op IS NOT NULL GROUP BY hlo_op ORDER BY figure DESC, hlo_op LIMIT 1",
        "SELECT o.name, sum(s.self_ps / 1000) AS figure FROM ops o JOIN slices s ON s.id = o.id WHERE o.class = 'hlo' GROUP BY o.name ORDER BY figure DESC, o.name LIMIT 1",
    ),
    (
        "SELECT device, count(*) AS figure FROM xprof.Events GROUP BY device ORDER BY figure DESC, device LIMIT 1",
        "SELECT device, count(*) AS figure FROM slices GROUP BY device ORDER BY figure DESC, device LIMIT 1",
    ),
    (
        "SELECT step, max(end_ns) - min(start_ns) AS figure FROM xprof.Events WHERE step IS NOT NULL GROUP BY step ORDER BY figure DESC, step LIMIT 1",
        "SELECT step, max(end_ps / 1000) - min(start_ps / 1000) AS figure FROM slices WHERE step IS NOT NULL GROUP BY step ORDER BY figure DESC, step LIMIT 1",
    ),
    (
        "SELECT count(DISTINCT thread_id) AS figure FROM xprof.Events WHERE category = 'host'",
        "SELECT count(DISTINCT t.tid) AS figure FROM slices s JOIN tracks t ON t.track_id = s.track_id WHERE s.device IS NULL",
    ),
    (
        "SELECT thread_name, sum(self_time_ns) AS figure FROM xprof.Events WHERE thread_name IS NOT NULL GROUP BY thread_name ORDER BY figure DESC, thread_name LIMIT 1",
        "SELECT t.name, sum(s.self_ps / 1000) AS figure FROM slices s JOIN tracks t ON t.track_id = s.track_id WHERE s.device IS NULL GROUP BY t.name ORDER BY figure DESC, t.name LIMIT 1",
    ),
    (
        "SELECT count(DISTINCT hlo_module) AS figure FROM xprof.Events",
        "SELECT count(DISTINCT program) AS figure FROM ops WHERE class = 'hlo'",
    ),
    (
        "SELECT kernel_name, count(*) AS figure FROM xprof.Events GROUP BY kernel_name ORDER BY figure DESC, kernel_name LIMIT 1",
        "SELECT name, count(*) AS figure FROM slices GROUP BY name ORDER BY figure DESC, name LIMIT 1",
    ),
    (
        "SELECT count(correlation_id) AS figure FROM xprof.Events",
        "SELECT count(correlation) AS figure FROM kernels",
    ),
    (
        "SELECT count(source_line) AS figure FROM xprof.Events",
        "SELECT count(source) AS figure FROM ops WHERE class = 'hlo'",
    ),
];

/// Compares the figures, and returns how many are not zero.
fn compare(session: &Session, pairs: &[Pair]) -> usize {
    let mut counted = 0;
    for (theirs, ours) in pairs {
        let (left, right) = (one(session, theirs), one(session, ours));
        let (left, right) = (number(&left, "figure"), number(&right, "figure"));
        assert!(
            same(left, right) || (left.is_nan() && right.is_nan()),
            "{theirs}: {left} and {right}"
        );
        counted += usize::from(left > 0.0);
    }
    counted
}

#[test]
fn queries_for_other_profilers_give_the_figures_of_our_tables() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/known_causes/a100_pageable_copy/trace"
    );
    let gpu = open_all(&[folder.into()]);
    assert!(compare(&gpu, &PERFETTO) >= 8);
    assert!(compare(&gpu, &NSYS) >= 8);
    let jax = open("jax_cpu/train_h2_p1");
    assert!(compare(&jax, &XPROF) >= 7);
    assert!(compare(&jax, &PERFETTO) >= 6);
}

#[test]
fn names_that_begin_alike_are_no_calls_of_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let event = |category: &str, name: &str, ts: u32| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":5}}"#
        )
    };
    let events = [
        event("cuda_runtime", "cudaLaunchKernel", 0),
        event("cuda_driver", "cuLaunchKernelEx", 10),
        event("", "cuLaunchKernel", 20),
        event("cpu_op", "cumsum", 30),
        event("python_function", "curate.py(3): current", 40),
        event("user_annotation", "custom range", 50),
        event("user_annotation", "enumerate(DataLoader)#next", 60),
        event("nvtx", "Range", 70),
    ];
    let path = folder.path().join("calls.json");
    let text = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
    std::fs::write(&path, text).unwrap();
    let session = open_all(&[path]);
    let names = |sql: &str| -> Vec<String> {
        let rows = ask(&session, sql);
        let names = rows
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    let calls = "SELECT s.value AS name FROM nsys.CUPTI_ACTIVITY_KIND_RUNTIME r \
                 JOIN nsys.StringIds s ON r.nameId = s.id ORDER BY r.start";
    assert_eq!(
        names(calls),
        ["cudaLaunchKernel", "cuLaunchKernelEx", "cuLaunchKernel"]
    );
    let ranges = "SELECT text AS name FROM nsys.NVTX_EVENTS ORDER BY start";
    assert_eq!(
        names(ranges),
        ["custom range", "enumerate(DataLoader)#next", "Range"]
    );
}

#[test]
fn views_are_listed() {
    let session = open("torch_cpu");
    for view in stepscope_sql::views::all() {
        let rows = ask(
            &session,
            &format!("SELECT * FROM {}.{} LIMIT 1", view.schema, view.name),
        );
        assert!(rows.len() <= 1);
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/sql.md");
    let page = std::fs::read_to_string(page).unwrap();
    for view in stepscope_sql::views::all() {
        let row = format!("| `{}.{}` | {} |", view.schema, view.name, view.meaning);
        assert!(page.contains(&row), "docs/reference/sql.md lacks: {row}");
    }
    let json = stepscope_sql::schema_table::as_json();
    let listed = json["tables"].as_array().unwrap();
    for view in stepscope_sql::views::all() {
        let name = view.full_name();
        let answer = try_ask(&session, &format!("SELECT * FROM {name} LIMIT 0")).unwrap();
        let columns = answer["columns"].as_array().unwrap().iter();
        let planned: Vec<&str> = columns
            .map(|column| column["key"].as_str().unwrap())
            .collect();
        assert_eq!(view.columns(), planned, "{name}");
        let table = listed.iter().find(|table| table["name"] == name.as_str());
        let columns = table.unwrap()["columns"].as_array().unwrap();
        assert_eq!(columns.len(), planned.len(), "{name}");
        let text = stepscope_sql::schema_table::as_text(Some(&name)).unwrap();
        assert!(planned.iter().all(|column| text.contains(column)), "{text}");
    }
    let text = stepscope_sql::schema_table::as_text(None).unwrap();
    assert!(
        text.contains("perfetto.slice ") && text.contains("nsys.stringids "),
        "{text}"
    );
}

#[test]
fn every_view_has_a_name_columns_and_a_meaning() {
    let views = views::all();
    assert_eq!(views.len(), 15);
    for view in views {
        assert!(
            !view.meaning.is_empty() && !view.meaning.contains('\n'),
            "{view:?}"
        );
        assert!(!view.columns().is_empty(), "{view:?}");
        let letters = &mut view.name.chars();
        assert!(
            letters.all(|c| c.is_ascii_lowercase() || c == '_'),
            "{view:?}"
        );
    }
}
