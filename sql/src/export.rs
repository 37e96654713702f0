//! Writes runs into a dataset: their tables as Parquet files.
//!
//! A run is written once: its files have names that follow from its name and its content, they appear when they are
//! complete, and the file in `runs` comes last. So an export may be repeated, and may go on after an interruption.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepscope_engine::{EngineError, Opened, Run, RunChoice, SqlRun, open_chosen, open_listed};
use stepscope_model::ReadContext;
use stepscope_model::clock::unix_now_ns;

use crate::dataset::{
    DatasetError, EVENT_TABLES, MARK, RUNS, SCHEMA, TABLE_COLUMNS, check_mark, date_folder,
    file_name,
};
use crate::locked::Memory;
use crate::output::describe;
use crate::parquet_file::ParquetFile;
use crate::runtime::runtime;
use crate::schema::Column;
use crate::schema_table;
use crate::session::Session;

/// Size after which a further file begins, bytes.
const MAX_FILE_BYTES: usize = 512 << 20;
/// Folder of files that are not complete. When they are, they move to the folder of their table.
const UNFINISHED: &str = "_unfinished";
/// Number of times that a file is created before its folder counts as missing.
const MAX_TRIES: usize = 100;
/// Longest part of a run's name in the names of its files, bytes.
const LONGEST_NAME: usize = 100;
/// Number of digits of the content's hash in the names of files.
const HASH_DIGITS: usize = 8;

/// Which arguments of events are exported: they are most of some files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArgsChoice {
    /// None.
    None,
    /// All.
    All,
    /// Those of these keys.
    Keys(Vec<String>),
}

impl ArgsChoice {
    /// Reads `none`, `all`, or keys that commas separate.
    pub fn parse(text: &str) -> Self {
        match text {
            "none" => Self::None,
            "all" => Self::All,
            keys => Self::Keys(keys.split(',').map(str::to_owned).collect()),
        }
    }
}

/// What to export.
#[derive(Clone, Debug)]
pub struct Options {
    /// Arguments.
    pub args: ArgsChoice,
    /// Whether runs are read from the import cache and added to it.
    pub use_cache: bool,
    /// Which of the runs at paths are exported.
    pub choice: RunChoice,
}

/// What was done with a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// It is in the dataset now.
    Exported {
        /// Name of the run.
        run: String,
        /// Number of slices.
        slices: u64,
        /// Size of its files, bytes.
        bytes: u64,
    },
    /// It was there already.
    Present {
        /// Name of the run.
        run: String,
    },
    /// It cannot be read, or not all of it.
    Problem(String),
}

/// Cause of an export that failed.
#[derive(Debug)]
pub enum ExportError {
    /// The folder has content and no mark.
    NoDataset(PathBuf),
    /// The folder is a dataset that this program cannot write.
    Dataset(DatasetError),
    /// A file cannot be written.
    File(PathBuf, io::Error),
    /// No path has the chosen run.
    NoSuchRun(String),
    /// A path has no run.
    Open(Box<EngineError>),
    /// The cluster does not do it.
    Cluster(Box<DataFusionError>),
    /// A table cannot be computed.
    Table(&'static str, Box<DataFusionError>),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDataset(path) => write!(
                f,
                "cannot export into {}: it is not empty and no dataset of stepscope\n\
                 help: name an empty or a new folder",
                path.display()
            ),
            Self::Dataset(error) => write!(f, "{error}"),
            Self::File(path, error) => write!(f, "cannot write {}: {error}", path.display()),
            Self::NoSuchRun(run) => write!(
                f,
                "cannot export the run '{run}': there is none of this name\nhelp: 'stepscope info' lists the runs of a path"
            ),
            Self::Open(error) => {
                write!(f, "{error}")?;
                error
                    .hint()
                    .map_or(Ok(()), |hint| write!(f, "\nhelp: {hint}"))
            }
            Self::Cluster(error) => {
                let (cause, _) = describe(error);
                write!(f, "cannot export on the cluster: {cause}")
            }
            Self::Table(table, error) => {
                let (cause, _) = describe(error);
                write!(f, "cannot export the table {table}: {cause}")
            }
        }
    }
}

impl std::error::Error for ExportError {}

