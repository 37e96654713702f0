use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::physical_plan::collect_partitioned;
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::json;
use stepscope_engine::{Run, SqlRun, open_each};
use stepscope_sql::locked::MemoryLimits;
use stepscope_sql::schema_table;
use stepscope_sql::session::Session;
use stepscope_sql::tables::{RunTable, TABLES, Table};
use stepscope_test_data::Corpus;

use crate::support::{ask, number, one, open, open_all, runtime, try_ask};

/// Every column of every table, with the types that the schema promises.
pub(crate) fn every_table_reads_on_every_run(session: &Session, run: &Run) -> f64 {
    for (table, _, columns) in schema_table::all() {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let sql = format!("SELECT {} FROM {table} LIMIT 300", names.join(", "));
        let answer = try_ask(session, &sql);
        let answer = answer.unwrap_or_else(|error| panic!("{}: {sql}: {error}", run.name));
        for (reported, column) in answer["columns"].as_array().unwrap().iter().zip(columns) {
            assert_eq!(reported["key"], column.name, "{table}");
            assert_eq!(
                reported["type"],
                column.kind.sql(),
                "{table}.{}",
                column.name
            );
            if !column.unit.is_empty() {
                assert_eq!(reported["unit"], column.unit, "{table}.{}", column.name);
            }
        }
    }
    1.0
}

pub(crate) fn sums_of_slices_equal_the_trace(session: &Session, run: &Run) -> f64 {
    let trace = &run.trace;
    let (mut count, mut dur, mut own) = (0_u64, 0_i128, 0_i128);
    for track in trace.tracks() {
        let slices = trace.slices(track.id);
        count += slices.len() as u64;
        dur += slices
            .dur
            .iter()
            .map(|dur| i128::from(dur.ps()))
            .sum::<i128>();
        own += trace
            .self_times(track.id)
            .iter()
            .map(|dur| i128::from(dur.ps()))
            .sum::<i128>();
    }
    if dur > i128::from(i64::MAX) {
        return 0.0;
    }
    let row = one(
        session,
        "SELECT count(*) AS n, coalesce(sum(dur_ps), 0) AS dur, coalesce(sum(self_ps), 0) AS own, \
         coalesce(sum(end_ps - start_ps - dur_ps), 0) AS gap, count(DISTINCT id) AS ids FROM slices",
    );
    assert_eq!(row["n"], count, "{}", run.name);
    assert_eq!(row["ids"], count, "{}", run.name);
    assert_eq!(row["dur"], i64::try_from(dur).unwrap(), "{}", run.name);
    assert_eq!(row["own"], i64::try_from(own).unwrap(), "{}", run.name);
    assert_eq!(row["gap"], 0, "{}", run.name);
    is_sorted(session, run);
    1.0
}

/// The order that a scan declares lets windows run without a sort: it must hold.
fn is_sorted(session: &Session, run: &Run) {
    let row = one(
        session,
        "SELECT count(*) AS n FROM (SELECT start_ps - lag(start_ps) OVER (PARTITION BY track_id ORDER BY start_ps) AS \
         step FROM slices) WHERE step < 0",
    );
    assert_eq!(row["n"], 0, "{}", run.name);
}

#[test]
fn several_runs_are_one_session() {
    let folder = Corpus::committed().path("torch_cpu");
    let paths =
        ["cpu_plain.pt.trace.json.gz", "cpu_optim.pt.trace.json.gz"].map(|name| folder.join(name));
    let session = open_all(&paths);
    let rows = ask(
        &session,
        "SELECT r.run, r.number, r.slices, count(*) AS n, min(s.id) >> 32 AS first FROM slices s JOIN runs r ON r.run = s.run \
         GROUP BY r.run, r.number, r.slices ORDER BY r.number",
    );
    assert_eq!(rows.len(), 2);
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["number"], number);
        assert_eq!(row["first"], number);
        assert_eq!(row["slices"], row["n"]);
    }
    // The same path twice gives two runs with names of their own.
    let twice = open_all(&[paths[0].clone(), paths[0].clone()]);
    let rows = ask(&twice, "SELECT run, count(*) AS n FROM slices GROUP BY run");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["n"], rows[1]["n"]);
}

