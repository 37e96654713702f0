//! Writes runs into a dataset: their tables as Parquet files.
//!
//! A run is written once: its files have names that follow from its name and its content, they appear when they are
//! complete, and the file in `runs` comes last. So an export may be repeated, and may go on after an interruption.
//!
//! A run of many hosts divides into its files: each is read alone, its tables wait in a folder of the dataset, and
//! when all are there they become those of the run.
//!
//! ```text
//! run  -> whole -> tables of the run
//! file -> part  -> tables of the file, receipt -> join -> tables of the run
//! ```

mod join;
mod part;
mod receipt;
mod table_files;
mod whole;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stepscope_engine::{
    CopiedFile, EngineError, Opened, Run, RunChoice, RunFile, SqlRun, list_files, open_chosen,
    open_files, open_listed,
};
use stepscope_model::{ReadContext, Severity};

use crate::dataset::{DATE, DatasetError, MARK, RUNS, TABLE_COLUMNS, check_mark};
use crate::events::SAMPLES;
use crate::output::describe;
use crate::runtime::runtime;
use crate::schema::{Column, SCHEMA, Type};
use crate::schema_table;
use crate::session::as_found;
pub use part::{most_tracks, zero_of};
pub(crate) use receipt::files_done;
use table_files::part_name;
use whole::{RunExport, remove_empty};

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

/// What a task of an export reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportUnit {
    /// Whole runs.
    #[default]
    Run,
    /// Files of runs. A run of several is joined when all of its files are read.
    File,
    /// Nothing: runs whose files are all read are joined.
    Join,
}

/// What to export.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is read at a time.
    pub unit: ExportUnit,
    /// Arguments.
    pub args: ArgsChoice,
    /// Whether runs are read from the import cache and added to it.
    pub use_cache: bool,
    /// Which of the runs at paths are exported.
    pub choice: RunChoice,
    /// Files of runs in object stores, if runs are divided.
    pub copied: Vec<CopiedFile>,
}

impl Options {
    /// Returns whether the runs are joined at the end: no other task reads files of them.
    pub fn joins(&self) -> bool {
        self.unit == ExportUnit::File && self.choice.is_all_files()
    }
}

/// What was done with a run, or a file of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// It is in the dataset now.
    Exported {
        /// Name of the run.
        run: String,
        /// Number of its file, if it is divided and this file was read. The run is joined later.
        file: Option<u32>,
        /// Number of slices.
        slices: u64,
        /// Size of its files, bytes.
        bytes: u64,
    },
    /// It was there already.
    Present {
        /// Name of the run.
        run: String,
        /// Number of its file, if it is divided.
        file: Option<u32>,
    },
    /// It is not in the dataset.
    Failed {
        /// Name of the run.
        run: String,
        /// Cause.
        cause: String,
    },
    /// Not all of it can be read.
    Problem(String),
    /// What may not be meant.
    Warning(String),
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
    /// A path has no run, or a run cannot be read.
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