/// Exports runs, and reports each. Runs that cannot be read are reported and left out.
pub fn export(
    sources: &[SqlRun],
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<(), ExportError> {
    prepare(dataset)?;
    let context = Arc::new(ReadContext::default());
    let threads = runtime().map_err(|error| ExportError::File(dataset.into(), error))?;
    let mut failed = None;
    let mut found = 0_usize;
    let mut add = |opened: Opened, path: &Path| match opened {
        Ok(run) if failed.is_none() => {
            found += 1;
            for problem in &run.problems {
                let text = format!("{}: {}", problem.file, problem.reason);
                report(Progress::Problem(text));
            }
            let exported = RunExport::new(run, path, dataset, options);
            match threads.block_on(exported.write()) {
                Ok(done) => report(done),
                Err(error) => failed = Some(error),
            }
        }
        Ok(_) => {}
        Err((id, error)) => {
            found += 1;
            report(Progress::Problem(format!("{id}: {error}")));
        }
    };
    let open_failed = |error| ExportError::Open(Box::new(error));
    for source in sources {
        match source {
            SqlRun::Path(path) => {
                let visit = &mut |run| {
                    add(run, path);
                    Ok(())
                };
                open_chosen(path, &context, options.use_cache, &options.choice, visit)
                    .map_err(open_failed)?
                    .flush_cache();
            }
            SqlRun::Listed {
                path,
                first_file,
                name,
                ..
            } => {
                let run = open_listed(path, first_file, &context, options.use_cache);
                add(run.map_err(|error| (name.clone(), error)), path);
            }
        }
    }
    match (failed, options.choice.runs.first()) {
        (Some(error), _) => Err(error),
        (None, Some(run)) if found == 0 => Err(ExportError::NoSuchRun(run.clone())),
        _ => Ok(()),
    }
}

/// Makes the folder of a dataset, or checks the version of the one that is there.
pub(crate) fn prepare(dataset: &Path) -> Result<(), ExportError> {
    let failed = |error| ExportError::File(dataset.into(), error);
    std::fs::create_dir_all(dataset).map_err(failed)?;
    if check_mark(dataset).map_err(ExportError::Dataset)? {
        return Ok(());
    }
    for entry in std::fs::read_dir(dataset).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // Tasks that start at once make the same dataset: the mark comes before everything else.
        if name.to_string_lossy().starts_with(MARK) {
            continue;
        }
        if check_mark(dataset).map_err(ExportError::Dataset)? {
            return Ok(());
        }
        return Err(ExportError::NoDataset(dataset.into()));
    }
    let created_by = concat!("stepscope ", env!("CARGO_PKG_VERSION"));
    let content = json!({"schema": SCHEMA, "created_by": created_by}).to_string();
    let mark = dataset.join(MARK);
    let part = dataset.join(part_name(MARK));
    std::fs::write(&part, content)
        .and_then(|()| std::fs::rename(&part, &mark))
        .map_err(|error| ExportError::File(mark, error))
}

/// Returns a new name for a file until it is complete. No other task has the same one, on no machine.
fn part_name(name: &str) -> String {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let nanoseconds = unix_now_ns();
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    format!("{name}.{}-{nanoseconds}-{number}.part", std::process::id())
}

/// Returns the name of a run's files: letters, digits, `-`, `_` and `.`, and digits of the hash of its content.
///
/// With the hash, no reader takes the name for a number, and the same run has the same name again.
fn key_of(run: &Run) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = run.name.chars().take(LONGEST_NAME);
    let name: String = name.map(|c| if is_plain(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches('.');
    let hash = run
        .content_hash
        .get(..HASH_DIGITS)
        .unwrap_or(&run.content_hash);
    format!("{name}-{hash}")
}

/// A run on its way into a dataset.
struct RunExport<'a> {
    session: Session,
    name: String,
    key: String,
    slices: u64,
    date: String,
    dataset: &'a Path,
    options: &'a Options,
}

impl<'a> RunExport<'a> {
    fn new(run: Run, path: &Path, dataset: &'a Path, options: &'a Options) -> Self {
        let key = key_of(&run);
        Self {
            name: run.name.clone(),
            slices: run.trace.slice_count(),
            date: date_of(run.start_unix_ns()),
            session: Session::of_run(
                key.clone(),
                path.display().to_string(),
                run,
                Memory::default(),
            ),
            key,
            dataset,
            options,
        }
    }

    async fn write(&self) -> Result<Progress, ExportError> {
        let run = self.name.clone();
        if self.file_of(RUNS, None).exists() {
            self.remove_unfinished();
            return Ok(Progress::Present { run });
        }
        let mut bytes = 0;
        let mut tables = schema_table::all();
        tables.retain(|(table, ..)| *table != TABLE_COLUMNS);
        // The run counts from then on.
        tables.sort_by_key(|(table, ..)| *table == RUNS);
        for (table, _, columns) in tables {
            let Some(sql) = self.query(table, columns) else {
                continue;
            };
            bytes += self.write_table(table, columns, &sql).await?;
        }
        self.remove_unfinished();
        Ok(Progress::Exported {
            run,
            slices: self.slices,
            bytes,
        })
    }

    /// Removes what other tasks began of this run and did not finish, and the folder if nothing else is in it:
    /// programs that take each folder of a dataset for a table see tables only.
    fn remove_unfinished(&self) {
        let prefix = format!("{}.", self.key);
        let folder = self.dataset.join(UNFINISHED);
        let entries = std::fs::read_dir(&folder);
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // Another task may do the same.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        // It stays while files of other runs are in it.
        let _ = std::fs::remove_dir(folder);
    }

