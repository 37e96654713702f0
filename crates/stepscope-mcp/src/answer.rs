//! A [`Report`] as bounded text and JSON.
//!
//! The text is for the model to read: a sentence, figures, and Markdown tables of at most 20 rows with formatted
//! numbers. The JSON has the exact numbers of all rows of the page. Both together have at most the requested number of
//! characters: rows that do not fit are counted, and `next` has the calls that return them.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use stepscope_report::report::number_format::with_unit;
use stepscope_report::report::visible_text::{markdown_cell, short, short_within};
use stepscope_report::report::{Cell, Column, Report, Section, Table, Unit, short_symbol_name};

use crate::args::{Args, Object};
use crate::error::ToolError;

/// Default size of an answer, characters.
pub(crate) const DEFAULT_CHARACTERS: usize = 20_000;
/// Bounds of the size that a call may ask for, characters.
pub(crate) const CHARACTERS: (usize, usize) = (5_000, 40_000);
/// Default number of rows of a page.
pub(crate) const DEFAULT_ROWS: usize = 20;
/// Maximum number of rows of a page.
pub(crate) const MAX_ROWS: usize = 1_000;
/// Maximum number of rows of a table in the text.
const TEXT_ROWS: usize = 20;
/// Maximum number of rows of a further table in the text.
const SECTION_TEXT_ROWS: usize = 10;
/// Maximum length of a name, characters; the tool `event` has whole ones.
pub(crate) const LONGEST_NAME: usize = 200;
/// Maximum length of a sentence, characters.
const LONGEST_SENTENCE: usize = 1_000;
/// Maximum length of an id, characters.
pub(crate) const LONGEST_ID: usize = 500;
/// Maximum length of a name in a table of the text, characters.
const LONGEST_CELL: usize = 80;
/// Maximum number of values of a list.
const MAX_LIST: usize = 20;
/// Maximum number of notes.
const MAX_NOTES: usize = 10;
/// Maximum number of calls that continue an answer.
const MAX_CALLS: usize = 3;
/// Maximum length of the arguments of such a call, characters.
const LONGEST_CALL: usize = 300;
/// Characters reserved for these calls and the frame of the JSON.
const RESERVED: usize = 2_800;

/// Which rows a call asks for.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// Index of the first row.
    pub(crate) offset: usize,
    /// Maximum number of rows.
    pub(crate) rows: usize,
    /// The section whose rows are asked for, in place of the main table.
    pub(crate) section: Option<String>,
    /// Maximum size of text and JSON together, characters.
    pub(crate) characters: usize,
}

impl PageRequest {
    /// Reads the arguments that every tool with rows has.
    pub(crate) fn from_args(args: &Args) -> Self {
        Self {
            offset: args.whole("offset").unwrap_or(0),
            rows: args.whole("rows").unwrap_or(DEFAULT_ROWS),
            section: args.text("section").map(str::to_owned),
            characters: args.whole("max_characters").unwrap_or(DEFAULT_CHARACTERS),
        }
    }

    /// Returns the number of rows that a report needs for this page.
    pub(crate) fn top(&self) -> usize {
        self.offset.saturating_add(self.rows)
    }
}

/// What a tool found.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The run, by its id.
    pub(crate) run: Option<String>,
    /// The answer.
    pub(crate) report: Report,
    /// Index of the first row of the main table.
    pub(crate) first: usize,
    /// Maximum length of a text, characters.
    pub(crate) longest_text: usize,
    /// A picture that comes with the answer.
    pub(crate) png: Option<Vec<u8>>,
}

impl Answer {
    /// Creates an answer about a run, whose table begins at row 0.
    pub(crate) fn new(run: Option<String>, report: Report) -> Self {
        Self {
            run,
            report,
            first: 0,
            longest_text: LONGEST_NAME,
            png: None,
        }
    }
}

/// An answer as a client receives it.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) json: Object,
    pub(crate) png: Option<Vec<u8>>,
}

