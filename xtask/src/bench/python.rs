//! The Python package beside what it replaces: every `benches/peers/python_*.py`, a process each, in the
//! environment with all frameworks.
//!
//! A script prints lines of JSON, `{"name", "ns", "peer", "peer_ns"}` or `{"name", "s", "peer", "peer_s"}`;
//! both figures of a line were taken in one process.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use super::results::Results;
use crate::part::Outcome;
use crate::{package, shell};

pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let python = match package::install_beside_frameworks()? {
        Ok(python) => python,
        Err(outcome) => return Ok(outcome),
    };
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for script in scripts()? {
        let mut program = shell::program(&python);
        program.arg("-W").arg("ignore").arg(&script);
        match shell::output(program.env("PJRT_DEVICE", "CPU")) {
            Ok(text) => rows.extend(text.lines().filter_map(row)),
            Err(error) => failed.push(format!("{}: {error:#}", script.display())),
        }
    }
    results.table(
        "Python",
        "Each line in one process, peer and ours in turn; per use for annotations and calls, per round of \
         work for sampling.",
        &["what", "ours", "peer", "the peer's", "ours / peer"],
        &rows,
    );
    if let Some(first) = failed.first() {
        bail!("{} of the scripts failed; {first}", failed.len());
    }
    Ok(Outcome::Ok)
}

fn scripts() -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(shell::root().join("benches/peers"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("python_") && name.ends_with(".py")
        })
        .collect();
    found.sort();
    Ok(found)
}

/// Scripts of frameworks print lines of the frameworks' own: those are not ours to read.
fn row(line: &str) -> Option<Vec<String>> {
    let case: Value = serde_json::from_str(line).ok()?;
    let in_ns = |ns: &str, s: &str| {
        let ns = case[ns].as_f64();
        ns.or_else(|| Some(case[s].as_f64()? * 1e9))
    };
    let ours = in_ns("ns", "s")?;
    let peer = in_ns("peer_ns", "peer_s")?;
    Some(vec![
        case["name"].as_str()?.to_owned(),
        shown(ours),
        case["peer"].as_str().unwrap_or("peer").to_owned(),
        shown(peer),
        format!("{:.3}x", ours / peer),
    ])
}

fn shown(ns: f64) -> String {
    match ns.abs() {
        size if size >= 1e9 => format!("{:.2} s", ns / 1e9),
        size if size >= 1e6 => format!("{:.2} ms", ns / 1e6),
        size if size >= 1e4 => format!("{:.2} us", ns / 1e3),
        _ => format!("{ns:.1} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rows() {
        let line = r#"{"name": "Trace", "ns": 50.0, "peer": "TraceMe", "peer_ns": 100.0}"#;
        assert_eq!(
            row(line).expect("a row"),
            ["Trace", "50.0 ns", "TraceMe", "100.0 ns", "0.500x"]
        );
        let seconds = r#"{"name": "capture", "s": 0.2, "peer": "theirs", "peer_s": 2}"#;
        assert_eq!(
            row(seconds).expect("a row"),
            ["capture", "200.00 ms", "theirs", "2.00 s", "0.100x"]
        );
        assert_eq!(row("a framework's own line"), None);
    }
}
