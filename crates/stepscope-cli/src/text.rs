//! Printing: escaped names, numbers with units, tables.
//!
//! Names come from untrusted files. On a terminal, in CSV and in Markdown they must stay text.

mod wide;

use std::borrow::Cow;
use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use stepscope_engine::report::report::number_format;
pub use stepscope_engine::report::report::number_format::{
    duration, share, with_thousands as count, with_unit,
};
pub use stepscope_engine::report::report::short_symbol_name;
pub use stepscope_engine::report::report::visible_text::{
    clean, clean_json, markdown_cell, short, short_within,
};
use stepscope_engine::{csv_text, csv_writer};

pub use wide::{packed, say, width_of_terminal};

/// Quotes the text as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+:@,=".contains(letter);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Escapes control characters in a line, except tabs.
pub fn clean_line(line: &str) -> String {
    let parts: Vec<Cow<'_, str>> = line.split('\t').map(clean).collect();
    parts.join("\t")
}

/// Formats a size in powers of 1024: `3.04 MiB`.
pub fn bytes(number: u64) -> String {
    number_format::bytes(number as f64)
}

/// Formats Unix time: `2026-11-20 15:24:16 UTC`.
pub fn moment(unix_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    time.strftime("%F %T UTC").to_string()
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For texts.
    Left,
    /// For numbers.
    Right,
}

/// A table of texts.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// Title and alignment of each column.
    pub columns: Vec<(String, Align)>,
    /// Cells of each row, one per column.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// Creates a table without rows.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|(title, align)| ((*title).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Appends a row.
    pub fn push<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.into());
    }

    /// Prints the table with an indent of two and without lines between the cells.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new();
        table
            .load_style(comfy_table::presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        let align = |align: Align| match align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        };
        table.set_header(
            self.columns
                .iter()
                .map(|(title, side)| Cell::new(title).set_alignment(align(*side))),
        );
        for row in &self.rows {
            table.add_row(
                row.iter()
                    .zip(&self.columns)
                    .map(|(cell, (_, side))| Cell::new(clean(cell)).set_alignment(align(*side))),
            );
        }
        for line in table.to_string().lines() {
            writeln!(out, " {}", line.trim_end())?;
        }
        Ok(())
    }

    /// Prints CSV with a header line.
    pub fn print_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.columns.is_empty() {
            return writeln!(out);
        }
        let mut csv = csv_writer(out);
        let text = |cell: &String| csv_text(&clean(cell)).into_owned();
        csv.write_record(self.columns.iter().map(|(title, _)| text(title)))?;
        for row in &self.rows {
            csv.write_record(row.iter().map(text))?;
        }
        csv.flush()
    }

    /// Prints a Markdown table.
    pub fn print_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let titles: Vec<_> = self
            .columns
            .iter()
            .map(|column| markdown_cell(&column.0))
            .collect();
        writeln!(out, "| {} |", titles.join(" | "))?;
        let marks: Vec<_> = self
            .columns
            .iter()
            .map(|column| {
                if column.1 == Align::Right {
                    "---:"
                } else {
                    "---"
                }
            })
            .collect();
        writeln!(out, "| {} |", marks.join(" | "))?;
        for row in &self.rows {
            let cells: Vec<_> = row.iter().map(|cell| markdown_cell(cell)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell() {
        assert_eq!(shell_word("/logs/a-1"), "/logs/a-1");
        assert_eq!(shell_word("my logs' $x"), "'my logs'\\'' $x'");
    }

    #[test]
    fn numbers_wear_units() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(duration(41_234_567.0), "41.2 ms");
        assert_eq!(duration(0.0), "0 ns");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(3_039_638), "2.90 MiB");
    }

    #[test]
    fn moments_are_civil() {
        assert_eq!(moment(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(1_709_208_001_000_000_000), "2024-02-29 12:00:01 UTC");
        assert_eq!(moment(-1), "1969-12-31 23:59:59 UTC");
    }
}
