//! Report cells as text, and the page that they must fit.

use stepscope_engine::report::report::{Cell, Unit};

use crate::text::{self, Align, short, short_symbol_name, short_within};

/// Maximum width of a cell, characters.
const WIDEST: usize = 60;
/// The page of a printed report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page<'a> {
    /// Width of the terminal, characters; `None` without a terminal.
    pub(super) width: Option<usize>,
    /// Maximum number of rows of a table.
    pub(super) top: usize,
    /// Requested row type.
    pub(super) by: Option<&'a str>,
}

/// Position of units.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    /// `41.2 ms`.
    InCells,
    /// `total_ns`, with all digits in cells.
    InTitles,
}

/// Returns the alignment of a unit's column.
pub(super) const fn side(unit: Unit) -> Align {
    match unit {
        Unit::Text | Unit::Sentence | Unit::Flag => Align::Left,
        _ => Align::Right,
    }
}

/// Formats a cell.
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
