//! SQL over 20 million slices, compared with `DuckDB` and `SQLite`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::open::{LARGE_XSPACE, no_python, no_traces};
use super::processor::children_s;
use super::results::{Results, median, ratio};
use super::server::Server;
use crate::part::Outcome;
use crate::programs::Build;
use crate::python::Environment;
use crate::{shell, sql};

/// Rounds of each query, and runs of the command.
const ROUNDS: usize = 5;
/// Slices of the run, at least.
const SLICES: u64 = 20_000_000;
/// Other engines. SQLite comes with Python.
const PEERS: Environment =
    Environment::from_requirements("bench-sql", &["duckdb==2.0.1", "pyarrow==26.0.1"]);

/// Name, time that is asked for in seconds, and statement. `NAME` stands for the most frequent name. The columns are
/// in the order of their names, as in a JSON object.
const QUERIES: [(&str, f64, &str); 3] = [
    (
        "group by name",
        0.5,
        "SELECT name, count(*) AS slices, sum(dur_ps) AS total_ps FROM slices GROUP BY name ORDER BY total_ps DESC, name LIMIT 20",
    ),
    (
        "window function",
        1.0,
        "SELECT track_id, max(gap) AS widest_ps FROM (SELECT track_id, start_ps - lag(start_ps) OVER \
         (PARTITION BY track_id ORDER BY start_ps) AS gap FROM slices) AS gaps GROUP BY track_id ORDER BY track_id",
    ),
    (
        "filter by name",
        0.1,
        "SELECT count(*) AS slices, sum(dur_ps) AS total_ps FROM slices WHERE name = 'NAME'",
    ),
];

/// The run, and how it is opened.
struct Bench {
    scratch: PathBuf,
    command: PathBuf,
    engine: PathBuf,
}

impl Bench {
    fn stepscope(&self) -> Command {
        let mut command = shell::program(&self.command);
        command
            .env("XDG_CACHE_HOME", self.scratch.join("cache"))
            .env("STEPSCOPE_SQL", &self.engine);
        command
    }

    /// Returns the first row of a query by the command.
    fn query(&self, run: &Path, sql: &str) -> Result<Value> {
        let text = shell::output(
            self.stepscope()
                .arg("query")
                .arg(run)
                .arg(sql)
                .args(["--format", "json"]),
        )?;
        let answer: Value = serde_json::from_str(&text)?;
        Ok(answer["rows"][0].clone())
    }

    /// Makes a run of copies of a trace, one for each host.
    fn run(&self, trace: &Path) -> Result<PathBuf> {
        let one = self.query(trace, "SELECT count(*) AS n FROM slices")?;
        let slices = one["n"].as_u64().context("no number of slices")?;
        let logs = self.scratch.join("logs");
        let session = logs.join("plugins/profile/large");
        std::fs::create_dir_all(&session)?;
        for host in 0..SLICES.div_ceil(slices) {
            std::fs::hard_link(trace, session.join(format!("host{host}.xplane.pb")))?;
        }
        Ok(logs)
    }
}

/// Times of a query.
struct Times {
    wall: f64,
    processor: f64,
    rows: Value,
}