#[test]
fn listed_runs_of_one_name_stay_apart() {
    let folder = Corpus::committed().path("torch_cpu");
    let listed = |file: &str, name: &str| SqlRun::Listed {
        path: folder.clone(),
        first_file: folder.join(file),
        name: name.to_owned(),
        fingerprint: 0,
        origin: None,
    };
    let (plain, optim) = ("cpu_plain.pt.trace.json.gz", "cpu_optim.pt.trace.json.gz");
    let sources = [
        listed(plain, "train"),
        listed(optim, "train"),
        listed(plain, "train (2)"),
        listed(optim, optim),
        SqlRun::Path(folder.join(optim)),
    ];
    let session = Session::open(&sources, false, MemoryLimits::default(), None).unwrap();
    let rows = ask(
        &session.0,
        "SELECT r.run, r.slices = count(*) AS whole FROM runs r JOIN slices s ON s.run = r.run \
         GROUP BY r.run, r.number, r.slices ORDER BY r.number",
    );
    let runs: Vec<&str> = rows
        .iter()
        .map(|row| row["run"].as_str().unwrap())
        .collect();
    let with_path = folder.join(optim).display().to_string();
    assert_eq!(runs, ["train", "train (3)", "train (2)", optim, &with_path]);
    assert!(rows.iter().all(|row| row["whole"] == true), "{rows:?}");
}

#[test]
fn times_are_read_and_written_for_people() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let row = one(
        &session,
        "SELECT human(45100000) AS h, ps('1.5 ms') AS p, ns(2500) AS n, us(2500000) AS u, ms(1) * 1e9 AS m, s(5e11) AS s, \
         short('void a::add<int>(int)') AS short, demangle('_Z3addPfS_i') AS name, overlap(0, 10, 5, 20) AS o, \
         overlap(0, 1, 5, 1) AS none",
    );
    assert_eq!(
        serde_json::Value::Object(row),
        json!({"h": "45.1 µs", "p": 1_500_000_000, "n": 2.5, "u": 2.5, "m": 1.0, "s": 0.5, "short": "add<int>",
               "name": "add(float*, float*, int)", "o": 5, "none": 0})
    );
    let error = try_ask(&session, "SELECT ps('3 parsecs')").unwrap_err();
    assert!(
        error.contains("cannot read the time '3 parsecs'"),
        "{error}"
    );
}

#[test]
fn functions_of_events_equal_queries_over_the_tables() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let deep = one(
        &session,
        "SELECT id, track_id, start_ps, depth, host FROM slices WHERE depth >= 2 ORDER BY depth DESC, id LIMIT 1",
    );
    let (id, track) = (&deep["id"], &deep["track_id"]);
    let (at, depth) = (&deep["start_ps"], deep["depth"].as_i64().unwrap());
    let chain = "WITH RECURSIVE up AS (SELECT id, parent_id, name FROM slices WHERE id = ID UNION ALL \
                 SELECT s.id, s.parent_id, s.name FROM slices s JOIN up ON s.id = up.parent_id)";
    let chain = chain.replace("ID", &id.to_string());
    let list = |sql: &str| ask(&session, sql);
    let expected = list(&format!(
        "{chain} SELECT id FROM up WHERE id <> {id} ORDER BY id"
    ));
    assert_eq!(expected.len(), usize::try_from(depth).unwrap());
    assert_eq!(
        list(&format!("SELECT id FROM ancestors({id}) ORDER BY id")),
        expected
    );
    let root = one(
        &session,
        &format!(
            "SELECT root({id}) AS id, ancestor_named({id}, '.') AS parent, ancestor_named({id}, '^no such$') AS none"
        ),
    );
    assert_eq!(root["id"], expected[0]["id"]);
    assert_eq!(Some(&root["parent"]), expected.last().map(|row| &row["id"]));
    assert_eq!(root["none"], json!(null));
    let root = &root["id"];
    let within = list(&format!("SELECT id FROM descendants({root}) ORDER BY id"));
    let rooted =
        format!("SELECT id FROM slices WHERE root(id) = {root} AND id <> {root} ORDER BY id");
    assert!(within.len() >= expected.len());
    assert_eq!(within, list(&rooted));
    let open_then = format!("SELECT id FROM around({track}, {at}) ORDER BY id");
    let slow = format!(
        "SELECT id FROM slices WHERE track_id = {track} AND start_ps <= {at} AND end_ps > {at} ORDER BY id"
    );
    assert_eq!(list(&open_then), list(&slow));
    assert!(list(&slow).len() > expected.len());
    assert_eq!(list("SELECT * FROM ancestors(99999999999)").len(), 0);
    let error = try_ask(&session, "SELECT * FROM around(1)").unwrap_err();
    assert!(error.contains("it takes 2 whole numbers"), "{error}");
    let error = try_ask(&session, "SELECT ancestor_named(1, '(')").unwrap_err();
    assert!(
        error.contains("cannot read the regular expression"),
        "{error}"
    );
    let row = one(
        &session,
        "SELECT count(*) AS n, count(*) FILTER (WHERE kind = kind_of(name, category)) AS same FROM slices s \
         WHERE track_id IN (SELECT track_id FROM tracks WHERE kind = 'thread')",
    );
    assert_eq!(row["n"], row["same"]);
    let row = one(
        &session,
        "SELECT count(step) AS n, count(*) FILTER (WHERE step = step_at(host, start_ps)) AS same FROM slices \
         WHERE device IS NULL",
    );
    assert_eq!(row["n"], row["same"]);
    let row = one(
        &session,
        "SELECT count(*) AS n, count(*) FILTER (WHERE t.first_ps = f AND t.last_ps = l) AS same FROM tracks t \
         JOIN (SELECT track_id, min(start_ps) AS f, max(end_ps) AS l FROM slices GROUP BY track_id) s \
         ON s.track_id = t.track_id WHERE t.instants = 0",
    );
    assert!(row["n"].as_u64() > Some(0));
    assert_eq!(row["n"], row["same"]);
}

