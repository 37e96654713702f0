//! The tables that a query names: those of a dataset in a bucket that have to be fetched for it.

use std::collections::BTreeSet;

use datafusion::error::Result;
use datafusion::execution::{SessionState, SessionStateBuilder};

use super::{RUNS, TABLE_COLUMNS};
use crate::events::{Events, SAMPLES};
use crate::{schema_table, views};

/// Returns the stored tables that a query reads, through views too; without a query, all of them. The table of runs is
/// always one: its files say which runs are complete.
pub fn tables_of(sql: Option<&str>) -> Result<BTreeSet<String>> {
    let stored = || {
        let all = schema_table::all().into_iter();
        all.map(|table| table.0.to_owned())
            .filter(|table| ![TABLE_COLUMNS, SAMPLES].contains(&table.as_str()))
    };
    let Some(sql) = sql else {
        return Ok(stored().collect());
    };
    let state = SessionStateBuilder::new().with_default_features().build();
    let mut named = BTreeSet::from([RUNS.to_owned()]);
    add(&state, sql, &mut named)?;
    if named.contains(SAMPLES) {
        named.insert(Events::Counters.table().to_owned());
    }
    let stored: BTreeSet<String> = stored().collect();
    Ok(named.intersection(&stored).cloned().collect())
}

/// Adds the tables that stand in a query, and those of the views that it names.
fn add(state: &SessionState, sql: &str, named: &mut BTreeSet<String>) -> Result<()> {
    let dialect = state.config_options().sql_parser.dialect;
    let statement = state.sql_to_statement(sql, &dialect)?;
    for reference in state.resolve_table_references(&statement)? {
        let name = reference.table();
        let view = views::all()
            .into_iter()
            .find(|view| Some(view.schema) == reference.schema() && view.name == name);
        match view {
            Some(view) => add(state, view.query, named)?,
            None => drop(named.insert(name.to_owned())),
        }
    }
    Ok(())
}
