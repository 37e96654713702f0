//! Recovery of runs from the journals of killed programs.
//!
//! A scan finds the journals that recorders write in their session's folder. If the writer of a
//! journal is dead, this module converts the journal to an ordinary file of its session, so that
//! the next scan lists it. If the folder is read-only, the run is recovered into the cache and
//! listed from there.

use std::path::{Path, PathBuf};

use stepscope::recover::{RecoveredRun, recover_dir};

use crate::error::{EngineError, RunProblem};
use crate::objects;
use crate::scan::{self, ScanResult, Sniffed};

/// Recovers journals below `log_dir`, except those of programs that are still running. If a folder
/// is read-only, its run goes to the user's cache directory.
pub fn recover(log_dir: &Path) -> Vec<RecoveredRun> {
    let cache = crate::cache::default_dir().map(|dir| recovered_dir(&dir));
    recover_dir(log_dir, cache.as_deref())
}

fn recovered_dir(cache_dir: &Path) -> PathBuf {
    cache_dir.join("recovered")
}

/// Scans one path, recovers the runs of killed programs, and scans again if that created files. The
/// remaining [`ScanResult::journals`] belong to programs that are still running.
pub(crate) fn scan(
    root: &Path,
    max_depth: usize,
    sniffed: &mut Sniffed,
    cache_dir: Option<&Path>,
) -> Result<ScanResult, EngineError> {
    if objects::is_url(root) {
        return scan::scan_objects(root, sniffed, cache_dir);
    }
    let mut found = scan::scan(root, max_depth, sniffed)?;
    if found.journals.is_empty() {
        return Ok(found);
    }
    let cache = cache_dir.map(recovered_dir);
    let mut problems = Vec::new();
    let mut kept_aside = Vec::new();
    let mut beside = false;
    for session in &found.journals {
        for run in recover_dir(session, cache.as_deref()) {
            match run.file {
                Ok(file) if run.in_cache => kept_aside.push((run.session, file)),
                Ok(_) => beside = true,
                Err(error) => problems.push(RunProblem::new(&run.journal, error.to_string())),
            }
        }
    }
    if beside {
        found = scan::scan(root, max_depth, sniffed)?;
    }
    let stuck = |session: &PathBuf| {
        let path = session.display().to_string();
        kept_aside.iter().any(|(known, _)| known == session)
            || problems
                .iter()
                .any(|problem| problem.file.starts_with(&path))
    };
    found.journals.retain(|session| !stuck(session));
    for (session, file) in &kept_aside {
        found.runs.extend(scan::kept_aside(root, session, file));
    }
    found.problems.extend(problems);
    Ok(found)
}
