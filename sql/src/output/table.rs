//! A table for people: aligned columns, no longer than the terminal is wide.

use std::fmt::Write as _;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::error::Result;

use super::cell::text_of;

/// Widest column where no terminal limits it.
const WIDEST: usize = 100;
/// Narrowest column that a terminal can force.
const NARROWEST: usize = 12;

/// Rows that wait for the widths of their columns.
pub(super) struct TextTable {
    heads: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    width: Option<usize>,
}

impl TextTable {
    pub(super) fn new(keys: &[String], schema: &Schema, width: Option<usize>) -> Self {
        Self {
            heads: keys.iter().map(|key| visible(key)).collect(),
            right: schema
                .fields()
                .iter()
                .map(|field| is_number(field.data_type()))
                .collect(),
            rows: Vec::new(),
            width,
        }
    }

    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|array| {
                Ok(text_of(array, row)?.map_or_else(String::new, |text| visible(&text)))
            });
            self.rows.push(cells.collect::<Result<_>>()?);
        }
        Ok(())
    }

    pub(super) fn print(&self, truncated: bool, to: &mut Vec<u8>) {
        let widths = self.widths();
        let mut text = String::new();
        self.line(&self.heads, &widths, &mut text);
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        self.line(&rule, &widths, &mut text);
        for row in &self.rows {
            self.line(row, &widths, &mut text);
        }
        let count = self.rows.len();
        let rows = if count == 1 { "row" } else { "rows" };
        let more = if truncated {
            "; there are more, see --rows"
        } else {
            ""
        };
        let _ = writeln!(text, "({count} {rows}{more})");
        to.extend(text.into_bytes());
    }

    /// Returns the width of each column: what it needs, the widest narrowed until all fit.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.heads.iter().map(|head| length(head)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(length(cell));
            }
        }
        for width in &mut widths {
            *width = (*width).min(WIDEST);
        }
        while let Some(all) = self.width
            && widths.iter().sum::<usize>() + 2 * widths.len() > all + 2
        {
            let Some(widest) = widths.iter_mut().max().filter(|width| **width > NARROWEST) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize], to: &mut String) {
        let mut line = String::new();
        for ((cell, width), right) in cells.iter().zip(widths).zip(&self.right) {
            let cell = shortened(cell, *width);
            if *right {
                let _ = write!(line, "{cell:>width$}  ");
            } else {
                let _ = write!(line, "{cell:<width$}  ");
            }
        }
        to.push_str(line.trim_end());
        to.push('\n');
    }
}

fn is_number(kind: &DataType) -> bool {
    kind.is_numeric()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn shortened(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Returns the text with control characters, and characters that hide or reverse text, made visible: names come from
/// untrusted files.
fn visible(text: &str) -> String {
    let acts = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            letter if acts(letter) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => shown.push(letter),
        }
    }
    shown
}
