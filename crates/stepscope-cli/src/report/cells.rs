//! Cells of a report as text, and the page that they are fitted to.

use stepscope_engine::report::report::{Cell, Unit};

use crate::text::{self, Align, short, short_symbol_name, short_within};

/// Most characters of a cell.
const WIDEST: usize = 60;
/// The page that a report is printed on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page<'a> {
    /// Characters of a line, where a terminal shows it.
    pub(super) width: Option<usize>,
    /// Most rows of a table.
    pub(super) top: usize,
    /// What the rows were asked to be.
    pub(super) by: Option<&'a str>,
}

/// Where units stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    /// `41.2 ms`.
    InCells,
    /// `total_ns` and all digits.
    InTitles,
}

/// How the values of a unit stand in their column.
pub(super) const fn side(unit: Unit) -> Align {
    match unit {
        Unit::Text | Unit::Sentence | Unit::Flag => Align::Left,
        _ => Align::Right,
    }
}

/// One cell as text.
pub(super) fn shown(cell: &Cell, unit: Unit, units: Units) -> String {
    match (cell, units) {
        (Cell::Text(text), Units::InTitles) => text.clone(),
        (Cell::Sentence(sentence), Units::InTitles) => sentence.to_string(),
        (Cell::Sentence(sentence), Units::InCells) => short_within(&sentence.to_string(), WIDEST),
        (Cell::Text(text), Units::InCells) => short_within(&short_symbol_name(text), WIDEST),
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
        (Cell::Int(number), Units::InCells) => text::with_unit(*number as f64, Some(*number), unit),
        (Cell::Number(number), Units::InCells) => text::with_unit(*number, None, unit),
    }
}
