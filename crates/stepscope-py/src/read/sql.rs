//! SQL over runs. The SQL engine is another program, which stays for the next query.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stepscope_engine::{
    DATASET_MARK, Engine, EngineError, EngineOptions, RunChoice, RunFile, SqlEngine, SqlError,
    SqlQuery, SqlRun, copied_files, fetch_dataset, is_url, list_files, shown_path,
};
use stepscope_model::{Limits, ReadContext};

use super::log_directory::{LogDirectory, TICK, raised};
use crate::session::exception;

/// Memory that the operators of a query may hold, bytes.
const MEMORY_BYTES: u64 = 2 << 30;

/// Engines without a query, with the process that started them. A static is never dropped: a forked process must not
/// end the engines of its parent. They end when this process does, with their pipes.
static ENGINES: Mutex<Vec<(u32, SqlEngine)>> = Mutex::new(Vec::new());

fn engines() -> std::sync::MutexGuard<'static, Vec<(u32, SqlEngine)>> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an engine of this process, or starts one: the program at a path, or the one that is found.
fn take(program: Option<PathBuf>) -> Result<SqlEngine, SqlError> {
    let own = std::process::id();
    let mut engines = engines();
    while let Some((process, engine)) = engines.pop() {
        if process != own {
            std::mem::forget(engine);
        } else if engine.is_usable() {
            return Ok(engine);
        }
    }
    drop(engines);
    match program {
        Some(path) => SqlEngine::start_at(path, MEMORY_BYTES),
        None => SqlEngine::start(MEMORY_BYTES),
    }
}

/// Returns the folder of a dataset; fetches tables of one in a bucket. `None` if there is no dataset.
fn dataset_at(path: &Path, tables: &BTreeSet<String>) -> Result<Option<PathBuf>, EngineError> {
    if is_url(path) {
        return fetch_dataset(path, tables, &ReadContext::new(Limits::default()));
    }
    let is_dataset = path.join(DATASET_MARK).is_file();
    Ok(is_dataset.then(|| path.to_owned()))
}

/// Returns whether a path or URL is that of a dataset.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "Python passes it so")]
pub(super) fn is_dataset(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    let found = py.detach(|| dataset_at(&path, &BTreeSet::new()));
    match found {
        Ok(found) => Ok(found.is_some()),
        Err(error) => Err(raised(py, &error)),
    }
}

/// Lists the files of the runs at a path or URL. Fetches none.
fn files_at(path: &Path) -> Result<Vec<RunFile>, EngineError> {
    let choice = RunChoice::default();
    if !is_url(path) {
        return list_files(path, &choice);
    }
    let engine = Engine::new(EngineOptions {
        watch: false,
        ..EngineOptions::new(vec![path.to_owned()])
    })?;
    let copied = copied_files(&engine, &choice, false);
    if copied.is_empty() {
        return Err(EngineError::NoTraces(shown_path(path)));
    }
    Ok(copied.into_iter().map(|copied| copied.file).collect())
}

/// Lists the files of the runs at a path: id of the run, number of the file in it, and bytes to read.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "Python passes it so")]
pub(super) fn run_files(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(String, u32, u64)>> {
    let found = py.detach(|| files_at(&path));
    let found = found.map_err(|error| raised(py, &error))?.into_iter();
    let listed = found.map(|file| (file.run_id, file.number, file.bytes));
    Ok(listed.collect())
}

/// Runs a query over runs, each with its directory, id and name in the columns `run`, or over a dataset, on a
/// cluster if one is named; returns the bytes of the answer, whether there are more rows, and what could not be read.
#[pyfunction]
#[pyo3(signature = (runs, sql, *, format, rows, timeout_s, sql_program = None, dataset = None, cluster = None))]
#[allow(clippy::too_many_arguments, reason = "named by the caller")]
pub(super) fn query_sql(
    py: Python<'_>,
    runs: Vec<(Py<LogDirectory>, String, String)>,
    sql: String,
    format: String,
    rows: Option<usize>,
    timeout_s: f64,
    sql_program: Option<PathBuf>,
    dataset: Option<PathBuf>,
    cluster: Option<String>,
) -> PyResult<(Bound<'_, PyBytes>, bool, Vec<String>)> {
    let failed = |error: SqlError| exception(py, "QueryError", &error.to_string());
    let mut use_cache = true;
    let mut listed: Vec<SqlRun> = Vec::new();
    for (directory, id, name) in runs {
        let engine = Arc::clone(&directory.get().engine);
        use_cache &= engine.options().use_cache;
        let run = py.detach(|| engine.sql_run(&id, &name));
        listed.push(run.map_err(|error| match error {
            EngineError::NoSuchRun(_) => {
                let text = format!("cannot find the run '{name}': its files are gone");
                exception(py, "QueryError", &text)
            }
            error => raised(py, &error),
        })?);
    }
    let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or(Duration::MAX);
    let mut engine = py.detach(|| take(sql_program)).map_err(failed)?;
    if let Some(dataset) = dataset {
        let tables = engine.tables_of(Some(&sql)).map_err(failed)?;
        let folder = py.detach(|| dataset_at(&dataset, &tables));
        let folder = folder.map_err(|error| raised(py, &error))?;
        listed.push(SqlRun::Path(folder.unwrap_or(dataset)));
    }
    let stop = engine.stopper();
    let (sender, mut receiver) = sync_channel(1);
    std::thread::Builder::new()
        .name("stepscope-sql".to_owned())
        .spawn(move || {
            let query = SqlQuery {
                runs: &listed,
                sql: &sql,
                format: &format,
                rows: rows.unwrap_or(usize::MAX),
                bytes: u64::MAX,
                timeout,
                width: None,
                use_cache,
                cluster: cluster.as_deref(),
            };
            let result = engine.collect(&query, usize::MAX);
            if engine.is_usable() {
                engines().push((std::process::id(), engine));
            }
            let _ = sender.send(result);
        })?;
    let mut interrupted: Option<PyErr> = None;
    loop {
        let waiting = &mut receiver;
        match py.detach(move || waiting.recv_timeout(TICK)) {
            Ok(result) => {
                return match interrupted {
                    Some(error) => Err(error),
                    None => result
                        .map(|(bytes, answer)| {
                            let bytes = PyBytes::new(py, &bytes);
                            (bytes, answer.truncated, answer.problems)
                        })
                        .map_err(failed),
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(
                    py,
                    "QueryError",
                    "cannot run the query: it broke off",
                ));
            }
        }
        if interrupted.is_none()
            && let Err(error) = py.check_signals()
        {
            interrupted = Some(error);
            stop.stop();
        }
    }
}
