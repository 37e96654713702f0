//! Critical paths of open runs, kept for the next requests.

use std::sync::{Arc, Mutex, PoisonError};

use stepscope_analysis::critical_path::PathScope;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::path_ranges::{PathRanges, path_ranges};
use stepscope_engine::Run;
use stepscope_model::Cancelled;

use crate::run_cache::Cached;

/// Maximum number of cached paths.
const MAX_PATHS: usize = 4;
/// Maximum memory of the paths before the newest one, bytes.
const MAX_OLDER_BYTES: usize = 256 << 20;

/// A path and the steps that it belongs to.
struct ScopedPath {
    scope: PathScope,
    /// `None`: the run has none.
    path: Option<PathRanges>,
}

/// The paths that were asked for last.
#[derive(Default)]
pub(crate) struct PathCache(Mutex<Vec<Cached<ScopedPath>>>);

impl PathCache {
    /// Passes the path of the steps in a scope to a function; computed on first use.
    pub(crate) fn with_path<R>(
        &self,
        run: &Arc<Run>,
        scope: PathScope,
        cancel: &Cancel,
        use_path: impl FnOnce(Option<&PathRanges>) -> R,
    ) -> Result<R, Cancelled> {
        let known = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let of_scope =
                |known: &&Cached<ScopedPath>| known.is_of(run) && known.value.scope == scope;
            known
                .iter()
                .find(of_scope)
                .map(|known| Arc::clone(&known.value))
        };
        if let Some(known) = known {
            return Ok(use_path(known.path.as_ref()));
        }
        let path = path_ranges(&run.trace, &scope, cancel)?;
        let found = Arc::new(ScopedPath { scope, path });
        {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Cached::insert(&mut known, run, Arc::clone(&found), MAX_PATHS);
            Cached::limit_older(&mut known, MAX_OLDER_BYTES, |known: &ScopedPath| {
                known.path.as_ref().map_or(0, PathRanges::memory_bytes)
            });
        }
        Ok(use_path(found.path.as_ref()))
    }
}