/// Returns the JSON schema of [`Rendered::json`].
pub(crate) fn output_schema() -> Value {
    let rows = json!({"type": "array", "items": {"type": "object"}});
    let columns = json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "key": {"type": "string"},
                "title": {"type": "string"},
                "unit": {"type": "string"},
            },
            "required": ["key", "title", "unit"],
        },
    });
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "properties": {
            "run": {"type": "string", "description": "id of the run"},
            "kind": {"type": "string"},
            "sentence": {"type": "string", "description": "the answer in one sentence"},
            "missing": {
                "type": "object",
                "description": "why there is no answer, and how to record what is missing",
                "properties": {"reason": {"type": "string"}, "fix": {"type": "string"}},
            },
            "summary": {"type": "object", "description": "figures; a key ends with its unit, shares are 0 to 1"},
            "columns": columns,
            "rows": rows,
            "offset": count,
            "left_out": {
                "type": "integer",
                "minimum": 0,
                "description": "rows after the last one of this answer",
            },
            "sections": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "title": {"type": "string"},
                        "columns": columns,
                        "rows": rows,
                        "left_out": count,
                    },
                    "required": ["name", "title", "columns", "rows", "left_out"],
                },
            },
            "notes": {"type": "array", "items": {"type": "string"}},
            "truncated": {"type": "boolean", "description": "whether rows or notes are left out"},
            "next": {
                "type": "array",
                "description": "calls that return what is left out",
                "items": {
                    "type": "object",
                    "properties": {
                        "tool": {"type": "string"},
                        "arguments": {"type": "object"},
                        "rows": count,
                    },
                    "required": ["tool", "arguments", "rows"],
                },
            },
        },
        "required": ["kind", "sentence", "columns", "rows", "offset", "left_out", "truncated", "next"],
    })
}

/// Renders an answer of a tool that was called with these arguments.
pub(crate) fn render(
    answer: Answer,
    page: &PageRequest,
    tool: &str,
    args: &Args,
) -> Result<Rendered, ToolError> {
    let Answer {
        run,
        mut report,
        mut first,
        longest_text,
        png,
    } = answer;
    if let Some(name) = &page.section {
        report.table = take_section(&mut report, name)?;
        first = 0;
    }
    let skipped = page.offset.saturating_sub(first);
    let skipped = skipped.min(report.table.rows.len());
    report.table.rows.drain(..skipped);
    report.table.cut(page.rows);

    let mut out = Builder {
        budget: page.characters.saturating_sub(RESERVED),
        text: String::new(),
        longest_text,
        is_truncated: false,
    };
    let mut json = Object::new();
    json.insert("kind".to_owned(), report.kind.into());
    if let Some(run) = run {
        let run = out.counted(short(&run, LONGEST_ID).into());
        json.insert("run".to_owned(), run);
    }
    // Escapes can double a text, which is in both parts: a sentence takes at most half of the rest.
    let longest = (out.budget / 8).min(LONGEST_SENTENCE);
    let sentence = short(&report.sentence.to_string(), longest);
    out.line(&sentence);
    json.insert("sentence".to_owned(), out.counted(sentence.into()));
    if let Some(missing) = &report.missing {
        let longest = (out.budget / 12).min(LONGEST_SENTENCE);
        let fix = short(&missing.fix, longest);
        if !fix.is_empty() {
            out.line(&format!("To record it: {fix}"));
        }
        let reason = short(&missing.reason, longest);
        json.insert(
            "missing".to_owned(),
            out.counted(json!({"reason": reason, "fix": fix})),
        );
    }
    json.insert("summary".to_owned(), out.summary(&report));
    if let Some(text) = &report.text {
        out.block(text);
    }
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    json.insert("notes".to_owned(), out.notes(&notes));

    // Diagnostics come first: they qualify the figures.
    let is_diagnostics = |section: &Section| section.name == DIAGNOSTICS;
    let (before, after): (Vec<Section>, Vec<Section>) =
        report.sections.into_iter().partition(is_diagnostics);
    let mut sections: Vec<(String, FittedTable)> =
        before.iter().map(|section| out.section(section)).collect();
    let all = out.budget;
    if !after.is_empty() {
        // The other tables share the rest.
        out.budget = all / 3 * 2;
    }
    let given = out.budget;
    let main = out.table(&report.table, TEXT_ROWS);
    out.budget = all.saturating_sub(given.saturating_sub(out.budget));
    sections.extend(after.iter().map(|section| out.section(section)));

    let mut calls = Vec::new();
    if main.left_out > 0 {
        let offset = page.offset.saturating_add(main.rows.len());
        calls.push((args.with("offset", offset.into()), main.left_out));
    }
    for (name, table) in &sections {
        if table.left_out > 0 {
            let arguments = args.with("section", name.as_str().into());
            calls.push((arguments, table.left_out));
        }
    }
    let is_truncated = out.is_truncated || !calls.is_empty();
    json.insert("next".to_owned(), out.calls(tool, &calls));
    json.insert("truncated".to_owned(), is_truncated.into());
    json.insert("offset".to_owned(), page.offset.into());
    json.insert("columns".to_owned(), main.columns);
    json.insert("rows".to_owned(), main.rows.into());
    json.insert("left_out".to_owned(), main.left_out.into());
    let sections: Vec<Value> = sections
        .into_iter()
        .filter(|(_, table)| table.fits)
        .map(|(name, table)| {
            json!({
                "name": name,
                "title": table.title,
                "columns": table.columns,
                "rows": table.rows,
                "left_out": table.left_out,
            })
        })
        .collect();
    if !sections.is_empty() {
        json.insert("sections".to_owned(), sections.into());
    }
    Ok(Rendered {
        text: out.text,
        json,
        png,
    })
}

