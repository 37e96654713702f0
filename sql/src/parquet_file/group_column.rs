//! One column of a row group. A column of one value is encoded once, and copied for the row groups that follow.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int32Type, Int64Type};
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{SchemaDescriptor, Type as SchemaType};

/// A column of the open row group.
pub(super) struct GroupColumn {
    index: usize,
    field: FieldRef,
    /// One for each leaf: nested types have several.
    leaves: Vec<ArrowColumnWriter>,
    rows: ColumnRows,
}

/// Rows of a column so far.
enum ColumnRows {
    None,
    /// All have one value, which is the only row of the array: not encoded.
    Repeated(ArrayRef, usize),
    Encoded,
}

impl GroupColumn {
    /// Creates a column without rows. `leaves` write its leaves.
    pub(super) fn new(index: usize, field: &FieldRef, leaves: Vec<ArrowColumnWriter>) -> Self {
        Self {
            index,
            field: FieldRef::clone(field),
            leaves,
            rows: ColumnRows::None,
        }
    }

    /// Adds the rows of batches.
    pub(super) fn write(&mut self, batches: &[RecordBatch]) -> Result<(), ParquetError> {
        for batch in batches {
            let array = batch.column(self.index);
            match &self.rows {
                ColumnRows::Encoded => {}
                ColumnRows::None => {
                    if let Some(value) = repeated_value(array) {
                        self.rows = ColumnRows::Repeated(value, array.len());
                        continue;
                    }
                }
                ColumnRows::Repeated(known, rows) => {
                    let (known, rows) = (Arc::clone(known), *rows);
                    if repeated_value(array).is_some_and(|value| *value == *known) {
                        self.rows = ColumnRows::Repeated(known, rows + array.len());
                        continue;
                    }
                    self.encode(&repeated(&known, rows)?)?;
                }
            }
            self.encode(array)?;
        }
        Ok(())
    }

    fn encode(&mut self, array: &ArrayRef) -> Result<(), ParquetError> {
        self.rows = ColumnRows::Encoded;
        let leaves = compute_leaves(&self.field, array)?;
        for (writer, leaf) in self.leaves.iter_mut().zip(&leaves) {
            writer.write(leaf)?;
        }
        Ok(())
    }

    /// Ends the column. `last` is its last chunk of one value, which is copied if it is the same.
    pub(super) fn end(
        &mut self,
        last: &mut Option<RepeatedChunk>,
        file: (&SchemaDescriptor, &WriterPropertiesPtr),
    ) -> Result<Vec<EndedChunk>, ParquetError> {
        let ColumnRows::Repeated(value, rows) = std::mem::replace(&mut self.rows, ColumnRows::None)
        else {
            let chunks = self.leaves.drain(..).map(|leaf| {
                leaf.close()
                    .map(|chunk| EndedChunk::Encoded(Box::new(chunk)))
            });
            return chunks.collect();
        };
        if let Some(last) = last
            .as_ref()
            .filter(|last| *last.value == *value && last.rows == rows)
        {
            return Ok(vec![last.copy()]);
        }
        self.encode(&repeated(&value, rows)?)?;
        let Some(leaf) = self.leaves.pop() else {
            return Ok(Vec::new());
        };
        let chunk = RepeatedChunk::new((value, rows), leaf.close()?, self.index, file)?;
        Ok(vec![last.insert(chunk).copy()])
    }
}

/// Returns the value of all rows of a column; `None` if it has several, or a type of few such columns.
fn repeated_value(array: &ArrayRef) -> Option<ArrayRef> {
    let repeats = match array.null_count() {
        0 => match array.data_type() {
            DataType::Utf8View => all_equal(array.as_string_view().views()),
            DataType::Int64 => all_equal(array.as_primitive::<Int64Type>().values()),
            DataType::Int32 => all_equal(array.as_primitive::<Int32Type>().values()),
            DataType::Boolean => {
                matches!(array.as_boolean().true_count(), count if count == 0 || count == array.len())
            }
            _ => false,
        },
        nulls => nulls == array.len() && !array.data_type().is_nested(),
    };
    (repeats && !array.is_empty()).then(|| array.slice(0, 1))
}

fn all_equal<T: PartialEq>(values: &[T]) -> bool {
    values
        .first()
        .is_none_or(|first| values.iter().all(|value| value == first))
}

/// Returns a column of `rows` rows of the value of an array of one row.
fn repeated(value: &ArrayRef, rows: usize) -> Result<ArrayRef, ParquetError> {
    Ok(take(value, &UInt32Array::from(vec![0; rows]), None)?)
}

/// An encoded column of one value. Runs, hosts and ranks are the same in all row groups of most files: the bytes are
/// copied, which takes no time.
pub(super) struct RepeatedChunk {
    value: ArrayRef,
    rows: usize,
    /// A file with this column alone.
    file: Bytes,
    close: ColumnCloseResult,
}

impl RepeatedChunk {
    fn new(
        (value, rows): (ArrayRef, usize),
        chunk: ArrowColumnChunk,
        index: usize,
        (schema, properties): (&SchemaDescriptor, &WriterPropertiesPtr),
    ) -> Result<Self, ParquetError> {
        let root = schema.root_schema();
        let column = schema.get_column_root_ptr(index);
        let only = SchemaType::group_type_builder(root.name())
            .with_fields(vec![column])
            .build()?;
        let properties = WriterPropertiesPtr::clone(properties);
        let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(only), properties)?;
        let mut group = file.next_row_group()?;
        chunk.append_to_row_group(&mut group)?;
        let metadata = group.close()?.column(0).clone();
        Ok(Self {
            value,
            rows,
            file: file.into_inner()?.into(),
            close: ColumnCloseResult {
                bytes_written: u64::try_from(metadata.compressed_size()).unwrap_or(0),
                rows_written: rows as u64,
                metadata,
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            },
        })
    }

    fn copy(&self) -> EndedChunk {
        EndedChunk::Copied(self.file.clone(), Box::new(self.close.clone()))
    }
}

/// An encoded column of a row group.
pub(super) enum EndedChunk {
    Encoded(Box<ArrowColumnChunk>),
    /// In a file.
    Copied(Bytes, Box<ColumnCloseResult>),
}

impl EndedChunk {
    pub(super) fn append_to<W: Write + Send>(
        self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        match self {
            Self::Encoded(chunk) => chunk.append_to_row_group(group),
            Self::Copied(file, close) => group.append_column(&file, *close),
        }
    }
}
