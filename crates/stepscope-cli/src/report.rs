//! `stepscope report`: the analyses as text.

use std::io::Write;

use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::report::{Cell, Report, Table, Unit};
use stepscope_engine::analysis::reports::{self, Options, ReportError};
use stepscope_engine::{Engine, EngineError, EngineOptions, RunSummary};

use crate::args::{self, Format};
use crate::error::CliError;
use crate::text::{self, Align, Grid, clean, short};

/// Most characters of a cell on a terminal.
const WIDEST: usize = 60;
/// In place of a kind: every report.
const ALL: &str = "all";

/// Runs the command.
pub fn run(asked: &args::Report, out: &mut dyn Write) -> Result<(), CliError> {
    let listed = std::path::Path::new("list");
    if asked.kind == "list" || (asked.path == listed && !listed.exists()) {
        return list(out);
    }
    // Before a large trace is opened.
    let kind = if asked.kind == ALL {
        if asked.format != Format::Html {
            return Err(CliError::usage(
                "'all' is one page, say --format html; or name one kind, 'stepscope report list' tells them",
            ));
        }
        None
    } else {
        Some(reports::kind(&asked.kind).map_err(|error| usage(&error))?)
    };
    let options = Options {
        by: asked.by.clone(),
        top: asked.top,
        range: None,
    };
    match kind {
        Some(kind) => kind.check(&options).map_err(|error| usage(&error))?,
        None if asked.by.is_some() => {
            return Err(CliError::usage(
                "--by belongs to one kind of report, not to 'all'",
            ));
        }
        None => {}
    }
    let mut engine = EngineOptions::new(vec![asked.path.clone()]);
    engine.use_cache = !asked.reading.no_cache;
    engine.limits = asked.reading.limits();
    engine.watch = false;
    let engine = Engine::new(engine)?;
    let (chosen, mut notes) = choose(&engine, asked)?;
    let opened = crate::progress::of_engine(&engine, || engine.open(&chosen.id))?;
    for problem in &opened.problems {
        notes.push(format!("not whole: {}: {}", problem.file, problem.reason));
    }
    let Some(kind) = kind.filter(|_| asked.format != Format::Html) else {
        let named: Vec<&str> = kind.iter().map(|kind| kind.name).collect();
        let page = opened.page(&named, &options, &Cancel::default());
        out.write_all(page.map_err(|error| usage(&error))?.as_bytes())?;
        engine.flush_cache();
        return Ok(());
    };
    let made = opened.report(kind.name, &options, &Cancel::default());
    let mut report = Report::clone(&*made.map_err(|error| usage(&error))?);
    report.notes.splice(0..0, notes);
    match asked.format {
        Format::Table => print_table(&opened.name, &report, out)?,
        Format::Csv => grid(&report.table, Units::InTitles).print_csv(out)?,
        Format::Md => print_markdown(&report, out)?,
        Format::Json => print_json(&opened.name, &report, out)?,
        // Written above.
        Format::Html => {}
    }
    engine.flush_cache();
    Ok(())
}

/// `stepscope report list`: every kind, what it answers, what its rows can be.
fn list(out: &mut dyn Write) -> Result<(), CliError> {
    let mut grid = Grid::new(&[
        ("Kind", Align::Left),
        ("Answers", Align::Left),
        ("--by", Align::Left),
    ]);
    for kind in reports::KINDS {
        grid.push([
            kind.name.to_owned(),
            kind.question.to_owned(),
            kind.by.join(", "),
        ]);
    }
    grid.print(out)?;
    Ok(())
}

fn usage(error: &ReportError) -> CliError {
    CliError::usage(error.to_string())
}

/// The run that was named, or the newest.
fn choose(engine: &Engine, asked: &args::Report) -> Result<(RunSummary, Vec<String>), CliError> {
    let mut runs = engine.runs();
    if let Some(name) = &asked.run {
        let found = runs
            .iter()
            .position(|run| run.id == *name || run.name == *name);
        let Some(at) = found else {
            let names: Vec<_> = runs.iter().take(5).map(|run| run.name.as_str()).collect();
            return Err(CliError::failed(format!(
                "no run '{name}', {}, there is: {}",
                asked.path.display(),
                names.join(", ")
            )));
        };
        return Ok((runs.swap_remove(at), Vec::new()));
    }
    let count = runs.len();
    let Some(newest) = runs.into_iter().next() else {
        return Err(match engine.problems().into_iter().next() {
            Some(problem) => CliError::failed(format!("{}, {}", problem.reason, problem.file)),
            None => EngineError::NoTraces(asked.path.display().to_string()).into(),
        });
    };
    let mut notes = Vec::new();
    if count > 1 {
        notes.push(format!(
            "the newest of {count} runs; --run names another, 'stepscope info {}' lists them",
            asked.path.display()
        ));
    }
    Ok((newest, notes))
}

