//! Statements that must not reach anything but the tables, and queries that must end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use serde_json::json;
use stepscope_engine::TimeLimit;
use stepscope_sql::protocol::{CANCEL, STARTED};
use stepscope_test_data::Corpus;

use crate::support::{Program, UNLIMITED, open, runtime, try_ask};

fn trace() -> PathBuf {
    Corpus::committed().path("torch_cpu/cpu_plain.pt.trace.json.gz")
}

/// Statements that are refused, whatever they name.
const REFUSED: &[&str] = &[
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE TABLE slices AS SELECT 1",
    "CREATE VIEW v AS SELECT 1",
    "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
    "CREATE EXTERNAL TABLE t STORED AS JSON LOCATION 'http://127.0.0.1:1/x'",
    "CREATE EXTERNAL TABLE t STORED AS ARROW LOCATION 's3://bucket/x'",
    "CREATE UNBOUNDED EXTERNAL TABLE t (a INT) STORED AS CSV LOCATION '/dev/zero'",
    "CREATE SCHEMA x",
    "CREATE DATABASE x",
    "CREATE FUNCTION f(BIGINT) RETURNS BIGINT RETURN $1",
    "CREATE INDEX i ON slices (id)",
    "DROP TABLE slices",
    "DROP VIEW slices",
    "DROP SCHEMA public CASCADE",
    "DROP FUNCTION abs",
    "ALTER TABLE slices RENAME TO x",
    "INSERT INTO runs VALUES (1)",
    "INSERT INTO slices SELECT * FROM slices",
    "UPDATE slices SET name = 'x'",
    "DELETE FROM slices",
    "TRUNCATE TABLE slices",
    "MERGE INTO runs USING files ON true WHEN MATCHED THEN DELETE",
    "COPY slices TO '/tmp/stepscope-hostile.csv'",
    "COPY (SELECT 1) TO '/tmp/stepscope-hostile.arrow' STORED AS ARROW",
    "COPY slices FROM '/etc/passwd'",
    "SET datafusion.execution.batch_size = 1",
    "RESET datafusion.execution.batch_size",
    "SET datafusion.catalog.information_schema = true",
    "SHOW ALL",
    "SHOW datafusion.execution.batch_size",
    "SHOW TABLES",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DEALLOCATE p",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "USE x",
    "ATTACH DATABASE '/etc/passwd' AS x",
    "LOAD '/lib/x.so'",
    "CALL system('id')",
    "EXPLAIN COPY slices TO '/tmp/stepscope-hostile.csv'",
    "SELECT 1; DROP TABLE slices",
    "SELECT 1; SELECT 2",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM \"/etc/passwd\"",
    "SELECT * FROM 'file:///etc/passwd'",
    "SELECT * FROM 'http://127.0.0.1:1/x.csv'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/etc/passwd')",
    "SELECT * FROM information_schema.df_settings",
    "SELECT * FROM information_schema.tables",
    "SELECT load_extension('/lib/x.so')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT current_setting('datafusion.execution.batch_size')",
    "SELECT $1",
    "SELECT @@version",
    "SELECT * FROM nowhere",
    "SELECT",
    "",
    "\u{0}",
];

#[test]
fn statements_that_write_or_reach_outside_are_refused() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    for sql in REFUSED {
        let result = try_ask(&session, sql);
        assert!(result.is_err(), "{sql}: {result:?}");
    }
    assert!(!PathBuf::from("/tmp/stepscope-hostile.csv").exists());
    // The tables are as before.
    try_ask(&session, "SELECT name FROM slices LIMIT 1").unwrap();
    try_ask(&session, "SELECT abs(-1)").unwrap();
}

#[test]
fn long_and_deep_queries_are_refused_answered_or_end_the_program() {
    let deep = |count: usize| format!("SELECT {}1{}", "(".repeat(count), ")".repeat(count));
    let sums = |count: usize| format!("SELECT 1{}", " + 1".repeat(count));
    let nots = |count: usize| format!("SELECT {} true", "NOT ".repeat(count));
    let wide = |count: usize| format!("SELECT 1 IN ({})", vec!["1"; count].join(", "));
    let unions = |count: usize| vec!["SELECT 1"; count].join(" UNION ALL ");
    let nested = |count: usize| {
        let head = "SELECT * FROM (".repeat(count);
        format!("{head}SELECT 1{}", ")".repeat(count))
    };
    let queries = [
        deep(10),
        deep(30_000),
        sums(10),
        sums(2_000),
        nots(10),
        nots(15_000),
        wide(5_000),
        unions(100),
        nested(400),
        format!("SELECT '{}'", "x".repeat(70_000)),
    ];
    for sql in queries {
        let mut program = Program::start(256 << 20);
        program.start_query(1, &trace(), &sql, 60_000);
        if program.answer() == Err(None) {
            assert!(sql.len() > 1_000, "the program ended: {sql}");
            assert!(!program.child.wait().unwrap().success());
        }
    }
}

