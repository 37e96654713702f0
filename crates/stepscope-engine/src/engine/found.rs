//! Opens a run that a scan found.

use std::sync::Arc;

use stepscope_model::ReadContext;
use stepscope_store::Trace;

use crate::cache::{self, Cache};
use crate::error::{EngineError, RunProblem};
use crate::found_run::FoundRun;
use crate::open::{self, Imported};
use crate::run::{self, Run};

/// Opens a run from the cache if an entry matches, otherwise from its files.
pub(crate) fn open_found(
    found: &FoundRun,
    context: &Arc<ReadContext>,
    cache: Option<&Cache>,
) -> Result<Run, EngineError> {
    let limits = context.limits;
    if let Some(kept) = cache.and_then(|cache| cache.load(found, &limits)) {
        return Ok(make_run(found, kept, true));
    }
    // A reader that panics is a bug in stepscope; the server and its other runs must survive it.
    let read = std::panic::AssertUnwindSafe(|| open::import(found, context));
    let imported = std::panic::catch_unwind(read).unwrap_or_else(|_| {
        let path = &found.files[0].path;
        let mut problem = RunProblem::new(path, "stepscope failed while reading it: this is a bug");
        problem.hint = Some("please report it, with the file if you can".to_owned());
        Err(problem.into())
    })?;
    let files = imported.files.clone();
    let stamps_hold = files
        .iter()
        .zip(&found.files)
        .all(|(now, then)| now.stamp == then.stamp);
    let made = make_run(found, imported, false);
    if let Some(cache) = cache
        && context.read_bytes().max(found.bytes()) >= cache::MIN_BYTES
        && stamps_hold
    {
        let kept = cache::CacheEntry {
            trace: Arc::clone(&made.trace),
            content_hash: made.content_hash.clone(),
            problems: made.problems.clone(),
            files,
        };
        cache.store(found, &limits, kept);
    }
    Ok(made)
}

fn make_run(found: &FoundRun, imported: Imported, from_cache: bool) -> Run {
    let trace: Arc<Trace> = Arc::new(imported.trace);
    Run {
        id: found.id.clone(),
        name: found.name.clone(),
        kinds: open::kinds(&trace, &found.kinds),
        trace,
        content_hash: imported.content_hash,
        problems: imported.problems,
        from_cache,
        files: found.files.iter().map(|file| file.path.clone()).collect(),
        companions: found.companions.clone(),
        steps: std::sync::OnceLock::new(),
        reports: run::ReportCache::default(),
    }
}
