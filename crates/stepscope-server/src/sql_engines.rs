//! The SQL engines of a server: programs that are started at the first query, answer one query at a time, stay for the
//! next one, and end when none comes.
//!
//! A query that exhausts its engine's memory ends that process, and neither the server nor another query.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepscope_engine::{SqlEngine, SqlError, SqlStop};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use crate::options::ViewerOptions;
use crate::problem::Problem;

/// Maximum number of queries that run at once, each in an engine of its own.
const RUNNING: usize = 2;
/// Maximum number of queries that wait for an engine.
const WAITING: usize = 16;

/// The engines of one server.
pub(crate) struct SqlEngines {
    program: Option<PathBuf>,
    memory_bytes: u64,
    idle: Duration,
    /// Held by queries that run or wait.
    admitted: Arc<Semaphore>,
    running: Arc<Semaphore>,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    /// Engines without a query, and since when.
    engines: Vec<(Instant, SqlEngine)>,
    /// Whether a task ends them in time.
    is_watched: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SqlEngines {
    /// Starts nothing yet.
    pub(crate) fn new(options: &ViewerOptions) -> Self {
        Self {
            program: options.sql_program.clone(),
            memory_bytes: options.sql_memory_bytes,
            idle: options.sql_idle,
            admitted: Arc::new(Semaphore::new(RUNNING + WAITING)),
            running: Arc::new(Semaphore::new(RUNNING)),
            ready: Mutex::default(),
        }
    }

    /// Passes an engine to `work` on a blocking thread. When the returned future is dropped, the engine is ended.
    pub(crate) async fn with_engine<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut SqlEngine) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, Problem> {
        let Ok(admitted) = Arc::clone(&self.admitted).try_acquire_owned() else {
            return Err(Problem::sql_busy());
        };
        let running = Arc::clone(&self.running).acquire_owned().await;
        let client = StopEngineOnDrop::default();
        let (engines, stop) = (Arc::clone(self), client.0.clone());
        let result = tokio::task::spawn_blocking(move || {
            let _permits = (admitted, running);
            let mut engine = engines.take()?;
            let result = if stop.arm(engine.stopper()) {
                work(&mut engine)
            } else {
                // The client left while the engine started.
                Err(SqlError::Ended("the request was cancelled".to_owned()))
            };
            stop.disarm();
            if engine.is_usable() {
                lock(&engines.ready).engines.push((Instant::now(), engine));
            }
            result
        });
        let result = result.await;
        self.watch();
        match result {
            Ok(result) => result.map_err(|error| Problem::sql(&error)),
            Err(error) => Err(Problem::internal(error.to_string())),
        }
    }

    /// Returns the engine that was used last, or starts one.
    fn take(&self) -> Result<SqlEngine, SqlError> {
        loop {
            let ready = lock(&self.ready).engines.pop();
            match ready {
                Some((_, engine)) if engine.is_usable() => return Ok(engine),
                Some(_) => {}
                None => break,
            }
        }
        match &self.program {
            Some(path) => SqlEngine::start_at(path.clone(), self.memory_bytes),
            None => SqlEngine::start(self.memory_bytes),
        }
    }

    /// Ends engines that stay without a query, from a task that ends with the last of them.
    fn watch(self: &Arc<Self>) {
        {
            let mut ready = lock(&self.ready);
            if ready.is_watched || ready.engines.is_empty() {
                return;
            }
            ready.is_watched = true;
        }
        let engines = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(next) = engines.upgrade().and_then(|engines| engines.end_idle()) {
                sleep_until(next).await;
            }
        });
    }

    /// Ends the engines whose time is over; returns when the next one's is.
    fn end_idle(&self) -> Option<Instant> {
        let mut ready = lock(&self.ready);
        let now = Instant::now();
        ready
            .engines
            .retain(|(since, _)| now.duration_since(*since) < self.idle);
        let oldest = ready.engines.iter().map(|(since, _)| *since).min();
        ready.is_watched = oldest.is_some();
        Some(oldest? + self.idle)
    }
}

/// Whether the client has left, and what ends the engine that works for it.
#[derive(Clone, Default)]
struct EngineStop(Arc<Mutex<(bool, Option<SqlStop>)>>);

impl EngineStop {
    /// Returns false if the client has left already.
    fn arm(&self, stop: SqlStop) -> bool {
        let mut state = lock(&self.0);
        state.1 = Some(stop);
        !state.0
    }

    fn disarm(&self) {
        lock(&self.0).1 = None;
    }
}

/// Ends the engine when the request is dropped because the connection closed.
#[derive(Default)]
struct StopEngineOnDrop(EngineStop);

impl Drop for StopEngineOnDrop {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.0 = true;
        if let Some(stop) = state.1.take() {
            stop.stop();
        }
    }
}
