//! A run that a scan found, and its files. Nothing of it is read.

use std::path::PathBuf;

use crate::files::{Beneath, Stamp};
use crate::names::NameClass;

/// One trace file of a run.
#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    /// Where it lies in the directory that is served; `None` for a file that the user named.
    pub(crate) place: Option<Beneath>,
    /// The file's name; replacement characters where it is not UTF-8.
    pub(crate) name: String,
    pub(crate) class: NameClass,
    pub(crate) stamp: Stamp,
    pub(crate) rank: Option<u32>,
}

/// One run, not opened.
#[derive(Clone, Debug)]
pub(crate) struct FoundRun {
    pub(crate) id: String,
    pub(crate) name: String,
    /// In the order of hosts and ranks.
    pub(crate) files: Vec<FoundFile>,
    /// Files beside them that hold the same events in another format.
    pub(crate) companions: Vec<PathBuf>,
    /// Unix time; from the session's or the file's name, else from the file's last change.
    pub(crate) recorded_ns: Option<i64>,
    /// Badges that names alone tell.
    pub(crate) kinds: Vec<String>,
}

impl FoundRun {
    /// Changes when any file of the run does.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut text = Vec::new();
        for file in &self.files {
            text.extend_from_slice(file.path.as_os_str().as_encoded_bytes());
            for number in [
                file.stamp.bytes,
                file.stamp.modified_ns.cast_unsigned(),
                file.stamp.inode,
            ] {
                text.extend_from_slice(&number.to_le_bytes());
            }
        }
        crate::hash::bytes(&text).to_u64()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.stamp.bytes).sum()
    }
}
