//! Opens a run that a scan found.

use std::sync::Arc;

use stepscope_model::{Limits, ReadContext, Severity};
use stepscope_store::Trace;

use crate::cache::{self, Cache, CacheEntry};
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
    let (mut imported, is_cached) = load_or_import(found, context, cache)?;
    let problems = imported.problems.clone();
    for file in &found.execution_traces {
        let alone = found.of_execution_trace(file);
        match load_or_import(&alone, context, cache) {
            Ok((execution_trace, is_cached)) => {
                let kept = entry_of(execution_trace);
                imported.problems.extend(kept.problems.iter().cloned());
                imported.problems.extend(losses(&alone, &kept.trace));
                imported.trace.attach(Arc::clone(&kept.trace));
                if !is_cached {
                    store(&alone, kept, context, cache);
                }
            }
            Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
            Err(error) => imported.problems.push(run::problem_of(&alone, &error)),
        }
    }
    let files = imported.files.clone();
    let made = make_run(found, imported, &limits, is_cached);
    if !is_cached {
        let kept = CacheEntry {
            trace: Arc::clone(&made.trace),
            content_hash: made.content_hash.clone(),
            problems,
            files,
        };
        store(found, kept, context, cache);
    }
    Ok(made)
}

/// Reads a run from the cache if an entry matches, otherwise from its files; also returns whether it was cached.
fn load_or_import(
    found: &FoundRun,
    context: &Arc<ReadContext>,
    cache: Option<&Cache>,
) -> Result<(Imported, bool), EngineError> {
    if let Some(kept) = cache.and_then(|cache| cache.load(found, &context.limits)) {
        return Ok((kept, true));
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
    Ok((imported, false))
}

/// Returns what was lost of an execution trace: its own diagnostics are not those of the run.
fn losses(alone: &FoundRun, trace: &Trace) -> Vec<RunProblem> {
    let lost = trace.diagnostics().iter();
    let lost = lost.filter(|found| found.what.severity() > Severity::Notice);
    let path = &alone.files[0].path;
    lost.map(|found| {
        let detail = found.details.first().map_or("", String::as_str);
        RunProblem::new(path, format!("{}: {detail}", found.what.title()))
    })
    .collect()
}

fn entry_of(imported: Imported) -> CacheEntry {
    CacheEntry {
        trace: Arc::new(imported.trace),
        content_hash: imported.content_hash,
        problems: imported.problems,
        files: imported.files,
    }
}

/// Caches a run, unless it is small or its files changed while they were read.
fn store(found: &FoundRun, kept: CacheEntry, context: &ReadContext, cache: Option<&Cache>) {
    let stamps_hold = kept
        .files
        .iter()
        .zip(&found.files)
        .all(|(now, then)| now.stamp == then.stamp);
    if let Some(cache) = cache
        && context.read_bytes().max(found.bytes()) >= cache::MIN_BYTES
        && stamps_hold
    {
        cache.store(found, &context.limits, kept);
    }
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
