//! Captures of the same programs by stepscope's client and by other tools' clients.

use anyhow::{Context as _, Result};

use super::results::Results;
use crate::part::Outcome;
use crate::programs::Build;
use crate::{peers, shell};

const INTERVAL_MS: u32 = 1_000;
const ROUNDS: usize = 5;

/// Measures the time of a capture beyond its interval, for JAX's program and for stepscope's.
pub(super) fn measure(results: &mut Results) -> Result<Outcome> {
    let Some(python) = peers::python()? else {
        return Ok(peers::no_python());
    };
    let output = shell::output(
        shell::program(python)
            .arg("benches/peers/capture.py")
            .arg(INTERVAL_MS.to_string())
            .arg(ROUNDS.to_string())
            .env("STEPSCOPE_BIN", Build::Release.command()?)
            .env("STEPSCOPE_SERVE", peers::serve_program(Build::Release)?),
    )?;
    let answer: serde_json::Value = serde_json::from_str(output.lines().last().unwrap_or("null"))?;
    let beyond = |seconds: f64| seconds - f64::from(INTERVAL_MS) / 1e3;
    let mut rows = Vec::new();
    for row in answer.as_array().context("no list of figures")? {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let seconds = |key: &str| {
            row[key]
                .as_f64()
                .map_or("–".to_owned(), |value| format!("{:.3}", beyond(value)))
        };
        rows.push(vec![
            format!("{}: {}", text("program"), text("client")),
            seconds("file_s"),
            seconds("exit_s"),
            format!("{:.2}", row["bytes"].as_f64().unwrap_or_default() / 1e6),
        ]);
    }
    results.table(
        "Capturing one second, by ours and by the peers' client",
        &format!(
            "Seconds beyond the {INTERVAL_MS} ms, from the start of the client, until the file is whole and until it exits; median of {ROUNDS}, \
             in turn. *The server's answer* is the question and its answer over an open library: what the program itself takes to stop and to send."
        ),
        &["program: client", "file whole, s", "exit, s", "MB"],
        &rows,
    );
    Ok(Outcome::Ok)
}
