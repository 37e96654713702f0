//! Questions to the SQL engine, and the rows of its answers.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{FleetError, FleetOptions};
use crate::sql::{SqlEngine, SqlQuery, SqlRun};

/// Longest time of one query.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Most rows of one answer.
const MOST_ROWS: usize = 5_000_000;

/// A row of an answer.
pub(super) struct Row(Map<String, Value>);

impl Row {
    /// Returns a text; empty if there is none.
    pub(super) fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a number.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    /// Returns a whole number.
    pub(super) fn whole(&self, key: &str) -> Option<i64> {
        self.0.get(key)?.as_i64()
    }

    /// Returns a time of picoseconds in nanoseconds.
    pub(super) fn ns(&self, key: &str) -> Option<f64> {
        self.number(key).map(|ps| ps / 1e3)
    }
}

/// The dataset of one call, and what is chosen of it.
pub(super) struct Asked<'a> {
    engine: &'a mut SqlEngine,
    pub(super) options: &'a FleetOptions,
    source: [SqlRun; 1],
    /// `WITH chosen AS (…)`: a row for each chosen run.
    chosen: String,
    /// How much is chosen.
    pub(super) totals: Totals,
}

/// What is chosen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) runs: i64,
    pub(super) days: i64,
    /// Largest possible error between the clocks of a run's files at the start of a collective, nanoseconds.
    pub(super) clock_error_ns: Option<f64>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(
        engine: &'a mut SqlEngine,
        options: &'a FleetOptions,
    ) -> Result<Self, FleetError> {
        let mut asked = Self {
            engine,
            options,
            source: [SqlRun::Path(options.dataset.clone())],
            chosen: chosen(options),
            totals: Totals::default(),
        };
        let rows = asked.rows(
            "SELECT count(*) AS runs, count(DISTINCT date) AS days, \
                    (SELECT max(arrival_error_ps) FROM clocks WHERE run IN (SELECT run FROM chosen)) AS error_ps \
             FROM chosen",
        )?;
        if let Some(row) = rows.first() {
            asked.totals = Totals {
                runs: row.whole("runs").unwrap_or(0),
                days: row.whole("days").unwrap_or(0),
                clock_error_ns: row.ns("error_ps"),
            };
        }
        if asked.totals.runs == 0 {
            return Err(FleetError::NoRuns(options.dataset.clone()));
        }
        Ok(asked)
    }

    /// Returns the rows of a query, which may read `chosen`. `rest` starts with `SELECT`, or with further named
    /// queries: `, name AS (…) SELECT …`.
    pub(super) fn rows(&mut self, rest: &str) -> Result<Vec<Row>, FleetError> {
        let sql = format!("{} {rest}", self.chosen);
        let query = SqlQuery {
            runs: &self.source,
            sql: &sql,
            format: "json",
            rows: MOST_ROWS,
            bytes: u64::MAX,
            timeout: TIMEOUT,
            width: None,
            use_cache: true,
            cluster: self.options.cluster.as_deref(),
        };
        let mut bytes = Vec::new();
        let answered = self.engine.query(&query, &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        if answered.truncated {
            return Err(FleetError::TooManyRows(MOST_ROWS));
        }
        let wrong = |cause: String| FleetError::Answer(cause);
        let answer: Value =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        let rows = match answer {
            Value::Object(mut answer) => answer.remove("rows"),
            _ => None,
        };
        let Some(Value::Array(rows)) = rows else {
            return Err(wrong("it has no rows".to_owned()));
        };
        let rows = rows.into_iter().map(|row| match row {
            Value::Object(row) => Ok(Row(row)),
            _ => Err(wrong("a row is no object".to_owned())),
        });
        rows.collect()
    }
}

/// Returns the query of the chosen runs.
fn chosen(options: &FleetOptions) -> String {
    let mut conditions = Vec::new();
    if let Some(since) = options.since {
        conditions.push(format!("date >= DATE '{since}'"));
    }
    if let Some(until) = options.until {
        conditions.push(format!("date <= DATE '{until}'"));
    }
    if let Some(job) = &options.job {
        conditions.push(format!("job = {}", quoted(job)));
    }
    let conditions = if conditions.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", conditions.join(" AND "))
    };
    format!(
        "WITH stated AS (SELECT run, min(value) AS job FROM facts WHERE key = 'job' GROUP BY run), \
              named AS (SELECT r.run, r.name, r.date, r.path, r.ranks, r.start_unix_ns, r.step_p50_ps, r.steps, \
                               coalesce(f.job, regexp_replace(r.name, '[0-9]+([-_.:T][0-9]+)*', '#', 'g')) AS job \
                        FROM runs r LEFT JOIN stated f ON f.run = r.run), \
              chosen AS (SELECT * FROM named{conditions})"
    )
}

/// Returns a text as a literal of SQL.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The column with the name of a host: without the rank that the tables add where a run has several files of a host; of
/// files that state no host, with their rank.
pub(super) fn host_name(table: &str) -> String {
    format!(
        "CASE WHEN coalesce({table}.host, '') <> '' THEN regexp_replace({table}.host, ' rank [0-9]+$', '') \
              WHEN {table}.rank IS NOT NULL THEN concat('rank ', CAST({table}.rank AS VARCHAR)) \
              ELSE 'unknown' END"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_end_the_query() {
        let options = FleetOptions {
            dataset: "dataset".into(),
            since: Some(jiff::civil::date(2026, 11, 1)),
            until: Some(jiff::civil::date(2026, 11, 30)),
            job: Some("it's; DROP TABLE runs --".to_owned()),
            top: 10,
            cluster: None,
        };
        let sql = chosen(&options);
        assert!(
            sql.contains(
                "date >= DATE '2026-11-01' AND date <= DATE '2026-11-30' AND job = 'it''s; DROP TABLE runs --'"
            ),
            "{sql}"
        );
    }
}
