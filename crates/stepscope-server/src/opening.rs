//! Opening runs: one import per run, however many requests wait for it.
//!
//! An import goes on when the clients that asked for it have gone: the next one will want it.
//! Imports run on threads of tokio's blocking pool, two at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stepscope_engine::{Engine, EngineError, Run};
use tokio::sync::{Semaphore, watch};

use crate::problem::Problem;
use crate::view::{RunView, Views};

/// Runs that are imported at the same time.
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
    /// `build` tells apart builds of the program that may answer differently.
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

    /// The engine behind the runs.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The run's view, once it is open. May take a while: the first time, columns are scanned.
    pub(crate) fn view(&self, run: Arc<Run>) -> RunView {
        self.views.view(run, &self.build)
    }

    /// Remembers what an import is doing.
    pub(crate) fn set_phase(&self, id: &str, phase: &'static str) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.insert(id.to_owned(), phase);
    }

    /// What the run's import is doing.
    pub(crate) fn phase(&self, id: &str) -> Option<&'static str> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.get(id).copied()
    }

    /// The opened run; waits for its import. A run that does not exist is a problem at once.
    pub(crate) async fn open(self: &Arc<Self>, id: &str) -> Result<Arc<Run>, Problem> {
        if let Some(run) = self.engine.opened(id) {
            return Ok(run);
        }
        let mut outcome = self.start(id)?;
        let done = outcome.wait_for(Option::is_some).await;
        let result = match done {
            Ok(result) => result.clone(),
            Err(_) => None, // the import ended without a word: it panicked
        };
        match result {
            Some(Ok(run)) => Ok(run),
            Some(Err(error)) => Err(self.problem(id, &error)),
            None => Err(Problem::internal("the import of this run broke off")),
        }
    }

    /// Starts the run's import unless it is under way. A run that does not exist is a problem.
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
            // Forgotten before it is told: whoever asks now finds an opened run, or tries again.
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

    /// Whether the run's import is under way.
    pub(crate) fn is_opening(&self, id: &str) -> bool {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.contains_key(id)
    }

    /// Why the run could not be opened: what the engine remembers knows more than the error.
    pub(crate) fn problem(&self, id: &str, error: &EngineError) -> Problem {
        match self.engine.summary(id).and_then(|summary| summary.error) {
            Some(problem) => Problem::unreadable_run(&problem),
            None => Problem::unreadable(error),
        }
    }
}
