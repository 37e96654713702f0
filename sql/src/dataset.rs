//! Datasets: the tables of many runs as Parquet files in one folder. Layout: `docs/formats/parquet.md`.
//!
//! [`export()`](crate::export::export) writes runs into one, [`Dataset`] finds the files of its complete runs, and queries
//! read these as tables of the same names as the tables of open runs.

mod reads;
mod table;

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

use datafusion::execution::object_store::ObjectStoreUrl;
use serde_json::Value as Json;
use url::Url;

pub use reads::tables_of;
/// Names the version of a dataset.
pub(crate) use stepscope_engine::DATASET_MARK as MARK;
/// The table whose file says that a run is complete.
pub(crate) use stepscope_engine::DATASET_RUNS as RUNS;
/// Folder of the files of runs that are not complete. When they are, their files move to the folders of their tables.
pub(crate) use stepscope_engine::DATASET_UNFINISHED as UNFINISHED;
pub(crate) use table::register;

use crate::schema::SCHEMA;

/// Tables with a row for each event; their files are numbered.
pub(crate) const EVENT_TABLES: [&str; 8] = [
    "allocations",
    "args",
    "counters",
    "flows",
    "instants",
    "kernels",
    "ops",
    "slices",
];
/// Describes this program, not the runs.
pub(crate) const TABLE_COLUMNS: &str = "table_columns";
/// The key in the path of each file, and the column that readers take from it.
pub(crate) const DATE: &str = "date";
/// Scheme of the addresses of datasets within the query engine.
const URL: &str = "dataset://";
/// Ending of the names of complete files.
const ENDING: &str = ".parquet";

/// Why a folder cannot be read or written as a dataset.
#[derive(Debug)]
pub enum DatasetError {
    /// The dataset has another layout.
    OtherSchema(PathBuf, Json),
    /// A file or a folder cannot be read.
    File(PathBuf, io::Error),
}

impl fmt::Display for DatasetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSchema(path, schema) => write!(
                f,
                "cannot use the dataset {}: its layout has version {schema}, this program knows version {SCHEMA}\n\
                 help: name another folder, or use the version of stepscope that wrote it",
                path.display()
            ),
            Self::File(path, error) => write!(f, "cannot read {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for DatasetError {}

/// Returns whether a folder has the mark of a dataset, in the version of this program.
pub(crate) fn check_mark(folder: &Path) -> Result<bool, DatasetError> {
    let mark = folder.join(MARK);
    match std::fs::read_to_string(&mark) {
        Ok(text) => {
            let found: Json = serde_json::from_str(&text).unwrap_or_default();
            if found["schema"] == SCHEMA {
                return Ok(true);
            }
            Err(DatasetError::OtherSchema(
                folder.into(),
                found["schema"].clone(),
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // A file has no files below it.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(DatasetError::File(mark, error)),
    }
}

/// Returns the name of the folder with the files of a day.
pub(crate) fn date_folder(date: &str) -> String {
    format!("{DATE}={date}")
}

/// Returns the name of a run's file in a table's folder. Tables of events have numbered files.
pub(crate) fn file_name(key: &str, number: Option<usize>) -> String {
    match number {
        Some(number) => format!("{key}.{number}{ENDING}"),
        None => format!("{key}{ENDING}"),
    }
}

/// A file of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DatasetFile {
    /// Day in its path, such as `2026-11-23`.
    date: String,
    /// Name.
    name: String,
}

/// A dataset to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    folder: PathBuf,
}

impl Dataset {
    /// Returns the dataset in a folder; `None` for a path that is none. Fails if it has another layout.
    pub fn at(folder: &Path) -> Result<Option<Self>, DatasetError> {
        if !check_mark(folder)? {
            return Ok(None);
        }
        // The machines of a cluster have other working directories.
        let absolute = std::path::absolute(folder);
        let folder = absolute.map_err(|error| DatasetError::File(folder.into(), error))?;
        Ok(Some(Self { folder }))
    }

    /// Returns the address of its files for the query engine: `dataset://` and the hexadecimal bytes of the folder's
    /// path. An address of object stores has no path of its own.
    fn url(&self) -> datafusion::error::Result<ObjectStoreUrl> {
        let path = self.folder.to_string_lossy();
        let mut text = URL.to_owned();
        for byte in path.bytes() {
            // Writing into a text does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        ObjectStoreUrl::parse(text)
    }

    /// Returns whether an address is that of its files.
    pub(crate) fn has_url(&self, url: &Url) -> bool {
        let own = self.url();
        own.is_ok_and(|own| {
            own.as_str().trim_end_matches('/') == url.as_str().trim_end_matches('/')
        })
    }

    /// Returns the dataset of this machine at an address; `None` if there is none.
    pub(crate) fn of_url(url: &Url) -> Option<Self> {
        let digits = url.as_str().strip_prefix(URL)?.trim_end_matches('/');
        let pairs = digits.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        let path = String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?;
        Self::at(Path::new(&path)).ok()?
    }

    /// Returns whether a complete run is in a folder, of whatever day.
    pub(crate) fn has_run(folder: &Path, key: &str) -> Result<bool, DatasetError> {
        let Some(dataset) = Self::at(folder)? else {
            return Ok(false);
        };
        let name = file_name(key, None);
        let runs = dataset.all_files(RUNS)?;
        Ok(runs.iter().any(|file| file.name == name))
    }

    /// Returns the number of its complete runs; 0 if the folder cannot be read.
    pub(crate) fn runs(&self) -> usize {
        self.all_files(RUNS).map_or(0, |files| files.len())
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lists the files of a table that belong to complete runs, in the order of day and name. Files of runs whose
    /// export did not end are left out.
    fn files(&self, table: &str) -> Result<Vec<DatasetFile>, DatasetError> {
        let complete = self.all_files(RUNS)?;
        if table == RUNS {
            return Ok(complete);
        }
        let key = |name: &str, is_numbered: bool| {
            let stem = name.strip_suffix(ENDING).unwrap_or(name);
            let stem = is_numbered
                .then(|| stem.rsplit_once('.'))
                .flatten()
                .map_or(stem, |(key, _)| key);
            stem.to_owned()
        };
        let complete: HashSet<(String, String)> = complete
            .into_iter()
            .map(|file| (file.date, key(&file.name, false)))
            .collect();
        let is_numbered = EVENT_TABLES.contains(&table);
        let mut files = self.all_files(table)?;
        files.retain(|file| complete.contains(&(file.date.clone(), key(&file.name, is_numbered))));
        Ok(files)
    }

    /// Lists the files of a table.
    fn all_files(&self, table: &str) -> Result<Vec<DatasetFile>, DatasetError> {
        let mut files = Vec::new();
        let folder = self.folder.join(table);
        for day in names(&folder)? {
            let Some(date) = day
                .strip_prefix(DATE)
                .and_then(|rest| rest.strip_prefix('='))
            else {
                continue;
            };
            let of_day = names(&folder.join(&day))?.into_iter();
            files.extend(
                of_day
                    .filter(|name| name.ends_with(ENDING))
                    .map(|name| DatasetFile {
                        date: date.to_owned(),
                        name,
                    }),
            );
        }
        files.sort_unstable();
        Ok(files)
    }
}

/// Returns the names in a folder; none if it does not exist. Names that are not UTF-8 are none of ours.
fn names(folder: &Path) -> Result<Vec<String>, DatasetError> {
    let failed = |error| DatasetError::File(folder.into(), error);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    Ok(names)
}
