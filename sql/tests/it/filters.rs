//! Filters that a scan evaluates itself give the rows that a filter above the scan gives.

use stepscope_engine::Run;
use stepscope_sql::session::Session;

use crate::support::{ask, one, open};

pub(crate) fn pushed_filters_equal_filters_above_the_scan(
    session: &Session,
    run: &Run,
    number: usize,
) {
    let middle = one(
        session,
        "SELECT coalesce(median(start_ps), 0) AS at, coalesce(median(id), 0) AS id, coalesce(max(track_id), 0) AS track FROM slices",
    );
    let (at, id) = (
        middle["at"].as_f64().unwrap() as i64,
        middle["id"].as_f64().unwrap() as i64,
    );
    let track = &middle["track"];
    let filters = [
        "name LIKE '%a%'".to_owned(),
        "name NOT LIKE '%a%' AND name <> 'x'".to_owned(),
        "name IN ('aten::mm', 'forward', 'backward') OR name LIKE 'P%'".to_owned(),
        format!("start_ps < {at}"),
        format!("start_ps >= {at} AND start_ps <= {at} + 1000000000"),
        format!("{at} > start_ps"),
        format!("start_ps BETWEEN {at} AND {at} + 5000000000"),
        format!("start_ps = {at}"),
        format!("id = {id}"),
        format!("id > {id} AND name LIKE '%e%' AND track_id <= {track}"),
        format!("track_id = {track}"),
        "device IS NULL".to_owned(),
        "device IS NOT NULL AND stream IS NULL".to_owned(),
        "rank = 1 OR rank IS NULL".to_owned(),
        "host = ''".to_owned(),
        format!("run = '{}'", run.name.replace('\'', "''")),
        "run = 'another'".to_owned(),
        "name LIKE '%a%' OR track_id = 0".to_owned(),
        "NOT (name LIKE '%a%')".to_owned(),
    ];
    // A third of them on each run: queries are planned without optimisation here.
    for filter in filters.iter().skip(number % 3).step_by(3) {
        // `random() < 2` in the condition keeps the planner from moving it into the scan.
        let columns = "count(*) AS n, coalesce(sum(id % 1000003), 0) AS ids, coalesce(sum(start_ps % 1000003), 0) AS starts, \
                       coalesce(sum(dur_ps % 1000003), 0) AS durs, coalesce(sum(length(name)), 0) AS names";
        let pushed = one(
            session,
            &format!("SELECT {columns} FROM slices WHERE {filter}"),
        );
        let above = one(
            session,
            &format!(
                "SELECT {columns} FROM slices WHERE CASE WHEN random() < 2 THEN ({filter}) ELSE false END"
            ),
        );
        assert_eq!(pushed, above, "{}: {filter}", run.name);
    }
}

#[test]
fn filters_of_events_are_evaluated_by_the_scan() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    for (filter, above) in [
        ("name LIKE 'aten::%'", false),
        ("track_id = 3 AND start_ps < 5", false),
        ("dur_ps > 5", true),
        ("name = category", true),
    ] {
        let plan = ask(
            &session,
            &format!("EXPLAIN SELECT dur_ps FROM slices WHERE {filter}"),
        );
        let plan = plan
            .iter()
            .map(|row| row["plan"].as_str().unwrap())
            .collect::<String>();
        assert_eq!(plan.contains("FilterExec"), above, "{filter}: {plan}");
    }
}

#[test]
fn windows_over_tracks_need_no_sort() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let plan = ask(
        &session,
        "EXPLAIN SELECT start_ps - lag(start_ps) OVER (PARTITION BY track_id ORDER BY start_ps) FROM slices",
    );
    let plan = plan
        .iter()
        .map(|row| row["plan"].as_str().unwrap())
        .collect::<String>();
    assert!(!plan.contains("SortExec"), "{plan}");
}
