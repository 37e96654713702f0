//! Reading traces: runs and their columns for Python, without copying them.
//!
//! ```text
//! log_directory (a path's runs, opened with progress and Ctrl-C) -> run (one opened run)
//!        -> column (buffer protocol)  \
//!        -> table  (Arrow stream)      > arrow (the C data interface)
//!        -> query (search, reports, aggregates)
//!        -> sql   (the SQL engine)
//! xspace (`ProfileData`: an XSpace as it is written)
//! ```
//!
//! What users see stands in `python/src/stepscope/read.py`. A column is a view of the trace's own
//! memory, or of a mapped cache image; any holder of the column (an array of `numpy`, a table of
//! `pyarrow`) holds the trace.

pub(crate) mod column;

mod arrow;
mod log_directory;
mod query;
mod run;
mod sql;
mod table;
mod values;
mod xspace;

use pyo3::prelude::*;

pub(crate) use run::RunData;

/// Adds what this room has to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    column::add_to(module)?;
    module.add_function(wrap_pyfunction!(sql::is_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(sql::run_files, module)?)?;
    module.add_function(wrap_pyfunction!(sql::query_sql, module)?)?;
    module.add_class::<log_directory::LogDirectory>()?;
    module.add_class::<RunData>()?;
    module.add_class::<xspace::ProfileData>()?;
    module.add_class::<xspace::ProfilePlane>()?;
    module.add_class::<xspace::ProfileLine>()?;
    module.add_class::<xspace::ProfileEvent>()?;
    Ok(())
}
