//! A report as text, CSV, Markdown and JSON.
//!
//! Text is fitted to the terminal: see [`fit`](super::fit). As in the viewer, the steps of an
//! overview are a line of bars, and its findings are a list with the full advice.

use std::io::Write;

use serde::Serialize;
use stepscope_engine::report::report::{Cell, Column, Report, Section, Table, Unit};
use stepscope_engine::report::reports;

use super::cells::{Page, Units, shown, side};
use super::fit;
use crate::error::CliError;
use crate::text::{self, Grid, clean, packed, short};

/// Maximum width of lines of figures, bars and advice, characters.
const LINE: usize = 100;

/// Prints every report with its question, and its row types on the next line: one line for both
/// would be wider than most terminals.
pub(super) fn kinds(width: Option<usize>, out: &mut dyn Write) -> Result<(), CliError> {
    let page = Page {
        width,
        top: 0,
        by: None,
    };
    let names = reports::KINDS.iter().map(|kind| kind.name.len());
    let widest = names.max().unwrap_or(0);
    for kind in reports::KINDS {
        page.say(&format!("  {:widest$}  ", kind.name), kind.question, out)?;
        if !kind.by.is_empty() {
            let rows = format!("--by {}", kind.by.join(", "));
            page.say(&" ".repeat(widest + 4), &rows, out)?;
        }
    }
    Ok(())
}

/// Prints a report as text.
pub(super) fn text(
    name: &str,
    report: &Report,
    page: Page<'_>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    writeln!(out, "{}", short(name, LINE))?;
    if !report.sentence.is_empty() {
        page.say("", &report.sentence.to_string(), out)?;
    }
    if let Some(missing) = report
        .missing
        .as_ref()
        .filter(|missing| !missing.fix.is_empty())
    {
        page.say("To record it: ", &missing.fix, out)?;
    }
    for line in figures(report, page.line()) {
        writeln!(out, "{}", clean(&line))?;
    }
    if let Some(text) = &report.text {
        writeln!(out)?;
        for line in text.lines() {
            writeln!(out, "{}", text::clean_line(line))?;
        }
    } else if let Some(findings) = Findings::from_table(&report.table) {
        findings.print(page.line(), out)?;
    } else if !report.table.rows.is_empty() {
        writeln!(out)?;
        table(&report.table, page, "--top shows more", out)?;
    }
    for section in &report.sections {
        if section.table.rows.is_empty() {
            continue;
        }
        writeln!(out, "\n{}", clean(&section.title))?;
        if report.kind == "overview" && section.name == "steps" {
            bars(section, page.line(), out)?;
            continue;
        }
        table(&section.table, page, "--format json has them", out)?;
    }
    if !report.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &report.notes {
        page.say("note: ", &note.to_string(), out)?;
    }
    Ok(())
}

impl Page<'_> {
    /// Returns the width of running text, characters.
    fn line(self) -> usize {
        self.width.unwrap_or(LINE).clamp(40, LINE)
    }

    /// Prints a sentence after `first`, wrapped at word boundaries.
    fn say(self, first: &str, sentence: &str, out: &mut dyn Write) -> Result<(), CliError> {
        Ok(text::say(first, sentence, self.width, out)?)
    }
}

/// Returns lines of figures, as many per line as fit; no figure is wrapped.
fn figures(report: &Report, line: usize) -> Vec<String> {
    // Event ids are only useful to programs.
    let known = report.summary.iter().filter(|one| {
        one.column.unit != Unit::Event && !matches!(&one.value, Cell::Empty | Cell::List(_))
    });
    let figures = known.map(|one| {
        let value = shown(&one.value, one.column.unit, Units::InCells);
        format!("{} {value}", one.column.title)
    });
    packed(figures, "   ", line)
}

