//! Writes one run that is open as a whole.

use std::path::{Path, PathBuf};

use stepscope_engine::Run;

use super::table_files::{Destination, TableTarget, name_all};
use super::{ExportError, Options, Progress, Shift, query, tables};
use crate::dataset::{RUNS, UNFINISHED};
use crate::locked::MemoryLimits;
use crate::session::Session;

/// Longest part of a run's name in the names of its files, bytes.
const LONGEST_NAME: usize = 100;
/// Number of digits of a hash in the names of files.
const HASH_DIGITS: usize = 8;

/// Returns the name of a run's files: letters, digits, `-`, `_` and `.`, and digits of a hash.
///
/// With the hash, no reader takes the name for a number, and the same run has the same name again.
pub(super) fn key_of(name: &str, hash: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = name.chars().take(LONGEST_NAME);
    let name: String = name.map(|c| if is_plain(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches('.');
    let hash = hash.get(..HASH_DIGITS).unwrap_or(hash);
    format!("{name}-{hash}")
}

/// A run on its way into a dataset.
pub(super) struct RunExport<'a> {
    session: Session,
    name: String,
    key: String,
    slices: u64,
    date: String,
    dataset: &'a Path,
    options: &'a Options,
}

impl<'a> RunExport<'a> {
    pub(super) fn new(run: Run, path: &Path, dataset: &'a Path, options: &'a Options) -> Self {
        let key = key_of(&run.name, &run.content_hash);
        let path = path.display().to_string();
        Self {
            name: run.name.clone(),
            slices: run.trace.slice_count(),
            date: date_of(run.start_unix_ns()),
            session: Session::of_run(0, key.clone(), path, run, MemoryLimits::default()),
            key,
            dataset,
            options,
        }
    }

    fn destination(&self) -> Destination<'_> {
        Destination::Run { date: &self.date }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The file that is written last.
    fn last(&self) -> PathBuf {
        self.destination().path(self.dataset, RUNS, &self.key, None)
    }

    /// Returns the key of a run in the dataset that has the same content and another name: it was exported from a folder
    /// above this one's or below it.
    pub(super) fn same_content(&self) -> Option<String> {
        let last = self.last();
        let own = last.file_name()?.to_str()?;
        let (_, hash) = own.rsplit_once('-')?;
        let entries = std::fs::read_dir(last.parent()?).into_iter().flatten();
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let other = names
            .filter(|name| name != own)
            .filter(|name| name.rsplit_once('-').is_some_and(|(_, end)| end == hash))
            .min()?;
        Some(other.trim_end_matches(".parquet").to_owned())
    }

    pub(super) async fn write(&self) -> Result<Progress, ExportError> {
        let run = self.name.clone();
        let last = self.last();
        if last.exists() {
            remove_unfinished(self.dataset, &self.key);
            return Ok(Progress::Present { run, file: None });
        }
        let mut written = Vec::new();
        for (table, columns) in tables() {
            let Some(sql) = query(table, columns, &self.options.args, Shift::default()) else {
                continue;
            };
            let target = TableTarget {
                dataset: self.dataset,
                key: &self.key,
                table,
                columns,
                to: self.destination(),
            };
            written.push(target.write(self.session.context(), &sql).await?);
        }
        let bytes = name_all(&written)?;
        drop(written);
        remove_unfinished(self.dataset, &self.key);
        Ok(Progress::Exported {
            run,
            file: None,
            slices: self.slices,
            bytes,
        })
    }
}

/// Removes what other tasks began of a run and did not finish, and the folder if nothing else is in it: programs that
/// take each folder of a dataset for a table find tables only.
pub(super) fn remove_unfinished(dataset: &Path, key: &str) {
    let prefix = format!("{key}.");
    let folder = dataset.join(UNFINISHED);
    let entries = std::fs::read_dir(&folder);
    for entry in entries.into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // Another task may do the same.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    remove_empty(dataset);
}

/// Removes the folder of what is not finished if nothing is in it.
pub(super) fn remove_empty(dataset: &Path) {
    // It stays while files of other runs are in it.
    let _ = std::fs::remove_dir(dataset.join(UNFINISHED));
}

/// Returns the day as `2026-11-23`, UTC; that of Unix time zero for a run without a clock.
pub(super) fn date_of(start_unix_ns: Option<i64>) -> String {
    let days = start_unix_ns.unwrap_or(0).div_euclid(86_400_000_000_000);
    let days = i32::try_from(days).unwrap_or(0);
    let date = datafusion::arrow::temporal_conversions::date32_to_datetime(days);
    date.map_or_else(
        || "1970-01-01".to_owned(),
        |date| date.format("%Y-%m-%d").to_string(),
    )
}
