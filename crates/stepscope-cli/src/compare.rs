//! `stepscope compare`: compares runs, judges them by a gate. `stepscope baseline`: keeps accepted runs.

pub mod baseline;
mod history;
mod predictions;
mod sides;
pub mod summary;

use std::io::Write;
use std::path::{Path, PathBuf};

use stepscope_engine::analysis::compare::owner::Bucket;
use stepscope_engine::analysis::compare::result::{CompareOptions, Comparison};
use stepscope_engine::report::compare::ComparisonView;
use stepscope_engine::report::compare::gate::Gate;
use stepscope_engine::report::report::html::{Head, HtmlReport, page};
use stepscope_engine::report::reports::Options;

use crate::args;
use crate::error::CliError;
use sides::{Side, StepsChoice};

/// Rows of a table, if no number is given.
const ROWS: usize = 25;

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
    let steps = match asked.steps.as_deref().or(gate_steps) {
        Some(text) => StepsChoice::read(text).map_err(CliError::usage)?,
        None => StepsChoice::default(),
    };
    if let Some(folder) = &asked.history {
        return history::run(folder, asked, options.tolerance, out);
    }
    if let Some(file) = &asked.save_summary {
        let [path] = &asked.paths[..] else {
            return Err(CliError::usage(
                "cannot save a summary: --save-summary takes one run\nhelp: stepscope compare --save-summary FILE RUN",
            ));
        };
        let side = Side::open(std::slice::from_ref(path), &steps, asked)?;
        return summary::write(&side.runs[0], file);
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
    let several = pairs.len() > 1;
    let mut worst = 0;
    let mut json = Vec::new();
    for (position, pair) in pairs.iter().enumerate() {
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
        if let Some(outcome) = &outcome {
            worst = worst.max(outcome.result().exit_code());
        }
        let view = ComparisonView {
            comparison: &comparison,
            labels: [base.label.clone(), new.label.clone()],
            runs: [base.names.clone(), new.names.clone()],
            options,
            top: asked.top,
            gate: outcome.as_ref(),
        };
        for output in &outputs {
            if output.format == CompareFormat::Json && several {
                json.push(serde_json::to_value(&view)?);
                if position + 1 < pairs.len() {
                    continue;
                }
            }
            let text = if output.format == CompareFormat::Json && several {
                serde_json::to_string_pretty(&json)? + "\n"
            } else {
                text_of(&view, output.format)?
            };
            match &output.file {
                None => out.write_all(text.as_bytes())?,
                Some(file) => write_file(file, &text, several && position > 0)?,
            }
        }
    }
    match worst {
        0 => Ok(()),
        code => Err(CliError::Gate { code }),
    }
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

/// Returns the comparison in a format.
fn text_of(view: &ComparisonView<'_>, format: CompareFormat) -> Result<String, CliError> {
    let report = |top: Option<usize>| {
        let view = ComparisonView {
            top,
            ..view.clone()
        };
        view.report()
    };
    let printed = |format: args::Format, top: Option<usize>| {
        let options = Options {
            by: Some(view.options.by.as_str().to_owned()),
            top: top.unwrap_or(usize::MAX),
            ..Options::default()
        };
        let name = format!("{} and {}", view.labels[0], view.labels[1]);
        let mut out = Vec::new();
        crate::report::write(&name, &report(top), &options, format, &mut out)?;
        Ok::<String, CliError>(String::from_utf8_lossy(&out).into_owned())
    };
    match format {
        CompareFormat::Table => printed(args::Format::Table, view.top.or(Some(ROWS))),
        CompareFormat::Csv => printed(args::Format::Csv, view.top),
        CompareFormat::Markdown => Ok(view.comment()),
        CompareFormat::Json => Ok(serde_json::to_string_pretty(view)? + "\n"),
        CompareFormat::Html => {
            let facts = [("base", 0), ("new", 1)];
            let facts = facts.map(|(word, side)| (word.to_owned(), view.runs[side].join(", ")));
            let head = Head {
                run: &format!("{} and {}", view.labels[0], view.labels[1]),
                facts: facts.into(),
            };
            let report = report(view.top);
            let part = HtmlReport {
                title: "Compare",
                question: "Which is faster, by how much, and what makes the difference?",
                report: &report,
            };
            Ok(page(&head, &[part]))
        }
        CompareFormat::Junit => Ok(view.junit()),
        CompareFormat::Github => Ok(view.github()),
    }
}

fn write_file(file: &Path, text: &str, appends: bool) -> Result<(), CliError> {
    let mut options = std::fs::OpenOptions::new();
    options
        .create(true)
        .write(true)
        .append(appends)
        .truncate(!appends);
    let written = options
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| CliError::failed(format!("cannot write {}: {error}", file.display())))
}

/// Returns the names of the buckets, for summaries.
fn bucket_names() -> [&'static str; 7] {
    Bucket::ALL.map(Bucket::as_str)
}