/// Prints a table that fits, and the names of its omitted columns.
fn table(
    table: &Table,
    page: Page<'_>,
    further: &str,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let fitted = fit::fit(table, page);
    fitted.grid.print(out)?;
    if table.left_out > 0 {
        let count = text::count(table.left_out);
        writeln!(out, "  {count} more; --top shows more")?;
    }
    if fitted.rows_cut > 0 {
        let count = text::count(fitted.rows_cut as u64);
        writeln!(out, "  {count} more; {further}")?;
    }
    for (said, titles) in [
        ("all zero", &fitted.zero),
        ("too wide for here, but in --format csv", &fitted.cut),
    ] {
        if !titles.is_empty() {
            page.say(&format!("  {said}: "), &titles.join(", "), out)?;
        }
    }
    Ok(())
}

/// Findings as a list: the advice is too long for a cell.
struct Findings<'a> {
    table: &'a Table,
    advice: usize,
    title: usize,
}

impl<'a> Findings<'a> {
    /// Returns the findings of a table; `None` for any other table.
    fn from_table(table: &'a Table) -> Option<Self> {
        let place = |key: &str| table.columns.iter().position(|column| column.key == key);
        let (advice, title) = (place("advice")?, place("title")?);
        (!table.rows.is_empty()).then_some(Self {
            table,
            advice,
            title,
        })
    }

    fn print(&self, line: usize, out: &mut dyn Write) -> Result<(), CliError> {
        for (rank, row) in (1..).zip(&self.table.rows) {
            let words = |at: usize| {
                row.get(at).map_or(String::new(), |cell| {
                    shown(cell, Unit::Text, Units::InTitles)
                })
            };
            writeln!(out, "\n{rank:3}. {}", clean(&words(self.title)))?;
            let figures = self.table.columns.iter().zip(row).filter(|(column, cell)| {
                let told = ["rank", "name", "title", "advice"].contains(&&*column.key);
                !told && column.unit != Unit::Event && **cell != Cell::Empty
            });
            let figures = figures.map(|(column, cell)| {
                let value = shown(cell, column.unit, Units::InCells);
                format!("{} {value}", column.title)
            });
            let advice = words(self.advice);
            let advice = advice.split_whitespace().map(str::to_owned);
            let told = packed(figures, "   ", line.saturating_sub(5));
            for text in told
                .into_iter()
                .chain(packed(advice, " ", line.saturating_sub(5)))
            {
                writeln!(out, "     {}", clean(&text))?;
            }
        }
        if self.table.left_out > 0 {
            let count = text::count(self.table.left_out);
            writeln!(out, "  {count} more; --top shows more")?;
        }
        Ok(())
    }
}

/// Prints steps as a line of bars. Each bar is the longest of the steps that share it.
fn bars(section: &Section, line: usize, out: &mut dyn Write) -> Result<(), CliError> {
    let key = |column: &Column| column.key == "duration_ns";
    let Some(at) = section.table.columns.iter().position(key) else {
        return Ok(());
    };
    let lengths: Vec<f64> = section
        .table
        .rows
        .iter()
        .map(|row| match row.get(at) {
            Some(Cell::Number(ns)) => ns.max(0.0),
            Some(Cell::Int(ns)) => (*ns as f64).max(0.0),
            _ => 0.0,
        })
        .collect();
    let mut sorted = lengths.clone();
    sorted.sort_by(f64::total_cmp);
    let longest = sorted.last().copied().unwrap_or_default();
    // One long step must not flatten all others.
    let full = longest.min(3.0 * sorted.get(sorted.len() / 2).copied().unwrap_or_default());
    let steps = lengths.len().div_ceil(line.saturating_sub(2).max(1)).max(1);
    let bars: String = lengths
        .chunks(steps)
        .map(|steps| bar(steps.iter().copied().fold(0.0, f64::max), full))
        .collect();
    writeln!(out, "  {bars}")?;
    let each = match steps {
        1 => "a step each".to_owned(),
        steps => format!("each the longest of {steps} steps"),
    };
    let over = if longest > full {
        format!(" or more, the longest {}", text::duration(longest))
    } else {
        String::new()
    };
    writeln!(
        out,
        "  {each}; a full bar is {}{over}; 'steps --by step' has the figures",
        text::duration(full)
    )?;
    Ok(())
}