/// Measures the engine on a run in the cache, and the others on the dataset that is made of it.
pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let Some(python) = PEERS.python()? else {
        return Ok(no_python());
    };
    let Some(trace) = LARGE_XSPACE.make(&python)? else {
        return Ok(no_traces());
    };
    let scratch = shell::target_dir().join("bench/sql");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    let bench = Bench {
        scratch,
        command: Build::Release.command()?,
        engine: sql::release_engine()?,
    };
    let run = bench.run(&trace)?;
    let facts = bench.query(&run, "SELECT count(*) AS n FROM slices")?;
    let slices = facts["n"].as_f64().context("no number of slices")?;
    let frequent = "SELECT name FROM slices GROUP BY name ORDER BY count(*) DESC, name LIMIT 1";
    let frequent = bench.query(&run, frequent)?;
    let name = frequent["name"].as_str().context("no name")?;
    let queries = QUERIES.map(|(_, _, sql)| sql.replace("NAME", &name.replace('\'', "''")));
    let first_row = median(
        (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                bench.query(&run, "SELECT 1 AS one")?;
                Ok(began.elapsed().as_secs_f64())
            })
            .collect::<Result<_>>()?,
    );
    let ours = ours(&bench, &run, &queries)?;

    let dataset = bench.scratch.join("dataset");
    let (began, used) = (Instant::now(), children_s());
    shell::output(bench.stepscope().arg("export").arg(&run).arg(&dataset))?;
    let (wall, processor) = (began.elapsed().as_secs_f64(), children_s() - used);
    let mut files = Vec::new();
    shell::collect(&dataset, &[], &mut files)?;
    let bytes = |table: Option<&str>| -> Result<f64> {
        let of_table = files
            .iter()
            .filter(|file| table.is_none_or(|table| file.starts_with(dataset.join(table))));
        let sizes = of_table.map(|file| Ok(file.metadata()?.len()));
        Ok(sizes.sum::<Result<u64>>()? as f64)
    };
    let exported = format!(
        "The export took {wall:.1} s of time and {processor:.1} s of the processors for {:.1} bytes a slice, of which the table \
         `slices` has {:.1}.",
        bytes(None)? / slices,
        bytes(Some("slices"))? / slices
    );

    let asked = bench.scratch.join("queries.json");
    std::fs::write(&asked, json!(queries).to_string())?;
    let answer = shell::output(
        shell::program(&python)
            .arg("benches/peers/sql.py")
            .arg(&dataset)
            .arg(&asked),
    )?;
    let theirs: Value = serde_json::from_str(answer.lines().last().unwrap_or("null"))?;
    let mut rows = Vec::new();
    for (number, (title, limit, _)) in QUERIES.iter().enumerate() {
        let mine = &ours[number];
        let other = |engine: &str| -> Result<Times> {
            let answer = &theirs[engine][number];
            ensure!(
                answer["rows"] == mine.rows,
                "{engine} has other rows for '{title}': {} instead of {}",
                answer["rows"],
                mine.rows
            );
            let figure = |key: &str| answer[key].as_f64().context("no figure");
            Ok(Times {
                wall: figure("wall_s")?,
                processor: figure("processor_s")?,
                rows: Value::Null,
            })
        };
        let (duckdb, sqlite) = (other("duckdb")?, other("sqlite")?);
        let cell = |times: &Times| format!("{:.2} / {:.2}", times.wall, times.processor);
        rows.push(vec![
            (*title).to_owned(),
            format!("{limit:.1}"),
            cell(mine),
            cell(&duckdb),
            ratio(mine.processor, duckdb.processor),
            cell(&sqlite),
            ratio(sqlite.wall, mine.wall),
        ]);
    }
    results.table(
        "SQL over 20 million slices",
        &format!(
            "{slices:.0} slices of a JAX run of several hosts, in the import cache. Ours: `POST /api/v1/sql` to a server that has \
             the run open, median of {ROUNDS}. DuckDB: over the Parquet files of the same slices, median of {ROUNDS}. SQLite, on \
             which Perfetto's trace_processor builds: over a table in memory, once. Each cell: seconds / processor time of all \
             threads. All three have the same rows. `stepscope query RUN \"SELECT 1\"`, the whole command, takes {:.0} ms (asked: \
             150). {exported}",
            first_row * 1e3
        ),
        &[
            "query",
            "asked, s",
            "stepscope",
            "DuckDB",
            "processor time / DuckDB's",
            "SQLite",
            "SQLite / ours",
        ],
        &rows,
    );
    Ok(Outcome::Ok)
}

/// Measures the queries over HTTP; the first answer, which opens the run, is left out.
fn ours(bench: &Bench, run: &Path, queries: &[String]) -> Result<Vec<Times>> {
    let server = Server::start_with(&mut bench.stepscope(), run)?;
    let runs = server.json("/api/v1/runs")?;
    let id = &runs["runs"][0]["id"];
    queries
        .iter()
        .map(|sql| {
            let body = json!({"runs": [id], "sql": sql});
            let ask = || server.post("/api/v1/sql", &body);
            let rows = ask()?["rows"].clone();
            let used = server.children_s();
            let mut seconds = Vec::new();
            for _ in 0..ROUNDS {
                let began = Instant::now();
                ask()?;
                seconds.push(began.elapsed().as_secs_f64());
            }
            Ok(Times {
                wall: median(seconds),
                processor: (server.children_s() - used) / ROUNDS as f64,
                rows: values(&rows),
            })
        })
        .collect()
}

/// Returns rows as arrays of texts: a large whole number is a text in our JSON.
fn values(rows: &Value) -> Value {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = rows.as_array().into_iter().flatten().map(|row| {
        let cells = row.as_object().into_iter().flatten();
        cells.map(|(_, cell)| text(cell)).collect::<Vec<String>>()
    });
    json!(rows.collect::<Vec<_>>())
}
