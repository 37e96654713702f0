//! Printing: escaped names, numbers with units, tables.
//!
//! Names come from untrusted files. On a terminal, in CSV and in Markdown they must stay text: this
//! module escapes control sequences, formulas and markup.

mod wide;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use stepscope_engine::report::report::number_format;
pub use stepscope_engine::report::report::number_format::{
    duration, share, with_thousands as count, with_unit,
};
pub use stepscope_engine::report::report::short_symbol_name;
use stepscope_engine::{csv_text, csv_writer};

pub use wide::{packed, say, width_of_terminal};

/// Returns whether a character can control a terminal, or hide or reverse text.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Returns whether the text is printable ASCII, as nearly all texts are: a fast test.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Escapes control characters (`
/// `, `\x1b`, `\u{202e}`).
pub fn clean(text: &str) -> Cow<'_, str> {
    if is_plain(text) || !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if acts(letter) && u32::from(letter) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", u32::from(letter));
            }
            letter if acts(letter) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// Quotes the text as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+:@,=".contains(letter);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Escapes the text and truncates it to `most` characters.
pub fn short(text: &str, most: usize) -> String {
    // Only the start is escaped: names can have ten million characters.
    let head: String = text.chars().take(most + 1).collect();
    let cleaned = clean(&head);
    if cleaned.chars().count() <= most {
        return cleaned.into_owned();
    }
    let mut cut: String = cleaned.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Escapes the text and shortens it in the middle to `most` characters: kernel names differ at
/// their ends.
pub fn short_within(text: &str, most: usize) -> String {
    let count = text.chars().take(most + 1).count();
    if count <= most || most < 8 {
        return short(text, most);
    }
    let tail = (most - 1) * 2 / 5;
    let head = short(text, most - tail);
    let end = text.char_indices().nth_back(tail.saturating_sub(1));
    let end = clean(end.map_or("", |(at, _)| &text[at..]));
    // Escaping may have made the end longer.
    let skip = end.chars().count().saturating_sub(tail);
    head.chars().chain(end.chars().skip(skip)).collect()
}

/// Escapes characters that control a terminal in JSON text. They occur only inside strings, where
/// `\u` has the same meaning.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    let acting = |letter: char| acts(letter) && letter != '\n';
    if json.lines().all(is_plain) || !json.contains(acting) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 8);
    for letter in json.chars() {
        if acting(letter) {
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

/// Escapes a cell of a Markdown table.
pub fn markdown_cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in clean(text).chars() {
        if matches!(
            letter,
            '\\' | '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '&'
        ) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
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
    fn names_cannot_act() {
        assert_eq!(clean("plain é 漢"), "plain é 漢");
        assert_eq!(
            clean("a\x1b[31mb\nc\u{9b}d\u{202e}e"),
            "a\\x1b[31mb\\nc\\x9bd\\u{202e}e"
        );
        assert_eq!(
            clean_json("{\"a\":\"\u{9b}\u{7f}\"}\n"),
            "{\"a\":\"\\u009b\\u007f\"}\n"
        );
        assert_eq!(markdown_cell("a|<b>"), "a\\|\\<b\\>");
        assert_eq!(short(&"x".repeat(10_000_000), 5), "xxxx…");
        assert_eq!(short_within("void kernel<float, 4>", 12), "void ke…, 4>");
        assert_eq!(short_within("abc\n", 12), "abc\\n");
        assert_eq!(
            short_within(&format!("{}\u{1b}", "é".repeat(20)), 10),
            "éééééé…x1b"
        );
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
