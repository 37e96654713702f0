//! Questions that have a report of their own: SQL and report agree. Each returns the number of compared rows.

use stepscope_engine::Run;
use stepscope_sql::session::Session;

use crate::support::{Row, ask, assert_same_sums, number, one, same, sums, try_ask};

/// Returns the rows of a report, by the table function.
fn report(session: &Session, call: &str) -> Vec<Row> {
    ask(session, &format!("SELECT * FROM report({call})"))
}

/// Returns the rows of a section; none if the report does not have it in this run.
fn section(session: &Session, call: &str) -> Vec<Row> {
    let answer = try_ask(session, &format!("SELECT * FROM report({call})")).unwrap_or_default();
    let rows = answer["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| row.as_object().cloned()).collect()
}

/// Returns a figure of a report's summary; `None` if the report has none.
fn figure(session: &Session, kind: &str, key: &str) -> Option<f64> {
    let rows = ask(
        session,
        &format!("SELECT value FROM report('{kind}:summary') WHERE key = '{key}'"),
    );
    rows.first().and_then(|row| row["value"].as_f64())
}

pub(crate) fn q1_where_the_time_of_a_step_goes(session: &Session, run: &Run) -> f64 {
    let mut steps = 0;
    let reported = report(session, "'steps', 'step'");
    let rows = ask(session, "SELECT * FROM steps ORDER BY start_ps, id");
    assert_eq!(rows.len(), reported.len(), "{}", run.name);
    for row in &rows {
        let reported = reported
            .iter()
            .find(|reported| reported["event"] == row["id"])
            .unwrap();
        steps += 1;
        assert_eq!(reported["step"], number(row, "step"), "{}", run.name);
        assert_eq!(reported["outlier"], row["outlier"], "{}", run.name);
        let buckets = [
            "compute",
            "exposed_communication",
            "exposed_copy",
            "input",
            "compile",
            "host",
            "idle",
        ];
        let also = ["communication", "copy", "device_step"];
        for name in buckets.iter().chain(&also) {
            let (ps, ns) = (
                &row[&format!("{name}_ps")],
                &reported[&format!("{name}_ns")],
            );
            assert_eq!(ps.is_null(), ns.is_null(), "{}: {name}", run.name);
            if !ps.is_null() {
                assert!(
                    same(ps.as_f64().unwrap() / 1e3, ns.as_f64().unwrap()),
                    "{}: {name}",
                    run.name
                );
            }
        }
        if row["unfinished"] == false {
            let sum: i64 = buckets
                .iter()
                .map(|name| row[&format!("{name}_ps")].as_i64().unwrap())
                .sum();
            assert_eq!(row["dur_ps"], sum, "{}", run.name);
        }
    }
    f64::from(steps)
}

pub(crate) fn q3_which_kernels_take_the_devices_time(session: &Session, run: &Run) -> f64 {
    let reported = report(session, "'kernels', 'name'");
    if reported.first().is_none_or(|row| !row.contains_key("work")) {
        assert_eq!(
            one(session, "SELECT count(*) AS n FROM kernels")["n"],
            0,
            "{}",
            run.name
        );
        return 0.0;
    }
    let rows = ask(
        session,
        "SELECT name, work, count(*) AS count, sum(dur_ps) / 1e3 AS total_ns FROM kernels GROUP BY name, work",
    );
    let columns = ["count", "total_ns"];
    let ours = sums(&rows, &["name", "work"], &columns);
    let kernels = ours.values().map(|row| row[0]).sum::<f64>();
    assert_same_sums(run, &ours, &sums(&reported, &["name", "work"], &columns));
    let longest = one(
        session,
        "SELECT max(dur_ps) / 1e3 AS ns, min(dur_ps) / 1e3 AS least FROM kernels",
    );
    let most = reported
        .iter()
        .map(|row| number(row, "max_ns"))
        .fold(0.0, f64::max);
    assert!(same(number(&longest, "ns"), most), "{}", run.name);
    kernels
}

pub(crate) fn q5_how_much_communication_is_exposed(session: &Session, run: &Run) -> f64 {
    // Device planes of XSpace have instructions that await others: the report charges their time by another rule.
    if run
        .trace
        .files()
        .iter()
        .any(|file| file.spec.format == "xspace")
    {
        return 0.0;
    }
    let (Some(exposed), Some(all)) = (
        figure(session, "overlap", "exposed_ns"),
        figure(session, "overlap", "communication_ns"),
    ) else {
        return 0.0;
    };
    let row = one(
        session,
        "SELECT sum(intervals_length(intervals_minus(communication, computation))) / 1e3 AS exposed, \
                sum(intervals_length(communication)) / 1e3 AS total \
         FROM (SELECT intervals(start_ps, dur_ps) FILTER (WHERE work = 'communication') AS communication, \
                      intervals(start_ps, dur_ps) FILTER (WHERE work = 'compute') AS computation \
               FROM kernels GROUP BY host, rank, device)",
    );
    assert!(
        same(number(&row, "exposed"), exposed),
        "{}: {row:?} {exposed}",
        run.name
    );
    assert!(
        same(number(&row, "total"), all),
        "{}: {row:?} {all}",
        run.name
    );
    1.0
}

pub(crate) fn q6_which_rank_comes_late(session: &Session, run: &Run) -> f64 {
    let reported = section(session, "'collectives:participants'");
    let parts = report(session, "'collectives', 'part'");
    let rows = ask(session, "SELECT * FROM collectives");
    if parts
        .first()
        .is_some_and(|row| row.contains_key("participant"))
    {
        assert_eq!(rows.len(), parts.len(), "{}", run.name);
    }
    if reported
        .first()
        .is_none_or(|row| !row.contains_key("waited_ns"))
    {
        return 0.0;
    }
    let late = one(
        session,
        "SELECT sum(late_ps) / 1e3 AS late, sum(wait_ps) / 1e3 AS waited, count(*) AS n FROM collectives WHERE comparable",
    );
    let total = |key: &str| {
        reported
            .iter()
            .filter_map(|row| row[key].as_f64())
            .sum::<f64>()
    };
    let mean_late = reported
        .iter()
        .filter_map(|row| Some(row["mean_late_ns"].as_f64()? * row["count"].as_f64()?));
    let compared = reported.len() as f64;
    assert!(same(total("count"), number(&late, "n")), "{}", run.name);
    if number(&late, "n") > 0.0 {
        assert!(
            same(mean_late.sum::<f64>(), number(&late, "late")),
            "{}",
            run.name
        );
        assert!(
            same(total("waited_ns"), number(&late, "waited")),
            "{}",
            run.name
        );
    }
    // The text of question 6: who is last, by the aligned clock.
    let last = ask(
        session,
        "SELECT count(*) AS n, sum(late_ps) / 1e3 AS kept FROM (SELECT comparable, \
         aligned_start_ps - min(aligned_start_ps) OVER (PARTITION BY run, collective) AS late_ps, \
         row_number() OVER (PARTITION BY run, collective ORDER BY aligned_start_ps DESC, host, rank, device) AS place \
         FROM collectives) WHERE place = 1 AND comparable",
    );
    assert!(same(total("last"), number(&last[0], "n")), "{}", run.name);
    if number(&last[0], "n") > 0.0 {
        assert!(
            same(total("kept_waiting_ns"), number(&last[0], "kept")),
            "{}",
            run.name
        );
    }
    compared
}

pub(crate) fn q7_which_operators_cause_device_time(session: &Session, run: &Run) -> f64 {
    let reported = report(session, "'kernels', 'operation'");
    if reported
        .first()
        .is_none_or(|row| !row.contains_key("total_ns"))
    {
        return 0.0;
    }
    let rows = ask(
        session,
        "SELECT coalesce(op_name, 'no launching operation') AS name, count(*) AS count, sum(dur_ps) / 1e3 AS total_ns \
         FROM kernels GROUP BY 1",
    );
    let columns = ["count", "total_ns"];
    assert_same_sums(
        run,
        &sums(&rows, &["name"], &columns),
        &sums(&reported, &["name"], &columns),
    );
    1.0
}

pub(crate) fn q8_launch_latency(session: &Session, run: &Run) -> f64 {
    let Some(p50) = figure(session, "kernels", "launch_delay_p50_ns") else {
        return 0.0;
    };
    let row = one(
        session,
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY cast(delay_ps AS DOUBLE)) / 1e3 AS p50, \
         percentile_cont(0.9) WITHIN GROUP (ORDER BY cast(delay_ps AS DOUBLE)) / 1e3 AS p90, count(*) AS n \
         FROM kernels WHERE launch_id IS NOT NULL",
    );
    assert!(
        close(number(&row, "p50"), p50),
        "{}: {row:?} {p50}",
        run.name
    );
    let p90 = figure(session, "kernels", "launch_delay_p90_ns").unwrap();
    assert!(
        close(number(&row, "p90"), p90),
        "{}: {row:?} {p90}",
        run.name
    );
    1.0
}

