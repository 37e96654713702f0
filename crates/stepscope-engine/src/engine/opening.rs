//! Opens runs: the state of a run between listed and open, and the runs that stay open.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use stepscope_model::ReadContext;

use super::{Engine, EngineEvent, Entry, held, open_found};
use crate::error::EngineError;
use crate::found_run::FoundRun;
use crate::open;
use crate::run::{self, Run, RunState, RunSummary};

/// Memory limit for the columns of opened runs; the run just opened always stays open.
const OPENED_BYTES: usize = 4 << 30;
/// Maximum number of opened runs.
const OPENED_RUNS: usize = 32;

/// State of one run between listed and open; shared by all threads that wait for it.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) phase: Mutex<Phase>,
    changed: Condvar,
}

impl Slot {
    /// Cancels the import if one is in progress.
    pub(super) fn cancel(&self) {
        if let Phase::Importing(import) = &*held(&self.phase) {
            import.context.cancel();
        }
    }
}

/// How far the opening of a run is.
#[derive(Default)]
pub(super) enum Phase {
    #[default]
    Listed,
    Importing(Arc<Import>),
    Ready(Arc<Run>),
    Failed(EngineError),
}

/// A running import.
pub(super) struct Import {
    context: Arc<ReadContext>,
    expected_bytes: u64,
}

impl Import {
    fn done(&self) -> f64 {
        let read = self.context.read_bytes() as f64 / self.expected_bytes.max(1) as f64;
        // The remaining share is for indexing. An estimate that was too low must not exceed 0.9.
        read.min(1.0) * 0.9
    }
}

impl Entry {
    /// Returns the summary with the current state and progress.
    pub(super) fn summary(&self) -> RunSummary {
        let mut summary = self.summary.clone();
        match &*held(&self.slot.phase) {
            Phase::Listed => {
                summary.state = RunState::Listed;
                summary.progress = 0.0;
            }
            Phase::Importing(import) => {
                summary.state = RunState::Importing;
                summary.progress = import.done();
            }
            Phase::Ready(run) => {
                summary.state = run::state_of(run);
                summary.progress = 1.0;
            }
            Phase::Failed(error) => {
                summary.state = RunState::Error;
                summary.error = Some(run::problem_of(&self.found, error));
            }
        }
        summary
    }
}

impl Engine {
    /// Returns the run if it is already open.
    pub fn opened(&self, id: &str) -> Option<Arc<Run>> {
        let (slot, _) = self.use_run(id)?;
        match &*held(&slot.phase) {
            Phase::Ready(run) if !run.trace.is_damaged() => Some(Arc::clone(run)),
            _ => None,
        }
    }

    /// Opens the run. Blocks; concurrent callers share one import. Opened runs are kept in an LRU.
    /// A failed run is tried again.
    pub fn open(&self, id: &str) -> Result<Arc<Run>, EngineError> {
        let (slot, found) = self
            .use_run(id)
            .ok_or_else(|| EngineError::NoSuchRun(id.to_owned()))?;
        let mut phase = held(&slot.phase);
        if let Phase::Importing(_) = &*phase {
            while let Phase::Importing(_) = &*phase {
                phase = slot
                    .changed
                    .wait(phase)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            return match &*phase {
                Phase::Ready(run) => Ok(Arc::clone(run)),
                Phase::Failed(error) => Err(error.clone()),
                // Another thread cancelled the import.
                _ => Err(EngineError::Cancelled),
            };
        }
        // A cached import that turned out to be damaged is replaced from the files.
        if let Phase::Ready(run) = &*phase
            && !run.trace.is_damaged()
        {
            return Ok(Arc::clone(run));
        }
        let import = Arc::new(Import {
            context: Arc::new(ReadContext::new(self.options.limits)),
            expected_bytes: open::expected_bytes(&found),
        });
        *phase = Phase::Importing(Arc::clone(&import));
        drop(phase);

        let outcome = self.import(&found, &import);
        *held(&slot.phase) = match &outcome {
            Ok(run) => Phase::Ready(Arc::clone(run)),
            Err(EngineError::Cancelled) => Phase::Listed,
            Err(error) => Phase::Failed(error.clone()),
        };
        slot.changed.notify_all();
        self.opened_now(&found, &slot, &outcome);
        outcome
    }

    fn import(&self, found: &FoundRun, import: &Import) -> Result<Arc<Run>, EngineError> {
        let (finish, finished) = sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let ticker = std::thread::Builder::new().name("stepscope-progress".to_owned());
            let _ = ticker.spawn_scoped(scope, move || {
                while finished.recv_timeout(Duration::from_millis(250))
                    == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    let done = import.done();
                    self.publish(&EngineEvent::Progress {
                        run: found.id.clone(),
                        phase: if done < 0.9 { "Reading" } else { "Indexing" },
                        done,
                    });
                }
            });
            let run = open_found(found, &import.context, self.cache.as_ref()).map(Arc::new);
            drop(finish);
            run
        })
    }

    /// Completes the summary, notifies subscribers, and closes the least recently used runs.
    fn opened_now(
        &self,
        found: &FoundRun,
        slot: &Arc<Slot>,
        outcome: &Result<Arc<Run>, EngineError>,
    ) {
        if let Ok(opened) = outcome {
            let summary = run::summary_of(found, opened);
            let mut state = held(&self.state);
            // The run may have changed or disappeared meanwhile.
            let entry = state
                .runs
                .iter_mut()
                .find(|entry| Arc::ptr_eq(&entry.slot, slot));
            if let Some(entry) = entry {
                entry.summary = summary;
            }
            drop(state);
            self.publish(&EngineEvent::Progress {
                run: found.id.clone(),
                phase: "Ready",
                done: 1.0,
            });
            for warning in opened.trace.diagnostics() {
                self.publish(&EngineEvent::Warning {
                    run: found.id.clone(),
                    what: warning.what,
                    detail: warning.details.first().cloned().unwrap_or_default(),
                });
            }
        }
        self.publish(&EngineEvent::RunChanged(found.id.clone()));
        self.forget_oldest(slot);
    }

    fn forget_oldest(&self, newest: &Arc<Slot>) {
        let mut open: Vec<(u64, usize, Arc<Slot>)> = Vec::new();
        for entry in &held(&self.state).runs {
            if let Phase::Ready(run) = &*held(&entry.slot.phase) {
                open.push((entry.used, run.trace.heap_bytes(), Arc::clone(&entry.slot)));
            }
        }
        open.sort_by_key(|entry| entry.0);
        let mut bytes: usize = open.iter().map(|entry| entry.1).sum();
        let mut count = open.len();
        for (_, run_bytes, slot) in open {
            if bytes <= OPENED_BYTES && count <= OPENED_RUNS {
                return;
            }
            if Arc::ptr_eq(&slot, newest) {
                continue;
            }
            let mut phase = held(&slot.phase);
            if let Phase::Ready(_) = &*phase {
                *phase = Phase::Listed;
                bytes -= run_bytes;
                count -= 1;
            }
        }
    }

    /// Cancels the import of a run if one is in progress.
    pub fn cancel(&self, id: &str) {
        if let Some((slot, _)) = self.use_run(id) {
            slot.cancel();
        }
    }
}
