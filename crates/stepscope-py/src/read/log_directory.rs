//! What is at a path: the list of runs, and the opening of one of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;
use stepscope_engine::{Engine, EngineError, EngineOptions};

use super::run::{RunData, problem_line};
use crate::session::exception;

/// How long a Ctrl-C and a change of the progress line wait.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Runs below one path.
#[pyclass(frozen, module = "stepscope._core")]
pub(crate) struct LogDirectory {
    pub(super) engine: Arc<Engine>,
    /// Where the runs were searched.
    #[pyo3(get)]
    path: PathBuf,
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python come as values"
)]
#[pymethods]
impl LogDirectory {
    #[new]
    #[pyo3(signature = (path, *, use_cache))]
    fn new(py: Python<'_>, path: PathBuf, use_cache: bool) -> PyResult<Self> {
        let options = EngineOptions {
            use_cache,
            watch: false,
            ..EngineOptions::new(vec![path.clone()])
        };
        let engine = py
            .detach(|| {
                let engine = Engine::new(options)?;
                if engine.runs().is_empty() {
                    return Err(nothing(&engine, &path));
                }
                Ok(engine)
            })
            .map_err(|error| raised(py, &error))?;
        Ok(Self { engine, path })
    }

    /// Of each run: id, name, kinds, files, size in bytes.
    #[allow(clippy::type_complexity, reason = "one tuple for one private caller")]
    fn runs(&self) -> Vec<(String, String, Vec<String>, Vec<PathBuf>, u64)> {
        let mut runs = self.engine.runs();
        runs.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        runs.into_iter()
            .map(|run| (run.id, run.name, run.kinds, run.files, run.bytes))
            .collect()
    }

    /// What could not be looked at, one sentence each.
    fn problems(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.engine.problems().iter().map(problem_line).collect();
        lines.extend(self.engine.not_readable().iter().map(|file| {
            format!(
                "{}: recognised by its name, but no reader of this version opens it",
                file.display()
            )
        }));
        lines
    }

    /// Opens a run; `tick`, if given, is called with how far it is, 0 to 1.
    fn open(&self, py: Python<'_>, id: String, tick: Option<Py<PyAny>>) -> PyResult<RunData> {
        let (done, mut opened) = sync_channel(1);
        let engine = Arc::clone(&self.engine);
        let name = id.clone();
        let worker = std::thread::Builder::new()
            .name("stepscope-open".to_owned())
            .spawn(move || {
                let _ = done.send(engine.open(&name));
            })?;
        let mut stopped: Option<PyErr> = None;
        loop {
            let receiver = &mut opened;
            match py.detach(move || receiver.recv_timeout(TICK)) {
                Ok(result) => {
                    let _ = py.detach(|| worker.join());
                    if let Some(error) = stopped {
                        return Err(error);
                    }
                    return result.map(RunData::new).map_err(|error| raised(py, &error));
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The reader panicked, which is our fault and not the program's.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(exception(
                        py,
                        "TraceReadError",
                        &format!("{id}: the reader failed; please report it with the file"),
                    ));
                }
            }
            if stopped.is_none()
                && let Err(error) = py
                    .check_signals()
                    .and_then(|()| self.show(py, &id, tick.as_ref()))
            {
                stopped = Some(error);
            }
            if stopped.is_some() {
                // Again each time: it may not have begun yet.
                self.engine.cancel(&id);
            }
        }
    }

    /// Waits until imports that are being kept are on disk.
    fn flush_cache(&self, py: Python<'_>) {
        py.detach(|| self.engine.flush_cache());
    }
}

impl LogDirectory {
    fn show(&self, py: Python<'_>, id: &str, tick: Option<&Py<PyAny>>) -> PyResult<()> {
        if let Some(tick) = tick {
            let done = self.engine.summary(id).map_or(0.0, |run| run.progress);
            tick.call1(py, (done,))?;
        }
        Ok(())
    }
}

/// Why there is no run.
fn nothing(engine: &Engine, path: &std::path::Path) -> EngineError {
    if let Some(problem) = engine.problems().into_iter().next() {
        return problem.into();
    }
    match engine.not_readable().first() {
        Some(file) => EngineError::Unreadable {
            path: file.display().to_string(),
            reason: "recognised by its name, but no reader of this version opens it".to_owned(),
            hint: None,
        },
        None => EngineError::NoTraces(path.display().to_string()),
    }
}

/// The package's exception for an error of the engine.
pub(super) fn raised(py: Python<'_>, error: &EngineError) -> PyErr {
    let class = match error {
        EngineError::NoSuchPath(_) | EngineError::NoTraces(_) => "TraceNotFoundError",
        _ => "TraceReadError",
    };
    let text = match error.hint() {
        Some(hint) => format!("{error}\nhelp: {hint}"),
        None => error.to_string(),
    };
    exception(py, class, &text)
}
