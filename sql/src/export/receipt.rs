//! The receipt of a file that was read: what its run needs of it beside its tables.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stepscope_engine::{DATASET_PARTS, RunFile};

use super::table_files::{TableSize, part_name};
use super::whole::key_of;

/// Name of a receipt. It is written last.
const RECEIPT: &str = "receipt.json";

/// Returns the name of a divided run's files. It follows from the names and sizes of the run's files, which every task
/// sees without reading them.
pub(super) fn key_of_divided(file: &RunFile) -> String {
    key_of(&file.run, &file.listing)
}

/// Returns the folder of a file's tables.
pub(super) fn folder_of(dataset: &Path, file: &RunFile) -> PathBuf {
    let run = dataset.join(DATASET_PARTS).join(key_of_divided(file));
    run.join(format!("{:06}", file.number))
}

/// Returns how many files of runs that are not joined yet have a receipt; 0 if the folder cannot be read.
pub(crate) fn files_done(dataset: &Path) -> usize {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let runs = entries(&dataset.join(DATASET_PARTS));
    let files = runs.flat_map(|run| entries(&run.path()));
    files
        .filter(|file| file.path().join(RECEIPT).exists())
        .count()
}

/// A file that was read. Times are on the clock of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    /// Path of the file.
    pub(super) path: String,
    /// [`RunFile::recorded_ns`] as this task had it.
    pub(super) recorded_ns: i64,
    /// Zero of the run's clock, Unix time, nanoseconds.
    pub(super) zero_ns: i64,
    /// Why the file cannot be read. It has no tables then.
    pub(super) problem: Option<String>,
    /// Whether something of it could not be read.
    pub(super) is_partial: bool,
    /// Whether it has a clock. Without one, it begins at zero.
    pub(super) has_clock: bool,
    /// What was added to its times, picoseconds.
    pub(super) shift_ps: i64,
    pub(super) kinds: Vec<String>,
    pub(super) host: String,
    pub(super) rank: Option<u32>,
    pub(super) start_ps: i64,
    pub(super) end_ps: i64,
    pub(super) devices: u64,
    pub(super) slices: u64,
    pub(super) instants: u64,
    pub(super) samples: u64,
    pub(super) flows: u64,
    pub(super) bytes: u64,
    pub(super) content_hash: String,
    /// The job that it states.
    pub(super) job: Option<String>,
    /// Number and size of the files of each table.
    pub(super) tables: BTreeMap<String, TableSize>,
}

impl Receipt {
    /// Returns the size of the tables, bytes.
    pub(super) fn table_bytes(&self) -> u64 {
        self.tables.values().map(|table| table.bytes).sum()
    }

    /// Writes it into the folder of a file.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let part = folder.join(part_name(RECEIPT));
        fs::write(&part, serde_json::to_vec(self)?)?;
        fs::rename(part, folder.join(RECEIPT))
    }

    /// Reads it from the folder of a file; `None` if the file was not read yet.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(folder.join(RECEIPT)) {
            // Of another version: the file is read again.
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the receipts in the folder of a run, each with the time at which it was written.
    pub(super) fn all_in(run: &Path) -> io::Result<Vec<(SystemTime, Self)>> {
        let mut found = Vec::new();
        for file in fs::read_dir(run)? {
            let folder = file?.path();
            if let Some(receipt) = Self::read(&folder)? {
                found.push((fs::metadata(folder.join(RECEIPT))?.modified()?, receipt));
            }
        }
        Ok(found)
    }
}
