//! Recordings of killed programs, as runs.
//!
//! A scan sees the journals that recorders keep in their session's folder. Here each whose writer
//! no longer lives becomes an ordinary file of its session, so that the next scan lists it. A
//! folder that cannot be written is recovered into the cache, and the run is listed from there.

use std::path::{Path, PathBuf};

use stepscope::recover::{RecoveredRun, recover_dir};

use crate::error::{EngineError, RunProblem};
use crate::scan::{self, ScanResult, Sniffed};

/// Recovers what lies below `log_dir`; programs that still run are left alone. What cannot be
/// written there goes to the user's cache directory.
pub fn recover(log_dir: &Path) -> Vec<RecoveredRun> {
    let cache = crate::cache::default_dir().map(|dir| recovered_dir(&dir));
    recover_dir(log_dir, cache.as_deref())
}

fn recovered_dir(cache_dir: &Path) -> PathBuf {
    cache_dir.join("recovered")
}

/// Looks below one path, recovers what killed programs left there, and looks again if that made
/// files. What remains in [`ScanResult::journals`] belongs to programs that still run.
pub(crate) fn scan(
    root: &Path,
    max_depth: usize,
    sniffed: &mut Sniffed,
    cache_dir: Option<&Path>,
) -> Result<ScanResult, EngineError> {
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
