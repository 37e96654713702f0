//! The critical paths of a trace that were computed last: the newest one, which
//! [`MAX_SLICES`](super::MAX_SLICES) bounds, and some before it.

use std::sync::{Arc, Mutex, PoisonError};

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::{PathGraph, PathScope};

/// Maximum memory of the paths before the newest one, bytes.
const MAX_OLDER_BYTES: usize = 256 << 20;
/// Maximum number of paths.
const MAX_PATHS: usize = 16;

/// A path, `None` for a scope without one.
type Path = Option<Arc<PathGraph>>;

/// Paths by their scope, the last used first.
#[derive(Default)]
struct PathCache(Mutex<Vec<(PathScope, Path)>>);

impl PathCache {
    fn get(&self, scope: &PathScope) -> Option<Path> {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = paths.iter().position(|(known, _)| known == scope)?;
        let found = paths.remove(at);
        let path = found.1.clone();
        paths.insert(0, found);
        Some(path)
    }

    fn insert(&self, scope: PathScope, path: Path, max_older_bytes: usize) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paths.retain(|(known, _)| *known != scope);
        paths.insert(0, (scope, path));
        paths.truncate(MAX_PATHS);
        let mut sum = 0_usize;
        let mut is_newest = true;
        paths.retain(|(_, path)| {
            if std::mem::take(&mut is_newest) {
                return true;
            }
            let bytes = path.as_ref().map_or(0, |path| path.memory_bytes());
            let fits = sum.saturating_add(bytes) <= max_older_bytes;
            sum = sum.saturating_add(if fits { bytes } else { 0 });
            fits
        });
    }
}

/// Returns the path of a scope, computed on first use.
pub(super) fn path_of(
    trace: &Trace,
    scope: &PathScope,
    compute: impl FnOnce() -> Result<Option<PathGraph>, Cancelled>,
) -> Result<Path, Cancelled> {
    let cache = trace.derived::<PathCache>();
    if let Some(known) = cache.get(scope) {
        return Ok(known);
    }
    let path = compute()?.map(Arc::new);
    cache.insert(scope.clone(), path.clone(), MAX_OLDER_BYTES);
    Ok(path)
}

#[cfg(test)]
mod tests {
    use stepscope_model::Time;

    use super::*;

    fn scope(end: i64) -> PathScope {
        let mut scope = PathScope::default();
        scope.steps.range = Some(Time::ZERO..Time::from_ps(end));
        scope
    }

    fn path(segments: usize) -> Arc<PathGraph> {
        let mut path = PathGraph::default();
        path.segments.slice = vec![0; segments];
        Arc::new(path)
    }

    #[test]
    fn the_newest_path_stays_and_older_ones_up_to_a_bound() {
        let cache = PathCache::default();
        let bytes = path(10).memory_bytes();
        cache.insert(scope(1), Some(path(10)), 2 * bytes);
        cache.insert(scope(2), Some(path(10)), 2 * bytes);
        cache.insert(scope(3), Some(path(10)), 2 * bytes);
        assert!(cache.get(&scope(1)).is_some());
        cache.insert(scope(4), Some(path(1_000)), 2 * bytes);
        assert!(cache.get(&scope(2)).is_none());
        assert!(cache.get(&scope(4)).is_some());
        cache.insert(scope(5), None, 2 * bytes);
        assert!(cache.get(&scope(4)).is_none());
        assert!(matches!(cache.get(&scope(5)), Some(None)));
        assert!(cache.get(&scope(3)).is_some() && cache.get(&scope(1)).is_some());
    }
}
