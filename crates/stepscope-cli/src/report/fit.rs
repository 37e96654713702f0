//! Reduces a table to what is useful and fits on a terminal.
//!
//! Omitted silently: event ids (links of the viewer), columns without values, columns that repeat
//! an earlier column, full names that have a short one. Omitted with a note: columns of zeros,
//! columns that do not fit the terminal, rows beyond the requested number. CSV, Markdown and JSON
//! are complete.

use stepscope_engine::analysis::steps::bucket::StepBucket;
use stepscope_engine::report::report::{Cell, Column, Table, Unit};

use super::cells::{Page, Units, shown, side};
use crate::text::Grid;

/// Minimum width of the first column, which names the row, while other columns can still be
/// omitted.
const NARROW_NAME: usize = 48;
/// Result of [`fit`].
pub(super) struct Fitted {
    pub(super) grid: Grid,
    /// Titles of columns whose values are all zero.
    pub(super) zero: Vec<String>,
    /// Titles of columns that do not fit.
    pub(super) cut: Vec<String>,
    /// Number of rows beyond the requested number.
    pub(super) rows_cut: usize,
}

/// A column with its formatted cells.
struct FittedColumn<'a> {
    column: &'a Column,
    cells: Vec<String>,
}

/// Fits the table to the page.
pub(super) fn fit(table: &Table, page: Page<'_>) -> Fitted {
    let rows = table.rows.get(..page.top).unwrap_or(&table.rows);
    let mut zero = Vec::new();
    let mut columns: Vec<FittedColumn<'_>> = Vec::new();
    let depth = table
        .columns
        .iter()
        .position(|column| column.key == "depth");
    for said in table.for_people() {
        let (column, at) = (said.column, said.whole);
        let column_cells = || {
            rows.iter()
                .map(|row| row.get(said.shown).unwrap_or(&Cell::Empty))
        };
        // Indented names show the tree.
        let of_tree = depth.is_some() && ["depth", "parent", "level"].contains(&&*column.key);
        if column.unit == Unit::Event || of_tree || column_cells().all(says_nothing) {
            continue;
        }
        // A number without a unit, such as a step number, identifies a row: 0 is a valid value.
        let tells_which = column.unit == Unit::Number;
        let nothing = |cell: &Cell| is_zero(cell) && !(tells_which && *cell == Cell::Int(0));
        if at > 0 && column_cells().all(nothing) {
            zero.push(column.title.clone().into_owned());
            continue;
        }
        let mut cells: Vec<String> = column_cells().map(|cell| words(cell, column)).collect();
        if let (Some(depth), 0) = (depth, at) {
            for (text, row) in cells.iter_mut().zip(rows) {
                if let Some(Cell::Int(deep)) = row.get(depth) {
                    text.insert_str(0, &"  ".repeat(usize::try_from(*deep).unwrap_or(0).min(20)));
                }
            }
        }
        let again =
            |other: &FittedColumn<'_>| other.column.unit == Unit::Text && other.cells == cells;
        if column.unit == Unit::Text && rows.len() > 1 && columns.iter().any(again) {
            continue;
        }
        columns.push(FittedColumn { column, cells });
    }
    asked_for_first(&mut columns, page.by);
    let is_sum =
        |shown: &FittedColumn<'_>| matches!(&*shown.column.key, "total_ns" | "self_ns" | "busy_ns");
    let sums: Vec<bool> = columns.iter().map(is_sum).collect();
    let mut grid = grid(columns, rows.len());
    let cut = page
        .width
        .map(|width| grid.narrow(width, NARROW_NAME, sums));
    Fitted {
        grid,
        zero,
        cut: cut.unwrap_or_default(),
        rows_cut: table.rows.len() - rows.len(),
    }
}

/// Moves the column of shapes or stacks next to the name if rows are grouped by it.
fn asked_for_first(columns: &mut [FittedColumn<'_>], by: Option<&str>) {
    let Some(by) = by else { return };
    let told = |shown: &FittedColumn<'_>| match &*shown.column.key {
        "shapes" | "shape" => by.contains("shape"),
        "stack" => by.contains("stack"),
        "source" => by.contains("source"),
        _ => false,
    };
    if let Some(at) = columns.iter().position(told).filter(|at| *at > 1) {
        columns[1..=at].rotate_right(1);
    }
}

fn grid(columns: Vec<FittedColumn<'_>>, rows: usize) -> Grid {
    let titles = columns.iter().map(|shown| {
        let title = shown.column.title.clone().into_owned();
        (title, side(shown.column.unit))
    });
    let titles = titles.collect();
    let mut lines: Vec<Vec<String>> = vec![Vec::new(); rows];
    for shown in columns {
        for (line, cell) in lines.iter_mut().zip(shown.cells) {
            line.push(cell);
        }
    }
    Grid {
        columns: titles,
        rows: lines,
    }
}

/// Formats a cell; keys of this program become words.
fn words(cell: &Cell, column: &Column) -> String {
    let text = shown(cell, column.unit, Units::InCells);
    let is_bucket = column.key == "bucket";
    match StepBucket::from_name(&text).filter(|_| is_bucket) {
        Some(bucket) => bucket.label().to_owned(),
        None => text,
    }
}

fn says_nothing(cell: &Cell) -> bool {
    match cell {
        Cell::Empty | Cell::Flag(false) => true,
        Cell::Text(text) => text.is_empty(),
        Cell::List(cells) => cells.is_empty(),
        Cell::Sentence(sentence) => sentence.is_empty(),
        _ => false,
    }
}