/// Whether two percentiles are equal: the engine interpolates with six digits of the distance between two values.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

pub(crate) fn q10_what_holds_the_memory(session: &Session, run: &Run) -> f64 {
    let reported = report(session, "'memory', 'allocator'");
    if reported
        .first()
        .is_none_or(|row| !row.contains_key("allocated_bytes"))
    {
        return 0.0;
    }
    let allocators = reported.len() as f64;
    let rows = ask(
        session,
        "SELECT allocator, host, count(*) AS allocations, sum(bytes) AS allocated_bytes, \
         count(*) FILTER (WHERE freed_at_ps IS NULL) AS never_freed FROM allocations GROUP BY allocator, host",
    );
    let reported: Vec<Row> = reported
        .into_iter()
        .filter(|row| number(row, "allocations") > 0.0)
        .collect();
    let by = ["allocator", "host"];
    let columns = ["allocations", "allocated_bytes"];
    assert_same_sums(
        run,
        &sums(&rows, &by, &columns),
        &sums(&reported, &by, &columns),
    );
    if run.name.contains("cpu_memory") {
        // This file has addresses, and its peak lies at an allocation.
        let peaks = ask(
            session,
            "SELECT allocator, host, max(in_use_bytes) AS peak_bytes FROM allocations GROUP BY allocator, host",
        );
        assert_same_sums(
            run,
            &sums(&peaks, &by, &["peak_bytes"]),
            &sums(&reported, &by, &["peak_bytes"]),
        );
    }
    allocators
}

