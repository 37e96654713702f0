//! Datasets in a bucket: their files are fetched into the cache, whose folders are like those of the bucket.
//!
//! The SQL engine reads folders of this machine and has no network. So the tables that a query reads are fetched first
//! ([`SqlEngine::tables_of`](crate::SqlEngine::tables_of)).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stepscope_model::ReadContext;

use super::store;
use crate::error::EngineError;

/// The table of a dataset whose files say which runs are complete.
pub const DATASET_RUNS: &str = "runs";

/// Folder of a dataset with files of runs that are being written.
pub const DATASET_UNFINISHED: &str = "_unfinished";

/// Folder of a dataset with the tables of files whose run is not joined yet.
pub const DATASET_PARTS: &str = "_parts";

/// Fetches tables of the dataset at a URL, and returns its folder on this machine; `None` if no dataset is there.
/// Queries see the files that the bucket has now: those of the cache that it has no longer are removed.
pub fn fetch_dataset(
    url: &Path,
    tables: &BTreeSet<String>,
    context: &ReadContext,
) -> Result<Option<PathBuf>, EngineError> {
    store::fetch_dataset(url, tables, context)
}
