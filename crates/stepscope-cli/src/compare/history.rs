//! `stepscope compare --history`: the steps of a series of accepted runs, and where their level changes.

use std::io::Write;
use std::path::Path;

use stepscope_engine::analysis::compare::history::{FEWEST, change_points};
use stepscope_engine::analysis::compare::run::ComparedRun;
use stepscope_engine::analysis::statistics::median;
use stepscope_engine::report::report::{Column, Report, Table, Unit, duration, share};
use stepscope_engine::report::reports::Options;

use super::summary::{self, Summary};
use crate::args;
use crate::error::CliError;

/// Prints one row for each run of a folder, the oldest first.
pub(super) fn run(
    folder: &Path,
    asked: &args::Compare,
    tolerance: f64,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut names = Vec::new();
    let mut medians = Vec::new();
    for path in summary::summaries(folder)? {
        let Some(Summary { run, .. }) = summary::read_if_summary(&path)? else {
            continue;
        };
        let lengths = |run: &ComparedRun| {
            run.samples()
                .map(|step| step.length_ns)
                .collect::<Vec<f64>>()
        };
        if let Some(length) = median(&lengths(&run)) {
            names.push(summary::name_of(&path));
            medians.push(length);
        }
    }
    if medians.is_empty() {
        return Err(CliError::failed(format!(
            "cannot read a history from {}: no accepted run has steps\nhelp: accept runs with 'stepscope baseline accept RUN --into {}'",
            folder.display(),
            folder.display()
        )));
    }
    let points = change_points(&medians, tolerance);
    let mut table = Table::new(vec![
        Column::new("run", "Run", Unit::Text),
        Column::new("step_ns", "Median step", Unit::Ns),
        Column::new("change", "Change", Unit::Number),
        Column::new("p", "p", Unit::Number),
    ]);
    for (index, (name, length)) in names.iter().zip(&medians).enumerate() {
        let point = points.iter().find(|point| point.index == index);
        table.push([
            name.as_str().into(),
            (*length).into(),
            point.map(|point| point.after / point.before).into(),
            point.map(|point| point.p).into(),
        ]);
    }
    let mut report = Report::new("compare");
    report.sentence = match points.last() {
        Some(last) => format!(
            "{} change points in {} runs; the last at {}: {} to {}.",
            points.len(),
            medians.len(),
            names[last.index],
            duration(last.before),
            duration(last.after)
        )
        .into(),
        None => format!("No change point in {} runs.", medians.len()).into(),
    };
    if medians.len() < FEWEST {
        let (last, others) = medians.split_last().unwrap_or((&0.0, &[]));
        if let Some(level) = median(others).filter(|level| *level > 0.0) {
            let change = share((last / level - 1.0).abs());
            let word = if *last >= level { "longer" } else { "shorter" };
            report.note(format!(
                "Change points need {FEWEST} runs; the last run is {change} {word} than the median of the others"
            ));
        }
    }
    report.table = table;
    let format = match asked.format.first().map(String::as_str) {
        None | Some("table") => args::ReportFormat::Table,
        Some("csv") => args::ReportFormat::Csv,
        Some("json") => args::ReportFormat::Json,
        Some("md") => args::ReportFormat::Md,
        Some(other) => {
            return Err(CliError::usage(format!(
                "cannot print a history as '{other}': no such format\nhelp: the formats are table, md, csv, json"
            )));
        }
    };
    crate::report::write(
        &folder.display().to_string(),
        &report,
        &Options::default(),
        format,
        out,
    )
}
