//! Any window of a trace of 20 million slices.

use anyhow::Result;

use super::results::Results;
use crate::part::Outcome;
use crate::shell;

pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let text = shell::output(
        shell::cargo().args(["run", "--release", "--quiet", "--package", "stepscope-store", "--example", "windows"]),
    )?;
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let row: serde_json::Value = serde_json::from_str(line)?;
        rows.push(vec![
            row["window"].as_str().unwrap_or("?").to_owned(),
            row["items"].to_string(),
            format!("{:.2}", row["median_ms"].as_f64().unwrap_or(f64::NAN)),
            format!("{:.2}", row["worst_ms"].as_f64().unwrap_or(f64::NAN)),
        ]);
    }
    results.table(
        "Windows of a trace of 20 million slices",
        "All tracks at 1,600 bins, on one thread; median and worst of many windows of that width.",
        &["window", "items", "median, ms", "worst, ms"],
        &rows,
    );
    Ok(Outcome::Ok)
}