pub(crate) fn q11_waiting_for_input(session: &Session, run: &Run) -> f64 {
    let reported = section(session, "'input:steps'");
    if reported
        .first()
        .is_none_or(|row| !row.contains_key("input_ns"))
    {
        return 0.0;
    }
    let rows = ask(
        session,
        "SELECT id, input_ps / 1e3 AS input_ns, dur_ps / 1e3 AS duration_ns FROM steps WHERE NOT unfinished",
    );
    for reported in reported {
        let row = rows
            .iter()
            .find(|row| row["id"] == reported["event"])
            .unwrap();
        assert!(
            same(number(row, "input_ns"), number(&reported, "input_ns")),
            "{}",
            run.name
        );
        assert!(
            same(number(row, "duration_ns"), number(&reported, "duration_ns")),
            "{}",
            run.name
        );
    }
    1.0
}

pub(crate) fn q12_which_operations_cost_most(session: &Session, run: &Run) -> f64 {
    let mut classes = 0;
    let rows = ask(
        session,
        "SELECT class, name, coalesce(program, '') AS program, count(*) AS count, sum(dur_ps) / 1e3 AS total_ns, \
         sum(self_ps) / 1e3 AS self_ns, sum(device_self_ps) / 1e3 AS device_self_ns FROM ops GROUP BY 1, 2, 3",
    );
    for class in ["framework", "hlo", "module", "action", "label", "python"] {
        let reported = report(session, &format!("'ops', '{class}'"));
        let ours: Vec<Row> = rows
            .iter()
            .filter(|row| row["class"] == class)
            .cloned()
            .collect();
        if reported
            .first()
            .is_none_or(|row| !row.contains_key("total_ns"))
        {
            assert!(ours.is_empty(), "{} {class}", run.name);
            continue;
        }
        classes += 1;
        let by = ["name", "program"];
        let counts = ["count"];
        assert_same_sums(
            run,
            &sums(&ours, &by, &counts),
            &sums(&reported, &by, &counts),
        );
        let launched = ["device_self_ns"];
        assert_same_sums(
            run,
            &sums(&ours, &by, &launched),
            &sums(&reported, &by, &launched),
        );
        if uses_one_clock(run) {
            let times = ["total_ns", "self_ns"];
            assert_same_sums(
                run,
                &sums(&ours, &by, &times),
                &sums(&reported, &by, &times),
            );
        }
    }
    f64::from(classes)
}

