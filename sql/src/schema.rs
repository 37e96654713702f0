//! Columns of tables: name, type, unit and meaning. One list serves queries, documentation and completion.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// Version of the layout of tables and datasets. Columns may be added at the end of a table; whatever else changes is
/// another version.
pub const SCHEMA: u64 = 1;

/// Type of a column, by its SQL name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 32 bits.
    Int,
    /// 64 bits.
    BigInt,
    /// A number with a fraction.
    Double,
    /// Yes or no.
    Bool,
    /// Text.
    Text,
    /// A day.
    Date,
}

impl Type {
    /// Returns the Arrow type.
    pub const fn arrow(self) -> DataType {
        match self {
            Self::Int => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8View,
            Self::Date => DataType::Date32,
        }
    }

    /// Returns the name in SQL.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Int => "INT",
            Self::BigInt => "BIGINT",
            Self::Double => "DOUBLE",
            Self::Bool => "BOOLEAN",
            Self::Text => "TEXT",
            Self::Date => "DATE",
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: Type,
    /// Unit of its values: `ps`, `ns`, `bytes`, `event`, `count`, `share`; empty without one.
    pub unit: &'static str,
    /// Meaning.
    pub meaning: &'static str,
    /// Whether datasets store it; the others follow from the stored ones, or are large.
    pub stored: bool,
}

/// Creates a column without a unit.
pub const fn column(name: &'static str, kind: Type, meaning: &'static str) -> Column {
    Column {
        name,
        kind,
        unit: "",
        meaning,
        stored: true,
    }
}

impl Column {
    /// Sets the unit.
    #[must_use]
    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Leaves the column out of datasets.
    #[must_use]
    pub const fn computed(self) -> Self {
        Self {
            stored: false,
            ..self
        }
    }

    /// Returns whether its values are times on the run's clock.
    pub fn is_time(&self) -> bool {
        is_time(self.name, self.unit)
    }

    fn field(&self) -> Field {
        with_unit(Field::new(self.name, self.kind.arrow(), true), self.unit)
    }
}

/// Returns whether the values of a column are times on the run's clock.
pub fn is_time(name: &str, unit: &str) -> bool {
    let endings = ["start_ps", "at_ps", "until_ps", "first_ps", "last_ps"];
    unit == "ps" && endings.iter().any(|ending| name.ends_with(ending))
}

/// Adds the unit to a field's metadata, where it survives projection and aliases.
pub fn with_unit(field: Field, unit: &str) -> Field {
    if unit.is_empty() {
        return field;
    }
    field.with_metadata(HashMap::from([("unit".to_owned(), unit.to_owned())]))
}

/// Returns the Arrow schema of these columns.
pub fn schema_of(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(
        columns.iter().map(Column::field).collect::<Vec<_>>(),
    ))
}

/// Shortcuts of the columns that many tables share.
pub mod common {
    use super::{Column, Type, column};

    /// The run's name.
    pub const RUN: Column = column("run", Type::Text, "Name of the run");
    /// The host.
    pub const HOST: Column = column("host", Type::Text, "Host of the file");
    /// The rank.
    pub const RANK: Column = column("rank", Type::Int, "Rank of the file");
    /// The device.
    pub const DEVICE: Column = column("device", Type::Int, "Ordinal of the accelerator");
    /// The stream.
    pub const STREAM: Column = column("stream", Type::BigInt, "Queue of the accelerator");
    /// The event.
    pub const ID: Column = column("id", Type::BigInt, "Id of the event").unit("event");
    /// The track.
    pub const TRACK_ID: Column = column("track_id", Type::Int, "Track: `tracks.track_id`");
    /// The step.
    pub const STEP: Column = column(
        "step",
        Type::BigInt,
        "Number of the step that the event belongs to",
    );
    /// Start.
    pub const START_PS: Column =
        column("start_ps", Type::BigInt, "Start on the run's clock").unit("ps");
    /// Duration.
    pub const DUR_PS: Column = column("dur_ps", Type::BigInt, "Duration").unit("ps");
}