    /// Returns the query that reads the stored columns of a table; `None` for one that is not asked for.
    fn query(&self, table: &str, columns: &[Column]) -> Option<String> {
        // The date is part of the path: readers take it from there.
        let stored = columns
            .iter()
            .filter(|column| column.stored && (table, column.name) != (RUNS, "date"));
        let names: Vec<&str> = stored.map(|column| column.name).collect();
        let sql = format!("SELECT {} FROM {table}", names.join(", "));
        if table != "args" {
            return Some(sql);
        }
        match &self.options.args {
            ArgsChoice::None => None,
            ArgsChoice::All => Some(sql),
            ArgsChoice::Keys(keys) => {
                let keys = keys
                    .iter()
                    .map(|key| format!("'{}'", key.replace('\'', "''")));
                let keys: Vec<String> = keys.collect();
                Some(format!("{sql} WHERE key IN ({})", keys.join(", ")))
            }
        }
    }

    fn file_of(&self, table: &str, number: Option<usize>) -> PathBuf {
        let folder = self.dataset.join(table).join(date_folder(&self.date));
        folder.join(file_name(&self.key, number))
    }

    /// Writes a table, and returns the size of its files.
    async fn write_table(
        &self,
        table: &'static str,
        columns: &[Column],
        sql: &str,
    ) -> Result<u64, ExportError> {
        let is_numbered = EVENT_TABLES.contains(&table);
        let path_of = |number| self.file_of(table, is_numbered.then_some(number));
        let version = SCHEMA.to_string();
        let facts = [
            ("stepscope.schema", version.as_str()),
            ("stepscope.version", env!("CARGO_PKG_VERSION")),
            ("stepscope.run", &self.key),
            ("stepscope.table", table),
        ];
        let unfinished = self.dataset.join(UNFINISHED);
        let mut files = TableFiles {
            unfinished: &unfinished,
            path_of: &path_of,
            is_numbered,
            facts: &facts,
            schema: Arc::new(Schema::empty()),
            number: 0,
            open: None,
            bytes: 0,
            failed: None,
        };
        let files = Mutex::new(&mut files);
        let locked = || files.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = &mut |schema: &SchemaRef| locked().begin(with_ids(schema, columns));
        let each = &mut |batch: &RecordBatch| locked().add(batch);
        let read = self.session.read_in_order(sql, begin, each).await;
        let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result = read.and_then(|()| files.end());
        if let Some(error) = files.failed.take() {
            return Err(error);
        }
        result.map_err(|error| ExportError::Table(table, Box::new(error)))?;
        Ok(files.bytes)
    }
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

/// The files of one table of one run.
struct TableFiles<'a> {
    /// Folder of files that are not complete.
    unfinished: &'a Path,
    path_of: &'a (dyn Fn(usize) -> PathBuf + Sync),
    is_numbered: bool,
    facts: &'a [(&'a str, &'a str)],
    schema: SchemaRef,
    number: usize,
    open: Option<OpenFile>,
    bytes: u64,
    /// Why a file cannot be written.
    failed: Option<ExportError>,
}

impl TableFiles<'_> {
    fn begin(&mut self, schema: SchemaRef) -> datafusion::error::Result<()> {
        self.schema = schema;
        self.next_file()
    }

    fn next_file(&mut self) -> datafusion::error::Result<()> {
        let path = (self.path_of)(self.number);
        let folder = path.parent().unwrap_or(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = self.unfinished.join(part_name(&name));
        let file = std::fs::create_dir_all(folder).and_then(|()| create_in(self.unfinished, &part));
        let file = self.check(file, &part)?;
        let content = ParquetFile::new(BufWriter::new(file), &self.schema, self.facts)?;
        self.open = Some(OpenFile {
            path,
            part,
            content,
        });
        self.number += 1;
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

    /// Ends the open file, which gets its name now.
    fn end(&mut self) -> datafusion::error::Result<()> {
        let Some(OpenFile {
            path,
            part,
            mut content,
        }) = self.open.take()
        else {
            return Ok(());
        };
        content.finish()?;
        let renamed = std::fs::metadata(&part).and_then(|metadata| {
            std::fs::rename(&part, &path)?;
            Ok(metadata.len())
        });
        // Another task may have finished the run meanwhile, and removed what was not finished: the content is the same.
        let renamed = renamed.or_else(|error| {
            let finished = std::fs::metadata(&path).map_err(|_missing| error);
            finished.map(|metadata| metadata.len())
        });
        self.bytes += self.check(renamed, &path)?;
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

/// Gives the fields their ids: positions among all columns of the table, which never change.
fn with_ids(schema: &SchemaRef, columns: &[Column]) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let position = columns
            .iter()
            .position(|column| column.name == field.name());
        let id = position.map_or(0, |position| position + 1);
        let mut metadata = field.metadata().clone();
        metadata.insert(
            parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_owned(),
            id.to_string(),
        );
        Field::clone(field).with_metadata(metadata)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns the day as `2026-11-23`, UTC; that of Unix time zero for a run without a clock.
fn date_of(start_unix_ns: Option<i64>) -> String {
    let days = start_unix_ns.unwrap_or(0).div_euclid(86_400_000_000_000);
    let days = i32::try_from(days).unwrap_or(0);
    let date = datafusion::arrow::temporal_conversions::date32_to_datetime(days);
    date.map_or_else(
        || "1970-01-01".to_owned(),
        |date| date.format("%Y-%m-%d").to_string(),
    )
}
