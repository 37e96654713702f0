//! The slowest 1 % of the steps, and what is different in them.
//!
//! A step of a job with several ranks is one step. It takes as long as its longest rank, whose buckets name its cause.
//!
//! ```text
//! usual time           the median of the steps of the run
//! excess of a bucket   its time in the longest rank - its median over the steps of that rank
//! cause                the bucket with the largest excess, if it has at least half of the sum of all excesses
//! ```

use std::collections::BTreeMap;

use stepscope_analysis::steps::bucket::StepBucket;
use stepscope_report::report::{Column, Report, Table, Unit, duration, share};

use super::FleetError;
use super::ask::{Asked, Row, host_name};

/// Fraction of the steps that are read.
const SLOWEST: f64 = 0.01;
/// Steps that are read at least, and at most.
const READ: std::ops::RangeInclusive<i64> = 10..=10_000;
/// A step is slow from this ratio to its usual time on.
const SLOW: f64 = 1.05;
/// Fraction of the excess from which a bucket is the cause.
const CAUSES: f64 = 0.5;

/// `numbered`: the finished steps of all ranks, with a number where a rank has several of one step number. `longest`: a
/// row for each step of a run, that of its longest rank.
const LONGEST: &str = ", numbered AS (SELECT s.*, c.name AS run_name, c.path, c.job, \
                           row_number() OVER (PARTITION BY s.run, s.host, s.rank, s.pid, s.step \
                                              ORDER BY s.start_ps) AS occurrence \
                    FROM steps s JOIN chosen c ON c.run = s.run WHERE NOT s.unfinished), \
       longest AS (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY run, step, occurrence \
                                                               ORDER BY dur_ps DESC, host, rank, pid) AS nth \
                                  FROM numbered) WHERE nth = 1)";

pub(super) fn steps(asked: &mut Asked<'_>) -> Result<Report, FleetError> {
    let count = asked.rows(&format!("{LONGEST} SELECT count(*) AS steps FROM longest"))?;
    let count = count
        .first()
        .and_then(|row| row.whole("steps"))
        .unwrap_or(0);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a hundredth of a number of rows"
    )]
    let slowest = (count as f64 * SLOWEST).ceil() as i64;
    let slowest = slowest.clamp(*READ.start(), *READ.end());
    let buckets = StepBucket::ALL.map(StepBucket::as_str);
    let usual = buckets.map(|bucket| format!("median(s.{bucket}_ps) AS {bucket}_ps"));
    let excess = buckets.map(|bucket| format!("s.{bucket}_ps - u.{bucket}_ps AS {bucket}"));
    let name = host_name("s");
    let rows = asked.rows(&format!(
        "{LONGEST}, \
           usual AS (SELECT run, median(dur_ps) AS dur_ps FROM longest GROUP BY run), \
           usual_of_rank AS (SELECT s.run, s.host, s.rank, s.pid, {} FROM numbered s \
                             GROUP BY s.run, s.host, s.rank, s.pid), \
           compared AS (SELECT s.run, s.run_name, s.path, s.job, CAST(s.date AS VARCHAR) AS day, s.step, \
                               s.start_ps, {name} AS host_name, s.dur_ps, t.dur_ps AS usual_ps, {}, \
                               CAST(s.dur_ps AS DOUBLE) / CAST(t.dur_ps AS DOUBLE) AS ratio \
                        FROM longest s JOIN usual t ON t.run = s.run \
                             JOIN usual_of_rank u ON u.run = s.run AND (u.host IS NOT DISTINCT FROM s.host) \
                             AND (u.rank IS NOT DISTINCT FROM s.rank) AND (u.pid IS NOT DISTINCT FROM s.pid) \
                        WHERE t.dur_ps > 0) \
         SELECT * FROM compared WHERE ratio >= {SLOW} ORDER BY ratio DESC, run, step, start_ps LIMIT {slowest}",
        usual.join(", "),
        excess.join(", ")
    ))?;
    let mut report = Report::new("steps");
    report.table = Table::new(vec![
        Column::new("job", "Job", Unit::Text),
        Column::new("name", "Run", Unit::Text),
        Column::new("day", "Day", Unit::Text),
        Column::new("step", "Step", Unit::Number),
        Column::new("host", "Host", Unit::Text),
        Column::new("duration_ns", "Duration", Unit::Ns),
        Column::new("usual_ns", "Usual", Unit::Ns),
        Column::new("ratio", "Ratio", Unit::Number),
        Column::new("cause", "Cause", Unit::Text),
        Column::new("cause_share", "Of the excess", Unit::Share),
        Column::new("path", "Path", Unit::Text),
    ]);
    let mut causes: BTreeMap<&str, (i64, f64)> = BTreeMap::new();
    for row in &rows {
        let (cause, part) = cause(row);
        let (number, ns) = causes.entry(cause).or_default();
        *number += 1;
        *ns += row.ns("dur_ps").unwrap_or(0.0) - row.ns("usual_ps").unwrap_or(0.0);
        report.table.push([
            row.text("job").into(),
            row.text("run_name").into(),
            row.text("day").into(),
            row.whole("step").into(),
            row.text("host_name").into(),
            row.ns("dur_ps").into(),
            row.ns("usual_ps").into(),
            row.number("ratio")
                .map(|ratio| (ratio * 1e4).round() / 1e4)
                .into(),
            cause.into(),
            part.into(),
            row.text("path").into(),
        ]);
    }
    let mut by_cause = Table::new(vec![
        Column::new("name", "Cause", Unit::Text),
        Column::new("steps", "Steps", Unit::Count),
        Column::new("excess_ns", "Excess", Unit::Ns),
    ]);
    let mut causes: Vec<(&str, (i64, f64))> = causes.into_iter().collect();
    causes.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
    for (name, (number, ns)) in &causes {
        by_cause.push([(*name).into(), (*number).into(), (*ns).into()]);
    }
    report.sentence = match causes.first() {
        None => format!(
            "{count} steps: none is longer than usual by {} or more.",
            share(SLOW - 1.0)
        )
        .into(),
        Some((name, (number, ns))) => {
            let all: f64 = causes.iter().map(|(_, (_, ns))| ns).sum();
            format!(
                "The slowest {} of {count} steps take {} longer than usual; {} of it by {name} (steps: {number}).",
                rows.len(),
                duration(all),
                share(ns / all.max(1.0))
            )
            .into()
        }
    };
    report.scalar("steps", "Steps", Unit::Count, count);
    report.scalar("slow_steps", "Slow steps", Unit::Count, rows.len());
    report.section("causes", "Causes", by_cause);
    report.table.cut(asked.options.top);
    report.note(
        "A step takes as long as its longest rank, whose host is shown. Usual: the median step of the run",
    );
    Ok(report)
}

/// Returns the bucket that explains a step, and its part of the excess.
fn cause(row: &Row) -> (&'static str, Option<f64>) {
    let excesses = StepBucket::ALL.into_iter().filter_map(|bucket| {
        let excess = row.number(bucket.as_str()).filter(|ps| *ps > 0.0)?;
        Some((bucket.label(), excess))
    });
    let sum: f64 = excesses.clone().map(|(_, ps)| ps).sum();
    let largest = excesses.max_by(|(_, a), (_, b)| a.total_cmp(b));
    match largest {
        Some((name, ps)) if ps >= CAUSES * sum => (name, Some(ps / sum)),
        _ => ("unknown", None),
    }
}