/// Name of the section with the diagnostics of a run.
pub(crate) const DIAGNOSTICS: &str = "diagnostics";

/// Removes all sections and returns the table of one.
fn take_section(report: &mut Report, name: &str) -> Result<Table, ToolError> {
    let sections = std::mem::take(&mut report.sections);
    let names: Vec<String> = sections
        .iter()
        .map(|section| section.name.clone().into_owned())
        .collect();
    let found = sections.into_iter().find(|section| section.name == name);
    found.map(|section| section.table).ok_or_else(|| {
        let help = if names.is_empty() {
            "this answer has no sections: leave 'section' out".to_owned()
        } else {
            format!("the sections are {}", names.join(", "))
        };
        ToolError::unknown("section", name, names.iter().map(String::as_str), &help)
    })
}

/// The rows of a table that fit.
struct FittedTable {
    title: String,
    /// Whether there is room for the columns.
    fits: bool,
    columns: Value,
    rows: Vec<Value>,
    left_out: u64,
}

impl FittedTable {
    fn without_room(table: &Table) -> Self {
        Self {
            title: String::new(),
            fits: false,
            columns: json!([]),
            rows: Vec::new(),
            left_out: table.left_out.saturating_add(table.rows.len() as u64),
        }
    }
}

/// Text under construction, and the characters that remain for it and the JSON.
struct Builder {
    budget: usize,
    text: String,
    longest_text: usize,
    is_truncated: bool,
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn json_length(value: &Value) -> usize {
    length(&value.to_string())
}

impl Builder {
    fn spend(&mut self, characters: usize) {
        self.budget = self.budget.saturating_sub(characters);
    }

    /// Counts a value of the JSON.
    fn counted(&mut self, value: Value) -> Value {
        self.spend(json_length(&value) + 12);
        value
    }

    /// Appends a line of text whose markup is escaped.
    fn line(&mut self, line: &str) {
        let line = markdown_cell(line);
        self.spend(length(&line) + 1);
        self.text.push_str(&line);
        self.text.push('\n');
    }

    /// Appends a text of several lines, as another profiler prints it, as far as half of the rest reaches.
    fn block(&mut self, text: &str) {
        let most = self.budget / 2;
        let mut block = String::from("\n");
        for line in text.lines() {
            // Indented by four: Markdown shows it as it is.
            let line = format!("    {}\n", short(line, LONGEST_SENTENCE));
            if length(&block) + length(&line) > most {
                self.is_truncated = true;
                break;
            }
            block.push_str(&line);
        }
        self.spend(length(&block));
        self.text.push_str(&block);
    }

