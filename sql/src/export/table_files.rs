//! The Parquet files of a table: they appear under their names when all files of the run are complete.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use serde::{Deserialize, Serialize};
use stepscope_model::clock::unix_now_ns;

use super::ExportError;
use crate::dataset::{EVENT_TABLES, UNFINISHED, date_folder, file_name};
use crate::parquet_file::ParquetFile;
use crate::schema::{Column, SCHEMA, with_unit};
use crate::session::read_in_order;

/// Size after which a further file begins, bytes.
const MAX_FILE_BYTES: usize = 512 << 20;
/// Number of times that a file is created before its folder counts as missing.
const MAX_TRIES: usize = 100;

/// Where a table is written to.
pub(super) struct TableTarget<'a> {
    /// Folder of the dataset.
    pub(super) dataset: &'a Path,
    /// Name of the run's files, and value of the columns `run`.
    pub(super) key: &'a str,
    /// The table.
    pub(super) table: &'static str,
    /// Its columns.
    pub(super) columns: &'a [Column],
    /// Where its files are.
    pub(super) to: Destination<'a>,
}

/// Where the files of a table are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Destination<'a> {
    /// Among those of the other runs of a day.
    Run {
        /// The day, such as `2026-11-23`.
        date: &'a str,
    },
    /// In the folder of one file of a run.
    File {
        /// The folder.
        folder: &'a Path,
    },
}

impl Destination<'_> {
    /// Returns the path of a file by its number; of a table that is not numbered there is one.
    pub(super) fn path(
        self,
        dataset: &Path,
        table: &str,
        key: &str,
        number: Option<usize>,
    ) -> PathBuf {
        match self {
            Self::Run { date } => {
                let folder = dataset.join(table).join(date_folder(date));
                folder.join(file_name(key, number))
            }
            Self::File { folder } => folder.join(file_name(table, number)),
        }
    }
}

/// Number and size of the files of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableSize {
    pub(super) files: usize,
    pub(super) bytes: u64,
}

impl TableTarget<'_> {
    /// Writes the rows of a query. The files get their names by [`name_all`].
    pub(super) async fn write(
        &self,
        context: &SessionContext,
        sql: &str,
    ) -> Result<WrittenTable, ExportError> {
        self.write_with(async |files| {
            let files = Mutex::new(files);
            let locked = || files.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = &mut |schema: &SchemaRef| locked().begin(schema);
            let each = &mut |batch: &RecordBatch| locked().add(batch);
            read_in_order(context, sql, begin, each).await
        })
        .await
    }

    /// Writes rows, as [`write`](Self::write) does.
    pub(super) async fn write_batches(
        &self,
        schema: &SchemaRef,
        batches: impl IntoIterator<Item = datafusion::error::Result<RecordBatch>>,
    ) -> Result<WrittenTable, ExportError> {
        self.write_with(async |files| {
            files.begin(schema)?;
            for batch in batches {
                files.add(&batch?)?;
            }
            Ok(())
        })
        .await
    }

    async fn write_with(
        &self,
        fill: impl AsyncFnOnce(&mut TableFiles<'_>) -> datafusion::error::Result<()>,
    ) -> Result<WrittenTable, ExportError> {
        let version = SCHEMA.to_string();
        let facts = [
            ("stepscope.schema", version.as_str()),
            ("stepscope.version", env!("CARGO_PKG_VERSION")),
            ("stepscope.run", self.key),
            ("stepscope.table", self.table),
        ];
        let unfinished = self.dataset.join(UNFINISHED);
        let mut files = TableFiles {
            target: self,
            unfinished: &unfinished,
            is_numbered: EVENT_TABLES.contains(&self.table),
            facts: &facts,
            schema: Arc::new(Schema::empty()),
            written: Vec::new(),
            open: None,
            failed: None,
        };
        let filled = fill(&mut files).await;
        let result = filled.and_then(|()| files.end());
        if let Some(error) = files.failed.take() {
            return Err(error);
        }
        result.map_err(|error| ExportError::Table(self.table, Box::new(error)))?;
        Ok(WrittenTable {
            files: std::mem::take(&mut files.written),
        })
    }
}

/// A file that is complete and has no name yet. It is removed unless it gets it.
struct CompleteFile {
    path: PathBuf,
    /// Its name until then.
    part: PathBuf,
    bytes: u64,
}

impl CompleteFile {
    fn name(&self) -> Result<(), ExportError> {
        match std::fs::rename(&self.part, &self.path) {
            // Another task may have finished the run meanwhile, and removed what was not finished: the content is the
            // same.
            Err(error) if !self.path.is_file() => Err(ExportError::File(self.path.clone(), error)),
            _ => Ok(()),
        }
    }
}

impl Drop for CompleteFile {
    fn drop(&mut self) {
        // It is gone if it has its name.
        let _ = std::fs::remove_file(&self.part);
    }
}

/// The files of a table that are complete.
pub(super) struct WrittenTable {
    files: Vec<CompleteFile>,
}