#[test]
fn links_are_followed_in_both_directions() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/known_causes/a100_pageable_copy/trace"
    );
    let session = open_all(&[folder.into()]);
    let one_link = "SELECT from_id, to_id, kind, key FROM flows WHERE kind <> '' ORDER BY from_id, to_id LIMIT 1";
    let link = one(&session, one_link);
    let from = format!(
        "SELECT from_id, to_id FROM downstream({}, 1) ORDER BY 2",
        link["from_id"]
    );
    let slow = format!(
        "SELECT from_id, to_id FROM flows WHERE from_id = {} ORDER BY 2",
        link["from_id"]
    );
    assert_eq!(ask(&session, &from), ask(&session, &slow));
    let to = format!(
        "SELECT from_id, to_id FROM upstream({}, 1) ORDER BY 1",
        link["to_id"]
    );
    let slow = format!(
        "SELECT from_id, to_id FROM flows WHERE to_id = {} ORDER BY 1",
        link["to_id"]
    );
    assert_eq!(ask(&session, &to), ask(&session, &slow));
    assert!(!ask(&session, &to).is_empty());
    let none = format!("SELECT * FROM downstream({}, 0)", link["from_id"]);
    assert!(ask(&session, &none).is_empty());
    let samples = one(
        &session,
        "SELECT (SELECT count(*) FROM samples) AS n, (SELECT sum(value) FROM samples) AS sum, \
         (SELECT count(*) FROM counters) AS all_of_them, (SELECT sum(value) FROM counters) AS total",
    );
    assert_eq!(samples["n"], samples["all_of_them"]);
    assert_eq!(samples["sum"], samples["total"]);
}

#[test]
fn arguments_are_read_by_event_and_by_key() {
    let session = open("torch_cpu/cpu_flops.pt.trace.json.gz");
    let rows = ask(
        &session,
        "SELECT a.id, a.text_value, arg(a.id, 'Input Dims') AS by_id, s.args FROM args a JOIN slices s ON s.id = a.id \
         WHERE a.key = 'Input Dims'",
    );
    assert!(!rows.is_empty());
    for row in &rows {
        assert_eq!(row["text_value"], row["by_id"]);
        let args: serde_json::Value = serde_json::from_str(row["args"].as_str().unwrap()).unwrap();
        let dims: serde_json::Value = serde_json::from_str(row["by_id"].as_str().unwrap()).unwrap();
        assert_eq!(args["Input Dims"], dims);
    }
    let id = rows[0]["id"].as_i64().unwrap();
    let few = ask(&session, &format!("SELECT key FROM args WHERE id = {id}"));
    assert!(few.len() > 1 && few.len() < 40, "{}", few.len());
}

