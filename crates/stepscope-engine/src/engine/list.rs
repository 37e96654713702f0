//! Fills in the summaries of runs in the background, before they are opened.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepscope_formats::detect;
use stepscope_model::ReadContext;

use super::opening::Phase;
use super::{Engine, EngineEvent, Entry, held, open_found};
use crate::error::{EngineError, RunProblem};
use crate::files::head::head_of;
use crate::found_run::FoundRun;
use crate::objects;
use crate::recover;
use crate::run::{self, RunSummary};

/// For larger runs, only the first bytes are read before a user opens them.
const LIST_BYTES: u64 = 32 << 20;
/// Sleep time of [`Engine::fill_list`] when all runs are processed.
const IDLE: Duration = Duration::from_secs(1);

impl Engine {
    /// Starts a thread that fills in the list until the engine is dropped: the data that only the
    /// content shows (badges, devices, steps, length, whether it is a trace). It reads runs up to
    /// 32 MiB that are not open, newest first, one at a time and for at most half of the time. For
    /// larger runs it checks the first bytes only, and of runs in object storage nothing. The runs stay closed.
    pub fn fill_list(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let work = move || {
            while let Some(engine) = weak.upgrade() {
                let begun = Instant::now();
                let looked = engine.look_into_next();
                drop(engine);
                std::thread::sleep(if looked { begun.elapsed() } else { IDLE });
            }
        };
        // If the thread cannot start, the rows are filled in when runs are opened.
        let _ = std::thread::Builder::new()
            .name("stepscope-list".to_owned())
            .spawn(work);
    }

    /// Returns the id of the run that has one of these local files, which were written just now: scans first.
    pub fn run_with_file<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Option<String> {
        let real = |path: &Path| path.canonicalize().ok();
        let wanted: Vec<_> = files.into_iter().filter_map(real).collect();
        if wanted.is_empty() {
            return None;
        }
        self.rescan();
        let has_one = |run: &RunSummary| {
            let mut files = run.files.iter().filter_map(|file| real(file));
            files.any(|file| wanted.contains(&file))
        };
        self.runs().into_iter().find(has_one).map(|run| run.id)
    }

    /// Processes the next run; returns `false` if none is left.
    fn look_into_next(&self) -> bool {
        let next = {
            let mut state = held(&self.state);
            let is_next = |entry: &&mut Entry| {
                !entry.looked_into && matches!(*held(&entry.slot.phase), Phase::Listed)
            };
            state.runs.iter_mut().find(is_next).map(|entry| {
                entry.looked_into = true;
                (Arc::clone(&entry.found), Arc::clone(&entry.slot))
            })
        };
        let Some((found, slot)) = next else {
            return false;
        };
        // Not every object of a bucket is fetched.
        if !found.is_local() {
            return true;
        }
        let outcome = if found.bytes() <= LIST_BYTES {
            let context = Arc::new(ReadContext::new(self.options.limits));
            open_found(&found, &context, self.cache.as_ref()).map(Some)
        } else {
            recognised(&found).map(|()| None)
        };
        let mut state = held(&self.state);
        let entry = state
            .runs
            .iter_mut()
            .find(|entry| Arc::ptr_eq(&entry.slot, &slot));
        let Some(entry) = entry else {
            return true;
        };
        match outcome {
            Ok(Some(run)) => entry.summary = run::summary_of(&found, &run),
            Ok(None) => return true,
            Err(error) => {
                let mut phase = held(&slot.phase);
                if let Phase::Listed = *phase {
                    *phase = Phase::Failed(error);
                }
            }
        }
        drop(state);
        self.publish(&EngineEvent::RunChanged(found.id.clone()));
        true
    }

    /// Returns the known reasons why files that were given one by one cannot be opened.
    /// [`Engine::fill_list`] makes them known soon after the start, and whenever a run changes.
    /// Errors of runs in directories are in their row of the list.
    pub fn refusals(&self) -> Vec<EngineError> {
        let roots = held(&self.state).roots.clone();
        let named = roots
            .iter()
            .filter(|root| !root.is_dir() && !objects::is_url(root));
        named.filter_map(|file| self.refusal(file)).collect()
    }

    fn refusal(&self, file: &Path) -> Option<EngineError> {
        let slot = {
            let state = held(&self.state);
            let mut runs = state.runs.iter();
            let own = runs.find(|entry| entry.found.files.iter().any(|one| one.path == file));
            own.map(|entry| Arc::clone(&entry.slot))
        };
        if let Some(slot) = slot {
            return match &*held(&slot.phase) {
                Phase::Failed(error) => Some(error.clone()),
                _ => None,
            };
        }
        let cache_dir = self.cache_dir.as_deref();
        match recover::scan(file, 1, &mut held(&self.sniffed), cache_dir) {
            // The same file given twice is one run.
            Ok(found) if !found.runs.is_empty() => None,
            Ok(found) => Some(EngineError::nothing_at(
                file,
                &found.problems,
                &found.not_readable,
            )),
            Err(error) => Some(error),
        }
    }
}

/// Checks whether the first bytes of a run of one file are those of a trace.
fn recognised(run: &FoundRun) -> Result<(), EngineError> {
    let [file] = &run.files[..] else {
        return Ok(());
    };
    // An unreadable or damaged file reports its error when it is opened.
    let head = head_of(&file.path, file.place.as_ref(), detect::PREFIX_BYTES).unwrap_or_default();
    if head.is_empty() {
        return Ok(());
    }
    match detect::detect(&head, &file.name) {
        Ok(_) => Ok(()),
        Err(error) => Err(RunProblem::from_format_error(&file.path, &error).into()),
    }
}
