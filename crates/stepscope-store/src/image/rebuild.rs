//! Rebuilds the damaged columns of a large cache image from the files of its run.

use std::sync::OnceLock;

use crate::columns::sections::{RebuildColumn, RebuiltColumn};
use crate::image::trace_contents::columns_of;
use crate::read::trace::Trace;

/// Rebuilds the trace of an image from the files of its run; returns `None` on failure.
pub type Rebuild = Box<dyn Fn() -> Option<Trace> + Send + Sync>;

/// Returns a function that takes columns from a rebuilt trace. It calls `rebuild` once, for the
/// first damaged column.
pub(crate) fn column_rebuilder(rebuild: Rebuild) -> RebuildColumn {
    let trace = OnceLock::new();
    Box::new(move |number| {
        let trace = trace.get_or_init(|| build_apart(&rebuild)).as_ref()?;
        let columns = columns_of(trace);
        columns.get(number).map(|bytes| RebuiltColumn::new(bytes))
    })
}

/// Rebuilds the trace on a separate thread with its own pool: the caller may be one of many workers
/// of the common pool that wait for the same section.
fn build_apart(rebuild: &Rebuild) -> Option<Trace> {
    std::thread::scope(|scope| {
        let work = || {
            let pool = rayon::ThreadPoolBuilder::new().build().ok()?;
            pool.install(rebuild)
        };
        let thread = std::thread::Builder::new().name("stepscope-rebuild".to_owned());
        thread.spawn_scoped(scope, work).ok()?.join().ok()?
    })
}

impl Trace {
    /// Returns the number of damaged columns that were rebuilt from the run's files.
    pub fn repaired_columns(&self) -> usize {
        let sections = self.sections.as_ref();
        sections.map_or(0, |sections| sections.repairs())
    }

    /// Returns whether a column of the cache image is damaged and could not be rebuilt from the
    /// run's files. Results computed from this trace must not be shown then.
    pub fn is_damaged(&self) -> bool {
        let sections = self.sections.as_ref();
        sections.is_some_and(|sections| sections.is_damaged())
    }
}
