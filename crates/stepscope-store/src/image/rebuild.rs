//! Rebuilds the damaged columns of a large cache image from the files of its run.

use std::sync::OnceLock;

use crate::columns::sections::{RebuildColumn, RebuiltColumn};
use crate::image::trace_contents::columns_of;
use crate::read::trace::Trace;

/// Builds the trace of an image anew from the files of its run; `None` when that fails.
pub type Rebuild = Box<dyn Fn() -> Option<Trace> + Send + Sync>;

/// Takes columns from the trace that `rebuild` makes, which is called once, for the first of them.
pub(crate) fn column_rebuilder(rebuild: Rebuild) -> RebuildColumn {
    let trace = OnceLock::new();
    Box::new(move |number| {
        let trace = trace.get_or_init(|| build_apart(&rebuild)).as_ref()?;
        let columns = columns_of(trace);
        columns.get(number).map(|bytes| RebuiltColumn::new(bytes))
    })
}

/// Runs on a thread and a pool of its own: the caller may be one of many workers of the common pool
/// that wait for the same section.
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
    /// Number of columns of the cache image that were damaged and taken from the run's files instead.
    pub fn repaired_columns(&self) -> usize {
        let sections = self.sections.as_ref();
        sections.map_or(0, |sections| sections.repairs())
    }

    /// Whether a column of the cache image is damaged and could not be rebuilt from the run's files.
    /// Nothing computed from this trace may be shown then.
    pub fn is_damaged(&self) -> bool {
        let sections = self.sections.as_ref();
        sections.is_some_and(|sections| sections.is_damaged())
    }
}
