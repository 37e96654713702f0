//! Latency of window queries in a trace of 20 million slices.

use anyhow::Result;

use super::results::Results;
use crate::part::Outcome;
use crate::shell;

pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let text = shell::output(shell::cargo().args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "stepscope-store",
        "--example",
        "measure",
        "--",
        "20",
        "64",
        "4",
    ]))?;
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        rows.push(vec![line.split_whitespace().collect::<Vec<_>>().join(" ")]);
    }
    results.table(
        "A trace of 20 million slices in the store",
        "64 tracks, four levels. `items 1/N`: every track at 800 bins over one N-th of the trace, CPU time of one thread, median of five.",
        &["figure"],
        &rows,
    );
    Ok(Outcome::Ok)
}