/// Returns a bar of one of eight heights.
fn bar(value: f64, full: f64) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let part = if full > 0.0 { value / full } else { 0.0 };
    // The number of heights that the value exceeds.
    let height = (1_u8..8)
        .filter(|eighth| part * 8.0 > f64::from(*eighth))
        .count();
    BARS[height]
}

/// Prints CSV with units in the titles. A report without rows becomes one row of its figures.
pub(super) fn csv(report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    if !report.table.columns.is_empty() || report.summary.is_empty() {
        return Ok(grid(&report.table, Units::InTitles).print_csv(out)?);
    }
    let figures = report.summary.iter();
    let figures = figures.map(|one| (one.column.clone(), one.value.clone()));
    let (columns, row): (Vec<_>, Vec<_>) = figures.unzip();
    let mut table = Table::new(columns);
    table.rows.push(row);
    Ok(grid(&table, Units::InTitles).print_csv(out)?)
}

/// Prints why the report is empty and the line of code that records the data; prints nothing if the
/// report has data.
pub(super) fn missing(report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    let Some(missing) = &report.missing else {
        return Ok(());
    };
    writeln!(out, "{}", clean(&report.sentence.to_string()))?;
    if !missing.fix.is_empty() {
        writeln!(out, "To record it: {}", clean(&missing.fix))?;
    }
    Ok(())
}

/// Prints Markdown.
pub(super) fn markdown(report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    if !report.sentence.is_empty() {
        writeln!(
            out,
            "{}\n",
            text::markdown_cell(&report.sentence.to_string())
        )?;
    }
    if let Some(missing) = report
        .missing
        .as_ref()
        .filter(|missing| !missing.fix.is_empty())
    {
        writeln!(out, "To record it: {}", text::markdown_cell(&missing.fix))?;
    }
    if !report.table.columns.is_empty() {
        grid(&report.table, Units::InCells).print_markdown(out)?;
    }
    for section in &report.sections {
        writeln!(out, "\n**{}**\n", text::markdown_cell(&section.title))?;
        grid(&section.table, Units::InCells).print_markdown(out)?;
    }
    for note in &report.notes {
        writeln!(out, "\n> {}", text::markdown_cell(&note.to_string()))?;
    }
    Ok(())
}

/// Prints JSON.
pub(super) fn json(name: &str, report: &Report, out: &mut dyn Write) -> Result<(), CliError> {
    #[derive(Serialize)]
    struct Answer<'a> {
        run: &'a str,
        #[serde(flatten)]
        report: &'a Report,
    }
    let answer = Answer { run: name, report };
    let mut text = serde_json::to_string_pretty(&answer)?;
    text.push('\n');
    out.write_all(text::clean_json(&text).as_bytes())?;
    Ok(())
}

/// Returns the full table with all columns.
fn grid(table: &Table, units: Units) -> Grid {
    let columns: Vec<(usize, &Column)> = match units {
        Units::InCells => table
            .for_people()
            .map(|said| (said.shown, said.column))
            .collect(),
        Units::InTitles => table.columns.iter().enumerate().collect(),
    };
    let titles = columns.iter().map(|(_, column)| {
        let title = match units {
            Units::InCells => &column.title,
            Units::InTitles => &column.key,
        };
        (title.clone().into_owned(), side(column.unit))
    });
    let line = |row: &Vec<Cell>| {
        let cells = columns.iter().map(|(at, column)| {
            let cell = row.get(*at).unwrap_or(&Cell::Empty);
            shown(cell, column.unit, units)
        });
        cells.collect()
    };
    Grid {
        columns: titles.collect(),
        rows: table.rows.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_kinds_fits_a_narrow_terminal() {
        let mut out = Vec::new();
        kinds(Some(80), &mut out).unwrap();
        let list = String::from_utf8(out).unwrap();
        for line in list.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(
            list.contains("  steps          How long do steps take"),
            "{list}"
        );
        assert!(
            list.contains("\n                 --by label, step\n"),
            "{list}"
        );
    }
}
