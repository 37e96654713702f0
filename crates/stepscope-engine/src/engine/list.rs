//! What is learnt of runs before anybody opens them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepscope_formats::detect;
use stepscope_model::ReadContext;

use super::{Engine, EngineEvent, Entry, Phase, held, open_found};
use crate::error::{EngineError, RunProblem};
use crate::files::head::head_of;
use crate::found_run::FoundRun;
use crate::recover;
use crate::run;

/// Of larger runs only the first bytes are looked at before somebody opens them.
const LIST_BYTES: u64 = 32 << 20;
/// How long [`Engine::fill_list`] waits when there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

impl Engine {
    /// Fills in the list in the background, until the engine is dropped: what only the content
    /// tells (badges, devices, steps, length, that it is no trace) of runs up to 32 MiB that nobody
    /// has opened, newest first, one at a time and for at most half of the time. Of larger ones the
    /// first bytes tell whether they are traces. The runs stay closed.
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
        // Without the thread the rows fill in when runs are opened.
        let _ = std::thread::Builder::new()
            .name("stepscope-list".to_owned())
            .spawn(work);
    }

    /// `false` when there is nothing left to look into.
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

    /// Why files that were named one by one cannot be opened, as far as it is known by now: with
    /// [`Engine::fill_list`] soon after the begin, and whenever a run changes. What lies in
    /// directories tells it in its row of the list.
    pub fn refusals(&self) -> Vec<EngineError> {
        let roots = held(&self.state).roots.clone();
        let named = roots.iter().filter(|root| !root.is_dir());
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
            // The same file named twice is one run.
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

/// Whether the first bytes of a run of one file are those of a trace.
fn recognised(run: &FoundRun) -> Result<(), EngineError> {
    let [file] = &run.files[..] else {
        return Ok(());
    };
    // What cannot be read, or not inflated from its begin, says so when it is opened.
    let head = head_of(&file.path, file.place.as_ref(), detect::PREFIX_BYTES).unwrap_or_default();
    if head.is_empty() {
        return Ok(());
    }
    match detect::detect(&head, &file.name) {
        Ok(_) => Ok(()),
        Err(error) => Err(RunProblem::from_format_error(&file.path, &error).into()),
    }
}
