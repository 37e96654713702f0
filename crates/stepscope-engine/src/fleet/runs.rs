//! Jobs whose steps became slower or faster, and what changed there.
//!
//! The runs of a job with equal numbers of ranks are a series in the order of their starts; its values are the
//! median steps. Levels and their changes: [`change_points`].

use std::collections::BTreeMap;

use stepscope_analysis::compare::history::{ChangePoint, FEWEST, change_points};
use stepscope_analysis::statistics::median;
use stepscope_report::report::{Column, Report, Table, Unit, duration, share};

use super::FleetError;
use super::ask::{Asked, quoted};

/// Smallest change of a level that is reported.
const TOLERANCE: f64 = 0.03;
/// Runs on each side of a change whose facts are compared.
const SIDE: usize = 5;
/// Most facts that are named.
const MOST_FACTS: usize = 8;

struct Run {
    key: String,
    name: String,
    path: String,
    day: String,
    step_ns: f64,
}

pub(super) fn runs(asked: &mut Asked<'_>) -> Result<Report, FleetError> {
    let rows = asked.rows(
        "SELECT run, name, path, job, ranks, CAST(date AS VARCHAR) AS day, step_p50_ps FROM chosen \
         WHERE step_p50_ps > 0 ORDER BY start_unix_ns, run",
    )?;
    let mut series: BTreeMap<(String, i64), Vec<Run>> = BTreeMap::new();
    for row in &rows {
        let key = (row.text("job").to_owned(), row.whole("ranks").unwrap_or(0));
        series.entry(key).or_default().push(Run {
            key: row.text("run").to_owned(),
            name: row.text("name").to_owned(),
            path: row.text("path").to_owned(),
            day: row.text("day").to_owned(),
            step_ns: row.ns("step_p50_ps").unwrap_or(0.0),
        });
    }
    let mut report = Report::new("runs");
    let mut changes = Table::new(vec![
        Column::new("job", "Job", Unit::Text),
        Column::new("ranks", "Ranks", Unit::Count),
        Column::new("name", "From run", Unit::Text),
        Column::new("day", "Day", Unit::Text),
        Column::new("before_ns", "Step before", Unit::Ns),
        Column::new("after_ns", "Step after", Unit::Ns),
        Column::new("ratio", "Ratio", Unit::Number),
        Column::new("p", "p", Unit::Number),
        Column::new("differs", "What differs", Unit::Text),
        Column::new("path", "Path", Unit::Text),
    ]);
    let mut jobs = Table::new(vec![
        Column::new("job", "Job", Unit::Text),
        Column::new("ranks", "Ranks", Unit::Count),
        Column::new("runs", "Runs", Unit::Count),
        Column::new("first_day", "First day", Unit::Text),
        Column::new("last_day", "Last day", Unit::Text),
        Column::new("step_ns", "Median step", Unit::Ns),
        Column::new("latest_ns", "Latest step", Unit::Ns),
        Column::new("changes", "Changes", Unit::Count),
    ]);
    let mut found: Vec<(&(String, i64), &Vec<Run>, ChangePoint)> = Vec::new();
    let mut short = 0_usize;
    for (key, runs) in &series {
        let (job, ranks) = key;
        let steps: Vec<f64> = runs.iter().map(|run| run.step_ns).collect();
        short += usize::from(runs.len() < FEWEST);
        let points = change_points(&steps, TOLERANCE);
        found.extend(points.iter().map(|point| (key, runs, *point)));
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            continue;
        };
        jobs.push([
            job.as_str().into(),
            (*ranks).into(),
            runs.len().into(),
            first.day.as_str().into(),
            last.day.as_str().into(),
            median(&steps).into(),
            last.step_ns.into(),
            points.len().into(),
        ]);
    }
    let slower = found
        .iter()
        .filter(|(_, _, point)| ratio(point) > 1.0)
        .count();
    let faster = found.len() - slower;
    // What became slower most comes first, what became faster most comes last.
    found.sort_by(|(_, _, a), (_, _, b)| ratio(b).total_cmp(&ratio(a)));
    report.sentence = match found.first() {
        Some(((job, _), runs, point)) => {
            let (name, day) = runs
                .get(point.index)
                .map_or(("", ""), |run| (run.name.as_str(), run.day.as_str()));
            let ratio = ratio(point);
            format!(
                "{} jobs; changes to longer steps: {slower}, to shorter: {faster}. First: {job} from {name} on ({day}): \
                 {} to {}, {} {}.",
                series.len(),
                duration(point.before),
                duration(point.after),
                share((ratio - 1.0).abs()),
                if ratio > 1.0 { "longer" } else { "shorter" }
            )
            .into()
        }
        None => format!(
            "{} jobs in {} runs: no change of the step by {} or more.",
            series.len(),
            rows.len(),
            share(TOLERANCE)
        )
        .into(),
    };
    report.scalar("jobs", "Jobs", Unit::Count, series.len());
    report.scalar("runs", "Runs with steps", Unit::Count, rows.len());
    report.scalar("slower", "Became slower", Unit::Count, slower);
    report.scalar("faster", "Became faster", Unit::Count, faster);
    if short > 0 {
        report.note(format!(
            "{short} jobs have fewer than {FEWEST} runs: a change is not looked for"
        ));
    }
    // The facts are asked for what is shown only.
    changes.left_out = found.len().saturating_sub(asked.options.top) as u64;
    for ((job, ranks), runs, point) in found.iter().take(asked.options.top) {
        let Some(first) = runs.get(point.index) else {
            continue;
        };
        let differs = differing_facts(asked, runs, point)?;
        changes.push([
            job.as_str().into(),
            (*ranks).into(),
            first.name.as_str().into(),
            first.day.as_str().into(),
            point.before.into(),
            point.after.into(),
            ((ratio(point) * 1e4).round() / 1e4).into(),
            point.p.into(),
            differs.into(),
            first.path.as_str().into(),
        ]);
    }
    jobs.cut(asked.options.top);
    report.table = changes;
    report.section("jobs", "Jobs", jobs);
    Ok(report)
}

