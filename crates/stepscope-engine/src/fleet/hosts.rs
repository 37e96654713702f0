//! Hosts that the others wait for.
//!
//! ```text
//! delay of a host    sum over collectives in which it arrives last: its arrival - that of the host before it;
//!                    a host arrives with the last of its ranks
//! delay share        delay / time of the host's steps, the mean over its ranks
//! step ratio         median over the host's runs of: median step of the host / median step of the run's hosts,
//!                    of a run with one host / median step of the job
//! ```
//!
//! The delay is the time that all others would have saved if the host had come with the last but one: an upper bound
//! of what the job would gain. Collectives whose arrivals differ by less than the error of the clocks delay nobody.

use std::collections::BTreeMap;

use stepscope_analysis::statistics::median;
use stepscope_report::report::{Cell, Column, Report, Sentence, Table, Unit, duration, share};

use super::FleetError;
use super::ask::{Asked, host_name};

/// A host stands out if its delay is at least this fraction of its steps…
const NOTABLE: f64 = 0.01;
/// … and this many times the median of the others.
const TIMES_OTHERS: f64 = 3.0;
/// A host without collectives stands out if its steps are longer than the others' by this fraction.
const NOTABLE_RATIO: f64 = 0.05;

#[derive(Default)]
struct Host {
    runs: i64,
    days: BTreeMap<String, Day>,
    steps: i64,
    steps_ns: f64,
    step_ns: Vec<f64>,
    ratios: Vec<f64>,
    collectives: i64,
    last: i64,
    delay_ns: f64,
}

#[derive(Default)]
struct Day {
    steps_ns: f64,
    delay_ns: f64,
    collectives: i64,
    ratios: Vec<f64>,
}

impl Host {
    fn delay_share(&self) -> Option<f64> {
        delay_share(self.collectives, self.delay_ns, self.steps_ns)
    }

    fn ratio(&self) -> Option<f64> {
        median(&self.ratios)
    }
}

fn delay_share(collectives: i64, delay_ns: f64, steps_ns: f64) -> Option<f64> {
    (collectives > 0 && steps_ns > 0.0).then(|| delay_ns / steps_ns)
}

pub(super) fn hosts(asked: &mut Asked<'_>) -> Result<Report, FleetError> {
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    let of_step = host_name("s");
    let rows = asked.rows(&format!(
        ", of_rank AS (SELECT s.run, CAST(s.date AS VARCHAR) AS day, c.job, c.ranks, {of_step} AS name, \
                              median(s.dur_ps) AS p50_ps, count(*) AS steps, \
                              sum(s.dur_ps) / count(DISTINCT concat(CAST(s.rank AS VARCHAR), '/', \
                                                                    CAST(s.pid AS VARCHAR))) AS all_ps \
                       FROM steps s JOIN chosen c ON c.run = s.run WHERE NOT s.unfinished \
                       GROUP BY s.run, s.date, c.job, c.ranks, {of_step}), \
           of_run AS (SELECT run, median(p50_ps) AS p50_ps, count(DISTINCT name) AS hosts FROM of_rank GROUP BY run), \
           of_job AS (SELECT job, ranks, median(p50_ps) AS p50_ps FROM of_rank GROUP BY job, ranks) \
         SELECT o.name, o.day, o.p50_ps, o.all_ps, o.steps, \
                CAST(o.p50_ps AS DOUBLE) / CAST(CASE WHEN r.hosts > 1 THEN r.p50_ps ELSE j.p50_ps END AS DOUBLE) AS ratio \
         FROM of_rank o JOIN of_run r ON r.run = o.run \
              JOIN of_job j ON j.job = o.job AND (j.ranks IS NOT DISTINCT FROM o.ranks)"
    ))?;
    for row in rows {
        let host = hosts.entry(row.text("name").to_owned()).or_default();
        let day = host.days.entry(row.text("day").to_owned()).or_default();
        let all_ns = row.ns("all_ps").unwrap_or(0.0);
        host.runs += 1;
        host.steps += row.whole("steps").unwrap_or(0);
        host.steps_ns += all_ns;
        day.steps_ns += all_ns;
        host.step_ns.extend(row.ns("p50_ps"));
        host.ratios.extend(row.number("ratio"));
        day.ratios.extend(row.number("ratio"));
    }
    let of_part = host_name("p");
    let rows = asked.rows(&format!(
        ", last_of_host AS (SELECT p.run, p.collective, CAST(p.date AS VARCHAR) AS day, {of_part} AS name, \
                                   max(p.late_ps) AS late_ps, bool_and(p.comparable) AS comparable \
                            FROM collectives p JOIN chosen c ON c.run = p.run WHERE p.late_ps IS NOT NULL \
                            GROUP BY p.run, p.collective, p.date, {of_part}), \
           arrivals AS (SELECT name, day, late_ps, comparable, row_number() OVER w AS place, \
                               lead(late_ps) OVER w AS before_ps FROM last_of_host \
                        WINDOW w AS (PARTITION BY run, collective ORDER BY late_ps DESC, name)) \
         SELECT name, day, count(*) AS parts, count(*) FILTER (WHERE place = 1 AND comparable AND before_ps IS NOT NULL) AS last, \
                coalesce(sum(late_ps - before_ps) FILTER (WHERE place = 1 AND comparable AND before_ps IS NOT NULL), 0) AS delay_ps \
         FROM arrivals GROUP BY name, day"
    ))?;
    for row in rows {
        let host = hosts.entry(row.text("name").to_owned()).or_default();
        let day = host.days.entry(row.text("day").to_owned()).or_default();
        let (parts, delay_ns) = (
            row.whole("parts").unwrap_or(0),
            row.ns("delay_ps").unwrap_or(0.0),
        );
        host.collectives += parts;
        day.collectives += parts;
        host.last += row.whole("last").unwrap_or(0);
        host.delay_ns += delay_ns;
        day.delay_ns += delay_ns;
    }
    Ok(report(asked, &hosts))
}