#[test]
fn operations_have_the_module_around_them() {
    let session = open("torch_cpu/cpu_modules.pt.trace.json.gz");
    let rows = ask(
        &session,
        "SELECT DISTINCT o.layer, s.name AS module FROM ops o JOIN slices s ON s.id = o.id \
         WHERE o.class = 'framework' AND o.layer IS NOT NULL",
    );
    assert!(rows.len() > 3, "{rows:?}");
    let wrong = ask(
        &session,
        "SELECT o.id FROM ops o WHERE o.layer IS NOT NULL AND strpos(stack(o.id), 'nn.Module: ' || o.layer) = 0",
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    // The module of a module is another one.
    let own = ask(
        &session,
        "SELECT o.id FROM ops o WHERE o.class = 'module' AND 'nn.Module: ' || o.layer = o.name",
    );
    assert!(own.is_empty(), "{own:?}");
}

#[test]
fn kernels_have_their_graph_and_copies_a_direction() {
    let work = |name: &str, category: &str, at: i64, graph: i64| {
        json!({
            "ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": 5,
            "args": {"stream": 7, "device": 0, "correlation": at, "graph id": graph},
        })
    };
    let trace = json!({
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU"}],
        "traceEvents": [
            work("gemm", "kernel", 10, 5),
            work("gemm", "kernel", 20, 0),
            work("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 30, 0),
            work("Memset (Device)", "gpu_memset", 40, 5),
        ],
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pt.trace.json");
    std::fs::write(&path, trace.to_string()).unwrap();
    let session = open_all(&[path]);
    let rows = ask(
        &session,
        "SELECT work, graph_id, direction FROM kernels ORDER BY start_ps",
    );
    let expected = [
        json!({"work": "compute", "graph_id": 5, "direction": null}),
        json!({"work": "compute", "graph_id": null, "direction": null}),
        json!({"work": "memcpy", "graph_id": null, "direction": "host to device"}),
        json!({"work": "memset", "graph_id": 5, "direction": null}),
    ];
    let found: Vec<_> = rows.into_iter().map(serde_json::Value::Object).collect();
    assert_eq!(found, expected);
}

#[test]
fn enclosing_slices_are_found() {
    let session = open("torch_cpu/cpu_modules.pt.trace.json.gz");
    let rows = ask(
        &session,
        "SELECT id, name, depth, parent_id, stack(id) AS stack, ancestor(id, depth - 1) AS above FROM slices \
         WHERE depth > 0 AND kind = 'matmul, conv'",
    );
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["above"], row["parent_id"]);
        let stack = row["stack"].as_str().unwrap();
        assert!(stack.ends_with(row["name"].as_str().unwrap()), "{stack}");
        assert_eq!(row["depth"], stack.matches(" ; ").count());
    }
}

#[test]
fn reports_are_tables_for_every_kind() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    for kind in stepscope_engine::report::reports::KINDS {
        for by in std::iter::once("").chain(kind.by.iter().copied()) {
            let rows = try_ask(
                &session,
                &format!("SELECT * FROM report('{}', '{by}')", kind.name),
            );
            let rows = rows.unwrap_or_else(|error| panic!("{} {by}: {error}", kind.name));
            assert_eq!(rows["columns"][0]["key"], "run");
        }
        try_ask(
            &session,
            &format!("SELECT * FROM report('{}:summary')", kind.name),
        )
        .unwrap();
    }
    for (call, cause) in [
        (
            "report('stepz')",
            "cannot make report 'stepz': there is no such report",
        ),
        (
            "report('steps', 'colour')",
            "cannot make report 'steps' by 'colour': it has no such rows",
        ),
        ("report()", "without its kind"),
        ("report('kernels:nothing')", "it has"),
        ("report('ops', 'framework', 5, 1)", "empty range"),
        ("report(1)", "its first arguments are text"),
    ] {
        let result = try_ask(&session, &format!("SELECT * FROM {call}"));
        match result {
            Err(error) => assert!(error.contains(cause), "{call}: {error}"),
            // A run without device work has no sections.
            Ok(rows) => assert!(
                call.contains(":nothing") && rows["rows"].as_array().unwrap().is_empty(),
                "{call}"
            ),
        }
    }
}

#[test]
fn units_survive_aliases_and_sums() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let answer = try_ask(
        &session,
        "SELECT dur_ps AS length, id AS event, name FROM slices LIMIT 1",
    )
    .unwrap();
    let units: Vec<_> = answer["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["unit"].clone())
        .collect();
    assert_eq!(units, [json!("ps"), json!("event"), json!(null)]);
}

#[test]
fn reference_page_lists_every_table_column_and_function() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/sql.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut sections = page
        .split("\n### `")
        .skip(1)
        .map(|section| section.split_once('`').unwrap());
    for (table, row, columns) in schema_table::all() {
        let section = sections.clone().find(|section| section.0 == table);
        let section = section.unwrap_or_else(|| panic!("no section on {table}")).1;
        assert!(section.contains(&format!("One row is {row}.")), "{table}");
        let listed: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(name, _)| name)
            .collect();
        // The last section also holds the functions.
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        assert_eq!(listed.get(..names.len()), Some(&names[..]), "{table}");
    }
    assert_eq!(sections.by_ref().count(), schema_table::all().len());
    for function in stepscope_sql::functions::FUNCTIONS {
        assert!(
            page.contains(&format!("| `{}` |", function.call)),
            "{}",
            function.call
        );
    }
}