/// Returns the step after a change, as a multiple of the one before it.
fn ratio(point: &ChangePoint) -> f64 {
    point.after / point.before
}

/// Returns the facts that the runs on both sides of a change state differently: `torch 2.8.0 -> 2.9.0; …`. A fact
/// counts if all runs of a side agree on it.
fn differing_facts(
    asked: &mut Asked<'_>,
    runs: &[Run],
    point: &ChangePoint,
) -> Result<String, FleetError> {
    let before = &runs[point.index.saturating_sub(SIDE)..point.index];
    let after = &runs[point.index..runs.len().min(point.index + SIDE)];
    let list = |runs: &[Run]| {
        let keys: Vec<String> = runs.iter().map(|run| quoted(&run.key)).collect();
        keys.join(", ")
    };
    let rows = asked.rows(&format!(
        ", sided AS (SELECT CASE WHEN run IN ({}) THEN 'before' ELSE 'after' END AS side, run, key, value \
                     FROM facts WHERE run IN ({}, {})), \
           agreed AS (SELECT side, key, min(value) AS value FROM sided GROUP BY side, key \
                      HAVING count(DISTINCT value) = 1 AND count(DISTINCT run) = \
                             CASE WHEN side = 'before' THEN {} ELSE {} END) \
         SELECT coalesce(b.key, a.key) AS key, b.value AS before, a.value AS after \
         FROM (SELECT * FROM agreed WHERE side = 'before') b \
         FULL JOIN (SELECT * FROM agreed WHERE side = 'after') a ON a.key = b.key \
         WHERE a.value IS DISTINCT FROM b.value ORDER BY 1",
        list(before),
        list(before),
        list(after),
        before.len(),
        after.len()
    ))?;
    let shown = rows.iter().take(MOST_FACTS).map(|row| {
        let value = |key| match row.text(key) {
            "" => "none",
            value => value,
        };
        format!(
            "{} {} -> {}",
            row.text("key"),
            value("before"),
            value("after")
        )
    });
    let mut shown: Vec<String> = shown.collect();
    if rows.len() > MOST_FACTS {
        shown.push(format!("{} more", rows.len() - MOST_FACTS));
    }
    Ok(shown.join("; "))
}
