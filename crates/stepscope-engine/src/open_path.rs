//! Opens the runs at one path, once: for `info`, `report` and `convert`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_model::ReadContext;

use crate::cache::{self, Cache};
use crate::engine::{EngineOptions, open_found};
use crate::error::{EngineError, RunProblem};
use crate::objects;
use crate::recover;
use crate::run::Run;
use crate::scan::{self, ScanResult, Sniffed};
use crate::shard::RunChoice;

/// A run, or the id of a run that could not be opened and the reason.
pub type Opened = Result<Run, (String, EngineError)>;

/// Problems and counts of a scan of the path.
#[derive(Default)]
pub struct PathReport {
    /// Number of runs that were found, opened or not.
    pub runs: usize,
    /// Files and folders that could not be examined.
    pub problems: Vec<RunProblem>,
    /// Files recognised by name that no reader of this version supports.
    pub not_readable: Vec<PathBuf>,
    cache: Option<Cache>,
}

impl PathReport {
    /// Waits until all imports in the cache queue are on disk. For programs that are about to end.
    pub fn flush_cache(&self) {
        if let Some(cache) = &self.cache {
            cache.wait();
        }
    }
}

/// Estimates how many bytes opening everything at `path` will process; 0 if there is no run. For
/// progress bars.
pub fn expected_bytes(path: &Path) -> u64 {
    let sniffed = &mut Sniffed::default();
    let found = if objects::is_url(path) {
        scan::scan_objects(path, sniffed, cache::default_dir().as_deref())
    } else {
        scan::scan(path, EngineOptions::MAX_DEPTH, sniffed)
    };
    found.map_or(0, |found| {
        let each = found.runs.iter().map(crate::open::expected_bytes);
        each.fold(0, u64::saturating_add)
    })
}

/// Finds the runs at `path`, also those that killed programs left. Fails if there is none.
pub(crate) fn scan_runs(path: &Path) -> Result<ScanResult, EngineError> {
    let cache_dir = cache::default_dir();
    let depth = EngineOptions::MAX_DEPTH;
    let found = recover::scan(path, depth, &mut Sniffed::default(), cache_dir.as_deref())?;
    if found.runs.is_empty() {
        let (problems, not_readable) = (&found.problems, &found.not_readable);
        return Err(EngineError::nothing_at(path, problems, not_readable));
    }
    Ok(found)
}

/// Returns the ids of the chosen runs at `path`, each with the number of bytes that opening it will process. Fails if
/// the path has no run, chosen or not.
pub fn list_chosen(path: &Path, choice: &RunChoice) -> Result<Vec<(String, u64)>, EngineError> {
    let found = scan_runs(path)?;
    let chosen = found
        .runs
        .iter()
        .filter(|run| choice.has(&run.id, &run.name));
    let listed = chosen.map(|run| (run.id.clone(), crate::open::expected_bytes(run)));
    Ok(listed.collect())
}

/// Opens the runs at `path` (file or directory), one after another, without a watcher.
///
/// `visit` receives each run, or the reason why it could not be opened, and may drop it before the
/// next is opened. If `visit` returns `Err`, iteration stops with that error. Runs are in the order
/// of their names.
pub fn open_each(
    path: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
    visit: &mut dyn FnMut(Opened) -> Result<(), EngineError>,
) -> Result<PathReport, EngineError> {
    open_chosen(path, context, use_cache, &RunChoice::default(), visit)
}

/// Opens the chosen runs at `path`, else as [`open_each`].
pub fn open_chosen(
    path: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
    choice: &RunChoice,
    visit: &mut dyn FnMut(Opened) -> Result<(), EngineError>,
) -> Result<PathReport, EngineError> {
    let found = scan_runs(path)?;
    let mut report = PathReport {
        runs: found.runs.len(),
        problems: found.problems,
        not_readable: found.not_readable,
        cache: None,
    };
    let cache = cache::default_dir().filter(|_| use_cache).map(Cache::new);
    let chosen = found.runs.iter();
    for run in chosen.filter(|run| choice.has(&run.id, &run.name)) {
        let opened = open_found(run, context, cache.as_ref());
        if let Err(EngineError::Cancelled) = opened {
            return Err(EngineError::Cancelled);
        }
        visit(opened.map_err(|error| (run.id.clone(), error)))?;
    }
    report.cache = cache;
    Ok(report)
}

/// Opens the run at `path` (file or directory) whose first file is `first_file`, without a watcher.
pub fn open_listed(
    path: &Path,
    first_file: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
) -> Result<Run, EngineError> {
    let found = scan_runs(path)?;
    let run = found
        .runs
        .iter()
        .find(|run| run.files.iter().any(|file| file.path == first_file))
        .ok_or_else(|| EngineError::NoSuchRun(first_file.display().to_string()))?;
    let cache = cache::default_dir().filter(|_| use_cache).map(Cache::new);
    let opened = open_found(run, context, cache.as_ref());
    if let Some(cache) = &cache {
        cache.wait();
    }
    opened
}

/// Opens the runs at `path` (file or directory), all at once, without a watcher.
///
/// Files and folders that could not be examined (an unreadable folder, a pipe) are returned as
/// errors with their path.
pub fn open_path(
    path: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
) -> Result<Vec<Opened>, EngineError> {
    let mut runs = Vec::new();
    let report = open_each(path, context, use_cache, &mut |run| {
        runs.push(run);
        Ok(())
    })?;
    report.flush_cache();
    for problem in report.problems {
        runs.push(Err((problem.file.clone(), problem.into())));
    }
    Ok(runs)
}