impl WrittenTable {
    pub(super) fn size(&self) -> TableSize {
        TableSize {
            files: self.files.len(),
            bytes: self.files.iter().map(|file| file.bytes).sum(),
        }
    }
}

/// Gives the files of tables their names, in order, and returns their size. Until then nothing of a run is in the
/// dataset, so a failed export leaves nothing there.
pub(super) fn name_all(tables: &[WrittenTable]) -> Result<u64, ExportError> {
    let files = || tables.iter().flat_map(|table| &table.files);
    for folder in files().filter_map(|file| file.path.parent()) {
        let created = std::fs::create_dir_all(folder);
        created.map_err(|error| ExportError::File(folder.into(), error))?;
    }
    for file in files() {
        file.name()?;
    }
    Ok(files().map(|file| file.bytes).sum())
}

/// Returns a new name for a file until it is complete. No other task has the same one, on no machine.
pub(super) fn part_name(name: &str) -> String {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let nanoseconds = unix_now_ns();
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    format!("{name}.{}-{nanoseconds}-{number}.part", std::process::id())
}

/// Creates a file in a folder that comes and goes: another task may remove it as long as it is empty.
fn create_in(folder: &Path, path: &Path) -> io::Result<File> {
    let mut tries = 0;
    loop {
        std::fs::create_dir_all(folder)?;
        tries += 1;
        match File::create(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < MAX_TRIES => {}
            result => return result,
        }
    }
}

/// A file that is being written.
struct OpenFile {
    path: PathBuf,
    /// Its name until it is complete.
    part: PathBuf,
    content: ParquetFile<BufWriter<File>>,
}

/// The files of one table, one of them open.
struct TableFiles<'a> {
    target: &'a TableTarget<'a>,
    /// Folder of files without a name.
    unfinished: &'a Path,
    is_numbered: bool,
    facts: &'a [(&'a str, &'a str)],
    schema: SchemaRef,
    written: Vec<CompleteFile>,
    open: Option<OpenFile>,
    /// Why a file cannot be written.
    failed: Option<ExportError>,
}

impl TableFiles<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> datafusion::error::Result<()> {
        self.schema = stored_schema(schema, self.target.columns);
        self.next_file()
    }

    fn next_file(&mut self) -> datafusion::error::Result<()> {
        let target = self.target;
        let number = self.is_numbered.then_some(self.written.len());
        let path = target
            .to
            .path(target.dataset, target.table, target.key, number);
        let name = format!("{}.{}", target.key, target.table);
        let part = self.unfinished.join(part_name(&name));
        let file = self.check(create_in(self.unfinished, &part), &part)?;
        let content = ParquetFile::new(BufWriter::new(file), &self.schema, self.facts)?;
        self.open = Some(OpenFile {
            path,
            part,
            content,
        });
        Ok(())
    }

    fn add(&mut self, batch: &RecordBatch) -> datafusion::error::Result<()> {
        let Some(OpenFile { content: file, .. }) = &mut self.open else {
            return Ok(());
        };
        file.write(&batch.clone().with_schema(Arc::clone(&self.schema))?)?;
        if self.is_numbered && file.bytes_written() > MAX_FILE_BYTES {
            self.end()?;
            self.next_file()?;
        }
        Ok(())
    }

    /// Ends the open file.
    fn end(&mut self) -> datafusion::error::Result<()> {
        let Some(OpenFile {
            path,
            part,
            mut content,
        }) = self.open.take()
        else {
            return Ok(());
        };
        let mut complete = CompleteFile {
            path,
            part,
            bytes: 0,
        };
        content.finish()?;
        drop(content);
        // Another task may have finished the run meanwhile, and removed this file: the content is the same.
        let metadata = std::fs::metadata(&complete.part)
            .or_else(|error| std::fs::metadata(&complete.path).map_err(|_missing| error));
        let metadata = self.check(metadata, &complete.path)?;
        complete.bytes = metadata.len();
        self.written.push(complete);
        Ok(())
    }

    fn check<T>(&mut self, result: io::Result<T>, path: &Path) -> datafusion::error::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.failed = Some(ExportError::File(path.into(), error));
            DataFusionError::IoError(kind.into())
        })
    }
}

impl Drop for TableFiles<'_> {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            // What an export that failed has begun.
            let _ = std::fs::remove_file(&open.part);
        }
    }
}

/// Gives the fields their units and ids: positions among all columns of the table, which never change.
fn stored_schema(schema: &SchemaRef, columns: &[Column]) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let position = columns
            .iter()
            .position(|column| column.name == field.name());
        let unit = position.map_or("", |position| columns[position].unit);
        let id = position.map_or(0, |position| position + 1);
        let field = with_unit(Field::clone(field), unit);
        let mut metadata = field.metadata().clone();
        metadata.insert(
            parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_owned(),
            id.to_string(),
        );
        field.with_metadata(metadata)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