/// Exports runs, and reports each, also those that fail: the others are exported all the same.
pub fn export(
    sources: &[SqlRun],
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<(), ExportError> {
    prepare(dataset)?;
    let found = match options.unit {
        ExportUnit::Run => export_runs(sources, dataset, options, report)?,
        ExportUnit::File => {
            let found = export_files(sources, dataset, options, report)?;
            if options.joins() {
                join(sources, dataset, options, report)?;
            }
            found
        }
        ExportUnit::Join => join(sources, dataset, options, report)?,
    };
    match options.choice.runs.first() {
        Some(run) if found == 0 => Err(ExportError::NoSuchRun(run.clone())),
        _ => Ok(()),
    }
}

/// Reports what of an open run could not be read.
fn report_problems(run: &Run, report: &mut dyn FnMut(Progress)) {
    for problem in &run.problems {
        let text = format!("{}: {}", problem.file, problem.reason);
        report(Progress::Problem(text));
    }
    for lost in run.trace.diagnostics() {
        // A file that cannot be read at all is a problem of the run.
        if lost.what.severity() == Severity::DataLoss {
            let file = lost.file.and_then(|file| run.trace.files().get(file));
            let file = file.map_or(run.name.as_str(), |file| &file.spec.path);
            let title = lost.what.title();
            let text = format!("{file}: {title} (count: {})", lost.count);
            report(Progress::Problem(text));
        }
    }
}

/// Reports that a run will be in the dataset under two names.
fn report_same_content(export: &RunExport<'_>, report: &mut dyn FnMut(Progress)) {
    if let Some(other) = export.same_content() {
        report(Progress::Warning(format!(
            "{}: the dataset has a run of the same content under another name ({other}); both count. Export from the \
             same folder each time, with --run to choose: names are relative to it",
            export.name()
        )));
    }
}

/// Exports whole runs; returns how many were found.
fn export_runs(
    sources: &[SqlRun],
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<usize, ExportError> {
    let context = Arc::new(ReadContext::default());
    let threads = runtime().map_err(|error| ExportError::File(dataset.into(), error))?;
    let mut found = 0_usize;
    let mut add = |opened: Opened, path: &Path| {
        found += 1;
        let (name, exported) = match opened {
            Ok(run) => {
                report_problems(&run, report);
                let name = run.name.clone();
                let export = RunExport::new(run, path, dataset, options);
                report_same_content(&export, report);
                (name, threads.block_on(export.write()))
            }
            Err((id, error)) => (id, Err(open_failed(error))),
        };
        report_outcome(name, exported, dataset, report);
    };
    for source in sources {
        match source {
            SqlRun::Path(path) => {
                let visit = &mut |opened| {
                    add(opened, path);
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
                origin,
                ..
            } => match open_listed(path, first_file, &context, options.use_cache) {
                Ok(run) => {
                    let (path, run) = as_found(path, run, origin.as_ref());
                    add(Ok(run), &path);
                }
                Err(error) => add(Err((name.clone(), error)), path),
            },
        }
    }
    Ok(found)
}

/// Reports what was done with a run or a file of one.
fn report_outcome(
    run: String,
    outcome: Result<Progress, ExportError>,
    dataset: &Path,
    report: &mut dyn FnMut(Progress),
) {
    report(outcome.unwrap_or_else(|error| {
        remove_empty(dataset);
        Progress::Failed {
            run,
            cause: error.to_string(),
        }
    }));
}

fn open_failed(error: EngineError) -> ExportError {
    ExportError::Open(Box::new(error))
}

/// Returns the paths among the sources. Runs in object stores are divided by the main program
/// ([`Options::copied`]).
fn paths(sources: &[SqlRun]) -> impl Iterator<Item = &Path> {
    sources.iter().filter_map(|source| match source {
        SqlRun::Path(path) => Some(path.as_path()),
        SqlRun::Listed { .. } => None,
    })
}

/// Exports files of runs; returns how many were found. A run of one file is exported whole.
fn export_files(
    sources: &[SqlRun],
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<usize, ExportError> {
    let context = Arc::new(ReadContext::default());
    let mut found = 0_usize;
    for path in paths(sources) {
        let visit = &mut |file: &RunFile, open: &dyn Fn() -> Opened| {
            found += 1;
            let exported = export_file(file, open, path, dataset, options, report);
            report_outcome(file.run.clone(), exported, dataset, report);
            Ok(())
        };
        open_files(path, &context, options.use_cache, &options.choice, visit)
            .map_err(open_failed)?;
    }
    for copied in &options.copied {
        found += 1;
        if let Err(reason) = &copied.copy {
            // The next attempt may fetch it.
            report(Progress::Failed {
                run: copied.file.run.clone(),
                cause: reason.clone(),
            });
            continue;
        }
        let open = || copied.open(&context, options.use_cache);
        let path = Path::new(&copied.url);
        let exported = export_file(&copied.file, &open, path, dataset, options, report);
        report_outcome(copied.file.run.clone(), exported, dataset, report);
    }
    Ok(found)
}

fn export_file(
    file: &RunFile,
    open: &dyn Fn() -> Opened,
    path: &Path,
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<Progress, ExportError> {
    if part::is_done(file, dataset)? {
        return Ok(Progress::Present {
            run: file.run.clone(),
            file: Some(file.number),
        });
    }
    let threads = runtime().map_err(|error| ExportError::File(dataset.into(), error))?;
    let opened = open();
    if let Ok(run) = &opened {
        report_problems(run, report);
    }
    match opened {
        Ok(run) if file.count == 1 => {
            let export = RunExport::new(run, path, dataset, options);
            report_same_content(&export, report);
            threads.block_on(export.write())
        }
        Err((_, error)) if file.count == 1 => Err(open_failed(error)),
        opened => threads.block_on(part::write(file, opened, dataset, &options.args)),
    }
}

/// Joins the chosen runs of several files; returns how many runs were found.
pub fn join(
    sources: &[SqlRun],
    dataset: &Path,
    options: &Options,
    report: &mut dyn FnMut(Progress),
) -> Result<usize, ExportError> {
    let threads = runtime().map_err(|error| ExportError::File(dataset.into(), error))?;
    let choice = RunChoice {
        runs: options.choice.runs.clone(),
        ..RunChoice::default()
    };
    let mut found = 0;
    let mut join_all = |files: &[RunFile], path: &Path| {
        for run in files.chunk_by(|a, b| a.run_id == b.run_id) {
            found += 1;
            if run.len() > 1 {
                let joined = threads.block_on(join::join(run, path, dataset));
                report_outcome(run[0].run.clone(), joined, dataset, report);
            }
        }
    };
    for path in paths(sources) {
        let files = list_files(path, &choice).map_err(open_failed)?;
        join_all(&files, path);
    }
    for copied in options.copied.chunk_by(|a, b| a.url == b.url) {
        let files: Vec<RunFile> = copied.iter().map(|copied| copied.file.clone()).collect();
        join_all(&files, Path::new(&copied[0].url));
    }
    Ok(found)
}

/// Returns the tables of a dataset with their columns, `runs` last: the run counts from then on.
fn tables() -> Vec<(&'static str, &'static [Column])> {
    let mut tables: Vec<(&'static str, &'static [Column])> = schema_table::all()
        .into_iter()
        .map(|(table, _, columns)| (table, columns))
        .collect();
    tables.retain(|(table, _)| ![TABLE_COLUMNS, SAMPLES].contains(table));
    tables.sort_by_key(|(table, _)| *table == RUNS);
    tables
}

/// What is added to values of a file's tables to make them values of its run's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shift {
    /// To times.
    ps: i64,
    /// To the numbers of tracks.
    tracks: i64,
    /// To the numbers of files.
    files: i64,
}

impl Shift {
    /// Returns the SQL expression of a stored column.
    fn expression(self, column: &Column) -> String {
        let name = column.name;
        let added = match name {
            "track_id" | "parent_track_id" => self.tracks,
            "file" => self.files,
            "shift_ps" => self.ps,
            _ if column.is_time() => self.ps,
            _ => 0,
        };
        match (added, column.kind) {
            (0, _) => name.to_owned(),
            (_, Type::Int) => format!("CAST({name} + {added} AS INT) AS {name}"),
            _ => format!("{name} + ({added}) AS {name}"),
        }
    }
}

/// Returns the query that reads the stored columns of a table; `None` for one that is not asked for.
fn query(table: &str, columns: &[Column], args: &ArgsChoice, shift: Shift) -> Option<String> {
    // The date is part of the path: readers take it from there.
    let stored = columns
        .iter()
        .filter(|column| column.stored && (table, column.name) != (RUNS, DATE));
    let names: Vec<String> = stored.map(|column| shift.expression(column)).collect();
    let sql = format!("SELECT {} FROM {table}", names.join(", "));
    if table != "args" {
        return Some(sql);
    }
    match args {
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
