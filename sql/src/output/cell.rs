//! Single values as text and as JSON.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;
use serde_json::Value as Json;

/// How JSON has a whole number that a double cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wide {
    Number,
    Text,
}

/// The first whole number whose successor no double holds.
const WIDE: u64 = 1 << 53;

/// Returns a value as text; `None` for null.
pub(super) fn text_of(array: &ArrayRef, row: usize) -> Result<Option<String>> {
    if array.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match array.data_type() {
        // Shortest text that reads back as the same number.
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::List(_) | DataType::LargeList(_) | DataType::Struct(_) | DataType::Map(_, _) => {
            json_of(array, row, Wide::Number)?.to_string()
        }
        _ => formatted(array, row)?,
    }))
}

fn formatted(array: &ArrayRef, row: usize) -> Result<String> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
    Ok(formatter.value(row).try_to_string()?)
}

/// Returns a value as JSON. A number that is not finite is null.
pub(super) fn json_of(array: &ArrayRef, row: usize, wide: Wide) -> Result<Json> {
    if array.is_null(row) {
        return Ok(Json::Null);
    }
    Ok(match array.data_type() {
        DataType::Null => Json::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => {
            let value = array.as_primitive::<Int64Type>().value(row);
            if wide == Wide::Text && value.unsigned_abs() >= WIDE {
                value.to_string().into()
            } else {
                value.into()
            }
        }
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => {
            let value = array.as_primitive::<UInt64Type>().value(row);
            if wide == Wide::Text && value >= WIDE {
                value.to_string().into()
            } else {
                value.into()
            }
        }
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(row)).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::List(_) => list(&array.as_list::<i32>().value(row), wide)?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row), wide)?,
        DataType::Struct(fields) => {
            let parts = array.as_struct();
            let mut object = serde_json::Map::new();
            for (field, column) in fields.iter().zip(parts.columns()) {
                object.insert(field.name().clone(), json_of(column, row, wide)?);
            }
            Json::Object(object)
        }
        // Decimals as text keep their digits; dates, times and intervals have no type of their own in JSON.
        _ => formatted(array, row)?.into(),
    })
}

fn list(values: &ArrayRef, wide: Wide) -> Result<Json> {
    let values = (0..values.len()).map(|at| json_of(values, at, wide));
    Ok(Json::Array(values.collect::<Result<_>>()?))
}
