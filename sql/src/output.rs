//! Answers as bytes: a table for people, CSV, JSON, an Arrow stream, a Parquet file.

mod cell;
mod table;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::error::{DataFusionError, Result};
use serde_json::{Value as Json, json};
use stepscope_engine::csv_text;

use crate::parquet_file::ParquetFile;

use self::cell::{Wide, json_of, text_of};
use self::table::TextTable;

/// Format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns, for people.
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// `{"columns": [{"key", "title", "type", "unit"}], "rows": [{key: value}], "truncated"}`.
    Json,
    /// The same, with whole numbers of 2^53 or more as strings, as everywhere in our HTTP interface.
    HttpJson,
    /// Arrow's stream format.
    Arrow,
    /// A Parquet file.
    Parquet,
}

impl Format {
    /// Returns the format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "table" => Self::Table,
            "csv" => Self::Csv,
            "json" => Self::Json,
            "http-json" => Self::HttpJson,
            "arrow" => Self::Arrow,
            "parquet" => Self::Parquet,
            _ => return None,
        })
    }
}

/// Writes an answer, batch by batch. Bytes are taken with [`Writer::take`].
pub struct Writer {
    bytes: Vec<u8>,
    keys: Vec<String>,
    rows: usize,
    kind: Kind,
}

enum Kind {
    Table(TextTable),
    Csv,
    Json { wide: Wide },
    Arrow(Box<StreamWriter<Vec<u8>>>),
    Parquet(Box<ParquetFile<Vec<u8>>>),
}

impl Writer {
    /// Begins an answer. `width` is that of the terminal, for tables.
    pub fn new(format: Format, schema: &SchemaRef, width: Option<usize>) -> Result<Self> {
        let keys = keys(schema);
        let mut bytes = Vec::new();
        let kind = match format {
            Format::Table => Kind::Table(TextTable::new(&keys, schema, width)),
            Format::Csv => {
                csv_line(keys.iter().map(String::as_str), &mut bytes);
                Kind::Csv
            }
            Format::Json | Format::HttpJson => {
                bytes.extend(b"{\"columns\": ");
                bytes.extend(columns(schema, &keys).to_string().into_bytes());
                bytes.extend(b", \"rows\": [");
                let wide = if format == Format::Json {
                    Wide::Number
                } else {
                    Wide::Text
                };
                Kind::Json { wide }
            }
            Format::Arrow => Kind::Arrow(Box::new(StreamWriter::try_new(Vec::new(), schema)?)),
            Format::Parquet => {
                let file = ParquetFile::new(Vec::new(), schema, &[])?;
                Kind::Parquet(Box::new(file))
            }
        };
        Ok(Self {
            bytes,
            keys,
            rows: 0,
            kind,
        })
    }

    /// Adds rows.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.kind {
            Kind::Table(table) => table.add(batch)?,
            Kind::Csv => {
                for row in 0..batch.num_rows() {
                    let cells = batch.columns().iter().map(|array| text_of(array, row));
                    let cells = cells.collect::<Result<Vec<_>>>()?;
                    let cells = cells.iter().map(|cell| cell.as_deref().unwrap_or(""));
                    csv_line(cells, &mut self.bytes);
                }
            }
            Kind::Json { wide } => {
                for row in 0..batch.num_rows() {
                    let first = self.rows + row == 0;
                    self.bytes.extend(if first { &b"\n{"[..] } else { b",\n{" });
                    for (at, (key, array)) in self.keys.iter().zip(batch.columns()).enumerate() {
                        if at > 0 {
                            self.bytes.extend(b", ");
                        }
                        self.bytes
                            .extend(Json::from(key.as_str()).to_string().into_bytes());
                        self.bytes.extend(b": ");
                        self.bytes
                            .extend(json_of(array, row, *wide)?.to_string().into_bytes());
                    }
                    self.bytes.push(b'}');
                }
            }
            Kind::Arrow(writer) => {
                writer.write(batch)?;
                self.bytes.append(writer.get_mut());
            }
            Kind::Parquet(file) => {
                file.write(batch)?;
                self.bytes.append(file.get_mut());
            }
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    /// Ends the answer.
    pub fn finish(&mut self, truncated: bool) -> Result<()> {
        match &mut self.kind {
            Kind::Table(table) => table.print(truncated, &mut self.bytes),
            Kind::Csv => {}
            Kind::Json { .. } => {
                let end = format!("\n], \"truncated\": {truncated}}}\n");
                self.bytes.extend(end.into_bytes());
            }
            Kind::Arrow(writer) => {
                writer.finish()?;
                self.bytes.append(writer.get_mut());
            }
            Kind::Parquet(file) => {
                file.finish()?;
                self.bytes.append(file.get_mut());
            }
        }
        Ok(())
    }