#[test]
fn questions_of_the_viewer_are_answered() {
    let page =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/src/pages/sql/questions.sql");
    let page = std::fs::read_to_string(page).unwrap();
    let questions: Vec<&str> = page.split("-- ").skip(1).collect();
    assert_eq!(questions.len(), 15);
    let folder = Corpus::committed().path("torch_cpu");
    let paths = ["cpu_modules.pt.trace.json.gz", "cpu_optim.pt.trace.json.gz"]
        .map(|name| folder.join(name));
    let session = open_all(&paths);
    let mut rows = 0;
    for question in questions {
        let (title, sql) = question.split_once('\n').unwrap();
        let answer = try_ask(&session, sql.trim().trim_end_matches(';'));
        let answer = answer.unwrap_or_else(|error| panic!("{title}: {error}"));
        rows += answer["rows"].as_array().unwrap().len();
    }
    assert!(rows > 20, "{rows}");
}

#[test]
fn compiled_programs_and_statistics_are_tables() {
    let session = open_all(&[Corpus::committed().folder().to_owned()]);
    let row = one(
        &session,
        "SELECT (SELECT count(*) FROM hosts) AS hosts, (SELECT count(*) FROM profiles) AS profiles, \
         (SELECT count(*) FROM instructions) AS instructions, \
         (SELECT count(*) FROM instructions WHERE opcode = '') AS empty, \
         (SELECT sum(files) FROM hosts) - (SELECT count(*) FROM files) AS files",
    );
    for table in ["hosts", "instructions", "profiles"] {
        assert!(row[table].as_i64().unwrap() > 10, "{row:?}");
    }
    assert_eq!((&row["empty"], &row["files"]), (&json!(0), &json!(0)));
}

#[test]
fn runs_of_one_job_differ_in_numbers_and_times_only() {
    let file = Corpus::committed().path("torch_cpu/cpu_plain.pt.trace.json.gz");
    for (name, job) in [
        ("llama/2026_11_20_10_00_00", "llama/#"),
        ("llama2/2026-11-20T10:00:00.5", "llama#/#"),
        ("bert-7b.run3_x", "bert-#b.run#_x"),
        ("v1._-2.", "v#."),
        ("plain", "plain"),
    ] {
        let ask_of_renamed = &mut |run: Result<Run, _>| {
            let mut run = run.unwrap();
            name.clone_into(&mut run.name);
            let session = Session::of_runs(vec![run], MemoryLimits::default());
            assert_eq!(one(&session, "SELECT job FROM runs")["job"], job, "{name}");
            Ok(())
        };
        open_each(&file, &Arc::default(), false, ask_of_renamed).unwrap();
    }
}

/// Returns a session of a trace with a known cause.
fn open_cause(name: &str) -> Session {
    let causes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/known_causes");
    open_all(&[causes.join(name).join("trace")])
}

