//! Parquet files: encodings, compression and metadata.
//!
//! Ids, starts, tracks and steps ascend in the order of the tables, so their differences are small: they are
//! delta-encoded. All other columns repeat their values and have dictionaries. Measured on two traces of GPUs, this
//! takes 7.6 and 7.9 bytes a slice; plain numbers take 12.8 and 15.2. The Arrow schema is left out of the file:
//! readers would make dictionaries of texts from it, which they then do not group and join.

mod group_column;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::error::{DataFusionError, Result};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use stepscope_analysis::parallel::{Cancel, scan_items};

use self::group_column::{EndedChunk, GroupColumn, RepeatedChunk};
use crate::schema::is_time;

/// Number of rows in a row group: some 2 MB of slices, a unit of work for readers.
const GROUP_ROWS: usize = 1 << 18;
/// Level at which zstd still writes as fast as the columns are made.
const ZSTD_LEVEL: i32 = 3;

/// Columns without minimum and maximum: these names are spread over all row groups, so their bounds exclude none.
const WITHOUT_BOUNDS: [&str; 6] = [
    "name",
    "short_name",
    "raw_name",
    "op_name",
    "source",
    "layer",
];
/// Number of rows that are encoded at once, on all processors: the start of the threads is a small part of the time.
const CHUNK_ROWS: usize = 1 << 16;

/// Writes batches of one schema to a Parquet file. Columns are encoded in parallel.
pub(crate) struct ParquetFile<W: Write + Send> {
    file: SerializedFileWriter<W>,
    writers: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// Rows that are not encoded yet.
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    /// Columns of the open row group; empty before its first rows.
    columns: Vec<Mutex<GroupColumn>>,
    /// Number of rows that they have.
    group_rows: usize,
    /// The last chunk of one value of each column.
    repeated: Vec<Mutex<Option<RepeatedChunk>>>,
    /// Number of complete row groups.
    groups: usize,
}