    /// Takes the bytes so far.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of bytes that [`Writer::take`] would take.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether there are no bytes to take.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Returns the columns' names; repeated ones get a number, because rows of JSON are objects.
fn keys(schema: &Schema) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for field in schema.fields() {
        let mut key = field.name().clone();
        let mut number = 2;
        while keys.contains(&key) {
            key = format!("{}_{number}", field.name());
            number += 1;
        }
        keys.push(key);
    }
    keys
}

/// Returns the unit of a column: from its metadata, else from the end of its name.
pub(crate) fn unit(field: &datafusion::arrow::datatypes::Field) -> Option<&str> {
    const UNITS: [&str; 4] = ["ps", "ns", "bytes", "share"];
    let named = || {
        let (_, end) = field.name().rsplit_once('_')?;
        UNITS.into_iter().find(|unit| *unit == end)
    };
    field
        .metadata()
        .get("unit")
        .map(String::as_str)
        .or_else(named)
}

/// Returns the SQL name of a type.
pub(crate) fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            "INT".to_owned()
        }
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "BIGINT".to_owned(),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "TEXT".to_owned(),
        DataType::Date32 | DataType::Date64 => "DATE".to_owned(),
        DataType::Dictionary(_, value) => type_name(value),
        other => other.to_string(),
    }
}

fn columns(schema: &Schema, keys: &[String]) -> Json {
    let columns = schema.fields().iter().zip(keys).map(|(field, key)| {
        json!({
            "key": key,
            "title": field.name(),
            "type": type_name(field.data_type()),
            "unit": unit(field),
        })
    });
    columns.collect()
}

/// Appends a line of CSV. A text that a spreadsheet would run as a formula is escaped, as in our other CSV.
fn csv_line<'a>(cells: impl Iterator<Item = &'a str>, to: &mut Vec<u8>) {
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            to.push(b',');
        }
        let number = cell.parse::<f64>().is_ok();
        let text = if number { cell.into() } else { csv_text(cell) };
        if text.contains([',', '"', '\n', '\r']) {
            to.push(b'"');
            to.extend(text.replace('"', "\"\"").into_bytes());
            to.push(b'"');
        } else {
            to.extend(text.as_bytes());
        }
    }
    to.push(b'\n');
}

/// Words that the planner puts in front of a cause.
const PREFIXES: [&str; 11] = [
    "Error during planning: ",
    "Execution error: ",
    "Schema error: ",
    "SQL error: ",
    "External error: ",
    "Resources exhausted: ",
    "Arrow error: ",
    "This feature is not implemented: ",
    "Invalid argument error: ",
    "Compute error: ",
    "Internal error: ",
];
/// Characters of a cause: the planner lists all columns of all tables.
const LONGEST_CAUSE: usize = 600;

/// Returns the cause of an error in one line, and a hint if there is one.
pub fn describe(error: &DataFusionError) -> (String, Option<String>) {
    let text = error.strip_backtrace();
    let (text, hint) = match text.split_once("\nhelp: ") {
        Some((text, hint)) => (text.to_owned(), Some(hint.to_owned())),
        None => (text, None),
    };
    let mut cause = text.as_str();
    while let Some(rest) = PREFIXES
        .iter()
        .find_map(|prefix| cause.strip_prefix(prefix))
    {
        cause = rest;
    }
    let hint = hint.or_else(|| hint_for(&text));
    let words: Vec<&str> = cause.split_whitespace().collect();
    let mut cause = words.join(" ");
    if let Some((end, _)) = cause.char_indices().nth(LONGEST_CAUSE) {
        cause.truncate(end);
        cause.push('…');
    }
    (cause, hint)
}

fn hint_for(text: &str) -> Option<String> {
    let hint =
        if text.contains("not supported: ") || text.contains("DDL not") || text.contains("DML not")
        {
            "queries read: write one SELECT"
        } else if text.starts_with("Resources exhausted") {
            "let the query read less, or allow it more memory"
        } else if text.contains("took longer than") {
            "let the query read less, or allow it more time"
        } else if text.contains("table") && text.contains("not found") {
            "SELECT * FROM table_columns lists tables and columns"
        } else if text.contains("No field named") {
            "SELECT * FROM table_columns lists the columns"
        } else if text.contains("multiple") && text.contains("statement")
            || text.contains("single SQL statement")
        {
            "write one statement"
        } else {
            return None;
        };
    Some(hint.to_owned())
}