    /// Appends the figures, and returns them as an object without empty values.
    fn summary(&mut self, report: &Report) -> Value {
        let mut summary = Map::new();
        let mut figures = Vec::new();
        let known = report.summary.iter();
        for scalar in known.filter(|scalar| scalar.value != Cell::Empty) {
            let value = self.cell_json(&scalar.value);
            let unit = scalar.column.unit;
            let figure = format!(
                "{}: {}",
                scalar.column.title,
                cell_text(&scalar.value, unit, self.longest_text)
            );
            let cost = json_length(&value) + length(&scalar.column.key) + 4 + 2 * length(&figure);
            if cost > self.budget {
                self.is_truncated = true;
                break;
            }
            self.spend(cost);
            summary.insert(scalar.column.key.clone().into_owned(), value);
            figures.push(markdown_cell(&figure));
        }
        if !figures.is_empty() {
            let _ = writeln!(self.text, "{}", figures.join(" · "));
        }
        summary.into()
    }

    /// Appends the notes, and returns them.
    fn notes(&mut self, notes: &[String]) -> Value {
        let mut kept: Vec<Value> = Vec::new();
        for note in notes.iter().take(MAX_NOTES) {
            let note = short(note, LONGEST_SENTENCE);
            if 4 * length(&note) + 20 > self.budget {
                break;
            }
            self.text.push_str("Note: ");
            self.line(&note);
            let note = self.counted(note.into());
            kept.push(note);
        }
        self.is_truncated |= kept.len() < notes.len();
        kept.into()
    }

    /// Appends a further table.
    fn section(&mut self, section: &Section) -> (String, FittedTable) {
        let title = short(&section.title, LONGEST_NAME);
        let name = section.name.clone().into_owned();
        let frame = 4 * length(&title) + length(&name) + 100;
        if frame > self.budget {
            return (name, FittedTable::without_room(&section.table));
        }
        self.spend(frame);
        let before = self.text.len();
        let _ = writeln!(self.text, "\n{}:", markdown_cell(&title));
        let mut table = self.table(&section.table, SECTION_TEXT_ROWS);
        if table.rows.is_empty() {
            self.text.truncate(before);
        }
        table.title = title;
        (name, table)
    }

    /// Appends the first rows as Markdown, and returns all rows that fit.
    fn table(&mut self, table: &Table, text_rows: usize) -> FittedTable {
        let in_text = &table.rows[..table.rows.len().min(text_rows)];
        let is_shown = |at: usize| {
            let mut cells = in_text.iter().filter_map(|row| row.get(at));
            cells.any(|cell| !is_blank(cell))
        };
        let shown: Vec<_> = table
            .for_people()
            .filter(|column| is_shown(column.whole))
            .collect();
        let whole: Vec<(usize, &Column)> = table
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.short_of.is_none())
            .collect();
        let columns: Value = whole
            .iter()
            .map(|(_, column)| {
                let title = short(&column.title, LONGEST_NAME);
                let key = short(&column.key, LONGEST_NAME);
                json!({"key": key, "title": title, "unit": column.unit.as_str()})
            })
            .collect();
        let titles: Vec<String> = shown
            .iter()
            .map(|column| markdown_cell(&short(&column.column.title, LONGEST_CELL)))
            .collect();
        let sides: Vec<&str> = shown
            .iter()
            .map(|column| {
                if is_text(column.column.unit) {
                    "---"
                } else {
                    "---:"
                }
            })
            .collect();
        let head = format!("\n| {} |\n| {} |\n", titles.join(" | "), sides.join(" | "));
        let cost = json_length(&columns) + length(&head) + 100;
        if cost > self.budget {
            return FittedTable::without_room(table);
        }
        self.spend(cost);
        let mut rows = Vec::new();
        let mut lines = String::new();
        for (at, row) in table.rows.iter().enumerate() {
            let json = self.row_json(row, &whole);
            let mut cost = json_length(&json) + 1;
            let mut line = String::new();
            if at < text_rows {
                let cells = shown.iter().map(|column| {
                    let cell = row.get(column.shown).unwrap_or(&Cell::Empty);
                    let longest = longest_of(column.column, LONGEST_CELL);
                    markdown_cell(&cell_text(cell, column.column.unit, longest))
                });
                let cells: Vec<String> = cells.collect();
                line = format!("| {} |\n", cells.join(" | "));
                cost += length(&line);
            }
            if cost > self.budget {
                break;
            }
            self.spend(cost);
            rows.push(json);
            lines.push_str(&line);
        }
        if !rows.is_empty() && !shown.is_empty() {
            self.text.push_str(&head);
            self.text.push_str(&lines);
        }
        if rows.len() > text_rows {
            let _ = writeln!(
                self.text,
                "{} of {} rows; structuredContent has all of them",
                text_rows,
                rows.len()
            );
        }
        let cut = table.rows.len() - rows.len();
        FittedTable {
            title: String::new(),
            fits: true,
            columns,
            left_out: table.left_out.saturating_add(cut as u64),
            rows,
        }
    }

