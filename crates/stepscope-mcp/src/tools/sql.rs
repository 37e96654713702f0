//! The tools `query` and `tables`. Another program answers: [`SqlEngine`].

use std::time::Duration;

use serde_json::Value;
use stepscope_engine::{EngineError, SqlEngine, SqlError, SqlQuery, SqlRun};
use stepscope_report::report::{Cell, Column, Report, Table, Unit};

use super::{Call, unknown_run};
use crate::answer::{Answer, LONGEST_ID};
use crate::args::{Argument, Values};
use crate::error::ToolError;

pub(super) const QUERY: &[Argument] = &[
    Argument::required(
        "sql",
        Values::Text(20_000),
        "one SELECT in DataFusion's dialect",
    ),
    Argument::new(
        "runs",
        Values::Texts(LONGEST_ID),
        "ids of the runs to read; the columns 'run' have these (may be absent if there is one run)",
    ),
];

pub(super) const TABLES: &[Argument] = &[Argument::new(
    "table",
    Values::Text(100),
    "the table whose columns to list; all tables without it",
)];

/// Maximum number of runs of a query.
const MAX_RUNS: usize = 100;
/// Memory that the operators of a query may hold, bytes.
const MEMORY_BYTES: u64 = 2 << 30;
/// Maximum time of a query.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Size after which the engine sends no further rows, bytes.
const ANSWER_BYTES: u64 = 4 << 20;
/// Largest answer of the engine, bytes: the last rows may exceed [`ANSWER_BYTES`].
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Starts an engine for one call.
fn start(call: &Call<'_>) -> Result<SqlEngine, ToolError> {
    let engine = SqlEngine::start(MEMORY_BYTES)?;
    let stopper = engine.stopper();
    if call.stop.arm(move || stopper.stop()) {
        Ok(engine)
    } else {
        Err(ToolError::cancelled())
    }
}

/// Runs a query.
pub(super) fn query(call: &Call<'_>) -> Result<Answer, ToolError> {
    let runs = runs(call)?;
    let mut engine = start(call)?;
    let query = SqlQuery {
        runs: &runs,
        sql: call.args.text("sql").unwrap_or_default(),
        format: "http-json",
        // One more shows whether there are further rows.
        rows: call.page.top().saturating_add(1),
        bytes: ANSWER_BYTES,
        timeout: TIMEOUT,
        width: None,
        use_cache: call.engine.options().use_cache,
        cluster: None,
    };
    let found = engine.collect(&query, MAX_ANSWER_BYTES);
    let (bytes, answer) = found.map_err(|error| match error {
        SqlError::Output(error) => ToolError::new(
            format!("cannot run the query: {error}"),
            "select fewer columns or rows",
        ),
        error => error.into(),
    })?;
    let json: Value = serde_json::from_slice(&bytes).map_err(|error| {
        ToolError::new(
            format!("cannot read the answer of the SQL engine: {error}"),
            "call the tool again",
        )
    })?;
    let mut report = Report::new("query");
    report.table = table_of(&json);
    let count = report.table.rows.len();
    let is_cut = answer.truncated || count > call.page.top();
    report.sentence = if is_cut {
        format!("More than {} rows.", call.page.top().min(count)).into()
    } else {
        format!("{count} rows.").into()
    };
    if is_cut {
        report.note(
            "The number of further rows is unknown: count(*) gives it. Rows have no order without ORDER BY.",
        );
    }
    if answer.truncated && count <= call.page.top() {
        // The engine stopped at its limit.
        report.table.left_out = 1;
    }
    for problem in answer.problems {
        report.note(format!("Not whole: {problem}"));
    }
    Ok(Answer::new(None, report))
}

/// Returns the runs of a query; without names, the only run there is.
fn runs(call: &Call<'_>) -> Result<Vec<SqlRun>, ToolError> {
    let mut ids = call.args.text_list("runs");
    if ids.is_empty() {
        let mut all = call.engine.runs();
        if all.len() != 1 {
            return Err(ToolError::new(
                format!(
                    "cannot run the query: 'runs' is missing, and there are {} runs",
                    all.len()
                ),
                "call list_runs, and name the runs to read",
            ));
        }
        ids.extend(all.pop().map(|run| run.id));
    }
    ids.sort();
    ids.dedup();
    if ids.len() > MAX_RUNS {
        return Err(ToolError::new(
            format!("cannot run the query: it names {} runs", ids.len()),
            format!("name at most {MAX_RUNS}"),
        ));
    }
    let found = ids.iter().map(|id| {
        let run = call.engine.sql_run(id, id);
        run.map_err(|error| match error {
            EngineError::NoSuchRun(_) => unknown_run(call.engine, id),
            error => error.into(),
        })
    });
    found.collect()
}

/// Returns the rows of the engine's JSON.
fn table_of(json: &Value) -> Table {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let columns = json["columns"].as_array().map(Vec::as_slice);
    let columns = columns.unwrap_or_default();
    let unit = |column: &Value| match column["unit"].as_str() {
        Some("ns") => Unit::Ns,
        Some("bytes") => Unit::Bytes,
        Some("share") => Unit::Share,
        Some("count") => Unit::Count,
        Some("event") => Unit::Event,
        _ if column["type"] == "TEXT" => Unit::Text,
        _ if column["type"] == "BOOLEAN" => Unit::Flag,
        _ => Unit::Number,
    };
    let mut table = Table::new(
        columns
            .iter()
            .map(|column| Column {
                key: text(&column["key"]).into(),
                title: text(&column["title"]).into(),
                unit: unit(column),
                short_of: None,
            })
            .collect(),
    );
    let rows = json["rows"].as_array().into_iter().flatten();
    table.rows = rows
        .map(|row| {
            let cells = columns.iter().map(|column| {
                let key = column["key"].as_str().unwrap_or_default();
                row.get(key).map_or(Cell::Empty, cell)
            });
            cells.collect()
        })
        .collect();
    table
}

