//! Opens a run that a scan found.

use std::sync::Arc;

use stepscope_model::{Limits, ReadContext};
use stepscope_store::Trace;

use crate::cache::{self, Cache};
use crate::error::{EngineError, RunProblem};
use crate::found_run::FoundRun;
use crate::objects;
use crate::open::{self, Imported};
use crate::programs::{self, ProgramFiles};
use crate::run::{self, Run};

/// Opens a run from the cache if an entry matches, otherwise from its files.
pub(crate) fn open_found(
    found: &FoundRun,
    context: &Arc<ReadContext>,
    cache: Option<&Cache>,
) -> Result<Run, EngineError> {
    let limits = context.limits;
    if found.is_programs_only() {
        objects::fetch(&found.programs, context)?;
        return Ok(make_run(found, programs::import(found)?, &limits, false));
    }
    if let Some(kept) = cache.and_then(|cache| cache.load(found, &limits)) {
        return Ok(make_run(found, kept, &limits, true));
    }
    objects::fetch(&found.files, context)?;
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
    let made = make_run(found, imported, &limits, false);
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

fn make_run(found: &FoundRun, imported: Imported, limits: &Limits, from_cache: bool) -> Run {
    let mut trace = imported.trace;
    if !found.programs.is_empty() {
        let sources = trace.sources().to_vec();
        let programs = ProgramFiles::new(found.programs.clone(), *limits, sources);
        trace.add_programs(Arc::new(programs));
    }
    let trace: Arc<Trace> = Arc::new(trace);
    Run {
        id: found.id.clone(),
        name: found.name.clone(),
        kinds: open::kinds(&trace, &found.kinds),
        trace,
        content_hash: imported.content_hash,
        problems: imported.problems,
        from_cache,
        files: found.paths(),
        companions: found.companions.clone(),
        steps: std::sync::OnceLock::new(),
        reports: run::ReportCache::default(),
    }
}
