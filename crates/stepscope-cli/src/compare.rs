//! `stepscope compare`: compares runs, judges them by a gate. `stepscope baseline`: keeps accepted runs.

pub mod baseline;
mod document;
mod history;
mod predictions;
mod sides;
mod steps_choice;
pub mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};

use stepscope_engine::analysis::compare::result::{CompareOptions, Comparison};
use stepscope_engine::analysis::steps::bucket::StepBucket;
use stepscope_engine::report::compare::ComparisonView;
use stepscope_engine::report::compare::gate::{Gate, GateOutcome, GateResult};

use crate::args;
use crate::error::CliError;
use document::Document;
use sides::Side;
use steps_choice::StepsChoice;

/// Output format of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompareFormat {
    Table,
    Markdown,
    Csv,
    Json,
    Html,
    Junit,
    Github,
}

impl CompareFormat {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "table" => Self::Table,
            "md" => Self::Markdown,
            "csv" => Self::Csv,
            "json" => Self::Json,
            "html" => Self::Html,
            "junit" => Self::Junit,
            "github" => Self::Github,
            _ => return None,
        })
    }
}

/// One output: a format, and its file; without one, the standard output.
struct CompareOutput {
    format: CompareFormat,
    file: Option<PathBuf>,
}

/// Runs the command.
pub fn run(asked: &args::Compare, out: &mut dyn Write) -> Result<(), CliError> {
    let outputs = outputs(&asked.format)?;
    let gate = asked.gate.as_deref().map(read_gate).transpose()?;
    let mut options = CompareOptions {
        by: asked.by,
        match_by: asked.match_by,
        renames: asked.rename.clone(),
        ..CompareOptions::default()
    };
    options.tolerance = asked
        .tolerance
        .or(gate.as_ref().map(|gate| gate.tolerance))
        .unwrap_or(options.tolerance);
    options.confidence = asked
        .confidence
        .or(gate.as_ref().map(|gate| gate.confidence))
        .unwrap_or(options.confidence);
    let gate_steps = gate.as_ref().and_then(|gate| gate.steps.as_deref());
    let steps = asked.steps.as_deref().or(gate_steps);
    let side = |own: &Option<String>, rank| {
        let choice = own.as_deref().or(steps).map(StepsChoice::read);
        let mut choice = choice.transpose()?.unwrap_or_default();
        choice.rank = rank;
        Ok::<_, CliError>(choice)
    };
    let steps = [
        side(&asked.base_steps, asked.base_rank)?,
        side(&asked.new_steps, asked.new_rank)?,
    ];
    if let Some(folder) = &asked.history {
        return history::run(folder, asked, options.tolerance, out);
    }
    if let Some(file) = &asked.save_summary {
        let [path] = &asked.paths[..] else {
            return Err(CliError::usage(
                "cannot save a summary: --save-summary takes one run\nhelp: stepscope compare --save-summary FILE RUN",
            ));
        };
        let side = Side::open(std::slice::from_ref(path), &steps[1], asked)?;
        let text = summary::text(&side.runs[0], &steps[1])?;
        return write_file(file, &text);
    }
    let today = jiff::Zoned::now().date().to_string();
    if let Some(gate) = gate
        .as_ref()
        .filter(|_| asked.explain && !sides::has_any(asked))
    {
        return Ok(out.write_all(gate.explain(None, &today).as_bytes())?);
    }
    let pairs = sides::open(asked, &steps, gate.as_ref())?;
    let predictions = predictions::read(&asked.check_what_if, &pairs, asked)?;
    let mut results = Vec::new();
    let mut documents: Vec<Document> = outputs
        .iter()
        .map(|output| Document::new(output.format))
        .collect();
    for pair in &pairs {
        let (base, new) = (&pair.base, &pair.new);
        let mut comparison = Comparison::new(&base.runs, &new.runs, &options);
        comparison.check_predictions(&predictions, options.tolerance);
        let gate = pair.gate.as_ref().or(gate.as_ref());
        if let Some(gate) = gate.filter(|_| asked.explain) {
            writeln!(out, "{} and {}\n", base.label, new.label)?;
            out.write_all(gate.explain(Some(&comparison), &today).as_bytes())?;
            continue;
        }
        let outcome = gate.map(|gate| gate.evaluate(&comparison, &today));
        results.extend(outcome.as_ref().map(GateOutcome::result));
        let view = ComparisonView {
            comparison: &comparison,
            labels: [base.label.clone(), new.label.clone()],
            runs: [base.names.clone(), new.names.clone()],
            options: &options,
            top: asked.top,
            gate: outcome.as_ref(),
        };
        for document in &mut documents {
            document.add(&view)?;
        }
    }
    if !asked.explain {
        for (output, document) in outputs.iter().zip(documents) {
            let text = document.finish()?;
            match &output.file {
                None => out.write_all(text.as_bytes())?,
                Some(file) => write_file(file, &text)?,
            }
        }
    }
    match GateResult::of_all(results) {
        Some(result) if result.exit_code() != 0 => Err(CliError::Gate {
            code: result.exit_code(),
        }),
        _ => Ok(()),
    }
}

fn write_file(file: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(file, text)
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", file.display())))
}

/// Reads `FORMAT` and `FORMAT=FILE`.
fn outputs(asked: &[String]) -> Result<Vec<CompareOutput>, CliError> {
    let default = ["table".to_owned()];
    let asked = if asked.is_empty() {
        &default[..]
    } else {
        asked
    };
    let outputs = asked.iter().map(|text| {
        let (name, file) = match text.split_once('=') {
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (text.as_str(), None),
        };
        let format = CompareFormat::from_name(name).ok_or_else(|| {
            CliError::usage(format!(
                "cannot print the comparison as '{name}': no such format\nhelp: the formats are table, md, csv, json, html, junit, github"
            ))
        })?;
        Ok(CompareOutput { format, file })
    });
    outputs.collect()
}

fn read_gate(file: &Path) -> Result<Gate, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| CliError::failed(format!("cannot read {}: {error}", file.display())))?;
    Gate::read(&text).map_err(|cause| {
        CliError::usage(format!("cannot use the gate {}: {cause}", file.display()))
    })
}

/// Returns the names of the buckets, for summaries.
fn bucket_names() -> [&'static str; 7] {
    StepBucket::ALL.map(StepBucket::as_str)
}
