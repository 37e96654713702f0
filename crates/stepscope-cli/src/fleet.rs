//! `stepscope fleet`: reports over a dataset of many runs.

use std::io::Write;
use std::path::PathBuf;

use stepscope_engine::report::report::Report;
use stepscope_engine::report::report::html::{Head, HtmlReport, page};
use stepscope_engine::report::reports::Options;
use stepscope_engine::{
    DATASET_MARK, FLEET_KINDS, FLEET_TABLES, FleetKind, FleetOptions, SqlEngine, fleet_reports,
    is_url, shown_path,
};

use crate::args::{self, ReportFormat};
use crate::error::CliError;
use crate::query::{fetch_dataset_of, no_bucket_on_a_cluster};
use crate::report;

/// Memory that the operators of the SQL engine may hold.
const MEMORY_BYTES: u64 = 2 << 30;

/// Runs the command.
pub fn run(asked: &args::Fleet, out: &mut dyn Write) -> Result<(), CliError> {
    let kinds = kinds(asked)?;
    let dataset = dataset(asked)?;
    let top = asked.top.unwrap_or_else(|| report::most_rows(asked.format));
    let options = FleetOptions {
        dataset,
        since: asked.since,
        until: asked.until,
        job: asked.job.clone(),
        top,
        cluster: asked.cluster.clone(),
    };
    let failed = |error: &dyn std::error::Error| CliError::failed(error.to_string());
    let mut engine = SqlEngine::start(MEMORY_BYTES).map_err(|error| failed(&error))?;
    let reports = fleet_reports(&mut engine, &options, &kinds).map_err(|error| failed(&error))?;
    let name = shown_path(&asked.dataset);
    if asked.format == ReportFormat::Html {
        out.write_all(html(&name, &kinds, &reports).as_bytes())?;
        return Ok(());
    }
    for (number, (kind, made)) in kinds.iter().zip(&reports).enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let title = match asked.format {
            ReportFormat::Json => name.clone(),
            _ => format!("{name}: {}", kind.title),
        };
        let options = Options {
            top,
            ..Options::default()
        };
        report::write(&title, made, &options, asked.format, out)?;
    }
    Ok(())
}

/// Returns the folder of the dataset; fetches the tables of one in a bucket that the reports read.
fn dataset(asked: &args::Fleet) -> Result<PathBuf, CliError> {
    let shown = shown_path(&asked.dataset);
    let none = || {
        CliError::failed(format!(
            "cannot read {shown}: it is no dataset\nhelp: 'stepscope export LOGDIR {shown}' makes one"
        ))
    };
    if is_url(&asked.dataset) {
        if asked.cluster.is_some() {
            return Err(no_bucket_on_a_cluster("read", &asked.dataset));
        }
        let tables = FLEET_TABLES.map(str::to_owned).into();
        return fetch_dataset_of(&asked.dataset, &tables)?.ok_or_else(none);
    }
    if !asked.dataset.join(DATASET_MARK).is_file() {
        return Err(none());
    }
    Ok(asked.dataset.clone())
}

/// Returns the reports that are asked for.
fn kinds(asked: &args::Fleet) -> Result<Vec<FleetKind>, CliError> {
    let names = || {
        let names: Vec<&str> = FLEET_KINDS.iter().map(|kind| kind.name).collect();
        names.join(", ")
    };
    let Some(name) = &asked.kind else {
        if matches!(asked.format, ReportFormat::Csv | ReportFormat::Json) {
            return Err(CliError::usage(format!(
                "cannot print all reports in this format\nhelp: name one of {}",
                names()
            )));
        }
        return Ok(FLEET_KINDS.to_vec());
    };
    let kind = FLEET_KINDS.iter().find(|kind| kind.name == name);
    let unknown = || {
        CliError::usage(format!(
            "cannot report on '{name}': no such report of a fleet\nhelp: the reports are {}",
            names()
        ))
    };
    Ok(vec![*kind.ok_or_else(unknown)?])
}

/// Returns the page with the reports.
fn html(name: &str, kinds: &[FleetKind], reports: &[Report]) -> String {
    let parts: Vec<HtmlReport<'_>> = kinds
        .iter()
        .zip(reports)
        .map(|(kind, report)| HtmlReport {
            title: kind.title,
            question: kind.question,
            report,
        })
        .collect();
    let head = Head {
        run: name,
        facts: Vec::new(),
    };
    page(&head, &parts)
}