    /// Returns a row as an object without empty values.
    fn row_json(&self, row: &[Cell], columns: &[(usize, &Column)]) -> Value {
        let cells = columns.iter().filter_map(|(at, column)| {
            let cell = row.get(*at).filter(|cell| !matches!(cell, Cell::Empty))?;
            let value = match cell {
                Cell::Text(text) => short(text, longest_of(column, self.longest_text)).into(),
                cell => self.cell_json(cell),
            };
            Some((short(&column.key, LONGEST_NAME), value))
        });
        Value::Object(cells.collect())
    }

    fn cell_json(&self, cell: &Cell) -> Value {
        match cell {
            Cell::Empty => Value::Null,
            Cell::Text(text) => short(text, self.longest_text).into(),
            Cell::Int(number) => (*number).into(),
            Cell::Number(number) => (*number).into(),
            Cell::Flag(flag) => (*flag).into(),
            Cell::List(cells) => {
                let kept = cells.iter().take(MAX_LIST);
                kept.map(|cell| self.cell_json(cell)).collect()
            }
            Cell::Sentence(sentence) => short(&sentence.to_string(), LONGEST_SENTENCE).into(),
        }
    }

    /// Appends how to get what is left out, and returns the calls.
    fn calls(&mut self, tool: &str, calls: &[(Object, u64)]) -> Value {
        let mut kept = Vec::new();
        for (arguments, rows) in calls {
            let text = Value::Object(arguments.clone()).to_string();
            if length(&text) > LONGEST_CALL || kept.len() >= MAX_CALLS {
                let _ = writeln!(
                    self.text,
                    "{rows} more rows: call '{tool}' again with another 'offset' or 'section'"
                );
                break;
            }
            let section = arguments.get("section").and_then(Value::as_str);
            let section = section.map_or_else(String::new, |name| format!(" of '{name}'"));
            let _ = writeln!(
                self.text,
                "{rows} more rows{section}: call '{tool}' with {}",
                short(&text, LONGEST_CALL)
            );
            kept.push(json!({"tool": tool, "arguments": arguments, "rows": rows}));
        }
        if self.is_truncated {
            self.text
                .push_str("Cut to the size of the answer: 'max_characters' allows more\n");
        }
        kept.into()
    }
}

/// Returns the maximum length of a column's texts: advice is ours, and is shown whole.
fn longest_of(column: &Column, usual: usize) -> usize {
    if column.key == "advice" {
        LONGEST_SENTENCE
    } else {
        usual
    }
}

const fn is_text(unit: Unit) -> bool {
    matches!(unit, Unit::Text | Unit::Sentence | Unit::Flag)
}

fn is_blank(cell: &Cell) -> bool {
    match cell {
        Cell::Empty => true,
        Cell::Text(text) => text.is_empty(),
        Cell::List(cells) => cells.is_empty(),
        _ => false,
    }
}

/// Formats a cell for people, with its unit.
fn cell_text(cell: &Cell, unit: Unit, longest: usize) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) => short_within(&short_symbol_name(text), longest),
        Cell::Int(number) => with_unit(*number as f64, Some(*number), unit),
        Cell::Number(number) => with_unit(*number, None, unit),
        Cell::Flag(true) => "yes".to_owned(),
        Cell::Flag(false) => "no".to_owned(),
        Cell::List(cells) => {
            let texts = cells.iter().take(MAX_LIST);
            let texts: Vec<String> = texts.map(|cell| cell_text(cell, unit, longest)).collect();
            short(&texts.join(", "), longest)
        }
        Cell::Sentence(sentence) => short(&sentence.to_string(), LONGEST_SENTENCE),
    }
}