/// The report as `stepscope report` prints it, for other languages.
pub fn as_text(name: &str, report: &Report) -> String {
    let mut out = Vec::new();
    // Nothing fails to be written into memory.
    let _ = print_table(name, report, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn print_table(name: &str, report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "{}", short(name, 100))?;
    if !report.sentence.is_empty() {
        writeln!(out, "{}", clean(&report.sentence))?;
    }
    if !report.summary.is_empty() {
        let figures: Vec<String> = report
            .summary
            .iter()
            .filter(|scalar| scalar.value != Cell::Empty)
            .map(|scalar| {
                let value = shown(&scalar.value, scalar.column.unit, Units::InCells);
                format!("{} {value}", scalar.column.title)
            })
            .collect();
        writeln!(out, "{}", clean(&figures.join("   ")))?;
    }
    if let Some(text) = &report.text {
        writeln!(out)?;
        for line in text.lines() {
            writeln!(out, "{}", text::clean_line(line))?;
        }
    }
    if !report.table.rows.is_empty() && report.text.is_none() {
        writeln!(out)?;
        grid(&report.table, Units::InCells).print(out)?;
        left_out(&report.table, out)?;
    }
    for section in &report.sections {
        if section.table.rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{}", clean(&section.title))?;
        grid(&section.table, Units::InCells).print(out)?;
        left_out(&section.table, out)?;
    }
    if !report.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &report.notes {
        writeln!(out, "note: {}", clean(note))?;
    }
    Ok(())
}

fn left_out(table: &Table, out: &mut dyn Write) -> Result<(), CliError> {
    if table.left_out > 0 {
        writeln!(
            out,
            "  {} more; --top shows more",
            text::count(table.left_out)
        )?;
    }
    Ok(())
}

fn print_markdown(report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    if !report.sentence.is_empty() {
        writeln!(out, "{}\n", text::markdown_cell(&report.sentence))?;
    }
    if !report.table.columns.is_empty() {
        grid(&report.table, Units::InCells).print_markdown(out)?;
    }
    for section in &report.sections {
        writeln!(out, "\n**{}**\n", text::markdown_cell(&section.title))?;
        grid(&section.table, Units::InCells).print_markdown(out)?;
    }
    for note in &report.notes {
        writeln!(out, "\n> {}", text::markdown_cell(note))?;
    }
    Ok(())
}

fn print_json(name: &str, report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    let mut answer = serde_json::to_value(report)?;
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("run".to_owned(), name.into());
    }
    let mut text = serde_json::to_string_pretty(&answer)?;
    text.push('\n');
    out.write_all(text::clean_json(&text).as_bytes())?;
    Ok(())
}

/// Where units stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Units {
    /// `41.2 ms`.
    InCells,
    /// `total_ns` and all digits.
    InTitles,
}

fn grid(table: &Table, units: Units) -> Grid {
    let columns = table
        .columns
        .iter()
        .map(|column| {
            let title = match units {
                Units::InCells => &column.title,
                Units::InTitles => &column.key,
            };
            let align = match column.unit {
                Unit::Text | Unit::Flag => Align::Left,
                _ => Align::Right,
            };
            (title.clone().into_owned(), align)
        })
        .collect();
    let rows = table
        .rows
        .iter()
        .map(|row| {
            row.iter()
                .zip(&table.columns)
                .map(|(cell, column)| shown(cell, column.unit, units))
                .collect()
        })
        .collect();
    Grid { columns, rows }
}

/// One cell as text.
fn shown(cell: &Cell, unit: Unit, units: Units) -> String {
    match (cell, units) {
        (Cell::Text(text), Units::InTitles) => text.clone(),
        (Cell::Text(text), Units::InCells) => short(text, WIDEST),
        (Cell::Flag(true), Units::InCells) => "yes".to_owned(),
        (Cell::Empty, _) | (Cell::Flag(false), Units::InCells) => String::new(),
        (Cell::Flag(flag), Units::InTitles) => flag.to_string(),
        (Cell::List(cells), _) => {
            let parts: Vec<String> = cells.iter().map(|cell| shown(cell, unit, units)).collect();
            match units {
                Units::InTitles => parts.join(" "),
                Units::InCells => short(&parts.join(" "), WIDEST),
            }
        }
        (Cell::Int(number), Units::InTitles) => number.to_string(),
        (Cell::Number(number), Units::InTitles) => number.to_string(),
        (Cell::Int(number), Units::InCells) => figure(*number as f64, Some(*number), unit),
        (Cell::Number(number), Units::InCells) => figure(*number, None, unit),
    }
}

/// A number for people.
fn figure(number: f64, whole: Option<i64>, unit: Unit) -> String {
    match unit {
        Unit::Ns => text::duration(number),
        Unit::Us => text::duration(number * 1e3),
        Unit::Bytes if number >= 0.0 => text::size(number),
        Unit::BytesPerSecond if number >= 0.0 => format!("{}/s", text::size(number)),
        Unit::Share => text::share(number),
        Unit::Count => match whole.and_then(|whole| u64::try_from(whole).ok()) {
            Some(whole) => text::count(whole),
            None => text::significant(number),
        },
        _ => whole.map_or_else(|| text::significant(number), |whole| whole.to_string()),
    }
}