/// Whether no slice has a duration by another clock than the timeline's: where some slices of a row lack it, the
/// report uses the timeline's for the whole row.
fn uses_one_clock(run: &Run) -> bool {
    run.trace
        .tracks()
        .iter()
        .all(|track| track.device.is_none())
}

/// Gaps of devices, with the causes of the report, and the idle time of `devices`.
pub(crate) fn gaps_equal_the_report(session: &Session, run: &Run) -> f64 {
    let Some(idle) = figure(session, "idle", "idle_ns") else {
        return 0.0;
    };
    let row = one(
        session,
        "SELECT count(*) AS n, coalesce(sum(dur_ps), 0) / 1e3 AS ns, coalesce(sum(host_ps + launch_ps + \
         synchronisation_ps + input_ps + communication_ps + unknown_ps - dur_ps), 0) AS rest, \
         count(*) FILTER (WHERE after_id IS NULL) AS open FROM gaps",
    );
    assert!(
        same(number(&row, "ns"), idle),
        "{}: {row:?} {idle}",
        run.name
    );
    assert_eq!(row["rest"], 0, "{}", run.name);
    let gaps = figure(session, "idle", "gaps").unwrap();
    assert!(
        same(number(&row, "n"), gaps),
        "{}: {row:?} {gaps}",
        run.name
    );
    let devices = one(session, "SELECT sum(idle_ps) / 1e3 AS ns FROM devices");
    assert!(
        same(number(&devices, "ns"), idle),
        "{}: {devices:?} {idle}",
        run.name
    );
    // What ends before a gap touches it.
    let touching = one(
        session,
        "SELECT count(*) AS n FROM gaps g JOIN slices s ON s.run = g.run AND s.id = g.before_id \
         WHERE s.end_ps <> g.start_ps",
    );
    assert_eq!(touching["n"], 0, "{}", run.name);
    gaps
}

/// Sums by name are the sums of the slices.
pub(crate) fn names_equal_slices(session: &Session, run: &Run) -> f64 {
    let sums = |table: &str, columns: &str| {
        let sql = format!(
            "SELECT host, name, category, kind, {columns} FROM {table} GROUP BY host, name, category, kind"
        );
        let by = ["host", "name", "category", "kind"];
        sums(&ask(session, &sql), &by, &["n", "total", "own", "most"])
    };
    let slices = sums(
        "slices",
        "count(*) AS n, sum(dur_ps) AS total, sum(self_ps) AS own, max(dur_ps) AS most",
    );
    let names = sums(
        "names",
        "sum(count) AS n, sum(total_ps) AS total, sum(self_ps) AS own, max(max_ps) AS most",
    );
    assert_same_sums(run, &names, &slices);
    let longest = one(
        session,
        "SELECT count(*) AS n, count(*) FILTER (WHERE s.name = n.name AND s.dur_ps = n.max_ps) AS same \
         FROM names n LEFT JOIN slices s ON s.id = n.longest_id",
    );
    assert_eq!(longest["n"], longest["same"], "{}", run.name);
    names.len() as f64
}
