//! Rows of small tables: values by column, gathered into a record batch.

use std::borrow::Cow;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Date32Builder, Float64Builder, Int32Builder, Int64Builder,
    RecordBatch, RecordBatchOptions, StringViewBuilder,
};
use datafusion::error::{DataFusionError, Result};
use std::sync::Arc;

use crate::schema::{Column, Type, schema_of};

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unknown or not applicable.
    Null,
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Double(f64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    Text(Cow<'a, str>),
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Value<'_> {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Value<'_> {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Cow::Borrowed(value))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(value: &'a String) -> Self {
        Self::Text(Cow::Borrowed(value))
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        Self::Text(Cow::Owned(value))
    }
}

impl From<stepscope_model::Time> for Value<'_> {
    fn from(value: stepscope_model::Time) -> Self {
        Self::Int(value.ps())
    }
}

impl From<stepscope_model::Dur> for Value<'_> {
    fn from(value: stepscope_model::Dur) -> Self {
        Self::Int(value.ps())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

enum Builder {
    Int(Int32Builder),
    BigInt(Int64Builder),
    Double(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringViewBuilder),
    Date(Date32Builder),
}

impl Builder {
    fn new(kind: Type) -> Self {
        match kind {
            Type::Int => Self::Int(Int32Builder::new()),
            Type::BigInt => Self::BigInt(Int64Builder::new()),
            Type::Double => Self::Double(Float64Builder::new()),
            Type::Bool => Self::Bool(BooleanBuilder::new()),
            // Names repeat: each is stored once.
            Type::Text => Self::Text(StringViewBuilder::new().with_deduplicate_strings()),
            Type::Date => Self::Date(Date32Builder::new()),
        }
    }

    /// Appends a value; one of another type becomes null.
    fn push(&mut self, value: &Value<'_>) {
        match (self, value) {
            (Self::Int(builder), Value::Int(value)) => {
                builder.append_option(i32::try_from(*value).ok());
            }
            (Self::BigInt(builder), Value::Int(value)) => builder.append_value(*value),
            (Self::Double(builder), Value::Double(value)) => builder.append_value(*value),
            (Self::Double(builder), Value::Int(value)) => builder.append_value(*value as f64),
            (Self::Bool(builder), Value::Bool(value)) => builder.append_value(*value),
            (Self::Text(builder), Value::Text(value)) => builder.append_value(value),
            (Self::Date(builder), Value::Int(value)) => {
                builder.append_option(i32::try_from(*value).ok());
            }
            (Self::Int(builder), _) => builder.append_null(),
            (Self::BigInt(builder), _) => builder.append_null(),
            (Self::Double(builder), _) => builder.append_null(),
            (Self::Bool(builder), _) => builder.append_null(),
            (Self::Text(builder), _) => builder.append_null(),
            (Self::Date(builder), _) => builder.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::BigInt(builder) => Arc::new(builder.finish()),
            Self::Double(builder) => Arc::new(builder.finish()),
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Gathers rows of a table.
pub struct Rows {
    columns: &'static [Column],
    builders: Vec<Builder>,
    count: usize,
}

impl Rows {
    /// Creates a table of these columns without rows.
    pub fn new(columns: &'static [Column]) -> Self {
        let builders = columns.iter().map(|column| Builder::new(column.kind));
        Self {
            columns,
            builders: builders.collect(),
            count: 0,
        }
    }

    /// Appends a row, one value for each column.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers write the row in place"
    )]
    pub fn push<const N: usize>(&mut self, row: [Value<'_>; N]) {
        debug_assert_eq!(N, self.columns.len(), "a value for each column");
        for (builder, value) in self.builders.iter_mut().zip(&row) {
            builder.push(value);
        }
        self.count += 1;
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the rows as a batch and begins the next one.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        self.count = 0;
        RecordBatch::try_new_with_options(schema_of(self.columns), arrays, &options)
            .map_err(DataFusionError::from)
    }
}
