//! Columns of one value, and of texts that repeat.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, StringViewArray, UInt32Array};
use datafusion::arrow::compute::{TakeOptions, take};
use datafusion::error::Result;

/// Repeats a number; null if it needs more than 32 bits.
pub(crate) fn int(value: impl TryInto<i32>, rows: usize) -> ArrayRef {
    optional_int(Some(value), rows)
}

/// Repeats a number; null if there is none, or if it needs more than 32 bits.
pub(crate) fn optional_int(value: Option<impl TryInto<i32>>, rows: usize) -> ArrayRef {
    let value = value.and_then(|value| value.try_into().ok());
    Arc::new(Int32Array::from(vec![value; rows]))
}

/// Repeats a number or null.
pub(crate) fn optional_big_int(value: Option<i64>, rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value; rows]))
}

/// Repeats a text; it is stored once.
pub(crate) fn text(value: Option<&str>, rows: usize) -> Result<ArrayRef> {
    let value = StringViewArray::from_iter([value]);
    take_texts(&value, &UInt32Array::from(vec![0; rows]))
}

/// Returns the texts with these indexes: 16 bytes per row, the texts themselves are shared.
pub(crate) fn take_texts(texts: &StringViewArray, indexes: &UInt32Array) -> Result<ArrayRef> {
    let options = TakeOptions { check_bounds: true };
    Ok(take(texts, indexes, Some(options))?)
}
