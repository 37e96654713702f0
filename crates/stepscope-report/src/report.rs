//! The common shape of every report: a sentence, scalars, tables with typed columns, notes.
//!
//! Analyses return types of their own; [`reports`](crate::reports) converts them to [`Report`]. The
//! command line, the HTTP interface and Python print only that. As JSON (by `serde`):
//! ```text
//! {"report", "sentence": [part], "summary": {key: value}, "columns": [{"key", "title", "unit", "short_of"?}],
//!  "rows": [{key: value}], "left_out", "sections": [{"name", "title", "columns", "rows", "left_out"}],
//!  "text": null | "…", "notes": [[part]], "missing": null | {"reason", "fix"}}
//! part: {"text", "value"?, "unit"?, "link"?, "code"?: true}
//! ```
//!
//! Keys end with their unit (`total_ns`, `size_bytes`); shares are between 0 and 1. Times are
//! nanoseconds from the run start ([`run_start`]). A number that is not finite becomes `null`.

pub mod html;
pub mod number_format;
mod sentence;
mod symbol_name;
pub mod visible_text;
mod wire;

pub(crate) use sentence::sentence;
pub use sentence::{
    Link, Sentence, SentencePart, bytes, count, duration, placeholders, share, with_thousands,
};
pub use symbol_name::{short_symbol_name, shorter};

pub(crate) use number_format::{in_sentence, plain, significant};

use std::borrow::Cow;

use stepscope_model::{Dur, Time};
use stepscope_store::{EventId, Trace};

/// The unit of a column's values, for formatting and links. The column's key ends with the same
/// unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Text.
    Text,
    /// A number of items.
    Count,
    /// A number without a unit: a step's number, a ratio.
    Number,
    /// Nanoseconds.
    Ns,
    /// Microseconds, where the reproduced profiler's own keys use them.
    Us,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// A share between 0 and 1.
    Share,
    /// The id of an event of the trace; the viewer links it.
    Event,
    /// Yes or no.
    Flag,
    /// A [`Sentence`].
    Sentence,
}

impl Unit {
    /// Every unit, in the order of their numbers in stored reports.
    pub const ALL: [Self; 11] = [
        Self::Text,
        Self::Count,
        Self::Number,
        Self::Ns,
        Self::Us,
        Self::Bytes,
        Self::BytesPerSecond,
        Self::Share,
        Self::Event,
        Self::Flag,
        Self::Sentence,
    ];

    /// Returns the unit's name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Count => "count",
            Self::Number => "number",
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes_per_second",
            Self::Share => "share",
            Self::Event => "event",
            Self::Flag => "flag",
            Self::Sentence => "sentence",
        }
    }
}

/// One value of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// Unknown or not applicable.
    #[default]
    Empty,
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A finite number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// Several values: event ids, stack frames, shapes.
    List(Vec<Cell>),
    /// A sentence with links.
    Sentence(Sentence),
}

impl From<f64> for Cell {
    /// Converts a value that is not finite to [`Cell::Empty`].
    fn from(value: f64) -> Self {
        if value.is_finite() {
            Self::Number(value)
        } else {
            Self::Empty
        }
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Number(value as f64), Self::Int)
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<Sentence> for Cell {
    fn from(value: Sentence) -> Self {
        Self::Sentence(value)
    }
}

impl From<Dur> for Cell {
    /// Converts a duration to nanoseconds.
    fn from(value: Dur) -> Self {
        Self::Number(value.as_ns_f64())
    }
}

impl From<EventId> for Cell {
    fn from(value: EventId) -> Self {
        Self::Int(value.0.into())
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Cell {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Key in JSON and CSV, with its unit.
    pub key: Cow<'static, str>,
    /// Heading.
    pub title: Cow<'static, str>,
    /// See [`Unit`].
    pub unit: Unit,
    /// Key of the column whose values this column shortens. Tables for people show this column in
    /// its place.
    pub short_of: Option<Cow<'static, str>>,
}

impl Column {
    /// Returns a column with a constant key and title.
    pub const fn new(key: &'static str, title: &'static str, unit: Unit) -> Self {
        Self {
            key: Cow::Borrowed(key),
            title: Cow::Borrowed(title),
            unit,
            short_of: None,
        }
    }
}

/// A column in a table for people: see [`Table::for_people`].
#[derive(Clone, Copy, Debug)]
pub struct DisplayColumn<'a> {
    /// The column whose title is shown.
    pub column: &'a Column,
    /// Index of the full values in a row.
    pub whole: usize,
    /// Index of the short names in a row; equals `whole` if there are none.
    pub shown: usize,
}

/// Rows of cells, one for each column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// See [`Column`].
    pub columns: Vec<Column>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// Number of rows beyond the requested limit.
    pub left_out: u64,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(columns: Vec<Column>) -> Self {
        Self {
            columns,
            ..Self::default()
        }
    }

