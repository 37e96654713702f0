//! Serialization of reports with `serde`; no other file of this crate depends on it.

use serde::ser::{
    Serialize, SerializeMap as _, SerializeSeq as _, SerializeStruct as _, Serializer,
};

use super::{Cell, Column, Link, Missing, Report, Scalar, Section, Sentence, SentencePart, Table};

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Empty => to.serialize_unit(),
            Self::Text(text) => to.serialize_str(text),
            Self::Int(number) => to.serialize_i64(*number),
            Self::Number(number) => to.serialize_f64(*number),
            Self::Flag(flag) => to.serialize_bool(*flag),
            Self::List(cells) => to.collect_seq(cells),
            Self::Sentence(sentence) => sentence.serialize(to),
        }
    }
}

impl Serialize for Sentence {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.parts())
    }
}

impl Serialize for SentencePart {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_map(None)?;
        fields.serialize_entry("text", &self.text)?;
        if let Some((number, unit)) = self.value {
            fields.serialize_entry("value", &Cell::from(number))?;
            fields.serialize_entry("unit", unit.as_str())?;
        }
        if let Some(link) = &self.link {
            fields.serialize_entry("link", link)?;
        }
        if self.is_code {
            fields.serialize_entry("code", &true)?;
        }
        fields.end()
    }
}

impl Serialize for Link {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut link = to.serialize_map(Some(1))?;
        match self {
            Self::Event(event) => link.serialize_entry("event", &event.0)?,
            Self::Range {
                start_ns,
                end_ns,
                host,
            } => link.serialize_entry("range", &Range(*start_ns, *end_ns, host.as_deref()))?,
            Self::Step(number) => link.serialize_entry("step", number)?,
            Self::Rank(rank) => link.serialize_entry("rank", rank)?,
            Self::Row { column, name } => link.serialize_entry("row", &RowName(column, name))?,
            Self::Scalar(key) => link.serialize_entry("scalar", key)?,
            Self::Section(name) => link.serialize_entry("section", name)?,
            Self::Page(id) => link.serialize_entry("page", id)?,
        }
        link.end()
    }
}

/// Start and end of a time range, and its host.
struct Range<'a>(f64, f64, Option<&'a str>);

impl Serialize for Range<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_map(None)?;
        fields.serialize_entry("start_ns", &self.0)?;
        fields.serialize_entry("end_ns", &self.1)?;
        if let Some(host) = self.2 {
            fields.serialize_entry("host", host)?;
        }
        fields.end()
    }
}

/// Key of a column, and the text of a row in it.
struct RowName<'a>(&'a str, &'a str);

impl Serialize for RowName<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_map(Some(1))?;
        fields.serialize_entry(self.0, self.1)?;
        fields.end()
    }
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Column", 3 + usize::from(self.short_of.is_some()))?;
        fields.serialize_field("key", &self.key)?;
        fields.serialize_field("title", &self.title)?;
        fields.serialize_field("unit", self.unit.as_str())?;
        if let Some(of) = &self.short_of {
            fields.serialize_field("short_of", of)?;
        }
        fields.end()
    }
}

/// Rows as objects.
struct Rows<'a>(&'a Table);

/// One row.
struct Row<'a>(&'a [Column], &'a [Cell]);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut rows = to.serialize_seq(Some(self.0.rows.len()))?;
        for row in &self.0.rows {
            rows.serialize_element(&Row(&self.0.columns, row))?;
        }
        rows.end()
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut row = to.serialize_map(Some(self.1.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            row.serialize_entry(&column.key, cell)?;
        }
        row.end()
    }
}

/// Scalars as one object.
struct Summary<'a>(&'a [Scalar]);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for scalar in self.0 {
            map.serialize_entry(&scalar.column.key, &scalar.value)?;
        }
        map.end()
    }
}

/// Scalars with their titles and units.
struct SummaryColumns<'a>(&'a [Scalar]);

impl Serialize for SummaryColumns<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(|scalar| &scalar.column))
    }
}

impl Serialize for Section {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Section", 5)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("title", &self.title)?;
        fields.serialize_field("columns", &self.table.columns)?;
        fields.serialize_field("rows", &Rows(&self.table))?;
        fields.serialize_field("left_out", &self.table.left_out)?;
        fields.end()
    }
}

impl Serialize for Missing {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Missing", 2)?;
        fields.serialize_field("reason", &self.reason)?;
        fields.serialize_field("fix", &self.fix)?;
        fields.end()
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Report", 11)?;
        fields.serialize_field("report", self.kind)?;
        fields.serialize_field("sentence", &self.sentence)?;
        fields.serialize_field("summary", &Summary(&self.summary))?;
        fields.serialize_field("summary_columns", &SummaryColumns(&self.summary))?;
        fields.serialize_field("columns", &self.table.columns)?;
        fields.serialize_field("rows", &Rows(&self.table))?;
        fields.serialize_field("left_out", &self.table.left_out)?;
        fields.serialize_field("sections", &self.sections)?;
        fields.serialize_field("text", &self.text)?;
        fields.serialize_field("notes", &self.notes)?;
        fields.serialize_field("missing", &self.missing)?;
        fields.end()
    }
}
