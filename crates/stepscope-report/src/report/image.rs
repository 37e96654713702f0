//! A report as bytes and back, so that one that was made can be kept.
//!
//! Numbers are little-endian; a text is its length (u32) and its bytes; a list is the number of its
//! entries (u32) and the entries. The bytes are of the program that wrote them: there is no version
//! in them, whoever keeps them says by whom they were made. What was damaged is [`None`], never a
//! panic, and allocates no more than its own length says.

use std::borrow::Cow;

use super::{Cell, Column, Missing, Report, Scalar, Section, Table, Unit};
use crate::reports;

/// Cells lie in each other no deeper.
const DEEPEST: usize = 8;

const UNITS: [Unit; 10] = [
    Unit::Text,
    Unit::Count,
    Unit::Number,
    Unit::Ns,
    Unit::Us,
    Unit::Bytes,
    Unit::BytesPerSecond,
    Unit::Share,
    Unit::Event,
    Unit::Flag,
];

/// The report as bytes.
pub fn to_bytes(report: &Report) -> Vec<u8> {
    let mut out = Out(Vec::new());
    out.text(report.kind);
    out.text(&report.sentence);
    out.count(report.summary.len());
    for scalar in &report.summary {
        out.column(&scalar.column);
        out.cell(&scalar.value);
    }
    out.table(&report.table);
    out.count(report.sections.len());
    for section in &report.sections {
        out.text(&section.name);
        out.text(&section.title);
        out.table(&section.table);
    }
    out.option(report.text.as_deref());
    out.count(report.notes.len());
    for note in &report.notes {
        out.text(note);
    }
    out.option(report.missing.as_ref().map(|missing| &*missing.reason));
    out.option(report.missing.as_ref().map(|missing| &*missing.fix));
    out.0
}

/// The report that [`to_bytes`] wrote; `None` where the bytes are none.
pub fn from_bytes(bytes: &[u8]) -> Option<Report> {
    let mut from = In(bytes);
    let report = Report {
        kind: reports::kind(&from.text()?).ok()?.name,
        sentence: from.text()?,
        summary: from.list(|from| {
            Some(Scalar {
                column: from.column()?,
                value: from.cell(0)?,
            })
        })?,
        table: from.table()?,
        sections: from.list(|from| {
            Some(Section {
                name: Cow::Owned(from.text()?),
                title: Cow::Owned(from.text()?),
                table: from.table()?,
            })
        })?,
        text: from.option()?.pop(),
        notes: from.list(In::text)?,
        missing: match (from.option()?.pop(), from.option()?.pop()) {
            (Some(reason), Some(fix)) => Some(Missing { reason, fix }),
            _ => None,
        },
    };
    from.0.is_empty().then_some(report)
}

struct Out(Vec<u8>);

impl Out {
    fn count(&mut self, count: usize) {
        // No list in memory is longer; one that were would not be read again.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&count.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn option(&mut self, text: Option<&str>) {
        self.count(usize::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }

    fn column(&mut self, column: &Column) {
        self.text(&column.key);
        self.text(&column.title);
        let unit = UNITS.iter().position(|unit| *unit == column.unit);
        self.0
            .push(unit.and_then(|at| u8::try_from(at).ok()).unwrap_or(0));
        self.option(column.short_of.as_deref());
    }

    fn cell(&mut self, cell: &Cell) {
        match cell {
            Cell::Empty => self.0.push(0),
            Cell::Text(text) => {
                self.0.push(1);
                self.text(text);
            }
            Cell::Int(number) => {
                self.0.push(2);
                self.0.extend_from_slice(&number.to_le_bytes());
            }
            Cell::Number(number) => {
                self.0.push(3);
                self.0.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            Cell::Flag(flag) => self.0.push(4 + u8::from(*flag)),
            Cell::List(cells) => {
                self.0.push(6);
                self.count(cells.len());
                for cell in cells {
                    self.cell(cell);
                }
            }
        }
    }

    fn table(&mut self, table: &Table) {
        self.count(table.columns.len());
        for column in &table.columns {
            self.column(column);
        }
        self.count(table.rows.len());
        for row in &table.rows {
            self.count(row.len());
            for cell in row {
                self.cell(cell);
            }
        }
        self.0.extend_from_slice(&table.left_out.to_le_bytes());
    }
}

struct In<'a>(&'a [u8]);

impl In<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn list<T>(&mut self, mut entry: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = u32::from_le_bytes(self.bytes()?);
        // Each entry takes a byte at least, so that a wrong number ends with the bytes.
        (0..count).map(|_| entry(self)).collect()
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(u32::from_le_bytes(self.bytes()?)).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    }

    /// A text or none, as a list of at most one.
    fn option(&mut self) -> Option<Vec<String>> {
        let list = self.list(Self::text)?;
        (list.len() <= 1).then_some(list)
    }

    fn column(&mut self) -> Option<Column> {
        Some(Column {
            key: Cow::Owned(self.text()?),
            title: Cow::Owned(self.text()?),
            unit: *UNITS.get(usize::from(u8::from_le_bytes(self.bytes()?)))?,
            short_of: self.option()?.pop().map(Cow::Owned),
        })
    }

    fn cell(&mut self, depth: usize) -> Option<Cell> {
        if depth > DEEPEST {
            return None;
        }
        Some(match self.bytes()? {
            [0] => Cell::Empty,
            [1] => Cell::Text(self.text()?),
            [2] => Cell::Int(i64::from_le_bytes(self.bytes()?)),
            [3] => Cell::Number(f64::from_bits(u64::from_le_bytes(self.bytes()?))),
            [4] => Cell::Flag(false),
            [5] => Cell::Flag(true),
            [6] => Cell::List(self.list(|from| from.cell(depth + 1))?),
            _ => return None,
        })
    }

    fn table(&mut self) -> Option<Table> {
        Some(Table {
            columns: self.list(Self::column)?,
            rows: self.list(|from| from.list(|from| from.cell(0)))?,
            left_out: u64::from_le_bytes(self.bytes()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("ops");
        report.sentence = "aten::mm took most.".to_owned();
        report.scalar("mean_ns", "Mean", Unit::Ns, 0.1 + 0.2);
        report.table = Table::new(vec![
            Column::new("name", "Name", Unit::Text),
            Column::new("shapes", "Shapes", Unit::Flag),
        ]);
        let list = Cell::List(vec![Cell::Flag(true), Cell::Flag(false), Cell::Int(-7)]);
        report.table.push(["ä".into(), list]);
        report.table.push([Cell::Empty, f64::MIN_POSITIVE.into()]);
        report.table.cut(1);
        report.section("more", "More", report.table.clone());
        report.text = Some("----".to_owned());
        report.notes.push("a note".to_owned());
        report
    }

    #[test]
    fn a_report_comes_back_as_it_was() {
        let mut missing = Report::missing("memory", "no allocations");
        missing.missing.as_mut().unwrap().fix = "profile_memory=True".to_owned();
        for report in [report(), missing, Report::new("steps")] {
            assert_eq!(from_bytes(&to_bytes(&report)), Some(report));
        }
        assert_eq!(from_bytes(&to_bytes(&Report::new("no such kind"))), None);
    }

    #[test]
    fn damaged_bytes_are_no_report_and_no_panic() {
        let bytes = to_bytes(&report());
        for cut in 0..bytes.len() {
            assert_eq!(from_bytes(&bytes[..cut]), None, "{cut}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[cut] ^= 1 << bit;
                let _ = from_bytes(&flipped);
            }
        }
        let deep = [6, 1, 0, 0, 0].repeat(100_000);
        assert_eq!(In(&deep).cell(0), None);
    }
}