    /// Appends a column with the short names ([`short_symbol_name`]) of the column `of`.
    pub fn add_short(&mut self, of: &str, key: &'static str, title: &'static str) {
        let Some(at) = self.columns.iter().position(|column| column.key == of) else {
            return;
        };
        self.columns.push(Column {
            short_of: Some(self.columns[at].key.clone()),
            ..Column::new(key, title, Unit::Text)
        });
        for row in &mut self.rows {
            let short = match row.get(at) {
                Some(Cell::Text(name)) => Cell::Text(short_symbol_name(name).into_owned()),
                _ => Cell::Empty,
            };
            row.push(short);
        }
    }

    /// Inserts a column to the right of the column `after`, or as the last one if there is no such
    /// column. Rows without a cell get an empty one.
    pub fn insert_column(
        &mut self,
        after: &str,
        column: Column,
        cells: impl IntoIterator<Item = Cell>,
    ) {
        let before = self.columns.iter().position(|known| known.key == after);
        let at = before.map_or(self.columns.len(), |before| before + 1);
        self.columns.insert(at, column);
        let mut cells = cells.into_iter();
        for row in &mut self.rows {
            row.insert(at, cells.next().unwrap_or_default());
        }
    }

    /// Returns the columns of a table for people: short names replace full names. Tables for
    /// programs have both.
    pub fn for_people(&self) -> impl Iterator<Item = DisplayColumn<'_>> {
        let short = |of: &Column| {
            let is = |column: &Column| column.short_of.as_ref() == Some(&of.key);
            self.columns.iter().position(is)
        };
        let columns = self.columns.iter().enumerate();
        columns
            .filter(|(_, column)| column.short_of.is_none())
            .map(move |(whole, column)| DisplayColumn {
                column,
                whole,
                shown: short(column).unwrap_or(whole),
            })
    }

    /// Appends a row.
    pub fn push<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "a cell for each column");
        self.rows.push(cells.into());
    }

    /// Keeps the first `top` rows and counts the others.
    pub fn cut(&mut self, top: usize) {
        self.left_out += self.rows.len().saturating_sub(top) as u64;
        self.rows.truncate(top);
    }
}

/// One figure about the whole run or the requested range.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// See [`Column`].
    pub column: Column,
    /// Its value.
    pub value: Cell,
}

/// An additional table of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Name in JSON, unique within the report.
    pub name: Cow<'static, str>,
    /// Heading.
    pub title: Cow<'static, str>,
    /// The table.
    pub table: Table,
}

/// Why a report is empty, and how to record the missing data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// One sentence: the data that was not recorded.
    pub reason: String,
    /// The line of code, or the option, that records it.
    pub fix: String,
}

/// The answer to one question about a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Name in the registry.
    pub kind: &'static str,
    /// The answer in one sentence.
    pub sentence: Sentence,
    /// The figures behind the sentence.
    pub summary: Vec<Scalar>,
    /// The rows.
    pub table: Table,
    /// Additional tables.
    pub sections: Vec<Section>,
    /// The report as another profiler prints it, for reports that reproduce such a text.
    pub text: Option<String>,
    /// Facts that qualify the figures, one sentence each.
    pub notes: Vec<Sentence>,
    /// Set if there is nothing to report; everything else may then be empty.
    pub missing: Option<Missing>,
}

