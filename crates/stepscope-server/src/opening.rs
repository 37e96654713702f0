//! Opens runs: one import per run, shared by all requests that wait for it.
//!
//! An import continues when its clients disconnect: the next request will need it. Imports run on
//! threads of tokio's blocking pool, two at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stepscope_engine::{Engine, EngineError, Run};
use tokio::sync::{Semaphore, watch};

use crate::problem::Problem;
use crate::view::{RunView, Views};

/// Maximum number of simultaneous imports.
const IMPORTS: usize = 2;

/// `None` while the import runs.
type Outcome = Option<Result<Arc<Run>, EngineError>>;

/// The runs of one server.
pub(crate) struct Runs {
    engine: Arc<Engine>,
    views: Views,
    build: String,
    opening: Mutex<HashMap<String, watch::Receiver<Outcome>>>,
    phases: Mutex<HashMap<String, &'static str>>,
    permits: Semaphore,
}

impl Runs {
    /// Creates the list; `build` identifies the build of the program, whose responses may differ.
    pub(crate) fn new(engine: Arc<Engine>, build: String) -> Self {
        Self {
            engine,
            views: Views::default(),
            build,
            opening: Mutex::default(),
            phases: Mutex::default(),
            permits: Semaphore::new(IMPORTS),
        }
    }

    /// Returns the engine.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the view of an opened run. The first call scans columns and may take a while.
    pub(crate) fn view(&self, run: Arc<Run>) -> RunView {
        self.views.view(run, &self.build)
    }

    /// Stores the phase of an import.
    pub(crate) fn set_phase(&self, id: &str, phase: &'static str) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.insert(id.to_owned(), phase);
    }

    /// Returns the phase of the run's import.
    pub(crate) fn phase(&self, id: &str) -> Option<&'static str> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.get(id).copied()
    }

    /// Opens the run and waits for its import.
    ///
    /// # Errors
    ///
    /// Returns immediately if the run does not exist.
    pub(crate) async fn open(self: &Arc<Self>, id: &str) -> Result<Arc<Run>, Problem> {
        if let Some(run) = self.engine.opened(id) {
            return Ok(run);
        }
        let mut outcome = self.start(id)?;
        let done = outcome.wait_for(Option::is_some).await;
        let result = match done {
            Ok(result) => result.clone(),
            Err(_) => None, // the import ended without a result: it panicked
        };
        match result {
            Some(Ok(run)) => Ok(run),
            Some(Err(error)) => Err(self.problem(id, &error)),
            None => Err(Problem::internal("the import of this run broke off")),
        }
    }

    /// Starts the run's import unless it is running. Fails if the run does not exist.
    pub(crate) fn start(self: &Arc<Self>, id: &str) -> Result<watch::Receiver<Outcome>, Problem> {
        if self.engine.summary(id).is_none() {
            return Err(Problem::no_such_run());
        }
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = opening.get(id) {
            return Ok(outcome.clone());
        }
        let (sender, receiver) = watch::channel(None);
        opening.insert(id.to_owned(), receiver.clone());
        drop(opening);
        let (runs, id) = (Arc::clone(self), id.to_owned());
        tokio::spawn(async move {
            let _permit = runs.permits.acquire().await;
            let (importing, name) = (Arc::clone(&runs), id.clone());
            let result = tokio::task::spawn_blocking(move || {
                let run = importing.engine.open(&name)?;
                importing.view(Arc::clone(&run));
                Ok(run)
            });
            let result = result.await;
            // Removed before the result is sent: a later request finds an opened run, or tries
            // again.
            runs.forget(&id);
            if let Ok(result) = result {
                sender.send_replace(Some(result));
            }
        });
        Ok(receiver)
    }

    fn forget(&self, id: &str) {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.remove(id);
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.remove(id);
    }

    /// Returns whether the run's import is in progress.
    pub(crate) fn is_opening(&self, id: &str) -> bool {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.contains_key(id)
    }

    /// Returns the problem of a run that cannot be opened. The engine's record has more details
    /// than the error.
    pub(crate) fn problem(&self, id: &str, error: &EngineError) -> Problem {
        match self.engine.summary(id).and_then(|summary| summary.error) {
            Some(problem) => Problem::unreadable_run(&problem),
            None => Problem::unreadable(error),
        }
    }
}