/// Returns columns of a table, in the order of the partitions that each run has.
fn read_table(
    session: &Session,
    table: &'static Table,
    columns: &[&str],
    partitions: usize,
    batch_rows: usize,
) -> RecordBatch {
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_batch_size(batch_rows);
    let context = SessionContext::new_with_config(config);
    let listing = Arc::new(RunTable::new(table, session.runs()));
    context.register_table(table.name, listing).unwrap();
    runtime().block_on(async {
        let frame = context.table(table.name).await.unwrap();
        let plan = frame.select_columns(columns).unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let (schema, task) = (plan.schema(), context.task_ctx());
        let batches = collect_partitioned(plan, task).await.unwrap();
        assert_eq!(batches.len(), partitions * session.runs().len());
        let mut all = batches.iter().flatten();
        assert!(all.all(|batch| batch.num_rows() <= batch_rows));
        concat_batches(&schema, batches.iter().flatten()).unwrap()
    })
}

/// Traces with operations on several threads and with kernels on several devices: of two runs, and of one run.
fn sessions_of_tables() -> [Session; 2] {
    let folder = Corpus::committed().path("torch_cpu");
    let paths = ["cpu_modules.pt.trace.json.gz", "cpu_optim.pt.trace.json.gz"]
        .map(|name| folder.join(name));
    [open_all(&paths), open_cause("a100_all_reduce_at_the_end")]
}

#[test]
fn tables_have_the_same_rows_in_any_number_of_partitions() {
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for session in sessions_of_tables() {
        for table in TABLES {
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            let whole = read_table(&session, table, &columns, 1, 8_192);
            for (partitions, batch_rows) in [(1, 100), (2, 7), (5, 64), (64, 100)] {
                let found = read_table(&session, table, &columns, partitions, batch_rows);
                assert!(found == whole, "{} in {partitions}", table.name);
            }
            *rows.entry(table.name).or_default() += whole.num_rows();
        }
    }
    assert!(rows["ops"] > 500 && rows["kernels"] > 500, "{rows:?}");
    let empty = |table: &str| rows[table] == 0;
    assert!(
        !["runs", "tracks", "steps", "names"].into_iter().any(empty),
        "{rows:?}"
    );
}

#[test]
fn columns_of_tables_are_the_same_alone_and_together() {
    for session in sessions_of_tables() {
        for table in TABLES {
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            let whole = read_table(&session, table, &columns, 1, 8_192);
            for (index, name) in columns.iter().enumerate() {
                let alone = read_table(&session, table, &[*name], 1, 8_192);
                let (alone, together) = (alone.column(0), whole.column(index));
                assert!(alone == together, "{}.{name}", table.name);
            }
            let count = format!("SELECT count(*) AS n FROM {}", table.name);
            assert_eq!(one(&session, &count)["n"], whole.num_rows());
        }
    }
}

#[test]
fn operations_are_the_slices_with_their_ids() {
    for session in sessions_of_tables() {
        let row = one(
            &session,
            "SELECT count(*) AS n, count(DISTINCT o.id) AS ids, count(*) FILTER (WHERE o.run = s.run \
                    AND o.track_id = s.track_id AND o.start_ps = s.start_ps AND o.dur_ps = s.dur_ps \
                    AND o.step IS NOT DISTINCT FROM s.step) AS same \
             FROM ops o LEFT JOIN slices s ON s.id = o.id WHERE o.class = 'framework'",
        );
        assert!(number(&row, "n") > 500.0, "{row:?}");
        assert_eq!((&row["ids"], &row["same"]), (&row["n"], &row["n"]));
    }
}

#[test]
fn device_work_belongs_to_the_step_of_the_call_that_launched_it() {
    let session = open_cause("a100_all_reduce_at_the_end");
    let row = one(
        &session,
        "SELECT count(k.step) AS steps, count(*) FILTER (WHERE k.step IS DISTINCT FROM l.step) AS kernels, \
                count(*) FILTER (WHERE s.step IS DISTINCT FROM l.step) AS slices \
         FROM kernels k JOIN slices s ON s.id = k.id JOIN slices l ON l.id = k.launch_id",
    );
    assert!(number(&row, "steps") > 100.0, "{row:?}");
    assert_eq!((&row["kernels"], &row["slices"]), (&json!(0), &json!(0)));
}

