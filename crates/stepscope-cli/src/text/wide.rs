//! Wraps text and fits tables to the terminal's width.

use std::collections::HashSet;
use std::io::{self, IsTerminal as _, Write};

use super::{Align, Grid, clean, short_within};

/// Minimum width of text columns other than the first while columns can still be omitted.
const NARROW: usize = 30;
/// Minimum width of any text column.
const NARROWEST: usize = 16;
/// Minimum number of columns, however narrow the terminal is.
const FEWEST: usize = 5;
/// Number of spaces between two columns.
pub(super) const GAP: usize = 2;

/// Returns the width of the terminal at stdout, characters; `None` if stdout is not a terminal.
pub fn width_of_terminal() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Joins parts into lines of at most `most` characters, as many per line as fit; no part is
/// wrapped.
pub fn packed(parts: impl Iterator<Item = String>, between: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let wide = between.chars().count() + part.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + wide <= most => {
                line.push_str(between);
                line.push_str(&part);
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// Prints a sentence after `first`, wrapped at word boundaries and indented below its start.
/// Without a width it is one line.
pub fn say(
    first: &str,
    sentence: &str,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(width) = width else {
        return writeln!(out, "{first}{}", clean(sentence));
    };
    let words = sentence.split(' ').map(|word| clean(word).into_owned());
    let indent = first.chars().count();
    let lines = packed(words, " ", width.saturating_sub(indent).max(20));
    for (at, line) in lines.iter().enumerate() {
        match at {
            0 => writeln!(out, "{first}{line}")?,
            _ => writeln!(out, "{:indent$}{line}", "")?,
        }
    }
    Ok(())
}

impl Grid {
    /// Shrinks text columns and then removes columns until the table fits. Returns the titles of
    /// the removed columns. The first column, which names the row, keeps at least `name` characters
    /// while other columns can be removed. `sums` marks the main figures: text columns that no row
    /// needs to stay distinct are removed before them, then other figures.
    pub fn narrow(&mut self, width: usize, name: usize, mut sums: Vec<bool>) -> Vec<String> {
        let mut cut = Vec::new();
        sums.resize(self.columns.len(), false);
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|at| self.widest(at)).collect();
        self.shrink(&mut widths, width, name, NARROW);
        while over(&widths, width) > 0 && widths.len() > FEWEST {
            let gone = self.least_wanted(&sums);
            widths.remove(gone);
            sums.remove(gone);
            for row in self.rows.iter_mut().filter(|row| row.len() > gone) {
                row.remove(gone);
            }
            cut.push(self.columns.remove(gone).0);
        }
        self.shrink(&mut widths, width, NARROWEST, NARROWEST);
        cut.reverse();
        cut
    }

    /// Returns the index of the column to remove next.
    fn least_wanted(&self, sums: &[bool]) -> usize {
        let last = self.columns.len() - 1;
        if !sums[last] {
            return last;
        }
        let is_word = |at: &usize| self.columns[*at].1 == Align::Left;
        let words: Vec<usize> = (0..last).filter(is_word).collect();
        let all = self.distinct_rows(&words, None);
        let spare = |at: &usize| *at >= 2 && self.distinct_rows(&words, Some(*at)) == all;
        let figure = || (1..last).rfind(|at| !is_word(at) && !sums[*at]);
        let word = words.iter().copied().rfind(spare);
        word.or_else(figure).unwrap_or(last)
    }

    /// Returns the number of distinct rows in these columns, without the column `without`.
    fn distinct_rows(&self, columns: &[usize], without: Option<usize>) -> usize {
        let columns = || columns.iter().filter(|at| Some(**at) != without);
        let of_row = |row: &Vec<String>| columns().map(|at| row.get(*at).cloned()).collect();
        let rows: HashSet<Vec<Option<String>>> = self.rows.iter().map(of_row).collect();
        rows.len()
    }

    /// Shrinks the widest text columns, down to `name` characters for the first and `least` for the
    /// others.
    fn shrink(&mut self, widths: &mut [usize], width: usize, name: usize, least: usize) {
        loop {
            let too_much = over(widths, width);
            let columns = widths.iter_mut().zip(&self.columns).enumerate();
            let texts = columns.filter_map(|(at, (wide, (_, side)))| {
                let spare = wide.saturating_sub(if at == 0 { name } else { least });
                (*side == Align::Left && spare > 0).then_some((wide, spare))
            });
            let widest = texts.max_by_key(|(wide, _)| **wide);
            let Some((widest, spare)) = widest.filter(|_| too_much > 0) else {
                break;
            };
            // In steps, so that columns of similar width end with equal width.
            *widest -= too_much.min(4).min(spare);
        }
        for row in &mut self.rows {
            for (cell, wide) in row.iter_mut().zip(&*widths) {
                if cell.chars().count() > *wide {
                    *cell = short_within(cell, *wide);
                }
            }
        }
        for (at, wide) in widths.iter_mut().enumerate() {
            *wide = self.widest(at);
        }
    }

    /// Returns the width of the widest cell of a column, or of its title.
    fn widest(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let titles = self.columns.iter().skip(column).take(1);
        let texts = cells.chain(titles.map(|(title, _)| title));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

/// Returns by how many characters the columns exceed the width.
fn over(widths: &[usize], width: usize) -> usize {
    let all: usize = widths.iter().map(|wide| wide + GAP).sum();
    all.saturating_sub(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(first: &str, sentence: &str, width: Option<usize>) -> String {
        let mut out = Vec::new();
        say(first, sentence, width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_end_between_words() {
        let sentence = "words that are many stand\non lines of their own";
        assert_eq!(
            printed("  !  ", sentence, Some(30)),
            "  !  words that are many\n     stand\\non lines of their\n     own\n"
        );
        assert_eq!(
            printed("  !  ", sentence, None),
            "  !  words that are many stand\\non lines of their own\n"
        );
    }

    #[test]
    fn a_table_fits_and_says_what_it_left_out() {
        let mut grid = Grid::new(&[
            ("Name", Align::Left),
            ("Kind", Align::Left),
            ("A", Align::Right),
            ("B", Align::Right),
            ("C", Align::Right),
            ("D", Align::Right),
            ("Last", Align::Right),
        ]);
        let numbers = || "1,000,000".to_owned();
        grid.push([
            "n".repeat(70),
            "k".repeat(10),
            numbers(),
            numbers(),
            numbers(),
            numbers(),
            numbers(),
        ]);
        assert_eq!(grid.narrow(80, 24, Vec::new()), ["D", "Last"]);
        let widths: Vec<usize> = grid.rows[0]
            .iter()
            .map(|cell| cell.chars().count())
            .collect();
        assert_eq!(widths, [24, 10, 9, 9, 9]);
        assert!(grid.narrow(80, 24, Vec::new()).is_empty(), "it fits");
    }

    #[test]
    fn narrow_tables_keep_row_names_and_sums() {
        let (left, right) = (Align::Left, Align::Right);
        let mut grid = Grid::new(&[
            ("Host", left),
            ("Device", left),
            ("Engine", left),
            ("Pieces", right),
            ("Queues", right),
            ("Busy", right),
            ("Busy share", right),
        ]);
        for engine in ["Copies, host to device", "Copies, device to host"] {
            let row = ["34.83.195.179_6003", "/device:GPU:1", engine];
            let figures = ["19", "1", "33.8 ms", "0.0 %"];
            grid.rows
                .push(row.into_iter().chain(figures).map(str::to_owned).collect());
        }
        let sums = vec![false, false, false, false, false, true];
        assert_eq!(grid.narrow(76, 48, sums), ["Queues", "Busy share"]);
    }
}
