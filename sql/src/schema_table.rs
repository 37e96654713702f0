//! The schema: as the table `table_columns`, as JSON for completion, and as text.

use std::fmt::Write as _;

use datafusion::datasource::MemTable;
use datafusion::error::Result;
use serde_json::{Value as Json, json};

use crate::args_table;
use crate::events::Events;
use crate::functions::FUNCTIONS;
use crate::rows::Rows;
use crate::schema::{Column, Type, column};
use crate::tables::TABLES;
use crate::views;

const COLUMNS: &[Column] = &[
    column("table_name", Type::Text, "Table"),
    column("column_name", Type::Text, "Column"),
    column("type", Type::Text, "Type"),
    column("unit", Type::Text, "Unit"),
    column("meaning", Type::Text, "Meaning"),
];

/// Returns every table: name, what a row is, and columns.
pub fn all() -> Vec<(&'static str, &'static str, &'static [Column])> {
    let mut all = vec![
        (Events::Slices.table(), "a slice", Events::Slices.columns()),
        (
            Events::Instants.table(),
            "a point in time",
            Events::Instants.columns(),
        ),
        (
            Events::Counters.table(),
            "a sample of a counter",
            Events::Counters.columns(),
        ),
        (
            Events::Samples.table(),
            "a sample of a counter, without the columns of its track",
            Events::Samples.columns(),
        ),
        ("args", "an argument of an event", args_table::COLUMNS),
    ];
    all.extend(
        TABLES
            .iter()
            .map(|table| (table.name, table.row, table.columns)),
    );
    all.push(("table_columns", "a column of a table", COLUMNS));
    all.sort_by_key(|table| table.0);
    all
}

/// Returns the table `table_columns`.
pub(crate) fn table() -> Result<MemTable> {
    let mut rows = Rows::new(COLUMNS);
    for (table, _, columns) in all() {
        for column in columns {
            rows.push([
                table.into(),
                column.name.into(),
                column.kind.sql().into(),
                Some(column.unit).filter(|unit| !unit.is_empty()).into(),
                column.meaning.into(),
            ]);
        }
    }
    let batch = rows.finish()?;
    MemTable::try_new(batch.schema(), vec![vec![batch]])
}

/// Returns tables, then views, and functions as JSON. The columns of views have names only.
pub fn as_json() -> Json {
    let mut tables: Vec<Json> = all()
        .into_iter()
        .map(|(name, row, columns)| {
            let columns: Vec<Json> = columns
                .iter()
                .map(|column| {
                    json!({
                        "name": column.name,
                        "type": column.kind.sql(),
                        "unit": column.unit,
                        "meaning": column.meaning,
                    })
                })
                .collect();
            json!({"name": name, "row": row, "columns": columns})
        })
        .collect();
    tables.extend(views::all().iter().map(|view| {
        let columns = view.columns().into_iter();
        let columns: Vec<Json> = columns
            .map(|name| json!({"name": name, "type": "", "unit": "", "meaning": ""}))
            .collect();
        json!({"name": view.full_name(), "row": view.meaning, "columns": columns})
    }));
    let functions: Vec<Json> = FUNCTIONS
        .iter()
        .map(|function| json!({"call": function.call, "meaning": function.meaning}))
        .collect();
    json!({"tables": tables, "functions": functions})
}

/// Returns a table's columns as lines, or every table if there is no name; `None` for an unknown table.
pub fn as_text(name: Option<&str>) -> Option<String> {
    let mut text = String::new();
    let all = all();
    let Some(name) = name else {
        for (table, row, columns) in all {
            let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
            let _ = writeln!(text, "{table}: one row is {row}\n    {}", names.join(", "));
        }
        text.push_str("\nviews with the names of other profilers, times in nanoseconds\n");
        for view in views::all() {
            let _ = writeln!(text, "  {:<38} {}", view.full_name(), view.meaning);
        }
        text.push_str("\nfunctions\n");
        for function in FUNCTIONS {
            let _ = writeln!(text, "  {:<38} {}", function.call, function.meaning);
        }
        return Some(text);
    };
    if let Some(view) = views::all().iter().find(|view| view.full_name() == name) {
        let _ = writeln!(text, "{name}: {}", view.meaning);
        for column in view.columns() {
            let _ = writeln!(text, "  {column}");
        }
        return Some(text);
    }
    let (_, row, columns) = all.into_iter().find(|table| table.0 == name)?;
    let _ = writeln!(text, "{name}: one row is {row}");
    for column in columns {
        let _ = writeln!(
            text,
            "  {:<26} {:<8} {:<6} {}",
            column.name,
            column.kind.sql(),
            column.unit,
            column.meaning
        );
    }
    Some(text)
}