#[test]
fn first_of_equally_long_slices_is_the_longest_one_of_a_name() {
    let slice = |thread: i64, start: i64, dur: i64| {
        json!({
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": thread, "ts": start, "dur": dur,
        })
    };
    let trace = json!({
        "schemaVersion": 1,
        "traceEvents": [slice(1, 10, 5), slice(1, 30, 7), slice(1, 50, 7), slice(2, 10, 7), slice(2, 30, 2)],
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names.pt.trace.json");
    std::fs::write(&path, trace.to_string()).unwrap();
    let session = open_all(&[path]);
    let row = one(
        &session,
        "SELECT count, total_ps, self_ps, max_ps, longest_id = (SELECT min(id) FROM slices WHERE dur_ps = 7000000) AS first \
         FROM names WHERE name = 'aten::mm'",
    );
    assert_eq!(
        serde_json::Value::Object(row),
        json!({"count": 5, "total_ps": 28_000_000, "self_ps": 28_000_000, "max_ps": 7_000_000, "first": true})
    );
}

#[test]
fn kernels_wait_for_the_work_before_them_on_their_stream() {
    for cause in ["a100_all_reduce_at_the_end", "torch_queued_before"] {
        let session = open_cause(cause);
        let row = one(
            &session,
            "WITH k AS (SELECT queue_ps, delay_ps, launch_start_ps + launch_dur_ps AS called, start_ps, \
                               max(start_ps + dur_ps) OVER (PARTITION BY run, track_id ORDER BY start_ps, id \
                                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
                        FROM kernels) \
             SELECT count(*) AS works, count(*) FILTER (WHERE queue_ps > 0) AS queued, \
                    count(*) FILTER (WHERE queue_ps > delay_ps) AS longer, \
                    count(*) FILTER (WHERE queue_ps IS DISTINCT FROM CASE WHEN called IS NULL THEN NULL \
                        ELSE greatest(least(coalesce(before, called), start_ps) - called, 0) END) AS wrong FROM k",
        );
        assert!(number(&row, "works") > 10.0, "{cause}: {row:?}");
        assert!(number(&row, "queued") > 0.0, "{cause}: {row:?}");
        assert_eq!((&row["longer"], &row["wrong"]), (&json!(0), &json!(0)));
    }
}

#[test]
fn operations_have_their_shapes_and_counts() {
    let session = open("torch_cpu/cpu_flops.pt.trace.json.gz");
    let row = one(
        &session,
        "SELECT count(o.shapes) AS shapes, count(*) FILTER (WHERE a.text_value IS DISTINCT FROM o.shapes) AS wrong \
         FROM ops o LEFT JOIN args a ON a.id = o.id AND a.key = 'Input Dims' WHERE o.class = 'framework'",
    );
    assert!(number(&row, "shapes") > 10.0, "{row:?}");
    assert_eq!(row["wrong"], 0);
    let session = open_cause("tpu_near_peak");
    let counted = |table: &str| {
        one(
            &session,
            &format!(
                "SELECT count(*) AS rows, count(flops) AS counted, sum(flops) AS flops FROM {table}"
            ),
        )
    };
    let (ops, kernels) = (counted("ops WHERE class = 'hlo'"), counted("kernels"));
    assert!(number(&kernels, "counted") > 0.0, "{kernels:?}");
    assert_eq!(ops["flops"], kernels["flops"], "{ops:?} {kernels:?}");
    let reported = one(
        &session,
        "SELECT sum(bytes_accessed) AS bytes FROM ops WHERE class = 'hlo'",
    );
    assert!(number(&reported, "bytes") > 0.0);
}

#[test]
fn hosts_have_their_framework_and_the_size_of_the_job() {
    let session = open("torch_multirank/cpu_ddp");
    let rows = ask(
        &session,
        "SELECT rank, framework, world_size FROM hosts ORDER BY rank",
    );
    let found: Vec<_> = rows.into_iter().map(serde_json::Value::Object).collect();
    let expected =
        [0, 1].map(|rank| json!({"rank": rank, "framework": "PyTorch", "world_size": 2}));
    assert_eq!(found, expected);
}
