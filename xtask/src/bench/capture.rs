//! Overhead of a capture in the captured program.

use anyhow::Result;

use super::results::Results;
use crate::part::Outcome;
use crate::shell;

pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let text = shell::output(shell::cargo().args([
        "bench",
        "--quiet",
        "--package",
        "stepscope-remote",
        "--bench",
        "capture",
        "--",
        "--json",
    ]))?;
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let cell = |key: &str| line[key].as_str().unwrap_or("?").to_owned();
        rows.push(vec![cell("case"), cell("figure")]);
    }
    results.table(
        "A capture over the network",
        "The example `serve` (some 35 spans a step, two threads), captured at host level 2 for half a second, then left alone for as long, 60 times; \
         each turn compared with its two neighbours, mean and the interval in which it lies with 95 % confidence. Then five captures with a \
         file, by our client; then ten seconds of a program that sleeps.",
        &["case", "figure"],
        &rows,
    );
    Ok(Outcome::Ok)
}
