//! Predictions of `--check-what-if`: saved reports, or scenarios that are predicted from the base.

use std::path::Path;

use serde_json::Value;
use stepscope_engine::analysis::compare::prediction::Prediction;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::reports::{self, Options};

use super::sides::{self, Pair};
use crate::args;
use crate::error::CliError;

/// Largest file that is read as a report, bytes.
const LARGEST: u64 = 256 << 20;

/// Reads the predictions of all requests.
pub(super) fn read(
    requests: &[String],
    pairs: &[Pair],
    asked: &args::Compare,
) -> Result<Vec<Prediction>, CliError> {
    let mut found = Vec::new();
    for request in requests {
        let path = Path::new(request);
        let is_file = path.is_file()
            || path
                .extension()
                .is_some_and(|extension| extension == "json");
        let report = if is_file {
            saved(path)?
        } else {
            predicted(request, pairs, asked)?
        };
        let rows = of_report(&report).ok_or_else(|| {
            CliError::failed(format!(
                "cannot check the predictions of {request}: it is no report of the critical path with predictions\n\
                 help: save one with 'stepscope report BASE critical-path --what-if SPEC --format json > FILE'"
            ))
        })?;
        found.extend(rows);
    }
    Ok(found)
}

/// Reads a saved report.
fn saved(path: &Path) -> Result<Value, CliError> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::failed(format!("cannot read {}: {error}", path.display()))
    };
    let facts = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if facts.len() > LARGEST {
        return Err(failed(&"the file is larger than any report"));
    }
    #[allow(
        clippy::disallowed_methods,
        reason = "a report is small, and its size was checked"
    )]
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| failed(&error))
}

/// Predicts a scenario from the base.
fn predicted(what_if: &str, pairs: &[Pair], asked: &args::Compare) -> Result<Value, CliError> {
    let path = match pairs {
        [pair] if pair.base.paths.len() == 1 => &pair.base.paths[0],
        _ => {
            return Err(CliError::usage(format!(
                "cannot predict '{what_if}': the base is not one trace\n\
                 help: give the prediction as a file, or one run as the base"
            )));
        }
    };
    let (_engine, opened) = sides::open_trace(path, asked)?;
    let options = Options {
        what_if: vec![what_if.to_owned()],
        force: true,
        ..Options::default()
    };
    let report = reports::make(&opened.trace, "critical-path", &options, &Cancel::default())
        .map_err(|error| CliError::usage(error.to_string()))?;
    Ok(serde_json::to_value(&report)?)
}

/// Returns the predictions of a report; `None` for other JSON. Rows without a prediction are left out.
fn of_report(report: &Value) -> Option<Vec<Prediction>> {
    let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
    let summary = &report["summary"];
    let window_ns = number(&summary["window_ns"]).filter(|ns| *ns > 0.0)?;
    let steps = number(&summary["steps"]).filter(|steps| *steps > 0.0);
    let mut sections = report["sections"].as_array()?.iter();
    let section = sections.find(|section| section["name"] == "what_if")?;
    let rows = section["rows"].as_array()?.iter();
    let predictions: Vec<Prediction> = rows
        .filter_map(|row| {
            Some(Prediction {
                what_if: row["what_if"].as_str()?.to_owned(),
                ratio: number(&row["step_ns"]).filter(|ns| *ns >= 0.0)? / window_ns,
                replay_error_share: number(&row["replay_error_share"]),
                step_ns: steps.map(|steps| window_ns / steps),
            })
        })
        .collect();
    (!predictions.is_empty()).then_some(predictions)
}