impl Report {
    /// Creates an empty report.
    pub fn new(kind: &'static str) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// Creates a report that states why it is empty; [`reports::make`](crate::reports::make) adds
    /// the hint.
    pub fn missing(kind: &'static str, reason: impl Into<String>) -> Self {
        let missing = Missing {
            reason: reason.into(),
            fix: String::new(),
        };
        Self {
            sentence: sentence!("Not recorded: {}.", missing.reason.trim_end_matches('.')),
            missing: Some(missing),
            ..Self::new(kind)
        }
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<Sentence>) {
        self.notes.push(note.into());
    }

    /// Adds a figure.
    pub fn scalar(
        &mut self,
        key: &'static str,
        title: &'static str,
        unit: Unit,
        value: impl Into<Cell>,
    ) {
        self.summary.push(Scalar {
            column: Column::new(key, title, unit),
            value: value.into(),
        });
    }

    /// Adds a section.
    pub fn section(
        &mut self,
        name: &'static str,
        title: impl Into<Cow<'static, str>>,
        table: Table,
    ) {
        self.sections.push(Section {
            name: Cow::Borrowed(name),
            title: title.into(),
            table,
        });
    }
}

/// Returns the zero time of reports and of the HTTP interface: the earliest timestamp of the run,
/// rounded down to a whole nanosecond.
pub fn run_start(trace: &Trace) -> Time {
    Time::from_ps(trace.span().start.floor_ns().saturating_mul(1_000))
}

/// Returns the nanoseconds from `start` (a [`run_start`]) to `time`.
pub fn since_start_ns(start: Time, time: Time) -> f64 {
    time.since(start).as_ns_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_rows_as_objects_and_no_number_that_is_none() {
        let mut report = Report::new("demo");
        report.sentence = "Two rows.".into();
        report.scalar("mean_ns", "Mean", Unit::Ns, f64::NAN);
        report.table = Table::new(vec![
            Column::new("name", "Name", Unit::Text),
            Column::new("total_ns", "Total", Unit::Ns),
        ]);
        report.table.push(["a\"b".into(), 1.5.into()]);
        report.table.push(["c".into(), f64::INFINITY.into()]);
        report.table.push(["d".into(), Cell::Empty]);
        report.table.cut(2);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(
            json["rows"],
            serde_json::json!([{"name": "a\"b", "total_ns": 1.5}, {"name": "c", "total_ns": null}])
        );
        assert_eq!(json["summary"], serde_json::json!({"mean_ns": null}));
        assert_eq!(json["left_out"], 1);
        assert_eq!(json["missing"], serde_json::Value::Null);
    }

    #[test]
    fn people_read_short_names_in_the_place_of_whole_ones() {
        let mut table = Table::new(vec![
            Column::new("total_ns", "Total", Unit::Ns),
            Column::new("name", "Name", Unit::Text),
        ]);
        table.push([1.0.into(), "void a::add<int>(int)".into()]);
        table.push([1.0.into(), Cell::Empty]);
        table.add_short("name", "short_name", "Short name");
        table.add_short("no such column", "short", "Short");
        let shorts: Vec<_> = table.rows.iter().map(|row| row[2].clone()).collect();
        assert_eq!(shorts, ["add<int>".into(), Cell::Empty]);
        let said = table.for_people();
        let said: Vec<_> = said
            .map(|said| (&*said.column.key, said.whole, said.shown))
            .collect();
        assert_eq!(said, [("total_ns", 0, 0), ("name", 1, 2)]);
        let json = serde_json::to_value(&table.columns[2]).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"key": "short_name", "title": "Short name", "unit": "text", "short_of": "name"})
        );
    }

    #[test]
    fn inserted_columns_follow_the_named_one() {
        let mut table = Table::new(vec![
            Column::new("name", "Name", Unit::Text),
            Column::new("total_ns", "Total", Unit::Ns),
        ]);
        table.push(["a".into(), 1.0.into()]);
        table.push(["b".into(), 2.0.into()]);
        let count = Column::new("count", "Count", Unit::Count);
        table.insert_column("name", count, [Cell::Int(3)]);
        let flag = Column::new("flag", "Flag", Unit::Flag);
        table.insert_column("no such column", flag, [true.into(), false.into()]);
        let keys: Vec<&str> = table.columns.iter().map(|column| &*column.key).collect();
        assert_eq!(keys, ["name", "count", "total_ns", "flag"]);
        assert_eq!(
            table.rows,
            [
                ["a".into(), 3_u32.into(), 1.0.into(), true.into()],
                ["b".into(), Cell::Empty, 2.0.into(), false.into()]
            ]
        );
    }

    #[test]
    fn what_is_missing_says_how_to_get_it() {
        let mut report = Report::missing("memory", "no allocations.");
        report.missing.as_mut().unwrap().fix = "profile_memory=True".to_owned();
        assert_eq!(report.sentence, "Not recorded: no allocations.");
        assert_eq!(report.missing.unwrap().fix, "profile_memory=True");
    }
}
