//! Sides of comparisons of open runs, kept for the next requests.

use std::sync::{Arc, Mutex, PoisonError};

use stepscope_analysis::compare::run::{ComparedRun, OwnerDetail};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_engine::Run;
use stepscope_model::Cancelled;

use crate::run_cache::Cached;

/// Maximum number of cached sides.
const MAX_SIDES: usize = 8;

/// A run as a comparison needs it, with the steps and the detail that it was read for.
struct Side {
    scope: AnalysisScope,
    detail: OwnerDetail,
    run: Arc<ComparedRun>,
}

/// The sides that were asked for last.
#[derive(Default)]
pub(crate) struct SideCache(Mutex<Vec<Cached<Side>>>);

impl SideCache {
    /// Returns a run as a side of a comparison, computed on first use.
    pub(crate) fn side(
        &self,
        run: &Arc<Run>,
        scope: AnalysisScope,
        detail: OwnerDetail,
        cancel: &Cancel,
    ) -> Result<Arc<ComparedRun>, Cancelled> {
        let known = {
            let sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_same = |known: &&Cached<Side>| {
                known.is_of(run) && known.value.scope == scope && known.value.detail == detail
            };
            sides
                .iter()
                .find(is_same)
                .map(|known| Arc::clone(&known.value.run))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let side = Arc::new(ComparedRun::compute(&run.trace, &scope, detail, cancel)?);
        if !run.trace.is_damaged() {
            let value = Side {
                scope,
                detail,
                run: Arc::clone(&side),
            };
            let mut sides = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Cached::insert(&mut sides, run, Arc::new(value), MAX_SIDES);
        }
        Ok(side)
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::Time;
    use stepscope_store::TraceBuilder;

    use super::*;

    #[test]
    fn the_same_side_is_computed_once() {
        let cache = SideCache::default();
        let runs = ["a", "b"].map(|name| {
            let trace = Arc::new(TraceBuilder::new().finish());
            Arc::new(Run::from_trace(name, trace))
        });
        let side = |run: &Arc<Run>, scope: &AnalysisScope, detail| {
            cache
                .side(run, scope.clone(), detail, &Cancel::default())
                .unwrap()
        };
        let whole = AnalysisScope::default();
        let part = AnalysisScope {
            range: Some(Time::ZERO..Time::from_ps(1)),
            ..AnalysisScope::default()
        };
        let first = side(&runs[0], &whole, OwnerDetail::Name);
        let again = |run: &Arc<Run>, scope: &AnalysisScope, detail| {
            Arc::ptr_eq(&first, &side(run, scope, detail))
        };
        assert!(again(&runs[0], &whole, OwnerDetail::Name));
        assert!(!again(&runs[1], &whole, OwnerDetail::Name));
        assert!(!again(&runs[0], &part, OwnerDetail::Name));
        assert!(!again(&runs[0], &whole, OwnerDetail::Shapes));
        assert!(again(&runs[0], &whole, OwnerDetail::Name));
        for end in (2..).take(MAX_SIDES) {
            let scope = AnalysisScope {
                range: Some(Time::ZERO..Time::from_ps(end)),
                ..AnalysisScope::default()
            };
            side(&runs[1], &scope, OwnerDetail::Name);
        }
        assert!(!again(&runs[0], &whole, OwnerDetail::Name));
    }
}