#[test]
fn query_that_never_ends_is_stopped_by_its_limit() {
    for sql in [
        // 10^12 rows.
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a.value + b.value < 0",
        "SELECT count(*) FROM generate_series(1, 1000000000000)",
    ] {
        // An operator that never yields is stopped by the end of the program, after its answer.
        let mut program = Program::start(256 << 20);
        program.start_query(1, &trace(), sql, 300);
        let error = program.answer().unwrap_err();
        let message = error.unwrap_or_else(|| panic!("{sql}: the program ended without an answer"));
        assert!(message.contains("longer than 0.3 s"), "{sql}: {message}");
    }
}

#[test]
fn time_in_which_the_reader_pauses_does_not_count() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let now = Instant::now();
    let hours = Arc::new(AtomicU64::new(0));
    let passed = Arc::clone(&hours);
    // Only the reader takes time.
    let clock = move || now + Duration::from_hours(passed.load(Ordering::Relaxed));
    let time = TimeLimit::with_clock(Duration::from_secs(1), clock);
    let each = &mut |_: &RecordBatch| {
        time.pause(|| hours.fetch_add(1, Ordering::Relaxed));
        Ok(0)
    };
    let sql = "SELECT value FROM generate_series(1, 20000)";
    let begin = &mut |_: &SchemaRef| Ok(());
    let answer = session.run(sql, UNLIMITED, &time, begin, each);
    let answer = runtime().block_on(answer).unwrap();
    assert_eq!(answer.rows, 20_000);
    assert!(hours.load(Ordering::Relaxed) > 10);
    assert_eq!(time.used(), Duration::ZERO);
}

#[test]
fn memory_bomb_ends_in_an_error_or_ends_the_program() {
    for sql in [
        // A table that grows for ever.
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        // The pool refuses.
        "SELECT array_agg(value) FROM generate_series(1, 1000000000)",
        "SELECT a.value, array_agg(b.value) FROM generate_series(1, 100000) a, generate_series(1, 100000) b GROUP BY a.value",
        // The results of functions are in no pool: the limit of the process ends it.
        "SELECT length(repeat('x', 2000000000) || repeat('y', 2000000000)) FROM generate_series(1, 3)",
        "SELECT count(repeat(cast(value AS VARCHAR), 100000000)) FROM generate_series(1, 100000)",
    ] {
        let mut program = Program::start(64 << 20);
        program.start_query(1, &trace(), sql, 20_000);
        let error = program.answer().unwrap_err();
        if error.is_none() {
            let status = program.child.wait().unwrap();
            assert!(!status.success(), "{sql}");
        }
    }
}

#[test]
fn cancelled_query_ends_and_the_next_one_is_answered() {
    let mut program = Program::start(256 << 20);
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a.value + b.value < 0";
    program.start_query(7, &trace(), endless, 600_000);
    while program.read().unwrap().0 != STARTED {}
    program.send(CANCEL, &json!({"id": 7}));
    assert_eq!(
        program.answer().unwrap_err().unwrap(),
        "the query was cancelled"
    );
    program.start_query(8, &trace(), "SELECT count(*) AS n FROM runs", 60_000);
    assert_eq!(program.answer().unwrap()["rows"], json!([{"n": 1}]));
}

#[test]
fn program_ends_with_its_pipe() {
    let mut program = Program::start(256 << 20);
    drop(program.child.stdin.take());
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn answer_stops_at_the_requested_rows() {
    let mut program = Program::start(256 << 20);
    program.start_query(
        1,
        &trace(),
        "SELECT value FROM generate_series(1, 5000)",
        60_000,
    );
    let answer = program.answer().unwrap();
    assert_eq!(answer["rows"].as_array().unwrap().len(), 1000);
    assert_eq!(answer["truncated"], true);
}