fn report(asked: &Asked<'_>, hosts: &BTreeMap<String, Host>) -> Report {
    let totals = asked.totals;
    let mut report = Report::new("hosts");
    let mut order: Vec<(&String, &Host)> = hosts.iter().collect();
    let key = |host: &Host| {
        (
            host.delay_share().unwrap_or(0.0),
            host.ratio().unwrap_or(0.0),
        )
    };
    order.sort_by(|(_, a), (_, b)| {
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    report.sentence = sentence(asked, &order);
    report.scalar("hosts", "Hosts", Unit::Count, hosts.len());
    report.scalar("runs", "Runs", Unit::Count, totals.runs);
    report.scalar("days", "Days", Unit::Count, totals.days);
    report.scalar(
        "clock_error_ns",
        "Largest clock error",
        Unit::Ns,
        totals.clock_error_ns,
    );
    report.table = Table::new(vec![
        Column::new("name", "Host", Unit::Text),
        Column::new("runs", "Runs", Unit::Count),
        Column::new("days", "Days", Unit::Count),
        Column::new("steps", "Steps", Unit::Count),
        Column::new("step_ns", "Median step", Unit::Ns),
        Column::new("step_ratio", "Of the others' step", Unit::Number),
        Column::new("collectives", "Collectives", Unit::Count),
        Column::new("last_count", "Last at", Unit::Count),
        Column::new("delay_ns", "Delay", Unit::Ns),
        Column::new("delay_share", "Delay of step", Unit::Share),
    ]);
    for (name, host) in &order {
        report.table.push([
            name.as_str().into(),
            host.runs.into(),
            host.days.len().into(),
            host.steps.into(),
            median(&host.step_ns).into(),
            host.ratio().map(rounded).into(),
            host.collectives.into(),
            host.last.into(),
            (host.collectives > 0).then_some(host.delay_ns).into(),
            host.delay_share().into(),
        ]);
    }
    report.table.cut(asked.options.top);
    let shown = order.iter().take(asked.options.top);
    report.section("days", "Hosts by day", days(shown.copied()));
    if hosts.values().any(|host| host.collectives > 0) {
        report.note(
            "Delay: time that all others of a collective waited for this host alone; an upper bound of what they would save",
        );
    }
    report
}

/// Returns the table with a row for each host and day.
fn days<'a>(hosts: impl Iterator<Item = (&'a String, &'a Host)>) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Host", Unit::Text),
        Column::new("day", "Day", Unit::Text),
        Column::new("delay_share", "Delay of step", Unit::Share),
        Column::new("step_ratio", "Of the others' step", Unit::Number),
    ]);
    for (name, host) in hosts {
        for (date, day) in &host.days {
            table.push([
                name.as_str().into(),
                date.as_str().into(),
                Cell::from(delay_share(day.collectives, day.delay_ns, day.steps_ns)),
                median(&day.ratios).map(rounded).into(),
            ]);
        }
    }
    table
}

/// States the host that stands out, if one does.
fn sentence(asked: &Asked<'_>, order: &[(&String, &Host)]) -> Sentence {
    let totals = asked.totals;
    let scope = format!(
        "{} hosts in {} runs of {} days",
        order.len(),
        totals.runs,
        totals.days
    );
    let Some((name, first)) = order.first() else {
        return format!("{scope}: no step was recorded.").into();
    };
    let others = |value: fn(&Host) -> Option<f64>| {
        let rest = order.iter().skip(1);
        let values: Vec<f64> = rest.filter_map(|(_, host)| value(host)).collect();
        median(&values)
    };
    if let Some(delay) = first.delay_share() {
        let usual = others(Host::delay_share).unwrap_or(0.0);
        if delay >= NOTABLE && delay >= TIMES_OTHERS * usual {
            return format!(
                "{scope}: the others wait for {name} in {} of its step time ({} in all); the median of the other hosts is {}.",
                share(delay),
                duration(first.delay_ns),
                share(usual)
            )
            .into();
        }
        return format!("{scope}: no host is waited for much more than the others.").into();
    }
    let slowest = order
        .iter()
        .filter_map(|(name, host)| Some((name, host.ratio()?)))
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    match slowest {
        Some((name, ratio)) if order.len() > 1 && ratio >= 1.0 + NOTABLE_RATIO => format!(
            "{scope}: the steps of {name} are {} longer than the others'.",
            share(ratio - 1.0)
        )
        .into(),
        _ => format!("{scope}: no host has much longer steps than the others.").into(),
    }
}

/// Rounds a ratio to four digits after the point.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}
