//! The interval functions as window functions: evaluated after every row, and over frames that rows leave.

use stepscope_sql::session::Session;

use crate::support::{ask, one, open};

/// Three figures that are numbers, for an expression of a window.
fn figures(over: &str) -> String {
    let set = format!("intervals(at, dur) {over}");
    format!(
        "busy(at, dur) {over} AS busy, open_most(at, dur) {over} AS most, intervals_length({set}) AS length, \
         intervals_longest({set}) AS longest"
    )
}

#[test]
fn intervals_accumulate_row_by_row() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let rows = ask(
        &session,
        &format!(
            "SELECT at, {} FROM (VALUES (0, 10), (5, 10), (20, 5), (22, 1), (30, NULL)) AS t(at, dur) ORDER BY at",
            figures("OVER (ORDER BY at)")
        ),
    );
    let column = |key: &str| -> Vec<i64> {
        let values = rows.iter().map(|row| row[key].as_i64().unwrap());
        values.collect()
    };
    assert_eq!(column("busy"), [10, 15, 20, 20, 20]);
    assert_eq!(column("length"), [10, 15, 20, 20, 20]);
    assert_eq!(column("longest"), [10, 15, 15, 15, 15]);
    assert_eq!(column("most"), [1, 2, 2, 2, 2]);
}

/// Compares a window with a join of each row with the rows of its frame.
fn compare(session: &Session, order: &str, frame: &str, first: &str, last: &str) {
    let numbered = format!(
        "WITH t AS (SELECT start_ps AS at, dur_ps AS dur, row_number() OVER (ORDER BY {order}, id) AS n \
                    FROM (SELECT * FROM slices ORDER BY id LIMIT 150))"
    );
    let row = one(
        session,
        &format!(
            "{numbered}, w AS (SELECT n, {windows} FROM t), \
             j AS (SELECT a.n, {joined} FROM t a JOIN t b ON b.n BETWEEN {first} AND {last} GROUP BY a.n) \
             SELECT count(*) AS n, count(*) FILTER (WHERE w.busy = j.busy AND w.most = j.most AND w.length = j.length \
                                                    AND w.longest = j.longest) AS equal \
             FROM w JOIN j ON w.n = j.n",
            windows = figures(&format!("OVER (ORDER BY n {frame})")),
            joined = figures("").replace("(at, dur)", "(b.at, b.dur)"),
        ),
    );
    assert_eq!(row["n"], 150, "{order} {frame}");
    assert_eq!(row["equal"], 150, "{order} {frame}");
}

#[test]
fn windows_of_intervals_equal_joins_with_their_frames() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    for order in ["start_ps", "dur_ps DESC"] {
        compare(&session, order, "", "0", "a.n");
        compare(
            &session,
            order,
            "ROWS BETWEEN 5 PRECEDING AND CURRENT ROW",
            "a.n - 5",
            "a.n",
        );
        compare(
            &session,
            order,
            "ROWS BETWEEN 2 PRECEDING AND 3 FOLLOWING",
            "a.n - 2",
            "a.n + 3",
        );
        compare(
            &session,
            order,
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            "a.n",
            "1000",
        );
    }
}