/// Converts a value; whole numbers from 2^53 are text already.
fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Empty,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => Cell::List(values.iter().map(cell).collect()),
        Value::Object(_) => value.to_string().into(),
    }
}

/// Lists the tables, or the columns of one.
pub(super) fn tables(call: &Call<'_>) -> Result<Answer, ToolError> {
    let schema = start(call)?.schema()?;
    let schema: Value = serde_json::from_slice(&schema).map_err(|error| {
        ToolError::new(
            format!("cannot read the answer of the SQL engine: {error}"),
            "call the tool again",
        )
    })?;
    let all = schema["tables"].as_array().map(Vec::as_slice);
    let all = all.unwrap_or_default();
    let name = |table: &Value| table["name"].as_str().unwrap_or_default().to_owned();
    let mut report = Report::new("tables");
    if let Some(asked) = call.args.text("table") {
        let Some(table) = all.iter().find(|table| name(table) == asked) else {
            let names: Vec<String> = all.iter().map(name).collect();
            return Err(ToolError::unknown(
                "table",
                asked,
                names.iter().map(String::as_str),
                "call 'tables' without 'table' for all of them",
            ));
        };
        let row = table["row"].as_str().unwrap_or_default();
        report.sentence = format!("One row of {asked} is {row}.").into();
        report.table = strings(
            &table["columns"],
            &[
                ("name", "Column"),
                ("type", "Type"),
                ("unit", "Unit"),
                ("meaning", "Meaning"),
            ],
        );
        report.section("examples", "Examples", examples(asked, &table["columns"]));
    } else {
        report.sentence = format!(
            "{} tables; the name of one in 'table' lists its columns. Times are whole picoseconds.",
            all.len()
        )
        .into();
        report.table = strings(&schema["tables"], &[("name", "Table"), ("row", "A row is")]);
        report.section(
            "functions",
            "Functions",
            strings(
                &schema["functions"],
                &[("call", "Call"), ("meaning", "Meaning")],
            ),
        );
    }
    Ok(Answer::new(None, report))
}

/// Returns a list of objects as a table of these texts.
fn strings(list: &Value, keys: &[(&'static str, &'static str)]) -> Table {
    let columns = keys.iter();
    let columns = columns.map(|&(key, title)| Column::new(key, title, Unit::Text));
    let mut table = Table::new(columns.collect());
    for object in list.as_array().into_iter().flatten() {
        let cells = keys.iter();
        let cells = cells.map(|(key, _)| object[*key].as_str().into());
        table.rows.push(cells.collect());
    }
    table
}

/// Returns example queries of a table, by the columns that it has.
fn examples(table: &str, columns: &Value) -> Table {
    let names = columns.as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|column| column["name"].as_str()).collect();
    let has = |name: &str| names.contains(&name);
    let mut queries = vec![
        format!("SELECT count(*) AS rows FROM {table}"),
        format!("SELECT * FROM {table} LIMIT 5"),
    ];
    if has("name") && has("dur_ps") {
        queries.push(format!(
            "SELECT name, count(*) AS count, ms(sum(dur_ps)) AS total_ms FROM {table} GROUP BY name ORDER BY 3 DESC LIMIT 20"
        ));
    } else if let (Some(first), Some(second)) = (names.first(), names.get(1)) {
        queries.push(format!(
            "SELECT {first}, {second}, count(*) AS count FROM {table} GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 20"
        ));
    }
    let mut examples = Table::new(vec![Column::new("sql", "Query", Unit::Text)]);
    for query in queries {
        examples.push([query.into()]);
    }
    examples
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_of_the_engine_become_cells_in_the_order_of_the_columns() {
        let table = table_of(&json!({
            "columns": [
                {"key": "name", "title": "name", "type": "TEXT", "unit": null},
                {"key": "dur_ps", "title": "dur_ps", "type": "BIGINT", "unit": "ps"},
                {"key": "id", "title": "id", "type": "BIGINT", "unit": "event"},
            ],
            "rows": [{"id": 3, "name": "a", "dur_ps": "9223372036854775807"}, {"name": null, "dur_ps": 1.5}],
        }));
        let units: Vec<Unit> = table.columns.iter().map(|column| column.unit).collect();
        assert_eq!(units, [Unit::Text, Unit::Number, Unit::Event]);
        assert_eq!(
            table.rows,
            [
                vec!["a".into(), "9223372036854775807".into(), Cell::Int(3)],
                vec![Cell::Empty, Cell::Number(1.5), Cell::Empty],
            ]
        );
    }

    #[test]
    fn each_table_has_three_examples() {
        let columns = json!([{"name": "name"}, {"name": "dur_ps"}]);
        let table = examples("slices", &columns);
        assert_eq!(table.rows.len(), 3);
        assert!(format!("{:?}", table.rows[2]).contains("ms(sum(dur_ps))"));
        let table = examples("hosts", &json!([{"name": "run"}, {"name": "host"}]));
        assert!(format!("{:?}", table.rows[2]).contains("SELECT run, host, count(*)"));
    }
}
