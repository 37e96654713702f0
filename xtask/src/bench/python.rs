//! The Python package compared with the tools it replaces: every `benches/peers/python_*.py`, in a
//! separate process, in the environment with all frameworks; scripts without frameworks also run in
//! every other `CPython` of this machine.
//!
//! A script prints lines of JSON, `{"name", "ns", "peer", "peer_ns"}` or `{"name", "s", "peer",
//! "peer_s"}`; both figures of a line are from one process.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::Value;

use super::results::Results;
use crate::part::Outcome;
use crate::programs::Build;
use crate::{package, shell};

pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let python = match package::install_with_frameworks(Build::Release)? {
        Ok(python) => python,
        Err(outcome) => return Ok(outcome),
    };
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let mut run = |python: &Path, version: &str, script: &Path| {
        let mut program = shell::program(python);
        program.arg("-W").arg("ignore").arg(script);
        match shell::output(program.env("PJRT_DEVICE", "CPU")) {
            Ok(text) => rows.extend(text.lines().filter_map(|line| row(line, version))),
            Err(error) => failed.push(format!("{}: {error:#}", script.display())),
        }
    };
    let scripts = scripts()?;
    for script in &scripts {
        run(&python, "", script);
    }
    for (version, python) in package::in_other_versions(&python, Build::Release)? {
        for script in &scripts {
            let name = script.file_name().unwrap_or_default();
            if OF_EVERY_VERSION.iter().any(|other| name == *other) {
                run(&python, &format!("CPython {version}: "), script);
            }
        }
    }
    results.table(
        "Python",
        "Each line in one process, peer and ours in turn; per use for annotations and calls, per round of \
         work for sampling. Lines that name no version are of the environment with all frameworks (CPython \
         3.11). No tracer that hears of calls through the interpreter can cost less than callbacks that do \
         nothing, nor tell times without what those cost that read the clock.",
        &["what", "ours", "peer", "the peer's", "ours / peer"],
        &rows,
    );
    if let Some(first) = failed.first() {
        bail!("{} of the scripts failed; {first}", failed.len());
    }
    Ok(Outcome::Ok)
}

/// Scripts that need no framework, and whose figures depend on the interpreter.
const OF_EVERY_VERSION: [&str; 2] = ["python_calls.py", "python_sampling.py"];

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

/// Parses a line of a script. Frameworks print other lines, which are ignored.
fn row(line: &str, version: &str) -> Option<Vec<String>> {
    let case: Value = serde_json::from_str(line).ok()?;
    let in_ns = |ns: &str, s: &str| {
        let ns = case[ns].as_f64();
        ns.or_else(|| Some(case[s].as_f64()? * 1e9))
    };
    let ours = in_ns("ns", "s")?;
    let peer = in_ns("peer_ns", "peer_s")?;
    Some(vec![
        format!("{version}{}", case["name"].as_str()?),
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
            row(line, "").expect("a row"),
            ["Trace", "50.0 ns", "TraceMe", "100.0 ns", "0.500x"]
        );
        assert_eq!(
            row(line, "CPython 3.10: ").expect("a row")[0],
            "CPython 3.10: Trace"
        );
        let seconds = r#"{"name": "capture", "s": 0.2, "peer": "theirs", "peer_s": 2}"#;
        assert_eq!(
            row(seconds, "").expect("a row"),
            ["capture", "200.00 ms", "theirs", "2.00 s", "0.100x"]
        );
        assert_eq!(row("a framework's own line", ""), None);
    }
}
