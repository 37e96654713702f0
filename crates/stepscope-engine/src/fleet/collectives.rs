//! Collectives by kind, size, and the hosts that they span.

use stepscope_report::report::{Column, Report, Table, Unit, duration, share};

use super::FleetError;
use super::ask::{Asked, host_name};

/// Lower bounds of the classes of sizes, bytes.
const SIZES: [i64; 5] = [0, 1 << 16, 1 << 20, 1 << 24, 1 << 28];

pub(super) fn collectives(asked: &mut Asked<'_>) -> Result<Report, FleetError> {
    let cases: Vec<String> = SIZES
        .iter()
        .rev()
        .map(|from| format!("WHEN bytes >= {from} THEN {from}"))
        .collect();
    let size = format!("CASE {} END", cases.join(" "));
    let host = host_name("p");
    let rows = asked.rows(&format!(
        ", whole AS (SELECT p.run, p.collective, p.kind, p.group_size, max(p.bytes) AS bytes, count(*) AS parts, \
                            CASE WHEN bool_and(coalesce(p.host, '') <> '') THEN count(DISTINCT {host}) END AS hosts, max(p.transfer_ps) AS transfer_ps, \
                            max(p.bus_bytes_per_second) AS bus, sum(p.dur_ps) AS dur_ps, \
                            sum(CASE WHEN p.comparable THEN p.wait_ps ELSE 0 END) AS wait_ps, \
                            sum(p.hidden_ps) AS hidden_ps \
                     FROM collectives p JOIN chosen c ON c.run = p.run \
                     GROUP BY p.run, p.collective, p.kind, p.group_size) \
         SELECT kind, group_size, CASE WHEN parts >= group_size THEN hosts END AS hosts, {size} AS from_bytes, \
                count(*) AS count, count(DISTINCT run) AS runs, sum(bytes) AS bytes, sum(dur_ps) AS dur_ps, \
                sum(wait_ps) AS wait_ps, sum(hidden_ps) AS hidden_ps, median(bus) AS bus_p50, \
                percentile_cont(0.1) WITHIN GROUP (ORDER BY bus) AS bus_p10 \
         FROM whole GROUP BY kind, group_size, CASE WHEN parts >= group_size THEN hosts END, {size} \
         ORDER BY dur_ps DESC, kind, group_size"
    ))?;
    let mut report = Report::new("collectives");
    report.table = Table::new(vec![
        Column::new("name", "Collective", Unit::Text),
        Column::new("group_size", "Ranks", Unit::Count),
        Column::new("hosts", "Hosts", Unit::Count),
        Column::new("from_bytes", "Size from", Unit::Bytes),
        Column::new("count", "Count", Unit::Count),
        Column::new("runs", "Runs", Unit::Count),
        Column::new("moved_bytes", "Bytes", Unit::Bytes),
        Column::new("duration_ns", "Time of ranks", Unit::Ns),
        Column::new("wait_share", "Waiting", Unit::Share),
        Column::new("hidden_share", "Hidden", Unit::Share),
        Column::new(
            "bus_p50_bytes_per_second",
            "Bus, median",
            Unit::BytesPerSecond,
        ),
        Column::new("bus_p10_bytes_per_second", "Bus, p10", Unit::BytesPerSecond),
    ]);
    let (mut all_ns, mut wait_ns, mut count) = (0.0, 0.0, 0);
    for row in &rows {
        let time = row.ns("dur_ps").unwrap_or(0.0);
        let part = |key: &str| row.ns(key).filter(|_| time > 0.0).map(|ns| ns / time);
        all_ns += time;
        wait_ns += row.ns("wait_ps").unwrap_or(0.0);
        count += row.whole("count").unwrap_or(0);
        report.table.push([
            row.text("kind").into(),
            row.whole("group_size").into(),
            row.whole("hosts").into(),
            row.whole("from_bytes").into(),
            row.whole("count").into(),
            row.whole("runs").into(),
            row.whole("bytes").into(),
            time.into(),
            part("wait_ps").into(),
            part("hidden_ps").into(),
            row.number("bus_p50").into(),
            row.number("bus_p10").into(),
        ]);
    }
    report.table.cut(asked.options.top);
    if rows.is_empty() {
        report.sentence = "No collective was recorded.".into();
        return Ok(report);
    }
    report.sentence = format!(
        "{count} collectives take {} of the ranks; {} of it they wait for a later rank.",
        duration(all_ns),
        share(wait_ns / all_ns.max(1.0))
    )
    .into();
    report.scalar("collectives", "Collectives", Unit::Count, count);
    report.scalar("duration_ns", "Time of ranks", Unit::Ns, all_ns);
    report.scalar("wait_ns", "Waiting", Unit::Ns, wait_ns);
    report.note(
        "Hosts: empty where not every rank of the group was recorded, or a file names no host",
    );
    Ok(report)
}