impl<W: Write + Send> ParquetFile<W> {
    /// Starts a file. `facts` are its key-value metadata; the units of the columns are added to them.
    pub(crate) fn new(out: W, schema: &SchemaRef, facts: &[(&str, &str)]) -> Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(
                ZstdLevel::try_new(ZSTD_LEVEL).map_err(failed)?,
            ))
            .set_created_by(concat!("stepscope version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            // It tells where pages are, and nothing what is in them.
            .set_offset_index_disabled(true);
        for name in WITHOUT_BOUNDS {
            let path = ColumnPath::from(name);
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
        }
        for field in schema.fields().iter().filter(|field| ascends(field)) {
            let path = ColumnPath::from(field.name().as_str());
            properties = properties
                .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                .set_column_dictionary_enabled(path, false);
        }
        let facts = facts
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let facts = facts.chain(units(schema).map(|units| ("units".to_owned(), units)));
        let facts: Vec<KeyValue> = facts
            .map(|(key, value)| KeyValue::new(key, value))
            .collect();
        let properties = properties.set_key_value_metadata(Some(facts)).build();
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(out, SchemaRef::clone(schema), options);
        let (file, writers) = writer
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(failed)?;
        Ok(Self {
            file,
            writers,
            schema: SchemaRef::clone(schema),
            pending: Vec::new(),
            pending_rows: 0,
            columns: Vec::new(),
            group_rows: 0,
            repeated: Vec::new(),
            groups: 0,
        })
    }

    /// Adds rows.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut rest = batch.clone();
        while rest.num_rows() > 0 {
            let free = GROUP_ROWS - self.group_rows - self.pending_rows;
            let rows = rest.num_rows().min(free);
            self.pending.push(rest.slice(0, rows));
            self.pending_rows += rows;
            rest = rest.slice(rows, rest.num_rows() - rows);
            let is_full = rows == free;
            if is_full || self.pending_rows >= CHUNK_ROWS {
                self.encode().map_err(failed)?;
            }
            if is_full {
                self.end_group().map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Encodes the rows that are not encoded yet.
    fn encode(&mut self) -> Result<(), ParquetError> {
        let batches = std::mem::take(&mut self.pending);
        let Some(first) = batches.first() else {
            return Ok(());
        };
        if self.columns.is_empty() {
            let mut writers = self.writers.create_column_writers(self.groups)?.into_iter();
            for (index, field) in self.schema.fields().iter().enumerate() {
                let leaves = compute_leaves(field, first.column(index))?.len();
                let leaves = writers.by_ref().take(leaves).collect();
                self.columns
                    .push(Mutex::new(GroupColumn::new(index, field, leaves)));
            }
        }
        let size = self.pending_rows * self.columns.len();
        on_all_processors(&self.columns, size, |column| locked(column).write(&batches))?;
        self.group_rows += std::mem::take(&mut self.pending_rows);
        Ok(())
    }

    /// Writes the open row group.
    fn end_group(&mut self) -> Result<(), ParquetError> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let columns = std::mem::take(&mut self.columns);
        self.repeated.resize_with(columns.len(), Mutex::default);
        let ended: Vec<Mutex<Vec<EndedChunk>>> = columns.iter().map(|_| Mutex::default()).collect();
        let file = (self.file.schema_descr(), self.file.properties());
        let work: Vec<_> = columns.iter().zip(&self.repeated).zip(&ended).collect();
        let size = self.group_rows * columns.len();
        on_all_processors(&work, size, |((column, last), ended)| {
            *locked(ended) = locked(column).end(&mut locked(last), file)?;
            Ok(())
        })?;
        let mut group = self.file.next_row_group()?;
        for chunks in ended {
            for chunk in chunks.into_inner().unwrap_or_else(PoisonError::into_inner) {
                chunk.append_to(&mut group)?;
            }
        }
        group.close()?;
        self.groups += 1;
        self.group_rows = 0;
        Ok(())
    }

    /// Returns the number of bytes of the finished row groups.
    pub(crate) fn bytes_written(&self) -> usize {
        self.file.bytes_written()
    }

    /// Ends the file. Nothing can be added after it.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.encode().map_err(failed)?;
        self.end_group().map_err(failed)?;
        self.file.finish().map_err(failed)?;
        Ok(())
    }

    /// Returns what the file is written to. Bytes may be taken from its end.
    pub(crate) fn get_mut(&mut self) -> &mut W {
        self.file.inner_mut()
    }
}

/// Runs `work` on every item; `size` is the number of values in all of them.
fn on_all_processors<T: Sync>(
    items: &[T],
    size: usize,
    work: impl Fn(&T) -> Result<(), ParquetError> + Sync,
) -> Result<(), ParquetError> {
    let work = |done: &mut Result<(), ParquetError>, item: &T| {
        if done.is_ok() {
            *done = work(item);
        }
    };
    // Nothing cancels it.
    let done = scan_items(items, size, &Cancel::default(), || Ok(()), work);
    done.unwrap_or_default().into_iter().collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the values of a column mostly ascend: ids and times of events, tracks and steps.
fn ascends(field: &Field) -> bool {
    let unit = field.metadata().get("unit").map_or("", String::as_str);
    let ascends = unit == "event"
        || is_time(field.name(), unit)
        || ["track_id", "step"].contains(&field.name().as_str());
    matches!(field.data_type(), DataType::Int64 | DataType::Int32) && ascends
}

/// Returns the units of the columns as a JSON object; `None` if no column has one.
fn units(schema: &SchemaRef) -> Option<String> {
    let fields = schema.fields().iter();
    let units = fields.filter_map(|field| {
        let unit = field.metadata().get("unit")?;
        Some((field.name().clone(), unit.as_str().into()))
    });
    let units: serde_json::Map<String, serde_json::Value> = units.collect();
    (!units.is_empty()).then(|| serde_json::Value::Object(units).to_string())
}

fn failed(error: ParquetError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