fn is_zero(cell: &Cell) -> bool {
    match cell {
        Cell::Empty | Cell::Int(0) => true,
        Cell::Number(number) => *number == 0.0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![
            Column::new("name", "Operation", Unit::Text),
            Column::new("program", "Program", Unit::Text),
            Column::new("total_ns", "Total", Unit::Ns),
            Column::new("copy_ns", "Copy", Unit::Ns),
            Column::new("mean_ns", "Mean", Unit::Ns),
            Column::new("p95_ns", "p95", Unit::Ns),
            Column::new("category", "Category", Unit::Text),
            Column::new("kind", "Kind", Unit::Text),
            Column::new("shapes", "Shapes", Unit::Text),
            Column::new("event", "Longest", Unit::Event),
        ]);
        for (name, shape) in [("aten::mm", "[[2, 2]]"), ("aten::add", "[[4], [4]]")] {
            table.push([
                name.into(),
                Cell::Empty,
                1_500.0.into(),
                0.0.into(),
                15.0.into(),
                20.0.into(),
                "matmul".into(),
                "matmul".into(),
                shape.into(),
                7_i64.into(),
            ]);
        }
        table
    }

    fn titles(fitted: &Fitted) -> Vec<&str> {
        let columns = fitted.grid.columns.iter();
        columns.map(|(title, _)| title.as_str()).collect()
    }

    fn page(width: Option<usize>, by: Option<&str>) -> Page<'_> {
        Page { width, top: 25, by }
    }

    #[test]
    fn columns_that_say_nothing_go_and_zeros_are_named() {
        let fitted = fit(&table(), page(None, None));
        assert_eq!(
            titles(&fitted),
            ["Operation", "Total", "Mean", "p95", "Category", "Shapes"]
        );
        assert_eq!(fitted.zero, ["Copy"]);
        assert!(fitted.cut.is_empty());
    }

    #[test]
    fn column_that_distinguishes_rows_follows_the_name() {
        let fitted = fit(&table(), page(None, Some("framework-shape")));
        assert_eq!(titles(&fitted)[..2], ["Operation", "Shapes"]);
    }

    #[test]
    fn a_narrow_terminal_names_what_it_leaves_out() {
        let fitted = fit(&table(), page(Some(50), None));
        assert_eq!(
            titles(&fitted),
            ["Operation", "Total", "Mean", "p95", "Category"]
        );
        assert_eq!(fitted.cut, ["Shapes"]);
        let lines = fitted.grid.rows.iter().map(|row| {
            let cells = row.iter().zip(&fitted.grid.columns);
            let wide = cells.map(|(cell, (title, _))| cell.len().max(title.len()) + 2);
            wide.sum::<usize>()
        });
        assert!(lines.max().unwrap() <= 50);
    }

    #[test]
    fn step_0_is_a_step() {
        let mut table = Table::new(vec![
            Column::new("name", "Operation", Unit::Text),
            Column::new("peak_step", "Peak in step", Unit::Number),
            Column::new("failed", "Failed", Unit::Count),
            Column::new("ratio", "Ratio", Unit::Number),
        ]);
        table.push(["mm".into(), 0_i64.into(), 0_i64.into(), 0.0.into()]);
        let fitted = fit(&table, page(None, None));
        assert_eq!(titles(&fitted), ["Operation", "Peak in step"]);
        assert_eq!(fitted.zero, ["Failed", "Ratio"]);
    }

    #[test]
    fn words_go_before_what_the_rows_took() {
        let mut table = Table::new(vec![
            Column::new("name", "Operation", Unit::Text),
            Column::new("program", "Program", Unit::Text),
            Column::new("category", "Category", Unit::Text),
            Column::new("place", "Where", Unit::Text),
            Column::new("count", "Count", Unit::Count),
            Column::new("total_ns", "Total", Unit::Ns),
            Column::new("self_ns", "Self", Unit::Ns),
            Column::new("mean_ns", "Mean", Unit::Ns),
        ]);
        table.push([
            "broadcast_maximum".into(),
            "jit_train_step(12)".into(),
            "custom fusion".into(),
            "host".into(),
            6_i64.into(),
            1e6.into(),
            9e5.into(),
            1e5.into(),
        ]);
        let fitted = fit(&table, page(Some(72), None));
        assert_eq!(
            titles(&fitted),
            ["Operation", "Program", "Count", "Total", "Self"]
        );
        assert_eq!(fitted.cut, ["Category", "Where", "Mean"]);
    }

    #[test]
    fn rows_beyond_those_asked_for_are_counted() {
        let few = Page {
            top: 1,
            ..page(None, None)
        };
        let fitted = fit(&table(), few);
        assert_eq!((fitted.grid.rows.len(), fitted.rows_cut), (1, 1));
    }

    #[test]
    fn a_tree_is_indented() {
        let mut tree = Table::new(vec![
            Column::new("name", "Operation", Unit::Text),
            Column::new("depth", "Depth", Unit::Count),
            Column::new("total_ns", "Total", Unit::Ns),
        ]);
        tree.push(["jit_step".into(), 0_i64.into(), 5.0.into()]);
        tree.push(["dot".into(), 2_i64.into(), 5.0.into()]);
        let fitted = fit(&tree, page(None, None));
        assert_eq!(titles(&fitted), ["Operation", "Total"]);
        assert_eq!(fitted.grid.rows[1][0], "    dot");
    }
}
