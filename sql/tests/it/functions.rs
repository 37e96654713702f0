//! The functions of times and of sets of intervals, compared with their definitions.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Row, ask, one, open, try_ask};

#[test]
fn times_are_read_with_their_units() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    for (text, expected) in [
        ("1.5 ms", 1_500_000_000_i64),
        ("3ps", 3),
        (" 2 µs ", 2_000_000),
        ("-1 s", -1_000_000_000_000),
    ] {
        let row = one(&session, &format!("SELECT ps('{text}') AS ps"));
        assert_eq!(row["ps"], expected, "{text}");
    }
    for text in ["5", "", "ms", "1 week"] {
        let answer = try_ask(&session, &format!("SELECT ps('{text}') AS ps"));
        assert!(answer.is_err(), "{text}: {answer:?}");
    }
}

/// Start and end.
type Interval = (i64, i64);

/// A fixed sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        i64::try_from((self.0 >> 33) % bound).unwrap()
    }

    /// Up to three intervals among few times; some are empty.
    fn intervals(&mut self) -> Vec<Interval> {
        let count = self.below(4);
        let interval = |_| {
            let start = self.below(20);
            (start, start + self.below(6))
        };
        (0..count).map(interval).collect()
    }
}

/// Whether a time is in a set, by definition.
fn holds(set: &[Interval], at: i64) -> bool {
    set.iter().any(|one| one.0 <= at && at < one.1)
}

fn number(row: &Row, key: &str) -> i64 {
    // A group without intervals has none open.
    row[key].as_i64().unwrap_or(0)
}

fn set(row: &Row, key: &str) -> Vec<Interval> {
    let intervals = row[key].as_array().into_iter().flatten();
    let time = |interval: &Value, key: &str| interval[key].as_i64().unwrap();
    intervals
        .map(|one| (time(one, "start_ps"), time(one, "end_ps")))
        .collect()
}

#[test]
fn operations_on_sets_equal_a_count_of_every_time() {
    let mut numbers = Numbers(7);
    let pairs: Vec<[Vec<Interval>; 2]> = (0..300)
        .map(|_| [numbers.intervals(), numbers.intervals()])
        .collect();
    let mut values = Vec::new();
    for (pair, sides) in pairs.iter().enumerate() {
        // A row without an interval, so that every pair is a group.
        values.push(format!("({pair}, 'none', 0, 0)"));
        for (side, set) in ["a", "b"].iter().zip(sides) {
            let rows = set.iter().map(|(start, end)| {
                let dur = end - start;
                format!("({pair}, '{side}', {start}, {dur})")
            });
            values.extend(rows);
        }
    }
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    let rows = ask(
        &session,
        &format!(
            "WITH sets AS (SELECT pair, intervals(at, dur) FILTER (WHERE side = 'a') AS a, \
                                  intervals(at, dur) FILTER (WHERE side = 'b') AS b, \
                                  open_most(at, dur) FILTER (WHERE side = 'a') AS most \
                           FROM (VALUES {}) AS t(pair, side, at, dur) GROUP BY pair) \
             SELECT intervals_and(a, b) AS both, intervals_or(a, b) AS either, intervals_minus(a, b) AS rest, \
                    intervals_length(a) AS length, most \
             FROM sets ORDER BY pair",
            values.join(", ")
        ),
    );
    assert_eq!(rows.len(), pairs.len());
    for ([a, b], row) in pairs.iter().zip(&rows) {
        let (both, either, rest) = (set(row, "both"), set(row, "either"), set(row, "rest"));
        let times = 0..30;
        for at in times.clone() {
            let (in_a, in_b) = (holds(a, at), holds(b, at));
            assert_eq!(holds(&both, at), in_a && in_b, "{a:?} {b:?} {at}");
            assert_eq!(holds(&either, at), in_a || in_b, "{a:?} {b:?} {at}");
            assert_eq!(holds(&rest, at), in_a && !in_b, "{a:?} {b:?} {at}");
        }
        let length = times.clone().filter(|at| holds(a, *at)).count();
        assert_eq!(number(row, "length"), i64::try_from(length).unwrap());
        let open = times.map(|at| a.iter().filter(|one| one.0 <= at && at < one.1).count());
        let most = open.max().unwrap();
        assert_eq!(number(row, "most"), i64::try_from(most).unwrap());
        // Sets neither overlap nor touch.
        for sets in [either, rest] {
            for pair in sets.windows(2) {
                assert!(pair[0].1 < pair[1].0, "{sets:?}");
            }
        }
    }
}

/// Rows of the same number are added together, in order of their times or not.
#[test]
fn growing_unions_equal_the_unions_of_all_so_far() {
    let session = open("torch_cpu/cpu_plain.pt.trace.json.gz");
    for is_ordered in [false, true] {
        let mut numbers = Numbers(11);
        let (mut all, mut at, mut batch) = (Vec::new(), 0, 0);
        for _ in 0..300 {
            at = if is_ordered {
                at + numbers.below(4)
            } else {
                numbers.below(900)
            };
            batch += i64::from(numbers.below(3) > 0);
            all.push((batch, at, numbers.below(9)));
        }
        let values: Vec<String> = all
            .iter()
            .map(|(batch, at, dur)| format!("({batch}, {at}, {dur})"))
            .collect();
        let rows = ask(
            &session,
            &format!(
                "SELECT DISTINCT batch, busy(at, dur) OVER (ORDER BY batch) AS busy, \
                        intervals_length(intervals(at, dur) OVER (ORDER BY batch)) AS length \
                 FROM (VALUES {}) AS t(batch, at, dur) ORDER BY batch",
                values.join(", ")
            ),
        );
        let batches: BTreeSet<i64> = all.iter().map(|one| one.0).collect();
        assert_eq!(rows.len(), batches.len());
        for row in rows {
            let so_far = all.iter().filter(|one| one.0 <= number(&row, "batch"));
            let so_far: Vec<Interval> = so_far.map(|(_, at, dur)| (*at, at + dur)).collect();
            let busy = (0..1_500).filter(|at| holds(&so_far, *at)).count();
            let busy = i64::try_from(busy).unwrap();
            assert_eq!((number(&row, "busy"), number(&row, "length")), (busy, busy));
        }
    }
}
