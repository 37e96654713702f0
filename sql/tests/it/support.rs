//! Opens traces as sessions and asks them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use serde_json::{Map, Value, json};
use stepscope_engine::{Run, SqlRun, TimeLimit, open_each};
use stepscope_model::ReadContext;
use stepscope_sql::locked::MemoryLimits;
use stepscope_sql::output::{Format, Writer, describe};
use stepscope_sql::protocol;
use stepscope_sql::session::{Limits, Session};
use stepscope_test_data::Corpus;
use tokio::runtime::Runtime;

pub(crate) type Row = Map<String, Value>;

pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| stepscope_sql::runtime::runtime().unwrap())
}

/// Runs on accelerators, which the committed traces lack: of four ranks, of copies, of graphs.
const ON_DEVICES: [&str; 3] = [
    "a100_all_reduce_at_the_end",
    "a100_pageable_copy",
    "h100_graph_replay",
];

/// Calls `visit` with a session of each run of the traces, and with the same run for its reports.
pub(crate) fn each_run(corpus: &Corpus, visit: &mut dyn FnMut(&Session, &Run)) {
    let context = Arc::new(ReadContext::default());
    let causes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/known_causes");
    let on_devices = ON_DEVICES.map(|name| causes.join(name).join("trace"));
    let more = corpus.either(&on_devices[..], &[]);
    let folders = std::iter::once(corpus.folder()).chain(more.iter().map(PathBuf::as_path));
    let mut count = 0;
    for folder in folders {
        open_each(folder, &context, false, &mut |run| {
            if let Ok(run) = run {
                let session = Session::of_runs(vec![run], MemoryLimits::default());
                visit(&session, &session.runs()[0].run);
                count += 1;
            }
            Ok(())
        })
        .unwrap();
    }
    assert!(count > 10, "{count} runs");
}

/// Opens all runs at a path of the repository's traces as one session.
pub(crate) fn open(name: &str) -> Session {
    open_all(&[Corpus::committed().path(name)])
}

pub(crate) fn open_all(paths: &[PathBuf]) -> Session {
    let sources: Vec<SqlRun> = paths.iter().cloned().map(SqlRun::Path).collect();
    let opened = Session::open(&sources, false, MemoryLimits::default(), None);
    opened.unwrap().0
}

pub(crate) const UNLIMITED: Limits = Limits {
    rows: usize::MAX,
    bytes: u64::MAX,
};

pub(crate) fn try_ask(session: &Session, sql: &str) -> Result<Value, String> {
    let time = TimeLimit::new(Duration::from_mins(10));
    let writer: Mutex<Option<Writer>> = Mutex::new(None);
    let begin = &mut |schema: &SchemaRef| {
        *writer.lock().unwrap() = Some(Writer::new(Format::Json, schema, None)?);
        Ok(())
    };
    let each = &mut |batch: &RecordBatch| {
        writer.lock().unwrap().as_mut().unwrap().add(batch)?;
        Ok(0)
    };
    let answer = runtime().block_on(session.run(sql, UNLIMITED, &time, begin, each));
    answer.map_err(|error| describe(&error).0)?;
    let mut writer = writer.into_inner().unwrap().unwrap();
    writer.finish(false).unwrap();
    Ok(serde_json::from_slice(&writer.take()).unwrap())
}

/// Returns the rows of an answer.
pub(crate) fn ask(session: &Session, sql: &str) -> Vec<Row> {
    let answer = try_ask(session, sql);
    let answer = answer.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| row.as_object().unwrap().clone()).collect()
}

/// Returns the only row of an answer.
pub(crate) fn one(session: &Session, sql: &str) -> Row {
    let mut rows = ask(session, sql);
    assert_eq!(rows.len(), 1, "{sql}");
    rows.remove(0)
}

pub(crate) fn number(row: &Row, key: &str) -> f64 {
    row[key].as_f64().unwrap_or(f64::NAN)
}

/// Sums columns of rows by the text of other columns.
pub(crate) fn sums(rows: &[Row], by: &[&str], columns: &[&str]) -> BTreeMap<Vec<String>, Vec<f64>> {
    let mut sums: BTreeMap<Vec<String>, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let key = by
            .iter()
            .map(|key| row[*key].as_str().unwrap_or("").to_owned());
        let sum = sums
            .entry(key.collect())
            .or_insert_with(|| vec![0.0; columns.len()]);
        for (sum, column) in sum.iter_mut().zip(columns) {
            *sum += row[*column].as_f64().unwrap_or(0.0);
        }
    }
    sums
}

/// Whether two figures are equal to nine digits: the reports' are floating-point numbers of nanoseconds.
pub(crate) fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()) + 1e-3
}

pub(crate) fn assert_same_sums(
    run: &Run,
    left: &BTreeMap<Vec<String>, Vec<f64>>,
    right: &BTreeMap<Vec<String>, Vec<f64>>,
) {
    let keys = |sums: &BTreeMap<Vec<String>, Vec<f64>>| sums.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(left), keys(right), "{}", run.name);
    for (key, values) in left {
        for (value, other) in values.iter().zip(&right[key]) {
            assert!(
                same(*value, *other),
                "{}: {key:?}: {values:?} and {:?}",
                run.name,
                right[key]
            );
        }
    }
}

/// The program as another process.
pub(crate) struct Program {
    pub(crate) child: Child,
}

impl Program {
    pub(crate) fn start(memory: u64) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_stepscope-sql"))
            .args(["serve", "--memory", &memory.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut program = Self {
            child: child.unwrap(),
        };
        let (kind, _) = program.read().unwrap();
        assert_eq!(kind, protocol::HELLO);
        program
    }

    pub(crate) fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        protocol::read(self.child.stdout.as_mut().unwrap()).unwrap()
    }

    pub(crate) fn send(&mut self, kind: u8, content: &Value) {
        let stdin = self.child.stdin.as_mut().unwrap();
        protocol::write(stdin, kind, content.to_string().as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn start_query(&mut self, id: u32, path: &Path, sql: &str, timeout_ms: u64) {
        let query = json!({
            "id": id, "runs": [path], "sql": sql, "format": "json", "rows": 1000, "bytes": 1 << 20,
            "timeout_ms": timeout_ms, "width": null, "cache": false,
        });
        self.send(protocol::QUERY, &query);
    }

    /// Reads to the end of a query. `Err` holds the message of a query that failed, or nothing if the program ended.
    pub(crate) fn answer(&mut self) -> Result<Value, Option<String>> {
        let mut bytes = Vec::new();
        while let Some((kind, content)) = self.read() {
            match kind {
                protocol::DATA => bytes.extend(&content[4..]),
                protocol::END => return Ok(serde_json::from_slice(&bytes).unwrap()),
                protocol::ERROR => {
                    let error: Value = serde_json::from_slice(&content).unwrap();
                    return Err(Some(error["message"].as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
        Err(None)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
